"""Test open questions as their two sides answer, leave, finish, return, and as the broker restarts."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.harness import Client, World, answers, is_delivered, only, reason, types, without_announcements

NO_QUESTION = reasons.NO_OPEN_QUESTION


def asked(**limits: Any) -> tuple[World, Client, Client]:
    """Return a world in which ``a`` asked ``b`` q1; both can come back."""
    world = World(limits=Limits(**limits))
    a, b = world.register("a", returnAddress="ra"), world.register("b", returnAddress="rb")
    assert is_delivered(a.ask("b", "q1"))
    a.got(), b.got()
    return world, a, b


def back(world: World, client: Client, **more: Any) -> Client:
    """Let a client of an earlier broker or connection register again under its id."""
    name = {1: "a", 2: "b"}[client.conn] if client.conn in (1, 2) else "c"
    members = {"returnAddress": f"r{name}", "preferredSessionId": client.id, **more}
    again = world.register(name, **members)
    assert again.id == client.id
    return again


def disconnects(frames: list[dict[str, Any]]) -> list[str]:
    """Return the questions whose other side is reported gone."""
    return [frame["replyTo"] for frame in frames if frame["type"] == "peer_disconnected"]


def marks(world: World) -> list[bool]:
    """Return, for each ask on disk, whether it was answered."""
    return [row.question.answered for row in world.disk.operations.values() if row.question is not None]


# --- answers (6.5) --------------------------------------------------------------------------------------


def test_an_answer_closes_its_question_and_marks_it_in_the_store() -> None:
    """protocol 6.5 row 3"""
    world, a, b = asked()
    assert marks(world) == [False]
    assert is_delivered(b.reply("a", "r1", "q1")) and a.texts() == ["!"]
    assert marks(world) == [True]
    assert reason(b.reply("a", "r2", "q1")) == NO_QUESTION


def test_a_plain_reply_closes_the_question_as_well() -> None:
    """protocol 6.5: a message with replyTo; F93"""
    _, _, b = asked()
    assert is_delivered(b.reply("a", "r1", "q1", pending=False))
    assert reason(b.reply("a", "r2", "q1")) == NO_QUESTION


def test_an_error_is_an_answer() -> None:
    """protocol 4 replyError"""
    _, a, b = asked()
    assert is_delivered(b.reply("a", "r1", "q1", replyError="cannot"))
    assert only(a.got())["message"]["replyError"] == "cannot"
    assert reason(b.reply("a", "r2", "q1")) == NO_QUESTION


def test_other_messages_leave_the_question_open() -> None:
    """F68, F70: plain sends, replies of others, replies to others, replies to something else"""
    world, a, b = asked()
    c = world.register("c")
    for sender, target, more in (
        (b, "a", {}),
        (c, "a", {"replyTo": "q1"}),
        (b, "c", {"replyTo": "q1"}),
        (b, "a", {"replyTo": "Q1"}),
        (a, "b", {"replyTo": "q1"}),
    ):
        assert is_delivered(sender.message(target, f"m{sender.attempts}-{sender.conn}", **more))
    assert marks(world) == [False]
    assert is_delivered(b.reply("a", "r1", "q1"))


def test_a_repeated_ask_opens_nothing_new() -> None:
    """protocol 6.5: recording the same triple twice has no effect"""
    world, a, b = asked()
    for _ in range(3):
        assert is_delivered(a.ask("b", "q1"))
    assert only(a.write("broker_status", requestId="q"))["report"]["broker"]["openQuestions"] == 1
    assert is_delivered(b.reply("a", "r1", "q1"))
    assert is_delivered(a.ask("b", "q1")), "answered: delivered, but not open again"
    assert reason(b.reply("a", "r2", "q1")) == NO_QUESTION and marks(world) == [True]


def test_one_message_id_may_be_open_for_two_sessions_of_one_sender() -> None:
    """protocol 6.5: several pairs; that one pair is removed"""
    world, a, b = asked()
    second = world.register("a2", returnAddress="ra")
    assert is_delivered(second.ask("b", "q1")) and b.texts() == []
    assert is_delivered(b.reply(a.id, "r1", "q1"))
    assert is_delivered(b.reply(second.id, "r2", "q1"))
    assert (a.texts(), second.texts()) == (["!"], ["!"])
    assert reason(b.reply(second.id, "r3", "q1")) == NO_QUESTION


def test_an_answer_may_be_a_question_itself() -> None:
    """protocol 6.5"""
    _, a, b = asked()
    assert is_delivered(b.ask("a", "q2", replyTo="q1"))
    assert reason(b.reply("a", "r1", "q1")) == NO_QUESTION
    assert is_delivered(a.reply("b", "r2", "q2"))


# --- departures -----------------------------------------------------------------------------------------


def test_a_departing_asker_takes_its_questions_along_silently() -> None:
    """protocol 6.5 row 4"""
    world, a, b = asked()
    a.leave()
    assert types(b.got()) == ["session_left"]
    back(world, a)
    assert reason(b.reply(a.id, "r1", "q1")) == NO_QUESTION


def test_a_departing_target_is_reported_to_each_asker_by_its_name() -> None:
    """protocol 6.5 row 5, 5.16"""
    world, a, b = asked()
    c = world.register("c", returnAddress="rc")
    c.ask("b", "q2")
    a.ask("b", "q3")
    b.leave()
    gone = {"type": "peer_disconnected", "peerSessionId": b.id, "peerName": "b"}
    assert without_announcements(a.got()) == [{**gone, "replyTo": "q1"}, {**gone, "replyTo": "q3"}]
    assert without_announcements(c.got()) == [{**gone, "replyTo": "q2"}]
    b = back(world, b)
    assert reason(b.reply("a", "r1", "q1")) == NO_QUESTION


def test_a_departing_target_without_a_name_is_reported_without_one() -> None:
    """protocol 5.16: peerName is optional"""
    world = World()
    a, b = world.register("a", returnAddress="ra"), world.register()
    assert is_delivered(a.ask(b.id, "q1"))
    b.leave()
    assert only(a.got()) == {"type": "peer_disconnected", "replyTo": "q1", "peerSessionId": b.id}


def test_a_returned_asker_that_asks_again_is_answered() -> None:
    """protocol 6.5 row 2, 6.9.5.2: for the sender's and the target's current sessions"""
    world, a, b = asked()
    a.leave()
    a = world.register("a", returnAddress="ra")
    assert is_delivered(a.ask("b", "q1")) and b.texts() == [], "not forwarded again"
    assert is_delivered(b.reply("a", "r1", "q1")) and a.texts() == ["!"]


def test_a_returned_target_is_asked_again() -> None:
    """protocol 6.9.5.2, 6.9.5.3; F49: never silence"""
    world, a, b = asked()
    b.leave()
    assert disconnects(a.got()) == ["q1"]
    b = world.register("b", returnAddress="rb")
    told = a.ask("b", "q1", extra={"resolveReplyTarget": True})
    assert types(without_announcements(told)) == ["question_target", "delivered"]
    assert without_announcements(told)[0]["sessionId"] == b.id
    assert is_delivered(b.reply("a", "r1", "q1"))


def test_an_ask_from_other_groups_cannot_be_rebound() -> None:
    """protocol 6.9.5.1: the sender group identity must be the present one"""
    world, a, b = asked()
    a.write("presence", requestId="p", groups=["default", "g"])
    assert reason(a.ask("b", "q1")) == reasons.ROUTE_LOST
    a.write("presence", requestId="p", groups=["default"])
    assert is_delivered(a.ask("b", "q1"))
    a.leave()
    a = world.register("a", returnAddress="ra", registrationGroup="home")
    assert reason(a.ask("b", "q1")) == reasons.ROUTE_LOST
    assert reason(b.reply("a", "r1", "q1")) == NO_QUESTION


# --- terminal targets (6.4) -----------------------------------------------------------------------------


def synthetic(frames: list[dict[str, Any]]) -> dict[str, Any]:
    return only([frame for frame in frames if frame["type"] == "message"])


def test_a_target_that_finishes_settles_its_questions() -> None:
    """protocol 6.5 row 6, 5.10"""
    world, a, b = asked()
    b.write("presence", replyCapability="terminal")
    frame = synthetic(a.got())
    assert frame["from"]["id"] == b.id and frame["from"]["replyCapability"] == "terminal"
    assert "channel" not in frame
    assert frame["message"] == {
        "id": "terminal:q1",
        "timestamp": world.wall,
        "replyTo": "q1",
        "replyError": reasons.TERMINAL,
        "content": {"text": reasons.TERMINAL},
    }
    assert reason(b.reply("a", "r1", "q1")) == NO_QUESTION
    b.write("presence", replyCapability="terminal")
    b.leave()
    assert without_announcements(a.got()) == []


def test_an_older_asker_is_settled_as_well() -> None:
    """protocol 5.30: `message` always"""
    world = World()
    a, b = world.register("a"), world.register("b")
    a.ask("b", "q1")
    b.write("presence", replyCapability="terminal")
    assert synthetic(a.got())["message"]["replyError"] == reasons.TERMINAL


def test_a_target_that_finishes_while_the_ask_is_written_settles_it_at_the_finish() -> None:
    """protocol 6.4 race, OP-10"""
    world, a, b = asked()
    world.auto = False
    a.ask("b", "q2")
    b.write("presence", replyCapability="terminal")
    world.settle()
    messages = [frame["message"]["id"] for frame in a.got() if frame["type"] == "message"]
    assert messages == ["terminal:q1", "terminal:q2"]


def test_a_target_that_finishes_before_its_receipt_settles_it_at_the_receipt() -> None:
    """protocol 6.4 race, 6.10.5"""
    world = World()
    a, t = world.register("a"), world.register("t", acknowledgesReceipt=True)
    a.ask("t", "q1")
    t.write("presence", replyCapability="terminal")
    t.write("received", messageId="q1")
    assert types(without_announcements(a.got())) == ["delivered", "message"]


def test_asking_a_finished_target_again_is_settled_at_once() -> None:
    """protocol 6.4, 6.9.5: no question stays open to a session that will not answer"""
    world, a, b = asked()
    a.leave()
    b.write("presence", replyCapability="terminal")
    a = back(world, a)
    told = without_announcements(a.ask("b", "q1"))
    assert types(told) == ["delivered", "message"] and told[1]["message"]["id"] == "terminal:q1"


def test_a_target_that_is_gone_when_its_frame_has_left_is_reported_at_the_finish() -> None:
    """protocol 6.5: the target departs"""
    world, a, b = asked()
    world.auto = False
    a.ask("b", "q2")
    world.end(b.conn)
    world.settle()
    assert types(a.got()) == ["peer_disconnected", "session_left", "delivered", "peer_disconnected"]


# --- withdrawing (OP-6) ---------------------------------------------------------------------------------


def test_a_cancelled_ask_is_not_open_any_more() -> None:
    """protocol 4.24, OP-6"""
    world, a, b = asked()
    a.ask("b", "q2")
    c = world.register("c")
    c.write("cancel_ask", messageId="q1")
    a.write("cancel_ask", messageId="q2")
    assert reason(b.reply("a", "r2", "q2")) == NO_QUESTION
    assert is_delivered(b.reply("a", "r1", "q1")), "that session's question with that id"


@pytest.mark.parametrize("confirms", [False, True])
def test_an_ask_can_be_cancelled_while_it_is_under_way(confirms: bool) -> None:
    """protocol OP-6: the question must not open behind the withdrawal"""
    world = World(limits=Limits(asks=1))
    a, b = world.register("a"), world.register("b", **({"acknowledgesReceipt": True} if confirms else {}))
    c = world.register("c")
    world.auto = False
    a.ask("b", "q1")
    c.write("cancel_ask", messageId="q1")
    a.write("cancel_ask", messageId="q1")
    world.settle()
    if confirms:
        b.write("received", messageId="q1")
        world.settle()
    assert is_delivered(a.got())
    b.reply("a", "r1", "q1")
    world.settle()
    assert reason(b.got()) == NO_QUESTION
    a.ask("b", "q2")
    world.settle()
    if confirms:
        b.write("received", messageId="q2")
        world.settle()
    assert is_delivered(a.got()), "nor is it charged any more"


def test_another_session_cannot_cancel_an_ask_under_way() -> None:
    """protocol OP-6: that session's"""
    world = World()
    a, b = world.register("a"), world.register("b")
    c = world.register("c")
    world.auto = False
    a.ask("b", "q1")
    c.write("cancel_ask", messageId="q1")
    world.settle()
    b.got()
    b.reply("a", "r1", "q1")
    world.settle()
    assert is_delivered(b.got())


