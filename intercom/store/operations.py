"""Read the operations back: at a start those that a new broker must know at once, page by page all others.

A table holds up to hundreds of thousands of rows, nearly all of them *settled*: accepted, and no question behind them
is open. They only serve to know a message that is sent again, so nobody waits for them but who sends.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from intercom.core.records import OperationRecord, OperationsPage, OperationState, ReadOperations
from intercom.limits import RECALL_ROWS
from intercom.store.failures import StoreUnusable
from intercom.store.rows import OPERATION_COLUMNS, Row, operation_from_row

_OPEN = "state IS NOT 'accepted' OR (question_asker IS NOT NULL AND question_answered IS NOT 1)"
"""What is not settled, or cannot be judged."""
_LOOKED_UP = "message_id IN (SELECT inbox_id FROM inbox UNION SELECT correlation FROM dispatches)"
"""What is looked up by other rows when they are entered."""


class LoadedOperations(Struct, frozen=True):
    """Hold what was read of the operations at a start."""

    records: list[OperationRecord]
    damaged: set[str]
    """Message ids whose rows cannot be read."""
    stale: list[int]
    """Numbers of rows to delete: expired, or replaced by a later row of the same message id."""
    last_number: int
    left_until: int
    """Up to this number settled rows were left for ``read_operations``; 0: everything was read."""


def load_operations(connection: sqlite3.Connection, now_ms: int, ttl_ms: int, *, whole: bool) -> LoadedOperations:
    """Read all rows of a small table, else, unless ``whole``, only those that somebody may need at once.

    Raises ``StoreUnusable`` when a row does not tell which message id it is about.
    """
    (last,) = connection.execute("SELECT COALESCE(MAX(number), 0) FROM operations").fetchone()
    if whole or not are_many(connection):
        rows = connection.execute(f"SELECT {OPERATION_COLUMNS} FROM operations ORDER BY number").fetchall()
        newest, left_until = {row[1]: row[0] for row in rows}, 0
    else:
        (others,) = connection.execute(
            "SELECT EXISTS (SELECT 1 FROM inbox) OR EXISTS (SELECT 1 FROM dispatches)"
        ).fetchone()
        needed = f"{_OPEN} OR {_LOOKED_UP}" if others else _OPEN
        rows = connection.execute(
            f"SELECT {OPERATION_COLUMNS} FROM operations WHERE {needed} ORDER BY number"
        ).fetchall()
        newest, left_until = _newest(connection, needed) if rows else {}, last
    records, damaged, stale = _judged(rows, newest, now_ms, ttl_ms)
    return LoadedOperations(records, damaged, stale, last, left_until)


def are_many(connection: sqlite3.Connection) -> bool:
    """Tell whether there are so many that some of them are left for ``read_operations``."""
    return connection.execute("SELECT 1 FROM operations LIMIT 1 OFFSET ?", (RECALL_ROWS,)).fetchone() is not None


def read_operations(connection: sqlite3.Connection, request: ReadOperations) -> OperationsPage:
    """Read rows of any kind that were there at the start; raises ``StoreUnusable`` as ``load_operations`` does."""
    rows = connection.execute(
        f"SELECT {OPERATION_COLUMNS} FROM operations WHERE number > ? AND number <= ? ORDER BY number LIMIT ?",
        (request.after, request.until, request.limit),
    ).fetchall()
    newest = {row[1]: row[0] for row in rows}
    records, damaged, stale = _judged(rows, newest, request.now_ms, request.ttl_ms)
    return OperationsPage(records, damaged, stale, request.until if len(rows) < request.limit else rows[-1][0])


def _newest(connection: sqlite3.Connection, needed: str) -> dict[str, int]:
    """Return the number of the latest row of each message id that a row which is needed has."""
    return dict(
        connection.execute(
            "SELECT message_id, MAX(number) FROM operations "
            f"WHERE message_id IN (SELECT message_id FROM operations WHERE {needed}) GROUP BY message_id"
        )
    )


def _judged(
    rows: Iterable[Row], newest: dict[str, int], now_ms: int, ttl_ms: int
) -> tuple[list[OperationRecord], set[str], list[int]]:
    records: list[OperationRecord] = []
    damaged: set[str] = set()
    stale: list[int] = []
    for row in rows:
        number, message_id, reserved_at = row[0], row[1], row[8]
        if type(message_id) is not str:
            # Any message might be the one this row is about, so none could be sent safely.
            raise StoreUnusable("corrupt", f"row {number} of the operations does not hold its message id")
        if newest.get(message_id) != number:
            stale.append(number)
            continue
        record = operation_from_row(row)
        if type(reserved_at) is int and reserved_at + ttl_ms < now_ms and not _outlives(record, now_ms):
            stale.append(number)
        elif record is None:
            damaged.add(message_id)
        else:
            records.append(_not_later_than(record, now_ms))
    return records, damaged, stale


def _outlives(record: OperationRecord | None, now_ms: int) -> bool:
    if record is None:
        return False
    if record.state is OperationState.QUEUED:
        return True
    question = record.question
    return (
        record.state is OperationState.ACCEPTED
        and question is not None
        and not question.answered
        and question.deadline > now_ms
    )


def _not_later_than(record: OperationRecord, now_ms: int) -> OperationRecord:
    accepted_at = record.accepted_at
    if record.reserved_at <= now_ms and (accepted_at is None or accepted_at <= now_ms):
        return record
    return replace(
        record,
        reserved_at=min(record.reserved_at, now_ms),
        accepted_at=None if accepted_at is None else min(accepted_at, now_ms),
    )
