"""The life of one send: what is sent again, what is told, what stays in doubt."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.client import commands
from intercom.client.notices import Held
from intercom.client.sending import SendOperation
from intercom.client.views import Receipt
from intercom.errors import (
    BrokerBusy,
    BrokerStarting,
    ConnectionLost,
    IntercomError,
    MessageConflict,
    NotNow,
    OutcomeUnknown,
    SendRefused,
    TargetNotFound,
    TooLarge,
    UsageError,
)
from intercom.limits import DOUBTFUL_SENDS, PENDING_REPLY_RETRY_MS, RETRY_IDENTITY_MS, SEND_MS, SEND_RETRY_MS
from intercom.wire import reasons
from tests.support.client import PEER, WALL, Frame, Rig, message


def online(young_for: int | None = None) -> Rig:
    rig = Rig()
    rig.young_for = young_for
    rig.register()
    return rig


def sending(rig: Rig, target: str = "worker", message_id: str = "m1", **arguments: Any) -> SendOperation[Receipt]:
    return commands.send(target, "hi", message_id=message_id, now=rig.now, wall=WALL, **arguments)


def refused(sent: Frame, reason: str, **members: Any) -> Frame:
    return {
        "type": "delivery_failed",
        "messageId": sent["message"]["id"],
        "attemptId": sent["attemptId"],
        "reason": reason,
        **members,
    }


def delivered(sent: Frame) -> Frame:
    return {"type": "delivered", "messageId": sent["message"]["id"], "attemptId": sent["attemptId"]}


def error_of(rig: Rig) -> IntercomError:
    [operation] = rig.settled()
    assert operation.error is not None
    return operation.error


def test_a_send_and_its_receipt() -> None:
    """Protocol 8.2: the first exchange."""
    rig = online()
    [frame] = rig.begin(sending(rig, reply_to="q1"))
    assert frame == {
        "type": "send",
        "to": "worker",
        "message": {"id": "m1", "timestamp": WALL, "replyTo": "q1", "content": {"text": "hi"}},
        "attemptId": frame["attemptId"],
    }
    rig.feed(delivered(frame))
    [operation] = rig.settled()
    assert operation.result == Receipt("delivered", "m1", "worker")


def test_a_target_the_caller_looked_up_itself() -> None:
    """Protocol 6.2.4: the full id in to, the user's wording in logicalTarget; people are told their wording."""
    rig = online()
    [frame] = rig.begin(sending(rig, target=PEER["id"], logical_target="b11"))
    assert (frame["to"], frame["logicalTarget"]) == (PEER["id"], "b11")
    rig.feed(delivered(frame))
    [operation] = rig.settled()
    assert operation.result == Receipt("delivered", "m1", "b11")
    with pytest.raises(UsageError):
        sending(rig, logical_target=" ")


def test_queued_is_not_delivered() -> None:
    """F119: queued is not delivered in words or code."""
    rig = online()
    [frame] = rig.begin(sending(rig))
    rig.feed({"type": "queued", "messageId": "m1", "attemptId": frame["attemptId"], "target": "worker", "position": 3})
    [operation] = rig.settled()
    assert operation.result == Receipt("queued", "m1", "worker", 3)


def test_answers_to_other_attempts_are_ignored() -> None:
    """Protocol 6.8: an answer counts only with the present attempt's id."""
    rig = online()
    [frame] = rig.begin(sending(rig))
    rig.feed(
        {"type": "delivered", "messageId": "m1", "attemptId": "older"},
        refused(frame, reasons.SESSION_NOT_FOUND, attemptId="older"),
        {"type": "delivered", "messageId": "unknown", "attemptId": frame["attemptId"]},
    )
    assert rig.settled() == []
    rig.feed(delivered(frame), delivered(frame))
    assert len(rig.settled()) == 1


def test_an_answer_without_attempt_counts() -> None:
    """Protocol 4.8: brokers that know no attempts answer without one."""
    rig = online()
    rig.begin(sending(rig))
    rig.feed({"type": "delivered", "messageId": "m1"})
    assert len(rig.settled()) == 1


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (reasons.SESSION_NOT_FOUND, TargetNotFound),
        (reasons.DIFFERENT_GROUP, SendRefused),
        (reasons.capacity("full", 1_000), NotNow),
        (reasons.UNCERTAIN, OutcomeUnknown),
        (reasons.conflict("m1"), MessageConflict),
    ],
)
def test_final_refusals_are_told_at_once(reason: str, kind: type[IntercomError]) -> None:
    rig = online()
    [frame] = rig.begin(sending(rig))
    rig.feed(refused(frame, reason))
    error = error_of(rig)
    assert type(error) is kind
    assert error.reason == reason