# --- the deadline (design 5) ----------------------------------------------------------------------------


def test_the_deadline_of_an_ask_ends_its_question() -> None:
    """design 5 "Asks survive": default 10 min"""
    world, _, b = asked()
    world.pass_time(600_000 - 1)
    assert types(answers(b.reply("a", "x", "q0"))) == ["delivery_failed"]
    assert is_delivered(b.reply("a", "r1", "q1"))
    world, a, b = asked()
    world.pass_time(600_000)
    assert reason(b.reply("a", "r1", "q1")) == NO_QUESTION
    assert without_announcements(a.got()) == []


# --- asks survive a restart (design 5) ------------------------------------------------------------------


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_an_open_ask_survives_a_restart(order: str) -> None:
    """design 5 "Asks survive": open again once both sides registered"""
    world, a, b = asked()
    world.crash()
    for name in order:
        if name == "a":
            a = back(world, a)
        else:
            b = back(world, b)
    a.got(), b.got()
    world.pass_time(120_000)
    assert is_delivered(b.reply("a", "r1", "q1")) and a.texts() == ["!"]
    assert marks(world) == [True]


def test_a_reply_before_the_asker_is_back_can_be_repeated() -> None:
    """design 5 "Asks survive", protocol 6.7 row 5: the client retries a refused pending reply"""
    world, a, b = asked()
    world.crash()
    b = back(world, b)
    answer = only(answers(b.reply(a.id, "r1", "q1")))
    assert (answer["reason"], answer["reasonCode"]) == ("Session not found", "session_not_found")
    back(world, a)
    assert is_delivered(b.reply(a.id, "r1", "q1"))


