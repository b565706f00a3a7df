"""Offer one plain example of every frame, and small ways to write payloads by hand."""

from __future__ import annotations

import json
from typing import Any

SESSION: dict[str, Any] = {
    "cwd": "/home/ada/engine",
    "model": "m-1",
    "pid": 4242,
    "startedAt": 1_700_000_000_000,
    "lastActivity": 1_700_000_000_500.5,
    "name": "ada",
}
SHOWN: dict[str, Any] = {**SESSION, "id": "0f8fad5b-d9cb-469f-a165-70867728950e", "group": "default"}
MESSAGE: dict[str, Any] = {
    "id": "7c9e6679-7425-40de-944b-e07fc1f90ae7",
    "timestamp": 1_700_000_000_000,
    "content": {"text": "Which branch?"},
}
FULL_MESSAGE: dict[str, Any] = {
    **MESSAGE,
    "replyTo": "q-1",
    "expectsReply": False,
    "replyError": "no idea",
    "source": {"subagentRunId": "run", "subagentAgent": "scout", "subagentIndex": 3},
    "content": {
        "text": "see below",
        "attachments": [
            {"type": "file", "name": "a.py", "content": "x = {}", "language": "python"},
            {"type": "snippet", "name": "s", "content": ""},
            {"type": "context", "name": "c", "content": "[[["},
        ],
    },
}

RUN = "7f0c2f5e-3b1a-4c6d-9e21-5a4b3c2d1e0f"
STAGE: dict[str, Any] = {
    "stageId": "st-1",
    "stageName": "reviewer",
    "target": f"workflow:{RUN}/st-1",
    "lifecycle": "pending",
    "routeEligible": True,
    "group": f"workflow:{RUN}",
    "recipientPurpose": "agent",
}
POSSIBLE: dict[str, Any] = {
    "target": f"workflow:{RUN}/reviewer-*",
    "queuedCount": 1,
    "deliveryOnly": True,
    "deliveryStates": [
        {"messageId": "m", "runId": RUN, "stageId": "st-1", "state": "queued", "reason": "later", "sessionId": "s"}
    ],
}

REQUESTS: list[dict[str, Any]] = [
    {"type": "register", "session": SESSION},
    {
        "type": "register",
        "session": {**SESSION, "groups": ["a", "b"], "recipientPurpose": "agent", "replyCapability": "live", "x": [1]},
        "registrationGroup": "a",
        "returnAddress": "secret",
        "supervisorOwnerToken": "token",
        "preferredSessionId": "0f8fad5b-d9cb-469f-a165-70867728950e",
        "acknowledgesReceipt": True,
        "supervisor": {"capability": "c", "supervisorSessionId": "s"},
    },
    {"type": "unregister"},
    {"type": "list", "requestId": "r", "group": "g"},
    {"type": "list_groups", "requestId": "r"},
    {"type": "presence", "requestId": "r", "name": "n", "status": "s", "model": "m", "groups": ["g"]},
    {"type": "presence", "group": "g", "replyCapability": "terminal"},
    {"type": "join_group", "requestId": "r", "group": "g"},
    {"type": "leave_group"},
    {"type": "send", "to": "bob", "message": MESSAGE},
    {
        "type": "send",
        "to": "bob",
        "message": FULL_MESSAGE,
        "attemptId": "a",
        "logicalTarget": "bob",
        "requirePendingReply": True,
        "expectedRecipientId": "e",
        "resolveReplyTarget": True,
    },
    {"type": "send", "to": "bob", "message": MESSAGE, "awaitRestoringRecipient": True},
    {"type": "supervisor_send", "to": "boss", "message": MESSAGE, "attemptId": "a"},
    {"type": "received", "messageId": "m"},
    {"type": "authorize_supervisor", "requestId": "r", "childName": "*", "capability": "c"},
    {"type": "reserve_restoring_recipient", "requestId": "r", "capability": "c"},
    {
        "type": "reserve_restoring_recipient",
        "requestId": "r",
        "capability": "c",
        "group": "g",
        "dormant": False,
        "aliases": ["1", "2", "3", "4"],
    },
    {"type": "release_restoring_recipient", "requestId": "r", "capability": "c", "gone": "", "refusal": " "},
    {"type": "register_pending_stage_route", "runId": RUN, "group": f"workflow:{RUN}", "capability": "c"},
    {
        "type": "register_pending_stage_route",
        "runId": RUN,
        "group": f"workflow:{RUN}",
        "capability": "c",
        "requestId": "r",
        "dormant": True,
        "stages": [STAGE],
        "possibleStages": [POSSIBLE],
        "parent": {"runId": RUN, "stageKeys": ["child"]},
    },
    {
        "type": "register_live_workflow_stage_route",
        "requestId": "r",
        "runId": RUN,
        "stageKeys": ["st-1", "reviewer"],
        "capability": "c",
    },
    {"type": "pending_stage_message_result", "requestId": "r", "outcome": "delivered"},
    {
        "type": "pending_stage_message_result",
        "requestId": "r",
        "outcome": "forward",
        "position": 1,
        "target": "t",
        "reason": "no",
        "reasonCode": "message_id_conflict",
        "notInKnownSet": True,
        "forwardTargets": ["t"],
    },
    {
        "type": "send_pending_stage_notification",
        "runId": RUN,
        "capability": "c",
        "to": "bob",
        "message": MESSAGE,
        "attemptId": "a",
        "senderRegistrationName": "bob",
        "senderReturnAddress": "ret",
    },
    {"type": "pending_stage_notification_result", "requestId": "r", "delivered": True},
    {"type": "broker_status", "requestId": "r"},
    {"type": "health", "requestId": "r"},
    {"type": "shutdown", "requestId": "r"},
    {"type": "broker_drain", "requestId": "r", "timeoutMs": 5000},
    {"type": "cancel_ask", "messageId": "m"},
]
"""Well-formed frames of a client, every type and every member at least once (protocol 4)."""

