"""Share the failure of a start with those who waited for it, so that a crowd does not start one broker after another.

Whoever starts a broker that dies leaves a note in the home. Who waited meanwhile sees that the note is another one than
when it began to wait, and fails with it instead of trying the same in turn (F7). No clock is compared.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import NamedTuple

from intercom.errors import StartFailed
from intercom.paths import Paths, drafted, read_ordinary_file


class Mark(NamedTuple):
    """Tell one note from another."""

    inode: int
    written_ns: int


def mark_of(paths: Paths) -> Mark | None:
    """Return which note lies in the home, ``None`` for none."""
    try:
        status = os.lstat(paths.start_failure)
    except OSError:
        return None
    return Mark(status.st_ino, status.st_mtime_ns)


def note(paths: Paths, error: StartFailed) -> None:
    """Leave a note; where that is not possible, everybody finds out alone."""
    draft = paths.start_failure.with_suffix(f".{os.getpid()}")
    text = json.dumps({"reason": error.reason, "hint": error.hint})
    with suppress(OSError), drafted(draft) as descriptor:  # a full disk is why most starts fail
        os.write(descriptor, text.encode())
        os.replace(draft, paths.start_failure)


def noted(paths: Paths, before: Mark | None) -> StartFailed | None:
    """Return the failure that was noted since ``before`` was the note."""
    if mark_of(paths) in (None, before):
        return None
    try:
        told = json.loads(read_ordinary_file(paths.start_failure))
        return StartFailed(str(told["reason"]), hint=str(told["hint"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