def test_a_target_that_does_not_return_is_reported_after_a_minute() -> None:
    """design 5 "Asks survive": peer_disconnected if the target has not within 60 s"""
    world, a, b = asked()
    world.crash()
    a = back(world, a)
    world.pass_time(60_000 - 1)
    assert without_announcements(a.got()) == []
    world.pass_time(1)
    assert only(a.got()) == {"type": "peer_disconnected", "replyTo": "q1", "peerSessionId": b.id}
    b = back(world, b)
    assert reason(b.reply("a", "r1", "q1")) == NO_QUESTION


def test_a_target_that_returns_in_time_is_not_reported() -> None:
    """design 5 "Asks survive" """
    world, a, b = asked()
    world.crash()
    a = back(world, a)
    world.pass_time(59_000)
    b = back(world, b)
    world.pass_time(120_000)
    assert without_announcements(a.got()) == []
    b.leave()
    assert disconnects(a.got()) == ["q1"]


def test_a_target_that_comes_and_goes_before_the_asker_is_back_is_waited_for() -> None:
    """design 5 "Asks survive": dormant until both sides registered"""
    world, a, b = asked()
    world.crash()
    b = back(world, b)
    b.write("presence", requestId="p", status="s")
    b.leave()
    a = back(world, a)
    assert without_announcements(a.first[1:]) == []
    b = world.register("b", returnAddress="rb", preferredSessionId=b.id)
    assert is_delivered(b.reply("a", "r1", "q1"))