@pytest.mark.parametrize(
    "reason", [reasons.NOT_RECORDED, reasons.RECEIPT_MISSING, reasons.NOT_CONFIRMED_DURABLY, reasons.UNDER_WAY]
)
def test_some_refusals_are_retried_under_the_same_id(reason: str) -> None:
    """Protocol 6.10.6 and design section 3.6: retry the same id, with a new attempt."""
    rig = online()
    [first] = rig.begin(sending(rig))
    assert rig.feed(refused(first, reason)) == []
    assert rig.pass_time(SEND_RETRY_MS - 1) == []
    [second] = rig.pass_time(1)
    assert second["message"] == first["message"]
    assert second["attemptId"] != first["attemptId"]
    rig.feed(delivered(first))
    assert rig.settled() == []
    rig.feed(delivered(second))
    [operation] = rig.settled()
    assert operation.error is None


def test_it_gives_up_at_its_deadline_with_the_id() -> None:
    """F76: give up with the message id, so that the caller can retry."""
    rig = online()
    [frame] = rig.begin(sending(rig, timeout_ms=9_000))
    rig.pass_time(8_000)
    rig.feed(refused(frame, reasons.RECEIPT_MISSING))
    rig.pass_time(1_000)
    error = error_of(rig)
    assert isinstance(error, OutcomeUnknown)
    assert (error.code, error.message_id, error.retry) == ("receipt_missing", "m1", "same_id")


def test_a_silent_broker_leaves_the_outcome_unknown() -> None:
    rig = online()
    rig.begin(sending(rig))
    rig.pass_time(SEND_MS)
    error = error_of(rig)
    assert isinstance(error, OutcomeUnknown)
    assert error.code == "send_timeout"


def test_an_attempt_without_answer_is_repeated_while_there_is_time() -> None:
    rig = online()
    [first] = rig.begin(sending(rig, timeout_ms=60_000))
    [second] = rig.pass_time(SEND_MS)
    assert second["message"] == first["message"]


def test_nothing_took_effect_when_the_store_never_recorded() -> None:
    rig = online()
    [frame] = rig.begin(sending(rig, timeout_ms=250))
    rig.feed(refused(frame, reasons.NOT_RECORDED))
    [frame] = rig.pass_time(SEND_RETRY_MS)
    rig.feed(refused(frame, reasons.NOT_RECORDED))
    rig.pass_time(SEND_RETRY_MS)
    error = error_of(rig)
    assert isinstance(error, NotNow)
    assert error.code == "not_recorded"


def test_a_send_is_repeated_after_a_reconnect() -> None:
    """Protocol 3.8 and OP-26: a shutdown leaves sends unanswered; clients retry with the same ids."""
    rig = online()
    [first] = rig.begin(sending(rig))
    rig.lose()
    [second] = rig.register()
    assert second["message"] == first["message"]
    assert second["attemptId"] != first["attemptId"]
    rig.feed(delivered(second))
    assert rig.settled()[0].error is None


def test_a_doubt_stays_until_the_broker_says_delivered() -> None:
    """Nobody is told that nothing happened when it may have."""
    rig = online()
    [frame] = rig.begin(sending(rig))
    rig.lose()
    [frame] = rig.register()
    rig.feed(refused(frame, reasons.DIFFERENT_GROUP))
    error = error_of(rig)
    assert isinstance(error, OutcomeUnknown)
    assert error.code == "connection_lost"
    assert reasons.DIFFERENT_GROUP in error.reason


def test_a_conflict_is_no_doubt() -> None:
    rig = online()
    [frame] = rig.begin(sending(rig))
    rig.lose()
    [frame] = rig.register()
    rig.feed(refused(frame, reasons.conflict("m1")))
    assert isinstance(error_of(rig), MessageConflict)


