"""Make the frames with which a broker hands out work."""

from __future__ import annotations

from typing import Any

from tests.support.client import GRANTED, PEER, WALL, Frame, Rig

WORK_FEATURES = [*GRANTED["features"], "flow.control", "inbox", "work.assignments"]


def info(assignment_id: str = "as1", **members: Any) -> Frame:
    """Return how a broker describes an assignment."""
    return {
        "assignmentId": assignment_id,
        "sourceMessageId": "m1",
        "inboxId": "in1",
        "deliveryIntent": "handoff",
        "mode": "pushed",
        "assignedAt": WALL,
        "state": "assigned",
        "stateSequence": 1,
        "accepted": False,
        "targetSessionId": "me",
        "deliveryAttempts": 0,
        "acceptDeadline": WALL + 30_000,
        **members,
    }


def pushed(assignment_id: str = "as1", text: str = "count the words", **members: Any) -> Frame:
    """Return the frame that hands work over."""
    return {
        "type": "message",
        "from": PEER,
        "message": {"id": "m1", "timestamp": 5, "content": {"text": text}},
        "pushId": f"push-{assignment_id}",
        "assignment": info(assignment_id, **members),
    }


def granted(request_id: str, assignment_id: str = "as1", **members: Any) -> Frame:
    """Return the answer that gives work to who came for it."""
    frame = pushed(assignment_id, mode="staged", **members)
    del frame["pushId"]
    return {**frame, "type": "assignment_granted", "requestId": request_id}


def recorded(request: Frame, sequence: int = 2) -> Frame:
    """Return the answer to a report."""
    return {"type": "assignment_recorded", "requestId": request["requestId"], "stateSequence": sequence}


def refused(request: Frame, code: str, *, retryable: bool = False, **members: Any) -> Frame:
    """Return a refusal."""
    answer = {"requestId": request["requestId"], "code": code, "reason": f"because of {code}", "retryable": retryable}
    return {"type": "request_failed", **answer, **members}


def worker(work_mode: str = "resident", **profile: Any) -> Rig:
    """Return a session that takes work, registered."""
    if work_mode == "managed_turn":
        profile.setdefault("runtime_session_id", "host-1")
    rig = Rig(work_mode=work_mode, **profile)
    rig.register(**{**GRANTED, "features": WORK_FEATURES})
    return rig