def test_an_asker_that_leaves_again_drops_its_question() -> None:
    """protocol 6.5 row 4; asking again rebinds it"""
    world, a, b = asked()
    world.crash()
    a = back(world, a)
    a.leave()
    b = back(world, b)
    a = world.register("a", returnAddress="ra", preferredSessionId=a.id)
    assert reason(b.reply("a", "r1", "q1")) == NO_QUESTION
    assert is_delivered(a.ask("b", "q1")) and is_delivered(b.reply("a", "r1", "q1"))


def test_a_finished_target_settles_the_question_when_the_asker_returns() -> None:
    """protocol 6.4; design 5 "Asks survive" """
    world, a, b = asked()
    world.crash()
    b = world.register("b", returnAddress="rb", preferredSessionId=b.id, info={"replyCapability": "terminal"})
    a = back(world, a)
    assert types(a.first) == ["registered", "message"]
    assert a.first[1]["message"]["id"] == "terminal:q1" and b.id


def test_a_target_that_finishes_before_the_asker_returns_settles_it_then() -> None:
    """protocol 6.4, 6.5; design 5 "Asks survive" """
    world, a, b = asked()
    world.crash()
    b = back(world, b)
    b.write("presence", replyCapability="terminal")
    a = back(world, a)
    assert types(a.first) == ["registered", "message"]


