"""Read bodies and history in a thread of their own, on a connection of its own: memory holds neither."""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Condition, Thread
from typing import Any

from msgspec import Struct

from intercom.core.records import ReadBodies, ReadHistory, Reading, ReadOperations
from intercom.limits import BUSY_MS
from intercom.store.failures import StoreUnusable
from intercom.store.history import read_bodies, read_history, read_page
from intercom.store.loading import text_or_bytes
from intercom.store.operations import read_operations
from intercom.store.soundness import expect_sound


class Read(Struct, frozen=True):
    """Hold what came of one request; ``result`` is None when it could not be read."""

    request: Reading
    result: Any
    trouble: str | None = None


class Reader:
    """Answer requests in their order, with what is committed at that time.

    All methods are called from one thread; ``notify`` is called in the reader's after each answer.
    """

    def __init__(self, database: Path, notify: Callable[[], None]) -> None:
        self._database = database
        self._notify = notify
        self._condition = Condition()
        self._requests: deque[Reading] = deque()
        self._done: list[Read] = []
        self._closing = False
        self._thread: Thread | None = None

    def submit(self, request: Reading) -> None:
        """Queue a request."""
        with self._condition:
            if self._closing:
                return
            self._requests.append(request)
            if self._thread is None:
                self._thread = Thread(target=self._work, name="intercom-reader", daemon=True)
                self._thread.start()
            self._condition.notify()

    def done(self) -> Sequence[Read]:
        """Return what was read since the last call, in the order of the requests."""
        with self._condition:
            done, self._done = self._done, []
        return done

    def close(self, timeout_s: float) -> None:
        """End the thread; what was not read is forgotten."""
        with self._condition:
            self._closing = True
            self._requests.clear()
            self._condition.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _work(self) -> None:
        connection: sqlite3.Connection | None = None
        while True:
            with self._condition:
                while not self._requests and not self._closing:
                    self._condition.wait()
                if self._closing:
                    break
                request = self._requests.popleft()
            try:
                connection = connection or self._connect()
                read = Read(request, _answer(connection, request))
            except (OSError, sqlite3.Error, StoreUnusable) as error:
                read = Read(request, None, str(error))
                if connection is not None:
                    connection.close()
                    connection = None
            with self._condition:
                self._done.append(read)
            self._notify()
        if connection is not None:
            connection.close()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self._database.as_uri()}?mode=ro&vfs=unix-excl", uri=True, isolation_level=None, timeout=BUSY_MS / 1_000
        )
        connection.text_factory = text_or_bytes
        return connection


def _answer(connection: sqlite3.Connection, request: Reading) -> Any:
    if isinstance(request, ReadBodies):
        return read_bodies(connection, request.numbers)
    if isinstance(request, ReadHistory):
        return read_history(connection, request.stream)
    if isinstance(request, ReadOperations):
        if request.after == 0:  # the store was opened without this, for those who only register
            expect_sound(connection)
        return read_operations(connection, request)
    return read_page(connection, request.after, request.limit)
