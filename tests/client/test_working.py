"""What is written for each call about work, what is refused before, and what follows from the answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest

from intercom.client.operations import Operation
from intercom.client.working import REPORTABLE, WorkRequests, ended_by, ended_without_word
from intercom.client.workviews import ProcessingState
from intercom.errors import AssignmentLost, RequestRefused, TooLarge, UsageError
from intercom.limits import ATTACHMENTS_BYTES, IDEMPOTENCY_KEY_CHARACTERS, WORK_DETAIL_CHARACTERS
from tests.client.test_patience import VIEW, work
from tests.support.client import GRANTED, PEER, Frame, Rig
from tests.support.work import WORK_FEATURES, granted, info, recorded, refused, worker

IN = 5.0
"""Seconds for the answer."""
ABOUT: Frame = {"sourceMessageId": "m1", "assignmentId": "as1"}

Call = Callable[[WorkRequests], Operation[Any]]


@pytest.mark.parametrize(
    ("call", "written"),
    [
        (lambda make: make.inbox(0, 50, IN), {"type": "inbox_list"}),
        (lambda make: make.inbox(3, 7, IN), {"type": "inbox_list", "after": 3, "limit": 7}),
        (lambda make: make.inbox_message("in1", IN), {"type": "inbox_show", "inboxId": "in1"}),
        (lambda make: make.inbox_presence(IN), {"type": "inbox_presence"}),
        (lambda make: make.settle("in1", IN), {"type": "inbox_settle", "inboxId": "in1"}),
        (lambda make: make.claim("in1", IN), {"type": "inbox_claim", "inboxId": "in1"}),
        (lambda make: make.open_assignments(0, 50, IN), {"type": "assignment_list"}),
        (lambda make: make.assignment("as1", IN), {"type": "assignment_show", "assignmentId": "as1"}),
        (
            lambda make: make.dispatch("in1", "w1", "key", "m1", 0, IN),
            {
                "type": "inbox_dispatch",
                "inboxId": "in1",
                "targetSessionId": "w1",
                "idempotencyKey": "key",
                "sourceMessageId": "m1",
                "acceptWithinMs": 0,
            },
        ),
        (
            lambda make: make.dispatch("in1", "w1", "key", None, 1.5, IN),
            {
                "type": "inbox_dispatch",
                "inboxId": "in1",
                "targetSessionId": "w1",
                "idempotencyKey": "key",
                "acceptWithinMs": 1_500,
            },
        ),
        (
            lambda make: make.report(work(), "accepted", None, None, False, None, IN),
            {"type": "assignment_report", **ABOUT, "state": "accepted", "stateEventId": "accepted"},
        ),
        (
            lambda make: make.report(VIEW, "failed", "no disk", "disk", True, None, IN),
            {
                "type": "assignment_report",
                **ABOUT,
                "state": "failed",
                "stateEventId": "failed",
                "retryable": True,
                "reasonCode": "disk",
                "detail": "no disk",
            },
        ),
        (
            lambda make: make.report(VIEW, "started", None, None, False, "again", IN),
            {"type": "assignment_report", **ABOUT, "state": "started", "stateEventId": "again"},
        ),
        (
            lambda make: make.reply(work(), "42", (), None, IN),
            {"type": "assignment_reply", **ABOUT, "replyRequestId": "reply", "content": {"text": "42"}},
        ),
        (
            lambda make: make.reply(VIEW, "42", [{"type": "file", "name": "a", "content": "b"}], "mine", IN),
            {
                "type": "assignment_reply",
                **ABOUT,
                "replyRequestId": "mine",
                "content": {"text": "42", "attachments": [{"type": "file", "name": "a", "content": "b"}]},
            },
        ),
    ],
)
def test_what_is_written(call: Call, written: Frame) -> None:
    """FE 1.11; a member at its default is left out."""
    rig = worker()
    [frame] = rig.begin(call(rig.core.work))
    assert frame.pop("requestId")
    assert frame == written


def test_what_may_be_said_again_has_a_new_id_each_time() -> None:
    rig = worker()
    frames = [rig.begin(rig.core.work.report(work(), "started", None, None, False, None, IN))[0] for _ in range(2)]
    assert frames[0]["stateEventId"] != frames[1]["stateEventId"]


@pytest.mark.parametrize(
    "call",
    [
        lambda make: make.claim("", IN),
        lambda make: make.inbox(0, 0, IN),
        lambda make: make.open_assignments(0, 1_001, IN),
        lambda make: make.dispatch("in1", "", None, None, None, IN),
        lambda make: make.dispatch("in1", "w1", "k" * (IDEMPOTENCY_KEY_CHARACTERS + 1), None, None, IN),
        lambda make: make.dispatch("in1", "w1", None, None, -1, IN),
        lambda make: make.report(work(), "reply_emitted", None, None, False, None, IN),
        lambda make: make.report(work(), "done", None, None, False, None, IN),
        lambda make: make.report(work(), "started", None, None, True, None, IN),
        lambda make: make.report(work(), "started", 3, None, False, None, IN),
        lambda make: make.reply(work(), "x", (), "", IN),
        lambda make: make.wait(0, claims=False),
        lambda make: make.claim("in1", 0),
    ],
)
def test_what_can_never_work_is_refused(call: Call) -> None:
    with pytest.raises(UsageError):
        call(worker().core.work)


def test_what_no_frame_can_carry_is_refused() -> None:
    with pytest.raises(TooLarge):
        worker().core.work.reply(work(), "x" * (ATTACHMENTS_BYTES + 1), (), None, IN)


def test_a_long_reason_is_cut() -> None:
    """FE 0.3: failure texts have 1,000 characters at most."""
    rig = worker()
    [frame] = rig.begin(rig.core.work.report(work(), "failed", "x" * 5_000, None, False, None, IN))
    assert len(frame["detail"]) == WORK_DETAIL_CHARACTERS == 1_000


def test_every_state_a_worker_reports_is_one_of_the_wire() -> None:
    """FE 1.2: the others are the broker's."""
    broker_owned = {"assigned", "delivery_attempted", "reply_requested", "reply_emitted", "target_lost"}
    assert set(get_args(ProcessingState)) - broker_owned == REPORTABLE


