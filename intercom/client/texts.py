"""Turn what peers wrote into text that can be shown: nothing in it steers a terminal, hides, or looks like ours."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from intercom.limits import CELL_COLUMNS, SHORT_ID_CHARACTERS

if TYPE_CHECKING:
    from intercom.client.invoking import InvocationView
    from intercom.client.views import Execution, Invoked

_SHOWN_BY_NAME = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories that steer a terminal or cannot be seen: controls, formats (bidi, zero width), surrogates,
line and paragraph separators."""


def visible(text: str) -> str:
    r"""Return ``text`` as one line in which every control, bidi and zero-width character is spelled out (``\x1b``)."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _spelled(character) for character in text)


def visible_block(text: str) -> str:
    """Return ``text`` with its line breaks and tabs kept and every other such character spelled out."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(visible(cell) for cell in line.split("\t")) for line in lines)


def _spelled(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN:
        return character
    if character in _SHOWN_BY_NAME:
        return _SHOWN_BY_NAME[character]
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def columns_of(text: str) -> int:
    """Return how many terminal columns ``text`` takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def clipped(text: str, columns: int = CELL_COLUMNS) -> str:
    """Return ``text`` cut with ``...`` so that it takes at most ``columns``, whatever combining marks it holds."""
    if len(text) <= columns and columns_of(text) <= columns:
        return text
    kept: list[str] = []
    used = 0
    for character in text:
        used += _columns(character)
        if used > columns - 3 or len(kept) >= columns:
            break
        kept.append(character)
    return "".join(kept) + "..."


def short_ids(ids: Sequence[str]) -> dict[str, str]:
    """Map every id to the shortest text a send accepts for it: its first 8 digits when no other begins like it."""
    beginnings: dict[str, int] = {}
    for session_id in ids:
        beginning = session_id[:SHORT_ID_CHARACTERS].lower()
        beginnings[beginning] = beginnings.get(beginning, 0) + 1
    return {
        session_id: session_id[:SHORT_ID_CHARACTERS]
        if _looks_random(session_id) and beginnings[session_id[:SHORT_ID_CHARACTERS].lower()] == 1
        else session_id
        for session_id in ids
    }


def _looks_random(session_id: str) -> bool:
    parts = session_id.split("-")
    hexadecimal = all(character in "0123456789abcdefABCDEF" for part in parts for character in part)
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and hexadecimal


def who(name: str | None, session_id: str) -> str:
    """Return how a session is called in a sentence: its name and short id, or the id alone."""
    short = visible(session_id[:SHORT_ID_CHARACTERS] if _looks_random(session_id) else session_id)
    return f"{clipped(visible(name))} ({short})" if name else short


def duration(milliseconds: float) -> str:
    """Return a length of time in its two largest units: ``3 s``, ``4 min 10 s``, ``2 h 5 min``, ``3 d 1 h``."""
    seconds = max(0, int(milliseconds // 1000))
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def wishes(execution: Execution) -> dict[str, str]:
    """Return how a task is wished to be done, by the names of the wire."""
    named = {
        "kind": execution.kind,
        "model": execution.model,
        "session": execution.session,
        "targetSessionId": execution.target_session_id,
    }
    return {name: value for name, value in named.items() if value is not None}


def said_beside(task: Invoked | InvocationView) -> str:
    """Return what is said of a task beside its texts, on one line; empty when that is nothing."""
    said = [] if task.execution is None else [f"{name} {value}" for name, value in wishes(task.execution).items()]
    said += [f"label {label}" for label in task.labels]
    said += [f"about {task.about}"] if task.about else []
    said += ["reports wished"] if task.stream else []
    return visible(", ".join(said))
