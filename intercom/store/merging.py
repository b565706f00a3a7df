"""Merge the changes of a batch, so that every row is written once, and write them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import TypeAlias

from intercom.core.records import (
    AcceptOperation,
    AnswerQuestion,
    Change,
    DropOperation,
    OperationRecord,
    RetiredIdRecord,
    SaveOperation,
    SaveRetiredId,
    accepted,
    answered,
)
from intercom.store.rows import (
    ACCEPT_OPERATION,
    ANSWER_QUESTION,
    DROP_OPERATION,
    DROP_RETIRED,
    SAVE_OPERATION,
    SAVE_PLAIN,
    SAVE_RETIRED,
    is_plain,
    operation_row,
    plain_row,
    retired_row,
)

Batch: TypeAlias = Sequence[tuple[int, tuple[Change, ...]]]
"""Appends by ticket, oldest first."""


class Merged:
    """Hold what a batch comes to; None stands for a row that is to be deleted."""

    __slots__ = ("acceptances", "answers", "operations", "retired")

    def __init__(self) -> None:
        self.operations: dict[int, OperationRecord | None] = {}
        self.acceptances: dict[int, AcceptOperation] = {}
        """Of rows that were saved by an earlier batch."""
        self.answers: dict[int, None] = {}
        """Likewise."""
        self.retired: dict[str, RetiredIdRecord | None] = {}

    def write(self, cursor: sqlite3.Cursor) -> None:
        """Write everything within the transaction of the caller."""
        executemany = cursor.executemany
        # Before the whole rows: what was saved or dropped after it was accepted stays as that left it.
        if self.acceptances:
            rows = [(one.recipient_session, one.accepted_at, number) for number, one in self.acceptances.items()]
            executemany(ACCEPT_OPERATION, rows)
        if self.answers:
            executemany(ANSWER_QUESTION, [(number,) for number in self.answers])
        saved = [record for record in self.operations.values() if record is not None]
        if plain := [plain_row(record) for record in saved if is_plain(record)]:
            executemany(SAVE_PLAIN, plain)
        if len(plain) < len(saved):
            executemany(SAVE_OPERATION, [operation_row(record) for record in saved if not is_plain(record)])
        if len(saved) < len(self.operations):
            executemany(DROP_OPERATION, [(number,) for number, record in self.operations.items() if record is None])
        if self.retired:
            retired = self.retired.items()
            executemany(SAVE_RETIRED, [retired_row(record) for _, record in retired if record is not None])
            executemany(DROP_RETIRED, [(session_id,) for session_id, record in retired if record is None])


def merge(batch: Batch, *, keeps_operations: bool) -> Merged | None:
    """Return what the changes of a batch come to, or None when there is nothing to write.

    Without ``keeps_operations`` only retired ids are kept.
    """
    merged = Merged()
    operations = merged.operations
    for _, changes in batch:
        for change in changes:
            if isinstance(change, SaveOperation):
                operations[change.record.number] = change.record
            elif isinstance(change, AcceptOperation):
                number = change.number
                if number not in operations:
                    merged.acceptances[number] = change
                elif (record := operations[number]) is not None:
                    operations[number] = accepted(record, change)
            elif isinstance(change, AnswerQuestion):
                number = change.number
                if number not in operations:
                    merged.answers[number] = None
                elif (record := operations[number]) is not None:
                    operations[number] = answered(record)
            elif isinstance(change, DropOperation):
                operations[change.number] = None
            elif isinstance(change, SaveRetiredId):
                merged.retired[change.record.session_id] = change.record
            else:
                merged.retired[change.session_id] = None
    if not keeps_operations:
        for changed in (operations, merged.acceptances, merged.answers):
            changed.clear()
    if operations or merged.acceptances or merged.answers or merged.retired:
        return merged
    return None
