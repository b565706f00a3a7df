"""Compose the message object of a send, and refuse what is too large before anything leaves."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import UNSET, MsgspecError, Raw, ValidationError, convert, to_builtins
from msgspec.json import encode

from intercom.errors import TooLarge, UsageError
from intercom.limits import ATTACHMENTS_BYTES, FRAME_BYTES, KIB, WHOLE_NUMBER_MAX
from intercom.wire.frames import Attachment, Content, Message, is_blank
from intercom.wire.jsontext import flaw_of, read

PROGRESS_OF = "progressOf"
"""Member of a message object that tells the progress of a question; it leaves the question open."""
ENVELOPE_LEVELS = 4
"""Levels of arrays and objects around a body in the frames that hand it on."""
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % sys.float_info.max_10_exp)
ENVELOPE_BYTES = 64 * KIB
"""Room that target and routing members of a frame may take beside its message."""


def clean_text(text: Any, what: str = "text") -> str:
    """Return ``text`` with every lone surrogate replaced by U+FFFD.

    This is the one place where that happens: Python brings bytes it could not decode (arguments, paths, the
    environment) as lone surrogates, JSON in UTF-8 cannot carry them, and a refused message would help nobody.
    Raises ``UsageError`` when ``text`` is no string; ``what`` names it.
    """
    if not isinstance(text, str):
        raise UsageError(f"{what} must be a string, not {type(text).__name__}")
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def clean_target(target: Any) -> str:
    """Return the target with lone surrogates replaced; raise ``UsageError`` for a blank one."""
    cleaned = clean_text(target, "target")
    if is_blank(cleaned):
        raise UsageError("the target is empty", hint="Name a session; `intercom list` shows them.")
    return cleaned


def clean_id(given: Any, what: str = "message_id") -> str:
    """Return an id given by the caller; raise ``UsageError`` for an empty one, called ``what``."""
    cleaned = clean_text(given, what)
    if not cleaned:
        raise UsageError(f"{what} is empty")
    return cleaned


def clean_number(given: Any, what: str) -> int:
    """Return a number that counts something; raise ``UsageError`` for one below 0 or above what JSON carries whole."""
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given <= WHOLE_NUMBER_MAX:
        raise UsageError(f"{what} must be a whole number from 0 to {WHOLE_NUMBER_MAX}, not {given!r}")
    return given


def object_bytes(given: Any, what: str) -> bytes:
    """Return an object of the caller's as JSON; raise ``UsageError`` for what JSON has no word for; ``what`` names it.

    A number that is not finite would be written as ``null``, which is another value and no error; one beyond a double,
    and what is nested too deep, would end the connection.
    """
    if not isinstance(given, Mapping):
        raise UsageError(f"{what} must be a JSON object, not {type(given).__name__}")
    try:
        encoded = encode(dict(given))
        if b"null" in encoded:
            import json  # few bodies hold a null

            json.dumps(to_builtins(dict(given)), allow_nan=False)
        if _LONG_NUMBER.search(encoded):
            read(encoded)
    except (MsgspecError, ArithmeticError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{what} must be a JSON object: {error}") from error
    flaw = flaw_of(b"[" * ENVELOPE_LEVELS + encoded + b"]" * ENVELOPE_LEVELS)
    if flaw is not None:
        raise UsageError(f"{what} must be a JSON object that others can read: {flaw}")
    return encoded


def milliseconds(seconds: float, what: str) -> int:
    """Return a duration in milliseconds, at least one; raise ``UsageError`` unless it is a positive number."""
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not math.isfinite(seconds) or seconds <= 0:
        raise UsageError(f"{what} must be a number of seconds above 0, not {seconds!r}")
    return max(1, round(seconds * 1000))


def compose(
    *,
    message_id: str,
    timestamp: int,
    text: str,
    attachments: Iterable[Attachment | Mapping[str, str]] = (),
    reply_to: str | None = None,
    expects_reply: bool = False,
    error: bool = False,
    progress_of: str | None = None,
    caused_by: str | None = None,
) -> Raw:
    """Return the encoded message object.

    ``timestamp`` is in epoch milliseconds; ``error`` marks a reply that says there will be no answer, ``progress_of``
    is the id of the question that is being worked on: a member of our own, which brokers pass on (protocol 4);
    ``caused_by`` is the id of the message its sender was at work on (protocol 15.3). Raises
    ``UsageError`` for an attachment of the wrong form and ``TooLarge`` above ``ATTACHMENTS_BYTES`` of text and
    attachments, or when JSON makes more of it than a frame may hold.
    """
    content = _content(text, attachments)
    message = Message(
        id=message_id,
        timestamp=timestamp,
        content=content,
        reply_to=UNSET if reply_to is None else clean_text(reply_to, "reply_to"),
        expects_reply=True if expects_reply else UNSET,
        reply_error=content.text if error else UNSET,
        caused_by=UNSET if caused_by is None else clean_id(caused_by),
    )
    encoded = encode(message)
    if progress_of is not None:
        encoded = encoded[:-1] + b"," + encode({PROGRESS_OF: clean_text(progress_of, "progress")})[1:]
    _check_frame(encoded)
    return Raw(encoded)


def checked_content(text: str, attachments: Iterable[Attachment | Mapping[str, str]] = ()) -> Content:
    """Return text and attachments that a frame can carry; raises as ``compose`` does."""
    content = _content(text, attachments)
    _check_frame(encode(content))
    return content


def _content(text: str, attachments: Iterable[Attachment | Mapping[str, str]]) -> Content:
    cleaned = clean_text(text)
    carried = [_attachment(attachment) for attachment in attachments]
    size = len(cleaned.encode()) + sum(map(_size, carried))
    if size > ATTACHMENTS_BYTES:
        raise TooLarge(f"the message has {size} bytes of text and attachments; at most {ATTACHMENTS_BYTES} can be sent")
    return Content(cleaned, carried or UNSET)


def _check_frame(encoded: bytes) -> None:
    if len(encoded) > FRAME_BYTES - ENVELOPE_BYTES:
        raise TooLarge(f"the message takes {len(encoded)} bytes as JSON; a frame holds {FRAME_BYTES}")


def _attachment(given: Attachment | Mapping[str, str]) -> Attachment:
    if isinstance(given, Attachment):
        members: dict[str, Any] = {"type": given.type, "name": given.name, "content": given.content}
        if given.language is not UNSET:
            members["language"] = given.language
    elif isinstance(given, Mapping):
        members = dict(given)
    else:
        raise UsageError(f"an attachment must be an Attachment, not {type(given).__name__}")
    cleaned = {key: clean_text(member) if isinstance(member, str) else member for key, member in members.items()}
    try:
        return convert(cleaned, Attachment)
    except ValidationError as error:
        raise UsageError(f"an attachment has the wrong form: {error}") from error


def _size(attachment: Attachment) -> int:
    language = "" if attachment.language is UNSET else attachment.language
    return sum(len(part.encode()) for part in (attachment.name, attachment.content, language))
