"""Take the lock of a home for a moment, or find out who has it, without making the file or leaving a trace."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from intercom.errors import IntercomError
from intercom.paths import Paths


class InUse(IntercomError):
    """Say that a broker, or one that is starting, works with the files of the home."""

    code = "in_use"
    retry = "after"
    exit_status = 5
    hint = "`intercom stop` ends the broker; do it again before a session starts a new one."


@contextmanager
def locked(paths: Paths, *, create: bool) -> Iterator[None]:
    """Hold the lock of the home for the block; ``create`` tells whether a missing lock file is made.

    Raises ``InUse``, ``FileNotFoundError`` when there is none and none is to be made, and other ``OSError``.
    """
    import fcntl

    from intercom.paths import open_private_file

    if create:
        descriptor = open_private_file(paths.lock, os.O_RDWR)
    else:
        descriptor = os.open(paths.lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = holder(paths.lock)
            named = "a process" if pid is None else f"process {pid}"
            raise InUse(f"{named} holds {paths.lock}: the broker uses the files of {paths.home}") from None
        yield
    finally:
        os.close(descriptor)


def is_held(lock: Path) -> bool:
    """Tell whether some process holds the lock; raises ``OSError``, such as ``FileNotFoundError``."""
    if holder(lock) is not None:
        return True
    import fcntl

    descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def holder(lock: Path) -> int | None:
    """Return the process that holds the lock, by the kernel's own table; ``None`` where that does not tell."""
    try:
        status = os.stat(lock)
        with open("/proc/locks", encoding="ascii", errors="replace") as table:
            lines = table.readlines()
    except OSError:
        return None
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in lines:
        fields = line.split()
        if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == wanted and fields[4].isdigit():
            return int(fields[4]) or None
    return None
