"""Test what leaves the core, and what a connection that has ended never gets."""

from __future__ import annotations

from intercom.core.connections import Connection
from intercom.core.effects import Broadcast, Finish, Note, Stop, Write
from intercom.core.outbox import Outbox
from intercom.wire.frames import Health, SessionLeft

FRAME = Health("q", "i")


def test_effects_come_out_in_the_order_in_which_they_were_decided() -> None:
    """effects: performed in the order in which they were returned"""
    outbox, one, two = Outbox(), Connection(1, None), Connection(2, None)
    assert outbox.write(one, FRAME, 7, "token")
    outbox.broadcast([one, two], SessionLeft("s"))
    outbox.note("event", reason="r")
    outbox.add(Stop("why"))
    outbox.finish(two)
    assert outbox.take() == [
        Write(1, FRAME, 7, "token"),
        Broadcast((1, 2), SessionLeft("s")),
        Note("event", {"reason": "r"}),
        Stop("why"),
        Finish(2),
    ]
    assert outbox.take() == []


def test_nothing_is_written_to_a_connection_that_has_ended() -> None:
    """protocol 1.4: not destroyed and FIN not yet sent, else not written"""
    outbox, gone, here = Outbox(), Connection(1, None), Connection(2, None)
    outbox.finish(gone)
    outbox.finish(gone)
    assert outbox.take() == [Finish(1)]
    assert not outbox.write(gone, FRAME)
    outbox.broadcast([gone, here], SessionLeft("s"))
    outbox.broadcast([gone], SessionLeft("s"))
    outbox.broadcast([], SessionLeft("s"))
    assert outbox.take() == [Broadcast((2,), SessionLeft("s"))]


def test_a_muted_outbox_still_ends_connections_and_takes_notes() -> None:
    """protocol 3.8: nobody is told anything"""
    outbox, connection = Outbox(), Connection(1, None)
    outbox.muted = True
    assert not outbox.write(connection, FRAME)
    outbox.broadcast([connection], SessionLeft("s"))
    outbox.note("event")
    outbox.finish(connection)
    assert outbox.take() == [Note("event", {}), Finish(1)]
