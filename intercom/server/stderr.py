"""Cap what the process writes to standard error (protocol 2.2), whatever became of its standard descriptors."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress

from intercom.limits import STDERR_BYTES


class CappedStderr(io.TextIOBase):
    """Write text to a descriptor until a number of bytes went out; drop the rest silently.

    Args:
        descriptor: where to write.
        limit_bytes: most bytes in all.
    """

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, descriptor: int = 2, limit_bytes: int = STDERR_BYTES) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._left = limit_bytes

    def writable(self) -> bool:
        """Tell that it can be written."""
        return True

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def write(self, text: str) -> int:
        """Write what the cap leaves of ``text``; a descriptor that cannot be written takes nothing."""
        data = text.encode("utf-8", "backslashreplace")[: self._left]
        self._left -= len(data)
        with suppress(OSError):
            while data:
                data = data[os.write(self._descriptor, data) :]
        return len(text)


def secure_standard_descriptors() -> None:
    """Open /dev/null on each of 0, 1 and 2 that is closed, so that no socket or file gets such a number."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free number is the one that was just found closed.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def cap_stderr() -> CappedStderr:
    """Let everything Python writes to standard error from now on count against the cap."""
    capped = CappedStderr()
    sys.stderr = capped
    return capped
