"""Bring what is in the log into the database in a thread of its own, so that few commits have to wait for that.

A checkpoint writes and syncs a thousand pages, which takes as long as ten commits or more, and nobody is served
meanwhile. SQLite lets another connection do it while commits go on. What it leaves, as what came meanwhile, the commit
finds that fills the log up: that one is left with little to do.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path
from threading import Condition, Thread

from intercom.limits import APPENDS_IN_PAGE, BUSY_MS, CHECKPOINT_AHEAD_PAGES, PAGES_OF_COMMIT


class Checkpointer:
    """Begin a checkpoint whenever about CHECKPOINT_AHEAD_PAGES pages were committed.

    ``committed`` is called by one thread at a time. What goes wrong in a checkpoint is told to nobody: nothing is lost
    by it, and commits find out by themselves what is wrong with the disk.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._pages = 0
        """Committed since the last checkpoint was asked for, by an estimate."""
        self._condition = Condition()
        self._wanted = False
        self._closing = False
        self._thread: Thread | None = None

    def committed(self, appends: int) -> None:
        """Take note that so many appends were committed at once."""
        self._pages += PAGES_OF_COMMIT + appends // APPENDS_IN_PAGE
        if self._pages < CHECKPOINT_AHEAD_PAGES:
            return
        self._pages = 0
        with self._condition:
            if self._closing:
                return
            self._wanted = True
            if self._thread is None:
                # A daemon, so that a disk that never answers cannot keep the process from ending.
                self._thread = Thread(target=self._work, name="intercom-checkpoint", daemon=True)
                self._thread.start()
            self._condition.notify()

    def close(self, timeout_s: float) -> None:
        """End the thread, within ``timeout_s`` seconds if the disk answers."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _work(self) -> None:
        connection: sqlite3.Connection | None = None
        while True:
            with self._condition:
                while not self._wanted and not self._closing:
                    self._condition.wait()
                if self._closing:
                    break
                self._wanted = False
            try:
                connection = connection or self._connect()
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            except sqlite3.Error:
                if connection is not None:
                    connection.close()
                    connection = None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self._database.as_uri()}?mode=rw&vfs=unix-excl", uri=True, isolation_level=None, timeout=BUSY_MS / 1_000
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()
            raise
        return connection
