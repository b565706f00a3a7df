"""One connection: registering, cutting frames, breaking off."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.client.contact import Contact, Link
from intercom.client.profile import Profile
from intercom.client.recovery import HOPELESS
from intercom.errors import BrokerBusy, BrokerError, ConnectionLost, ProtocolViolation, RegistrationRefused, TooLarge
from intercom.limits import CONNECT_MS, FRAME_BYTES, HEADER_BYTES, UNREGISTERED_FRAME_BYTES
from intercom.wire.codec import encode
from intercom.wire.frames import Health, Presence, Registered
from intercom.wire.unions import Answer
from tests.support.client import UNANSWERED, WALL, Frame, unpacked
from tests.support.raw import packed

REGISTERED: Frame = {"type": "registered", "sessionId": "me", "acknowledgesReceipt": True}


def begun() -> Contact:
    contact = Contact()
    contact.begin(Profile().register(WALL), 1_000, BrokerBusy(UNANSWERED))
    return contact


def heard(contact: Contact, *frames: Frame) -> list[Answer]:
    return list(contact.answers(b"".join(map(packed, frames))))


def test_registering() -> None:
    """Protocol 4.1: the client speaks first."""
    contact = begun()
    assert [frame["type"] for frame in unpacked(contact.outgoing())] == ["register"]
    assert contact.outgoing() == b""
    assert contact.registration_due == 1_000 + CONNECT_MS
    assert not contact.is_online
    assert isinstance(contact.trouble, BrokerBusy)
    assert heard(contact, REGISTERED) == [Registered("me", acknowledges_receipt=True)]
    assert contact.is_online
    assert contact.registration_due is None
    assert contact.trouble is None
    assert contact.confirms


def test_receipts_are_written_only_where_they_are_understood() -> None:
    """Protocol 5.1: acknowledgesReceipt tells that received is understood."""
    contact = begun()
    heard(contact, {"type": "registered", "sessionId": "me"})
    assert not contact.confirms


@given(st.lists(st.integers(1, 40), max_size=30))
def test_frames_may_come_in_any_pieces(cuts: list[int]) -> None:
    """F40: a stream may be split anywhere."""
    data = packed(REGISTERED) + packed({"type": "health", "requestId": "h", "instanceId": "ü🙂"})
    contact = begun()
    found: list[Answer] = []
    for cut in cuts:
        found += contact.answers(data[:cut])
        data = data[cut:]
    found += contact.answers(data)
    assert found == [Registered("me", acknowledges_receipt=True), Health("h", "ü🙂")]


def test_a_refusal_breaks_off() -> None:
    """Protocol 5.2: registration_failed is followed by FIN, and may come long after registration."""
    contact = begun()
    heard(contact, {"type": "registration_failed", "reason": "no", "code": "owner_missing"})
    assert contact.link is Link.BROKEN
    cause = contact.ended()
    assert isinstance(cause, RegistrationRefused)
    assert cause.code == "owner_missing"


def test_a_registration_the_disk_could_not_take_is_tried_again() -> None:
    """Protocol 9.1.3: it is as if the session had never come; a reconnect must not give up for that."""
    contact = begun()
    heard(contact, {"type": "registration_failed", "reason": "Not recorded: no", "code": "not_recorded"})
    cause = contact.ended()
    assert not isinstance(cause, HOPELESS)
    assert isinstance(cause, BrokerError)
    assert (cause.code, cause.retry, cause.exit_status) == ("not_recorded", "after", 5)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        packed({"type": "surprise"}),
        packed([]),
        b"\0\0\0\2{]",
        packed({"type": "sessions", "requestId": "r"}),
        packed({"type": "delivered", "messageId": "m"}),
        packed({"type": "error", "error": "broken"}),
        packed(REGISTERED) + packed(REGISTERED),
    ],
)
def test_whatever_breaks_the_protocol_breaks_the_connection(data: bytes) -> None:
    """F42: after a framing error close, never try to resync; before registered nothing else is expected."""
    contact = begun()
    list(contact.answers(data))
    assert contact.link is Link.BROKEN
    assert list(contact.answers(packed(REGISTERED))) == []
    assert isinstance(contact.ended(), ProtocolViolation)


def test_a_bad_prefix_is_named() -> None:
    """F42: the error names the bad prefix in hex and as text."""
    contact = begun()
    list(contact.answers(b"HTTP/1.1 400"))
    cause = contact.ended()
    assert cause is not None
    assert "48 54 54 50" in cause.reason
    assert "HTTP" in cause.reason


def test_what_no_frame_holds_is_not_written() -> None:
    """OP-1: the broker ends the connection for it, so repeating it would never help; every length up to it is."""
    contact = begun()
    contact.outgoing()
    heard(contact, REGISTERED)
    empty = len(encode(Presence(status=""))) - HEADER_BYTES
    contact.write(Presence(status="x" * (FRAME_BYTES - empty)))
    assert len(contact.outgoing()) == FRAME_BYTES + HEADER_BYTES
    with pytest.raises(TooLarge, match=str(FRAME_BYTES)):
        contact.write(Presence(status="x" * (FRAME_BYTES - empty + 1)))
    assert (contact.outgoing(), contact.is_online) == (b"", True)


def test_a_registration_that_no_frame_holds_is_hopeless() -> None:
    """OP-1: 1 MiB before register."""
    contact = Contact()
    contact.begin(Profile(return_address="x" * UNREGISTERED_FRAME_BYTES).register(WALL), 1_000, BrokerBusy(UNANSWERED))
    assert contact.link is Link.BROKEN
    assert isinstance(contact.ended(), HOPELESS)


def test_nothing_is_handled_after_breaking_off() -> None:
    contact = begun()
    taken = []
    for answer in contact.answers(packed(REGISTERED) + packed({"type": "shutdown_ack", "requestId": "r"})):
        taken.append(answer)
        contact.break_off(None)
    assert taken == [Registered("me", acknowledges_receipt=True)]


def test_an_end_while_registering() -> None:
    contact = begun()
    assert contact.ended() is None
    assert isinstance(contact.trouble, ConnectionLost)
    assert contact.outgoing() == b"", "nothing of an old connection is written to a new one"


def test_closing_keeps_the_goodbye() -> None:
    contact = begun()
    contact.outgoing()
    heard(contact, REGISTERED)
    contact.close()
    assert unpacked(contact.outgoing()) == [{"type": "unregister"}]


def test_closing_before_registration_says_nothing() -> None:
    contact = begun()
    contact.close()
    assert contact.outgoing() == b""


def test_closing_behind_a_registration_that_was_not_answered_takes_it_back() -> None:
    """The broker may have made the session all the same, and nobody could take it back."""
    contact = begun()
    assert unpacked(contact.outgoing())[0]["type"] == "register"
    contact.close()
    assert unpacked(contact.outgoing()) == [{"type": "unregister"}]


def test_one_connection_at_a_time() -> None:
    contact = begun()
    with pytest.raises(RuntimeError):
        contact.begin(Profile().register(WALL), 0, BrokerBusy(UNANSWERED))
