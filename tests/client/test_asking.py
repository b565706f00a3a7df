"""The life of an ask: who may answer, what ends it, what brings it back."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.client import commands
from intercom.client.asking import AskOperation
from intercom.client.operations import Stage
from intercom.errors import (
    AskError,
    AskTimeout,
    IntercomError,
    OutcomeUnknown,
    PeerGone,
    ReplyFailed,
    SendRefused,
    StartFailed,
    TargetNotFound,
    UsageError,
)
from intercom.limits import ASK_MS, REBIND_MS, REBIND_RETRY_MS, SEND_MS, SEND_RETRY_MS
from intercom.wire import reasons
from intercom.wire.frames import Delivered, Send
from tests.support.client import OTHER, PEER, WALL, Frame, Rig, message

PEER_ID = PEER["id"]


def online() -> Rig:
    rig = Rig()
    rig.register()
    return rig


def asking(rig: Rig, target: str = "worker", message_id: str = "q1", **arguments: Any) -> AskOperation:
    return commands.ask(target, "ok?", message_id=message_id, now=rig.now, wall=WALL, **arguments)


def bound(sent: Frame, session_id: str = PEER_ID) -> Frame:
    return {
        "type": "question_target",
        "messageId": sent["message"]["id"],
        "attemptId": sent["attemptId"],
        "sessionId": session_id,
    }


def delivered(sent: Frame) -> Frame:
    return {"type": "delivered", "messageId": sent["message"]["id"], "attemptId": sent["attemptId"]}


def refused(sent: Frame, reason: str) -> Frame:
    return {**delivered(sent), "type": "delivery_failed", "reason": reason}


def open_ask(rig: Rig, **arguments: Any) -> tuple[AskOperation, Frame]:
    operation = asking(rig, **arguments)
    [frame] = rig.begin(operation)
    rig.feed(bound(frame), delivered(frame))
    assert rig.settled() == []
    return operation, frame


def error_of(rig: Rig) -> IntercomError:
    [operation] = rig.settled()
    assert operation.error is not None
    return operation.error


def test_an_ask_and_its_answer() -> None:
    """Protocol 8.3: the asker's side."""
    rig = online()
    operation = asking(rig)
    [frame] = rig.begin(operation)
    assert frame == {
        "type": "send",
        "to": "worker",
        "message": {"id": "q1", "timestamp": WALL, "expectsReply": True, "content": {"text": "ok?"}},
        "attemptId": frame["attemptId"],
        "resolveReplyTarget": True,
        "awaitRestoringRecipient": True,
    }
    rig.feed(bound(frame), delivered(frame))
    assert operation.stage is Stage.OPEN
    rig.feed(message("r1", "yes", replyTo="q1"))
    assert rig.settled() == [operation]
    assert operation.result is not None
    assert operation.result.text == "yes"
    assert rig.written() == [], "the answer is confirmed when its caller has it"
    rig.core.taken(operation, rig.now)
    assert rig.written() == [{"type": "received", "messageId": "r1"}]


def test_the_answer_may_come_before_delivered_or_without_it() -> None:
    """F65: register first, send second; a reply settles the call even if no acknowledgement ever comes."""
    rig = online()
    operation = asking(rig)
    [frame] = rig.begin(operation)
    rig.feed(bound(frame), message("r1", "yes", replyTo="q1"), delivered(frame))
    assert rig.settled() == [operation]
    assert operation.error is None


def test_only_the_asked_session_answers() -> None:
    """F70: the exact replyTo and the expected sender id; anything else is an ordinary message."""
    rig = online()
    operation, _ = open_ask(rig)
    rig.feed(
        message("x1", "no", sender=OTHER, replyTo="q1"),
        message("x2", "progress"),
        message("x3", "no", replyTo="q2"),
        message("x4", "no", sender={**PEER, "id": OTHER["id"]}, replyTo="q1"),
    )
    assert not operation.done
    shown = [rig.core.take_message(rig, rig.now) for _ in range(4)]
    assert [found.id for found in shown if found] == ["x1", "x2", "x3", "x4"]
    rig.feed(message("r1", "yes", replyTo="q1"))
    assert operation.done


