"""Describe the wire as JSON Schema, made from the structs, for whoever writes a client in another language."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from msgspec.json import schema_components

from intercom.limits import LONGEST_VALIDITY_MS
from intercom.wire.flows import FlowDispatch
from intercom.wire.frames import Message, SessionInfo
from intercom.wire.mail import AddressClaim
from intercom.wire.stage_frames import ParentRun, PossibleStage, StageAnnouncement
from intercom.wire.unions import Answer, Request
from intercom.wire.watching import WatchedEvent

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_TEMPLATE = "#/$defs/{name}"
_ONLY_TRUE = {"const": True}
_NOT_BLANK = {"type": "string", "pattern": "\\S"}
_NEVER: dict[str, Any] = {"not": {}}
_MESSAGE = {"$ref": "#/$defs/Message"}
_SESSION = {"$ref": "#/$defs/Session"}

_WITH_BODIES = ("DurableEvent", "CommandSend", "Command", "CommandEntry", "EventEntry")
"""Frames and objects of links whose body is an object."""

_NARROWER: dict[tuple[str, str], dict[str, Any]] = {
    ("Register", "session"): {"$ref": "#/$defs/SessionInfo"},
    ("Register", "registrationGroup"): _NOT_BLANK,
    ("Register", "acknowledgesReceipt"): _ONLY_TRUE,
    ("Register", "supervisor"): {
        "type": "object",
        "properties": {"capability": {"type": "string"}, "supervisorSessionId": {"type": "string"}},
        "required": ["capability", "supervisorSessionId"],
    },
    ("Register", "features"): {"type": "array", "items": {"type": "string"}},
    ("Register", "clientProtocolVersion"): {"type": "string", "pattern": "^[0-9]{1,6}\\.[0-9]{1,6}$"},
    ("Register", "kind"): _NOT_BLANK,
    ("Register", "address"): {"$ref": "#/$defs/AddressClaim"},
    ("Register", "ownerToken"): {"type": "string"},
    ("Register", "runtimeSessionId"): {"type": "string"},
    ("Register", "trackingRef"): {"type": "string"},
    ("Register", "spawnToken"): {"type": "string"},
    ("Register", "workMode"): {"enum": ["managed_turn", "resident"]},
    ("Register", "executionSurface"): {"enum": ["headless", "owner_attached"]},
    ("AuthorizeSupervisor", "childName"): _NOT_BLANK,
    ("RegisterPendingStageRoute", "stages"): {"type": "array", "items": {"$ref": "#/$defs/StageAnnouncement"}},
    ("RegisterPendingStageRoute", "possibleStages"): {"type": "array", "items": {"$ref": "#/$defs/PossibleStage"}},
    ("RegisterPendingStageRoute", "parent"): {"$ref": "#/$defs/ParentRun"},
    ("PendingStageMessageResult", "notInKnownSet"): _ONLY_TRUE,
    ("SendPendingStageNotification", "message"): _MESSAGE,
    ("PendingStageMessage", "from"): _SESSION,
    ("PendingStageMessage", "message"): _MESSAGE,
    ("PendingStageMessage", "live"): _ONLY_TRUE,
    ("PendingStageNotification", "from"): _SESSION,
    ("PendingStageNotification", "message"): _MESSAGE,
    ("FutureStage", "deliveryOnly"): _ONLY_TRUE,
    ("PossibleStage", "deliveryOnly"): _ONLY_TRUE,
    **{
        (frame, member): narrower
        for frame in ("Send", "SupervisorSend")
        for member, narrower in (
            ("message", _MESSAGE),
            ("resolveReplyTarget", _ONLY_TRUE),
            ("channel", _NEVER),
            ("validFor", {"type": "integer", "minimum": 0, "maximum": LONGEST_VALIDITY_MS}),
        )
    },
    ("Send", "requirePendingReply"): _ONLY_TRUE,
    ("SupervisorSend", "requirePendingReply"): _NEVER,
    ("Registered", "acknowledgesReceipt"): _ONLY_TRUE,
    ("Registered", "acknowledgesPendingStageRoutes"): _ONLY_TRUE,
    ("Registered", "brokerStatus"): _ONLY_TRUE,
    ("Sessions", "sessions"): {"type": "array", "items": _SESSION},
    ("MessageFrame", "from"): _SESSION,
    ("MessageFrame", "message"): _MESSAGE,
    ("Queued", "notInKnownSet"): _ONLY_TRUE,
    ("MailEntry", "sender"): _SESSION,
    ("PeekedMail", "from"): _SESSION,
    ("PeekedMail", "message"): _MESSAGE,
    ("UnconfirmedEntry", "sender"): _SESSION,
    ("InboxEntry", "sender"): _SESSION,
    ("InboxItem", "message"): _MESSAGE,
    ("AssignmentGranted", "from"): _SESSION,
    ("AssignmentGranted", "message"): _MESSAGE,
    ("HeldEntry", "sender"): _SESSION,
    ("SessionJoined", "session"): _SESSION,
    ("PresenceUpdate", "session"): _SESSION,
    **{(struct, "body"): {"type": "object"} for struct in _WITH_BODIES},
    ("WatchEvent", "event"): {"$ref": "#/$defs/WatchedEvent"},
}
"""What the rules of protocol 4, 5 and 9 say beyond the type of a member, by struct and name on the wire."""


def schema() -> dict[str, Any]:
    """Return one JSON Schema for a frame of either direction.

    Its ``$defs`` hold every frame under the name of its struct, the objects inside them, and ``Request`` and
    ``Answer``, which are any frame a client and the broker may write. Members that are not named are allowed, except in
    the requests of features and in the claim of an address.
    """
    kinds = [
        Request,
        Answer,
        Message,
        SessionInfo,
        StageAnnouncement,
        PossibleStage,
        ParentRun,
        AddressClaim,
        FlowDispatch,
        WatchedEvent,
    ]
    (request, answer, *_), found = schema_components(kinds, ref_template=_TEMPLATE)
    definitions: dict[str, Any] = dict(found)
    for (struct, member), narrower in _NARROWER.items():
        definitions[struct]["properties"][member] = deepcopy(narrower)
    definitions["Session"] = {
        "title": "Session",
        "description": "Describe a session as the broker shows it.",
        "allOf": [{"$ref": "#/$defs/SessionInfo"}],
        "properties": {"id": {"type": "string"}},
        "required": ["id"],
    }
    definitions["Request"] = {**request, "description": "Any frame a client may write."}
    definitions["Answer"] = {**answer, "description": "Any frame the broker may write."}
    return {
        "$schema": DIALECT,
        "title": "A frame of the intercom wire",
        "anyOf": [{"$ref": "#/$defs/Request"}, {"$ref": "#/$defs/Answer"}],
        "$defs": definitions,
    }
