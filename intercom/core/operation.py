"""Be one operation: a message id, its signature and fate, and what only this process knows of it (protocol 6.9)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

from intercom.core.records import OperationRecord, OperationState, QuestionRecord

if TYPE_CHECKING:
    from intercom.core.attempts import Attempt
    from intercom.core.mailboxes import Mail
    from intercom.core.questions import Question
    from intercom.core.receipts import Unconfirmed


class Standing(Enum):
    """Say what is known of a message id; of most nothing is, which None says (protocol 6.9.2)."""

    MATCH = "match"
    QUEUED = "queued"
    UNCERTAIN = "uncertain"
    MOVED = "moved"
    """The same send, which went to another target: its name meant that one then."""
    CONFLICT = "conflict"
    INVALID = "invalid"


class Operation(Struct, eq=False):
    """Hold one row and what only this process knows of it."""

    number: int
    message_id: str
    state: OperationState
    signature: bytes
    sender: str
    sender_session: str
    target: str | None
    recipient_session: str | None
    reserved_at: int
    is_ask: bool
    asker_return: str | None
    sender_groups: str
    born: int
    question_due: int
    expires: int
    accepted_at: int | None = None
    position: int | None = None
    """In the mailbox; of a reserved row in that at the broker of another machine, which said that it waits there."""
    answered: bool = False
    charge: int = 0
    ticket: int = 0
    """Of the last change; committed when the store is in step."""
    questions: tuple[Question, ...] = ()
    """Open questions this ask is behind."""
    unconfirmed: Unconfirmed | None = None
    """The frame that waits for its receipt."""
    copies: int = 0
    """Copies of its frame that have left, or still may."""
    mail: Mail | None = None
    """The mail that waits under its id."""
    under_way: Attempt | None = None
    """The attempt of this process whose frame is being written right now."""
    posted_to: str = ""
    """The other broker that may have it, while it is reserved."""
    answered_attempts: dict[tuple[str, str], tuple[int, str]] | None = None
    """Of what has waited here: the newest attempt of each process of another broker that was answered so."""

    @property
    def was_withdrawn(self) -> bool:
        """Tell whether its sender took the question back: its time is over before it began, on disk too."""
        return self.is_ask and self.question_due <= self.born

    @property
    def fate(self) -> str:
        """Return in a word what has become of it (protocol 9.6.3)."""
        if self.state is OperationState.QUEUED:
            return "offered" if self.mail is not None and self.mail.is_offered else "queued"
        if self.state is OperationState.ACCEPTED and (self.answered or not self.was_withdrawn):
            return "answered" if self.answered else "delivered"
        if self.was_withdrawn:
            return "withdrawn"
        if self.unconfirmed is not None:
            return "unconfirmed"
        if self.under_way is not None:
            return "reserved"
        return "uncertain" if self.position is None else "handed_on"

    def record(self) -> OperationRecord:
        """Return the row as it is stored."""
        question = None
        if self.is_ask:
            question = QuestionRecord(
                asker_session=self.sender_session,
                asker_return=self.asker_return,
                target_session=self.recipient_session or self.target or "",
                sender_groups=self.sender_groups,
                deadline=self.reserved_at + self.question_due - self.born,
                answered=self.answered,
            )
        return OperationRecord(
            self.number,
            self.message_id,
            self.state,
            self.signature,
            self.sender,
            self.target,
            self.sender_session,
            self.recipient_session,
            self.reserved_at,
            self.accepted_at,
            self.position,
            question,
        )