# --- what an assignment is after an answer


def test_what_was_recorded_is_known() -> None:
    rig, mine = worker(), work()
    for state, accepted, over in [("accepted", True, False), ("started", True, False),
                                  ("waiting_for_capability", True, False), ("failed", True, True)]:  # fmt: skip
        [frame] = rig.begin(rig.core.work.report(mine, state, None, None, False, None, IN))
        rig.feed(recorded(frame))
        assert (mine.state, mine.accepted, mine.is_over) == (state, accepted, over)


def test_work_that_waits_before_it_is_accepted_is_given_back() -> None:
    """FE 1.3: assigned, report waiting_for_capability -> returned."""
    rig, mine = worker(), work()
    [frame] = rig.begin(rig.core.work.report(mine, "waiting_for_capability", None, None, False, None, IN))
    rig.feed(recorded(frame))
    assert mine.is_over


@pytest.mark.parametrize(("status", "state"), [("sent", "delivered"), ("queued", "queued")])
def test_a_reply_ends_it(status: str, state: str) -> None:
    rig, mine = worker(), work()
    [frame] = rig.begin(rig.core.work.reply(mine, "42", (), None, IN))
    rig.feed({"type": "assignment_replied", "requestId": frame["requestId"], "messageId": "r1", "status": status})
    [operation] = rig.settled()
    assert (operation.result.state, operation.result.message_id, operation.result.target) == (state, "r1", "planner")
    assert (mine.state, mine.is_over) == ("reply_emitted", True)


@pytest.mark.parametrize("code", ["assignment_unknown", "assignment_target_mismatch"])
def test_what_is_not_this_sessions_any_more(code: str) -> None:
    """FE 1.3: any ended, late report -> assignment_unknown."""
    rig = worker()
    [frame] = rig.begin(rig.core.work.report(work(), "accepted", None, None, False, None, IN))
    rig.feed(refused(frame, code, category="reply_handle_stale"))
    [operation] = rig.settled()
    assert isinstance(operation.error, AssignmentLost)
    assert operation.error.code == code


@pytest.mark.parametrize(
    ("code", "retryable", "status"),
    [
        ("inbox_unknown", False, 3),
        ("assignment_unknown", False, 3),
        ("target_unknown", False, 3),
        ("target_not_capable", False, 1),
        ("assignment_not_accepted", False, 1),
        ("state_broker_owned", False, 1),
        ("source_mismatch", False, 4),
        ("assignment_in_progress", True, 4),
        ("state_event_conflict", False, 4),
        ("sequence_stale", False, 4),
        ("reply_idempotency_conflict", False, 4),
        ("order_key_conflict", False, 4),
        ("target_not_writable", True, 5),
        ("send_outcome_unknown", False, 6),
        ("not_allowed", False, 7),
    ],
)
def test_how_a_command_ends(code: str, retryable: bool, status: int) -> None:
    """Design section 9."""
    rig = worker()
    [frame] = rig.begin(rig.core.work.claim("in1", IN))
    rig.feed(refused(frame, code, retryable=retryable))
    [operation] = rig.settled()
    assert isinstance(operation.error, RequestRefused)
    assert (operation.error.code, operation.error.exit_status) == (code, status)


# --- what a block ends with


