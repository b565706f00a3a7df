from __future__ import annotations

import sqlite3
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from intercom.core.effects import Append
from intercom.core.records import (
    AcceptOperation,
    AnswerQuestion,
    Change,
    DropOperation,
    DropRetiredId,
    OperationRecord,
    OperationState,
    QuestionRecord,
    RetiredIdRecord,
    SaveOperation,
    SaveRetiredId,
)
from intercom.store import schema
from intercom.store.history import HistoryChange
from intercom.store.merging import merge
from intercom.store.rows import OPERATION_COLUMNS, RETIRED_COLUMNS, operation_from_row, retired_from_row
from intercom.testing.disk import MemoryDisk

NUMBERS = st.integers(1, 4)
SESSIONS = st.sampled_from(["a", "b"])
QUESTIONS = st.builds(
    QuestionRecord,
    asker_session=SESSIONS,
    asker_return=st.none() | st.just("hash"),
    target_session=SESSIONS,
    sender_groups=st.just('["g",[]]'),
    deadline=st.integers(0, 9),
    answered=st.booleans(),
)
RECORDS = st.builds(
    OperationRecord,
    number=NUMBERS,
    message_id=st.sampled_from(["m", "n"]),
    state=st.sampled_from(OperationState),
    signature=st.binary(min_size=32, max_size=32),
    sender=SESSIONS,
    target=st.none() | SESSIONS,
    sender_session=SESSIONS,
    recipient_session=st.none() | SESSIONS,
    reserved_at=st.integers(0, 9),
    accepted_at=st.none() | st.integers(0, 9),
    position=st.none() | st.integers(0, 9),
    question=st.none() | QUESTIONS,
)
CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(SaveOperation, RECORDS),
    st.builds(AcceptOperation, NUMBERS, st.none() | SESSIONS, st.integers(0, 1)),
    st.builds(AnswerQuestion, NUMBERS),
    st.builds(DropOperation, NUMBERS),
    st.builds(SaveRetiredId, st.builds(RetiredIdRecord, SESSIONS, st.none() | st.just("hash"), NUMBERS)),
    st.builds(DropRetiredId, SESSIONS),
)
APPENDS = st.lists(st.tuples(CHANGES) | st.tuples(CHANGES, CHANGES), max_size=8)


@given(st.lists(APPENDS, max_size=5))
def test_what_is_written_is_what_the_changes_one_by_one_come_to(batches: list[list[tuple[Change, ...]]]) -> None:
    """Design section 5, group commit: however appends fall into batches."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    disk = MemoryDisk()
    ticket = 0
    try:
        schema.advance(connection, 0)
        for appends in batches:
            batch = []
            for changes in appends:
                ticket += 1
                disk.commit(Append(ticket, changes))
                batch.append((ticket, changes))
            merged = merge(batch)
            assert (merged is None) == (not batch)
            if merged is not None:
                merged.write(connection.cursor())
        operations = connection.execute(f"SELECT {OPERATION_COLUMNS} FROM operations").fetchall()
        retired = connection.execute(f"SELECT {RETIRED_COLUMNS} FROM retired_ids").fetchall()
    finally:
        connection.close()
    assert {row[0]: operation_from_row(row) for row in operations} == disk.operations
    assert {row[0]: retired_from_row(row) for row in retired} == disk.retired


def test_every_kind_of_change_is_merged() -> None:
    """A change that no branch takes would be lost without a word."""
    of_operations = {SaveOperation, AcceptOperation, AnswerQuestion, DropOperation, SaveRetiredId, DropRetiredId}
    assert of_operations | set(get_args(HistoryChange)) == set(get_args(Change))
