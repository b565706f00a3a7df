"""Test that many rows are written with few calls, in their order."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.limits import ROWS_AT_ONCE
from intercom.store.inserting import Insert, runs

SAVE = Insert("INSERT OR REPLACE INTO t (a, b) VALUES ", "(?, ?)")


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
    connection.set_trace_callback(None)
    assert connection.total_changes - before == count
    assert len([each for each in called if each.startswith("INSERT")]) == count // ROWS_AT_ONCE + count % ROWS_AT_ONCE
    found = connection.execute("SELECT a, b FROM t ORDER BY a").fetchall()
    assert found == [(number, f"row {number}") for number in range(count)]


def test_of_two_rows_with_one_key_the_later_counts(connection: sqlite3.Connection) -> None:
    SAVE.run(connection, [(1, str(number)) for number in range(ROWS_AT_ONCE + 1)])
    assert connection.execute("SELECT a, b FROM t").fetchall() == [(1, str(ROWS_AT_ONCE))]


@given(st.lists(st.integers(1, 30), min_size=1, unique=True))
def test_runs_hold_the_numbers_and_nothing_else(numbers: list[int]) -> None:
    """What is between two runs was not accepted."""
    found = runs(numbers)
    assert [number for first, last in found for number in range(first, last + 1)] == sorted(numbers)
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(found))
