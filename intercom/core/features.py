"""Decide which features a connection gets; whoever names none stays an older client (protocol 9.1)."""

from __future__ import annotations

import re
from typing import Any

from msgspec import UNSET, Struct, ValidationError, convert

from intercom.wire.frames import Register, trim
from intercom.wire.mail import AddressClaim

PUSH_RECEIPTS = "push.receipts"
"""Every message is confirmed with ``received``."""
LIFECYCLE = "session.lifecycle"
"""The session may come back after its connection was lost; what is queued for it waits."""
ADDRESS = "address"
"""The session may hold an address, or act under one."""
QUEUE = "queue"
"""The client may let its sends wait for who is away, and understands what the broker says of them."""
OPERATOR = "operator"
"""The connection may see and end what belongs to others; for control sessions."""
WATCH = "watch"
"""The session may follow what happens."""
INBOX = "inbox"
"""The client may look into the inbox, and settle what it may claim."""
WORK = "work.assignments"
"""The session takes assignments."""
COORDINATOR = "flow.control"
"""The session may hand out work in its groups."""
FOREGROUND = "push.foreground"
"""Somebody sits in front of the session, and may be interrupted by the continuation of a conversation."""
INVOKE = "invoke"
"""The client may have things done by others, and understands tasks as such."""
WAITS = "waits"
"""The client may ask who waits for whom."""
POLICY = "policy"
"""The session may say what it lets through to it, and is told of its sends what became of them by such a policy."""

FLOW_REPORT = "flow.report"
"""The session takes steps of flows and reports their outcome."""
TODO_PROJECTION = "flow.todo_projection"
"""It shows the step it works on in a to-do list of its own."""
TODO_MUTATION = "flow.todo_mutation"
"""It reports what became of that item."""
TODO = frozenset({TODO_PROJECTION, TODO_MUTATION})
LINK = "link.durable"
"""The session reports durable events, and takes commands that are carried out once."""

CLIENT_PROTOCOL_MAJOR = 1
_VERSION = re.compile(r"(\d{1,6})\.(\d{1,6})", re.ASCII)

NONE: frozenset[str] = frozenset()


class Refused(Struct, frozen=True):
    """Say why a registration is refused."""

    code: str
    reason: str


def grant(frame: Register, *, is_durable: bool) -> frozenset[str] | Refused:
    """Return the features this registration gets of those it asks for, or why it is refused.

    ``is_durable`` tells whether the store can be used: without it nothing can be promised that outlives a connection.
    """
    wished = frame.features
    if wished is UNSET:
        return NONE
    if frame.kind is UNSET and frame.client_protocol_version is UNSET and not _names_one(wished):
        return NONE  # what other clients call features is not about us
    if not isinstance(wished, list) or not all(isinstance(name, str) for name in wished):
        return Refused("bad_request", "features must be a list of names")
    if not is_text(frame.kind):
        return Refused("bad_request", "A registration that asks for features needs a kind, such as custom")
    version = frame.client_protocol_version
    match = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if match is None:
        return Refused("bad_request", "A registration that asks for features needs clientProtocolVersion, such as 1.0")
    if int(match[1]) != CLIENT_PROTOCOL_MAJOR:
        return Refused(
            "protocol_version_mismatch",
            f"This broker speaks version {CLIENT_PROTOCOL_MAJOR} of the features, the client version {match[1]}",
        )
    always = {QUEUE, WAITS, POLICY}
    granted = set(wished) & (always | {WATCH} if is_durable else always)
    is_control = frame.session.get("recipientPurpose") == "control"
    if is_control:
        granted |= set(wished) & {OPERATOR}
    if is_durable:
        granted |= set(wished) & {INBOX, INVOKE}
    if frame.acknowledges_receipt is True and PUSH_RECEIPTS in wished:
        granted.add(PUSH_RECEIPTS)
        if is_durable and not is_control:
            granted |= set(wished) & {LIFECYCLE, ADDRESS}
    if granted & {LIFECYCLE, ADDRESS}:
        granted |= set(wished) & {WORK, COORDINATOR, FOREGROUND, LINK}
    if LIFECYCLE in granted:
        granted |= set(wished) & {FLOW_REPORT}
    if FLOW_REPORT in granted:
        granted |= set(wished) & TODO
    if WORK in granted and (refused := _work_refusal(frame)) is not None:
        return refused
    return frozenset(granted)


def _names_one(wished: Any) -> bool:
    """Tell whether one of our features is among what a registration asks for."""
    ours = {PUSH_RECEIPTS, LIFECYCLE, ADDRESS, QUEUE, OPERATOR, WAITS, POLICY}
    return isinstance(wished, list) and any(isinstance(name, str) and name in ours for name in wished)


def _work_refusal(frame: Register) -> Refused | None:
    """Say what of the members that belong to work breaks its rules."""
    if frame.work_mode not in ("resident", "managed_turn"):
        return Refused("bad_request", "A worker needs workMode: resident or managed_turn")
    if frame.work_mode == "managed_turn" and not is_text(frame.runtime_session_id):
        return Refused("bad_request", "A worker with managed_turn needs runtimeSessionId")
    if frame.execution_surface not in (UNSET, "owner_attached", "headless"):
        return Refused("bad_request", "executionSurface is owner_attached or headless")
    if isinstance(workspace_of(frame), Refused):
        return Refused("bad_request", "workspace is a path, or an object with the texts root and cwd")
    return None


def workspace_of(frame: Register) -> dict[str, str] | Refused | None:
    """Return where a session says it works: a path stands for both, a blank one for nothing."""
    value = frame.workspace
    if value is UNSET:
        return None
    if isinstance(value, str):
        path = trim(value)
        return {"root": path, "cwd": path} if path else None
    if not isinstance(value, dict) or not is_text(value.get("root")) or not is_text(value.get("cwd")):
        return Refused("bad_request", "workspace")
    return {name: value[name] for name in ("root", "cwd", "remote", "branch") if is_text(value.get(name))}


def is_text(value: Any) -> bool:
    """Tell whether a member that may be anything holds a text with something in it."""
    return isinstance(value, str) and bool(value.strip())


def address_claim(frame: Register) -> AddressClaim | Refused | None:
    """Return what address a registration asks for."""
    if frame.address is UNSET:
        return None
    try:
        return convert(frame.address, AddressClaim)
    except ValidationError as error:
        return Refused("bad_request", f"address breaks its rules: {error}")
