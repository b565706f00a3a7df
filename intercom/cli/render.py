"""Turn results into text for people or JSON for programs; nothing a peer wrote reaches a terminal raw."""

from __future__ import annotations

import errno
import json
import os
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TextIO

from intercom.errors import IntercomError
from intercom.limits import CELL_COLUMNS, SHORT_ID_CHARACTERS

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


class OutputFailed(IntercomError):
    """Say that the result could not be written, for instance to a full disk."""

    code = "output_failed"


class Output:
    """Write the results of one command: documents when JSON is wanted, else lines for a person."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.closed = sys.stdout is None
        """Whether nobody reads standard output, or no longer; whatever is written then is dropped."""
        self.marks: dict[str, Any] = {}
        """Members of a document that says how the command failed; a verb that prints many documents sets some."""
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")

    def failure(self, members: Mapping[str, Any]) -> None:
        """Write the document of a command that failed; ``members`` hold ``code``, ``reason`` and ``retry``."""
        self.document({"ok": False, **self.marks, **members})

    def document(self, members: Mapping[str, Any]) -> None:
        """Write one JSON document on a line of standard output, when JSON is wanted; it is pure ASCII."""
        if self.as_json:
            self._write(json.dumps(members, ensure_ascii=True, separators=(",", ":")) + "\n")

    def line(self, text: str) -> None:
        """Write a line to standard output for a person, unless JSON is wanted.

        ``text`` is written as it is: whatever came from a peer must have gone through ``visible``.
        """
        if not self.as_json:
            self._write(text + "\n")

    def note(self, text: str) -> None:
        """Write a line to standard error, for a person, whatever is wanted on standard output."""
        with suppress(OSError, ValueError):
            if sys.stderr is not None:
                sys.stderr.write(text + "\n")
                sys.stderr.flush()

    def fancy(self) -> bool:
        """Tell whether a person reads standard output on a terminal that shows colours and wants them."""
        return (
            not self.as_json
            and sys.stdout is not None
            and sys.stdout.isatty()
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM", "dumb") != "dumb"
            and _speaks_unicode(sys.stdout)
        )

    def columns(self) -> int | None:
        """Return how many columns the terminal behind standard output has; ``None`` when there is none."""
        if sys.stdout is None or not sys.stdout.isatty():
            return None
        given = os.environ.get("COLUMNS", "")
        if given.isdecimal() and int(given) > 0:
            return int(given)
        try:
            return os.get_terminal_size(sys.stdout.fileno()).columns or None
        except (OSError, ValueError):
            return None

    def _write(self, text: str) -> None:
        if self.closed:
            return
        try:
            _write_whole(sys.stdout, text)
        except BrokenPipeError:
            self.closed = True
            _abandon_stdout()
        except OSError as error:
            self.closed = True
            _abandon_stdout()
            raise OutputFailed(f"standard output cannot be written: {error.strerror}") from error


def _write_whole(stream: TextIO, text: str) -> None:
    """Write all of ``text``; an unbuffered stream alone drops what a pipe did not take at once."""
    binary = getattr(stream, "buffer", None)
    if binary is None:
        stream.write(text)
    else:
        stream.flush()
        rest = memoryview(text.encode(stream.encoding, "backslashreplace"))
        while rest:
            written = binary.write(rest)
            if written is None:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            rest = rest[written:]
    stream.flush()


def _speaks_unicode(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "").replace("_", "") == "utf8"


def _abandon_stdout() -> None:
    """Point standard output at nothing, so that the interpreter's last flush cannot fail and complain."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)
