"""Offers: written, and received or missing (FE 5.2 P5, 1.2 push receipt)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from msgspec import UNSET

from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.deadlines import Deadlines
from intercom.core.effects import Write
from intercom.core.offers import Missing, Offered, Offers
from intercom.core.outbox import Outbox
from intercom.wire.frames import Health

WAIT_MS = 2_000
FRAME = Health("r", "i")


class Scene:
    def __init__(self) -> None:
        self.outbox = Outbox()
        self.deadlines = Deadlines()
        self.offers = Offers(self.outbox, self.deadlines, WAIT_MS)
        self.ends: list[Any] = []
        self.now = Instant(0, 0)

    def session(self, session_id: str = "s", *, confirms: bool = True, number: int = 1) -> Any:
        return SimpleNamespace(id=session_id, confirms_receipts=confirms, connection=Connection(number, None))

    def offer(self, session: Any, push_id: str = "p", message_id: str = "m") -> Offered:
        return self.offers.offer(
            session,
            FRAME,
            message_id,
            push_id,
            self.now,
            after=5,
            on_received=lambda subject, now: self.ends.append((subject, "received")),
            on_missing=lambda subject, why, now: self.ends.append((subject, why)),
            subject=push_id,
        )

    def pass_time(self, ms: int) -> None:
        self.now = Instant(self.now.mono + ms, self.now.wall + ms)
        self.deadlines.run(self.now)


def test_the_frame_waits_for_its_commit_and_is_named() -> None:
    scene = Scene()
    offered = scene.offer(scene.session())
    assert scene.outbox.take() == [Write(1, FRAME, 5, offered)]


def test_a_receipt_ends_it_with_and_without_the_push_id() -> None:
    scene = Scene()
    session = scene.session()
    scene.offer(session)
    scene.offer(session, "q", "n")
    assert scene.offers.received(session, "m", "p", scene.now)
    assert scene.offers.received(session, "n", UNSET, scene.now)
    assert scene.ends == [("p", "received"), ("q", "received")]
    assert len(scene.offers) == 0
    scene.pass_time(10 * WAIT_MS)
    assert len(scene.ends) == 2


def test_a_receipt_for_something_else_is_none() -> None:
    scene = Scene()
    session = scene.session()
    scene.offer(session)
    assert not scene.offers.received(session, "n", "p", scene.now)
    assert not scene.offers.received(session, "m", "q", scene.now)
    assert not scene.offers.received(scene.session(number=2), "m", "p", scene.now)
    assert not scene.offers.received(scene.session("t"), "m", "p", scene.now)
    assert scene.ends == []


def test_who_confirms_nothing_has_it_when_the_kernel_took_it() -> None:
    """FE 1.2: without push.receipts a successful socket write counts as handed over."""
    scene = Scene()
    scene.offers.frame_taken(scene.offer(scene.session(confirms=False)), scene.now)
    assert scene.ends == [("p", "received")]


def test_the_kernel_alone_proves_nothing_of_who_confirms() -> None:
    scene = Scene()
    scene.offers.frame_taken(scene.offer(scene.session()), scene.now)
    scene.pass_time(WAIT_MS - 1)
    assert scene.ends == []
    scene.pass_time(1)
    assert scene.ends == [("p", Missing.NOT_CONFIRMED)]


def test_a_lost_frame_has_provably_not_arrived() -> None:
    scene = Scene()
    offered = scene.offer(scene.session())
    scene.offers.frame_lost(offered, scene.now)
    scene.offers.frame_lost(offered, scene.now)
    assert scene.ends == [("p", Missing.NOT_WRITTEN)]


def test_a_connection_that_ended_is_told_at_once() -> None:
    scene = Scene()
    session = scene.session()
    session.connection.open = False
    scene.offer(session)
    assert scene.ends == [("p", Missing.NOT_WRITTEN)]
    assert scene.outbox.take() == []


def test_what_is_on_its_way_to_who_left_may_have_arrived() -> None:
    """A1.16: the offers of a replaced connection do not count."""
    scene = Scene()
    older, newer = scene.session(), scene.session(number=2)
    scene.offer(older, "p")
    scene.offer(newer, "q")
    scene.offers.session_left(older, scene.now)
    assert scene.ends == [("p", Missing.NOT_CONFIRMED)]
    assert scene.offers.received(newer, "m", "q", scene.now)


def test_the_same_item_again_takes_the_place_of_the_first_offer() -> None:
    scene = Scene()
    session = scene.session()
    first = scene.offer(session)
    scene.offer(session)
    scene.offers.frame_lost(first, scene.now)
    assert scene.ends == []
    assert len(scene.offers) == 1
    scene.pass_time(WAIT_MS)
    assert scene.ends == [("p", Missing.NOT_CONFIRMED)]


def test_a_withdrawn_offer_says_nothing() -> None:
    scene = Scene()
    session = scene.session()
    offered = scene.offer(session)
    scene.offers.withdraw(offered)
    scene.offers.frame_lost(offered, scene.now)
    scene.offers.session_left(session, scene.now)
    scene.pass_time(WAIT_MS)
    assert scene.ends == [] and len(scene.offers) == 0


def test_what_is_on_its_way_to_one_session_is_counted() -> None:
    """Charge before you link: callers bound what they offer ahead of receipts."""
    scene = Scene()
    session, other = scene.session(), scene.session("t", number=2)
    offered = scene.offer(session)
    scene.offer(session, "p2", "m2")
    assert (scene.offers.count(session), scene.offers.count(other)) == (2, 0)
    scene.offers.withdraw(offered)
    scene.offers.received(session, "m2", UNSET, scene.now)
    assert scene.offers.count(session) == 0


def test_what_has_ended_is_not_ended_again() -> None:
    """A1.10: an acceptance that overtakes the receipt stands for it"""
    scene = Scene()
    session = scene.session()
    offered = scene.offer(session)
    assert scene.offers.received(session, "m", UNSET, scene.now)
    scene.offers.withdraw(offered)
    assert scene.ends == [("p", "received")] and len(scene.offers) == 0
