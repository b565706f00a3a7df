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
    {"type": "supervisor_send", "to": "boss", "message": MESSAGE, "attemptId": "a"},
    {"type": "received", "messageId": "m"},
    {"type": "authorize_supervisor", "requestId": "r", "childName": "*", "capability": "c"},
    {"type": "broker_status", "requestId": "r"},
    {"type": "health", "requestId": "r"},
    {"type": "shutdown", "requestId": "r"},
    {"type": "cancel_ask", "messageId": "m"},
]
"""Well-formed frames of a client, every type and every member at least once (protocol 4)."""

ANSWERS: list[dict[str, Any]] = [
    {"type": "registered", "sessionId": "s", "acknowledgesPendingStageRoutes": True, "brokerStatus": True},
    {"type": "registered", "sessionId": "s", "supervisorSessionId": "b", "acknowledgesReceipt": True},
    {"type": "registration_failed", "reason": "no", "code": "owner_missing"},
    {"type": "sessions", "requestId": "r", "sessions": [SHOWN], "workflowStages": [], "workflowFutureStages": []},
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
    {"type": "message", "from": SHOWN, "message": FULL_MESSAGE, "channel": "supervisor"},
    {"type": "delivered", "messageId": "m", "attemptId": "a"},
    {"type": "delivery_failed", "messageId": "m", "reason": "no", "attemptId": "a", "reasonCode": "session_not_found"},
    {"type": "queued", "messageId": "m", "target": "t", "position": 1, "attemptId": "a", "notInKnownSet": True},
    {"type": "question_target", "messageId": "m", "attemptId": "a", "sessionId": "s"},
    {"type": "peer_disconnected", "replyTo": "m", "peerSessionId": "s", "peerName": "n"},
    {"type": "session_joined", "session": SHOWN},
    {"type": "presence_update", "session": SHOWN},
    {"type": "session_left", "sessionId": "s"},
    {"type": "health", "requestId": "r", "instanceId": "i"},
    {"type": "broker_status", "requestId": "r", "report": {"pid": 1, "peers": []}},
    {"type": "shutdown_ack", "requestId": "r"},
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
