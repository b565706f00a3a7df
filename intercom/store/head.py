"""Remember beside the store how far its journal got, so that an older copy put back is noticed (FE 5.5)."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from msgspec import MsgspecError, Struct
from msgspec.json import decode, encode

from intercom.limits import HEAD_INTERVAL_MS
from intercom.paths import PRIVATE_FILE


class Head(Struct, frozen=True, rename="camel"):
    """Say which journal was here last, and its last committed sequence number."""

    journal_id: str
    seq: int


def read_head(path: Path) -> Head | None:
    """Return what the file says; None when there is none, or none that can be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            return decode(file.read(4_096), type=Head)
    except (OSError, MsgspecError, RecursionError):
        return None


class HeadFile:
    """Write the file after commits, at most once in ``HEAD_INTERVAL_MS``."""

    def __init__(self, path: Path, journal_id: str) -> None:
        self._path = path
        self._journal_id = journal_id
        self._seq = 0
        self._written = 0
        self._next_at = 0

    def committed(self, seq: int, now_ms: int) -> None:
        """Take note of a committed sequence number; ``now_ms`` is a monotonic time."""
        self._seq = max(self._seq, seq)
        if now_ms >= self._next_at and self._seq > self._written:
            self._next_at = now_ms + HEAD_INTERVAL_MS
            self.write()

    def write(self) -> None:
        """Write what is known; a file that cannot be written is left for the next time: it only helps to notice."""
        if self._seq <= self._written:
            return
        temporary = self._path.with_name(f"{self._path.name}.new")
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(temporary, flags, PRIVATE_FILE)
            with os.fdopen(descriptor, "wb") as file:
                file.write(encode(Head(self._journal_id, self._seq)))
            os.replace(temporary, self._path)
            self._written = self._seq
