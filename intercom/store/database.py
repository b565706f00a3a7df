"""Open the store of a home, commit batches of changes to it, and close it (design section 5)."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from time import perf_counter_ns
from uuid import uuid4

from msgspec.structs import replace

from intercom.config import Durability
from intercom.core.records import OperationState
from intercom.limits import BUSY_MS, CACHE_KIB, CHECKPOINT_PAGES, OPEN_BUSY_MS, Limits
from intercom.paths import Paths
from intercom.store import schema
from intercom.store.failures import CommitFailed, StoreUnusable, commit_failure, no_space_left, opening_failure
from intercom.store.head import HeadFile, read_head
from intercom.store.history import last_sequence, write
from intercom.store.identity import Identity, read_identity
from intercom.store.loading import Loaded, load, text_or_bytes
from intercom.store.log_space import extend_log
from intercom.store.merging import Batch, Merged, merge
from intercom.store.operations import are_many
from intercom.store.pair import beside, has_log, judge_beginning, obtain_pair, read_only
from intercom.store.rows import DROP_OPERATION
from intercom.store.soundness import expect_sound

__all__ = ["Batch", "CommitFailed", "Store", "StoreUnusable"]


class Store:
    """Hold the open store of one home; one broker, the holder of the home's lock, has one.

    It may be used from several threads, by one at a time.
    """

    def __init__(
        self, paths: Paths, connection: sqlite3.Connection, key: bytes, identity: Identity, loaded: Loaded
    ) -> None:
        self.key = key
        """Key of the signatures, 32 bytes."""
        self.broker_id = identity.broker_id
        self.journal_id = identity.journal_id
        self.epoch = identity.epoch + 1
        """Times the store was opened, this one included."""
        self.recovered = loaded.recovered
        self.before_commit: Callable[[], None] | None = None
        """Called within every transaction before its commit; for tests, which let it raise or wait."""
        self._log = beside(paths.database, "-wal")
        self._database = str(paths.database)
        self._file = _file_id(self._database)
        self._connection = connection
        self._cursor = connection.cursor()
        self._keeps_operations = True
        self._waiting: set[int] = set()
        """Numbers of the operations on disk, while only those of waiting mail are kept there."""
        self._head = HeadFile(paths.head, identity.journal_id)
        self.was_restored = identity.was_restored
        """An older copy of the database was put in its place; its journal has a new id."""
        self._is_fresh = True
        """Nothing was committed since it was opened."""
        self._final: str | None = None
        self.opening_us = 0
        """Duration of the commit with which it was opened, in microseconds."""

    @classmethod
    def open(
        cls,
        paths: Paths,
        now_ms: int,
        *,
        durability: Durability = "full",
        limits: Limits | None = None,
        before_commit: Callable[[], None] | None = None,
    ) -> Store:
        """Open the store, making a new one when the home has none, and read it.

        ``now_ms`` is the wall clock in epoch ms. The home exists, and the caller holds its lock. With durability
        ``"memory"`` the operations found are read once and from then on not kept on disk. Raises ``StoreUnusable``;
        files that are refused stay as they are.
        """
        limits = limits or Limits()
        key = obtain_pair(paths)
        connection: sqlite3.Connection | None = None
        try:
            # Memory keeps nothing of what is read later, so there the whole is looked at before.
            identity = examine(paths, key, at_once=durability == "memory")
            connection = _connect(paths)
            connection.execute("BEGIN IMMEDIATE")
            if identity.version < schema.version():
                schema.advance(connection, identity.version)
            connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'epoch'")
            identity = _with_true_journal(connection, identity, paths)
            loaded = load(connection, now_ms, limits.operation_ttl_ms, whole=durability == "memory")
            if durability == "memory":
                connection.execute("DELETE FROM operations WHERE state != ?", (OperationState.QUEUED.value,))
            else:
                connection.executemany(DROP_OPERATION, ((number,) for number in loaded.stale))
            begin = perf_counter_ns()
            connection.execute("COMMIT")
            opening_us = (perf_counter_ns() - begin) // 1_000
            store = cls(paths, connection, key, identity, loaded)
            store.opening_us = opening_us
        except BaseException as error:
            if connection is not None:
                connection.close()
            if isinstance(error, (OSError, sqlite3.Error)):
                raise opening_failure(error, paths.database) from error
            raise
        store.before_commit = before_commit
        store._keeps_operations = durability == "full"
        store._waiting = {
            record.number for record in loaded.recovered.operations if record.state is OperationState.QUEUED
        }
        return store

    def commit(self, batch: Batch) -> int:
        """Make all changes of a batch durable in one transaction, or none of them.

        Of several changes to one row only the last is written. Returns the duration of the commit itself in
        microseconds; 0 when it says nothing of the disk: nothing was written, or the whole log was put on disk as
        well. Raises ``CommitFailed``, and after a final one always.
        """
        if self._final is None and self._is_elsewhere():
            self._final = f"{self._database} was moved, replaced or deleted"
        if self._final is not None:
            raise CommitFailed(self._final, final=True)
        try:
            return self._commit(batch)
        except Exception as error:
            failure = error
            if not isinstance(failure, CommitFailed):
                failure = commit_failure(error, lambda: no_space_left(self._database))
            if not self._rolled_back():
                failure = CommitFailed(failure.reason, final=True)
            if failure.final:
                self._final = failure.reason
            raise failure from error
        except BaseException:
            self._rolled_back()
            raise

    def close(self) -> None:
        """Close the database; what was committed stays."""
        self._final = "the store is closed"
        self._head.write()
        self._connection.close()

    def _commit(self, batch: Batch) -> int:
        merged = merge(batch)
        come, gone = set[int](), set[int]()
        if merged is not None and not self._keeps_operations:
            come, gone = self._keep_mail_only(merged)
        if merged is None or merged.is_empty:
            return 0
        execute = self._cursor.execute
        if self._is_fresh:  # not at the start, which somebody waits for
            (page_bytes,) = execute("PRAGMA page_size").fetchone()
            extend_log(self._log, CHECKPOINT_PAGES, page_bytes)
        execute("BEGIN IMMEDIATE")
        (epoch,) = execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
        if epoch != self.epoch:
            raise CommitFailed("another broker has opened the store since", final=True)
        merged.write(self._cursor)
        sequence = write(self._connection, merged.history, self.epoch) if merged.history else 0
        if self.before_commit is not None:
            self.before_commit()
        started = perf_counter_ns()
        execute("COMMIT")
        ended = perf_counter_ns()
        self._waiting |= come
        self._waiting -= gone
        if sequence:
            self._head.committed(sequence, ended // 1_000_000)
        if self._is_fresh:
            self._is_fresh = False
            return 0
        return (ended - started) // 1_000

    def _keep_mail_only(self, merged: Merged) -> tuple[set[int], set[int]]:
        """Leave of the changes to operations those that concern mail: it is on disk whatever becomes of the others.

        Returns the numbers that come to the disk and go from it once these changes are committed.
        """
        come: set[int] = set()
        gone: set[int] = set()
        changed = dict(merged.operations)
        changed.update(dict.fromkeys(merged.acceptances))
        merged.operations.clear()
        merged.acceptances.clear()
        merged.moves.clear()
        merged.answers.clear()
        for number, record in changed.items():
            if record is not None and record.state is OperationState.QUEUED:
                merged.operations[number] = record
                come.add(number)
            elif number in self._waiting:
                merged.operations[number] = None
                gone.add(number)
        return come, gone

    def _is_elsewhere(self) -> bool:
        """Tell whether the file is at its path no more; raises ``CommitFailed`` while nobody may look there."""
        try:
            return _file_id(self._database) != self._file
        except OSError as error:
            raise CommitFailed(f"{self._database} cannot be reached ({error.strerror})", final=False) from error

    def _rolled_back(self) -> bool:
        """Undo what is left of a failed transaction; tell whether the connection can be used again."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            return False
        return not self._connection.in_transaction


