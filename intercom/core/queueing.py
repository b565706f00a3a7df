"""Decide about sends to somebody who is away, or whose mail has not all been handed over (design section 7, Queueing).

Found is what a sender may reach: a session that is reconnecting, an address nobody holds, a session id under which
somebody acted for an address. Only a sender that says it understands ``queued`` ever gets that answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from msgspec import UNSET, Struct, UnsetType

from intercom.core.addresses import ME, Address, Addresses
from intercom.core.attempts import CONFLICT_CODE, Refusal, answer_to_task, conflict_with, too_late, wording_of
from intercom.core.clock import Instant
from intercom.core.features import POLICY, QUEUE
from intercom.core.labels import NODE_SIGN
from intercom.core.lifecycle import Known, Lifecycle
from intercom.core.mailboxes import Mail, Mailboxes
from intercom.core.mailing import Letter, Mailing
from intercom.core.operation import Standing
from intercom.core.parking import Meant, Parking, meant_known
from intercom.core.policies import Inbound, Policies, sender_of
from intercom.core.records import Change, OperationState, SaveOperation, SessionState
from intercom.core.resolving import is_prefix
from intercom.limits import Limits
from intercom.wire import reasons
from intercom.wire.codec import parse_message
from intercom.wire.frames import Delivered, DeliveryFailed, Message, Queued, Send, SupervisorSend, trim

if TYPE_CHECKING:
    from intercom.core.asking import Asking
    from intercom.core.connections import Connection
    from intercom.core.letters import SendLetter
    from intercom.core.operation import Operation
    from intercom.core.operations import Operations
    from intercom.core.outbox import Outbox
    from intercom.core.questions import Question
    from intercom.core.receipts import Receipts, Unconfirmed
    from intercom.core.sessions import Session, SessionTable
    from intercom.core.supervision import Crossings

_GONE_CODE = "session_not_found"
_AWAY_CODE = "away"


class Away(Struct, frozen=True):
    """Name the mailbox of somebody who is away, and what of it decides who may send there."""

    key: str
    label: str
    session_id: str
    """Under which it may have asked; empty when it was found by a name."""
    groups: tuple[str, ...]
    is_me: bool = False
    meant: Meant | None = None
    """For whom work is parked, when it takes assignments."""
    known: Any = None
    """The ``Known`` session that may come back, if there is one."""


class Several(Struct, frozen=True):
    """Say that a name means several who are away: addresses by their groups, and sessions by their ids."""

    groups: tuple[str, ...]
    session_ids: tuple[str, ...]
    alone: tuple[str, ...] = ()
    """Wordings ``name@node`` that lead to one each."""


class _Queueing(Struct, frozen=True):
    """Hold what must be taken back when a mail could not be recorded."""

    connection: Connection
    frame: Send
    operation: Operation
    is_new: bool
    question: Question | None
    position_before: int | None


class Queueing:
    """Find who is away, and let messages wait for them."""

    def __init__(
        self,
        addresses: Addresses,
        lifecycle: Lifecycle,
        sessions: SessionTable,
        boxes: Mailboxes,
        mailing: Mailing,
        operations: Operations,
        receipts: Receipts,
        asking: Asking,
        crossings: Crossings,
        policies: Policies,
        parking: Parking,
        outbox: Outbox,
        limits: Limits,
    ) -> None:
        self._policies = policies
        self._parking = parking
        self.on_reply: Callable[[Session, str, str, Instant], None] = lambda sender, reply_to, message_id, now: None
        """Is told of each message of a worker that answers something and has arrived, or waits as mail now."""
        self.on_answer: Callable[[Session, str, str, Instant], None] = lambda sender, reply_to, text, now: None
        """The same of each message that answers a task, with its text."""
        self._addresses = addresses
        self._lifecycle = lifecycle
        self._sessions = sessions
        self._boxes = boxes
        self._mailing = mailing
        self._operations = operations
        self._receipts = receipts
        self._asking = asking
        self._crossings = crossings
        self._outbox = outbox
        self._limits = limits
        self.look: Callable[[Connection, Send, Away, Operation | None, Instant], Refusal | bool] = lambda *send: False
        """Looks elsewhere for an earlier acceptance of a send (D13); tells whether the send waits for that."""
        self.know_named: Callable[[str, Instant], None] = lambda name, now: None
        """Enters the addresses of a name whose mailboxes are on other machines."""
        self.find_elsewhere: Callable[[str, Session], Away | Session | Several | None] = lambda target, sender: None
        """Tells whom on other machines a target means that leads to nobody here."""
        self.named_by_machine: Callable[[str, Session], tuple[str, ...]] = lambda name, sender: ()
        """Tells which wordings ``name@node`` lead to one each of those of a name who are away."""

    # --- who is meant -----------------------------------------------------------------------------------

    def find(self, target: str, sender: Session, now: Instant) -> Away | Session | Several | None:
        """Return whom a target means that leads to no session: an id first, then a name, then a prefix.

        It may be a session after all: the one that holds an address by now.
        """
        target = trim(target)
        if target.lower() == ME:
            return self._of_address(self._addresses.me(now), "")
        known = self._lifecycle.get(target)
        if known is not None and known.state is SessionState.RECONNECTING:
            return self._of_known(known)
        address = self._addresses.get(self._sessions.address_of_retired(target))
        if address is not None:
            return self._of_address(address, target)
        self.know_named(target.rpartition(NODE_SIGN)[0] or target, now)
        found: dict[str, Away | Session] = {}
        groups: list[str] = []
        session_ids: list[str] = []
        for address in self._addresses.named(target):
            if address.is_reachable_from(sender.groups) and not address.is_of_broker:
                found[address.key] = self._of_address(address, "")
                groups.append(address.group)
        prefix = target.lower() if is_prefix(target) else None
        for known in self._lifecycle.away():
            if known.record.address is not None and not known.record.holds_address:
                continue  # of those who act under an address only the holder is found
            away = self._of_known(known)
            if away.key in found or not any(group in away.groups for group in sender.groups):
                continue
            name = known.name
            is_named = name is not None and name.lower() == target.lower()
            if is_named or (prefix is not None and known.id.lower().startswith(prefix)):
                found[away.key] = away
                session_ids.append(known.id)
        if len(found) > 1:
            return Several(tuple(sorted(groups)), tuple(session_ids), self.named_by_machine(target, sender))
        return next(iter(found.values()), None) or self.find_elsewhere(target, sender)

    def of_address(self, address: Address) -> Away | Session:
        """Return who holds an address, or that nobody does now."""
        return self._of_address(address, "")

    def _of_address(self, address: Address, session_id: str) -> Away | Session:
        if address.holder is not None:
            return address.holder
        known = next((known for known in self._lifecycle.away() if known.mailbox_key == address.key), None)
        meant = None
        if address.is_for_work:
            meant = Meant(None if known is None else known.id, address.number, address.groups)
        return Away(address.key, address.name, session_id, address.groups, address.is_of_broker, meant, known)

    def _of_known(self, known: Known) -> Away:
        meant = None if known.record.work_mode is None else meant_known(known)
        return Away(known.mailbox_key, known.name or known.id, known.id, known.groups, meant=meant, known=known)

    # --- sends to somebody who is away ------------------------------------------------------------------

    def send(
        self, connection: Connection, sender: Session, away: Away, frame: Send, message: Message, now: Instant
    ) -> Refusal | None:
        """Decide about a send to somebody who is away. None: it was answered."""
        pending_reply = frame.require_pending_reply is True
        if isinstance(frame, SupervisorSend) or QUEUE not in sender.features:
            return Refusal("E6", reasons.SESSION_NOT_FOUND, _GONE_CODE if pending_reply else UNSET)
        if sender.return_mailbox == away.key:
            return Refusal("D3", reasons.SELF_TARGET)
        if frame.expected_recipient_id is not UNSET and frame.expected_recipient_id != away.session_id:
            return Refusal("D4", reasons.OTHER_RECIPIENT)
        wording = frame.to if frame.logical_target is UNSET else frame.logical_target
        signature = self._operations.signature(wording, message, sender, pending_reply=pending_reply)
        operation = self._operations.find(message.id, now)
        standing = self._operations.standing(operation, message.id, signature, away.key)
        if standing is Standing.UNCERTAIN and operation is not None and operation.posted_to:
            address = self._addresses.of_key(away.key)
            if address is not None and address.home is None:
                standing = Standing.MOVED
        after = 0 if operation is None else operation.ticket
        if standing is Standing.CONFLICT:
            assert operation is not None, "something was there to conflict with"
            return Refusal("D9", conflict_with(operation), CONFLICT_CODE, after)
        is_ask = message.expects_reply is True
        if not is_ask and (standing is Standing.MOVED or standing is None):
            looked = self.look(connection, frame, away, operation, now)
            if looked:
                return None if looked is True else looked
        if standing is Standing.MOVED:
            return Refusal("D9", reasons.UNCERTAIN_ELSEWHERE, after=after)
        if standing is Standing.INVALID:
            return Refusal("D10", reasons.authority_invalid(self._operations.trouble))
        if operation is not None and standing in (Standing.MATCH, Standing.QUEUED):
            if is_ask and standing is Standing.MATCH:
                refusal = self._ask_again(sender, away, operation, now)
                if refusal is not None:
                    return refusal
            self.answer_again(connection, frame, operation)
            return None
        if frame.valid_for == 0:
            return Refusal("D23", too_late(operation), after=after)
        if is_ask and not away.is_me:
            return Refusal("E7", reasons.away(away.label), _AWAY_CODE)
        if frame.queue_if_away is not True:
            return Refusal("E7", reasons.away_unqueued(away.label), _AWAY_CODE)
        question = None
        if message.reply_to is not UNSET and away.session_id:
            question = self.question_of(away.session_id, sender, message.reply_to)
        if pending_reply and question is None:
            return Refusal("D6", reasons.NO_OPEN_QUESTION)
        if not self._is_in_reach(away, sender, question, message, now):
            return Refusal("D7", reasons.DIFFERENT_GROUP)
        kept: Literal["quiet", "hold"] | None = None
        inbound = None if question is not None or away.is_me else self._inbound_of(away)
        if inbound is not None:
            action = inbound.action_for(sender_of(sender))
            if action == "refuse":
                return Refusal("D21", reasons.REFUSED_BY_POLICY, after=after)
            kept = None if action == "accept" else action
        begins = operation is None and question is None and kept is None and not self._goes_on(away, message)
        if away.meant is not None and begins:
            return self._parking.park(
                connection, sender, away.meant, away.key, "unaddressed", frame, message, signature, now
            )
        return self._put(
            connection, sender, away.key, away.label, frame, message, signature, operation, question, now, kept=kept
        )

    def _inbound_of(self, away: Away) -> Inbound | None:
        """Return what holds for somebody who is away."""
        for known in self._lifecycle.away():
            if known.mailbox_key == away.key:
                party = away.key
                if not away.key.startswith("address:") and known.record.return_hash is not None:
                    party = f"return:{known.record.return_hash}"
                return self._policies.of_party(party, known.info if POLICY in known.record.features else None)
        return self._policies.of_party(away.key, None)

    def _ask_again(self, sender: Session, away: Away, operation: Operation, now: Instant) -> Refusal | None:
        """Open the question of an ask again that was confirmed; an address answers it, a session has to be here."""
        if operation.sender_groups != sender.group_identity:
            return Refusal("6.9.5", reasons.ROUTE_LOST, after=operation.ticket)
        if not away.key.startswith("address:"):
            return Refusal("E7", reasons.away(away.label), _AWAY_CODE, operation.ticket)
        ask_ms = self._limits.mail_ttl_ms if away.is_me else self._limits.ask_ms
        self._operations.renew_question(operation, ask_ms, now)
        self._asking.open_again(sender, away.key, operation, now)
        self._operations.note_recipient(operation)
        return None

    def _goes_on(self, away: Away, message: Message) -> bool:
        """Tell whether a message answers something that was sent by the session or under the address."""
        if message.reply_to is UNSET:
            return False
        last: Session | None = None if away.known is None else away.known.last
        if last is not None and last.sent_ids is not None and message.reply_to in last.sent_ids:
            return True
        sent = self._operations.by_id(message.reply_to)
        return sent is not None and sent.sender == away.key

    def open_question(self, asker: Session, sender: Session, message_id: str) -> Question | None:
        """Return the open question of an asker who is here that a reply of this sender answers.

        Whoever has the id of who was asked meanwhile, and is another, answers nothing.
        """
        question = self.question_of(asker.id, sender, message_id)
        if question is None or question.dormant:
            return None
        # An answer may come before it is known that its sender is back.
        mine = sender.target_identity if sender.address is None else sender.address.key
        return question if question.operation.target == mine or not question.is_waiting else None

    def late_question(self, asker: Session, sender: Session, message_id: str, now: Instant) -> Question | None:
        """Open the question of an ask that was confirmed when its asker had been told that nobody knows, and answer it.

        Its asker sends it again for as long as it wants the answer, and may be kept from that just now.
        """
        operation = self._operations.find(message_id, now)
        mine = sender.target_identity if sender.address is None else sender.address.key
        if (
            operation is None
            or QUEUE not in asker.features
            or operation.state is not OperationState.ACCEPTED
            or operation.sender != asker.sender_identity
            or operation.target != mine
            or operation.answered
            or operation.questions
        ):
            return None
        self._asking.open(asker, sender, operation, now)
        return self.open_question(asker, sender, message_id)

    def question_of(self, asker_id: str, sender: Session, message_id: str) -> Question | None:
        """Return the question that a reply of this sender answers: its own, or that of whoever acts for its address."""
        found = self._asking.find_any(asker_id, sender.id, message_id)
        if found is None and sender.address is not None:
            holder = sender.address.holder
            if holder is not None:
                found = self._asking.find_any(asker_id, holder.id, message_id)
            key = sender.address.key
            found = found or self._asking.find_any(asker_id, key, message_id)
            found = found or self._asking.find_waiting(asker_id, key, message_id)
        return found

    def answer_waits(self, asker: Session, message_id: str) -> bool:
        """Tell whether the answer to a question is among the mail of who asked, and will come to it from there."""
        return asker.mailbox is not None and asker.mailbox.has_answer_to(message_id)

    def _is_in_reach(
        self, away: Away, sender: Session, question: Question | None, message: Message, now: Instant
    ) -> bool:
        if away.is_me or question is not None or any(group in away.groups for group in sender.groups):
            return True
        return message.reply_to is not UNSET and self._crossings.allows(
            message.reply_to, sender.id, away.session_id, now
        )

    # --- sends to somebody who is here ------------------------------------------------------------------

    def must_wait(self, sender: Session, target: Session, frame: Send, message: Message) -> bool:
        """Tell whether a send that may wait has to: older mail of its target has not been handed over.

        An answer overtakes that mail, but waits, too, while its target's machine cannot be reached.
        """
        return (
            target.mailbox is not None
            and (target.mailbox.holds_others_up or target.is_cut_off)
            and frame.queue_if_away is True
            and QUEUE in sender.features
            and message.expects_reply is not True
            and (message.reply_to is UNSET or target.is_cut_off)
            and type(frame) is not SupervisorSend
        )

    def put_behind(
        self,
        connection: Connection,
        sender: Session,
        target: Session,
        frame: Send,
        message: Message,
        signature: bytes,
        operation: Operation | None,
        answered: Question | None,
        now: Instant,
    ) -> Refusal | None:
        """Let a send wait behind the mail of somebody who is here; ``answered`` is the question that it answers."""
        label = target.name or target.id
        key = target.target_identity if target.claimed is None else target.claimed.key
        return self._put(connection, sender, key, label, frame, message, signature, operation, answered, now)

    def put_aside(
        self,
        connection: Connection,
        sender: Session,
        target: Session,
        frame: Send,
        message: Message,
        signature: bytes,
        operation: Operation | None,
        kept: Literal["quiet", "hold"],
        now: Instant,
    ) -> Refusal | None:
        """Let a send wait in the mailbox of somebody who is here and does not want to be woken by it."""
        box = target.mailbox
        if box is None or frame.queue_if_away is not True or QUEUE not in sender.features:
            return Refusal("D21", reasons.kept_unqueued(kept), _AWAY_CODE if QUEUE in sender.features else UNSET)
        label = target.name or target.id
        return self._put(connection, sender, box.key, label, frame, message, signature, operation, None, now, kept=kept)

    # --- what was on its way to somebody who left -------------------------------------------------------

    def take_over(self, session: Session, now: Instant) -> None:
        """Let what a departing session has not confirmed wait in its mailbox, where its sender allows that."""
        if session.mailbox is None:
            return
        for unconfirmed in self._receipts.awaited_from(session.target_identity):
            if unconfirmed.waiter.may_queue and not unconfirmed.waiter.is_ask:
                self._take_over_one(unconfirmed, now)

    def keep_unconfirmed(self, unconfirmed: Unconfirmed, now: Instant) -> bool:
        """Let a message wait as mail that its recipient has and does not confirm in time: it may be busy for long.

        Returns False when it may not wait; then its sender is told that the outcome is uncertain.
        """
        box = self._boxes.get(unconfirmed.identity)
        if box is None or box.holder is None or not unconfirmed.waiter.may_queue or unconfirmed.waiter.is_ask:
            return False
        # Who is elsewhere is posted to anew: nothing else would be heard of it if the outcome was lost.
        self._take_over_one(unconfirmed, now, is_offered=not box.holder.is_remote)
        return not unconfirmed.waiter.is_waiting

    def _take_over_one(self, unconfirmed: Unconfirmed, now: Instant, *, is_offered: bool = False) -> None:
        attempt, operation, frame = unconfirmed.waiter, unconfirmed.operation, unconfirmed.frame
        if (
            operation.state is not OperationState.RESERVED
            or not self._operations.is_present(operation)
            or not self._mailing.can_promise
        ):
            return
        # Who speaks for an address and does not receive for it leaves what it was told to who does.
        address = None if is_offered else attempt.target.address or attempt.target.claimed
        key = operation.target if address is None else address.key
        assert key is not None
        sender, until = attempt.sender, attempt.valid_until
        letter = Letter(
            key,
            attempt.message_id,
            bytes(frame.message),
            bytes(frame.sender),
            sender.return_mailbox,
            sender.id,
            attempt.wording,
            None if until is None else min(until.wall, now.wall + until.mono - now.mono),
            False,
            None if attempt.reply_to is UNSET else attempt.reply_to,
        )
        box = self._boxes.open(key)
        if not self._boxes.has_room(box, letter.size):
            self._boxes.discard_if_unused(box)
            return
        self._receipts.remove(unconfirmed)
        changes, question = self._answered(attempt.sender, attempt.target.id, attempt.reply_to)
        subject = (operation, question, operation.target, operation.position)
        operation.state, operation.target = OperationState.QUEUED, key
        operation.position = len(box) + 1
        operation.under_way = None
        self._mailing.put(
            letter,
            operation,
            now,
            self._undo_take_over,
            subject,
            *changes,
            is_offered=is_offered,
            was_written=True,
            posted_to=attempt.target.at_peer,
        )
        self._mailing.arrives_after_all(sender, attempt.message_id, now)
        self.replied(attempt.sender, attempt.reply_to, attempt.message_id, attempt.answer, now)
        if attempt.is_waiting:
            attempt.settle()
            queued = Queued(attempt.message_id, trim(attempt.wording), operation.position, attempt.attempt_id)
            self._answer(attempt.connection, queued, operation.ticket, reasons.RECEIPT_MISSING)

    def take_back(self, operation: Operation, came: SendLetter, key: str, now: Instant) -> bool:
        """Let a message wait here again that another broker kept for its address; return whether there is room."""
        message = parse_message(came.message)
        before = (operation, None, operation.target, operation.position)
        assert message is not None and operation.state is OperationState.RESERVED, (
            "another broker kept what we reserved"
        )
        if not self._mailing.can_promise:
            return False
        sender = self._sessions.get(operation.sender_session)
        letter = Letter(
            key,
            operation.message_id,
            bytes(came.message),
            came.sender.session,
            None if sender is None else sender.return_mailbox,
            operation.sender_session,
            came.wording or ("" if came.address is None else came.address[1]),
            None if came.valid_for is None else now.wall + came.valid_for,
            reply_to=None if message.reply_to is UNSET else message.reply_to,
        )
        box = self._boxes.open(key)
        if not self._boxes.has_room(box, letter.size):
            self._boxes.discard_if_unused(box)
            return False
        operation.state, operation.target, operation.position = OperationState.QUEUED, key, len(box) + 1
        self._mailing.put(letter, operation, now, self._undo_take_over, before, was_written=True, is_back=True)
        return True

    def _answered(self, sender: Session, asker_id: str, reply_to: Any) -> tuple[tuple[Change, ...], Question | None]:
        if reply_to is UNSET:
            return (), None
        question = self.question_of(asker_id, sender, reply_to)
        return (() if question is None else self._mark_answered(question)), question

    def _mark_answered(self, question: Question) -> tuple[Change, ...]:
        ask = question.operation
        self._asking.close(question)
        ask.answered = True
        return (SaveOperation(ask.record()),) if self._operations.is_present(ask) else ()

    def _undo_take_over(self, subject: Any, now: Instant) -> None:
        operation, question, target, position = subject
        operation.state, operation.target, operation.position = OperationState.RESERVED, target, position
        self._unanswer(question)

    def _unanswer(self, question: Question | None) -> None:
        if question is not None:
            question.operation.answered = False
            self._asking.restore(question)

    # --- what is taken back -----------------------------------------------------------------------------

    def withdraw(self, operation: Operation, asker: Session, now: Instant) -> None:
        """End the question of an ask; while it waits as mail it is not handed over any more."""
        mail = operation.mail
        if mail is None or mail.confirmed_by is not None:
            self._operations.withdraw_question(operation)
            return
        holder = self._boxes.open(mail.record.mailbox).holder
        if mail.is_offered and holder is not None:
            self._asking.tell_withdrawn(asker.id, holder, operation.message_id)
        self._mailing.take_back(mail, now)

    # --- put down ---------------------------------------------------------------------------------------

    def _put(
        self,
        connection: Connection,
        sender: Session,
        key: str,
        label: str,
        frame: Send,
        message: Message,
        signature: bytes,
        operation: Operation | None,
        question: Question | None,
        now: Instant,
        *,
        kept: Literal["quiet", "hold"] | None = None,
    ) -> Refusal | None:
        is_ask = message.expects_reply is True
        if is_ask and operation is None and (refusal := self._asking.refusal(sender)) is not None:
            return refusal
        letter = Letter(
            key,
            message.id,
            bytes(frame.message),
            sender.written(),
            sender.return_mailbox,
            sender.id,
            wording_of(frame),
            None if frame.valid_for is UNSET else now.wall + frame.valid_for,
            is_ask,
            None if message.reply_to is UNSET else message.reply_to,
            kept=kept,
        )
        box = self._boxes.open(key)
        if not self._boxes.has_room(box, letter.size):
            self._boxes.discard_if_unused(box)
            return Refusal("D15", reasons.mailbox_full(label, self._limits.mailbox_full_retry_ms))
        position = len(box) + 1
        is_new = operation is None
        position_before = None if operation is None else operation.position
        has_it = False
        posted_to = "" if operation is None else operation.posted_to
        if operation is None:
            retry_after = self._operations.retry_after_ms(sender.sender_identity, now)
            if retry_after is not None:
                self._boxes.discard_if_unused(box)
                return Refusal("D15", reasons.capacity("too many recent messages are remembered", retry_after))
            operation = self._operations.enqueue(
                message, signature, sender, key, position, self._limits.mail_ttl_ms, now
            )
        else:
            if operation.unconfirmed is not None:
                # Whoever has it confirms it once; who is elsewhere is posted to anew.
                has_it = kept is None and not posted_to and box.holder is not None and not box.holder.is_remote
                operation.unconfirmed.waiter.settle()
                self._receipts.remove(operation.unconfirmed)
            operation.under_way = None
            operation.state, operation.position = OperationState.QUEUED, position
        changes = () if question is None else self._mark_answered(question)
        subject = _Queueing(connection, frame, operation, is_new, question, position_before)
        # What was reserved before may have left, and been seen.
        was_written = not is_new
        self._mailing.put(
            letter,
            operation,
            now,
            self._undo_put,
            subject,
            *changes,
            is_offered=has_it,
            was_written=was_written,
            posted_to=posted_to,
        )
        self._mailing.arrives_after_all(sender, message.id, now)
        told = UNSET if kept is None or POLICY not in sender.features else kept
        queued = Queued(
            message.id, letter.target, position, frame.attempt_id, kept=told, joined=self._joined(operation.mail)
        )
        self._outbox.write(connection, queued, operation.ticket)
        self.replied(sender, message.reply_to, message.id, answer_to_task(message), now)
        return None

    def _joined(self, mail: Mail | None) -> str | UnsetType:
        """Return the id of the oldest mail that says the same as this one and waits for the same (protocol 15.3.2)."""
        if mail is None:
            return UNSET
        first = next(self._boxes.open(mail.record.mailbox).copies_of(mail), mail)
        return UNSET if first is mail or mail.is_offered else first.message_id

    def replied(self, sender: Session, reply_to: Any, message_id: str, answer: str | None, now: Instant) -> None:
        """Tell of a message that answers something; ``answer`` is its text when that is a task."""
        if answer is not None:
            self.on_answer(sender, reply_to, answer, now)
        if sender.work_mode is not None and reply_to is not UNSET:
            self.on_reply(sender, reply_to, message_id, now)

    def _undo_put(self, subject: _Queueing, now: Instant) -> None:
        operation = subject.operation
        if subject.is_new:
            self._operations.withdraw(operation)
        else:
            operation.state, operation.position = OperationState.RESERVED, subject.position_before
        self._unanswer(subject.question)
        reason = reasons.NOT_RECORDED if subject.is_new else reasons.RECEIPT_MISSING  # an earlier copy may have arrived
        failed = DeliveryFailed(operation.message_id, reason, subject.frame.attempt_id)
        self._outbox.write(subject.connection, failed)

    def answer_again(self, connection: Connection, frame: Send, operation: Operation) -> None:
        """Answer a retry of what is known already."""
        message_id = operation.message_id
        answer: Delivered | Queued
        if operation.state is OperationState.ACCEPTED:
            answer = Delivered(message_id, frame.attempt_id)
        else:
            mail = operation.mail
            box = None if mail is None else self._boxes.get(mail.record.mailbox)
            position = operation.position or 1
            if mail is not None and box is not None:
                position = box.position_of(mail)
            answer = Queued(message_id, trim(frame.to), position, frame.attempt_id, joined=self._joined(mail))
        self._answer(connection, answer, operation.ticket, reasons.NOT_CONFIRMED_DURABLY)

    def _answer(self, connection: Connection, answer: Delivered | Queued, after: int, otherwise: str) -> None:
        self._outbox.write(connection, answer, after)
        failed = DeliveryFailed(answer.message_id, otherwise, answer.attempt_id)
        self._operations.rest(after, self._tell_otherwise, (connection, failed))

    def _tell_otherwise(self, subject: Any, now: Instant) -> None:
        connection, failed = subject
        self._outbox.write(connection, failed)
