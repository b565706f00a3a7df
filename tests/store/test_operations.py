"""Read back at once what a new broker must know, and page by page the operations that are settled."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from intercom.core.records import OperationRecord, OperationState, ReadOperations
from intercom.limits import Limits
from intercom.store import operations, rows, schema
from intercom.store.failures import StoreUnusable
from intercom.store.loading import text_or_bytes
from intercom.store.operations import LoadedOperations, load_operations, read_operations
from tests.support.records import NOW, operation, question

TTL = Limits().operation_ttl_ms
ACCEPTED, QUEUED = OperationState.ACCEPTED, OperationState.QUEUED


@pytest.fixture
def table() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.text_factory = text_or_bytes
    schema.advance(connection, 0)
    yield connection
    connection.close()


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let four operations be many."""
    monkeypatch.setattr(operations, "RECALL_ROWS", 3)


def save(table: sqlite3.Connection, *records: OperationRecord) -> None:
    table.executemany(rows.SAVE_OPERATION, map(rows.operation_row, records))


def settled(number: int, **changes: object) -> OperationRecord:
    return operation(number, **{"state": ACCEPTED, "accepted_at": NOW, **changes})


def loaded(table: sqlite3.Connection, *, whole: bool = False) -> LoadedOperations:
    return load_operations(table, NOW, TTL, whole=whole)


def numbers(records: list[OperationRecord]) -> list[int]:
    return [record.number for record in records]


def pages(table: sqlite3.Connection, until: int, limit: int = 2) -> Iterator[list[int]]:
    after = 0
    while after < until:
        page = read_operations(table, ReadOperations(after, until, limit, NOW, TTL))
        yield numbers(page.records)
        after = page.last


def test_a_small_table_is_read_at_once(table: sqlite3.Connection) -> None:
    save(table, *map(settled, (1, 2, 3)))
    found = loaded(table)
    assert (numbers(found.records), found.left_until, found.last_number) == ([1, 2, 3], 0, 3)


def test_of_a_large_one_what_is_settled_is_left(table: sqlite3.Connection) -> None:
    """A question that was answered is settled, too."""
    open_question, answered = question(deadline=NOW + 1), question(deadline=NOW + 1, answered=True)
    save(
        table,
        settled(1),
        operation(2),
        settled(3, question=open_question),
        settled(4, question=answered),
        operation(5, state=QUEUED, position=1),
        settled(6),
    )
    found = loaded(table)
    assert (numbers(found.records), found.left_until, found.last_number) == ([2, 3, 5], 6, 6)
    assert list(pages(table, found.left_until)) == [[1, 2], [3, 4], [5, 6]]
    assert numbers(loaded(table, whole=True).records) == [1, 2, 3, 4, 5, 6]


def test_what_other_rows_name_is_read_at_once(table: sqlite3.Connection) -> None:
    save(table, *map(settled, (1, 2, 3, 4)))
    table.execute("INSERT INTO inbox (inbox_id) VALUES ('message-2')")
    table.execute("INSERT INTO dispatches (correlation) VALUES ('message-4')")
    assert numbers(loaded(table).records) == [2, 4]


def test_an_older_row_of_a_settled_id_is_stale(table: sqlite3.Connection) -> None:
    """What became of the message last counts, although only the older row would be read."""
    save(table, operation(1, "m"), settled(2, message_id="m"), *map(settled, (3, 4)))
    found = loaded(table)
    assert (found.records, found.stale, found.left_until) == ([], [1], 4)


def test_pages_end_where_the_start_found_the_end(table: sqlite3.Connection) -> None:
    save(table, *map(settled, (1, 2, 3, 4, 5)))
    assert list(pages(table, 4)) == [[1, 2], [3, 4]]


def test_pages_tell_what_had_its_time_and_what_is_damaged(table: sqlite3.Connection) -> None:
    save(table, settled(1, reserved_at=NOW - TTL - 1), settled(2), settled(3))
    table.execute("UPDATE operations SET sender = x'05' WHERE number = 2")
    page = read_operations(table, ReadOperations(0, 3, 10, NOW, TTL))
    assert (numbers(page.records), page.stale, page.damaged, page.last) == ([3], [1], {"message-2"}, 3)


@pytest.mark.parametrize("value", ["NULL", "x'00'", "CAST(x'ff' AS TEXT)"])
def test_a_message_id_that_is_no_text_closes_the_store_when_it_is_met(table: sqlite3.Connection, value: str) -> None:
    """Protocol 6.9.4: any message might be the one it is about; until it is met nobody sends."""
    save(table, *map(settled, (1, 2, 3, 4)))
    table.execute(f"UPDATE operations SET message_id = {value} WHERE number = 3")
    with pytest.raises(StoreUnusable):
        list(pages(table, loaded(table).left_until))


@pytest.mark.parametrize("value", ["NULL", "x'00'"])
def test_one_in_a_row_that_is_needed_closes_it_at_once(table: sqlite3.Connection, value: str) -> None:
    save(table, *map(settled, (1, 2, 4)), operation(3))
    table.execute(f"UPDATE operations SET message_id = {value} WHERE number = 3")
    with pytest.raises(StoreUnusable):
        loaded(table)
