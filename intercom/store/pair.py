"""Keep the database and its key together: both or neither (protocol 6.9.4).

A missing half is never made anew, because what it recorded would be forgotten. Only a start that ended while it made
the very first pair is finished or begun again. Both files are complete and on disk under temporary names before the
first is renamed, the key before the database; so a key without a database is ours exactly when the unfinished
database beside it is bound to that key and was never opened by a broker.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path
from struct import unpack_from

from intercom.limits import KEY_BYTES
from intercom.paths import PRIVATE_FILE, Paths
from intercom.store.failures import StoreUnusable, opening_failure
from intercom.store.identity import create_identity, read_identity

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_PAGE_SIZE_AT = 16
_LARGEST_PAGE_BYTES = 65_536
"""What a database says by 1: the number does not fit."""

SIDECARS = ("-wal", "-shm", "-journal")
"""Ends of the names of the files SQLite keeps beside a database."""


def obtain_pair(paths: Paths) -> bytes:
    """Return the key of the home's store, after creating both files when neither exists.

    The caller holds the lock of the home. Afterwards both files are regular files of this user with mode 0600.
    Raises ``StoreUnusable``.
    """
    try:
        have_database, have_key = (_is_ours(path) for path in (paths.database, paths.key))
        for suffix in SIDECARS:
            _is_ours(beside(paths.database, suffix))
        if not have_database and not have_key:
            _create(paths)
        elif not have_database:
            _finish(paths, read_key(paths.key))
        elif not have_key:
            raise StoreUnusable("half_pair", f"{paths.key} is missing while {paths.database} exists")
        return read_key(paths.key)
    except (OSError, sqlite3.Error) as error:
        raise opening_failure(error, paths.database) from error


def judge_beginning(database: Path) -> int:
    """Return the size of a database that begins as one; raises ``StoreUnusable`` or ``OSError``.

    SQLite is not asked: it takes a file that is shorter than a page for a new one, and deletes the log beside it, out
    of which all could be rescued.
    """
    descriptor = os.open(database, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        beginning = os.read(descriptor, _HEADER_BYTES)
        size = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    if size == 0:
        raise StoreUnusable("corrupt", f"{database} is empty")
    if not beginning.startswith(_MAGIC):
        raise StoreUnusable("corrupt", f"{database} is damaged (it does not begin as a database does)")
    (page,) = unpack_from(">H", beginning.ljust(_HEADER_BYTES, b"\0"), _PAGE_SIZE_AT)
    if size < (page if page > 1 else _LARGEST_PAGE_BYTES):
        raise StoreUnusable("corrupt", f"{database} was cut off: it ends within its first page")
    return size


def read_only(database: Path) -> sqlite3.Connection:
    """Open a database so that neither the file nor its write-ahead log is changed."""
    # Without a log to read, SQLite is told to leave no files of its own beside the database.
    mode = "mode=ro" if has_log(database) else "mode=ro&immutable=1"
    return sqlite3.connect(f"{database.as_uri()}?{mode}", uri=True, isolation_level=None)


def has_log(database: Path) -> bool:
    """Tell whether a write-ahead log holds what may not be in the database yet."""
    wal = beside(database, "-wal")
    return os.path.lexists(wal) and os.stat(wal).st_size > 0


def beside(path: Path, suffix: str) -> Path:
    """Return the path of a file that belongs to another one."""
    return path.with_name(path.name + suffix)


def _is_ours(path: Path) -> bool:
    """Tell whether the file exists; make its mode 0600, and refuse it when it is not a regular file of this user."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(status.st_mode):
        raise StoreUnusable("not_ours", f"{path} is not a regular file")
    if status.st_uid != os.geteuid():
        raise StoreUnusable("not_ours", f"{path} belongs to user {status.st_uid}, not to user {os.geteuid()}")
    if stat.S_IMODE(status.st_mode) != PRIVATE_FILE:
        os.chmod(path, PRIVATE_FILE)
    return True


def read_key(path: Path) -> bytes:
    """Return the key in a file; raises ``StoreUnusable`` or ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        key = os.read(descriptor, KEY_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(key) != KEY_BYTES:
        raise StoreUnusable("bad_key", f"{path} does not hold exactly {KEY_BYTES} bytes")
    return key


def _create(paths: Paths) -> None:
    database, key = unfinished_of(paths.database), unfinished_of(paths.key)
    for leftover in (key, database, *(beside(database, suffix) for suffix in SIDECARS)):
        leftover.unlink(missing_ok=True)
    secret = os.urandom(KEY_BYTES)
    write_new(key, secret)
    os.close(_open_new(database))
    connection = sqlite3.connect(f"{database.as_uri()}?mode=rw", uri=True, isolation_level=None)
    try:
        # No journal and no sync: a file that is not complete and on disk is never renamed.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        create_identity(connection, secret)
        connection.execute("PRAGMA journal_mode = WAL")  # here it costs nothing, later four syncs
    finally:
        connection.close()
    sync(database, os.O_RDWR)
    sync(paths.home, os.O_RDONLY | os.O_DIRECTORY)
    os.rename(key, paths.key)
    sync(paths.home, os.O_RDONLY | os.O_DIRECTORY)
    _rename_database(paths)


def _finish(paths: Paths, key: bytes) -> None:
    half = StoreUnusable("half_pair", f"{paths.database} is missing while {paths.key} exists")
    unfinished = unfinished_of(paths.database)
    if not _is_ours(unfinished):
        raise half
    connection = read_only(unfinished)
    try:
        if read_identity(connection, unfinished, key).epoch != 0:
            raise half
    except (StoreUnusable, sqlite3.Error):
        raise half from None
    finally:
        connection.close()
    _rename_database(paths)


def _rename_database(paths: Paths) -> None:
    os.rename(unfinished_of(paths.database), paths.database)
    sync(paths.home, os.O_RDONLY | os.O_DIRECTORY)


def unfinished_of(path: Path) -> Path:
    """Return where a file is made before it gets its name."""
    return beside(path, ".new")


def drafts_of(paths: Paths) -> tuple[Path, Path]:
    """Return where a database and a key wait that were rebuilt out of a damaged pair, until they take its place."""
    return beside(paths.database, ".rebuilt"), beside(paths.key, ".rebuilt")


def write_new(path: Path, content: bytes) -> None:
    """Make a file with this content, on disk when this returns; raises ``OSError`` when it exists."""
    descriptor = _open_new(path)
    try:
        if os.write(descriptor, content) != len(content):
            raise StoreUnusable("unwritable", f"{path} could not be written completely")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open_new(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, PRIVATE_FILE)
    try:
        os.fchmod(descriptor, PRIVATE_FILE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def sync(path: Path, flags: int) -> None:
    """Wait until a file, or the names in a directory, are on disk; ``flags`` are those it is opened with."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
