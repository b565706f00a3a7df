"""Find out which process holds a database, without touching it."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from pathlib import Path

_LOCK_BYTES_AT, _LOCK_BYTES = 0x40000000, 512
"""Where SQLite puts its locks: behind a gigabyte, whether there is something or not."""
_FLOCK = "hhqqi"
"""Kind, whence, begin, length, process: as Linux has it."""


def holder_of(database: Path) -> int | None:
    """Return the process that reads or writes the database; None when none does, or nobody can tell.

    Not for a process that has the database open itself: it would lose its own locks.
    """
    if sys.platform != "linux":
        return None
    try:
        descriptor = os.open(database, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, _LOCK_BYTES_AT, _LOCK_BYTES, 0)
        kind, *_, pid = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, wanted))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return int(pid) if kind != fcntl.F_UNLCK and pid > 0 else None


def held_by(database: Path, holder: int | None) -> str:
    """Say who holds a database."""
    return f"{database} is held by {'another program' if holder is None else f'process {holder}'}"
