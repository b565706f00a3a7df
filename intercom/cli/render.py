"""Turn results into text for people or JSON for programs; nothing a peer wrote reaches a terminal raw."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TextIO

from intercom.client.texts import clipped, columns_of, duration, short_ids, visible, visible_block, who
from intercom.errors import IntercomError

__all__ = [
    "Output",
    "OutputFailed",
    "clipped",
    "columns_of",
    "duration",
    "short_ids",
    "visible",
    "visible_block",
    "who",
]


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