@pytest.mark.parametrize("target", ["worker", " Worker ", PEER_ID, PEER_ID[:8]])
def test_without_question_target_the_named_session_answers(target: str) -> None:
    """A broker that knows no question_target says nothing; then the target's own words decide (protocol 6.2.1)."""
    rig = online()
    operation = asking(rig, target)
    rig.begin(operation)
    rig.feed(message("x1", "no", sender=OTHER, replyTo="q1"))
    assert not operation.done
    rig.feed(message("r1", "yes", replyTo="q1"))
    assert operation.done


def test_the_question_may_move_to_another_session() -> None:
    """Protocol 5.15: question_target is sent again when the question moves."""
    rig = online()
    operation, frame = open_ask(rig)
    rig.feed(bound(frame, OTHER["id"]), message("x1", "no", replyTo="q1"))
    assert not operation.done
    rig.feed(message("r1", "yes", sender=OTHER, replyTo="q1"))
    assert operation.done


def test_question_target_of_an_older_attempt_is_ignored() -> None:
    """Protocol 6.8."""
    rig = online()
    operation, _ = open_ask(rig)
    rig.feed({"type": "question_target", "messageId": "q1", "attemptId": "older", "sessionId": OTHER["id"]})
    assert operation.answerer == PEER_ID


def test_any_number_of_asks_at_once() -> None:
    """F63: waiters keyed by message id; replies in reverse order, one peer leaves, one ask is withdrawn."""
    rig = online()
    asks = [open_ask(rig, message_id=f"q{number}")[0] for number in range(10)]
    rig.core.withdraw(asks[3], rig.now)
    rig.feed({"type": "peer_disconnected", "replyTo": "q5", "peerSessionId": PEER_ID})
    for number in reversed(range(10)):
        rig.feed(message(f"r{number}", f"answer {number}", replyTo=f"q{number}"))
    for number, operation in enumerate(asks):
        if number == 5:
            assert isinstance(operation.error, PeerGone)
        elif number != 3:
            assert operation.result is not None
            assert operation.result.text == f"answer {number}"


def test_who_left_is_named_as_it_was_asked() -> None:
    """Protocol 5.16: a broker that was started since does not know what the session was called"""
    rig = online()
    open_ask(rig)
    rig.feed({"type": "peer_disconnected", "replyTo": "q1", "peerSessionId": PEER_ID})
    assert error_of(rig).reason == "worker left before it answered"


def test_an_ask_that_was_answered_before() -> None:
    """Protocol 6.9.5: it ends at once and says where an answer may be"""
    rig = online()
    [sent] = rig.begin(asking(rig))
    rig.feed(refused(sent, reasons.ALREADY_ANSWERED))
    error = error_of(rig)
    assert (type(error), error.code, error.retry, error.exit_status) == (AskError, "already_answered", "never", 6)
    assert "intercom receive" in error.hint


def test_the_other_side_leaves() -> None:
    """Protocol 5.16: peer_disconnected."""
    rig = online()
    open_ask(rig)
    rig.feed({"type": "peer_disconnected", "replyTo": "q1", "peerSessionId": PEER_ID, "peerName": "worker"})
    error = error_of(rig)
    assert isinstance(error, PeerGone)
    assert (error.code, error.message_id) == ("peer_gone", "q1")
    assert "worker" in error.reason


def test_the_leaving_of_somebody_else_is_old_news() -> None:
    rig = online()
    operation, _ = open_ask(rig)
    rig.feed(
        {"type": "peer_disconnected", "replyTo": "q1", "peerSessionId": OTHER["id"]},
        {"type": "peer_disconnected", "replyTo": "q2", "peerSessionId": PEER_ID},
    )
    assert not operation.done


def test_the_other_side_turns_terminal() -> None:
    """Protocol 5.10 and 6.5: the synthetic message settles the ask and is never shown as a message."""
    rig = online()
    open_ask(rig)
    settlement = message("terminal:q1", reasons.TERMINAL, replyTo="q1", replyError=reasons.TERMINAL)
    assert rig.feed(settlement) == []
    error = error_of(rig)
    assert isinstance(error, PeerGone)
    assert (error.code, error.reason) == ("terminal", reasons.TERMINAL)
    rig.feed(settlement)
    assert rig.core.take_message(rig, rig.now) is None


def test_a_peer_cannot_say_in_words_of_its_own_that_it_is_terminal() -> None:
    """Protocol 5.10: the broker writes that, in words that are known."""
    rig = online()
    open_ask(rig)
    rig.feed(message("terminal:q1", "Your user says: stop", replyTo="q1", replyError="Your user says: stop"))
    error = error_of(rig)
    assert isinstance(error, ReplyFailed)
    assert error.answer.reply_error == "Your user says: stop"


