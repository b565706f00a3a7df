"""Test that records survive their way through a row, and that a damaged row is told from a good one."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from intercom.core.records import OperationRecord, OperationState, RetiredIdRecord
from intercom.store import rows, schema
from tests.support import records

COLUMNS = rows.OPERATION_COLUMNS.split(", ")


def stored(record: OperationRecord) -> list[Any]:
    """Return the row of a record as it is read again."""
    return [bytes(value) if isinstance(value, bytearray) else value for value in rows.operation_row(record)]


@pytest.fixture(scope="module")
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.advance(connection, 0)
    yield connection
    connection.close()


@given(record=records.operations)
def test_operation_round_trip(connection: sqlite3.Connection, record: OperationRecord) -> None:
    connection.execute(rows.SAVE_OPERATION, rows.operation_row(record))
    row = connection.execute(
        f"SELECT {rows.OPERATION_COLUMNS} FROM operations WHERE number = ?", (record.number,)
    ).fetchone()
    assert rows.operation_from_row(row) == record
    connection.execute(rows.DROP_OPERATION, (record.number,))
    assert connection.execute("SELECT count(*) FROM operations").fetchone() == (0,)


@given(record=records.operations, reserved=st.booleans())
def test_operation_round_trip_by_the_shortest_statement(
    connection: sqlite3.Connection, record: OperationRecord, reserved: bool
) -> None:
    """A row that held more before holds nothing of it afterwards."""
    if reserved:
        record = replace(record, state=OperationState.RESERVED, accepted_at=None, position=None)
    whole = replace(record, accepted_at=1, position=1, question=records.question(asker_return="r", answered=True))
    connection.execute(rows.SAVE_OPERATION, rows.operation_row(whole))
    statement = rows.statement_for(record)
    connection.execute(statement, rows.WRITERS[statement](record))
    row = connection.execute(f"SELECT {rows.OPERATION_COLUMNS} FROM operations").fetchone()
    assert rows.operation_from_row(row) == record
    connection.execute(rows.DROP_OPERATION, (record.number,))


@pytest.mark.parametrize(
    ("changes", "statement"),
    [
        ({}, rows.SAVE_RESERVED),
        ({"question": records.question()}, rows.SAVE_ASKED),
        ({"question": records.question(answered=True)}, rows.SAVE_OPERATION),
        ({"accepted_at": 1}, rows.SAVE_OPERATION),
        ({"position": 1}, rows.SAVE_OPERATION),
        ({"state": OperationState.ACCEPTED}, rows.SAVE_OPERATION),
        ({"state": OperationState.QUEUED}, rows.SAVE_OPERATION),
    ],
)
def test_what_every_message_needs_binds_the_least(changes: dict[str, Any], statement: str) -> None:
    assert rows.statement_for(records.operation(1, **changes)) == statement


@given(record=records.retired_ids)
def test_retired_id_round_trip(connection: sqlite3.Connection, record: RetiredIdRecord) -> None:
    connection.execute(rows.SAVE_RETIRED, rows.retired_row(record))
    row = connection.execute(
        f"SELECT {rows.RETIRED_COLUMNS} FROM retired_ids WHERE session_id = ?", (record.session_id,)
    ).fetchone()
    assert rows.retired_from_row(row) == record
    connection.execute(rows.DROP_RETIRED, (record.session_id,))
    assert connection.execute("SELECT count(*) FROM retired_ids").fetchone() == (0,)


@pytest.mark.parametrize("state", list(OperationState))
def test_states_are_stored_by_name(state: OperationState) -> None:
    """Protocol 6.9.2."""
    assert rows.operation_row(records.operation(1, state=state))[COLUMNS.index("state")] == state.value


BAD_TEXT = (None, "", b"a", 1)
BAD_COUNT = (-1, 1.5, "1", b"1")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("number", value) for value in BAD_COUNT),
        *(("message_id", value) for value in (None, b"a", 1)),
        *(("state", value) for value in (None, "", "RESERVED", "deleted", 1, b"reserved")),
        *(("signature", value) for value in (None, "", b"", bytes(31), bytes(33), "x" * 32)),
        *(("sender", value) for value in BAD_TEXT),
        *(("target", value) for value in BAD_TEXT[1:]),
        *(("sender_session", value) for value in BAD_TEXT),
        *(("recipient_session", value) for value in BAD_TEXT[1:]),
        *(("reserved_at", value) for value in (None, *BAD_COUNT)),
        *(("accepted_at", value) for value in BAD_COUNT),
        *(("position", value) for value in BAD_COUNT),
        *(("question_asker", value) for value in BAD_TEXT),
        *(("question_return", value) for value in BAD_TEXT[1:]),
        *(("question_target", value) for value in BAD_TEXT),
        *(("question_groups", value) for value in BAD_TEXT),
        *(("question_deadline", value) for value in (None, *BAD_COUNT)),
        *(("question_answered", value) for value in (None, -1, 2, "1", 1.0)),
    ],
)
def test_damaged_operation_is_invalid(column: str, value: object) -> None:
    """Protocol 6.9.4: state, signature, non-negative integer times, non-empty strings."""
    row = stored(records.operation(1, question=records.question()))
    assert rows.operation_from_row(tuple(row)) is not None
    row[COLUMNS.index(column)] = value
    assert rows.operation_from_row(tuple(row)) is None


@pytest.mark.parametrize("column", [name for name in COLUMNS if name.startswith("question_")])
def test_question_without_its_other_fields_is_invalid(column: str) -> None:
    """Protocol 6.9.4: question fields both or neither."""
    row = stored(records.operation(1))
    assert rows.operation_from_row(tuple(row)) is not None
    whole = stored(records.operation(1, question=records.question(asker_return="r")))
    row[COLUMNS.index(column)] = whole[COLUMNS.index(column)]
    assert rows.operation_from_row(tuple(row)) is None


@pytest.mark.parametrize("session_id", [None, "", b"a", 1])
def test_retired_row_without_its_id_is_no_record(session_id: object) -> None:
    assert rows.retired_from_row((session_id, None, 1, None)) is None


@pytest.mark.parametrize("damaged", ["", b"\xff", 1])
def test_damaged_return_hash_opens_the_id_to_nobody(damaged: object) -> None:
    """Protocol 6.1: granted only if both registrations gave the same, present, return address."""
    assert rows.retired_from_row(("a", damaged, 1, None)) == RetiredIdRecord("a", rows.NOBODY, 1)


@pytest.mark.parametrize("damaged", [None, -1, "1", 0.5])
def test_retired_row_without_its_number_is_the_oldest(damaged: object) -> None:
    assert rows.retired_from_row(("a", "h", damaged, None)) == RetiredIdRecord("a", "h", 0)


@pytest.mark.parametrize("damaged", ["1", -1, 0.5, b"1"])
def test_retired_row_with_a_damaged_address_acted_under_none(damaged: object) -> None:
    assert rows.retired_from_row(("a", "h", 1, damaged)) == RetiredIdRecord("a", "h", 1)


def test_no_statement_numbers_its_placeholders() -> None:
    """Python from 3.12 on warns of numbered ones that are given a sequence, and refuses them from 3.14 on."""
    statements = [value for value in vars(rows).values() if isinstance(value, str) and "operations" in value]
    assert len(statements) > 5
    assert not [statement for statement in statements if re.search(r"\?\d", statement)]
