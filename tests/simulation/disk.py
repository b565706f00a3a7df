"""Keep the real store on a disk that fills up, fails, hangs, and loses what was not synced when the power goes.

Everything is real but the moments: ``Store`` and ``Writer`` of the product write an SQLite database in a directory of
its own. A death copies the files as they are, which is what ``kill -9`` leaves: what was written is there, synced or
not. The loss of power in the middle of a commit leaves any part of the sectors that commit wrote; after a commit
nothing is lost, as long as the database syncs with every commit: otherwise all commits of that life are.
"""

from __future__ import annotations

import errno
import random
import shutil
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from unittest.mock import patch

from intercom.client import journalfile
from intercom.config import Durability
from intercom.core import recalling
from intercom.core.records import Change, Happened, Reading
from intercom.limits import Limits
from intercom.paths import Paths
from intercom.store import database, operations
from intercom.store.database import Batch, Store
from intercom.store.pair import beside
from intercom.store.reader import Read, Reader, _answer
from intercom.store.writer import Outcome, Writer
from tests.simulation.account import Broken
from tests.simulation.machine import Clock, Doom, Killed

Trouble = Literal["none", "full", "failing"]

_SECTOR_BYTES = 512
_LOG_HEAD_BYTES = 32
_FULL = 2
"""What SQLite calls a sync with every commit."""
_CHECKPOINT_PAGES = 24
"""So few that every world sees many checkpoints."""
_JOURNAL_BYTES = 1_500
"""So few that the journals of workers are written anew."""
_RECALL_ROWS = 4
"""So few that brokers start while operations are still to be read."""


class Disk:
    """Hold the home of one world through all lives of its brokers."""

    def __init__(self, place: Path, clock: Clock, chance: random.Random) -> None:
        self._place = place
        self._doom = Doom()
        self._chance = chance
        self.clock = clock
        self.trouble: Trouble = "none"
        self.lives = 0
        self.store: Store | None = None
        self._before: tuple[bytes, bytes, bytes | None] | None = None
        """What log, database and head held before the commit that is being made, if the broker is to die in it."""
        self._unsynced: tuple[bytes, ...] | None = None
        """What database and log held before the first commit that is not synced."""
        self.paths = self._new_place()

    def renew_doom(self) -> Doom:
        """Return what decides about the life of the next broker."""
        self._doom = Doom()
        return self._doom

    def open(self, limits: Limits, durability: Durability) -> Store:
        """Open the store for a new broker; raises ``StoreUnusable``."""
        self.store = Store.open(
            self.paths,
            self.clock.now.wall,
            durability=durability,
            limits=limits,
            before_commit=self._before_commit,
        )
        (synchronous,) = self.store._connection.execute("PRAGMA synchronous").fetchone()
        if synchronous < _FULL:
            self._unsynced = tuple(path.read_bytes() for path in (self.paths.database, self._log))
        return self.store

    def close(self) -> None:
        """Close the store as a broker that leaves does."""
        if self.store is not None:
            self.store.close()
            self.store = None

    def die(self, *, power_fails: bool) -> None:
        """Leave what a killed process leaves, or a machine that lost its power."""
        old, store, self.store = self.paths, self.store, None
        log = beside(old.database, "-wal")
        self.paths = self._new_place()
        for path in (old.database, old.key, log):
            if path.exists():
                shutil.copyfile(path, self.paths.home / path.name)
        if old.head.exists() and not (power_fails and self._chance.random() < 0.5):
            # Its name is changed without a sync: an older one, an empty one or none are as likely after a loss.
            shutil.copyfile(old.head, self.paths.head)
            if power_fails and self._chance.random() < 0.3:
                self.paths.head.write_bytes(b"")
        if self._before is not None:
            if self.paths.head.exists():  # it is written once a commit has returned, and this one has not
                self.paths.head.write_bytes(self._before[2] or b"")
            # Nothing of a commit reaches the database before all of it is in the log and synced.
            self.paths.database.write_bytes(self._before[1])
            self._tear(self._before[0], self._log, power_fails=power_fails)
        if power_fails and self._unsynced is not None:
            self.paths.database.write_bytes(self._unsynced[0])
            self._log.write_bytes(self._unsynced[1])
        if store is not None:
            store._connection.close()
        self._before = self._unsynced = None
        shutil.rmtree(old.home)

    def committed(self) -> None:
        """Take notice that a commit has returned; the process may die before it hears of it."""
        assert self.store is not None
        if self._before is not None:
            raise Killed
        self._doom.point()

    def _before_commit(self) -> None:
        if self.trouble == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        if self.trouble == "failing":
            raise OSError(errno.EIO, "Input/output error")
        self._doom.point()
        if self._doom.is_set and self._chance.random() < 0.3:
            head = self.paths.head.read_bytes() if self.paths.head.exists() else None
            self._before = (self._log.read_bytes(), self.paths.database.read_bytes(), head)

    def _tear(self, before: bytes, log: Path, *, power_fails: bool) -> None:
        """Keep of the last commit's sectors the first ones that were written, or any when the power went."""
        after = log.read_bytes()
        before = before.ljust(len(after), b"\0")
        places = [
            place
            for place in range(0, len(after), _SECTOR_BYTES)
            if before[place : place + _SECTOR_BYTES] != after[place : place + _SECTOR_BYTES]
        ]
        if power_fails:
            kept = {place for place in places if self._chance.random() < 0.8}
        else:
            kept = set(places[: self._chance.randint(0, len(places))])
        torn = bytearray(before)
        for place in kept:
            torn[place : place + _SECTOR_BYTES] = after[place : place + _SECTOR_BYTES]
        if kept:  # a new head of the log is synced before anything is written behind it
            torn[:_LOG_HEAD_BYTES] = after[:_LOG_HEAD_BYTES]
        log.write_bytes(bytes(torn))

    @property
    def _log(self) -> Path:
        return beside(self.paths.database, "-wal")

    def _new_place(self) -> Paths:
        self.lives += 1
        home = self._place / f"life-{self.lives}"
        home.mkdir(mode=0o700)
        return Paths(home)