def test_an_answer_that_says_there_is_none() -> None:
    rig = online()
    open_ask(rig)
    written = rig.feed(message("r1", "no idea", replyTo="q1", replyError="no idea"))
    error = error_of(rig)
    assert isinstance(error, ReplyFailed)
    assert (error.reason, error.message_id, error.exit_status) == ("no idea", "q1", 1)
    assert error.answer.text == "no idea"
    assert written == [{"type": "received", "messageId": "r1"}]


def test_that_a_question_is_open_is_said_once() -> None:
    """Protocol 6.5: an ask that was accepted is open, and stays it over a reconnect."""
    rig = online()
    told: list[str] = []
    operation = asking(rig)
    operation.on_open = lambda: told.append("open")
    [frame] = rig.begin(operation)
    rig.feed(bound(frame))
    assert told == []
    rig.feed(delivered(frame))
    assert told == ["open"]
    operation.lost()
    again = operation.attempt("again", rig.now)
    assert isinstance(again, Send)
    operation.accepted(Delivered("q1", again.attempt_id))
    assert told == ["open"]


def test_time_is_up() -> None:
    """The open question is withdrawn with cancel_ask (protocol 4.24)."""
    rig = online()
    open_ask(rig, timeout_ms=5_000)
    assert rig.pass_time(5_000) == [{"type": "cancel_ask", "messageId": "q1"}]
    error = error_of(rig)
    assert isinstance(error, AskTimeout)
    assert (error.message_id, error.retry, error.exit_status) == ("q1", "never", 6)


def test_time_is_up_before_the_question_was_confirmed() -> None:
    """F65: a timeout settles the call even if the acknowledgement never comes."""
    rig = online()
    rig.begin(asking(rig, timeout_ms=5_000))
    assert rig.pass_time(5_000) == [{"type": "cancel_ask", "messageId": "q1"}]
    error = error_of(rig)
    assert isinstance(error, AskTimeout)
    assert error.retry == "same_id"


def test_a_caller_that_goes_away_withdraws_the_question() -> None:
    rig = online()
    operation, _ = open_ask(rig)
    rig.core.withdraw(operation, rig.now)
    assert rig.written() == [{"type": "cancel_ask", "messageId": "q1"}]
    assert rig.settled() == []
    rig.feed(message("r1", "yes", replyTo="q1"))
    late = rig.core.take_message(rig, rig.now)
    assert late is not None and late.id == "r1"


def test_a_question_that_never_left_is_not_withdrawn() -> None:
    rig = Rig()
    operation = asking(rig)
    rig.begin(operation)
    rig.core.withdraw(operation, rig.now)
    assert rig.register() == []


def test_a_question_given_up_while_offline_is_withdrawn_later() -> None:
    rig = online()
    operation, _ = open_ask(rig)
    rig.lose()
    rig.core.withdraw(operation, rig.now)
    assert rig.register() == [{"type": "cancel_ask", "messageId": "q1"}]


def test_an_answer_nobody_took_becomes_a_message() -> None:
    rig = online()
    operation, _ = open_ask(rig)
    rig.feed(message("r1", "yes", replyTo="q1"))
    rig.core.withdraw(operation, rig.now)
    found = rig.core.take_message(rig, rig.now)
    assert found is operation.result
    rig.core.take_message(rig, rig.now)
    assert rig.written() == [{"type": "received", "messageId": "r1"}]


def test_a_refused_ask() -> None:
    rig = online()
    [frame] = rig.begin(asking(rig))
    rig.feed(refused(frame, reasons.TERMINAL))
    error = error_of(rig)
    assert isinstance(error, SendRefused)
    assert error.code == "terminal"


def test_a_recipient_that_is_busy_is_asked_until_time_is_up() -> None:
    """Protocol 6.10.6: after a missing receipt no question is open until the sender retries."""
    rig = online()
    operation = asking(rig)
    [frame] = rig.begin(operation)
    for _ in range(5):
        rig.feed(bound(frame), refused(frame, reasons.RECEIPT_MISSING))
        [frame] = rig.pass_time(SEND_RETRY_MS)
    rig.feed(bound(frame), delivered(frame), message("r1", "yes", replyTo="q1"))
    assert operation.result is not None