def test_a_target_that_returns_finished_settles_the_question() -> None:
    """protocol 6.4: no question stays open to a session that will not answer"""
    world, a, b = asked()
    world.crash()
    a = back(world, a)
    world.register("b", returnAddress="rb", preferredSessionId=b.id, info={"replyCapability": "terminal"})
    assert synthetic(a.got())["message"]["id"] == "terminal:q1"


def test_an_asker_that_returns_under_another_id_rebinds_its_ask() -> None:
    """design 5 "Asks survive": our client resends every open ask after a reconnect (protocol 6.9.5)"""
    world, a, b = asked()
    world.crash()
    b = back(world, b)
    again = world.register("a", returnAddress="ra")
    assert again.id != a.id and reason(b.reply(again.id, "r1", "q1")) == NO_QUESTION
    assert is_delivered(again.ask("b", "q1")) and b.texts() == []
    assert is_delivered(b.reply(again.id, "r1", "q1"))
    back(world, a)
    world.pass_time(120_000)
    assert reason(b.reply(a.id, "r2", "q1")) == NO_QUESTION, "the dormant one gave way"


def test_a_target_that_returns_under_another_id_is_rebound_by_the_asker() -> None:
    """design 5 "Asks survive", protocol 6.9.5: and nobody is reported gone"""
    world, a, b = asked()
    world.crash()
    a = back(world, a)
    b = world.register("b", returnAddress="rb")
    assert is_delivered(a.ask("b", "q1"))
    world.pass_time(120_000)
    assert disconnects(a.got()) == []
    assert is_delivered(b.reply("a", "r1", "q1"))


def test_an_older_askers_question_never_wakes() -> None:
    """protocol 6.1: nobody can prove to be that session; its deadline ends it"""
    world = World()
    a, b = world.register("a"), world.register("b", returnAddress="rb")
    assert is_delivered(a.ask("b", "q1"))
    world.crash()
    again = world.register("a", preferredSessionId=a.id)
    b = world.register("b", returnAddress="rb", preferredSessionId=b.id)
    assert again.id != a.id and reason(b.reply("a", "r1", "q1")) == NO_QUESTION
    world.pass_time(600_000)
    assert without_announcements(again.got()) == []
    assert only(b.write("broker_status", requestId="q"))["report"]["broker"]["openQuestions"] == 0


def test_somebody_else_under_the_askers_id_gets_no_answer() -> None:
    """protocol 6.1, OP-4: when so many ids were retired since that this one was forgotten"""
    world = World(limits=Limits(retired_ids=2))
    a, b = world.register("a", returnAddress="ra"), world.register("b", returnAddress="rb")
    assert is_delivered(a.ask("b", "q1"))
    for name in "xy":
        world.register(name)
    world.crash()
    taker = world.register("a", returnAddress="other", preferredSessionId=a.id)
    b = world.register("b", returnAddress="rb", preferredSessionId=b.id)
    assert taker.id == a.id and reason(b.reply(a.id, "r1", "q1")) == NO_QUESTION


