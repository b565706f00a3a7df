"""Describe the JSON documents that verbs print with ``--json``, as JSON Schemas.

Members that are not named may be there, and programs must ignore them; those that are required stay.
"""

from __future__ import annotations

from typing import Any, TypeAlias, get_args

from intercom.client.working import REPORTABLE
from intercom.wire.flows import FlowState, StepState
from intercom.wire.invocations import Action, DeliveryStatus, RunState
from intercom.wire.links import CommandState, LinkState
from intercom.wire.work import ClaimPolicy, ParkReason, ProcessingState

Schema: TypeAlias = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer"}
_NUMBER: Schema = {"type": "number"}
_FLAG: Schema = {"type": "boolean"}
_ANY_OBJECT: Schema = {"type": "object"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_OPTIONAL_TEXT: Schema = {"anyOf": [_TEXT, {"type": "null"}]}
_OPTIONAL_COUNT: Schema = {"anyOf": [_COUNT, {"type": "null"}]}


def _object(required: Schema, optional: Schema | None = None) -> Schema:
    return {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _success(required: Schema, optional: Schema | None = None) -> Schema:
    return _object({"ok": {"const": True}, **required}, optional)


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


_SESSION = _object(
    {"id": _TEXT},
    {
        "name": _TEXT,
        "cwd": _TEXT,
        "node": _TEXT,
        "model": _TEXT,
        "pid": _NUMBER,
        "peer": _object({"pid": _COUNT}),
        "status": _TEXT,
        "group": _TEXT,
        "groups": _TEXTS,
        "startedAt": _NUMBER,
        "lastActivity": _NUMBER,
        "push": {"enum": ["now", "idle", "pull", "none"]},
        "pushWay": _TEXT,
        "state": {"const": "reconnecting"},
        "stateSince": _COUNT,
        "graceDeadline": _COUNT,
        "unconfirmedSince": _COUNT,
    },
)
_WISHED: Schema = {
    "execution": _object({}, dict.fromkeys(("kind", "model", "session", "targetSessionId"), _TEXT)),
    "labels": _TEXTS,
    "stream": {"const": True},
    "messageId": _TEXT,
}
_MESSAGE = _object(
    {"id": _TEXT, "from": _ref("Session"), "text": _TEXT, "timestamp": _NUMBER, "expectsReply": _FLAG},
    {
        "attachments": _array(_object({"type": _TEXT, "name": _TEXT, "content": _TEXT}, {"language": _TEXT})),
        "replyTo": _TEXT,
        "replyError": _TEXT,
        "channel": {"const": "supervisor"},
        "notification": {"const": True},
        "flow": _object(
            {"flowId": _TEXT, "stepId": _TEXT, "dispatchId": _TEXT, "attempt": _COUNT, "instruction": _TEXT}
        ),
        "invocation": _object(
            {"invocationId": _TEXT, "runId": _TEXT, "action": {"enum": list(get_args(Action))}},
            {"cancelled": {"const": True}, "metadata": _ANY_OBJECT, **_WISHED},
        ),
        "withdrawn": {"const": True},
        "validUntil": _COUNT,
        "mail": _object(
            {"queuedAt": _COUNT, "ageMs": _COUNT, "offers": _COUNT}, {"sends": _COUNT, "lastQueuedAt": _COUNT}
        ),
        "notice": _object(
            {"kind": {"enum": ["undeliverable", "expired"]}, "messageId": _TEXT, "target": _TEXT, "reason": _TEXT}
        ),
    },
)
_WAIT = _object(
    {
        "messageId": _TEXT,
        "state": {"enum": ["open", "under_way", "queued", "asker_away"]},
        "asker": _TEXT,
        "askerId": _TEXT,
        "target": _TEXT,
        "targetId": _OPTIONAL_TEXT,
        "since": _COUNT,
        "deadline": _OPTIONAL_COUNT,
    }
)
_POLICY = _object(
    {
        "owner": _TEXT,
        "setBy": {"enum": ["session", "person"]},
        "setAt": _OPTIONAL_COUNT,
        "rules": _array(
            _object(
                {
                    "action": {"enum": ["accept", "quiet", "hold", "refuse"]},
                    "sender": _OPTIONAL_TEXT,
                    "group": _OPTIONAL_TEXT,
                }
            )
        ),
    }
)
_KEPT = _object(
    {
        "messageId": _TEXT,
        "action": {"enum": ["quiet", "hold"]},
        "owner": _TEXT,
        "from": _ref("Session"),
        "queuedAt": _COUNT,
        "expiresAt": _COUNT,
        "size": _COUNT,
        "sends": _COUNT,
    }
)
_STAGE = _object(
    {
        "kind": {"const": "workflow-stage"},
        "runId": _TEXT,
        "stageId": _TEXT,
        "stageName": _TEXT,
        "target": _TEXT,
        "lifecycle": {"enum": ["pending", "running"]},
        "group": _TEXT,
    },
    {"sessionId": _TEXT},
)
_POSSIBLE_STAGE = _object(
    {
        "kind": {"const": "workflow-future-stage"},
        "runId": _TEXT,
        "target": _TEXT,
        "queuedCount": _COUNT,
        "group": _TEXT,
    },
    {
        "deliveryOnly": {"const": True},
        "deliveryStates": _array(
            _object(
                {"messageId": _TEXT, "runId": _TEXT, "stageId": _TEXT, "state": _TEXT, "reason": _TEXT},
                {"sessionId": _TEXT},
            )
        ),
    },
)
_FAILURE = _object(
    {
        "ok": {"const": False},
        "code": _TEXT,
        "reason": _TEXT,
        "retry": {"enum": ["never", "same_id", "after"]},
    },
    {
        "hint": _TEXT,
        "retryAfterMs": _COUNT,
        "messageId": _TEXT,
        "key": _TEXT,
        "candidates": _array(_ref("Session")),
    },
)
_KNOWN_SESSION = _object(
    {
        "id": _TEXT,
        "name": _OPTIONAL_TEXT,
        "state": {"enum": ["active", "reconnecting", "closed"]},
        "since": _COUNT,
        "groups": _TEXTS,
        "pid": _COUNT,
        "kind": _OPTIONAL_TEXT,
        "address": _OPTIONAL_TEXT,
        "waiting": _COUNT,
        "taskHint": _OPTIONAL_TEXT,
        "graceDeadline": _OPTIONAL_COUNT,
        "closedReason": _OPTIONAL_TEXT,
        "generation": _COUNT,
        "incarnation": _TEXT,
        "label": _TEXT,
        "workMode": _OPTIONAL_TEXT,
    }
)
_ATTACHMENTS = _array(_object({"type": _TEXT, "name": _TEXT, "content": _TEXT}, {"language": _TEXT}))
_PARKED = _object(
    {
        "inboxId": _TEXT,
        "place": _COUNT,
        "from": _ANY_OBJECT,
        "target": _TEXT,
        "reason": {"enum": list(get_args(ParkReason))},
        "claimPolicy": {"enum": list(get_args(ClaimPolicy))},
        "parkedAt": _COUNT,
        "preview": _TEXT,
        "bytes": _COUNT,
        "groups": _TEXTS,
        "returns": _COUNT,
    },
    {
        "targetSessionId": _TEXT,
        "targetAddress": _TEXT,
        "assignmentId": _TEXT,
        "expiresAt": _COUNT,
        "returnReason": _TEXT,
        "text": _TEXT,
        "attachments": _ATTACHMENTS,
    },
)
_ASSIGNMENT = _object(
    {
        "assignmentId": _TEXT,
        "sourceMessageId": _TEXT,
        "inboxId": _TEXT,
        "mode": {"enum": ["pushed", "staged"]},
        "state": {"enum": list(get_args(ProcessingState))},
        "sequence": _COUNT,
        "accepted": _FLAG,
        "assignedAt": _COUNT,
        "sessionId": _TEXT,
        "attempts": _COUNT,
    },
    {"address": _TEXT, "acceptDeadline": _COUNT},
)
_WORK = _success(
    {
        "assignment": _ref("Assignment"),
        "message": _object({"id": _TEXT, "from": _ANY_OBJECT, "text": _TEXT}, {"attachments": _ATTACHMENTS}),
    }
)
_INVOCATION = _object(
    {
        "invocationId": _TEXT,
        "runId": _TEXT,
        "state": {"enum": list(get_args(RunState))},
        "action": {"enum": list(get_args(Action))},
        "target": _TEXT,
        "targetId": _TEXT,
        "targetName": _TEXT,
        "requesterId": _TEXT,
        "createdAt": _COUNT,
    },
    {
        **dict.fromkeys(("startedAt", "completedAt", "takeUntil", "attempts", "cancelAskedAt"), _COUNT),
        **dict.fromkeys(("placement", "task", "summary", "output", "error", "context"), _TEXT),
        "metadata": _ANY_OBJECT,
        **_WISHED,
        "deliveries": _array(
            _object(
                {
                    "deliveryId": _TEXT,
                    "targetBrokerId": _TEXT,
                    "status": {"enum": list(get_args(DeliveryStatus))},
                    "attempts": _COUNT,
                    "firstQueuedAt": _COUNT,
                },
                {
                    **dict.fromkeys(("nextAttemptAt", "peerAckedAt"), _COUNT),
                    **dict.fromkeys(("peerRunId", "failureReason", "failureDetail"), _TEXT),
                },
            )
        ),
        "reconciled": {"const": True},
    },
)
_INVOKED = _success({"invocation": _INVOCATION})
_RUN_EVENT = _success(
    {
        "event": {"const": "happened"},
        "invocationId": _TEXT,
        "state": {"enum": list(get_args(RunState))},
        "kind": _TEXT,
        "at": _COUNT,
        "detail": _ANY_OBJECT,
    }
)
_RUN_REPORTED = _success({"invocationId": _TEXT, "state": {"enum": list(get_args(RunState))}})
_RUN_FOUND = _success(
    {"event": {"const": "snapshot"}, "invocationId": _TEXT, "state": {"enum": list(get_args(RunState))}}
)
_FLOW_HEAD: Schema = {
    "flowId": _TEXT,
    "target": _TEXT,
    "state": {"enum": list(get_args(FlowState))},
    "group": _TEXT,
    "createdBy": _TEXT,
    "createdAt": _COUNT,
    "updatedAt": _COUNT,
}
_FLOW_STEP = _object(
    {"stepId": _TEXT, "state": {"enum": list(get_args(StepState))}, "attempts": _TEXTS},
    {
        "prompt": _TEXT,
        "currentDispatchId": _TEXT,
        "result": _ANY_OBJECT,
        "todoBinding": _ANY_OBJECT,
        "reportTimeoutMs": _COUNT,
    },
)
_FLOW_MORE: Schema = {"activeStepId": _TEXT, "waiting": _object({"what": _TEXT, "since": _COUNT})}
_FLOW = _object(
    {**_FLOW_HEAD, "revision": _COUNT, "steps": _array(_FLOW_STEP), "nextActions": _TEXTS},
    {
        **_FLOW_MORE,
        "targetIdentity": _ANY_OBJECT,
        "reason": _TEXT,
        "lastAdmitReason": _TEXT,
        "lastAdmitAt": _COUNT,
        "admitAttempts": _COUNT,
        "isYours": _FLAG,
        "creatorAddress": _object({"name": _TEXT, "group": _TEXT}),
    },
)
_WRITTEN_REPORT = _object(
    {
        "dispatchId": _TEXT,
        "outcome": {"enum": ["completed", "failed"]},
        "summary": _TEXT,
        "resources": _TEXTS,
        "state": {"enum": ["prepared", "published", "accepted"]},
        "attempts": _COUNT,
        "writtenAt": _COUNT,
        "preparedAt": _COUNT,
    },
    {
        "publishedAt": _COUNT,
        "acceptedAt": _COUNT,
        "lastError": _TEXT,
        "stepState": {"enum": list(get_args(StepState))},
        "todoId": _TEXT,
        "todoStatus": _TEXT,
    },
)
_FLOW_SUMMARY = _object({**_FLOW_HEAD, "steps": _COUNT, "stepsCompleted": _COUNT}, _FLOW_MORE)
_OPTIONAL_OBJECT: Schema = {"anyOf": [_ANY_OBJECT, {"type": "null"}]}
_LINK = _object(
    {
        "id": _TEXT,
        "state": {"enum": list(get_args(LinkState))},
        "address": _OPTIONAL_TEXT,
        "group": _OPTIONAL_TEXT,
        "sessionId": _OPTIONAL_TEXT,
        "generation": _COUNT,
        "journalId": _OPTIONAL_TEXT,
        "eventFloor": _COUNT,
        "openCommands": _COUNT,
        "waitingFrames": _COUNT,
        "waitingBytes": _COUNT,
        "heartbeatAt": _OPTIONAL_COUNT,
        "refused": _OPTIONAL_TEXT,
        "otherJournalId": _OPTIONAL_TEXT,
        "workerState": _OPTIONAL_OBJECT,
    }
)
_COMMAND = _object(
    {
        "id": _TEXT,
        "number": _COUNT,
        "linkId": _TEXT,
        "commandSeq": _COUNT,
        "state": {"enum": list(get_args(CommandState))},
        "createdAt": _COUNT,
        "changedAt": _COUNT,
        "errorCode": _OPTIONAL_TEXT,
        "detail": _OPTIONAL_TEXT,
        "body": _OPTIONAL_OBJECT,
    }
)
_DEFINITIONS: Schema = {
    "Parked": _PARKED,
    "OutboxEntry": _object(
        {
            "id": _TEXT,
            "kind": {"enum": ["message", "task", "step", "report"]},
            "state": {"enum": ["accepted", "posted", "deferred", "peer_acked", "running"]},
            "target": _TEXT,
            "node": _TEXT,
            "peer": _TEXT,
            "attempts": _COUNT,
            "queuedAt": _COUNT,
            "nextAttemptAt": _OPTIONAL_COUNT,
            "messageId": _OPTIONAL_TEXT,
            "invocationId": _OPTIONAL_TEXT,
            "bytes": _OPTIONAL_COUNT,
            "detail": _OPTIONAL_TEXT,
        }
    ),
    "Assignment": _ASSIGNMENT,
    "Session": _SESSION,
    "Message": _MESSAGE,
    "Stage": _STAGE,
    "PossibleStage": _POSSIBLE_STAGE,
    "KnownSession": _KNOWN_SESSION,
    "Link": _LINK,
    "Command": _COMMAND,
    "Failure": _FAILURE,
    "Flow": _FLOW,
    "FlowSummary": _FLOW_SUMMARY,
}

_MEMBERSHIP = _success(
    {"groups": _TEXTS, "name": _OPTIONAL_TEXT, "rule": {"enum": ["name", "host", "terminal", "guest"]}}
)
_BROKER = _object({"pid": _COUNT}, {"version": _TEXT})
_REPLACED: Schema = {
    "old": {"anyOf": [_BROKER, {"type": "null"}]},
    "new": _BROKER,
    "sessions": _array(_object({"id": _TEXT, "name": _OPTIONAL_TEXT, "state": {"enum": ["back", "ended", "missing"]}})),
}
_DRAINED: Schema = {
    "pid": _COUNT,
    "finished": _FLAG,
    "open": _ANY_OBJECT,
    "failed": _array(_TEXT),
}
_STATE: Schema = {"enum": ["ok", "bad", "unknown"]}
_EXAMINED: Schema = {
    "state": _STATE,
    "checks": _array(_object({"id": _TEXT, "state": _STATE, "found": _TEXT}, {"hint": _TEXT})),
}
_STORE: Schema = {
    "files": _array(_object({"name": _TEXT, "bytes": _COUNT})),
    "operations": _COUNT,
    "unfinished": _COUNT,
    "openQuestions": _COUNT,
    "retiredIds": _COUNT,
    "addresses": _COUNT,
    "mail": _COUNT,
    "brokerId": _TEXT,
    "journalId": _TEXT,
    "askedBroker": _FLAG,
    "pid": _COUNT,
    "movedTo": _OPTIONAL_TEXT,
    "trouble": _TEXT,
    "rebuilt": _FLAG,
    "savedKey": _FLAG,
    "lostRows": _TEXTS,
}
_INSTALLED = _success(
    {
        "host": {"enum": ["atomic", "claude", "codex", "gemini", "mcp", "opencode", "pi"]},
        "directory": _TEXT,
        "home": _TEXT,
        "changed": _FLAG,
        "dryRun": _FLAG,
        "steps": _array(_object({"action": _TEXT, "path": _TEXT}, {"to": _TEXT, "change": _TEXT})),
    }
)
_STANDING = _success(
    {
        "hosts": _array(
            _object(
                {
                    "host": _TEXT,
                    "found": _FLAG,
                    "installed": {"enum": ["yes", "partly", "no"]},
                    "places": _TEXTS,
                },
                {"trouble": _TEXT},
            )
        )
    }
)


def _event(name: str, required: Schema, optional: Schema | None = None) -> Schema:
    return _success({"event": {"const": name}, **required}, optional)


_WATCHED: list[Schema] = [
    _success(
        {
            "event": {"const": "snapshot"},
            "position": _TEXT,
            "restarted": {"enum": ["ahead", "compacted", "other_journal", None]},
            "leftOut": _COUNT,
            "states": _array(_object({"kind": _TEXT, "state": _TEXT, "about": _ANY_OBJECT, "detail": _ANY_OBJECT})),
        }
    ),
    _success(
        {
            "event": {"const": "happened"},
            "position": _TEXT,
            "seq": _COUNT,
            "kind": _TEXT,
            "at": _COUNT,
            "about": _ANY_OBJECT,
            "detail": _ANY_OBJECT,
            "kept": _FLAG,
        }
    ),
    _success({"event": {"const": "ended"}, "position": _OPTIONAL_TEXT}),
]
DOCUMENTS: dict[str, list[Schema]] = {
    "list": [
        _success(
            {
                "sessions": _array(_ref("Session")),
                "stages": _array(_ref("Stage")),
                "possibleStages": _array(_ref("PossibleStage")),
            }
        )
    ],
    "send": [
        _success(
            {"state": {"enum": ["delivered", "queued"]}, "messageId": _TEXT, "target": _TEXT, "guest": _FLAG},
            {
                "position": _COUNT,
                "known": _FLAG,
                "hint": _TEXT,
                "kept": {"enum": ["quiet", "hold"]},
                "joined": _TEXT,
                "sees": {"enum": ["now", "idle", "pull", "none"]},
            },
        )
    ],
    "receive": [
        _success({"messages": _array(_ref("Message")), "left": _COUNT}),
        {"allOf": [_event("message", {}), _MESSAGE]},
        _event("ended", {}),
    ],
    "reply": [
        _success(
            {"state": {"enum": ["delivered", "queued"]}, "messageId": _TEXT, "target": _TEXT, "question": _TEXT},
            {"position": _COUNT},
        ),
        _RUN_REPORTED,
    ],
    "pending": [
        _success(
            {
                "questions": _array(
                    _object(
                        {
                            "messageId": _TEXT,
                            "askerId": _TEXT,
                            "askerName": _OPTIONAL_TEXT,
                            "askerIsHere": _FLAG,
                            "askedAt": _COUNT,
                            "deadline": _COUNT,
                        }
                    )
                ),
                "tasks": _array(_INVOCATION),
            }
        )
    ],
    "trace": [
        _success(
            {
                "messageId": _TEXT,
                "state": {
                    "enum": [
                        "reserved",
                        "queued",
                        "offered",
                        "delivered",
                        "answered",
                        "failed",
                        "expired",
                        "handed_on",
                        "undeliverable",
                        "uncertain",
                        "unconfirmed",
                        "withdrawn",
                        "purged",
                    ]
                },
                "where": _TEXT,
                "sender": _OPTIONAL_TEXT,
                "recipient": _OPTIONAL_TEXT,
                "events": _array(_object({"at": _COUNT, "state": _TEXT, "detail": _ANY_OBJECT})),
            }
        )
    ],
    "mailbox": [
        _success(
            {
                "owner": _TEXT,
                "count": _COUNT,
                "bytes": _COUNT,
                "entries": _array(
                    _object(
                        {
                            "position": _COUNT,
                            "messageId": _TEXT,
                            "from": _ANY_OBJECT,
                            "state": {"enum": ["queued", "offered"]},
                            "queuedAt": _COUNT,
                            "expiresAt": _COUNT,
                            "bytes": _COUNT,
                            "offers": _COUNT,
                            "expectsReply": _FLAG,
                        },
                        {"validUntil": _COUNT, "notice": _TEXT},
                    )
                ),
                "unconfirmed": _array(
                    _object(
                        {
                            "messageId": _TEXT,
                            "from": _ANY_OBJECT,
                            "sentAt": _COUNT,
                            "bytes": _COUNT,
                            "expectsReply": _FLAG,
                        }
                    )
                ),
            }
        )
    ],
    "addresses": [
        _success(
            {
                "addresses": _array(
                    _object(
                        {
                            "name": _TEXT,
                            "group": _TEXT,
                            "groups": _TEXTS,
                            "holder": _OPTIONAL_TEXT,
                            "holderState": _OPTIONAL_TEXT,
                            "waiting": _COUNT,
                            "bytes": _COUNT,
                            "oldestAt": _OPTIONAL_COUNT,
                            "createdAt": _COUNT,
                            "lastHeldAt": _COUNT,
                        }
                    )
                )
            }
        )
    ],
    "inbox": [
        _success({"items": _array(_ref("Parked")), "count": _COUNT, "capacity": _COUNT, "underPressure": _FLAG}),
        _success({"item": _ref("Parked")}),
        _success(
            {
                "assignmentId": _TEXT,
                "inboxId": _TEXT,
                "sessionId": _TEXT,
                "handedTo": {"enum": ["session", "mailbox", "staging"]},
            }
        ),
        _WORK,
        _success({"inboxId": _TEXT}),
    ],
    "assignment": [
        _success({"assignments": _array(_ref("Assignment"))}),
        _success({"assignment": _ref("Assignment")}),
        _success({"assignmentId": _TEXT, "state": {"enum": sorted(REPORTABLE)}, "sequence": _COUNT}),
        _success({"assignmentId": _TEXT, "state": {"enum": ["delivered", "queued"]}, "messageId": _TEXT}),
    ],
    "flow": [
        _success(
            {"flow": _ref("Flow"), "target": _ANY_OBJECT}, {"dispatch": _ANY_OBJECT, "dispatches": _array(_ANY_OBJECT)}
        ),
        _success({"flows": _array(_ref("FlowSummary")), "total": _COUNT}),
        _success(
            {
                "dispatchId": _TEXT,
                "reportMessageId": _TEXT,
                "state": {"enum": ["accepted", "stored"]},
                "stepState": {"enum": list(get_args(StepState))},
            }
        ),
        _success({"flowIds": _TEXTS, "dryRun": _FLAG}),
        _success({"reports": _array(_WRITTEN_REPORT)}),
        *_WATCHED,
    ],
    "invoke": [
        _success(
            {"invocationId": _TEXT, "runId": _TEXT, "targetId": _TEXT, "state": {"enum": list(get_args(RunState))}}
        ),
        _INVOKED,
        _RUN_FOUND,
        _RUN_EVENT,
    ],
    "invocation": [
        _success({"invocations": _array(_INVOCATION)}),
        _RUN_REPORTED,
        _INVOKED,
        _RUN_FOUND,
        _RUN_EVENT,
    ],
    "resolve": [
        _success(
            {
                "target": _object(
                    {"targetId": _TEXT, "name": _TEXT, "label": _TEXT, "state": _TEXT},
                    dict.fromkeys(("workspace", "harness", "model", "node"), _TEXT),
                )
            }
        )
    ],
    "session": [
        _success({"sessions": _array(_ref("KnownSession"))}),
        _success({"session": _ref("KnownSession")}),
        _success({"id": _TEXT, "wasKnown": _FLAG}),
        _success({"id": _TEXT, "taskHint": _TEXT}),
    ],
    "link": [
        _success({"links": _array(_ref("Link"))}),
        _success({"link": _ref("Link")}),
        _success(
            {
                "events": _array(
                    _object(
                        {
                            "seq": _COUNT,
                            "id": _TEXT,
                            "kind": _TEXT,
                            "occurredAt": _COUNT,
                            "storedAt": _COUNT,
                            "body": _OPTIONAL_OBJECT,
                        }
                    )
                )
            }
        ),
        _success({"id": _TEXT, "journalId": _TEXT, "ambiguous": _TEXTS}),
    ],
    "command": [
        _success({"command": _ref("Command")}),
        _success({"commands": _array(_ref("Command"))}),
    ],
    "purge": [_success({"mail": _COUNT})],
    "waits": [_success({"waits": _array(_WAIT), "total": _COUNT})],
    "policy": [
        _success({"policies": _array(_POLICY), "kept": _array(_KEPT)}),
        _success({"policy": _POLICY}),
        _success({"messageId": _TEXT, "action": {"enum": ["release", "refuse"]}}),
    ],
    "me": [
        _success(
            {
                "questions": _array(
                    _object(
                        {
                            "messageId": _TEXT,
                            "asker": _TEXT,
                            "askerId": _TEXT,
                            "askedAt": _NUMBER,
                            "text": _OPTIONAL_TEXT,
                            "blocks": _array(_WAIT),
                        }
                    )
                ),
                "held": _array(_KEPT),
                "messages": _array(_ref("Message")),
                "left": _COUNT,
            }
        ),
        _success({"state": {"enum": ["delivered", "queued"]}, "messageId": _TEXT, "target": _TEXT, "question": _TEXT}),
        _event(
            "waiting",
            {"messageId": _TEXT, "what": {"enum": ["question", "message", "held"]}, "from": _TEXT, "since": _COUNT},
        ),
        _event("ended", {}),
    ],
    "ask": [_success({"state": {"const": "answered"}, "messageId": _TEXT, "answer": _ref("Message")})],
    "listen": [
        _event("listening", {"id": _TEXT, "name": _OPTIONAL_TEXT, "groups": _TEXTS}),
        {"allOf": [_event("message", {}), _MESSAGE]},
        _event("answered", {"messageId": _TEXT, "replyId": _TEXT, "state": _TEXT, "failed": _FLAG, "text": _TEXT}),
        {"allOf": [_object({"event": {"const": "unanswered"}, "messageId": _TEXT}), _ref("Failure")]},
        _event(
            "reported",
            {
                "messageId": _TEXT,
                "flowId": _TEXT,
                "stepId": _TEXT,
                "dispatchId": _TEXT,
                "outcome": {"enum": ["completed", "failed"]},
                "stepState": {"enum": list(get_args(StepState))},
            },
        ),
        _event("reported", {"messageId": _TEXT, "invocationId": _TEXT, "runState": {"enum": list(get_args(RunState))}}),
        {"allOf": [_object({"event": {"const": "unreported"}, "dispatchId": _TEXT}), _ref("Failure")]},
        {"allOf": [_object({"event": {"const": "unreported"}, "invocationId": _TEXT}), _ref("Failure")]},
        _event("ended", {}),
    ],
    "join": [_MEMBERSHIP],
    "leave": [_MEMBERSHIP],
    "groups": [_success({"groups": _array(_object({"group": _TEXT, "sessionCount": _COUNT, "member": _FLAG}))})],
    "whoami": [
        _success(
            {
                "name": _OPTIONAL_TEXT,
                "rule": {"enum": ["name", "host", "terminal", "guest"]},
                "address": _OPTIONAL_TEXT,
                "because": _TEXT,
                "groups": _TEXTS,
                "groupsFrom": {"enum": ["given", "joined", "standard"]},
                "home": _TEXT,
                "socket": _TEXT,
            }
        )
    ],
    "outbox": [
        _success({"entries": _array(_ref("OutboxEntry")), "left": _COUNT}),
        _success({"entry": _ref("OutboxEntry")}),
        _success({"id": _TEXT}),
    ],
    "peer": [
        _success({"status": _TEXT, "peers": _array(_object({"brokerId": _TEXT, "node": _TEXT}))}, {"reason": _TEXT}),
        _success({"node": _TEXT, "brokerId": _TEXT, "roundTripMs": _NUMBER}),
    ],
    "cluster": [_success(_EXAMINED), {"allOf": [_object(_EXAMINED), _ref("Failure")]}],
    "status": [
        _success({"home": _TEXT, "socket": _TEXT, "pid": _COUNT, "sessions": _COUNT}, {"broker": _ANY_OBJECT}),
        {"allOf": [_object({"home": _TEXT, "socket": _TEXT}), _ref("Failure")]},
    ],
    "doctor": [_success(_EXAMINED), {"allOf": [_object(_EXAMINED), _ref("Failure")]}],
    "watch": [*_WATCHED],
    "spawn": [_success({"id": _TEXT, "kind": _TEXT, "key": _TEXT})],
    "log": [_success({"entry": _ANY_OBJECT}), _success({"text": _TEXT})],
    "restart": [_success(_REPLACED), {"allOf": [_object(_REPLACED), _ref("Failure")]}],
    "stop": [_success({"pid": _COUNT})],
    "broker": [_success(_DRAINED), {"allOf": [_object(_DRAINED), _ref("Failure")]}],
    "store": [_success({}, _STORE), {"allOf": [_object({}, _STORE), _ref("Failure")]}],
    "serve": [_success({})],
    "mcp": [_success({"event": {"const": "bell"}, "text": _TEXT})],
    "install": [_INSTALLED, _STANDING],
    "uninstall": [_INSTALLED],
    "skill": [_success({"text": _TEXT})],
    "hook": [_success({"output": {"anyOf": [_ANY_OBJECT, {"type": "null"}]}})],
    "demo": [_success({"directory": _TEXT, "answers": _ANY_OBJECT, "killedBroker": _COUNT, "newBroker": _COUNT})],
    "docs": [
        _success({"pages": _array(_object({"page": _TEXT, "title": _TEXT}))}),
        _success({"page": _TEXT, "text": _TEXT}),
    ],
    "schema": [_success({"schema": _ANY_OBJECT})],
    "completion": [_success({"shell": _TEXT, "script": _TEXT}), _success({"words": _TEXTS})],
}
"""What each verb prints when it did what was asked, or adds to a failure; any failure is a ``Failure``."""


def schema_of(verb: str, summary: str) -> Schema:
    """Return the schema of one document of a verb, a line when it prints several."""
    return {
        "$schema": DIALECT,
        "title": f"A document of intercom {verb} --json",
        "description": summary,
        "anyOf": [*DOCUMENTS[verb], _ref("Failure")],
        "$defs": _DEFINITIONS,
    }