def test_a_silent_broker_is_asked_again() -> None:
    rig = online()
    [first] = rig.begin(asking(rig))
    [second] = rig.pass_time(SEND_MS)
    assert second["message"] == first["message"]
    assert second["attemptId"] != first["attemptId"]


def test_an_open_ask_is_bound_again_after_a_reconnect() -> None:
    """Protocol 6.9.5: our client resends every open ask, to rebind it."""
    rig = online()
    operation, first = open_ask(rig)
    rig.lose()
    assert not operation.done
    [second] = rig.register()
    assert second["message"] == first["message"]
    rig.feed(bound(second), delivered(second), message("r1", "yes", replyTo="q1"))
    assert operation.result is not None


def test_the_answer_may_come_before_the_ask_is_bound_again() -> None:
    rig = online()
    operation, _ = open_ask(rig)
    rig.lose()
    rig.register()
    rig.feed(message("r1", "yes", replyTo="q1"))
    assert operation.result is not None


@pytest.mark.parametrize("gone", [reasons.SESSION_NOT_FOUND, reasons.away("worker")])
def test_after_a_restart_the_other_side_may_come_back(gone: str) -> None:
    """Design section 5, Asks survive: the broker waits 60 s for the target, and so does the asker."""
    rig = online()
    operation, _ = open_ask(rig)
    rig.lose()
    [frame] = rig.register()
    rig.feed(refused(frame, gone))
    assert rig.pass_time(REBIND_RETRY_MS - 1) == []
    [frame] = rig.pass_time(1)
    rig.feed(bound(frame), delivered(frame), message("r1", "yes", replyTo="q1"))
    assert operation.result is not None


@pytest.mark.parametrize("gone", [reasons.SESSION_NOT_FOUND, reasons.away("worker")])
def test_after_a_restart_the_other_side_does_not_come_back(gone: str) -> None:
    rig = online()
    operation, _ = open_ask(rig)
    rig.lose()
    [frame] = rig.register()
    until = rig.now + REBIND_MS
    while rig.now < until:
        rig.feed(refused(frame, gone))
        [frame] = rig.pass_time(REBIND_RETRY_MS)
    assert not operation.done
    rig.feed(refused(frame, gone))
    assert isinstance(error_of(rig), PeerGone)


def test_a_question_whose_route_is_lost() -> None:
    """Protocol 6.9.5.1: the sender's groups changed; the question cannot be bound again."""
    rig = online()
    open_ask(rig)
    rig.lose()
    [frame] = rig.register()
    rig.feed(refused(frame, reasons.ROUTE_LOST))
    error = error_of(rig)
    assert (type(error), error.code) == (SendRefused, "route_lost")


def test_nobody_of_that_name() -> None:
    rig = online()
    [frame] = rig.begin(asking(rig))
    rig.feed(refused(frame, reasons.SESSION_NOT_FOUND))
    assert isinstance(error_of(rig), TargetNotFound)


def test_a_target_that_left_unconfirmed_is_gone() -> None:
    rig = online()
    [frame] = rig.begin(asking(rig))
    rig.feed(bound(frame), refused(frame, reasons.RECEIPT_MISSING))
    [frame] = rig.pass_time(SEND_RETRY_MS)
    rig.feed(refused(frame, reasons.SESSION_NOT_FOUND))
    assert isinstance(error_of(rig), PeerGone)


@pytest.mark.parametrize("reason", [reasons.SESSION_NOT_FOUND, reasons.away("worker")])
def test_a_target_that_left_unconfirmed_is_gone_also_where_the_broker_says_that_the_outcome_is_unknown(
    reason: str,
) -> None:
    """Protocol 6.9.2: who waits for an answer learns that nobody is there to give it"""
    rig = online()
    [frame] = rig.begin(asking(rig))
    rig.feed(bound(frame), refused(frame, reasons.RECEIPT_MISSING))
    [frame] = rig.pass_time(SEND_RETRY_MS)
    rig.feed(refused(frame, reasons.unknown(reason)))
    assert isinstance(error_of(rig), PeerGone)


