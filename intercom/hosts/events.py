"""Read what a host tells its hooks; whatever is missing or of another type counts as not told."""

from __future__ import annotations

from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import Decoder


class HookEvent(Struct, frozen=True):
    """Hold what matters to us of an event; texts that a host did not tell are empty."""

    session: str = ""
    agent: str = ""
    """The subagent in which it happened."""
    agent_type: str = ""
    cwd: str = ""
    source: str = ""
    """Why a session began."""
    reason: str = ""
    """Why it ended."""
    tool_use: str = ""
    goes_on: bool = False
    """Whether the model goes on already because a hook wanted it to."""


class _Told(Struct):
    """Name the members of the documents; their types are looked at afterwards, so that one does not spoil all."""

    session_id: Any = None
    agent_id: Any = None
    agent_type: Any = None
    cwd: Any = None
    source: Any = None
    reason: Any = None
    tool_use_id: Any = None
    stop_hook_active: Any = None


_DECODER = Decoder(_Told)


def read_event(document: bytes) -> HookEvent:
    """Return the event in a JSON document; an empty one when it is none."""
    try:
        told = _DECODER.decode(document)
    except (DecodeError, RecursionError):
        told = _leniently(document)
    return HookEvent(
        session=_text(told.session_id),
        agent=_text(told.agent_id),
        agent_type=_text(told.agent_type),
        cwd=_text(told.cwd),
        source=_text(told.source),
        reason=_text(told.reason),
        tool_use=_text(told.tool_use_id),
        goes_on=told.stop_hook_active is True,
    )


def _leniently(document: bytes) -> _Told:
    """Read what only the standard parser takes: half an emoji, bytes that are not UTF-8, a byte order mark."""
    import json

    try:
        found = json.loads(document.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return _Told()
    return _Told(**{name: found.get(name) for name in _Told.__struct_fields__})


def _text(value: Any) -> str:
    if not isinstance(value, str):
        return ""
    return value.encode("utf-8", "replace").decode().strip()
