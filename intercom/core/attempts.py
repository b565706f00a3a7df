"""Hold what is known of one attempt to send, and how a refusal of one looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from intercom.core.features import QUEUE
from intercom.core.records import OperationState
from intercom.wire import reasons
from intercom.wire.frames import Message, Send, SupervisorSend
from intercom.wire.invocations import RUN_PREFIX

if TYPE_CHECKING:
    from intercom.core.clock import Instant
    from intercom.core.connections import Connection
    from intercom.core.operation import Operation
    from intercom.core.questions import Question
    from intercom.core.sessions import Session
    from intercom.core.waits import Waits


CONFLICT_CODE = "message_id_conflict"
NOT_FOUND_CODE = "session_not_found"


class Refusal(Struct, frozen=True):
    """Say no: which rule of protocol 4.8, the sentence, the code, and the ticket the sentence rests on."""

    rule: str
    reason: str
    code: str | UnsetType = UNSET
    after: int = 0


def conflict_with(operation: Operation) -> str:
    """Say that the id of this row was used for something else, without claiming more of that than is known."""
    if operation.state is OperationState.QUEUED:
        return reasons.conflict_waiting(operation.message_id)
    return reasons.conflict(operation.message_id)


def too_late(operation: Operation | None) -> str:
    """Say what is known of a message that is not valid any more and was sent again to learn what became of it."""
    return reasons.TOO_LATE if operation is None else reasons.RECEIPT_MISSING


def answer_to_task(message: Message) -> str | None:
    """Return the text of a message that answers the task of an invocation: it is the result of that."""
    reply_to = message.reply_to
    return message.content.text if isinstance(reply_to, str) and reply_to.startswith(RUN_PREFIX) else None


class Attempt:
    """Hold one transport attempt of a send, until it was answered or replaced.

    It keeps nothing of the message but what decides about it: thousands may wait for a reader that does not read.
    """

    __slots__ = (
        "answer",
        "asker_party",
        "attempt_id",
        "awaits_receipt",
        "closed",
        "connection",
        "crossing",
        "is_ask",
        "is_supervised",
        "is_waiting",
        "is_withdrawn",
        "marked",
        "may_queue",
        "message_id",
        "operation",
        "pending_reply",
        "reply_to",
        "resolves_target",
        "sender",
        "target",
        "target_party",
        "valid_until",
        "waits",
        "was_delivered",
        "wording",
    )

    is_open = False
    """It is no question yet."""
    asker_party: str
    target_party: str

    def __init__(self, connection: Connection, sender: Session, target: Session, frame: Send, message: Message) -> None:
        self.connection = connection
        self.sender = sender
        self.target = target
        self.waits: Waits | None = None
        """Where it is entered while it is the attempt of an ask that is under way."""
        self.message_id = message.id
        self.attempt_id = frame.attempt_id
        self.reply_to = message.reply_to
        self.answer = None if message.reply_to is UNSET else answer_to_task(message)
        self.is_ask = message.expects_reply is True
        self.is_supervised = isinstance(frame, SupervisorSend)
        self.pending_reply = frame.require_pending_reply is True
        self.resolves_target = frame.resolve_reply_target is True
        self.may_queue = frame.queue_if_away is True and QUEUE in sender.features
        """If the target leaves before it confirms, the message may wait for it."""
        self.valid_until: Instant | None = None
        """When the message must not be handed over any more, by either clock."""
        self.wording = frame.to
        self.operation: Operation | None = None
        self.awaits_receipt = False
        """It finishes when the recipient has confirmed it, not when the kernel has taken it."""
        self.is_waiting = True
        """The sender is owed an answer."""
        self.is_withdrawn = False
        """The asker took the question back before it was open."""
        self.was_delivered = False
        """The sender was answered ``delivered``, behind the commit of the acceptance."""
        self.closed: Question | None = None
        """The question this reply closed at its finish."""
        self.marked: Operation | None = None
        """The ask this reply marked as answered at its finish."""
        self.crossing: str | None = None
        """The supervisor to whom this finish recorded a crossing."""

    @property
    def asker_id(self) -> str:
        """Return the session id of its sender."""
        return self.sender.id

    @property
    def target_id(self) -> str:
        """Return the session id of its target."""
        return self.target.id

    @property
    def dormant(self) -> bool:
        """Tell whether its sender has left, so that nobody waits now."""
        return self.sender.connection.session is not self.sender

    def begin_to_wait(self, waits: Waits) -> None:
        """Count the ask as one its sender has under way, until it is settled."""
        self.asker_party, self.target_party = self.sender.party, self.target.party
        self.sender.asks_under_way += 1
        self.waits = waits
        waits.begin(self)

    def settle(self) -> None:
        """Note that this attempt is owed no answer any more."""
        if self.is_waiting:
            self.is_waiting = False
            if self.waits is not None:
                self.waits.end(self)
                self.sender.asks_under_way -= 1


class AnswerTaken:
    """Mark a final answer: when the kernel took it the sender cannot need the row any more."""

    __slots__ = ("connection", "operation")

    def __init__(self, operation: Operation, connection: Connection) -> None:
        self.operation = operation
        self.connection = connection
