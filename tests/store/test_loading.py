"""Test what a new broker gets to know of the time before it started."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from intercom.core.records import (
    DropRetiredId,
    OperationRecord,
    OperationState,
    Recovered,
    RetiredIdRecord,
    SaveOperation,
    SaveRetiredId,
)
from intercom.limits import Limits
from intercom.paths import Paths
from intercom.store import rows, schema
from intercom.store.database import Store, StoreUnusable
from intercom.store.loading import Loaded, load, text_or_bytes
from tests.support import records
from tests.support.records import NOW, operation, question

TTL = Limits().operation_ttl_ms


def loaded(*stored: OperationRecord, now_ms: int = NOW, damage: str | None = None) -> Loaded:
    """Load a table with these rows, after one statement has been run on it."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        connection.text_factory = text_or_bytes
        schema.advance(connection, 0)
        connection.executemany(rows.SAVE_OPERATION, map(rows.operation_row, stored))
        if damage is not None:
            connection.execute(damage)
        return load(connection, now_ms, TTL)
    finally:
        connection.close()


def numbers(result: Loaded) -> list[int]:
    return [record.number for record in result.recovered.operations]


def test_rows_come_in_order_of_their_numbers() -> None:
    stored = [operation(number) for number in (3, 1, 2)]
    result = loaded(*stored)
    assert result.recovered.operations == sorted(stored, key=lambda record: record.number)
    assert (result.stale, result.recovered.damaged, result.recovered.last_number) == ([], frozenset(), 3)


def test_empty_store() -> None:
    assert loaded() == Loaded(Recovered(), [])


@given(st.lists(records.operations, max_size=10))
def test_every_row_is_recovered_or_stale(stored: list[OperationRecord]) -> None:
    unique = list({record.number: record for record in stored}.values())
    result = loaded(*unique, now_ms=0)
    newest = {record.message_id: record.number for record in sorted(unique, key=lambda record: record.number)}
    assert numbers(result) == sorted(newest.values())
    assert sorted(numbers(result) + result.stale) == sorted(record.number for record in unique)
    assert result.recovered.last_number == max((record.number for record in unique), default=0)
    assert not result.recovered.damaged


# --- age ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [OperationState.RESERVED, OperationState.ACCEPTED])
def test_row_expires_with_its_time_to_live(state: OperationState) -> None:
    """Protocol 6.9.3: 12 minutes from the reservation; 6.9.2: older than the TTL is a miss."""
    row = operation(5, state=state, reserved_at=NOW - 12 * 60_000, accepted_at=NOW)
    assert numbers(loaded(row)) == [5]
    result = loaded(row, now_ms=NOW + 1)
    assert (numbers(result), result.stale, result.recovered.last_number) == ([], [5], 5)


def test_open_question_outlives_its_row() -> None:
    """Design section 5: a row whose question is open does not expire."""
    old: dict[str, Any] = {"reserved_at": NOW - TTL - 1}
    accepted, reserved = OperationState.ACCEPTED, OperationState.RESERVED
    due = question(deadline=NOW + 1)
    result = loaded(
        operation(1, state=accepted, question=due, **old),
        operation(2, state=accepted, question=question(deadline=NOW), **old),
        operation(3, state=accepted, question=replace(due, answered=True), **old),
        operation(4, state=reserved, question=due, **old),
        operation(5, state=accepted, **old),
    )
    assert numbers(result) == [1]
    assert result.stale == [2, 3, 4, 5]


def test_queued_mail_outlives_its_row() -> None:
    """Design section 7, queueing: the row lives as long as the mail."""
    assert numbers(loaded(operation(1, state=OperationState.QUEUED, position=1, reserved_at=0))) == [1]


def test_reservation_from_the_future_counts_as_made_now() -> None:
    """F106: after the clock was set back a row must not live until the clock has caught up."""
    ahead = operation(1, state=OperationState.ACCEPTED, reserved_at=NOW + 10 * TTL, accepted_at=NOW + 10 * TTL)
    expected = replace(ahead, reserved_at=NOW, accepted_at=NOW)
    assert loaded(ahead).recovered.operations == [expected]
    partly = operation(2, reserved_at=NOW - 5, accepted_at=NOW + 5)
    assert loaded(partly).recovered.operations == [replace(partly, accepted_at=NOW)]
    unaccepted = operation(3, reserved_at=NOW + 5)
    assert loaded(unaccepted).recovered.operations == [replace(unaccepted, reserved_at=NOW)]


# --- rows that should not be ----------------------------------------------------------------------------


