"""Merge the changes of a batch, so that every row is written once, and write them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, TypeAlias, get_args

from intercom.core.records import (
    AcceptOperation,
    AnswerQuestion,
    Change,
    DropOperation,
    DropRetiredId,
    OperationRecord,
    RetiredIdRecord,
    SaveOperation,
    SaveRetiredId,
    accepted,
    answered,
)
from intercom.store.history import HistoryChange
from intercom.store.inserting import runs, spans
from intercom.store.rows import (
    ACCEPT_OPERATIONS,
    ANSWER_QUESTIONS,
    DROP_OPERATION,
    DROP_RETIRED,
    MOVE_OPERATIONS,
    SAVE_RETIRED,
    WRITERS,
    Row,
    retired_row,
    statement_for,
)

Batch: TypeAlias = Sequence[tuple[int, tuple[Change, ...]]]
"""Appends by ticket, oldest first."""


_OF_HISTORY = frozenset(get_args(HistoryChange))


class Merged:
    """Hold what a batch comes to; None stands for a row that is to be deleted."""

    __slots__ = ("acceptances", "answers", "history", "moves", "operations", "retired")

    def __init__(self) -> None:
        self.operations: dict[int, OperationRecord | None] = {}
        self.acceptances: dict[int, int] = {}
        """When rows were accepted that were saved by an earlier batch."""
        self.moves: dict[int, str] = {}
        """Who accepted those of them that were reserved for another session."""
        self.answers: dict[int, None] = {}
        """Likewise."""
        self.retired: dict[str, RetiredIdRecord | None] = {}
        self.history: list[HistoryChange] = []
        """In their order; the caller writes them."""

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to write."""
        return not (self.operations or self.acceptances or self.answers or self.retired or self.history)

    def write(self, cursor: sqlite3.Cursor) -> None:
        """Write everything but the history within the transaction of the caller."""
        executemany = cursor.executemany
        # Before the whole rows: what was saved or dropped after it was accepted stays as that left it.
        if self.acceptances:
            executemany(ACCEPT_OPERATIONS, spans(self.acceptances))
        if self.moves:
            executemany(MOVE_OPERATIONS, [(who, who, *span) for who, *span in spans(self.moves)])
        if self.answers:
            executemany(ANSWER_QUESTIONS, runs(self.answers))
        rows: dict[str, list[Row]] = {statement: [] for statement in (DROP_OPERATION, *WRITERS)}
        for number, record in self.operations.items():
            if record is None:
                rows[DROP_OPERATION].append((number,))
            else:
                statement = statement_for(record)
                rows[statement].append(WRITERS[statement](record))
        for statement, values in rows.items():
            if values:
                executemany(statement, values)
        if self.retired:
            retired = self.retired.items()
            executemany(SAVE_RETIRED, [retired_row(record) for _, record in retired if record is not None])
            executemany(DROP_RETIRED, [(session_id,) for session_id, record in retired if record is None])


def merge(batch: Batch) -> Merged | None:
    """Return what the changes of a batch come to, or None when there is nothing to write."""
    merged = Merged()
    operations, history = merged.operations, merged.history
    change: Any  # what it is, its class tells: ``isinstance`` asks the metaclass about what is not of such a class
    for _, changes in batch:
        for change in changes:
            kind = change.__class__
            if kind is SaveOperation:
                operations[change.record.number] = change.record
            elif kind is AcceptOperation:
                number = change.number
                if number not in operations:
                    merged.acceptances[number] = change.accepted_at
                    if change.recipient_session is not None:
                        merged.moves[number] = change.recipient_session
                elif (record := operations[number]) is not None:
                    operations[number] = accepted(record, change)
            elif kind in _OF_HISTORY:
                history.append(change)
            elif kind is AnswerQuestion:
                number = change.number
                if number not in operations:
                    merged.answers[number] = None
                elif (record := operations[number]) is not None:
                    operations[number] = answered(record)
            elif kind is DropOperation:
                operations[change.number] = None
            elif kind is SaveRetiredId:
                merged.retired[change.record.session_id] = change.record
            elif kind is DropRetiredId:
                merged.retired[change.session_id] = None
    return None if merged.is_empty else merged
