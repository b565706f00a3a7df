"""Park messages in the inbox, and end them there (protocol 10.2).

    a send to a worker, mail nobody came for --> parked --assigned--> assigned --given back--> parked, at its place
                                                   |                     +--the assignment ended--> (gone)
                                                   +--settled, its time is over, its text is lost--> (gone)

Rule 1: what becomes of a message and its row is one append with whatever caused it. Rule 2: nothing gives way to
another; a full inbox refuses. Rule 3: what was parked is given back without asking for room.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from intercom.core.attempts import Refusal, wording_of
from intercom.core.clock import Instant
from intercom.core.deadlines import Deadlines
from intercom.core.features import FOREGROUND, QUEUE
from intercom.core.inbox import Inbox, Parked
from intercom.core.journal import Journal
from intercom.core.ledger import Ledger
from intercom.core.mailing import GivenUp, Mailing
from intercom.core.move import Move
from intercom.core.outbox import Outbox
from intercom.core.records import (
    Change,
    InboxRecord,
    OperationState,
    ReleaseBody,
    SaveBody,
    SaveOperation,
)
from intercom.limits import PREVIEW_CODE_POINTS, Limits
from intercom.wire import notices, reasons
from intercom.wire.codec import parse_message
from intercom.wire.frames import DeliveryFailed, Message, Queued, Send, SupervisorSend
from intercom.wire.work import ClaimPolicy, ParkReason

if TYPE_CHECKING:
    from intercom.core.connections import Connection
    from intercom.core.lifecycle import Known
    from intercom.core.mailboxes import Mail
    from intercom.core.operation import Operation
    from intercom.core.operations import Operations
    from intercom.core.sessions import Session


class Meant(Struct, frozen=True):
    """Name for whom a message is parked."""

    session_id: str | None
    address: int | None
    groups: tuple[str, ...]


def meant_session(session: Session) -> Meant:
    """Return whom a message to a connected session is for."""
    return Meant(session.id, None if session.address is None else session.address.number, session.groups)


def meant_known(known: Known) -> Meant:
    """Return whom a message to a session that is away or closed is for."""
    return Meant(known.id, known.record.address, known.groups)


class Parking:
    """Move messages into the inbox and out of it."""

    def __init__(
        self,
        inbox: Inbox,
        operations: Operations,
        mailing: Mailing,
        journal: Journal,
        ledger: Ledger,
        deadlines: Deadlines,
        outbox: Outbox,
        limits: Limits,
    ) -> None:
        self._inbox = inbox
        self._operations = operations
        self._mailing = mailing
        self._journal = journal
        self._ledger = ledger
        self._deadlines = deadlines
        self._outbox = outbox
        self._limits = limits
        self.on_free: Callable[[Instant], None] = lambda now: None
        """Is told when there may be something to claim that was not there before."""
        self.on_overdue: Callable[[Parked, Instant], None] = lambda parked, now: None
        """Is told of each message whose time is over while somebody has it."""
        self.on_given_back: Callable[[Parked, Move, Instant], None] = lambda parked, move, now: None
        """Is told of each message that is free again, with what is appended."""
        self.on_leaving: Callable[[Parked, str, str, Move, Instant], None] = _tell_nobody
        """Is told of each message that leaves, with what is appended."""

    # --- sends to workers -------------------------------------------------------------------------------

    def reason_for(self, sender: Session, target: Session, frame: Send, message: Message) -> ParkReason | None:
        """Return why a send to a worker who is here is parked instead of written to it; None: it is written.

        Only what its sender lets wait is parked, and no question: somebody waits for its answer.
        """
        if not may_wait(sender, frame, message):
            return None
        sent = target.sent_ids
        if message.reply_to is UNSET or sent is None or message.reply_to not in sent:
            return "unaddressed"
        if target.is_headless or FOREGROUND in target.features:
            return None
        return "correlated_continuation"

    def park(
        self,
        connection: Connection,
        sender: Session,
        meant: Meant,
        identity: str,
        reason: ParkReason,
        frame: Send,
        message: Message,
        signature: bytes,
        now: Instant,
    ) -> Refusal | None:
        """Park a send whose message id is not known, and answer ``queued`` once that is on disk.

        ``identity`` is the target identity its row is bound to.
        """
        slot = self._inbox.get(message.id)
        info = sender.written()
        size = len(frame.message) + len(info)
        if slot is None and not self._inbox.has_room(size):
            return Refusal("D15", reasons.inbox_full(self._limits.mailbox_full_retry_ms))
        retry_after = self._operations.retry_after_ms(sender.sender_identity, now)
        if retry_after is not None:
            return Refusal("D15", reasons.capacity("too many recent messages are remembered", retry_after))
        position = len(self._inbox) + 1
        operation = self._operations.enqueue(
            message, signature, sender, identity, position, self._limits.mail_ttl_ms, now
        )
        record = InboxRecord(
            operation.number,
            message.id,
            info,
            sender.return_mailbox,
            sender.id,
            wording_of(frame),
            size,
            now.wall,
            now.wall + self._limits.mail_ttl_ms,
            reason,
            "bound_session",
            meant.groups,
            None if frame.valid_for is UNSET else now.wall + frame.valid_for,
            meant.session_id,
            meant.address,
            None if message.reply_to is UNSET else message.reply_to,
        )
        move = Move()
        move.inverse(lambda now: self._tell_not_parked(connection, operation, frame, now))
        parked = self._enter(record, operation, move, now)
        parked.preview = message.content.text[:PREVIEW_CODE_POINTS]
        move.changes = [
            SaveOperation(operation.record()),
            SaveBody(parked.record.number, bytes(frame.message)),
            *move.changes,
        ]
        operation.ticket = parked.ticket = move.append(self._ledger)
        queued = Queued(message.id, record.target, position, frame.attempt_id)
        self._outbox.write(connection, queued, operation.ticket)
        self._ledger.when_committed(operation.ticket, self._tell_free, None)
        return None

    def _tell_not_parked(self, connection: Connection, operation: Operation, frame: Send, now: Instant) -> None:
        self._operations.withdraw(operation)
        failed = DeliveryFailed(operation.message_id, reasons.NOT_RECORDED, frame.attempt_id)
        self._outbox.write(connection, failed)

    def _tell_free(self, _: None, now: Instant) -> None:
        self.on_free(now)

    def put_in(self, record: InboxRecord, move: Move, now: Instant) -> None:
        """Park a message of the broker's own making, for which there is room; its body is stored already."""
        self._enter(record, None, move, now)

    def append(self, move: Move) -> int:
        """Append a move, and tell once it is recorded that something may be free."""
        ticket = move.append(self._ledger)
        self._ledger.when_committed(ticket, self._tell_free, None)
        return ticket

    def withdraw(self, parked: Parked, move: Move, now: Instant) -> None:
        """Take a free message out that has become pointless; its sender knows that."""
        self._take_out(parked, "withdrawn", move, now)

    def put_into_mailbox(self, parked: Parked, key: str, move: Move, now: Instant) -> Mail:
        """Let a free message wait in a mailbox instead; its body stays where it is."""
        self._leave(parked)
        move.inverse(lambda now: self._come_back(parked, now))
        move.changes.append(self._journal.event("inbox.readdressed", parked.record, now, is_gone=True))
        mail = self._mailing.put_parked(key, parked.record, parked.operation, move.changes, now)
        move.inverse(lambda now: _take_out_of_mailbox(self._mailing, mail))
        return mail

    # --- mail -------------------------------------------------------------------------------------------

    def take_mail(self, mail: Mail, reason: ParkReason, meant: Meant, move: Move, now: Instant) -> bool:
        """Park mail whose recipient will not come for it; its body stays where it is. False: there is no room."""
        record = mail.record
        if self._inbox.get(record.message_id) is not None or not self._inbox.has_room(record.size):
            return False
        self._mailing.end_work(mail, "parked", move.changes, now)
        move.inverse(lambda now: self._mailing.put_back(mail, now))
        operation = mail.operation
        parked = InboxRecord(
            record.body_number,
            record.message_id,
            record.sender_info,
            record.sender_mailbox,
            record.sender_session,
            record.target,
            record.size,
            now.wall,
            now.wall + self._limits.mail_ttl_ms,
            reason,
            "any_session",
            meant.groups,
            record.valid_until,
            meant.session_id,
            meant.address,
            record.reply_to,
        )
        self._enter(parked, operation, move, now)
        return True

    def _enter(self, record: InboxRecord, operation: Operation | None, move: Move, now: Instant) -> Parked:
        """Put a message into the slot of its id, or a new one."""
        slot = self._inbox.get(record.inbox_id)
        if slot is None:
            slot = Parked(record, operation)
            self._inbox.enter(slot)
            entered = slot
            move.inverse(lambda now: self._leave(entered))
            self._arm(slot, now)
        else:
            before, earlier, replaced = slot.record, slot.operation, slot
            record = replace(
                record,
                number=before.number,
                assignment=before.assignment,
                returns=before.returns,
                return_reason=before.return_reason,
            )
            self._inbox.replace(slot, record)
            slot.operation = operation
            move.inverse(lambda now: self._restore(replaced, before, earlier, now))
            self._arm(slot, now)
        move.changes.append(self._journal.event("inbox.parked", record, now, reason=record.reason))
        return slot

    def _leave(self, parked: Parked) -> None:
        self._deadlines.cancel(parked.deadline)
        parked.deadline = None
        self._inbox.leave(parked)

    def _restore(self, parked: Parked, record: InboxRecord, operation: Operation | None, now: Instant) -> None:
        parked.operation = operation
        self._inbox.replace(parked, record)
        self._arm(parked, now)

    # --- assigned and given back ------------------------------------------------------------------------

    def assign(self, parked: Parked, assignment_id: str, worker: str, move: Move, now: Instant) -> None:
        """Let a worker have a message; it keeps its place."""
        self._change(parked, move, assignment=assignment_id)
        detail: dict[str, Any] = {"assignment": assignment_id, "session": worker}
        move.changes.append(self._journal.event("inbox.assigned", parked.record, now, **detail))

    def give_back(self, parked: Parked, reason: str, move: Move, now: Instant) -> None:
        """Let a message be free again, at its place."""
        returns = parked.record.returns + 1
        self._change(parked, move, assignment=None, returns=returns, return_reason=reason)
        move.changes.append(self._journal.event("inbox.returned", parked.record, now, reason=reason))
        self._arm(parked, now)
        self.on_given_back(parked, move, now)

    def _change(self, parked: Parked, move: Move, **members: Any) -> None:
        before = parked.record
        self._inbox.replace(parked, replace(before, **members))
        move.inverse(lambda now: self._inbox.replace(parked, before))

    # --- ends -------------------------------------------------------------------------------------------

    def end(self, parked: Parked, outcome: str, move: Move, now: Instant, recipient: str | None = None) -> None:
        """End a message: somebody dealt with it. A retry of the send is answered ``delivered`` from now on."""
        self._take_out(parked, outcome, move, now)
        operation = parked.operation
        if operation is not None and self._operations.is_present(operation):
            operation.state = OperationState.ACCEPTED
            operation.accepted_at, operation.recipient_session = now.wall, recipient
            move.changes.append(SaveOperation(operation.record()))
            move.inverse(lambda now: _unaccept(operation))

    def give_up(self, parked: Parked, kind: str, reason: str, move: Move, now: Instant) -> GivenUp:
        """End a message that nobody will get, and tell its sender; the ticket goes to ``Mailing.given_up``."""
        self._take_out(parked, kind, move, now, reason=reason)
        operation = parked.operation
        if operation is not None:
            move.changes.extend(self._operations.drop(operation))
            move.inverse(lambda now: self._operations.put_back(operation))
        given_up = GivenUp([], [], [])
        record = parked.record
        self._mailing.tell_sender(record, record.inbox_id, kind, reason, move.changes, given_up, now)
        move.inverse(lambda now: self._mailing.undo_give_up(given_up, now))
        return given_up

    def _take_out(self, parked: Parked, outcome: str, move: Move, now: Instant, **detail: Any) -> None:
        self._deadlines.cancel(parked.deadline)
        parked.deadline = None
        self._inbox.leave(parked)
        move.inverse(lambda now: self._come_back(parked, now))
        kind = f"inbox.{outcome}"
        release: Change = ReleaseBody(parked.record.number, now.wall + self._limits.bodies_kept_ms)
        move.changes += [self._journal.event(kind, parked.record, now, is_gone=True, **detail), release]
        self.on_leaving(parked, outcome, str(detail.get("reason", "")), move, now)

    def _come_back(self, parked: Parked, now: Instant) -> None:
        self._inbox.enter(parked)
        self._arm(parked, Instant(now.mono + self._limits.mail_retry_ms, now.wall))

    def _give_up(self, parked: Parked, kind: str, reason: str, now: Instant) -> None:
        move = Move()
        given_up = self.give_up(parked, kind, reason, move, now)
        self._mailing.given_up(given_up, move.append(self._ledger), now)

    # --- time -------------------------------------------------------------------------------------------

    def recover(self, record: InboxRecord, now: Instant) -> Parked:
        """Enter a message read from the store."""
        operation = self._operations.by_id(record.inbox_id)
        if operation is not None and operation.state is not OperationState.QUEUED:
            operation = None
        parked = Parked(record, operation)
        self._inbox.enter(parked)
        self._arm(parked, now)
        return parked

    def _arm(self, parked: Parked, now: Instant) -> None:
        """Set its end, as for mail: what is left by the wall clock, and never more than it had at the beginning."""
        record = parked.record
        until = record.expires_at if record.valid_until is None else min(record.valid_until, record.expires_at)
        self._deadlines.cancel(parked.deadline)
        parked.due = now.mono + min(max(0, until - now.wall), max(0, until - record.parked_at))
        parked.deadline = self._deadlines.add(parked.due, self._is_due, parked)

    def _is_due(self, parked: Parked, now: Instant) -> None:
        parked.deadline = None
        if not self._mailing.can_promise:
            return
        if not parked.is_free:
            self.on_overdue(parked, now)
            return
        self.end_of_time(parked, now)

    def end_of_time(self, parked: Parked, now: Instant) -> None:
        """Give up a free message whose time is over."""
        record = parked.record
        if record.valid_until is not None and record.valid_until <= record.expires_at:
            self._give_up(parked, "expired", notices.NO_LONGER_VALID, now)
        else:
            self._give_up(parked, "undeliverable", notices.NEVER_TAKEN, now)


