"""Give the write-ahead log its full size at once, so that a commit overwrites what is there.

A commit that makes a file longer also waits for the journal of the file system, which more than doubles the time of
its sync. SQLite begins the log anew after every checkpoint without making it shorter, so only the commits up to the
first checkpoint are slow, but a broker that leaves when nobody needs it may not live much longer than that. Behind the
last frame SQLite takes anything it did not write itself for the end of the log, zeros too.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_CHUNK = bytes(256 * 1024)


def extend_log(log: Path, pages: int, page_bytes: int) -> None:
    """Make the log long enough for this many pages; on a full disk it stays as long as it was.

    The next commit puts the zeros on disk together with its own pages.
    """
    with suppress(OSError):
        descriptor = os.open(log, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            before = os.fstat(descriptor).st_size
            try:
                _write_zeros(descriptor, before, _HEADER_BYTES + pages * (_FRAME_HEADER_BYTES + page_bytes))
            except OSError:
                os.ftruncate(descriptor, before)
        finally:
            os.close(descriptor)


def _write_zeros(descriptor: int, begin: int, end: int) -> None:
    # Real zeros: space that is only set aside is entered in the journal of the file system when it is first written.
    while begin < end:
        begin += os.pwrite(descriptor, _CHUNK[: end - begin], begin)
