"""Say what goes with a task: what its target is handed, what is stored of it, and what makes two requests the same.

Context and metadata are in the message that brings the task, stored and deleted with it; the rest is in the row, so
that whoever is handed the message is told without another look at the disk (protocol 13.3).
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, MsgspecError, Struct, UnsetType
from msgspec.json import decode, encode

from intercom.core.giving import No
from intercom.wire.codec import parse_message
from intercom.wire.frames import is_blank
from intercom.wire.invocations import CONTEXT, METADATA, Execution, InvocationInfo, Invoke, InvokedInfo, Wishes
from intercom.wire.jsontext import read

if TYPE_CHECKING:
    from intercom.core.invocation_records import InvocationRecord
    from intercom.limits import Limits

FINGERPRINT_DIGITS = 32
"""Half of the digits of the digest: two requests by chance have them alike as little as all of them."""
_NOTHING = Wishes()
_TO_A_SESSION = ("existing",)
_TO_NONE = ("new",)


class _Beside(Struct):
    metadata: dict[str, Any] | UnsetType = UNSET


def checked(frame: Invoke, limits: Limits) -> No | None:
    """Bring the texts of a request into the form they are stored in; return what is wrong with them."""
    frame.task = _lines(frame.task)
    if is_blank(frame.task):
        return _wrong("The task is empty")
    if _size(frame.task) > limits.invocation_bytes:
        return _wrong(f"A task may have {limits.invocation_bytes} bytes at most")
    if frame.context is not UNSET:
        frame.context = _lines(frame.context)
        if is_blank(frame.context):
            return _wrong("The context is empty; leave it out")
        if _size(frame.context) > limits.invocation_context_bytes:
            return _wrong(f"A context may have {limits.invocation_context_bytes} bytes at most")
    if frame.metadata is not UNSET and (wrong := _of_metadata(frame.metadata, limits)):
        return wrong
    return None if _wishes_nothing(frame) else _of_wishes(frame, limits)


def _wishes_nothing(frame: Invoke) -> bool:
    return frame.execution is frame.labels is frame.message_id is UNSET and not frame.stream


def _of_metadata(metadata: dict[str, Any], limits: Limits) -> No | None:
    try:
        written = encode(metadata)
        read(written)
    except (MsgspecError, ValueError, RecursionError):
        return _wrong("The metadata holds a number that not every program can read")
    if len(written) > limits.invocation_metadata_bytes:
        return _wrong(f"Metadata may have {limits.invocation_metadata_bytes} bytes at most, as JSON")
    return None


def _of_wishes(frame: Invoke, limits: Limits) -> No | None:
    labels = [] if frame.labels is UNSET else frame.labels
    if len(labels) > limits.invocation_labels:
        return _wrong(f"An invocation may have {limits.invocation_labels} labels at most")
    execution = Execution() if frame.execution is UNSET else frame.execution
    named = (execution.kind, execution.model, execution.target_session_id, frame.message_id)
    words = [*labels, *(word for word in named if word is not UNSET)]
    if any(is_blank(word) for word in words):
        return _wrong("A label, a text of execution or messageId is blank; leave it out")
    if any(len(word) > limits.invocation_word_characters for word in words):
        longest = limits.invocation_word_characters
        return _wrong(f"A label, a text of execution and messageId may have {longest} characters at most")
    is_named = execution.target_session_id is not UNSET
    if execution.session in _TO_A_SESSION and not is_named:
        return _wrong("execution.session existing needs targetSessionId")
    if execution.session in _TO_NONE and is_named:
        return _wrong("execution.session new leaves no room for targetSessionId")
    return None


def _wrong(reason: str) -> No:
    return No("invalid_invocation", reason)


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


# --- to store and to hand over --------------------------------------------------------------------------


def task_message(message_id: str, frame: Invoke, at: int) -> bytes:
    """Return the message that brings a task, JSON."""
    content: dict[str, Any] = {"text": frame.task}
    if frame.context is not UNSET:
        content["attachments"] = [{"type": CONTEXT, "name": CONTEXT, "content": frame.context}]
    message = {"id": message_id, "timestamp": at, "content": content}
    if frame.metadata is not UNSET:
        message[METADATA] = frame.metadata
    return encode(message)


def wishes(frame: Invoke) -> bytes | None:
    """Return what the row holds of a request; nothing when nothing is wished."""
    if _wishes_nothing(frame):
        return None
    said = Wishes(frame.execution, frame.labels, frame.stream, frame.message_id)
    return None if said == _NOTHING else encode(said)


def fingerprint(requester: str, frame: Invoke, wished: bytes | None) -> str:
    """Return what tells one request from others under the same id; ``wished`` is what ``wishes`` made of it.

    What is not there does not count, so that one stored before there was such a member still knows its repetition.
    """
    target = None if frame.target is UNSET else frame.target
    target_id = None if frame.target_id is UNSET else frame.target_id
    timeout_ms = None if frame.timeout_ms is UNSET else frame.timeout_ms
    content: list[Any] = [requester, frame.action, frame.task, frame.ensure_awake, target, target_id, timeout_ms]
    if wished is not None or frame.context is not UNSET or frame.metadata is not UNSET:
        beside = {"context": frame.context, "metadata": frame.metadata, "wishes": _said(wished)}
        content.append({name: member for name, member in beside.items() if member is not UNSET})
    return sha256(encode(content, order="deterministic")).hexdigest()[:FINGERPRINT_DIGITS]


def is_same(fingerprint: str, other: str) -> bool:
    """Tell whether two fingerprints are of one request; those that earlier versions stored are whole digests."""
    return fingerprint[:FINGERPRINT_DIGITS] == other[:FINGERPRINT_DIGITS]


def _said(stored: bytes | None) -> Any:
    return UNSET if stored is None else stored.decode()


def _wishes_of(record: InvocationRecord) -> Wishes:
    return _NOTHING if record.wishes is None else decode(record.wishes, type=Wishes)


def labels_of(record: InvocationRecord) -> frozenset[str]:
    """Return the words an invocation was given to know it by."""
    said = _wishes_of(record)
    return frozenset(() if said.labels is UNSET else said.labels)


def invoked_info(record: InvocationRecord) -> InvokedInfo:
    """Return what the recipient of a task, or of the wish to cancel it, is told of it as it is wanted by then."""
    is_cancelled = record.cancel_asked_at is not None
    said = _NOTHING if is_cancelled else _wishes_of(record)
    return InvokedInfo(
        record.invocation_id,
        record.run_id,
        record.action,  # type: ignore[arg-type]  # an action
        is_cancelled,
        said.execution,
        said.labels,
        said.stream,
        said.message_id,
    )


def invocation_info(record: InvocationRecord, body: bytes | None = None) -> InvocationInfo:
    """Return what was asked for; ``body`` is the message that brings the task, while it is there."""
    message, said = None if body is None else parse_message(body), _wishes_of(record)
    context: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    if message is not None and body is not None:
        carried = [] if message.content.attachments is UNSET else message.content.attachments
        context = next((each.content for each in carried if each.type == CONTEXT), UNSET)
        metadata = decode(body, type=_Beside).metadata
    return InvocationInfo(
        record.invocation_id,
        record.number,
        record.run_id,
        record.requester_session,
        record.asked,
        record.target,
        record.target_name,
        record.action,  # type: ignore[arg-type]  # an action
        record.ensure_awake,
        record.created_at,
        record.state,  # type: ignore[arg-type]  # a state
        UNSET if message is None else message.content.text,
        UNSET if record.take_until is None else record.take_until,
        UNSET if record.completed_at is None else record.completed_at,
        context,
        metadata,
        said.execution,
        said.labels,
        said.stream,
        said.message_id,
    )
