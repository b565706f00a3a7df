"""Test the thread that brings what is in the log into the database."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from threading import Event

import pytest

from intercom.core.records import SaveBody
from intercom.limits import APPENDS_IN_PAGE, CHECKPOINT_AHEAD_PAGES, PAGES_OF_COMMIT
from intercom.paths import Paths
from intercom.store.checkpointer import Checkpointer
from intercom.store.database import Store

BOUND_S = 10
ENOUGH = CHECKPOINT_AHEAD_PAGES * APPENDS_IN_PAGE
"""Appends of one commit that ask for a checkpoint."""
LONG = b"x" * 20_000


@pytest.fixture
def checkpointer(paths: Paths) -> Iterator[Checkpointer]:
    checkpointer = Checkpointer(paths.database)
    yield checkpointer
    checkpointer.close(BOUND_S)


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + BOUND_S
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def test_the_database_gets_what_was_committed_while_the_store_is_open(
    paths: Paths, open_store: Callable[..., Store], checkpointer: Checkpointer
) -> None:
    """design 5: the log is worked in while commits go on; protocol 6.9.4: what was committed is there."""
    store = open_store()
    numbers = range(1, 20)
    for number in numbers:
        store.commit([(number, (SaveBody(number, LONG + str(number).encode()),))])
    before = paths.database.stat().st_size
    checkpointer.committed(ENOUGH)
    until(lambda: paths.database.stat().st_size > before)
    for number in range(20, 30):
        store.commit([(number, (SaveBody(number, LONG + str(number).encode()),))])
        checkpointer.committed(ENOUGH)
    checkpointer.close(BOUND_S)
    store.close()
    assert not paths.database.with_name(f"{paths.database.name}-wal").exists(), "the last who closes leaves no log"
    connection = open_store()._connection
    rows = connection.execute("SELECT number, message FROM bodies ORDER BY number").fetchall()
    assert rows == [(number, LONG + str(number).encode()) for number in range(1, 30)]


def test_few_pages_are_left_to_be(paths: Paths, open_store: Callable[..., Store], checkpointer: Checkpointer) -> None:
    """design 5: a thread begins when it is worth it."""
    open_store()
    for _ in range(CHECKPOINT_AHEAD_PAGES // PAGES_OF_COMMIT - 1):
        checkpointer.committed(1)
    assert checkpointer._thread is None
    checkpointer.committed(1)
    assert checkpointer._thread is not None
    checkpointer.close(BOUND_S)
    assert not checkpointer._thread.is_alive()
    checkpointer.committed(ENOUGH)  # nobody is there to do it any more


def test_what_is_no_database_is_closed_at_once(
    paths: Paths, checkpointer: Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open connection that nobody holds is closed whenever, in any thread, and with a warning since Python 3.13."""
    connect, closed = sqlite3.connect, Event()

    class Connection(sqlite3.Connection):
        def close(self) -> None:
            super().close()
            closed.set()

    monkeypatch.setattr(sqlite3, "connect", lambda *args, **keywords: connect(*args, factory=Connection, **keywords))
    paths.database.write_bytes(b"no database, and longer than the header of one: " + LONG)
    checkpointer.committed(ENOUGH)
    assert closed.wait(BOUND_S)


def test_trouble_with_the_database_ends_nothing(
    paths: Paths, open_store: Callable[..., Store], checkpointer: Checkpointer
) -> None:
    """protocol 6.9.4: who commits finds out what is wrong with the disk."""
    paths.database.write_bytes(b"no database, and longer than the header of one: " + LONG)
    checkpointer.committed(ENOUGH)
    until(lambda: not checkpointer._wanted)
    paths.database.unlink()
    store = open_store()
    store.commit([(1, (SaveBody(1, LONG),))])
    before = paths.database.stat().st_size

    def is_done() -> bool:
        checkpointer.committed(ENOUGH)
        return paths.database.stat().st_size > before

    until(is_done)