def test_after_a_reconnect_the_target_may_not_be_back_yet() -> None:
    rig = online()
    [frame] = rig.begin(sending(rig))
    rig.lose()
    [frame] = rig.register()
    rig.feed(refused(frame, reasons.SESSION_NOT_FOUND))
    [frame] = rig.pass_time(SEND_RETRY_MS)
    rig.feed(delivered(frame))
    assert rig.settled()[0].error is None


def test_a_send_that_was_never_written_is_not_found_at_once_after_a_reconnect() -> None:
    rig = online()
    rig.lose()
    assert rig.begin(sending(rig)) == []
    [frame] = rig.register()
    rig.feed(refused(frame, reasons.SESSION_NOT_FOUND))
    assert isinstance(error_of(rig), TargetNotFound)


def test_without_a_connection_it_says_why() -> None:
    rig = online()
    rig.lose()
    rig.begin(sending(rig, timeout_ms=1_000))
    rig.fail(BrokerStarting("somebody starts it"))
    rig.pass_time(1_000)
    assert isinstance(error_of(rig), BrokerStarting)


def test_abandoned_in_flight_is_unknown_and_never_written_is_not() -> None:
    rig = online()
    rig.begin(sending(rig))
    rig.core.close(rig.now, finished=True)
    assert isinstance(error_of(rig), OutcomeUnknown)

    rig = Rig()
    rig.begin(sending(rig))
    rig.core.close(rig.now, finished=True)
    assert isinstance(error_of(rig), ConnectionLost)


def test_a_session_the_broker_does_not_know_registers_anew_once() -> None:
    """F83: NOT_REGISTERED triggers transparent re-registration and one retry with the same id."""
    rig = online()
    [first] = rig.begin(sending(rig))
    rig.feed(refused(first, reasons.SENDER_NOT_FOUND))
    assert rig.is_broken
    rig.lose()
    assert rig.core.recovery.at == rig.now
    [second] = rig.register()
    assert second["message"] == first["message"]
    rig.feed(refused(second, reasons.SENDER_NOT_FOUND))
    error = error_of(rig)
    assert isinstance(error, SendRefused)
    assert error.code == "not_registered"


def test_a_target_that_misses_at_a_young_broker_may_be_on_its_way_back() -> None:
    """F77: sessions of a broker that was killed come back a moment after the first client of the new one."""
    rig = online(young_for=1_000)
    [frame] = rig.begin(sending(rig))
    rig.feed(refused(frame, reasons.SESSION_NOT_FOUND))
    assert rig.settled() == []
    [frame] = rig.pass_time(SEND_RETRY_MS)
    rig.pass_time(1_000)
    rig.feed(refused(frame, reasons.SESSION_NOT_FOUND))
    assert isinstance(error_of(rig), TargetNotFound)


# --- repeated by the caller ------------------------------------------------------------------------------


def doubtful(rig: Rig, message_id: str = "m1") -> IntercomError:
    """Return the error of a message that may have arrived."""
    [frame] = rig.begin(sending(rig, message_id=message_id))
    rig.pass_time(SEND_MS - 1)
    rig.feed(refused(frame, reasons.RECEIPT_MISSING))
    rig.pass_time(1)
    return error_of(rig)


@pytest.mark.parametrize(
    "reason",
    [
        reasons.CLUSTER_UNAVAILABLE,
        reasons.SESSION_NOT_FOUND,
        reasons.away("worker"),
        reasons.capacity("full", 1_000),
        reasons.DIFFERENT_GROUP,
        reasons.authority_invalid("the key file is missing"),
        "Something another broker says",
    ],
)
def test_no_refusal_of_a_repetition_says_that_nothing_took_effect(reason: str) -> None:
    """F76, protocol 8.2: what an earlier call left in doubt is not settled by why this one is refused."""
    rig = online()
    assert isinstance(doubtful(rig), OutcomeUnknown)
    for _ in range(2):
        [frame] = rig.begin(sending(rig))
        rig.feed(refused(frame, reason))
        error = error_of(rig)
        assert isinstance(error, OutcomeUnknown)
        assert (error.code, error.retry, error.message_id) == ("receipt_missing", "same_id", "m1")
        assert reason in error.reason and "m1" in error.hint
    [frame] = rig.begin(sending(rig, message_id="m2"))
    rig.feed(refused(frame, reason))
    assert not isinstance(error_of(rig), OutcomeUnknown)