def test_a_block_that_was_left_without_a_word_failed() -> None:
    assert ended_without_word()["state"] == "failed"


def test_a_block_that_raised_says_what() -> None:
    told = ended_by(ValueError("no such file"))
    assert (told["state"], told["detail"]) == ("failed", "ValueError: no such file")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), GeneratorExit()])
def test_a_block_that_was_broken_off_was_interrupted(error: BaseException) -> None:
    """FE 1.2: interrupted, accepted work was cut off."""
    assert ended_by(error)["state"] == "interrupted"


# --- the registration


def test_a_worker_says_how_it_takes_work() -> None:
    """FE 0.6 and 1.11: the features and what they need."""
    frame = Rig(work_mode="managed_turn", runtime_session_id="host-1", coordinator=True).connect()
    assert set(frame["features"]) == set(WORK_FEATURES)
    assert (frame["workMode"], frame["runtimeSessionId"], frame["executionSurface"]) == (
        "managed_turn", "host-1", "headless",
    )  # fmt: skip
    assert Rig(work_mode="resident", surface="owner_attached").connect()["executionSurface"] == "owner_attached"


def test_others_say_nothing_of_work() -> None:
    """A1.18."""
    frame = Rig().connect()
    assert not {"workMode", "runtimeSessionId", "executionSurface"} & set(frame)
    assert set(frame["features"]) == set(GRANTED["features"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"work_mode": "sometimes"},
        {"work_mode": "managed_turn"},
        {"work_mode": "managed_turn", "runtime_session_id": " "},
        {"work_mode": "resident", "purpose": "control"},
        {"coordinator": True, "purpose": "control"},
        {"work_mode": "resident", "return_address": "r"},
        {"work_mode": "resident", "surface": "somewhere"},
    ],
)
def test_a_wish_that_cannot_come_true_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Rig(**wrong)


# --- views


def test_the_inbox_as_it_is_told() -> None:
    """FE 1.2 and 1.11."""
    rig = worker()
    entry = {
        "inboxId": "in1",
        "number": 4,
        "reason": "unaddressed",
        "claimPolicy": "bound_session",
        "parkedAt": 9,
        "sender": PEER,
        "target": "desk",
        "contentPreview": "count",
        "size": 11,
        "groups": ["default"],
        "originalTargetAddress": "desk",
        "returns": 2,
        "returnReason": "acceptance_timeout",
    }
    operation = rig.core.work.inbox(0, 50, IN)
    [frame] = rig.begin(operation)
    rig.feed({"type": "inbox_items", "requestId": frame["requestId"], "items": [entry], "underPressure": False,
              "count": 1, "capacity": 256})  # fmt: skip
    assert operation.result is not None
    [parked] = operation.result.items
    assert (operation.result.count, operation.result.capacity, operation.result.under_pressure) == (1, 256, False)
    assert (parked.id, parked.place, parked.sender.name, parked.target_address) == ("in1", 4, "worker", "desk")
    assert (parked.target_session_id, parked.text, parked.returns, parked.return_reason) == (
        None, None, 2, "acceptance_timeout",
    )  # fmt: skip
    shown = rig.core.work.inbox_message("in1", IN)
    [frame] = rig.begin(shown)
    whole = {"id": "m1", "timestamp": 1, "content": {"text": "count the words"}}
    rig.feed({"type": "inbox_item", "requestId": frame["requestId"], "item": entry, "message": whole})
    assert shown.result is not None
    assert (shown.result.text, shown.result.preview) == ("count the words", "count")


def test_assignments_as_they_are_told() -> None:
    rig = worker()
    operation = rig.core.work.open_assignments(0, 50, IN)
    [frame] = rig.begin(operation)
    rig.feed({"type": "assignments", "requestId": frame["requestId"], "assignments": [info(targetAddress="ada")]})
    assert operation.result is not None
    [view] = operation.result
    assert (view.id, view.source_message_id, view.session_id, view.address) == ("as1", "m1", "me", "ada")
    claimed = rig.core.work.claim("in1", IN)
    [frame] = rig.begin(claimed)
    rig.feed(granted(frame["requestId"]))
    assert claimed.result is not None
    assert (claimed.result.view.mode, claimed.result.text) == ("staged", "count the words")


def test_a_former_id_of_this_session_is_taken_for_the_present_one() -> None:
    rig = worker()
    rig.lose()
    first = rig.dial()
    rig.feed({"type": "request_failed", "requestId": first["requestId"], "code": "unknown_session", "reason": "no",
              "retryable": False})  # fmt: skip
    rig.feed({"type": "registered", "sessionId": "me2", "acknowledgesReceipt": True, **GRANTED})
    [frame] = rig.begin(rig.core.work.dispatch("in1", "me", None, None, None, IN))
    assert frame["targetSessionId"] == "me2"
