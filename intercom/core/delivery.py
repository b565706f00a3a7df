"""Carry out a send that was decided about: reserve, forward, accept, answer (protocol 4.8 D15 to D18, 6.9, 6.10).

    D15 reserve --commit--> D17 forward --kernel took it--> finish --commit--> delivered
         |                     |               |
         |                     |               +-- the target confirms receipts: wait for `received`
         |                     +-- not written: forget, Session not found
         +-- commit failed: withdraw, Not recorded

Rule 1: every move of a message is in this file; the rows it moves are in ``operations``. Rule 2: an illegal move
changes nothing.
"""

from __future__ import annotations

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from intercom.core.asking import Asking
from intercom.core.attempts import NOT_FOUND_CODE, AnswerTaken, Attempt, Refusal
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.deadlines import Deadlines, Timeouts
from intercom.core.features import QUEUE
from intercom.core.mailing import Mailing
from intercom.core.operation import Operation
from intercom.core.operations import Operations
from intercom.core.outbox import Outbox
from intercom.core.owners import OwnerRequest
from intercom.core.questions import Question
from intercom.core.queueing import Queueing
from intercom.core.receipts import Receipts, Unconfirmed
from intercom.core.records import SessionState
from intercom.core.sessions import Session
from intercom.core.supervision import Crossings
from intercom.limits import Limits
from intercom.wire import reasons
from intercom.wire.frames import (
    Delivered,
    DeliveryFailed,
    Message,
    MessageFrame,
    QuestionTarget,
    Queued,
    Received,
    Send,
    SupervisorSend,
    trim,
)


