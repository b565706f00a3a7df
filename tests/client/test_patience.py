"""Requests that are repeated until they are answered, without taking effect twice."""

from __future__ import annotations

from intercom.client.assignment import Assignment
from intercom.client.views import IncomingMessage, SessionView
from intercom.client.workviews import AssignmentView
from intercom.errors import BrokerBusy, ConnectionLost, RequestRefused, RequestTimeout
from intercom.limits import REQUEST_RETRY_MS, WORK_REQUEST_MS
from tests.support.client import WALL, Frame, Rig
from tests.support.work import recorded, refused, worker

VIEW = AssignmentView(
    id="as1", source_message_id="m1", inbox_id="in1", mode="pushed", assigned_at=WALL, state="assigned", sequence=1,
    accepted=False, session_id="me", address=None, attempts=0, accept_deadline=None,
)  # fmt: skip
SENDER = SessionView(
    id="p", name="planner", cwd="", model="", pid=1, peer_pid=None, status=None, group=None, groups=(), started_at=0,
    last_activity=0, raw={},
)  # fmt: skip


def work() -> Assignment:
    return Assignment(VIEW, IncomingMessage(id="m1", text="do it", sender=SENDER))


def report(rig: Rig, seconds: float = 30) -> Frame:
    [frame] = rig.begin(rig.core.work.report(work(), "started", None, None, False, None, seconds))
    return frame


def test_a_report_whose_answer_was_lost_is_repeated_under_its_id() -> None:
    """FE 1.9: the same stateEventId with the same content is answered ok."""
    rig = worker()
    first = report(rig)
    rig.lose()
    [second] = rig.reattach()
    assert {**second, "requestId": ""} == {**first, "requestId": ""}
    rig.feed(recorded(second, 4))
    [operation] = rig.settled()
    assert operation.result == 4


def test_a_reply_whose_answer_was_lost_is_repeated_under_its_id() -> None:
    """FE 1.9, A1.11: replyRequestId."""
    rig = worker()
    [first] = rig.begin(rig.core.work.reply(work(), "done", (), None, 30))
    rig.lose()
    [second] = rig.reattach()
    assert {**second, "requestId": ""} == {**first, "requestId": ""}


def test_an_order_whose_answer_was_lost_is_repeated_under_its_key() -> None:
    """FE 1.9, A1.9: idempotencyKey."""
    rig = worker(coordinator=True)
    [first] = rig.begin(rig.core.work.dispatch("in1", "w1", None, None, None, 30))
    rig.lose()
    [second] = rig.reattach()
    assert first["idempotencyKey"]
    assert {**second, "requestId": ""} == {**first, "requestId": ""}


def test_a_refusal_that_passes_is_waited_for() -> None:
    rig = worker()
    first = report(rig)
    assert rig.feed(refused(first, "not_recorded", retryable=True)) == []
    [second] = rig.pass_time(REQUEST_RETRY_MS)
    assert second["stateEventId"] == first["stateEventId"]
    rig.feed(recorded(second))
    assert [operation.error for operation in rig.settled()] == [None]


def test_a_refusal_that_does_not_pass_in_time_is_the_outcome() -> None:
    rig = worker()
    frame = report(rig, 1.5)
    rig.feed(refused(frame, "not_recorded", retryable=True))
    [second] = rig.pass_time(REQUEST_RETRY_MS)
    rig.feed(refused(second, "not_recorded", retryable=True))
    rig.pass_time(500)
    [operation] = rig.settled()
    assert isinstance(operation.error, RequestRefused)
    assert (operation.error.code, operation.error.exit_status) == ("not_recorded", 5)


def test_other_refusals_are_told_at_once() -> None:
    rig = worker()
    rig.feed(refused(report(rig), "assignment_in_progress", retryable=True))
    [operation] = rig.settled()
    assert isinstance(operation.error, RequestRefused)


def test_what_was_written_and_not_answered_may_have_been_recorded() -> None:
    rig = worker()
    report(rig)
    rig.lose()
    rig.fail(BrokerBusy("full"))
    rig.pass_time(30_000)
    [operation] = rig.settled()
    assert isinstance(operation.error, RequestTimeout)
    assert (operation.error.retry, operation.error.exit_status) == ("same_id", 6)


def test_work_that_is_accepted_for_its_worker_is_accepted_however_long_its_broker_is_away() -> None:
    """FE 1.3: brokers that die one after the other end no worker; work ends by its own time, which the broker keeps."""
    rig = worker()
    mine = work()
    [first] = rig.begin(rig.core.work.accept(mine))
    rig.lose()
    rig.fail(BrokerBusy("full"))
    rig.pass_time(10 * WORK_REQUEST_MS)
    assert rig.settled() == []
    [again] = rig.reattach()
    assert {**again, "requestId": ""} == {**first, "requestId": ""} and again["state"] == "accepted"
    rig.feed(recorded(again))
    [operation] = rig.settled()
    assert operation.error is None and mine.accepted


def test_what_was_never_written_had_no_effect() -> None:
    rig = worker()
    rig.lose()
    rig.fail(BrokerBusy("full"))
    rig.core.begin(rig.core.work.report(work(), "started", None, None, False, None, 30), rig.now)
    rig.pass_time(30_000)
    [operation] = rig.settled()
    assert isinstance(operation.error, BrokerBusy)


def test_the_end_of_the_session_ends_it() -> None:
    rig = worker()
    report(rig)
    rig.core.close(rig.now, finished=True)
    [operation] = rig.settled()
    assert isinstance(operation.error, ConnectionLost)


def test_a_wait_without_end_waits_again() -> None:
    rig = worker()
    [frame] = rig.begin(rig.core.work.wait(None, claims=False))
    rig.pass_time(frame["timeoutMs"])
    [again] = rig.feed({"type": "inbox_nothing", "requestId": frame["requestId"]})
    assert again["timeoutMs"] == frame["timeoutMs"]


def test_a_wait_that_is_over_has_no_result() -> None:
    rig = worker()
    [frame] = rig.begin(rig.core.work.wait(3, claims=False))
    rig.pass_time(3_000)
    assert rig.feed({"type": "inbox_nothing", "requestId": frame["requestId"]}) == []
    [operation] = rig.settled()
    assert (operation.result, operation.error) == (None, None)
