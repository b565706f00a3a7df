"""Test that a mailbox can be looked into without taking anything out (protocol 9.5.8)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.records import OperationState
from intercom.limits import Limits
from tests.core.harness import World, answers, only
from tests.core.mail import Agent, enter, holder, reattach


def person(world: World, hold: str = "none", token: str | None = None) -> Agent:
    return holder(world, "@me", token, hold=hold)


def peek(agent: Agent, **more: Any) -> dict[str, Any]:
    [answer] = agent.write("mail_peek", requestId="p", **more)
    return answer


def settle(agent: Agent, message_id: str) -> dict[str, Any]:
    return next(
        frame
        for frame in agent.write("mail_settle", requestId="s", messageId=message_id)
        if frame["type"] in ("mail_settled", "request_failed")
    )


def ids(answer: dict[str, Any]) -> list[str]:
    return [each["message"]["id"] for each in answer["messages"]]


def test_to_look_changes_nothing() -> None:
    """Nothing is handed over: whoever receives next gets it as if for the first time."""
    world = World()
    sender = enter(world, "a")
    sender.queue("@me", "m1", "one")
    sender.ask("@me", "q1", "two", extra={"queueIfAway": True})
    me = person(world)
    for _ in range(3):
        told = peek(me)
        assert (told["type"], ids(told), told["left"]) == ("mail_peeked", ["m1", "q1"], 0)
        assert [each["mail"]["offers"] for each in told["messages"]] == [0, 0]
        assert told["messages"][0]["from"]["name"] == "a"
    assert {event.kind for event in world.disk.journal if event.stream == "mail:m1"} == {"mail.queued"}
    reader = person(world, "take", me.registered["addressToken"])
    assert [frame["mail"]["offers"] for frame in reader.first if frame["type"] == "message"] == [1, 1]


def test_what_was_read_is_settled_and_the_rest_stays() -> None:
    """It counts as delivered, and its sender sees that."""
    world = World()
    sender, me = enter(world, "a"), person(world)
    sender.queue("@me", "m1", "one")
    sender.queue("@me", "m2", "two")
    assert settle(me, "m2")["type"] == "mail_settled"
    assert ids(peek(me)) == ["m1"]
    assert only(answers(sender.queue("@me", "m2", "two")))["type"] == "delivered"
    assert {row.message_id: row.state for row in world.disk.operations.values()} == {
        "m1": OperationState.QUEUED,
        "m2": OperationState.ACCEPTED,
    }


def test_a_question_that_was_read_is_open() -> None:
    """Protocol 9.5.3: its question opens when it counts as delivered."""
    world = World()
    asker, me = enter(world, "a"), person(world)
    asker.ask("@me", "q1", "may I?", extra={"queueIfAway": True})
    assert only(me.write("pending", requestId="r"))["asks"] == []
    settle(me, "q1")
    assert [ask["messageId"] for ask in only(me.write("pending", requestId="r"))["asks"]] == ["q1"]
    me.reply("a", "r1", "q1", "yes")
    assert "yes" in asker.texts()


def test_copies_are_one_here_too() -> None:
    """Protocol 15.3.2."""
    world = World()
    sender, me = enter(world, "a"), person(world)
    for message_id in ("m1", "m2", "m3"):
        sender.queue("@me", message_id)
    told = peek(me)
    assert [(each["message"]["id"], each["mail"]["sends"]) for each in told["messages"]] == [("m1", 3)]
    settle(me, "m1")
    assert peek(me)["messages"] == []
    assert {row.state for row in world.disk.operations.values()} == {OperationState.ACCEPTED}


def test_it_can_be_read_in_pages() -> None:
    """``left`` says how many wait behind the last one."""
    world = World()
    sender, me = enter(world, "a"), person(world)
    for number in range(3):
        sender.queue("@me", f"m{number}", f"{number}")
    first = peek(me, limit=2)
    assert (ids(first), first["left"]) == (["m0", "m1"], 1)
    second = peek(me, limit=2, after=first["messages"][-1]["mail"]["entry"])
    assert (ids(second), second["left"]) == (["m2"], 0)


def test_what_is_being_received_is_settled_by_its_receiver() -> None:
    """One message has one reader."""
    world = World()
    sender = enter(world, "a")
    sender.queue("@me", "m1")
    reader = person(world, "take")
    looking = person(world, token=reader.registered["addressToken"])
    assert ids(peek(looking)) == ["m1"]
    assert settle(looking, "m1")["code"] == "in_progress"
    reader.confirm("m1")
    assert settle(looking, "m1")["code"] == "unknown_message"


@pytest.mark.parametrize("features", [(), ("queue",)])
def test_it_takes_a_mailbox(features: tuple[str, ...]) -> None:
    """Protocol 4.130: its own only."""
    world = World()
    other = enter(world, "b", features=features) if features else world.register("b")
    [told] = other.write("mail_peek", requestId="p")
    assert (told["type"], told["code"]) == ("request_failed", "feature_not_granted")


def test_a_store_that_cannot_be_read_now_is_asked_again() -> None:
    """The answer says so."""
    world = World()
    sender, me = enter(world, "a"), person(world)
    sender.queue("@me", "m1")
    world.auto = False
    me.write("mail_peek", requestId="p")
    world.read(fails=True)
    world.settle()
    [told] = me.got()
    assert (told["code"], told["retryable"]) == ("not_read", True)


def test_an_empty_mailbox_is_empty() -> None:
    told = peek(person(World()))
    assert (told["messages"], told["left"]) == ([], 0)


def test_a_session_without_an_address_may_look_as_well() -> None:
    """What it has not confirmed waits in its mailbox."""
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    target.leave()
    sender.queue("b", "m1")
    back = reattach(world, target)
    assert ids(peek(back)) == ["m1"]


def test_a_page_has_no_more_bytes_than_mail_that_is_handed_over() -> None:
    """The first one comes whatever its size, the others as far as there is room (protocol 4.130)."""
    world = World(limits=Limits(mail_offer_bytes=600))
    sender, me = enter(world, "a"), person(world)
    for number in range(3):
        sender.queue("@me", f"m{number}", f"{number}" * 500)
    told = peek(me)
    assert (ids(told), told["left"]) == (["m0"], 2)


def test_nothing_is_shown_while_the_store_cannot_be_used() -> None:
    """design 5 "Fail closed": the answer says why."""
    world = World()
    me = person(world)
    world.perform(world.broker.commit_failed(world.last_ticket + 1, "disk gone", True, world.now))
    told = peek(me)
    assert (told["type"], told["code"]) == ("request_failed", "store_unusable")
    assert "disk gone" in told["reason"]


def test_who_acts_under_no_address_has_nothing_to_look_into() -> None:
    """Protocol 4.130: the feature alone makes no mailbox."""
    world = World()
    told = peek(enter(world, "a", features=("address", "push.receipts")))
    assert (told["type"], told["code"]) == ("request_failed", "unknown_mailbox")
