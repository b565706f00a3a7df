"""Hold the frames of workflow stages against protocol 4.14 to 4.18 beyond what all frames have in common."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import ValidationError, convert

from intercom.limits import WHOLE_NUMBER_MAX
from intercom.wire.codec import ProtocolError, decode_request
from intercom.wire.frames import Malformed, RegisterPendingStageRoute
from intercom.wire.stage_frames import PossibleStage, StageAnnouncement
from tests.support.wire import MESSAGE, POSSIBLE, STAGE, changed, example, payload_of, without

ROUTE = example("register_pending_stage_route")
LIVE = example("register_live_workflow_stage_route")
RESULT = example("pending_stage_message_result")
NOTIFICATION = example("send_pending_stage_notification")


@pytest.mark.parametrize(
    "frame",
    [
        changed(ROUTE, runId=""),
        changed(ROUTE, group=7),
        changed(ROUTE, capability=""),
        changed(LIVE, stageKeys=[]),
        changed(LIVE, stageKeys=["a", "b", "c"]),
        changed(LIVE, stageKeys=["a", ""]),
        changed(LIVE, capability=""),
        changed(RESULT, outcome="lost"),
        changed(RESULT, outcome="forward"),
        changed(RESULT, position="1"),
        changed(RESULT, reasonCode="session_not_found"),
        changed(RESULT, notInKnownSet=False),
        changed(RESULT, forwardTargets="t"),
        without(RESULT, "outcome"),
        {"type": "pending_stage_notification_result", "requestId": "r", "delivered": "yes"},
    ],
    ids=lambda frame: payload_of(frame).decode(),
)
def test_these_are_protocol_errors(frame: dict[str, Any]) -> None:
    """protocol 4.14, 4.15, 4.16, 4.18"""
    with pytest.raises(ProtocolError):
        decode_request(payload_of(frame))


@pytest.mark.parametrize("value", [None, 7, "x", [], {}, [{}], {"deep": [None, 1.5]}])
@pytest.mark.parametrize("member", ["dormant", "stages", "possibleStages", "parent"])
def test_the_core_judges_these_members_of_a_route(member: str, value: object) -> None:
    """protocol 4.14: refuse and end, or ignore, but never a protocol error"""
    frame = decode_request(payload_of(changed(ROUTE, **{member: value})))
    assert isinstance(frame, RegisterPendingStageRoute)
    names = {"possibleStages": "possible_stages"}
    assert getattr(frame, names.get(member, member)) == value


@pytest.mark.parametrize(
    "frame",
    [
        without(NOTIFICATION, "runId"),
        changed(NOTIFICATION, to=None),
        changed(NOTIFICATION, attemptId=7),
        changed(NOTIFICATION, senderReturnAddress=""),
        changed(NOTIFICATION, senderRegistrationName=[]),
        {"type": "send_pending_stage_notification"},
    ],
)
def test_a_notification_is_always_answered_in_band(frame: dict[str, Any]) -> None:
    """protocol 4.17"""
    assert decode_request(payload_of(frame)) == Malformed("send_pending_stage_notification", frame)


def test_the_bytes_of_a_notification_are_kept() -> None:
    """design 3.1"""
    frame = decode_request(payload_of(changed(NOTIFICATION, message=changed(MESSAGE, future=[1.50]))))
    assert b'"future":[1.5]' in bytes(frame.message)  # type: ignore[union-attr]  # it is a notification


@pytest.mark.parametrize("count", [0, 1, 50, 2.0, WHOLE_NUMBER_MAX])
def test_a_queue_length_is_a_whole_number(count: float) -> None:
    """protocol 6.12.2; 2.0 is the integer 2 to other languages"""
    assert type(convert(changed(POSSIBLE, queuedCount=count), PossibleStage).queued_count) is int


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("queuedCount", -1),
        ("queuedCount", 0.5),
        ("queuedCount", 10**400),
        ("queuedCount", WHOLE_NUMBER_MAX + 1),
        ("queuedCount", True),
        ("queuedCount", "1"),
        ("deliveryOnly", False),
        ("deliveryOnly", None),
        ("deliveryStates", [{}]),
        ("target", 1),
    ],
)
def test_a_possible_stage_refuses(name: str, wrong: object) -> None:
    """protocol 6.12.2"""
    with pytest.raises(ValidationError):
        convert(changed(POSSIBLE, **{name: wrong}), PossibleStage)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("stageId", 1),
        ("stageName", None),
        ("target", []),
        ("lifecycle", "done"),
        ("routeEligible", 1),
        ("group", None),
        ("recipientPurpose", "robot"),
    ],
)
def test_a_stage_refuses(name: str, wrong: object) -> None:
    """protocol 6.12.2"""
    with pytest.raises(ValidationError):
        convert(changed(STAGE, **{name: wrong}), StageAnnouncement)