def _with_true_journal(connection: sqlite3.Connection, identity: Identity, paths: Paths) -> Identity:
    """Give the journal a new id when the head file knows of a later state of it: an older copy was put back."""
    head = read_head(paths.head)
    if head is None or head.journal_id != identity.journal_id or head.seq <= last_sequence(connection):
        return identity
    journal_id = str(uuid4())
    connection.execute("UPDATE meta SET value = ? WHERE key = 'journalId'", (journal_id,))
    return replace(identity, journal_id=journal_id, was_restored=True)


def examine(paths: Paths, key: bytes, *, at_once: bool = True) -> Identity:
    """Judge the database before anything in it is changed; raises ``StoreUnusable`` or errors of SQLite.

    Unless ``at_once``, the pages of a store with many operations are left to who reads these back: until then nobody
    sends, and whoever registers need not wait for it.
    """
    size = judge_beginning(paths.database)
    connection = read_only(paths.database)
    try:
        identity = read_identity(connection, paths.database, key)
        if at_once or identity.version < schema.version() or not are_many(connection):
            expect_sound(connection)
        (page_size,) = connection.execute("PRAGMA page_size").fetchone()
        if size % page_size and not has_log(paths.database):
            raise StoreUnusable("corrupt", f"{paths.database} was cut off: it ends within a page")
        return identity
    finally:
        connection.close()


def _connect(paths: Paths) -> sqlite3.Connection:
    # The holder of the home's lock is alone: SQLite locks the file once and keeps the index of the log in memory,
    # instead of taking six locks a commit. A further connection of this process needs the same vfs.
    connection = sqlite3.connect(
        f"{paths.database.as_uri()}?mode=rw&vfs=unix-excl",
        uri=True,
        isolation_level=None,  # transactions are begun and ended here, never by the module
        check_same_thread=False,
        timeout=OPEN_BUSY_MS / 1_000,
    )
    try:
        connection.text_factory = text_or_bytes
        (journal,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if journal != "wal":
            raise StoreUnusable("unreadable", f"the file system of {paths.home} cannot hold a write-ahead log")
        for pragma in (
            f"busy_timeout = {BUSY_MS}",
            "synchronous = FULL",
            "secure_delete = ON",
            f"wal_autocheckpoint = {CHECKPOINT_PAGES}",
            f"cache_size = -{CACHE_KIB}",
            "temp_store = MEMORY",
        ):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        # What reading the log before left of an index in a file is of no use to anybody, now that nobody else has it.
        beside(paths.database, "-shm").unlink(missing_ok=True)
    except BaseException:
        connection.close()
        raise
    return connection


def _file_id(path: str) -> tuple[int, int] | None:
    """Return what the kernel knows a file by, or None when there is none; raises ``OSError`` when it does not say."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino
