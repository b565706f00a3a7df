"""Define what can go wrong with the store, and tell what passes from what does not."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from intercom.paths import open_private_file
from intercom.store.holding import held_by, holder_of


class StoreUnusable(Exception):
    """Say that the store is closed for the life of this process; nothing was changed or created anew.

    ``code`` is one of ``half_pair``, ``not_ours``, ``bad_key``, ``wrong_key``, ``corrupt``, ``foreign``, ``newer``,
    ``unreadable``, ``unwritable``, and ``held``, by another program, which passes.
    ``reason`` is one sentence that names the file.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class CommitFailed(Exception):
    """Say that nothing of a batch was committed; ``final`` when nothing will be committed any more."""

    def __init__(self, reason: str, final: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.final = final


_PASSING_ERRNO = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
}

_PASSING_SQLITE = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "the database is read-only",
    sqlite3.SQLITE_BUSY: "another program holds the database",
    sqlite3.SQLITE_LOCKED: "another program holds the database",
    sqlite3.SQLITE_NOMEM: "memory is used up",
}

_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})

_PRIMARY = 0xFF
"""Bits of an SQLite result code that are the primary one."""


def commit_failure(error: Exception, out_of_space: Callable[[], bool]) -> CommitFailed:
    """Return the failure an exception during a commit stands for.

    ``out_of_space`` is asked about failed writes: SQLite reports an exhausted quota as any other I/O error, and only
    the kernel's answer to another write tells them apart. An error that is neither SQLite's nor the system's comes
    from one of the values and says nothing about the file.
    """
    if isinstance(error, OSError):
        passing = _PASSING_ERRNO.get(error.errno or 0)
        return CommitFailed(passing or f"the disk failed ({error.strerror or error})", final=passing is None)
    if not isinstance(error, sqlite3.Error):
        return CommitFailed(f"a value could not be stored ({type(error).__name__}: {error})", final=False)
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # raised by Python's module, before SQLite was asked
        return CommitFailed(f"a value could not be stored ({error})", final=False)
    passing = _PASSING_SQLITE.get(code & _PRIMARY)
    if passing is None and code == sqlite3.SQLITE_IOERR_WRITE and out_of_space():
        passing = "the disk is full"
    if passing is not None:
        return CommitFailed(passing, final=False)
    kind = "the database is damaged" if code & _PRIMARY in _DAMAGED else "the disk failed"
    return CommitFailed(f"{kind} ({error_name(error)})", final=True)


def opening_failure(error: Exception, database: Path) -> StoreUnusable:
    """Return the reason an exception while opening the store stands for.

    SQLite reports that there is no room for the index of its log as any other I/O error, so the kernel is asked.
    """
    if isinstance(error, OSError):
        code = "unwritable" if error.errno in _PASSING_ERRNO else "unreadable"
        return StoreUnusable(code, f"{error.filename or database} cannot be used: {error.strerror or error}")
    result = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY
    if result in _DAMAGED:
        return StoreUnusable("corrupt", f"{database} is damaged ({error_name(error)})")
    if result in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreUnusable("held", held_by(database, holder_of(database)))
    if result in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY):
        return StoreUnusable("unwritable", f"{database} cannot be written: {_PASSING_SQLITE[result]}")
    if result == sqlite3.SQLITE_IOERR and no_space_left(str(database)):
        return StoreUnusable("unwritable", f"{database} cannot be written: the disk is full")
    return StoreUnusable("unreadable", f"{database} cannot be used: {error} ({error_name(error)})")


def error_name(error: Exception) -> str:
    """Return SQLite's name for the error, or the name of its class."""
    return str(getattr(error, "sqlite_errorname", type(error).__name__))


def no_space_left(database: str) -> bool:
    """Tell whether the file system of the database takes no more data from this user."""
    probe = Path(f"{database}.probe")
    try:
        descriptor = open_private_file(probe, os.O_WRONLY | os.O_TRUNC)
        try:
            left = _PROBE_BYTES
            while left:  # what still fits is written, and only the rest fails
                left -= os.write(descriptor, bytes(left))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            os.unlink(probe)
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return False


_PROBE_BYTES = 65_536
"""More than a failed write of one page can have left over."""