class HandWriter(Writer):
    """Be the store's writer without its thread: the world says when the thread commits, and how fast the disk is."""

    def __init__(self, store: Store, disk: Disk, notify: Callable[[], None]) -> None:
        self.is_fast = True
        self._disk = disk
        self._sequence = 0
        """Of the last event that was to be written."""
        super().__init__(store, notify)

    @property
    def _fast(self) -> bool:  # type: ignore[override]
        return self.is_fast

    @_fast.setter
    def _fast(self, value: bool) -> None:
        """Measured times decide nothing here."""

    @property
    def has_work(self) -> bool:
        """Tell whether the thread has something to commit."""
        return self._wanted

    def submit(self, ticket: int, changes: tuple[Change, ...]) -> None:
        """Queue an append; events have to be numbered in the order in which they are committed."""
        for change in changes:
            if isinstance(change, Happened):
                if change.seq <= self._sequence:
                    raise Broken("watchers-see-all", f"event {change.seq} is written behind {self._sequence}: {change}")
                self._sequence = change.seq
        super().submit(ticket, changes)

    def work(self) -> None:
        """Do what the thread does next."""
        self._commit_queued()

    def close(self, timeout_s: float) -> bool:
        """Commit what is queued."""
        with self._condition:
            self._closing = True
            self._enqueue()
        self._commit_queued()
        return True

    def _wake_worker(self) -> None:
        """The world works."""

    def _commit(self, batch: Batch) -> Outcome:
        outcome = super()._commit(batch)
        self._disk.committed()
        return outcome


class HandReader(Reader):
    """Be the store's reader without its thread."""

    def __init__(self, database: Path, notify: Callable[[], None], disk: Disk) -> None:
        super().__init__(database, notify)
        self._requests: deque[Reading] = deque()
        self._disk = disk
        self._connection: sqlite3.Connection | None = None

    def submit(self, request: Reading) -> None:
        """Queue a request."""
        self._requests.append(request)

    @property
    def has_work(self) -> bool:
        """Tell whether something is to be read."""
        return bool(self._requests)

    def work(self) -> None:
        """Do what the thread does next."""
        request = self._requests.popleft()
        if self._disk.trouble == "failing":
            self._done.append(Read(request, None, "the disk failed"))
        else:
            self._connection = self._connection or self._connect()
            self._done.append(Read(request, _answer(self._connection, request)))
        self._notify()

    def done(self) -> Sequence[Read]:
        """Return what was read since the last call."""
        done, self._done = self._done, []
        return done

    def close(self, timeout_s: float) -> None:
        """Read nothing more."""
        self._requests.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None


@contextmanager
def hand_made_times(clock: Clock) -> Iterator[None]:
    """Let the store see the times of the world, few pages between checkpoints, and no thread at all."""
    with (
        patch.object(database, "perf_counter_ns", lambda: clock.now.mono * 1_000_000),
        patch.object(database, "CHECKPOINT_PAGES", _CHECKPOINT_PAGES),
        patch.object(operations, "RECALL_ROWS", _RECALL_ROWS),
        patch.object(recalling, "RECALL_ROWS", _RECALL_ROWS),
        patch.object(journalfile, "JOURNAL_SHORTENED_BYTES", _JOURNAL_BYTES),
        patch.object(threading.Thread, "start", side_effect=AssertionError("a thread in a world turned by hand")),
    ):
        yield
