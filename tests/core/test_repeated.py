"""A send that is repeated under its id after it was over: what became of it is told again (protocol 6.9, F76)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.family import CHILD, Family, hold
from tests.core.harness import INFO, World, answers, only, reason, without_announcements
from tests.core.mail import AGENT, Agent, enter, holder, reattach

PENDING = {"requirePendingReply": True, "queueIfAway": True}


def answered(world: World) -> tuple[Agent, Agent]:
    """Return an asker that has the answer r1 to its question q1, and who gave it."""
    asker, worker = enter(world, "asker"), enter(world, "worker")
    asker.message("worker", "q1", "ok?", expectsReply=True)
    worker.confirm("q1")
    worker.message(asker.id, "r1", "yes", replyTo="q1", extra=PENDING)
    asker.confirm("r1")
    asker.got(), worker.got()
    return asker, worker


@pytest.mark.parametrize("leaves", [False, True])
def test_an_answer_that_is_repeated_was_delivered(leaves: bool) -> None:
    """F76: the first outcome again; an asker that had its answer is usually gone by then"""
    world = World()
    asker, worker = answered(world)
    if leaves:
        asker.write("unregister")
        worker.got()
    again = answers(worker.message(asker.id, "r1", "yes", replyTo="q1", extra=PENDING))
    assert only(again)["type"] == "delivered"
    other = answers(worker.message(asker.id, "r1", "no", replyTo="q1", extra=PENDING))
    assert only(other)["type"] == "delivery_failed"
    another = answers(worker.message(asker.id, "r2", "yes", replyTo="q1", extra=PENDING))
    assert reason(another) in (reasons.NO_OPEN_QUESTION, reasons.SESSION_NOT_FOUND)


@pytest.mark.parametrize("leaves", [False, True])
def test_an_ask_that_was_answered_is_not_asked_again(leaves: bool) -> None:
    """Protocol 6.9.5: nobody waits for an answer that cannot come"""
    world = World()
    asker, worker = answered(world)
    if leaves:
        worker.write("unregister")
        asker.got()
    again = answers(asker.message("worker", "q1", "ok?", expectsReply=True))
    assert reason(again) == reasons.ALREADY_ANSWERED
    assert worker.mail() == []


@pytest.mark.parametrize("is_here", [True, False], ids=["here", "left"])
def test_an_answer_that_waits_for_who_asked_is_on_its_way(is_here: bool) -> None:
    """Protocol 6.9.5, design section 5 "Asks survive": the asker comes back and repeats while its mail is being read"""
    world = World()
    asker, worker = enter(world, "asker", returnAddress="a"), enter(world, "worker", returnAddress="w")
    asker.message("worker", "q1", "ok?", expectsReply=True)
    worker.confirm("q1")
    world.crash()
    worker = comes_back(world, "worker", worker)
    assert only(answers(worker.message(asker.id, "r1", "yes", replyTo="q1", extra=PENDING)))["type"] == "queued"
    if not is_here:
        worker.write("unregister")
    conn = world.connect()
    world.auto = False
    request = {"preferredSessionId": asker.id, "ownerToken": asker.token, "returnAddress": "a"}
    asks = {"features": list(AGENT), "acknowledgesReceipt": True, "clientProtocolVersion": "1.0", "kind": "custom"}
    world.send(conn, type="register", session={**INFO, "name": "asker"}, **request, **asks)
    world.commit(), world.take()
    asker = Agent(world, conn, asker.id, world.got(conn))
    assert asker.registered["sessionId"] == asker.id and world.reads, "its mail is still being read"
    asker.message("worker", "q1", "ok?", expectsReply=True)
    world.auto = True
    world.settle()
    came = without_announcements(asker.got())
    assert [frame["type"] for frame in came if frame["type"] != "question_target"] == ["delivered", "message"]
    assert came[-1]["message"]["id"] == "r1"
    asker.confirm("r1")
    assert reason(answers(asker.message("worker", "q1", "ok?", expectsReply=True))) == reasons.ALREADY_ANSWERED


def comes_back(world: World, name: str, agent: Agent) -> Agent:
    """Register anew as the same session."""
    return enter(world, name, returnAddress=name[0], preferredSessionId=agent.id, ownerToken=agent.token)


def test_an_older_client_hears_delivered() -> None:
    """Protocol 6.9.5: as it always did"""
    world = World()
    asker = world.register("asker", returnAddress="a")
    worker = world.register("worker", returnAddress="w")
    asker.message("worker", "q1", "ok?", expectsReply=True)
    worker.message(asker.id, "r1", "yes", replyTo="q1", extra={"requirePendingReply": True})
    asker.got()
    assert only(answers(asker.message("worker", "q1", "ok?", expectsReply=True)))["type"] == "delivered"


def test_a_message_that_was_delivered_was_delivered() -> None:
    """F76, protocol 6.9.2: wherever its target is by now"""
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    sender.message("b", "m1")
    target.confirm("m1")
    sender.got()
    target.write("unregister")
    sender.got()
    assert only(answers(sender.message("b", "m1")))["type"] == "delivered"
    assert reason(answers(sender.message("b", "m1", "other"))) == reasons.SESSION_NOT_FOUND
    enter(world, "b"), enter(world, "b")
    sender.got()
    assert only(answers(sender.message("b", "m1")))["type"] == "delivered", "two have the name, none is meant"


def test_the_answer_to_a_command_that_died_waits_for_its_address() -> None:
    """F80: who only speaks for an address is told where the address is; and its question counts as answered"""
    world = World()
    asker = holder(world, "planner", hold="none", token="t" * 32)
    worker = enter(world, "worker")
    asker.message("worker", "q1", "ok?", expectsReply=True)
    worker.confirm("q1")
    worker.message(asker.id, "r1", "yes", replyTo="q1", extra=PENDING)
    asker.leave()
    assert only(answers(worker.got()))["type"] == "queued"
    world.judge(asker.id, is_alive=False)
    again = holder(world, "planner", hold="none", token="t" * 32)
    assert reason(answers(again.message("worker", "q1", "ok?", expectsReply=True))) == reasons.ALREADY_ANSWERED
    reader = holder(world, "planner", token="t" * 32)
    assert [frame["message"]["id"] for frame in reader.first[1:] if frame["type"] == "message"] == ["r1"]


def test_what_a_command_has_and_does_not_confirm_stays_its_own() -> None:
    """Protocol 9.5.3: mail that was offered, to who has it; not to who receives for the address"""
    world = World()
    speaker = holder(world, "planner", hold="none", token="t" * 32)
    reader = holder(world, "planner", token="t" * 32)
    sender = enter(world, "a")
    sender.message(speaker.id, "m1", extra={"queueIfAway": True})
    world.pass_time(world.limits.busy_ms)
    assert only(answers(sender.got()))["type"] == "queued"
    assert reader.mail() == []
    speaker.confirm("m1")
    assert only(sender.write("trace", requestId="t", messageId="m1"), "trace")["state"] == "delivered"


def test_a_question_to_an_address_is_open_again_while_nobody_holds_it() -> None:
    """Protocol 6.9.5, 9.5.2: whoever acts under the address answers; nobody waits in vain"""
    world = World()
    asker, reader = enter(world, "asker"), holder(world, "worker", token="t" * 32)
    asker.message("worker", "q1", "ok?", expectsReply=True)
    reader.confirm("q1")
    reader.write("unregister")
    asker.got()
    assert only(answers(asker.message("worker", "q1", "ok?", expectsReply=True)))["type"] == "delivered"
    command = holder(world, "worker", token="t" * 32, hold="none")
    assert [ask["messageId"] for ask in only(command.write("pending", requestId="p"))["asks"]] == ["q1"]
    command.message(asker.id, "r1", "yes", replyTo="q1", extra=PENDING)
    assert [frame["message"]["id"] for frame in asker.mail()] == ["r1"]


def test_a_question_to_a_session_that_is_away_is_not_open_again() -> None:
    """Protocol 9.5.2: an ask to somebody away fails at once"""
    world = World()
    asker, worker = enter(world, "asker"), enter(world, "worker")
    asker.message("worker", "q1", "ok?", expectsReply=True)
    worker.confirm("q1")
    worker.leave()
    asker.got()
    assert reason(answers(asker.message("worker", "q1", "ok?", expectsReply=True))) == reasons.away("worker")


@pytest.mark.parametrize("order", ["", "a", "w", "aw", "wa"])
def test_a_question_is_answered_under_the_address_while_sides_are_on_their_way_back(order: str) -> None:
    """Design section 5 "Asks survive", section 7: whoever acts under the address sees it and answers it, once."""
    world = World()
    asker, worker = enter(world, "asker"), holder(world, "worker", token="t" * 32)
    asker.message("worker", "q1", "ok?", expectsReply=True)
    worker.confirm("q1")
    asker.got()
    world.crash()
    command = holder(world, "worker", token="t" * 32, hold="none")
    other = holder(world, "other", token="o" * 32, hold="none")

    def owed(agent: Agent) -> list[tuple[str, bool]]:
        asks = only(without_announcements(agent.write("pending", requestId="p")))["asks"]
        return [(ask["messageId"], ask.get("askerHere", True)) for ask in asks]

    for side in order:
        if side == "a":
            asker = reattach(world, asker)
        else:
            worker = reattach(world, worker)
    assert (owed(command), owed(other)) == ([("q1", "a" in order)], [])
    assert reason(answers(other.message(asker.id, "r2", "no", replyTo="q1", extra=PENDING))) == reasons.NO_OPEN_QUESTION
    answer = answers(command.message(asker.id, "r1", "yes", replyTo="q1", extra=PENDING))
    if "a" in order:
        asker.confirm("r1")
        assert only(answers(command.got()))["type"] == "delivered"
    else:
        assert only(answer)["type"] == "queued"
        asker = reattach(world, asker)
    assert owed(command) == []
    world.pass_time(120_000)
    frames = [*asker.first, *asker.got()]
    if "a" not in order:
        assert [frame["message"]["id"] for frame in frames if frame["type"] == "message"] == ["r1"]
    assert [frame for frame in frames if frame["type"] == "peer_disconnected"] == []
    if "w" not in order:
        assert owed(reattach(world, worker)) == []


# --- what may have arrived (6.9.2) ----------------------------------------------------------------------

RECEIPT_MS = Limits().receipt_wait_ms


def in_doubt(world: World, *, is_ask: bool = False, **members: Any) -> tuple[Agent, Agent]:
    """Return a sender, and the recipient of its message m1, which has not confirmed it."""
    sender, target = enter(world, "sender", **members), enter(world, "target")
    again(sender, is_ask=is_ask)
    world.pass_time(RECEIPT_MS)
    assert reason(answers(sender.got())) == reasons.RECEIPT_MISSING
    return sender, target


def again(sender: Agent, text: str = "x", *, is_ask: bool = False) -> list[dict[str, Any]]:
    return answers(sender.message("target", "m1", text, **({"expectsReply": True} if is_ask else {})))


def test_a_message_that_may_have_arrived_is_not_refused_because_its_target_is_gone() -> None:
    """Protocol 6.9.2, E6: nobody knows whether the target has it"""
    world = World()
    sender, target = in_doubt(world)
    target.write("unregister")
    told = only(again(sender))
    assert (told["type"], told["reason"], "reasonCode" in told) == ("delivery_failed", reasons.RECEIPT_MISSING, False)
    assert reason(again(sender, "something else")) == reasons.SESSION_NOT_FOUND
    assert reason(answers(sender.message("target", "m2"))) == reasons.SESSION_NOT_FOUND


def test_a_message_that_may_have_arrived_is_not_refused_because_its_target_is_away() -> None:
    """Protocol 6.9.2, E7: nothing else was sent, but the first attempt may have arrived"""
    world = World()
    sender, target = in_doubt(world)
    target.leave()
    told = only(again(sender))
    assert told["reason"] == reasons.unconfirmed(reasons.away_unqueued("target")) and "reasonCode" not in told
    assert only(answers(sender.message("target", "m2")))["reasonCode"] == "away"


def test_an_older_client_hears_as_ever_that_nobody_is_there() -> None:
    """Protocol 5.30: who does not know features reads the reasons it knows"""
    world = World()
    sender, target = in_doubt(world, features=())
    target.write("unregister")
    assert reason(again(sender)) == reasons.SESSION_NOT_FOUND


def test_a_question_that_may_have_arrived_does_not_wait_for_who_is_gone() -> None:
    """Protocol 6.9.2, 6.9.5"""
    world = World()
    sender, target = in_doubt(world, is_ask=True, returnAddress="s")
    target.write("unregister")
    sender.got()
    told = reasons.unknown(reasons.SESSION_NOT_FOUND)
    assert reason(again(sender, is_ask=True)) == told
    world.crash()
    sender = enter(world, "sender", returnAddress="s")
    late = Limits().dormant_target_ms
    for pause, expected in ((0, reasons.RECEIPT_MISSING), (late - 1, reasons.RECEIPT_MISSING), (1, told)):
        world.pass_time(pause)
        assert reason(again(sender, is_ask=True)) == expected, "it may be on its way back to the new broker"


def test_a_message_that_may_have_arrived_stays_in_doubt_when_it_would_be_refused_now() -> None:
    """Protocol 6.9.2, D7: that it may not be sent now does not tell whether it was shown"""
    world = World()
    sender, target = enter(world, "sender", info={"group": "one"}), enter(world, "target", info={"group": "two"})
    target.write("join_group", requestId="j", group="one")
    sender.message(target.id, "m1")
    world.pass_time(RECEIPT_MS)
    sender.got()
    target.write("leave_group", requestId="l", group="one")
    assert reason(answers(sender.message(target.id, "m1"))) == reasons.unknown(reasons.DIFFERENT_GROUP)
    assert reason(answers(sender.message(target.id, "m2"))) == reasons.DIFFERENT_GROUP


def test_a_message_that_may_have_arrived_stays_in_doubt_when_its_target_does_not_come_back() -> None:
    """Protocol 6.11: the hold ends, and what was sent before it has an unknown outcome all the same"""
    family = Family()
    writer = family.sender(features=list(AGENT), clientProtocolVersion="1.0", kind="custom")
    child = family.child(returnAddress="child", acknowledgesReceipt=True)
    writer.message(CHILD, "m1")
    family.world.pass_time(RECEIPT_MS)
    assert reason(answers(writer.got())) == reasons.RECEIPT_MISSING
    child.leave()
    family.reserve()
    for message_id, told in (
        ("m1", reasons.unconfirmed(reasons.RESTORING_TIMED_OUT)),
        ("m2", reasons.RESTORING_TIMED_OUT),
    ):
        hold(writer, message_id)
        family.world.pass_time(Limits().hold_ms)
        assert reason(answers(writer.got())) == told