def test_the_deadline_counts_over_the_restart() -> None:
    """design 5 "Asks survive": the ask's deadline ends it"""
    world, a, b = asked()
    world.pass_time(590_000)
    world.crash()
    a, b = back(world, a), back(world, b)
    world.pass_time(9_999)
    world.pass_time(1)
    assert reason(b.reply("a", "r1", "q1")) == NO_QUESTION
    world, a, b = asked()
    world.pass_time(590_000)
    world.crash()
    a, b = back(world, a), back(world, b)
    world.pass_time(9_999)
    assert is_delivered(b.reply("a", "r1", "q1"))


def test_an_ask_whose_time_is_over_at_the_start_is_not_open() -> None:
    """design 5 "Asks survive" """
    world, a, b = asked()
    world.wall += 600_001
    world.mono += 600_001
    world.crash()
    a, b = back(world, a), back(world, b)
    assert reason(b.reply("a", "r1", "q1")) == NO_QUESTION and a.first[1:] == []


def test_an_answered_ask_is_not_open_after_a_restart() -> None:
    """protocol 6.5: marked answered in the store"""
    world, a, b = asked()
    b.reply("a", "r1", "q1")
    world.crash()
    a, b = back(world, a), back(world, b)
    assert reason(b.reply("a", "r2", "q1")) == NO_QUESTION
    assert is_delivered(b.reply("a", "r1", "q1")), "the same reply again was accepted before"
    assert is_delivered(a.ask("b", "q1")) and reason(b.reply("a", "r2", "q1")) == NO_QUESTION


def test_an_ask_that_was_only_reserved_is_not_open_after_a_restart() -> None:
    """design 5 "Asks survive": every accepted, unanswered ask"""
    world = World()
    a, t = world.register("a", returnAddress="ra"), world.register("b", returnAddress="rb", acknowledgesReceipt=True)
    a.ask("b", "q1")
    world.crash()
    a, t = back(world, a), back(world, t, acknowledgesReceipt=True)
    assert reason(t.reply("a", "r1", "q1")) == NO_QUESTION
    a.ask("b", "q1")
    t.write("received", messageId="q1")
    assert is_delivered(a.got()) and is_delivered(t.reply("a", "r1", "q1"))


def test_an_ask_accepted_after_a_restart_survives_the_next_one() -> None:
    """design 5 "Asks survive": the row still holds session id and return address of its asker"""
    world = World()
    a, t = world.register("a", returnAddress="ra"), world.register("b", returnAddress="rb", acknowledgesReceipt=True)
    a.ask("b", "q1")
    world.crash()
    a, t = back(world, a), back(world, t, acknowledgesReceipt=True)
    a.ask("b", "q1")
    t.write("received", messageId="q1")
    world.crash()
    a = world.register("a", returnAddress="ra", preferredSessionId=a.id)
    t = world.register("b", returnAddress="rb", preferredSessionId=t.id, acknowledgesReceipt=True)
    t.reply("a", "r1", "q1")
    assert a.texts() == ["!"]


def test_an_ask_survives_any_number_of_restarts() -> None:
    """design 5 "Asks survive" """
    world, a, b = asked()
    for _ in range(3):
        world.crash()
        world.pass_time(1_000)
    a, b = back(world, a), back(world, b)
    world.crash()
    a = world.register("a", returnAddress="ra", preferredSessionId=a.id)
    b = world.register("b", returnAddress="rb", preferredSessionId=b.id)
    assert is_delivered(b.reply("a", "r1", "q1"))


def test_a_long_ask_survives_longer_than_other_operations() -> None:
    """design 5 "Asks survive": a row whose question is open does not expire"""
    world, a, b = asked(ask_ms=7_200_000)
    world.pass_time(3_600_000)
    world.crash()
    world.pass_time(1_800_000)
    a, b = back(world, a), back(world, b)
    assert is_delivered(b.reply("a", "r1", "q1"))


def test_dormant_questions_are_charged_to_their_asker() -> None:
    """design 4 "Charge before you link": asks 256 per session"""
    world, a, b = asked(asks=1)
    world.crash()
    a, b = back(world, a), back(world, b)
    assert reason(a.ask("b", "q2")).startswith(reasons.CAPACITY)
    assert is_delivered(b.reply("a", "r1", "q1")) and is_delivered(a.ask("b", "q2"))
