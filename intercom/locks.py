"""Hold the kernel's lock on a file: a process loses it when it ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from intercom.paths import open_private_file


class FileLock:
    """Hold the lock of one file, which is made with mode 0600 and never removed; nobody waits here."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock if it is free, and tell whether this object has it now; raises ``OSError``."""
        descriptor = open_private_file(self.path, os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_taken = os.path.samestat(os.fstat(descriptor), os.lstat(self.path))
        except (BlockingIOError, FileNotFoundError):
            is_taken = False
        except BaseException:
            os.close(descriptor)
            raise
        if is_taken:
            self._descriptor = descriptor
        else:  # held elsewhere, or the file was removed meanwhile and whoever comes next locks another one
            os.close(descriptor)
        return is_taken

    @property
    def identity(self) -> tuple[int, int] | None:
        """Return what the kernel knows the locked file by, wherever its path leads now; None without the lock."""
        if self._descriptor is None:
            return None
        status = os.fstat(self._descriptor)
        return status.st_dev, status.st_ino

    def release(self) -> None:
        """Give the lock back if this object has it; the file stays, so that all who wait, wait for the same one."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
