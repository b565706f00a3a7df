"""Reading is not confirming; a copy is shown once."""

from __future__ import annotations

from msgspec import Raw
from msgspec.json import encode

from intercom.client.inbox import REMEMBERED_MS, Inbox
from intercom.client.views import IncomingMessage, view_of
from intercom.limits import INCOMING_MESSAGES, SEEN_IDS
from tests.support.client import PEER


class Consumer:
    """Take messages."""


def arrived(message_id: str) -> IncomingMessage:
    return IncomingMessage(id=message_id, text="", sender=view_of(Raw(encode(PEER))))


def test_a_message_is_confirmed_when_its_consumer_asks_for_the_next() -> None:
    """Design section 7, Receipts."""
    inbox, consumer = Inbox(), Consumer()
    for message_id in ("m1", "m2"):
        inbox.put(arrived(message_id))
    first, finished = inbox.take(consumer, 0)
    assert (first and first.id, finished) == ("m1", [])
    second, finished = inbox.take(consumer, 0)
    assert (second and second.id, finished) == ("m2", ["m1"])
    assert inbox.take(consumer, 0) == (None, ["m2"])
    assert inbox.take(consumer, 0) == (None, [])


def test_consumers_do_not_confirm_for_each_other() -> None:
    inbox, one, two = Inbox(), Consumer(), Consumer()
    inbox.put(arrived("m1"))
    inbox.put(arrived("m2"))
    inbox.take(one, 0)
    assert inbox.take(two, 0)[1] == []
    assert inbox.take(two, 0)[1] == ["m2"]
    assert inbox.take(one, 0)[1] == ["m1"]


def test_a_consumer_that_is_gone_has_finished() -> None:
    """A loop that was left with break asks no more; the next loop does."""
    inbox, consumer = Inbox(), Consumer()
    inbox.put(arrived("m1"))
    inbox.take(consumer, 0)
    del consumer
    assert inbox.take(Consumer(), 0) == (None, ["m1"])


def test_leaving_the_block_confirms_what_is_in_hand_and_not_what_is_unread() -> None:
    inbox, consumer = Inbox(), Consumer()
    inbox.put(arrived("m1"))
    inbox.put(arrived("m2"))
    inbox.take(consumer, 0)
    assert inbox.finish_all(0) == ["m1"]
    assert not inbox.was_confirmed("m2")


def test_confirming_twice_says_it_once() -> None:
    """A reply confirms; asking for the next one afterwards does not do it again."""
    inbox, consumer = Inbox(), Consumer()
    inbox.put(arrived("m1"))
    inbox.take(consumer, 0)
    assert inbox.confirm("m1", 0)
    assert not inbox.confirm("m1", 0)
    assert inbox.take(consumer, 0) == (None, [])
    assert not inbox.confirm("never seen", 0)


def test_ids_are_known_before_and_after_confirmation() -> None:
    inbox = Inbox()
    assert not inbox.knows("m1")
    inbox.put(arrived("m1"))
    assert inbox.knows("m1") and not inbox.was_confirmed("m1")
    inbox.confirm("m1", 0)
    assert inbox.knows("m1") and inbox.was_confirmed("m1")


def test_confirmed_ids_are_forgotten_with_the_brokers_memory() -> None:
    """Protocol 6.9.3: after the TTL an id means nothing to the broker any more."""
    inbox = Inbox()
    inbox.note("old")
    inbox.confirm("old", 0)
    inbox.note("new")
    inbox.confirm("new", REMEMBERED_MS - 1)
    assert inbox.knows("old")
    inbox.note("newest")
    inbox.confirm("newest", REMEMBERED_MS)
    assert not inbox.knows("old")
    assert inbox.knows("new")


def test_memory_of_ids_is_bounded_and_unconfirmed_ones_stay() -> None:
    inbox = Inbox()
    inbox.put(arrived("unread"))
    for number in range(SEEN_IDS + 5):
        inbox.note(f"m{number}")
        inbox.confirm(f"m{number}", 0)
    assert not inbox.knows("m4")
    assert inbox.knows("m5")
    assert inbox.knows("unread")


def test_it_is_full_at_the_limit() -> None:
    inbox = Inbox()
    for number in range(INCOMING_MESSAGES):
        assert not inbox.is_full
        inbox.put(arrived(f"m{number}"))
    assert inbox.is_full and not inbox.overflows
    for number in range(INCOMING_MESSAGES):
        inbox.put(arrived(f"n{number}"))
    assert inbox.overflows