@pytest.mark.parametrize("how", ["not recorded", "draining", "no connection", "closed"])
def test_a_repetition_that_never_leaves_says_nothing_of_the_attempt_before(how: str) -> None:
    """F76: refusals that invite another attempt until the time is up, and none at all."""
    rig = online()
    doubtful(rig)
    if how in ("no connection", "closed"):
        rig.lose()
        rig.begin(sending(rig))
        if how == "closed":
            rig.core.close(rig.now, finished=True)
    else:
        [frame] = rig.begin(sending(rig))
        rig.pass_time(SEND_MS - 1)
        rig.feed(refused(frame, {"not recorded": reasons.NOT_RECORDED, "draining": reasons.DRAINING}[how]))
    rig.pass_time(SEND_MS)
    error = error_of(rig)
    assert (type(error), error.code) == (OutcomeUnknown, "receipt_missing")


def test_an_outcome_ends_the_doubt() -> None:
    """F76: from then on the id is as any other."""
    rig = online()
    doubtful(rig)
    [frame] = rig.begin(sending(rig))
    rig.feed(delivered(frame))
    [operation] = rig.settled()
    assert operation.error is None
    [frame] = rig.begin(sending(rig))
    rig.feed(refused(frame, reasons.SESSION_NOT_FOUND))
    assert isinstance(error_of(rig), TargetNotFound)


def test_that_it_was_shown_too_late_ends_the_doubt() -> None:
    """Protocol 9.5.5: its reader was told that it is out of date, and there is no other copy."""
    rig = online()
    doubtful(rig)
    for reason, code in ((reasons.OUT_OF_DATE, "expired"), (reasons.SESSION_NOT_FOUND, "not_found")):
        [frame] = rig.begin(sending(rig))
        rig.feed(refused(frame, reason))
        error = error_of(rig)
        assert (error.code, isinstance(error, OutcomeUnknown)) == (code, False)


def test_what_a_broker_says_is_unknown_for_good_stays_so() -> None:
    """Protocol 4.8 D11: another attempt cannot settle it, and does not invite one."""
    rig = online()
    for reason in (reasons.UNCERTAIN, reasons.SESSION_NOT_FOUND):
        [frame] = rig.begin(sending(rig))
        rig.feed(refused(frame, reason))
        error = error_of(rig)
        assert isinstance(error, OutcomeUnknown)
        assert (error.code, error.retry) == ("outcome_unknown", "never")
        assert error.hint.startswith("Ask the target")


def test_a_caller_that_went_left_it_in_doubt() -> None:
    """F76: it was written, and nobody waited for what became of it."""
    rig = online()
    operation = sending(rig)
    rig.begin(operation)
    rig.core.withdraw(operation, rig.now)
    [frame] = rig.begin(sending(rig))
    rig.feed(refused(frame, reasons.SESSION_NOT_FOUND))
    assert isinstance(error_of(rig), OutcomeUnknown)


def test_the_latest_doubts_are_remembered() -> None:
    """F76, within ``DOUBTFUL_SENDS``."""
    rig = online()
    rig.lose()
    for number in range(DOUBTFUL_SENDS + 1):
        operation = sending(rig, message_id=f"m{number}")
        operation.repeats(OutcomeUnknown("It may have arrived"))
        rig.begin(operation)
        rig.core.withdraw(operation, rig.now)
    rig.register()
    for number, is_doubtful in ((0, False), (1, True)):
        [frame] = rig.begin(sending(rig, message_id=f"m{number}"))
        rig.feed(refused(frame, reasons.SESSION_NOT_FOUND))
        assert isinstance(error_of(rig), OutcomeUnknown) == is_doubtful


# --- replies --------------------------------------------------------------------------------------------


def asked(rig: Rig, **members: Any) -> Any:
    rig.feed(message("q1", "ok?", **members))
    return rig.core.take_message(rig, rig.now)


def replying(rig: Rig, question: Any, **arguments: Any) -> SendOperation[Receipt]:
    return commands.reply(question, "yes", message_id="r1", now=rig.now, wall=WALL, **arguments)


