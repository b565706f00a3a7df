"""Turn records into rows and rows into records; a row is judged when it is read (protocol 6.9.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from intercom.core.records import OperationRecord, OperationState, QuestionRecord, RetiredIdRecord

Row: TypeAlias = tuple[Any, ...]

_RESERVED_COLUMNS = (
    "number, message_id, state, signature, sender, target, sender_session, recipient_session, reserved_at"
)
_QUESTION_COLUMNS = (
    "question_asker, question_return, question_target, question_groups, question_deadline, question_answered"
)
OPERATION_COLUMNS = f"{_RESERVED_COLUMNS}, accepted_at, position, {_QUESTION_COLUMNS}"
RETIRED_COLUMNS = "session_id, return_hash, number, address"

_VALUES_OF_RESERVED = "?, ?, 'reserved', ?, ?, ?, ?, ?, ?"
SAVE_RESERVED = f"INSERT OR REPLACE INTO operations ({_RESERVED_COLUMNS}) VALUES ({_VALUES_OF_RESERVED})"
"""Save a reserved operation without a question; the other columns become NULL.

This and the next one are for every message. They bind no NULL: Python's module looks for somebody who adapts it, and
fails twice, which takes longer than all other columns.
"""
SAVE_ASKED = f"""
INSERT OR REPLACE INTO operations ({_RESERVED_COLUMNS}, {_QUESTION_COLUMNS})
    VALUES ({_VALUES_OF_RESERVED}, ?, nullif(?, ''), ?, ?, ?, 0)
"""
"""Save a reserved operation with an open question, likewise."""
SAVE_OPERATION = f"INSERT OR REPLACE INTO operations ({OPERATION_COLUMNS}) VALUES ({', '.join('?' * 17)})"
ACCEPT_OPERATIONS = "UPDATE operations SET state = 'accepted', accepted_at = ? WHERE number BETWEEN ? AND ?"
"""Accept successive rows: a third of the time of as many statements."""
MOVE_OPERATIONS = """
UPDATE operations SET recipient_session = ?, question_target = iif(question_asker IS NULL, NULL, ?)
WHERE number BETWEEN ? AND ?
"""
"""Write who accepted rows that were reserved for another session."""
ANSWER_QUESTIONS = """
UPDATE operations SET question_answered = 1 WHERE number BETWEEN ? AND ? AND question_asker IS NOT NULL
"""
DROP_OPERATION = "DELETE FROM operations WHERE number = ?"
SAVE_RETIRED = f"INSERT OR REPLACE INTO retired_ids ({RETIRED_COLUMNS}) VALUES (?, ?, ?, ?)"
DROP_RETIRED = "DELETE FROM retired_ids WHERE session_id = ?"

SIGNATURE_BYTES = 32
NOBODY = "unreadable"
"""Return hash of a retired id whose own cannot be read: no hash is equal to it, so the id is given to nobody."""

_RESERVED = OperationState.RESERVED
_STATES = {state.value: state for state in OperationState}
_NO_QUESTION = (None, None, None, None, None, None)


def statement_for(record: OperationRecord) -> str:
    """Return the statement that saves all of a record and binds the least."""
    if record.state is not _RESERVED or record.accepted_at is not None or record.position is not None:
        return SAVE_OPERATION
    if record.question is None:
        return SAVE_RESERVED
    return SAVE_OPERATION if record.question.answered else SAVE_ASKED


def operation_row(record: OperationRecord) -> Row:
    """Return the values for ``SAVE_OPERATION``."""
    question = record.question
    return (
        record.number,
        record.message_id,
        record.state.value,
        *reserved_row(record)[2:],
        record.accepted_at,
        record.position,
        *(_NO_QUESTION if question is None else _question_row(question)),
    )


def reserved_row(record: OperationRecord) -> Row:
    """Return the values for ``SAVE_RESERVED``."""
    return (
        record.number,
        record.message_id,
        bytearray(record.signature),  # bound at once; about bytes, a registry of adapters is asked
        record.sender,
        record.target,
        record.sender_session,
        record.recipient_session,
        record.reserved_at,
    )


def asked_row(record: OperationRecord) -> Row:
    """Return the values for ``SAVE_ASKED``."""
    question = record.question
    assert question is not None
    return (
        *reserved_row(record),
        question.asker_session,
        question.asker_return or "",
        question.target_session,
        question.sender_groups,
        question.deadline,
    )


WRITERS: dict[str, Callable[[OperationRecord], Row]] = {
    SAVE_RESERVED: reserved_row,
    SAVE_ASKED: asked_row,
    SAVE_OPERATION: operation_row,
}
"""What makes the values for each of the statements that save an operation."""


def operation_from_row(row: Row) -> OperationRecord | None:
    """Return the record of a row in the order of ``OPERATION_COLUMNS``, or None when the row is invalid."""
    number, message_id, state, signature, sender, target, sender_session, recipient_session = row[:8]
    reserved_at, accepted_at, position = row[8:11]
    known = _STATES.get(state) if type(state) is str else None
    if not (
        known is not None
        and _is_count(number)
        and type(message_id) is str
        and type(signature) is bytes
        and len(signature) == SIGNATURE_BYTES
        and _is_text(sender)
        and (target is None or _is_text(target))
        and _is_text(sender_session)
        and (recipient_session is None or _is_text(recipient_session))
        and _is_count(reserved_at)
        and (accepted_at is None or _is_count(accepted_at))
        and (position is None or _is_count(position))
    ):
        return None
    question = None
    if row[11:] != _NO_QUESTION:
        question = _question_from_row(row[11:])
        if question is None:
            return None
    return OperationRecord(
        number,
        message_id,
        known,
        signature,
        sender,
        target,
        sender_session,
        recipient_session,
        reserved_at,
        accepted_at,
        position,
        question,
    )


def retired_row(record: RetiredIdRecord) -> Row:
    """Return the values for ``SAVE_RETIRED``."""
    return (record.session_id, record.return_hash, record.number, record.address)


def retired_from_row(row: Row) -> RetiredIdRecord | None:
    """Return the record of a row in the order of ``RETIRED_COLUMNS``, or None when its session id is unreadable.

    A row that is damaged elsewhere still keeps everybody from taking its id.
    """
    session_id, return_hash, number, address = row
    if not _is_text(session_id):
        return None
    if return_hash is not None and not _is_text(return_hash):
        return_hash = NOBODY
    return RetiredIdRecord(
        session_id,
        return_hash,
        number if _is_count(number) else 0,
        address if _is_count(address) else None,
    )


def _question_row(question: QuestionRecord) -> Row:
    return (
        question.asker_session,
        question.asker_return,
        question.target_session,
        question.sender_groups,
        question.deadline,
        int(question.answered),
    )


def _question_from_row(columns: Row) -> QuestionRecord | None:
    asker, asker_return, target, groups, deadline, answered = columns
    if not (
        _is_text(asker)
        and (asker_return is None or _is_text(asker_return))
        and _is_text(target)
        and _is_text(groups)
        and _is_count(deadline)
        and answered in (0, 1)
        and type(answered) is int
    ):
        return None
    return QuestionRecord(asker, asker_return, target, groups, deadline, answered == 1)


def _is_text(value: object) -> bool:
    return type(value) is str and value != ""


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0
