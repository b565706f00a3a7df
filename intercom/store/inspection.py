"""Look into a store without changing it, and put one aside whole (design section 5, fail closed).

Both are for tools that hold the home's lock, so that no broker works with the files meanwhile.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

from msgspec import Struct

from intercom.core.records import OperationState
from intercom.paths import PRIVATE_FILE, Paths, make_private_directory
from intercom.store.database import examine
from intercom.store.failures import StoreUnusable, opening_failure
from intercom.store.holding import held_by, holder_of
from intercom.store.identity import Identity
from intercom.store.pair import SIDECARS, beside, drafts_of, read_key, read_only, unfinished_of
from intercom.store.schema import tables


class Inspection(Struct, frozen=True):
    """Say what is there, whether a broker could use it, and what forgetting it would cost."""

    files: dict[str, int]
    """Size in bytes of each file of the store, by name; empty when there is no store yet."""
    trouble: StoreUnusable | None = None
    """Why a broker would refuse it."""
    identity: Identity | None = None
    """Whose store it is, as far as that can be read."""
    operations: int = 0
    """Message ids whose fate is remembered."""
    unfinished: int = 0
    """Those of them that are reserved and not settled."""
    open_questions: int = 0
    """Those of them that are questions still to be answered."""
    retired_ids: int = 0
    """Session ids that are kept for those who had them."""
    addresses: int = 0
    """Addresses, each with its mailbox."""
    mail: int = 0
    """Messages that wait for somebody who is away."""


def inspect(paths: Paths) -> Inspection:
    """Judge the store as a broker that opens it would; never raises, and leaves nothing behind."""
    try:
        files = {path.name: path.lstat().st_size for path in files_of(paths)}
        if not files:
            return Inspection({})
        _refuse_what_is_not_ours(paths)
        for path, other in ((paths.database, paths.key), (paths.key, paths.database)):
            if not os.path.lexists(path):
                if os.path.lexists(unfinished_of(paths.database)) and path == paths.database:
                    return Inspection(files)  # the next broker finishes what a start began, or refuses it
                raise StoreUnusable("half_pair", f"{path} is missing while {other} exists")
        identity = examine(paths, read_key(paths.key))
        if (holder := holder_of(paths.database)) is not None:
            raise StoreUnusable("held", held_by(paths.database, holder))
        return Inspection(files, None, identity, *_counts(paths, identity.version))
    except StoreUnusable as trouble:
        return Inspection(_sizes(paths), trouble)
    except (OSError, sqlite3.Error) as error:
        return Inspection(_sizes(paths), opening_failure(error, paths.database))


def files_of(paths: Paths) -> list[Path]:
    """Return the files of the store that exist, in the order in which they are put aside."""
    whole = [paths.database, *(beside(paths.database, suffix) for suffix in SIDECARS), paths.key]
    drafts = [unfinished_of(paths.database), unfinished_of(paths.key), *drafts_of(paths)]
    return [path for path in (*whole, *drafts) if os.path.lexists(path)]


def move_aside(paths: Paths, name: str) -> Path:
    """Move every file of the store into a new directory of this name in the home, and return the directory.

    The caller holds the lock. A move that is cut off leaves half a pair, which no broker uses; doing it again moves the
    rest. Raises ``OSError``, or ``FileExistsError`` when the directory exists.
    """
    place = paths.home / name
    os.mkdir(place)
    make_private_directory(place)
    for path in files_of(paths):
        path.rename(place / path.name)
    for directory in (place, paths.home):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return place


def _refuse_what_is_not_ours(paths: Paths) -> None:
    for path in files_of(paths):
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):
            raise StoreUnusable("not_ours", f"{path} is not a regular file")
        if status.st_uid != os.geteuid():
            raise StoreUnusable("not_ours", f"{path} belongs to user {status.st_uid}, not to user {os.geteuid()}")


def too_open(paths: Paths) -> list[Path]:
    """Return the files of the store that others could use, were the home open to them."""
    return [path for path in files_of(paths) if stat.S_IMODE(path.lstat().st_mode) & ~PRIVATE_FILE]


def _counts(paths: Paths, version: int) -> tuple[int, ...]:
    """Return the numbers of an inspection, in their order; tables that a later version brought hold nothing yet."""
    connection = read_only(paths.database)
    try:
        (operations,) = connection.execute("SELECT count(*) FROM operations").fetchone()
        (unfinished,) = connection.execute(
            "SELECT count(*) FROM operations WHERE state = ?", (OperationState.RESERVED.value,)
        ).fetchone()
        (questions,) = connection.execute(
            "SELECT count(*) FROM operations WHERE question_asker IS NOT NULL AND question_answered = 0 AND state = ?",
            (OperationState.ACCEPTED.value,),
        ).fetchone()
        kept = [
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] if table in tables(version) else 0
            for table in ("retired_ids", "addresses", "mail")
        ]
    finally:
        connection.close()
    return operations, unfinished, questions, *kept


def _sizes(paths: Paths) -> dict[str, int]:
    sizes = {}
    try:
        for path in files_of(paths):
            sizes[path.name] = path.lstat().st_size
    except OSError:
        pass
    return sizes
