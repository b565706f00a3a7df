"""Keep the broker's log: JSON lines in a few files of bounded size.

What a caller writes must never hold bodies, tokens or capabilities, and nothing is written per message. A log that
cannot be written is silent: it never stops a delivery.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from json import dumps
from pathlib import Path
from time import time
from typing import Any

from intercom.limits import LOG_BYTES, LOG_FILES, LOG_REPEAT_MS, LOG_REPEATS_KEPT, LOG_TEXT_BYTES
from intercom.paths import open_private_file

_LEVELS = ("debug", "info", "warning", "error")


class Log:
    """Append lines to a file, rotate it, and count repeats instead of writing them.

    Two lines are repeats when event and reason are the same. The first is written; those that follow within
    LOG_REPEAT_MS are counted, and the next one after that, or ``close``, tells how many there were.

    Args:
        path: the current file; older ones get ``.1``, ``.2`` and so on.
        level: least important level that is written: debug, info, warning or error.
        wall: gives the present time in seconds since the Unix epoch.
        limit_bytes: size at which a file is put aside.
    """

    def __init__(
        self,
        path: Path,
        *,
        level: str = "info",
        wall: Callable[[], float] = time,
        limit_bytes: int = LOG_BYTES,
    ) -> None:
        self._path = path
        self._least = _LEVELS.index(level)
        self._wall = wall
        self._limit_bytes = limit_bytes
        self._descriptor = -1
        self._size = 0
        self._repeats: dict[tuple[str, str], _Repeats] = {}
        self._statuses: dict[str, Any] = {}
        """Which each event told last."""

    def write(self, event: str, *, level: str = "info", **members: Any) -> None:
        """Write one line: what happened and the members that tell it apart.

        A line that came shortly before is only counted; not one that tells another ``status`` than the one before it.
        """
        if _LEVELS.index(level) < self._least:
            return
        if level != "info":
            members["level"] = level
        key = (event, str(members.get("reason", "")))
        now = self._wall()
        seen = self._repeats.get(key)
        status = members.get("status")
        is_news, self._statuses[event] = status != self._statuses.get(event, status), status
        if seen is not None and not is_news and 0 <= now - seen.since < LOG_REPEAT_MS / 1000:
            seen.count += 1
            return
        if seen is not None and seen.count:
            members["repeated"] = seen.count
        self._repeats.pop(key, None)
        self._repeats[key] = _Repeats(now)
        if len(self._repeats) > LOG_REPEATS_KEPT:
            self._tell_repeats(next(iter(self._repeats)), now)
        self._append(self._line(event, members, now))

    def close(self) -> None:
        """Write the counts that are still owed and close the file."""
        now = self._wall()
        for key in list(self._repeats):
            self._tell_repeats(key, now)
        if self._descriptor >= 0:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1

    def _tell_repeats(self, key: tuple[str, str], now: float) -> None:
        seen = self._repeats.pop(key)
        if seen.count:
            event, reason = key
            members: dict[str, Any] = {"repeated": seen.count}
            if reason:
                members["reason"] = reason
            self._append(self._line(event, members, now))

    def _line(self, event: str, members: dict[str, Any], now: float) -> bytes:
        stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
        document = {"time": stamp, "pid": os.getpid(), "event": event}
        for name, value in members.items():
            document[name] = value[:LOG_TEXT_BYTES] if isinstance(value, str) else value
        return dumps(document, default=str).encode() + b"\n"

    def _append(self, line: bytes) -> None:
        with suppress(OSError):
            self._open()
            if self._size and self._size + len(line) > self._limit_bytes:
                self._rotate()
            self._size += os.write(self._descriptor, line)

    def _open(self) -> None:
        """Open the file unless it is open and still has its name."""
        if self._descriptor >= 0:
            if os.fstat(self._descriptor).st_nlink:
                return
            os.close(self._descriptor)
            self._descriptor = -1
        flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK
        self._descriptor = open_private_file(self._path, flags)
        self._size = os.fstat(self._descriptor).st_size

    def _rotate(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1
        for number in range(LOG_FILES - 1, 0, -1):
            older = self._path if number == 1 else self._path.with_name(f"{self._path.name}.{number - 1}")
            with suppress(FileNotFoundError):
                older.replace(self._path.with_name(f"{self._path.name}.{number}"))
        self._open()


class _Repeats:
    """Count how often a line came again since it was written."""

    __slots__ = ("count", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.count = 0