class Delivery:
    """Carry messages to their recipients, and say what became of them."""

    def __init__(
        self,
        operations: Operations,
        receipts: Receipts,
        asking: Asking,
        crossings: Crossings,
        deadlines: Deadlines,
        limits: Limits,
        outbox: Outbox,
        queueing: Queueing,
        mailing: Mailing,
    ) -> None:
        self._queueing = queueing
        self._mailing = mailing
        self._operations = operations
        self._receipts = receipts
        self._asking = asking
        self._crossings = crossings
        self._limits = limits
        self._until_missing = Timeouts(deadlines, limits.receipt_wait_ms, self._receipt_missing)
        busy_ms = min(limits.busy_ms, limits.receipt_wait_ms)
        self._until_busy = Timeouts(deadlines, busy_ms, self._receipt_missing)
        self._outbox = outbox
        operations.on_expiry = self._operation_expired

    # --- reserve and forward ----------------------------------------------------------------------------

    def carry(
        self,
        connection: Connection,
        sender: Session,
        target: Session,
        frame: Send,
        message: Message,
        signature: bytes,
        operation: Operation | None,
        answered: Question | None,
        request: OwnerRequest | None,
        now: Instant,
    ) -> Refusal | None:
        """Charge, reserve (D15), tell who will answer (D16) and forward behind the commit (D17).

        ``answered`` is the open question of the recipient that this answers. Such an answer is not refused because of
        the messages the recipient has not confirmed: it asked for no more answers than it may have questions open.
        """
        is_ask = message.expects_reply is True
        if is_ask and operation is None and (refusal := self._asking.refusal(sender)) is not None:
            return refusal
        channel = "supervisor" if type(frame) is SupervisorSend else UNSET
        sender_info = sender.encoded() if request is None else request.sender_info
        forwarded = MessageFrame(sender_info, frame.message, channel)  # type: ignore[arg-type]  # a literal
        earlier = None
        confirms = target.confirms_receipts or target.receipts_by_habit
        if confirms:
            earlier = self._receipts.find(target.target_identity, message.id)
            if earlier is not None and request is not None and request.is_replaced:
                return None  # the frame is on its way, and the newest attempt is the one that is owed an answer
            size = len(forwarded.message) + len(forwarded.sender)
            if earlier is None and answered is None and not self._receipts.has_room(target.target_identity, size):
                reason = reasons.capacity(
                    "too many messages wait for the recipient's receipt", self._limits.receipt_wait_ms
                )
                return Refusal("D15", reason)
        if operation is None:
            retry_after = self._operations.retry_after_ms(sender.sender_identity, now)
            if retry_after is not None:
                return Refusal("D15", reasons.capacity("too many recent messages are remembered", retry_after))

        attempt = Attempt.of(connection, sender, target, frame, message)
        if request is not None:
            attempt.is_withdrawn = request.is_withdrawn
        if frame.valid_for is not UNSET:
            attempt.valid_until = Instant(now.mono + frame.valid_for, now.wall + frame.valid_for)
            if QUEUE in target.features:
                forwarded.valid_until = attempt.valid_until.wall
        if is_ask:
            self._asking.begin(attempt)
        if operation is None:
            ask_ms = self._ask_ms(target) if is_ask else 0
            operation = self._operations.reserve(
                message.id, signature, sender, target.target_identity, target.id, is_ask, ask_ms, now
            )
            operation.under_way = attempt
            self._operations.append_reservation(operation, self._undo_reservation, attempt)
        elif is_ask:
            self._operations.renew_question(operation, self._ask_ms(target), now)
        attempt.operation = operation
        if confirms:
            attempt.awaits_receipt = True
            forwarded = self._await_receipt(attempt, operation, forwarded, earlier, now)
        if attempt.resolves_target and is_ask:
            self._tell_question_target(attempt, target, operation.ticket)
        if answered is not None and answered.target_id != sender.id:
            self._tell_who_answers(sender, target, answered, operation.ticket)
        operation.copies += 1
        if not self._outbox.write(target.connection, forwarded, operation.ticket, attempt):
            self.frame_lost(attempt, now)
        return None

    def _ask_ms(self, target: Session) -> int:
        """Return how long a question to this target stays open: the person answers when there is time."""
        if target.address is not None and target.address.is_of_broker:
            return self._limits.mail_ttl_ms
        return self._limits.ask_ms

    def _await_receipt(
        self, attempt: Attempt, operation: Operation, frame: MessageFrame, earlier: Unconfirmed | None, now: Instant
    ) -> MessageFrame:
        """Register the wait before the frame is written; a retry takes the earlier attempt's place (6.10)."""
        if earlier is not None:
            self._replace(earlier, attempt)
            unconfirmed = earlier
            self._receipts.renew(unconfirmed, _copy(frame, unconfirmed.frame.message))
            if unconfirmed.timeouts is not None:
                unconfirmed.timeouts.cancel(unconfirmed)
        else:
            unconfirmed = Unconfirmed(operation, _copy(frame, frame.message.copy()), attempt)
            self._receipts.add(unconfirmed)
        target = attempt.target
        if target.is_remote:
            operation.posted_to = target.at_peer
        may_wait = attempt.may_queue and target.mailbox is not None and not target.is_remote
        timeouts = self._until_busy if target.receipts_by_habit or may_wait else self._until_missing
        timeouts.add(unconfirmed, now)
        unconfirmed.timeouts, unconfirmed.since = timeouts, now.mono
        return unconfirmed.frame

    def _replace(self, unconfirmed: Unconfirmed, attempt: Attempt) -> None:
        unconfirmed.waiter.settle()
        unconfirmed.waiter = attempt

    def _tell_question_target(self, attempt: Attempt, target: Session, after: int) -> None:
        if attempt.resolves_target and attempt.attempt_id is not UNSET:
            frame = QuestionTarget(attempt.message_id, attempt.attempt_id, target.id)
            self._outbox.write(attempt.connection, frame, after)

    def _tell_who_answers(self, sender: Session, asker: Session, question: Question, after: int) -> None:
        """Tell an asker that another session of the address than the one it asked answers (protocol 5.15)."""
        if QUEUE in asker.features:
            self._outbox.write(asker.connection, QuestionTarget(question.message_id, "", sender.id), after)

    # --- the fate of a forwarded frame ------------------------------------------------------------------

    def frame_taken(self, attempt: Attempt, now: Instant) -> None:
        """Go on after the kernel took the forwarded frame: finish, or wait for the receipt."""
        operation = attempt.operation
        assert operation is not None
        if operation.under_way is attempt:
            operation.under_way = None
        if not attempt.awaits_receipt:
            self._finish(attempt, attempt.target, now)

    def frame_lost(self, attempt: Attempt, now: Instant) -> None:
        """Take the reservation back when no copy of the frame has left or still may (D17, 6.10.3).

        Else the recipient's departure does not end the wait (6.10.9): it may have the message.
        """
        operation = attempt.operation
        assert operation is not None
        operation.copies -= 1
        if operation.copies:
            return
        operation.under_way = None  # the two hold each other, and nobody looks for such pairs among old objects
        newest = attempt
        if operation.unconfirmed is not None:
            newest = operation.unconfirmed.waiter
            self._receipts.remove(operation.unconfirmed)
        self._operations.forget(operation)
        code = NOT_FOUND_CODE if newest.pending_reply else UNSET
        self._fail(newest, reasons.SESSION_NOT_FOUND, code)

    def received(self, session: Session, frame: Received, now: Instant) -> bool:
        """Finish the delivery whose receipt this is (6.10.5); return whether there was one."""
        if not session.confirms_receipts:
            return False
        is_late = frame.out_of_date is True
        unconfirmed = self._receipts.find(session.target_identity, frame.message_id)
        if unconfirmed is not None:
            if not (is_late and self._expire(unconfirmed, now)):
                self._confirm(unconfirmed, session, now)
            return True
        return session.mailbox is not None and self._mailing.received(session, frame.message_id, now, is_late=is_late)

    def _expire(self, unconfirmed: Unconfirmed, now: Instant) -> bool:
        """End a message that its reader was shown after its time; return whether that can be (protocol 9.5.5)."""
        attempt, operation = unconfirmed.waiter, unconfirmed.operation
        until = attempt.valid_until
        if until is None or attempt.is_ask or (now.wall < until.wall and now.mono < until.mono):
            return False
        self._receipts.remove(unconfirmed)
        self._operations.forget(operation)
        self._fail(attempt, reasons.OUT_OF_DATE)
        return True

    def received_by_habit(self, session: Session, message_id: str, now: Instant) -> None:
        """Finish the delivery whose receipt this is, and await receipts of this session from now on (protocol 15.4)."""
        if not session.confirms_receipts:
            session.receipts_by_habit = True
        unconfirmed = self._receipts.find(session.target_identity, message_id)
        if unconfirmed is not None:
            self._confirm(unconfirmed, session, now)

    def resend_unconfirmed(self, session: Session, now: Instant) -> None:
        """Write everything this recipient has not confirmed again, oldest first (4.1 effect 8).

        Left out is what is not valid any more, and questions that were taken back. With a question whose asker left
        meanwhile goes that nobody waits for its answer.
        """
        if session.confirms_receipts:
            for unconfirmed in self._receipts.awaited_from(session.target_identity):
                waiter, operation = unconfirmed.waiter, unconfirmed.operation
                valid_until = waiter.valid_until
                if valid_until is not None and (valid_until.wall <= now.wall or valid_until.mono <= now.mono):
                    continue
                if operation.was_withdrawn:
                    continue
                if waiter.target.is_remote and not session.is_remote:
                    continue  # it may have been shown there
                operation.copies += 1
                frame = unconfirmed.frame
                if frame.valid_until is not UNSET and QUEUE not in session.features:
                    frame = replace(frame, valid_until=UNSET)
                self._outbox.write(session.connection, frame, operation.ticket, waiter)
                if waiter.is_ask and not self._may_wait_still(waiter):
                    self._asking.tell_withdrawn(waiter.sender.id, session, operation.message_id)

    def _may_wait_still(self, waiter: Attempt) -> bool:
        """Tell whether the asker of an ask is here, or may come back to it."""
        sender = waiter.sender
        known = sender.known
        return sender.connection.session is sender or (known is not None and known.state is not SessionState.CLOSED)

    def take_reply_for_receipt(self, sender: Session, asker: Session, reply_to: str, now: Instant) -> None:
        """Let a reply prove that the ask arrived, even when it overtakes the receipt."""
        if sender.confirms_receipts or sender.receipts_by_habit:
            unconfirmed = self._receipts.find(sender.target_identity, reply_to)
            if unconfirmed is not None and unconfirmed.waiter.sender is asker:
                self._confirm(unconfirmed, sender, now, by_reply=True)

    def _confirm(self, unconfirmed: Unconfirmed, recipient: Session, now: Instant, *, by_reply: bool = False) -> None:
        attempt = unconfirmed.waiter
        operation = unconfirmed.operation
        self._receipts.remove(unconfirmed)
        operation.under_way = None
        if attempt.is_waiting and attempt.is_ask and recipient.id != attempt.target.id:
            self._tell_question_target(attempt, recipient, operation.ticket)
        self._finish(attempt, recipient, now, by_reply=by_reply)

    def _receipt_missing(self, unconfirmed: Unconfirmed, now: Instant) -> None:
        unconfirmed.timeouts = None
        target = unconfirmed.waiter.target
        if target.receipts_by_habit:
            target.receipts_by_habit = False
            if unconfirmed.operation.under_way is None:
                # The kernel has the frame: that is all there was to know before the first receipt came.
                self._confirm(unconfirmed, target, now)
                return
        if not self._queueing.keep_unconfirmed(unconfirmed, now):
            self._fail(unconfirmed.waiter, reasons.RECEIPT_MISSING)

    def _operation_expired(self, operation: Operation) -> None:
        unconfirmed = operation.unconfirmed
        if unconfirmed is not None:
            self._receipts.remove(unconfirmed)
            self._fail(unconfirmed.waiter, reasons.RECEIPT_MISSING)

    # --- what another broker says ---------------------------------------------------------------------

    def confirmed_elsewhere(self, unconfirmed: Unconfirmed, now: Instant, by: Session | None = None) -> None:
        """Finish a delivery to a session on another machine, whose broker says that it has the message.

        ``by``: the session that has it, where that is not the one it was written to.
        """
        self._confirm(unconfirmed, unconfirmed.waiter.target if by is None else by, now)

    def queued_elsewhere(self, unconfirmed: Unconfirmed, position: int, place: str) -> None:
        """Say that the broker of another machine keeps a message for who is away; its row says where that is.

        Sent again it is looked for there, and what has become of it by then is the answer.
        """
        attempt = unconfirmed.waiter
        self._receipts.remove(unconfirmed)
        self._operations.keep_elsewhere(unconfirmed.operation, position, place)
        if attempt.reply_to is not UNSET:
            answered = self._queueing.open_question(attempt.target, attempt.sender, attempt.reply_to)
            if answered is not None:
                self._asking.close(answered)
        if attempt.is_waiting:
            attempt.settle()
            answer: Queued | Delivered = Queued(attempt.message_id, trim(attempt.wording), position, attempt.attempt_id)
            if not attempt.sender.knows_newest_frames:  # of a stage: the queue of the run has it (protocol 5.30)
                answer = Delivered(attempt.message_id, attempt.attempt_id)
            self._outbox.write(attempt.connection, answer)

    def refused_elsewhere(
        self, unconfirmed: Unconfirmed, reason: str, code: str | UnsetType, now: Instant, *, is_known: bool
    ) -> None:
        """Say why the broker of another machine refused a message; ``is_known``: it may have arrived all the same."""
        self._receipts.remove(unconfirmed)
        if not is_known:
            self._operations.forget(unconfirmed.operation)
        elif (told := reasons.in_doubt(reason)) != reason:
            reason, code = told, UNSET  # it was there, and may have the message
        self._fail(unconfirmed.waiter, reason, code)

    def address_left(self, key: str) -> None:
        """Let go of what the holder of an address that is on another machine by now was written and has not confirmed.

        It had its time to do so. Whoever sends it again reaches the newer holder; what may wait goes there as mail.
        """
        for unconfirmed in self._receipts.awaited_from(key):
            if not unconfirmed.waiter.target.is_remote:
                self._receipts.remove(unconfirmed)
                if unconfirmed.waiter.sender.is_remote:  # its own broker remembers that it may have arrived
                    self._operations.forget(unconfirmed.operation)
                self._fail(unconfirmed.waiter, reasons.RECEIPT_MISSING)

    # --- finish (D18) -----------------------------------------------------------------------------------

    def _finish(self, attempt: Attempt, recipient: Session, now: Instant, *, by_reply: bool = False) -> None:
        """Accept the operation, record what follows from it, and answer the sender behind the commit.

        A late receipt opens no question, because its asker was told that the outcome is uncertain (6.10.6); a reply
        that proves the arrival does (``by_reply``), because it is the answer.
        """
        operation, message_id, sender = attempt.operation, attempt.message_id, attempt.sender
        assert operation is not None
        if attempt.reply_to is not UNSET:
            attempt.closed = self._queueing.open_question(recipient, sender, attempt.reply_to)
        if attempt.closed is not None and not attempt.closed.operation.answered:
            attempt.marked = attempt.closed.operation
        ticket = self._operations.accept(operation, recipient, attempt.marked, self._undo_acceptance, attempt, now)
        if ticket is None:
            self._fail(attempt, reasons.NOT_CONFIRMED_DURABLY)
            return
        self._mailing.arrives_after_all(sender, message_id, now)
        is_asked = attempt.is_ask and not attempt.is_withdrawn and (attempt.is_waiting or by_reply)
        if is_asked and sender.connection.session is sender:
            self._asking.open(sender, recipient, operation, now)
        if attempt.closed is not None:
            self._asking.close(attempt.closed)
        if attempt.reply_to is not UNSET:
            self._queueing.replied(sender, attempt.reply_to, message_id, attempt.answer, now)
        if attempt.is_supervised and not self._crossings.allows(message_id, recipient.id, sender.id, now):
            self._crossings.record(message_id, sender.id, recipient.id, now)
            attempt.crossing = recipient.id
        if attempt.is_waiting:
            attempt.settle()
            attempt.was_delivered = True
            token = None if operation.is_ask else AnswerTaken(message_id, operation.number, attempt.connection.number)
            self._outbox.write(attempt.connection, Delivered(message_id, attempt.attempt_id), ticket, token)
        if is_asked:
            self._asking.settle_if_over(sender, recipient.id, message_id, now)

    def _fail(self, attempt: Attempt, reason: str, code: str | UnsetType = UNSET) -> None:
        if attempt.is_waiting:
            attempt.settle()
            answer = DeliveryFailed(attempt.message_id, reason, attempt.attempt_id, code)  # type: ignore[arg-type]  # the codes are literals
            self._outbox.write(attempt.connection, answer)

    # --- commits that failed ----------------------------------------------------------------------------

    def _undo_reservation(self, subject: object, now: Instant) -> None:
        """Withdraw a reservation; its frame was dropped before it left."""
        assert isinstance(subject, Attempt)
        operation = subject.operation
        assert operation is not None
        operation.under_way = None
        newest = subject
        if operation.unconfirmed is not None:
            newest = operation.unconfirmed.waiter
            self._receipts.remove(operation.unconfirmed)
        self._operations.withdraw(operation)
        self._fail(newest, reasons.NOT_RECORDED)

    def _undo_acceptance(self, subject: object, now: Instant) -> None:
        """Take everything back that rested on an acceptance, and tell the sender that it is not confirmed."""
        assert isinstance(subject, Attempt)
        operation, message_id = subject.operation, subject.message_id
        assert operation is not None
        self._operations.unaccept(operation, subject.marked)
        for question in operation.questions:
            self._asking.close(question)
        if subject.closed is not None:
            self._asking.reopen(subject.closed, now)
        if subject.crossing is not None:
            self._crossings.withdraw(message_id, subject.sender.id, subject.crossing)
        if subject.was_delivered:
            answer = DeliveryFailed(message_id, reasons.NOT_CONFIRMED_DURABLY, subject.attempt_id)
            self._outbox.write(subject.connection, answer)


def _copy(frame: MessageFrame, message: Raw) -> MessageFrame:
    """Return what is kept to be written again."""
    return MessageFrame(frame.sender, message, frame.channel, valid_until=frame.valid_until)
