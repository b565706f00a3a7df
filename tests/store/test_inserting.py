"""Test that many rows are inserted with few calls, in their order."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from intercom.limits import ROWS_AT_ONCE
from intercom.store.inserting import Insert

SAVE = Insert("INSERT OR REPLACE INTO t (a, b) VALUES ", "(?, ?)")
CHANGE = Insert("INSERT INTO t (b, a) VALUES ", "(?, ?)", " ON CONFLICT (a) DO UPDATE SET b = excluded.b")


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)")
    yield connection
    connection.close()


@pytest.mark.parametrize("count", [0, 1, ROWS_AT_ONCE - 1, ROWS_AT_ONCE, ROWS_AT_ONCE + 1, 3 * ROWS_AT_ONCE + 2])
def test_every_row_is_there_and_takes_its_share_of_a_call(connection: sqlite3.Connection, count: int) -> None:
    before = connection.total_changes
    called: list[str] = []
    connection.set_trace_callback(called.append)
    SAVE.run(connection, [(number, f"row {number}") for number in range(count)])
    CHANGE.run(connection, [(f"new {number}", number) for number in range(count)])
    connection.set_trace_callback(None)
    assert connection.total_changes - before == 2 * count
    assert len([each for each in called if each.startswith("INSERT")]) == 2 * (
        count // ROWS_AT_ONCE + count % ROWS_AT_ONCE
    )
    found = connection.execute("SELECT a, b FROM t ORDER BY a").fetchall()
    assert found == [(number, f"new {number}") for number in range(count)]


def test_of_two_rows_with_one_key_the_later_counts(connection: sqlite3.Connection) -> None:
    SAVE.run(connection, [(1, str(number)) for number in range(ROWS_AT_ONCE + 1)])
    assert connection.execute("SELECT a, b FROM t").fetchall() == [(1, str(ROWS_AT_ONCE))]
