"""Test that mail which says the same is shown once, and that nothing of it is lost (protocol 15.3.2, F70)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.coalescing import is_plain
from intercom.core.records import OperationState
from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.harness import World, answers, only, reason
from tests.core.mail import AGENT, Agent, enter, holder, reattach

FULL = (*AGENT, "policy")


def away(world: World) -> tuple[Agent, Agent]:
    sender, target = enter(world, "a"), enter(world, "b")
    target.leave()
    return sender, target


def messages(frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [frame for frame in frames if frame["type"] == "message"]


def shown(frames: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Return the id of each message and how many it stands for."""
    return [(frame["message"]["id"], frame["mail"].get("sends", 1)) for frame in messages(frames)]


def kinds(world: World, message_id: str) -> list[str]:
    return [event.kind for event in world.disk.journal if event.stream == f"mail:{message_id}"]


def states(world: World) -> dict[str, OperationState]:
    return {row.message_id: row.state for row in world.disk.operations.values()}


def test_what_says_the_same_is_shown_once_with_its_number() -> None:
    """Protocol 15.3.2: the oldest is handed over, where it stands in the order."""
    world = World()
    sender, target = away(world)
    assert "joined" not in only(answers(sender.queue("b", "m1", "status?")))
    sender.queue("b", "m2", "other")
    world.pass_time(7)
    joined = only(answers(sender.queue("b", "m3", "status?")))
    assert (joined["type"], joined["joined"], joined["position"]) == ("queued", "m1", 3)
    back = reattach(world, target)
    assert shown(back.first) == [("m1", 2), ("m2", 1)]
    mail = messages(back.first)[0]["mail"]
    assert mail["lastQueuedAt"] == mail["queuedAt"] + 7


def test_each_of_them_has_a_fate_of_its_own() -> None:
    """Every send has one true outcome: the receipt of the one that was shown settles them all."""
    world = World()
    sender, target = away(world)
    for message_id in ("m1", "m2", "m3"):
        sender.queue("b", message_id)
    back = reattach(world, target)
    assert set(states(world).values()) == {OperationState.QUEUED}
    back.confirm("m1")
    assert states(world) == dict.fromkeys(("m1", "m2", "m3"), OperationState.ACCEPTED)
    assert kinds(world, "m3") == ["mail.queued", "mail.offered", "mail.delivered"]
    assert world.disk.mail == {} and len(back.mail()) == 0
    assert only(answers(sender.queue("b", "m3")))["type"] == "delivered"


