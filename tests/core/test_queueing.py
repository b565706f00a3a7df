"""Test sends to somebody who is away, and what is taken back of them (design section 7, Queueing)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.harness import Client, World, answers, only, reason
from tests.core.mail import Agent, enter, holder, reattach


def ids(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["message"]["id"] for frame in frames if frame["type"] == "message"]


def left(world: World, name: str = "desk") -> tuple[Agent, str]:
    """Return the holder of an address, which has left, and the token of the address."""
    session = holder(world, name)
    session.write("unregister")
    return session, session.registered["addressToken"]


def asked_and_answered(world: World) -> tuple[Client, Agent]:
    """Let a session without features ask one with them; return both, the second one's receipt has come."""
    asker, target = enter(world, "a"), enter(world, "b")
    asker.ask("b", "q1")
    target.confirm("q1")
    asker.got(), target.got()
    return asker, target


def test_nobody_sends_to_its_own_mailbox() -> None:
    """protocol 4.8 D3: whoever speaks for an address that nobody holds is the address"""
    world = World()
    _, token = left(world)
    speaker = holder(world, "desk", token, hold="none")
    assert reason(speaker.queue("desk", "m1")) == reasons.SELF_TARGET


def test_a_retry_of_what_went_to_somebody_else_under_that_name_is_told_so() -> None:
    """protocol 6.9.2: nobody knows whether the first one has it"""
    world = World()
    sender, first = enter(world, "a"), enter(world, "desk")
    sender.message("desk", "m1")
    assert ids(first.mail()) == ["m1"]
    first.write("presence", name="other")
    left(world)
    assert reason(sender.queue("desk", "m1")) == reasons.UNCERTAIN_ELSEWHERE


def test_an_ask_that_is_sent_again_from_other_groups_has_lost_its_way() -> None:
    """protocol 6.9.5: also while whoever was asked is away"""
    world = World()
    sender, me = enter(world, "a"), holder(world, "@me")
    sender.ask("@me", "q1")
    me.confirm("q1")
    me.write("unregister")
    sender.write("presence", requestId="p", groups=["default", "more"])
    assert reason(sender.ask("@me", "q1", extra={"queueIfAway": True})) == reasons.ROUTE_LOST


def test_what_does_not_fit_into_the_mailbox_of_somebody_who_left_stays_unconfirmed() -> None:
    """protocol 6.10.9: its sender is told that the outcome is uncertain, and nothing is lost that was promised"""
    world = World(limits=Limits(mailbox_entries=1))
    sender, target = enter(world, "a"), enter(world, "b")
    sender.queue("b", "m1")
    sender.queue("b", "m2")
    target.leave()
    told = answers(sender.got())
    assert [(answer["type"], answer["messageId"]) for answer in told] == [("queued", "m1")]
    world.pass_time(world.limits.receipt_wait_ms)
    assert only(answers(sender.got()))["reason"] == reasons.RECEIPT_MISSING
    assert ids(reattach(world, target).first) == ["m1", "m2"]


def test_what_its_sender_does_not_wait_for_any_more_waits_without_a_word() -> None:
    """design 4: one final answer per attempt"""
    world = World(limits=Limits(mailbox_entries=1))
    sender, target = enter(world, "a"), enter(world, "b")
    sender.queue("b", "m1")
    sender.queue("b", "m2")
    world.pass_time(world.limits.receipt_wait_ms)
    sender.got()
    target.confirm("m1")
    target.leave()
    assert answers(sender.got()) == []
    assert [record.message_id for record in world.disk.mail.values()] == ["m2"]


def test_a_question_is_open_again_whose_answer_could_not_be_put_into_the_mailbox_of_its_asker() -> None:
    """design 3.6: every change is taken back with its append"""
    world = World()
    asker, target = asked_and_answered(world)
    target.message(asker.id, "r1", extra={"queueIfAway": True}, replyTo="q1")
    assert ids(asker.got()) == ["r1"]
    world.auto = False
    asker.leave()
    world.fail_commit()
    world.settle()
    world.auto = True
    assert only(answers(target.got()))["reason"] == reasons.RECEIPT_MISSING
    back = reattach(world, asker)
    target.message(asker.id, "r1", extra={"queueIfAway": True}, replyTo="q1")
    assert ids(back.mail()) == ["r1"]
    back.confirm("r1")
    assert only(answers(target.got()))["type"] == "delivered"
    assert reason(target.reply(asker.id, "r2", "q1")) == reasons.NO_OPEN_QUESTION


