"""Reading session and message objects of the broker."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from msgspec.json import encode

from intercom.client.views import Malformed, message_of, view_of
from intercom.wire.frames import Attachment, MessageFrame
from tests.support.client import PEER
from tests.support.wire import FULL_MESSAGE, MESSAGE, without


def raw(value: Any) -> Raw:
    return Raw(encode(value))


def test_a_session_with_every_member() -> None:
    """Protocol 4: the session object; what the kernel says is shown beside the claimed pid (design section 7)."""
    shown = {**PEER, "status": "busy", "peer": {"pid": 77, "uid": 1}, "mood": [1]}
    view = view_of(raw(shown))
    assert (view.id, view.name, view.cwd, view.model) == (PEER["id"], "worker", "/p", "m")
    assert (view.pid, view.peer_pid, view.status) == (11, 77, "busy")
    assert (view.group, view.groups) == ("default", ("default",))
    assert (view.started_at, view.last_activity) == (2, 2)
    assert view.raw == shown


def test_a_session_of_an_older_client() -> None:
    view = view_of(raw(without(PEER, "name", "groups")))
    assert (view.name, view.status, view.peer_pid, view.groups) == (None, None, None, ("default",))
    assert view_of(raw(without(PEER, "group", "groups"))).groups == ()


@pytest.mark.parametrize("peer", [None, 7, {"uid": 1}, {"pid": "7"}])
def test_an_unknown_form_of_peer_is_no_pid(peer: Any) -> None:
    assert view_of(raw({**PEER, "peer": peer})).peer_pid is None


@pytest.mark.parametrize(
    "wrong", [without(PEER, "cwd"), without(PEER, "id"), {**PEER, "id": 3}, [], {**PEER, "pid": "1"}]
)
def test_a_session_that_breaks_the_protocol(wrong: Any) -> None:
    with pytest.raises(Malformed):
        view_of(raw(wrong))


def test_who_confirms_nothing_is_shown_as_such() -> None:
    """F81"""
    assert view_of(raw({**PEER, "unconfirmedSince": 7})).unconfirmed_since == 7
    for told in ({}, {"unconfirmedSince": "7"}, {"unconfirmedSince": True}):
        assert view_of(raw({**PEER, **told})).unconfirmed_since is None


def test_who_is_away_is_shown_as_such() -> None:
    """FE 1.2: a listed session that lost its connection says so; ``state`` is no word of the session's own."""
    away = view_of(raw({**PEER, "state": "reconnecting", "stateSince": 7, "graceDeadline": 9}))
    assert (away.state, away.state_since) == ("reconnecting", 7)
    for told in ({}, {"state": "active", "stateSince": 7}, {"state": 3}):
        here = view_of(raw({**PEER, **told}))
        assert (here.state, here.state_since) == ("active", None)
    assert view_of(raw({**PEER, "state": "reconnecting", "stateSince": "7"})).state_since is None


def test_a_message_with_every_member() -> None:
    """Protocol 4: the message object."""
    message = message_of(MessageFrame(raw(PEER), raw(FULL_MESSAGE), "supervisor"))
    assert (message.id, message.text, message.timestamp) == (FULL_MESSAGE["id"], "see below", 1_700_000_000_000)
    assert (message.reply_to, message.reply_error, message.expects_reply) == ("q-1", "no idea", False)
    assert message.attachments[0] == Attachment("file", "a.py", "x = {}", "python")
    assert (message.channel, message.sender.name, message.raw) == ("supervisor", "worker", FULL_MESSAGE)


def test_a_plain_message() -> None:
    message = message_of(MessageFrame(raw(PEER), raw({**MESSAGE, "mood": 1})))
    assert (message.reply_to, message.reply_error, message.expects_reply, message.channel) == (None, None, False, None)
    assert message.attachments == ()
    assert repr(message) == f"<IncomingMessage '{MESSAGE['id']}' from 'worker'>"


def test_a_message_that_breaks_the_protocol() -> None:
    with pytest.raises(Malformed):
        message_of(MessageFrame(raw(PEER), raw(without(MESSAGE, "id"))))