def test_a_retry_is_never_counted() -> None:
    """Protocol 6.9: the message id says what is the same send."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    sender.queue("b", "m2")
    assert only(answers(sender.queue("b", "m2")))["joined"] == "m1"
    assert "joined" not in only(answers(sender.queue("b", "m1")))
    assert reason(answers(sender.queue("b", "m2", "another text"))) == reasons.conflict_waiting("m2")
    assert shown(reattach(world, target).first) == [("m1", 2)]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"text": "x"}, {"text": "y"}, id="text"),
        pytest.param({}, {"replyTo": "q"}, id="an answer"),
        pytest.param({"replyTo": "q"}, {"replyTo": "q"}, id="two answers"),
        pytest.param({}, {"progressOf": "q"}, id="progress of a question"),
        pytest.param({"progressOf": "q1"}, {"progressOf": "q2"}, id="progress of two questions"),
        pytest.param({}, {"validFor": 60_000}, id="valid for a time"),
        pytest.param({}, {"attachments": [{"type": "file", "name": "f", "content": "c"}]}, id="an attachment"),
    ],
)
def test_what_differs_is_another_message(first: dict[str, Any], second: dict[str, Any]) -> None:
    """Never for answers, nor when anything but id, time and cause differs."""
    world = World()
    sender, target = away(world)
    for message_id, said in (("m1", first), ("m2", second)):
        queued = only(answers(_queue(sender, message_id, dict(said))))
        assert (queued["type"], "joined" in queued) == ("queued", False)
    assert shown(reattach(world, target).first) == [("m1", 1), ("m2", 1)]


def _queue(sender: Agent, message_id: str, said: dict[str, Any]) -> list[dict[str, Any]]:
    extra = {"queueIfAway": True}
    if "validFor" in said:
        extra["validFor"] = said.pop("validFor")
    text = said.pop("text", "x")
    if "attachments" in said:
        said["content"] = {"text": text, "attachments": said.pop("attachments")}
    return sender.message("b", message_id, text, extra=extra, **said)


def test_asks_are_never_joined() -> None:
    """Each is waited for."""
    world = World()
    asker = enter(world, "a")
    for message_id in ("q1", "q2"):
        queued = only(answers(asker.ask("@me", message_id, extra={"queueIfAway": True})))
        assert (queued["type"], "joined" in queued) == ("queued", False)
    person = holder(world, "@me")
    assert shown(person.first) == [("q1", 1), ("q2", 1)]


def test_two_senders_say_it_for_themselves() -> None:
    """The same sender's text only."""
    world = World()
    sender, target = away(world)
    other = enter(world, "c")
    sender.queue("b", "m1")
    assert "joined" not in only(answers(other.queue("b", "m2")))
    assert shown(reattach(world, target).first) == [("m1", 1), ("m2", 1)]


def test_what_was_handed_over_is_joined_by_nothing_more() -> None:
    """A count that was shown stays true."""
    world = World(limits=Limits(mail_offers=1))
    sender, target = away(world)
    sender.queue("b", "m1")
    back = reattach(world, target)
    assert shown(back.first) == [("m1", 1)]
    assert "joined" not in only(answers(sender.queue("b", "m2")))
    assert only(answers(sender.queue("b", "m3")))["joined"] == "m2"
    assert shown(back.confirm("m1")) == [("m2", 2)]


def test_all_of_them_come_again_when_the_holder_left() -> None:
    """A1.3: not confirmed, so handed over again."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    sender.queue("b", "m2")
    back = reattach(world, target)
    back.leave()
    sender.queue("b", "m3")
    again = reattach(world, target)
    assert shown(again.first) == [("m1", 3)]
    assert messages(again.first)[0]["mail"]["offers"] == 2
    again.confirm("m1")
    assert world.disk.mail == {}


def test_they_are_joined_after_a_crash_as_well() -> None:
    """What is on disk decides, not what the process remembers."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    sender.queue("b", "m2")
    world.crash()
    back = reattach(world, target)
    assert shown(back.first) == [("m1", 2)]
    back.confirm("m1")
    assert set(states(world).values()) == {OperationState.ACCEPTED}


def test_the_younger_goes_on_when_the_older_is_given_up() -> None:
    """Each has its own time; the sender is told of each."""
    world = World(limits=Limits(mail_ttl_ms=1_000, grace_ms=60_000, inbox_entries=0))
    sender, target = away(world)
    sender.queue("b", "m1")
    world.pass_time(600)
    sender.queue("b", "m2")
    world.pass_time(500)
    assert [frame["notice"]["messageId"] for frame in messages(sender.got())] == ["m1"]
    back = reattach(world, target)
    assert shown(back.first) == [("m2", 1)]


def test_what_waits_with_one_that_is_purged_comes_by_itself() -> None:
    """Nothing stays behind with a mail that has gone."""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    world.pass_time(100)
    sender.queue("b", "m2")
    back = reattach(world, target)
    assert shown(back.first) == [("m1", 2)]
    operator = enter(world, features=("operator",), info={"recipientPurpose": "control"})
    operator.write("purge", requestId="p", olderThanMs=50, of={"sessionId": target.id})
    world.pass_time(world.limits.mail_retry_ms)
    assert shown(back.got()) == [("m2", 1)]