def test_a_reply_confirms_the_question_behind_it() -> None:
    """Protocol 8.3; a receipt that comes after its time would open no question (6.10.6), so the reply goes first."""
    rig = online()
    frame, received = rig.begin(replying(rig, asked(rig, expectsReply=True)))
    assert received == {"type": "received", "messageId": "q1"}
    assert frame == {
        "type": "send",
        "to": PEER["id"],
        "message": {"id": "r1", "timestamp": WALL, "replyTo": "q1", "content": {"text": "yes"}},
        "attemptId": frame["attemptId"],
        "requirePendingReply": True,
        "expectedRecipientId": PEER["id"],
    }


def test_a_reply_to_a_plain_message_needs_no_open_question() -> None:
    """Protocol 6.7: requirePendingReply is for questions."""
    rig = online()
    frame, _ = rig.begin(replying(rig, asked(rig)))
    assert "requirePendingReply" not in frame
    assert frame["message"]["replyTo"] == "q1"


def test_an_error_reply_says_so() -> None:
    rig = online()
    frame, _ = rig.begin(replying(rig, asked(rig, expectsReply=True), error=True))
    assert frame["message"]["replyError"] == "yes"


@pytest.mark.parametrize("reason", [reasons.NO_OPEN_QUESTION, reasons.SESSION_NOT_FOUND])
def test_a_reply_is_retried_after_a_reconnect(reason: str) -> None:
    """Design section 5, Asks survive: a refused pending reply is retried for 15 s after a reconnect."""
    rig = online()
    question = asked(rig, expectsReply=True)
    rig.lose()
    rig.register()
    frame, _ = rig.begin(replying(rig, question, timeout_ms=60_000))
    until = rig.now + PENDING_REPLY_RETRY_MS
    attempts = 0
    while rig.now + SEND_RETRY_MS < until:
        rig.feed(refused(frame, reason))
        assert rig.settled() == []
        [frame] = rig.pass_time(SEND_RETRY_MS)
        attempts += 1
    assert attempts > 50
    rig.pass_time(until - rig.now)
    rig.feed(refused(frame, reason))
    assert error_of(rig).reason == reason


def test_a_reply_is_not_retried_without_a_reconnect() -> None:
    """Protocol 6.7: nobody waits for the answer any more, and the caller learns it now."""
    rig = online()
    frame, _ = rig.begin(replying(rig, asked(rig, expectsReply=True)))
    rig.feed(refused(frame, reasons.NO_OPEN_QUESTION))
    error = error_of(rig)
    assert (type(error), error.code) == (SendRefused, "no_open_question")


def test_a_reply_whose_time_is_up_says_what_was_answered_last() -> None:
    rig = online()
    question = asked(rig, expectsReply=True)
    rig.lose()
    rig.register()
    frame, _ = rig.begin(replying(rig, question, timeout_ms=100))
    rig.feed(refused(frame, reasons.NO_OPEN_QUESTION))
    rig.pass_time(100)
    assert error_of(rig).reason == reasons.NO_OPEN_QUESTION


# --- what can never work --------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [0, -1, RETRY_IDENTITY_MS + 1])
def test_impossible_timeouts(timeout_ms: int) -> None:
    """Protocol 7: retry identity 660 s."""
    with pytest.raises(UsageError):
        sending(Rig(), timeout_ms=timeout_ms)
    sending(Rig(), timeout_ms=RETRY_IDENTITY_MS)


def test_nothing_is_begun_for_a_message_that_is_too_large() -> None:
    rig = online()
    with pytest.raises(TooLarge):
        commands.send("worker", "x" * (4 << 20), message_id="m1", now=rig.now, wall=WALL)
    assert rig.written() == []


def test_an_id_in_use_is_refused() -> None:
    rig = online()
    rig.begin(sending(rig))
    with pytest.raises(UsageError, match="m1"):
        rig.core.new_id("m1")
    assert rig.core.new_id("m2") == "m2"


def test_the_trouble_of_one_caller_is_not_the_error_of_another() -> None:
    rig = Rig()
    rig.begin(sending(rig, message_id="m1", timeout_ms=10))
    rig.begin(sending(rig, message_id="m2", timeout_ms=10))
    rig.fail(BrokerBusy("full"))
    rig.pass_time(10)
    one, two = (operation.error for operation in rig.settled())
    assert one is not two
    assert isinstance(one, BrokerBusy) and isinstance(two, BrokerBusy)


