"""Decide about the form of a send: the rules A1 to A7 of protocol 4.8, and what an answer to any of them must carry."""

from __future__ import annotations

import json
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.json import encode

from intercom.core.attempts import Refusal
from intercom.limits import LONGEST_VALIDITY_MS
from intercom.wire import outline, reasons
from intercom.wire.flows import DISPATCH_PREFIX
from intercom.wire.frames import Malformed, Send, SendPendingStageNotification


def members_of(frame: Send) -> dict[str, Any]:
    """Return the members of a send by their names on the wire, decoded."""
    text = encode(frame)
    if outline.has_many_values(text):
        return outline.outline_of(text, type(frame)) or {}
    # A member that is kept as it is written may hold a number beyond a double, which msgspec does not read.
    members: dict[str, Any] = json.loads(text)
    return members


def is_duration(value: object) -> bool:
    """Tell whether a member holds whole milliseconds, or 0, that lead to a time a row can hold."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LONGEST_VALIDITY_MS


def identify(frame: Send | SendPendingStageNotification | Malformed) -> tuple[str, str | UnsetType]:
    """Return the message id and attempt id an answer must carry; ``unknown`` without a usable message id."""
    if isinstance(frame, Malformed):
        message, attempt_id = frame.fields.get("message"), frame.fields.get("attemptId", UNSET)
        message_id = message.get("id") if isinstance(message, dict) else None
    else:
        members, attempt_id = outline.members_of(frame.message, ("id",)) or {}, frame.attempt_id
        message_id = outline.value_of(members["id"]) if "id" in members else None
    return (
        message_id if isinstance(message_id, str) else "unknown",
        attempt_id if isinstance(attempt_id, str) else UNSET,
    )


def is_reserved(message_id: str) -> bool:
    """Tell whether only the broker itself may give a message this id: nobody may pass as a flow (protocol 12.4)."""
    return message_id.startswith(DISPATCH_PREFIX)


def form_refusal(is_supervised: bool, members: dict[str, Any], is_valid: bool) -> Refusal | None:
    """Return the first rule of form that a send breaks, or None; ``is_valid`` speaks of its message."""
    message = members.get("message")
    pending_reply = members.get("requirePendingReply", UNSET)
    if not isinstance(members.get("attemptId", ""), str):
        return Refusal("A1", reasons.INVALID_ATTEMPT_ID)
    if not isinstance(members.get("logicalTarget", ""), str):
        return Refusal("A2", reasons.INVALID_LOGICAL_TARGET)
    if not isinstance(members.get("to"), str) or not is_valid:
        return Refusal("A3", reasons.INVALID_MESSAGE)
    if is_reserved(members["message"]["id"]):
        return Refusal("A3", reasons.RESERVED_MESSAGE_ID)
    if pending_reply is not UNSET and pending_reply is not True:
        return Refusal("A4", reasons.INVALID_PENDING_REPLY)
    if not isinstance(members.get("expectedRecipientId", ""), str):
        return Refusal("A5", reasons.INVALID_EXPECTED_RECIPIENT)
    if members.get("resolveReplyTarget", True) is not True:
        return Refusal("A5", reasons.INVALID_REPLY_TARGET)
    valid_for = members.get("validFor", 1)
    if not isinstance(members.get("queueIfAway", False), bool) or not is_duration(valid_for):
        return Refusal("A5", reasons.INVALID_QUEUEING)
    if "channel" in members:
        return Refusal("A6", reasons.INVALID_CHANNEL)
    assert isinstance(message, dict)
    if pending_reply is True and (is_supervised or "replyTo" not in message or message.get("expectsReply") is True):
        return Refusal("A7", reasons.PENDING_REPLY_FORM)
    return None