def _tell_nobody(parked: Parked, outcome: str, reason: str, move: Move, now: Instant) -> None:
    """Take no notice of a message that leaves."""


def _take_out_of_mailbox(mailing: Mailing, mail: Mail) -> None:
    mailing.leave(mail)


def may_wait(sender: Session, frame: Send, message: Message) -> bool:
    """Tell whether a send may be parked: its sender understands ``queued`` and allows it, and asks for no answer."""
    return (
        frame.queue_if_away is True
        and QUEUE in sender.features
        and message.expects_reply is not True
        and frame.require_pending_reply is not True
        and not isinstance(frame, SupervisorSend)
    )


def preview_of(body: bytes) -> str:
    """Return the beginning of the text of a message."""
    message = parse_message(body)
    return "" if message is None else message.content.text[:PREVIEW_CODE_POINTS]


def _unaccept(operation: Operation) -> None:
    operation.state = OperationState.QUEUED
    operation.accepted_at = operation.recipient_session = None


def claim_policy(parked: Parked, is_target_gone: bool) -> ClaimPolicy:
    """Return who may claim a message, as it is shown."""
    if not parked.is_free:
        return "assigned"
    if parked.record.claim == "any_session":
        return "any_session"
    return "session_unavailable" if is_target_gone else "bound_session"
