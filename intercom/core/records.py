"""Define what is stored: immutable records, and the changes an append makes to them."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace


class OperationState(str, Enum):
    """Name the states an operation can have on disk (protocol 6.9.2; queued: design section 7)."""

    RESERVED = "reserved"
    ACCEPTED = "accepted"
    QUEUED = "queued"


class QuestionRecord(Struct, frozen=True):
    """Describe the question an ask opened, as far as it must survive a restart."""

    asker_session: str
    asker_return: str | None
    """SHA-256 (hex) of the asker's return address."""
    target_session: str
    sender_groups: str
    """Sender group identity at the time of the ask (protocol 6.9.1)."""
    deadline: int
    """End of the question, epoch ms."""
    answered: bool = False


class OperationRecord(Struct, frozen=True):
    """Describe one operation: a message id with its signature and fate (protocol 6.9.4)."""

    number: int
    """Key of the row: grows with every reservation in the life of the store."""
    message_id: str
    state: OperationState
    signature: bytes
    """HMAC-SHA256 of the canonical text under the store's key, 32 bytes."""
    sender: str
    """Sender identity; a return address only as its SHA-256."""
    target: str | None
    """Target identity, likewise."""
    sender_session: str
    recipient_session: str | None
    reserved_at: int
    """Epoch ms."""
    accepted_at: int | None = None
    """Epoch ms."""
    position: int | None = None
    """Place in the mailbox, of a queued one."""
    question: QuestionRecord | None = None


class RetiredIdRecord(Struct, frozen=True):
    """Remember who may take a session id again (protocol 6.1)."""

    session_id: str
    return_hash: str | None
    """SHA-256 (hex) of the return address the id was registered with."""
    number: int
    """Order in which ids were remembered; the oldest are dropped first."""


class SaveOperation(Struct, frozen=True):
    """Insert the row, or replace the one with the same number."""

    record: OperationRecord


class AcceptOperation(Struct, frozen=True):
    """Move the reserved row with this number to accepted; a missing one is fine."""

    number: int
    recipient_session: str | None
    """Also the target of its question, when it has one."""
    accepted_at: int
    """Epoch ms."""


class AnswerQuestion(Struct, frozen=True):
    """Mark the question of the row with this number as answered; a missing one is fine."""

    number: int


class DropOperation(Struct, frozen=True):
    """Delete the row with this number; a missing one is fine."""

    number: int


class SaveRetiredId(Struct, frozen=True):
    """Insert or replace the row of this session id."""

    record: RetiredIdRecord


class DropRetiredId(Struct, frozen=True):
    """Delete the row of this session id; a missing one is fine."""

    session_id: str


Change: TypeAlias = SaveOperation | AcceptOperation | AnswerQuestion | DropOperation | SaveRetiredId | DropRetiredId
"""One change of one row. Changes of one append are committed together; appends in the order of their tickets."""


def accepted(record: OperationRecord, change: AcceptOperation) -> OperationRecord:
    """Return the row after it was accepted."""
    question = record.question
    if question is not None:
        question = replace(question, target_session=change.recipient_session or "")
    return replace(
        record,
        state=OperationState.ACCEPTED,
        recipient_session=change.recipient_session,
        accepted_at=change.accepted_at,
        question=question,
    )


def answered(record: OperationRecord) -> OperationRecord:
    """Return the row after its question was answered."""
    return record if record.question is None else replace(record, question=replace(record.question, answered=True))


class Recovered(Struct, frozen=True, kw_only=True):
    """Hold everything a new broker process reads from the store at start, in order of their numbers."""

    operations: list[OperationRecord] = []
    retired_ids: list[RetiredIdRecord] = []
    damaged: frozenset[str] = frozenset()
    """Message ids whose rows cannot be read: every operation under them is *invalid* (protocol 6.9.2)."""
    last_number: int = 0
    """Greatest number a row has, damaged and stale ones included; new rows take greater ones."""