ANSWERS: list[dict[str, Any]] = [
    {"type": "registered", "sessionId": "s", "acknowledgesPendingStageRoutes": True, "brokerStatus": True},
    {"type": "registered", "sessionId": "s", "supervisorSessionId": "b", "acknowledgesReceipt": True},
    {"type": "registration_failed", "reason": "no", "code": "owner_missing"},
    {"type": "sessions", "requestId": "r", "sessions": [SHOWN], "workflowStages": [], "workflowFutureStages": []},
    {
        "type": "sessions",
        "requestId": "r",
        "sessions": [],
        "workflowStages": [
            {
                "kind": "workflow-stage",
                "runId": RUN,
                "stageId": "st-1",
                "stageName": "reviewer",
                "target": f"workflow:{RUN}/st-1",
                "lifecycle": "running",
                "group": f"workflow:{RUN}",
                "sessionId": "s",
            }
        ],
        "workflowFutureStages": [
            {"kind": "workflow-future-stage", "runId": RUN, "group": f"workflow:{RUN}", **POSSIBLE}
        ],
    },
    {"type": "groups", "requestId": "r", "groups": [{"group": "g", "sessionCount": 2, "member": True}]},
    {"type": "membership_ack", "requestId": "r", "groups": ["g"]},
    {"type": "presence_ack", "requestId": "r", "group": "g"},
    {"type": "presence_failed", "requestId": "r", "reason": "no"},
    {
        "type": "supervisor_authorized",
        "requestId": "r",
        "capability": "c",
        "supervisorSessionId": "s",
        "childName": "n",
    },
    {"type": "restoring_recipient_ack", "requestId": "r", "error": "no"},
    {"type": "message", "from": SHOWN, "message": FULL_MESSAGE, "channel": "supervisor"},
    {"type": "delivered", "messageId": "m", "attemptId": "a"},
    {"type": "delivery_failed", "messageId": "m", "reason": "no", "attemptId": "a", "reasonCode": "session_not_found"},
    {"type": "queued", "messageId": "m", "target": "t", "position": 1, "attemptId": "a", "notInKnownSet": True},
    {"type": "send_held", "messageId": "m", "attemptId": "a", "timeoutMs": 120_000},
    {"type": "question_target", "messageId": "m", "attemptId": "a", "sessionId": "s"},
    {"type": "peer_disconnected", "replyTo": "m", "peerSessionId": "s", "peerName": "n"},
    {"type": "session_joined", "session": SHOWN},
    {"type": "presence_update", "session": SHOWN},
    {"type": "session_left", "sessionId": "s"},
    {"type": "pending_stage_route_registered", "requestId": "r"},
    {"type": "pending_stage_route_revoked", "runId": RUN},
    {
        "type": "pending_stage_message",
        "requestId": "r",
        "from": SHOWN,
        "runId": RUN,
        "target": "t",
        "message": MESSAGE,
        "senderRegistrationName": "ada",
        "senderReturnAddress": "ret",
        "live": True,
    },
    {"type": "sticky_live_delivered", "runId": RUN, "messageId": "m", "target": "t", "deliveredTargets": ["u"]},
    {"type": "live_workflow_stage_route_registered", "requestId": "r"},
    {"type": "pending_stage_notification", "requestId": "r", "from": SHOWN, "message": MESSAGE},
    {"type": "health", "requestId": "r", "instanceId": "i"},
    {"type": "broker_status", "requestId": "r", "report": {"pid": 1, "peers": []}},
    {"type": "shutdown_ack", "requestId": "r"},
    {"type": "broker_drained", "requestId": "r", "finished": False, "open": {"runs": 1}, "failed": ["no"]},
    {"type": "error", "error": "no"},
]
"""Well-formed frames of the broker, every type and every member at least once (protocol 5)."""


def payload_of(frame: Any) -> bytes:
    """Write a frame as ``JSON.stringify`` does: compact, and in UTF-8."""
    return json.dumps(frame, separators=(",", ":"), ensure_ascii=False).encode()


def changed(frame: dict[str, Any], **members: Any) -> dict[str, Any]:
    """Copy a frame with other members."""
    return {**frame, **members}


def without(frame: dict[str, Any], *names: str) -> dict[str, Any]:
    """Copy a frame without some members."""
    return {name: member for name, member in frame.items() if name not in names}


def example(kind: str) -> dict[str, Any]:
    """Return the first example request of a type."""
    return next(frame for frame in REQUESTS if frame["type"] == kind)