# --- held for a recipient that is being brought back


def hold(frame: Frame, timeout_ms: int = 120_000) -> Frame:
    answered = {"messageId": frame["message"]["id"], "attemptId": frame["attemptId"]}
    return {"type": "send_held", **answered, "timeoutMs": timeout_ms}


def held(rig: Rig, **options: Any) -> tuple[SendOperation[Receipt], Frame]:
    operation = sending(rig, hold=True, **options)
    [frame] = rig.begin(operation)
    assert frame["awaitRestoringRecipient"] is True
    rig.feed(hold(frame))
    return operation, frame


def test_a_send_that_is_held() -> None:
    """Protocol 5.14: not final; the answer may come as late as the broker said."""
    rig = online()
    operation, frame = held(rig)
    assert operation.held == Receipt("held", "m1", "worker", held_ms=120_000)
    assert Held(operation) in rig.events()
    assert rig.pass_time(119_000) == [], "it is not repeated while it is held"
    rig.feed(delivered(frame))
    assert operation.result == Receipt("delivered", "m1", "worker")


def test_a_send_that_was_held_in_vain() -> None:
    """Protocol 6.11: failed, the recipient did not come back in time; nothing took effect."""
    rig = online()
    operation, frame = held(rig)
    rig.feed(refused(frame, reasons.RESTORING_TIMED_OUT))
    assert isinstance(operation.error, NotNow)
    assert (operation.error.code, operation.error.retry) == ("not_restored", "after")


def test_a_broker_that_holds_and_says_no_more() -> None:
    rig = online()
    operation, _ = held(rig, timeout_ms=5_000)
    assert rig.pass_time(120_000 + SEND_MS - 1) == []
    assert not operation.done
    rig.pass_time(1)
    assert isinstance(operation.error, OutcomeUnknown)


def test_a_held_send_is_sent_again_after_a_reconnect() -> None:
    """Protocol 6.11: the broker drops what a session that left had held."""
    rig = online()
    operation, _ = held(rig)
    rig.lose()
    [again] = rig.register()
    assert (again["message"]["id"], operation.held) == ("m1", None)
    rig.feed(hold(again, 1_000))
    assert operation.held is not None and operation.held.held_ms == 1_000


def test_only_who_can_wait_says_so() -> None:
    """Protocol 4.8: a sender without the flag is held silently, and not for long."""
    rig = online()
    [frame] = rig.begin(sending(rig))
    assert "awaitRestoringRecipient" not in frame
    stale = {**hold(frame), "attemptId": "another"}
    rig.feed(stale)
    assert not any(isinstance(event, Held) for event in rig.events())


def test_queued_outside_of_what_is_known() -> None:
    """Protocol 5.13: accepted speculatively."""
    rig = online()
    operation = sending(rig, "workflow:x/y")
    [frame] = rig.begin(operation)
    queued = {"messageId": "m1", "attemptId": frame["attemptId"], "target": "workflow:x/y", "position": 3}
    rig.feed({"type": "queued", **queued, "notInKnownSet": True})
    assert operation.result == Receipt("queued", "m1", "workflow:x/y", 3, is_known=False)


@pytest.mark.parametrize("reason", [reasons.STAGE_UNACKNOWLEDGED, reasons.STAGE_OWNER_LEFT])
def test_a_host_that_did_not_answer_may_have_the_message(reason: str) -> None:
    """Protocol 6.12.4: it may be on the host's disk already; the same id is safe, the host knows it."""
    rig = online()
    [frame] = rig.begin(operation := sending(rig))
    rig.feed(refused(frame, reason))
    [again] = rig.pass_time(SEND_RETRY_MS)
    rig.feed(refused(again, reasons.SESSION_NOT_FOUND))
    assert isinstance(operation.error, OutcomeUnknown)
    assert (operation.error.code, operation.error.retry) == ("owner_silent", "same_id")


def test_a_run_in_another_group() -> None:
    """Protocol 5.29: with advice that can be followed."""
    rig = online()
    [frame] = rig.begin(operation := sending(rig))
    rig.feed(refused(frame, reasons.DIFFERENT_RUN))
    assert isinstance(operation.error, SendRefused)
    assert (operation.error.code, "workflow:" in operation.error.hint) == ("different_group", True)