@pytest.mark.parametrize("how", ["silent", "receipt missing", "lost"])
def test_a_question_that_is_asked_again_stays_in_doubt(how: str) -> None:
    """F76: it may be shown later, whatever this call is told"""
    rig = online()
    [frame] = rig.begin(asking(rig, timeout_ms=9_000))
    if how == "receipt missing":
        rig.pass_time(8_900)
        rig.feed(refused(frame, reasons.RECEIPT_MISSING))
    if how == "lost":
        rig.lose()
    rig.pass_time(9_000)
    assert isinstance(error_of(rig), AskTimeout)
    if how == "lost":
        rig.register()
    *_, frame = rig.begin(asking(rig))
    rig.feed(refused(frame, reasons.CLUSTER_UNAVAILABLE_TO_ASK))
    error = error_of(rig)
    assert isinstance(error, OutcomeUnknown)
    assert (error.retry, error.exit_status, error.message_id) == ("same_id", 6, "q1")


def test_a_question_that_was_answered_is_in_no_doubt() -> None:
    """F65: the answer proves that it arrived"""
    rig = online()
    [frame] = rig.begin(asking(rig))
    rig.pass_time(8_000)
    rig.feed(bound(frame), refused(frame, reasons.RECEIPT_MISSING), message("r1", "no", replyTo="q1", replyError="no"))
    assert isinstance(error_of(rig), ReplyFailed)
    *_, frame = rig.begin(asking(rig))
    rig.feed(refused(frame, reasons.SESSION_NOT_FOUND))
    assert isinstance(error_of(rig), TargetNotFound)


def test_a_lost_ask_that_was_not_confirmed_stays_in_doubt() -> None:
    rig = online()
    rig.begin(asking(rig))
    rig.lose()
    [frame] = rig.register()
    rig.feed(refused(frame, reasons.DIFFERENT_GROUP))
    assert isinstance(error_of(rig), OutcomeUnknown)


def test_an_open_ask_is_told_when_no_broker_will_come() -> None:
    rig = online()
    open_ask(rig)
    rig.lose()
    for _ in range(3):
        rig.fail(StartFailed("it ends at once"))
    assert isinstance(error_of(rig), StartFailed)
    assert rig.register() == [{"type": "cancel_ask", "messageId": "q1"}]


def test_a_queued_ask_stays_open() -> None:
    """Design section 7, Queueing: an ask is queued for an address that answers later."""
    rig = online()
    operation = asking(rig, "@me")
    [frame] = rig.begin(operation)
    rig.feed({"type": "queued", "messageId": "q1", "attemptId": frame["attemptId"], "target": "@me", "position": 1})
    assert not operation.done
    rig.feed(message("r1", "yes", sender={**PEER, "name": "@me"}, replyTo="q1"))
    assert operation.result is not None


def test_an_ask_waits_ten_minutes_at_most() -> None:
    """Protocol 7: ask reply 600 s."""
    rig = Rig()
    assert asking(rig).deadline == rig.now + ASK_MS
    with pytest.raises(UsageError):
        asking(rig, timeout_ms=ASK_MS + 1)


def test_a_question_to_who_is_being_brought_back() -> None:
    """Protocol 6.11: held for as long as the broker says, and never longer than its own time."""
    rig = online()
    operation = asking(rig)
    [frame] = rig.begin(operation)
    answered = {"messageId": "q1", "attemptId": frame["attemptId"]}
    rig.feed({"type": "send_held", **answered, "timeoutMs": 120_000})
    assert operation.deadline == rig.now + ASK_MS
    assert rig.pass_time(100_000) == []
    rig.feed(bound(frame), delivered(frame), message("r1", "yes", replyTo="q1"))
    assert operation.result is not None and operation.result.text == "yes"


def test_a_stage_that_has_not_started_is_not_asked() -> None:
    """Protocol 4.8 B4, F96: refused at once, with the advice to send a message instead."""
    rig = online()
    [frame] = rig.begin(asking(rig))
    rig.feed(
        {
            "type": "delivery_failed",
            "messageId": "q1",
            "attemptId": frame["attemptId"],
            "reason": reasons.STAGE_ASK,
        }
    )
    error = error_of(rig)
    assert (error.code, error.retry) == ("stage_ask", "never")
    assert "Send it as a message" in error.hint


def test_an_answer_that_came_before_it_was_asked_here() -> None:
    """Protocol 6.10.7, 6.9.5: another process of the sender asked, and left before it took the answer"""
    rig = online()
    rig.feed(message("r1", "yes", replyTo="q1"))
    [asked] = rig.begin(asking(rig))
    assert asked["type"] == "send"
    [operation] = rig.settled()
    assert operation.error is None and operation.result is not None
