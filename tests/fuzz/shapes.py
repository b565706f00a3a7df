"""Make frames out of the structs of the wire: whole ones, whose members say what somebody could mean by them.

What can stand in a member is read off its type; a text comes from what the world has shown under that name.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from msgspec import inspect

from intercom.core import features
from intercom.wire.mail import AddressClaim
from intercom.wire.shapes import Message, SessionInfo
from intercom.wire.stage_frames import ParentRun, PossibleStage, StageAnnouncement
from intercom.wire.unions import Request
from tests.fuzz.chance import ODD_NUMBERS, odd_text, odd_value

Make = Callable[[random.Random, "Known"], Any]

RUNS = tuple(f"7f0c2f5e-3b1a-4c6d-9e21-5a4b3c2d1e0{digit}" for digit in range(3))
GROUPS = ("default", "red", "blue", *(f"workflow:{run}" for run in RUNS), f"workflow:{RUNS[0]}/st-1")
NAMES = ("mal", "mallory", "MAL", "eve", "trudy", "@me", "nobody", f"workflow:{RUNS[0]}/st-1", f"workflow:{RUNS[1]}/*")
ALL_FEATURES = tuple(
    sorted({value for name, value in vars(features).items() if name.isupper() and isinstance(value, str)})
)
KINDS = ("claude-code", "codex", "custom")
OFTEN = 0.4
"""Share of frames that have a member which may be left out."""
_SELDOM = {"channel": 0.02, "requirePendingReply": 0.1, "resolveReplyTarget": 0.1, "expectedRecipientId": 0.1}
"""The same for members that most values of others forbid."""
LONGEST = 200
"""A longer text is no id of anything."""
_KEPT = 12
"""So many of the newest values are kept of what was shown under one name."""

_SAME = {
    "to": "target",
    "target": "target",
    "logicalTarget": "target",
    "targetSessionId": "sessionId",
    "targetId": "sessionId",
    "expectedRecipientId": "sessionId",
    "supervisorSessionId": "sessionId",
    "preferredSessionId": "sessionId",
    "peerSessionId": "sessionId",
    "askerId": "sessionId",
    "holder": "sessionId",
    "id": "messageId",
    "replyTo": "messageId",
    "causedBy": "messageId",
    "sourceMessageId": "messageId",
    "registrationGroup": "group",
    "sender": "name",
    "address": "name",
    "childName": "name",
    "senderRegistrationName": "name",
    "aliases": "name",
    "currentDispatchId": "dispatchId",
    "afterStepId": "stepId",
    "brokerJournalId": "journalId",
    "stageKeys": "stageId",
    "stageName": "stageId",
    "seq": "count",
    "commandSeq": "count",
    "lastReceivedCommandSeq": "count",
    "after": "count",
    "afterSeq": "count",
    "stateSequence": "count",
    "number": "count",
}
"""Names that mean the same kind of thing."""


class Known:
    """Keep what one side could have learnt: the newest values shown under each name."""

    def __init__(self) -> None:
        self.values: defaultdict[str, deque[Any]] = defaultdict(lambda: deque(maxlen=_KEPT))
        self.values["group"].extend(GROUPS)
        self.values["name"].extend(NAMES)
        self.values["target"].extend(NAMES)
        self.values["stageId"].extend(("st-1", "reviewer", "st-2"))
        self.values["runId"].extend(RUNS)
        self.values["count"].extend((0, 1, 2, 3))
        self.values["generation"].extend((1, 2))
        self.values["capability"].append("c")
        self.values["kind"].extend(KINDS)
        for name in ("flowId", "stepId", "invocationId", "updateId", "commandId", "eventId", "requestKey", "messageId"):
            self.values[name].extend(f"{name[0]}-{number}" for number in range(6))

    def learn(self, shown: Any) -> None:
        """Take note of every text and number in something that was shown."""
        if isinstance(shown, dict):
            for name, value in shown.items():
                if isinstance(value, (dict, list)):
                    self.learn(value)
                elif (isinstance(value, str) and len(value) < LONGEST) or (isinstance(value, int) and name in _SAME):
                    self.add(name, value)
        elif isinstance(shown, list):
            for value in shown:
                self.learn(value)

    def add(self, name: str, value: Any) -> None:
        """Take note of a value."""
        values = self.values[_SAME.get(name, name)]
        if value not in values:
            values.append(value)

    def pick(self, name: str, chance: random.Random) -> Any | None:
        """Return one of the values known under a name, if any is."""
        values = self.values.get(_SAME.get(name, name))
        return chance.choice(values) if values else None


def makers() -> dict[str, Make]:
    """Return by their types how to make every frame a client may write."""
    kinds = inspect.type_info(Request)
    assert isinstance(kinds, inspect.UnionType)
    return {str(kind.tag): _frame(kind) for kind in kinds.types if isinstance(kind, inspect.StructType)}


def _frame(kind: inspect.StructType) -> Make:
    tag = kind.tag
    make = _struct(kind)

    def frame(chance: random.Random, known: Known) -> dict[str, Any]:
        made = {"type": tag, **make(chance, known)}
        if tag == "register_pending_stage_route" and chance.random() < 0.9:
            _make_consistent(made, chance)
        return made

    return frame


def _make_consistent(route: dict[str, Any], chance: random.Random) -> None:
    """Let a route, its stages and its patterns be about one run."""
    run_id = route["runId"] = chance.choice((RUNS[0], RUNS[0], RUNS[0], RUNS[1]))
    group = route["group"] = f"workflow:{run_id}"
    route["capability"] = "c"
    for stage in route.get("stages", ()):
        stage.update(group=group, target=f"{group}/{stage['stageId']}")
    for possible in route.get("possibleStages", ()):
        possible["target"] = f"{group}/{chance.choice(('re*', '**', 'st-3', '*/x'))}"


def _struct(kind: inspect.StructType) -> Make:
    members = [
        (
            field.encode_name,
            1 if field.required else _SELDOM.get(field.encode_name, OFTEN),
            _SPECIAL.get((kind.cls.__name__, field.encode_name)) or _value(field),
        )
        for field in kind.fields
    ]

    def struct(chance: random.Random, known: Known) -> dict[str, Any]:
        draw = chance.random
        return {name: make(chance, known) for name, often, make in members if often == 1 or draw() < often}

    return struct


def _value(field: inspect.Field) -> Make:
    special = _SPECIAL.get(("", field.encode_name))
    return special or _of(field.type, field.encode_name)


def _of(kind: inspect.Type, name: str) -> Make:
    if isinstance(kind, inspect.StrType):
        return _text(name)
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        return _number(name, kind)
    if isinstance(kind, inspect.BoolType):
        return lambda chance, known: chance.random() < 0.5
    if isinstance(kind, inspect.LiteralType):
        values = list(kind.values)
        return lambda chance, known: chance.choice(values)
    if isinstance(kind, inspect.ListType):
        item = _of(kind.item_type, name)
        least = kind.min_length or 0
        return lambda chance, known: [item(chance, known) for _ in range(chance.randrange(least, least + 3))]
    if isinstance(kind, inspect.StructType):
        return _struct(kind)
    if isinstance(kind, inspect.UnionType):
        makes = [_of(each, name) for each in kind.types if not isinstance(each, inspect.NoneType)]
        return lambda chance, known: chance.choice(makes)(chance, known)
    if isinstance(kind, inspect.DictType):
        return lambda chance, known: {odd_text(chance): odd_value(chance, 2) for _ in range(chance.randrange(3))}
    assert isinstance(kind, inspect.AnyType | inspect.RawType), kind
    return lambda chance, known: odd_value(chance, 1)


def _text(name: str) -> Make:
    def text(chance: random.Random, known: Known) -> str:
        draw = chance.random()
        if draw < 0.85 and (value := known.pick(name, chance)) is not None:
            return str(value)
        return f"{name[0]}{chance.randrange(1000)}" if draw < 0.95 else odd_text(chance)

    return text


def _number(name: str, kind: inspect.IntType | inspect.FloatType) -> Make:
    low = int(kind.ge) if kind.ge is not None else 0
    high = int(kind.le) if kind.le is not None else 100_000

    def number(chance: random.Random, known: Known) -> Any:
        draw = chance.random()
        if draw < 0.4 and (value := known.pick(name, chance)) is not None:
            return value
        if draw < 0.9:
            return chance.randint(low, min(high, low + 100))
        return chance.choice((low, high, low - 1, high + 1, *ODD_NUMBERS))

    return number


# --- what no type tells ---------------------------------------------------------------------------------


def _new_message(chance: random.Random, known: Known) -> dict[str, Any]:
    message = _MESSAGE(chance, known)
    if chance.random() < 0.7:
        message["id"] = f"m-{chance.randrange(10**9)}"
        known.add("messageId", message["id"])
    if chance.random() < 0.5:
        message.pop("replyTo", None)
        message["expectsReply"] = chance.random() < 0.7
    return message


def _session(chance: random.Random, known: Known) -> dict[str, Any]:
    session = _SESSION(chance, known)
    session["name"] = chance.choice(NAMES[:5])
    return session


def _target(chance: random.Random, known: Known) -> Any:
    """Mean somebody by an id, a name, an address or a stage."""
    return _text(chance.choice(("target", "sessionId", "name", "name")))(chance, known)


def _worker(chance: random.Random, known: Known) -> str:
    session_id = known.pick("sessionId", chance)
    return f"session:{session_id}" if session_id and chance.random() < 0.3 else chance.choice(NAMES[:5])


def _features(chance: random.Random, known: Known) -> list[str]:
    if chance.random() < 0.6:
        return list(ALL_FEATURES)
    return chance.sample(ALL_FEATURES, chance.randrange(len(ALL_FEATURES)))


def _supervisor(chance: random.Random, known: Known) -> dict[str, Any]:
    return {"capability": _text("capability")(chance, known), "supervisorSessionId": _text("sessionId")(chance, known)}


def _workspace(chance: random.Random, known: Known) -> Any:
    return chance.choice(("/p", {"root": "/p", "cwd": "/p/q"}, {"root": "/p"}, ""))


def _version(chance: random.Random, known: Known) -> str:
    return chance.choice(("1.0", "1.0", "1.7", "2.0", "x"))


def _list_of(kind: type) -> Make:
    make = _of(inspect.type_info(kind), "")
    return lambda chance, known: [make(chance, known) for _ in range(chance.randrange(4))]


def _one_of(*values: Any) -> Make:
    return lambda chance, known: chance.choice(values)


_SPECIAL: dict[tuple[str, str], Make] = {
    ("", "message"): _new_message,
    ("Register", "session"): _session,
    ("", "awaitRestoringRecipient"): _one_of(True, True, False, None),
    ("", "requirePendingReply"): _one_of(True),
    ("", "resolveReplyTarget"): _one_of(True),
    ("", "channel"): _one_of("supervisor"),
    ("", "target"): _target,
    ("", "to"): _target,
    ("Register", "features"): _features,
    ("Register", "clientProtocolVersion"): _version,
    ("Register", "kind"): _one_of(*KINDS),
    ("Register", "workMode"): _one_of("resident", "managed_turn"),
    ("Register", "executionSurface"): _one_of("owner_attached", "headless"),
    ("Register", "workspace"): _workspace,
    ("Register", "runtimeSessionId"): _text("runtimeSessionId"),
    ("Register", "ownerToken"): _text("ownerToken"),
    ("Register", "supervisor"): _supervisor,
    ("Register", "acknowledgesReceipt"): _one_of(True, True, True, False),
    ("Register", "address"): lambda chance, known: _ADDRESS(chance, known),
    ("RegisterPendingStageRoute", "stages"): lambda chance, known: _STAGES(chance, known),
    ("RegisterPendingStageRoute", "possibleStages"): lambda chance, known: _POSSIBLE(chance, known),
    ("RegisterPendingStageRoute", "parent"): lambda chance, known: _PARENT(chance, known),
    ("RegisterPendingStageRoute", "dormant"): _one_of(True, False),
    ("MessageReceipt", "messageId"): _text("messageId"),
    ("CancelMessage", "messageId"): _text("messageId"),
    ("CommandSend", "body"): lambda chance, known: {"do": odd_value(chance, 2)},
    ("FlowCreate", "target"): _worker,
    ("FlowResume", "target"): _worker,
    ("FlowCreate", "group"): _one_of("default", "red"),
    ("NewStep", "reportTimeoutMs"): _one_of(1, 1_000, 60_000),
    ("BrokerDrain", "timeoutMs"): _one_of(0, 1, 1_000),
    ("InboxAwait", "timeoutMs"): _one_of(0, 1, 1_000),
    ("DurableEvent", "body"): lambda chance, known: _event_body(chance, known),
}
"""How to make a member that may be anything, by struct and name, or by name alone."""


def _event_body(chance: random.Random, known: Known) -> Any:
    kind = chance.choice(("command_applied", "command_failed", "heartbeat", "odd"))
    return {"kind": kind, "commandId": _text("commandId")(chance, known), "more": odd_value(chance, 2)}


_MESSAGE = _of(inspect.type_info(Message), "")
_SESSION = _of(inspect.type_info(SessionInfo), "")
_ADDRESS = _of(inspect.type_info(AddressClaim), "")
_STAGES = _list_of(StageAnnouncement)
_POSSIBLE = _list_of(PossibleStage)
_PARENT = _of(inspect.type_info(ParentRun), "")