def test_an_offer_that_is_not_recorded_is_made_again() -> None:
    """Design 3.6: a commit that fails takes back all of it."""
    world = World(limits=Limits(mail_offers=1))
    sender, target = away(world)
    sender.queue("b", "m0", "first")
    sender.queue("b", "m1")
    sender.queue("b", "m2")
    back = reattach(world, target)
    world.auto = False
    back.confirm("m0")
    world.read()
    world.fail_commit()
    world.settle()
    world.auto = True
    world.pass_time(world.limits.mail_retry_ms)
    assert shown(back.got()) == [("m1", 2)]
    back.confirm("m1")
    assert world.disk.mail == {}


def test_at_most_so_many_are_one() -> None:
    """Limits mail_joined: what is settled in one go is bounded."""
    world = World(limits=Limits(mail_joined=2))
    sender, target = away(world)
    for number in range(5):
        sender.queue("b", f"m{number}")
    assert shown(reattach(world, target).first) == [("m0", 3), ("m3", 2)]


def test_what_is_held_is_shown_to_the_person_once_and_settled_together() -> None:
    """Protocol 15.2.1, 15.3.2."""
    world = World()
    receiver, sender = holder(world, "desk", features=FULL), enter(world, "ann", features=FULL)
    operator = enter(world, features=("operator", "policy"), info={"recipientPurpose": "control"})
    receiver.write("policy_set", requestId="p", policy={"rules": [{"action": "hold"}]})
    for message_id in ("m1", "m2", "m3"):
        told = only(answers(sender.queue("desk", message_id)))
    assert (told["kept"], told["joined"]) == ("hold", "m1")
    [kept] = operator.write("policies", requestId="q")[-1]["kept"]
    assert (kept["messageId"], kept["sends"]) == ("m1", 3)
    operator.write("held_settle", requestId="h", messageId="m1", action="release")
    assert shown(receiver.got()) == [("m1", 3)]


def test_quiet_mail_is_fetched_as_one() -> None:
    """Protocol 4.94."""
    world = World()
    receiver, sender = holder(world, "desk", features=FULL), enter(world, "ann", features=FULL)
    receiver.write("policy_set", requestId="p", policy={"rules": [{"action": "quiet"}]})
    sender.queue("desk", "m1")
    assert only(answers(sender.queue("desk", "m2")))["joined"] == "m1"
    assert shown(receiver.write("mail_fetch", requestId="f")) == [("m1", 2)]


def test_a_plain_send_to_somebody_who_is_here_is_never_joined() -> None:
    """Nothing waits, so every message is handed over."""
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    for message_id in ("m1", "m2"):
        sender.queue("b", message_id)
        assert [frame["message"]["id"] for frame in messages(target.got())] == [message_id]
        target.confirm(message_id)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b'{"id":"m","timestamp":1,"content":{"text":"x"}}', True),
        (b'{"id":"m","timestamp":1,"content":{"text":"x"},"causedBy":"c","expectsReply":false}', True),
        (b'{"id":"m","timestamp":1,"content":{"text":"x","more":1}}', False),
        (b'{"id":"m","timestamp":1,"content":{"text":"x"},"progressOf":"q"}', False),
    ],
)
def test_members_that_are_not_known_may_say_more(message: bytes, *, expected: bool) -> None:
    """Protocol 4: unknown members of a message are handed on."""
    assert is_plain(message) is expected


def test_a_receipt_of_one_that_came_with_another_counts_for_that_one() -> None:
    """Protocol 15.3.2: each of it has an end of its own"""
    world = World()
    sender, target = away(world)
    sender.queue("b", "m1")
    sender.queue("b", "m2")
    back = reattach(world, target)
    assert shown(back.first) == [("m1", 2)]
    back.confirm("m2")
    assert [record.message_id for record in world.disk.mail.values()] == ["m1"]
    back.confirm("m1")
    assert world.disk.mail == {}