def test_a_shut_broker_takes_no_new_question_for_the_person_either() -> None:
    """protocol 4.120: a broker that drains lets nothing new begin"""
    world = World()
    sender = enter(world, "a")
    left(world, "@me")
    world.broker._messages.asking.is_shut = True
    assert reason(sender.ask("@me", "q1", extra={"queueIfAway": True})) == reasons.DRAINING
    assert only(answers(sender.queue("@me", "m1")))["type"] == "queued"


def test_who_is_remembered_too_often_cannot_let_more_wait() -> None:
    """design 5 "Bounds": the rows of mail are charged like all others"""
    world = World(limits=Limits(operations=4))
    sender = enter(world, "a")
    left(world)
    assert only(answers(sender.queue("desk", "m1")))["type"] == "queued"
    assert reason(sender.queue("desk", "m2")).startswith(reasons.CAPACITY)
    assert len(world.disk.mail) == 1


@pytest.mark.parametrize("times", [1, 2])
def test_a_repeated_answer_that_rests_on_a_failed_commit_is_taken_back(times: int) -> None:
    """design 3.6: "a repeated `delivered` too" """
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    target.leave()
    world.auto = False
    for _ in range(times):
        sender.queue("b", "m1")
    world.fail_commit()
    world.settle()
    told = [answer["reason"] for answer in answers(sender.got())]
    assert sorted(told) == sorted([reasons.NOT_RECORDED, *[reasons.NOT_CONFIRMED_DURABLY] * (times - 1)])


# --- questions that wait as mail, or for whom they were asked -------------------------------------------


def test_the_question_of_an_asker_that_is_gone_when_it_is_read_waits_for_its_return() -> None:
    """protocol 9.5.3, design 5 "Asks survive" """
    world = World()
    asker = enter(world, "a")
    _, token = left(world, "@me")
    asker.ask("@me", "q1", extra={"queueIfAway": True})
    asker.leave()
    me = holder(world, "@me", token)
    assert ids(me.first) == ["q1"]
    me.confirm("q1")
    assert reason(me.reply(asker.id, "r1", "q1")) == reasons.away_unqueued("a")
    back = reattach(world, asker)
    me.reply(asker.id, "r1", "q1")
    back.confirm("r1")
    assert only(answers(me.got()))["type"] == "delivered"


def test_who_was_asked_hears_that_an_asker_that_was_away_does_not_come_back() -> None:
    """protocol 5.42: nobody waits for the answer any more"""
    world = World(limits=Limits(grace_ms=60_000))
    asker, target = asked_and_answered(world)
    asker.leave()
    assert [frame for frame in target.got() if frame["type"] == "question_withdrawn"] == []
    world.pass_time(world.limits.grace_ms)
    withdrawn = only([frame for frame in target.got() if frame["type"] == "question_withdrawn"])
    assert (withdrawn["messageId"], withdrawn["sessionId"]) == ("q1", asker.id)


def test_only_a_question_whose_asker_is_here_is_handed_to_the_address_that_was_asked() -> None:
    """protocol 9.4: a command that was asked and ends leaves the question to its address"""
    world = World()
    desk = holder(world, "desk")
    away, here = enter(world, "away"), enter(world, "here")
    for asker, question in ((away, "q1"), (here, "q2")):
        asker.ask("desk", question)
        desk.confirm(question)
    away.leave()
    desk.write("unregister", keepsQuestions=True)
    again = holder(world, "desk", desk.registered["addressToken"])
    owed = only(again.write("pending", requestId="r"))["asks"]
    assert [ask["messageId"] for ask in owed] == ["q1", "q2"]
    again.reply(here.id, "r2", "q2")
    here.confirm("r2")
    assert only(answers(again.got()))["type"] == "delivered"


def test_what_its_recipient_has_and_did_not_confirm_is_not_shown_again_once_it_may_wait() -> None:
    """protocol 9.5: sent again so that it may wait, it waits for the receipt of what was shown"""
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    sender.message("b", "m1")
    sender.queue("b", "m2")
    assert ids(target.mail()) == ["m1", "m2"]
    world.pass_time(Limits().receipt_wait_ms)
    assert [mail.message_id for mail in world.disk.mail.values()] == ["m2"]
    sender.got()
    assert only(answers(sender.queue("b", "m1")))["type"] == "queued"
    assert ids([*target.confirm("m1"), *target.confirm("m2"), *target.got()]) == [] and not world.disk.mail
    assert only(answers(sender.queue("b", "m1")))["type"] == "delivered"
