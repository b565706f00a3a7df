"""Operations that were left on disk at the start come back page by page (design section 5)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from intercom.core import recalling
from intercom.core.records import ReadOperations
from intercom.limits import Limits
from tests.core.harness import Client, World, answers, is_delivered, only, types

CONFLICT = "message_id_conflict"


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recalling, "RECALL_ROWS", 2)


def restarted(*messages: str, **options: object) -> World:
    """Return a world that sent these messages, after a restart that read no operation back yet."""
    world = World(leaves=True, **options)  # type: ignore[arg-type]
    sender, _ = world.register("a", returnAddress="ra"), world.register("b", returnAddress="rb")
    for message_id in messages:
        assert is_delivered(sender.message("b", message_id))
    world.auto = False
    world.start()
    return world


def settled(world: World) -> tuple[Client, Client]:
    """Let the world go on by itself and return the two sessions, who are back."""
    world.auto = True
    world.settle()
    return world.register("a", returnAddress="ra"), world.register("b", returnAddress="rb")


def test_page_after_page_is_read_until_all_are_here() -> None:
    world = restarted("m1", "m2", "m3", "m4", "m5")
    assert world.broker.is_recalling
    asked = []
    while world.reads:
        read = world.reads[0]
        assert isinstance(read, ReadOperations)
        asked.append((read.after, read.until, read.limit, read.ttl_ms))
        world.read()
    ttl = Limits().operation_ttl_ms
    assert asked == [(0, 5, 2, ttl), (2, 5, 2, ttl), (4, 5, 2, ttl)]
    assert not world.broker.is_recalling


def test_without_operations_nothing_is_read() -> None:
    world = restarted()
    assert not world.broker.is_recalling and not world.reads


def test_a_message_that_is_sent_again_is_known() -> None:
    """Protocol 6.9.2: match and conflict, over a restart."""
    world = restarted("m1", "m2", "m3")
    sender, recipient = settled(world)
    assert is_delivered(sender.message("b", "m2"))
    assert only(answers(sender.message("b", "m3", text="other")))["reasonCode"] == CONFLICT
    assert recipient.texts() == []
    assert is_delivered(sender.message("b", "m4"))


def test_what_had_its_time_is_deleted_and_not_known() -> None:
    """Protocol 6.9.3."""
    world = restarted("m1", "m2", "m3")
    first = world.disk.operations[1]
    world.disk.operations[1] = replace(first, reserved_at=first.reserved_at - Limits().operation_ttl_ms - 1)
    sender, recipient = settled(world)
    assert 1 not in world.disk.operations
    assert is_delivered(sender.message("b", "m1", text="new"))
    assert recipient.texts() == ["new"]


def test_of_two_rows_of_one_id_the_newer_counts() -> None:
    world = restarted("m1", "m2", "m3")
    world.disk.operations[2] = replace(world.disk.operations[2], message_id="m1", signature=b"x" * 32)
    sender, _ = settled(world)
    assert sorted(world.disk.operations) == [2, 3]
    assert only(answers(sender.message("b", "m1")))["reasonCode"] == CONFLICT


def test_what_was_needed_at_the_start_is_not_entered_twice() -> None:
    """A question that is open was read at once; what became of it since counts."""
    world = World(leaves=True)
    sender, recipient = world.register("a", returnAddress="ra"), world.register("b", returnAddress="rb")
    sender.message("b", "q", expectsReply=True)
    assert is_delivered(sender.message("b", "m"))
    world.auto = False
    world.start()
    assert len(world.broker._messages.operations) == 1
    sender, recipient = settled(world)
    assert len(world.broker._messages.operations) == 2
    assert is_delivered(recipient.message("a", "r", replyTo="q"))
    assert types(sender.got()).count("message") == 1


def test_operations_that_cannot_be_read_close_the_store() -> None:
    """Design section 5, fail closed: nothing is known of any message id."""
    world = restarted("m1", "m2", "m3")
    world.read()
    world.read(fails=True)
    assert not world.broker.is_recalling and not world.reads
    sender, _ = settled(world)
    assert only(answers(sender.message("b", "m9")))["type"] == "delivery_failed"
    assert only(sender.write("list", requestId="l"))["type"] == "sessions"