def test_later_row_of_one_message_id_wins() -> None:
    result = loaded(operation(1, "a"), operation(2, "b"), operation(3, "a"))
    assert numbers(result) == [2, 3]
    assert result.stale == [1]


def test_later_row_wins_although_it_looks_older() -> None:
    result = loaded(operation(1, "a"), operation(2, "a", reserved_at=NOW - TTL - 1))
    assert numbers(result) == []
    assert result.stale == [1, 2]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE operations SET state = 'lost' WHERE number = 2",
        "UPDATE operations SET signature = x'00' WHERE number = 2",
        "UPDATE operations SET reserved_at = NULL WHERE number = 2",
        "UPDATE operations SET sender = CAST(x'ff' AS TEXT) WHERE number = 2",
        "UPDATE operations SET question_answered = 1 WHERE number = 2",
    ],
)
def test_damaged_row_costs_its_own_message_id_only(damage: str) -> None:
    """Protocol 6.9.4: such a row is invalid."""
    result = loaded(operation(1), operation(2, "damaged"), operation(3), damage=damage)
    assert numbers(result) == [1, 3]
    assert result.recovered.damaged == {"damaged"}
    assert (result.stale, result.recovered.last_number) == ([], 3)


def test_damaged_row_expires_too() -> None:
    old = operation(1, reserved_at=NOW - TTL - 1)
    result = loaded(old, damage="UPDATE operations SET state = 'lost'")
    assert (result.stale, result.recovered.damaged) == ([1], frozenset())


@pytest.mark.parametrize("value", ["NULL", "x'61'", "CAST(x'ff' AS TEXT)"])
def test_row_without_its_message_id_closes_the_store(value: str) -> None:
    with pytest.raises(StoreUnusable) as caught:
        loaded(operation(1), operation(2), damage=f"UPDATE operations SET message_id = {value} WHERE number = 2")
    assert caught.value.code == "corrupt"
    assert caught.value.reason == "row 2 of the operations does not hold its message id"


# --- in a file ------------------------------------------------------------------------------------------


def test_stale_rows_are_deleted_at_open(open_store: Callable[..., Store], paths: Paths) -> None:
    store = open_store()
    stored = (operation(1, "a"), operation(2, "a"), operation(3, "b", reserved_at=NOW - TTL - 1))
    store.commit([(1, tuple(map(SaveOperation, stored)))])
    store.close()
    store = open_store()
    assert [record.number for record in store.recovered.operations] == [2]
    assert store.recovered.last_number == 3
    store.close()
    connection = sqlite3.connect(paths.database)
    assert connection.execute("SELECT number FROM operations").fetchall() == [(2,)]
    connection.close()


def test_damaged_row_stays_in_the_store(open_store: Callable[..., Store], paths: Paths) -> None:
    store = open_store()
    store.commit([(1, (SaveOperation(operation(1, "a")),))])
    store.close()
    connection = sqlite3.connect(paths.database)
    connection.execute("UPDATE operations SET state = NULL")
    connection.commit()
    connection.close()
    for _ in range(2):
        store = open_store()
        assert store.recovered.damaged == {"a"}
        assert store.recovered.operations == []
        store.close()


def test_retired_ids_come_back_in_order(open_store: Callable[..., Store]) -> None:
    """Design section 7, addresses: a restart opens no door."""
    store = open_store()
    ids = [RetiredIdRecord("b", "h", 1), RetiredIdRecord("a", None, 2), RetiredIdRecord("c", "h", 3)]
    store.commit([(1, tuple(SaveRetiredId(record) for record in reversed(ids)))])
    store.commit([(2, (SaveRetiredId(RetiredIdRecord("b", "i", 4)), DropRetiredId("c"), DropRetiredId("no such")))])
    store.close()
    assert open_store().recovered.retired_ids == [ids[1], RetiredIdRecord("b", "i", 4)]


def test_memory_durability_reads_the_operations_once(open_store: Callable[..., Store]) -> None:
    """Design section 5: durability = "memory" concerns operations only."""
    store = open_store()
    store.commit([(1, (SaveOperation(operation(1)),))])
    store.close()
    store = open_store(durability="memory")
    assert len(store.recovered.operations) == 1
    changes: tuple[Any, ...] = (SaveOperation(operation(2)), SaveRetiredId(RetiredIdRecord("a", None, 1)))
    store.commit([(1, changes)])
    assert store.commit([(2, (SaveOperation(operation(3)),))]) == 0
    assert store.commit([(3, changes)]) > 0
    store.close()
    store = open_store()
    assert store.recovered == Recovered(retired_ids=[RetiredIdRecord("a", None, 1)])
