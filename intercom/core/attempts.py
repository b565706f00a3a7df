"""Hold what is known of one attempt to send, and how a refusal of one looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from intercom.core.features import QUEUE
from intercom.core.records import OperationState
from intercom.wire import reasons
from intercom.wire.frames import Message, Send, SupervisorSend, trim
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


class Brought(Send, tag="Brought"):
    """Be a send that another broker has brought, to a session or an address, whatever its sender called that."""

    wording: str = ""
    """What its sender called the target."""


def wording_of(frame: Send) -> str:
    """Return what the sender of a message called its target."""
    return (frame.wording if isinstance(frame, Brought) else "") or trim(frame.to)


def conflict_with(operation: Operation) -> str:
    """Say that the id of this row was used for something else, without claiming more of that than is known."""
    if operation.state is OperationState.QUEUED:
        return reasons.conflict_waiting(operation.message_id)
    return reasons.conflict(operation.message_id)


def of_repetition(refusal: Refusal, *, is_left_ask: bool) -> Refusal:
    """Return a refusal as it is told to who repeats a message that may have arrived: nothing of that is settled."""
    reason = reasons.in_doubt(refusal.reason, is_left_ask=is_left_ask)
    return refusal if reason == refusal.reason else Refusal(refusal.rule, reason, after=refusal.after)


def too_late(operation: Operation | None) -> str:
    """Say what is known of a message that is not valid any more and was sent again to learn what became of it."""
    return reasons.TOO_LATE if operation is None else reasons.RECEIPT_MISSING


def answer_to_task(message: Message) -> str | None:
    """Return the text of a message that answers the task of an invocation: it is the result of that."""
    reply_to = message.reply_to
    return message.content.text if isinstance(reply_to, str) and reply_to.startswith(RUN_PREFIX) else None


class Attempt(Struct, eq=False):
    """Hold one transport attempt of a send, until it was answered or replaced.

    It keeps nothing of the message but what decides about it: thousands may wait for a reader that does not read. It is
    a struct because one is made for every message: with so many members that takes a quarter of the time.
    """

    is_open = False
    """It is no question yet."""

    connection: Connection
    sender: Session
    target: Session
    message_id: str
    attempt_id: str | UnsetType
    reply_to: str | UnsetType
    answer: str | None
    """Its text, when it answers the task of an invocation."""
    is_ask: bool
    is_supervised: bool
    pending_reply: bool
    resolves_target: bool
    may_queue: bool
    """If the target leaves before it confirms, the message may wait for it."""
    wording: str
    asker_party: str
    target_party: str
    valid_until: Instant | None = None
    """When the message must not be handed over any more, by either clock."""
    operation: Operation | None = None
    waits: Waits | None = None
    """Where it is entered while it is the attempt of an ask that is under way."""
    awaits_receipt: bool = False
    """It finishes when the recipient has confirmed it, not when the kernel has taken it."""
    is_waiting: bool = True
    """The sender is owed an answer."""
    is_withdrawn: bool = False
    """The asker took the question back before it was open."""
    was_delivered: bool = False
    """The sender was answered ``delivered``, behind the commit of the acceptance."""
    closed: Question | None = None
    """The question this reply closed at its finish."""
    marked: Operation | None = None
    """The ask this reply marked as answered at its finish."""
    crossing: str | None = None
    """The supervisor to whom this finish recorded a crossing."""

    @classmethod
    def of(cls, connection: Connection, sender: Session, target: Session, frame: Send, message: Message) -> Attempt:
        """Return the attempt that this frame of a sender is."""
        return cls(
            connection,
            sender,
            target,
            message.id,
            frame.attempt_id,
            message.reply_to,
            None if message.reply_to is UNSET else answer_to_task(message),
            message.expects_reply is True,
            type(frame) is SupervisorSend,
            frame.require_pending_reply is True,
            frame.resolve_reply_target is True,
            frame.queue_if_away is True and QUEUE in sender.features,
            wording_of(frame),
            sender.party,
            target.party,
        )

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

    def settle(self) -> None:
        """Note that this attempt is owed no answer any more."""
        if self.is_waiting:
            self.is_waiting = False
            if self.waits is not None:
                self.waits.end(self)
                self.sender.asks_under_way -= 1


class AnswerTaken(Struct, frozen=True):
    """Mark a final answer: when the kernel took it the sender cannot need the row any more.

    It holds numbers, not what they stand for, so that the cyclic collector need not look at hundreds of thousands.
    """

    message_id: str
    number: int
    """Of the row."""
    connection: int
    """Of who has the answer, by its number."""


def said_before(frame: Send, waited_ms: int) -> Send:
    """Return the frame of a send that waited for so long: that time counts of how long it is valid (9.5.5)."""
    if frame.valid_for is UNSET:
        return frame
    return replace(frame, valid_for=max(0, frame.valid_for - waited_ms))
