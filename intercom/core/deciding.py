"""Decide about sends: what they must look like, whom they mean, and what is done with them (protocol 4.8 A to E).

    form (A) -> line and stage form (B) -> resolve (C) -> found (D): carried out, answered again, put before an owner
                                                       -> not found (E): put before an owner, held, refused

Rule 1: the first match wins. Rule 2: a refusal is a value that names the rule of the protocol; whoever refuses has
changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import UNSET, UnsetType

from intercom.core.asking import Asking
from intercom.core.attempts import (
    CONFLICT_CODE,
    NOT_FOUND_CODE,
    Refusal,
    conflict_with,
    of_repetition,
    said_before,
    too_late,
)
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.delivery import Delivery
from intercom.core.features import QUEUE
from intercom.core.form import form_refusal, identify, is_reserved, members_of
from intercom.core.guard import LoopGuard
from intercom.core.holding import Held, Holding
from intercom.core.operation import Operation, Standing
from intercom.core.operations import Operations
from intercom.core.outbox import Outbox
from intercom.core.owners import OwnerRequest, Owners
from intercom.core.parking import Parking, meant_session
from intercom.core.peer_records import PEER
from intercom.core.policies import sender_of
from intercom.core.queueing import Away, Queueing, Several
from intercom.core.records import OperationState
from intercom.core.resolving import Resolver, Unresolved
from intercom.core.sessions import Session
from intercom.core.stages import Stages
from intercom.core.supervision import Crossings
from intercom.limits import Limits
from intercom.wire import reasons
from intercom.wire.codec import message_of, parse_message
from intercom.wire.frames import (
    Delivered,
    DeliveryFailed,
    Malformed,
    Message,
    QuestionTarget,
    Queued,
    Send,
    SupervisorSend,
    trim,
)
from intercom.wire.targets import StageTarget, parse_target, removed_form


class Deciding:
    """Decide about sends, and hand on what is to be carried out."""

    def __init__(
        self,
        resolver: Resolver,
        operations: Operations,
        holding: Holding,
        stages: Stages,
        owners: Owners,
        asking: Asking,
        crossings: Crossings,
        delivery: Delivery,
        queueing: Queueing,
        guard: LoopGuard,
        parking: Parking,
        limits: Limits,
        outbox: Outbox,
    ) -> None:
        self._guard = guard
        self._parking = parking
        self._resolver = resolver
        self._operations = operations
        self._holding = holding
        self._stages = stages
        self._owners = owners
        self._asking = asking
        self._crossings = crossings
        self._delivery = delivery
        self._queueing = queueing
        self._limits = limits
        self._outbox = outbox
        self.look: Callable[[Connection, Send, Session, Operation | None, Instant], Refusal | bool] = lambda *send: (
            False
        )
        """Looks elsewhere for an earlier acceptance of a send (D13); tells whether the send waits for that."""
        self.owner_elsewhere: Callable[[str, StageTarget, Session, Instant], Session | Refusal | None] = (
            lambda *target: None
        )
        """Returns what stands for a stage whose owner is at another broker."""
        self.is_out_of_reach: Callable[[Operation], bool] = lambda operation: False
        """Tells whether a message went to another machine that cannot be reached now."""
        owners.forward = self.forward_to_stage

    def send(self, connection: Connection, frame: Send | Malformed, now: Instant) -> None:
        """Decide about a ``send`` or ``supervisor_send`` and answer or forward it."""
        refusal = self._decide(connection, frame, None, now)
        if refusal is not None:
            self._turn_down(connection, connection.session, frame, refusal, now)

    def send_away(self, connection: Connection, away: Away, frame: Send, now: Instant) -> None:
        """Decide about a send to somebody who is known to be away."""
        message, sender = parse_message(frame.message), connection.session
        assert message is not None and sender is not None, "both were looked at by who knows that somebody is away"
        refusal = self._queueing.send(connection, sender, away, frame, message, now)
        if refusal is not None:
            self.refuse(connection, message.id, frame.attempt_id, refusal)

    def dispatch(self, released: Iterable[Held], now: Instant) -> None:
        """Decide about sends whose hold has ended as if they came now, in the order in which they did come (6.11)."""
        for held in released:
            frame = held.aimed_anew(now)
            refusal = self._decide(held.connection, frame, held, now)
            if refusal is not None:
                self._turn_down(held.connection, held.sender, frame, refusal, now)

    def forward_to_stage(self, request: OwnerRequest, target: Session, now: Instant) -> None:
        """Send to a live stage what its run's owner wants to be forwarded, as if it came now (protocol 6.12.4)."""
        frame = said_before(request.frame, now.mono - request.began)
        message = parse_message(frame.message)
        assert message is not None, "it was parsed before the owner was asked"
        refusal = self._decide_found(request.connection, request.sender, target, frame, message, now, request=request)
        if refusal is not None:
            self._turn_down(request.connection, request.sender, frame, refusal, now)

    def withdraw(self, asker: Session, message_id: str, now: Instant) -> None:
        """End the questions of an ask, open ones and the one it would still open, also for the next broker process.

        The same ask sent again asks again (protocol 4.24).
        """
        self._asking.withdraw(asker, message_id)
        self._owners.withdraw(asker, message_id)
        held = self._holding.find(message_id)
        if held is not None and held.sender is asker and held.is_ask:
            self._holding.take(held)
            self._holding.fail(held, reasons.RESTORING_WITHDRAWN)
        operation = self._operations.find(message_id, now)
        if operation is None or not operation.is_ask:
            return
        waiter = operation.under_way if operation.unconfirmed is None else operation.unconfirmed.waiter
        if waiter is not None and waiter.sender is asker:
            waiter.is_withdrawn = True
            self._asking.tell_withdrawn(asker.id, waiter.target, message_id)
        if operation.sender == asker.sender_identity:
            self._queueing.withdraw(operation, asker, now)

    def settle(self, connection: Connection, answer: Delivered | Queued, operation: Operation | None) -> None:
        """Answer a send of which is known what became of it; ``operation``: its row, where there is one."""
        otherwise = DeliveryFailed(answer.message_id, reasons.NOT_CONFIRMED_DURABLY, answer.attempt_id)
        self._answer(connection, answer, 0 if operation is None else operation.ticket, otherwise)

    def _turn_down(
        self, connection: Connection, sender: Session | None, frame: Send | Malformed, refusal: Refusal, now: Instant
    ) -> None:
        """Answer a send that is refused; who repeats what may have arrived is not told that nothing took effect."""
        self.refuse(connection, *identify(frame), self._as_told(sender, frame, refusal, now))

    def _as_told(self, sender: Session | None, frame: Send | Malformed, refusal: Refusal, now: Instant) -> Refusal:
        if sender is None or sender.is_remote or not isinstance(frame, Send):
            return refusal  # to another broker it is said beside the reason that the message is known here
        message = parse_message(frame.message)
        same = None if message is None else self._find_same(sender, frame, message, now)
        if same is None:
            return refusal
        if same.state is OperationState.RESERVED:
            return of_repetition(refusal, is_left_ask=same.is_ask and not self._may_come_back(same, now))
        if same.is_ask and refusal.reason == reasons.SESSION_NOT_FOUND and self.is_out_of_reach(same):
            return Refusal(refusal.rule, reasons.QUESTION_OUT_OF_REACH, after=refusal.after)
        return refusal

    def _may_come_back(self, operation: Operation, now: Instant) -> bool:
        """Tell whether whoever a message may have reached is missing only because it cannot be here yet."""
        recovered_at = None if operation.unconfirmed is not None else self._operations.recovered_at
        is_young = recovered_at is not None and now.mono - recovered_at < self._limits.dormant_target_ms
        return is_young or self.is_out_of_reach(operation)

    def refuse(self, connection: Connection, message_id: str, attempt_id: str | UnsetType, refusal: Refusal) -> None:
        """Answer a send that is refused."""
        answer = DeliveryFailed(message_id, refusal.reason, attempt_id, refusal.code)  # type: ignore[arg-type]  # the codes are literals
        otherwise = DeliveryFailed(message_id, reasons.NOT_RECORDED, attempt_id)
        self._answer(connection, answer, refusal.after, otherwise)

    def _answer(
        self, connection: Connection, answer: DeliveryFailed | Delivered | Queued, after: int, otherwise: DeliveryFailed
    ) -> None:
        """Give an answer that rests on a row; ``otherwise`` takes its place when that row cannot be recorded."""
        self._outbox.write(connection, answer, after)
        self._operations.rest(after, self._tell_otherwise, (connection, otherwise))

    def _tell_otherwise(self, subject: Any, now: Instant) -> None:
        connection, otherwise = subject
        self._outbox.write(connection, otherwise)

    def _decide(
        self, connection: Connection, frame: Send | Malformed, earlier: Held | None, now: Instant
    ) -> Refusal | None:
        """Go through protocol 4.8 A to E; the first match wins. None: answered, held, or on its way.

        ``earlier`` is the hold of this send that has just ended.
        """
        # A. Form
        if not isinstance(frame, Send):
            is_valid = message_of(frame.fields.get("message")) is not None
            return form_refusal(frame.type == "supervisor_send", frame.fields, is_valid)
        message = parse_message(frame.message)
        if message is None:  # what A1 and A2 look at is right, or this would be no Send
            return Refusal("A3", reasons.INVALID_MESSAGE)
        if (
            is_reserved(message.id)
            or frame.require_pending_reply is not UNSET
            or frame.resolve_reply_target is False
            or frame.channel is not UNSET
            or frame.valid_for is not UNSET
        ):
            refusal = form_refusal(isinstance(frame, SupervisorSend), members_of(frame), True)
            if refusal is not None:
                return refusal
        sender = connection.session
        if sender is None:
            return Refusal("A8", reasons.SENDER_NOT_FOUND)
        if sender.sent_ids is not None:
            sender.sent_ids.add(message.id)

        # B. Supervisor line
        is_supervised = type(frame) is SupervisorSend
        if is_supervised:
            if sender.supervisor_id is None:
                return Refusal("B1", reasons.NOT_A_CHILD)
            if trim(frame.to) != sender.supervisor_id:
                return Refusal("B2", reasons.OTHER_SUPERVISOR)

        # B. Workflow form; no other target has a colon in it
        stage = None
        if ":" in frame.to and not is_supervised:
            aimed = self._aim_at_stage(trim(frame.to), message)
            if isinstance(aimed, Refusal):
                return aimed
            stage = aimed

        # A retry of a held send takes its place; anything else under its id is refused (6.11).
        replaced = self._holding.find(message.id)
        if replaced is not None:
            if not self._holding.is_same(replaced, frame, message, sender):
                return Refusal("D9", reasons.conflict(message.id), CONFLICT_CODE)
            self._holding.take(replaced)
            earlier = replaced

        # C. Resolution
        is_reply = message.reply_to is not UNSET
        pending_reply = frame.require_pending_reply is True
        gone_code = NOT_FOUND_CODE if pending_reply else UNSET
        if stage is not None:
            alias = self._stages.live(trim(frame.to))
            if alias is not None:
                return self._decide_found(connection, sender, alias.session, frame, message, now, stage=stage)
        found = self._resolver.resolve(frame.to, sender, is_reply=is_reply or is_supervised, now=now)

        # E. No session was found
        if not isinstance(found, Session):
            if found is Unresolved.NOT_FOUND:
                if self._resolver.names_a_control_session(frame.to, sender):
                    return Refusal("E1", reasons.NOT_AN_AGENT)
                if stage is not None and not pending_reply:
                    asked = self._ask_owner(connection, sender, None, stage, frame, message, None, now)  # E2
                    if asked is not False:
                        return None if asked is True else asked
                    owner = self.owner_elsewhere(trim(frame.to), stage, sender, now)
                    if isinstance(owner, Session):
                        return self._decide_found(connection, sender, owner, frame, message, now)
                    if owner is not None:
                        return owner
                if not is_supervised:
                    admitted = self._holding.admit(connection, sender, frame, message, earlier, now)  # E3
                    if admitted is not None:
                        return self._note_hold(admitted, now)
            done = self._find_done(sender, frame, message, now)
            if done is not None:
                return self._answer_done(connection, sender, frame, done)
            if found is Unresolved.NOT_FOUND:
                return self._decide_away(connection, sender, frame, message, gone_code, now)
            wording = trim(frame.to)
            if found is Unresolved.AMBIGUOUS_NAME:
                alone = self._resolver.named_by_machine(wording, sender, is_reply=is_reply or is_supervised, now=now)
                return Refusal("E5", reasons.ambiguous_name(wording, alone))
            return Refusal("E5", reasons.ambiguous_prefix(wording))

        # D. A session was found
        return self._decide_found(connection, sender, found, frame, message, now)

    def _decide_away(
        self,
        connection: Connection,
        sender: Session,
        frame: Send,
        message: Message,
        gone_code: str | UnsetType,
        now: Instant,
    ) -> Refusal | None:
        """Decide about a send whose target is nobody who is here (E4 to E7)."""
        away = self._queueing.find(frame.to, sender, now)
        if isinstance(away, Away):
            return self._queueing.send(connection, sender, away, frame, message, now)
        if isinstance(away, Session):
            return self._decide_found(connection, sender, away, frame, message, now)
        if isinstance(away, Several):
            return Refusal("E5", reasons.ambiguous_away(trim(frame.to), away.groups, away.session_ids, away.alone))
        same = self._find_same(sender, frame, message, now)
        if same is not None and same.state is OperationState.QUEUED:  # its target is gone, and it waits in the inbox
            self._queueing.answer_again(connection, frame, same)
            return None
        trouble = self._operations.trouble
        if trouble is not None and QUEUE in sender.features:  # who is away is not known
            return Refusal("D10", reasons.authority_invalid(trouble))
        return Refusal("E6", reasons.SESSION_NOT_FOUND, gone_code)

    def _find_done(self, sender: Session, frame: Send, message: Message, now: Instant) -> Operation | None:
        """Return the row of this very send when it is over, wherever its target is by now (6.9.2).

        Older clients hear that nobody is there: they know by that what became of their recipient.
        """
        operation = self._find_same(sender, frame, message, now)
        if operation is None or operation.state is not OperationState.ACCEPTED:
            return None
        return None if operation.is_ask and not operation.answered else operation

    def _find_same(self, sender: Session, frame: Send, message: Message, now: Instant) -> Operation | None:
        """Return the row of this very send, wherever its target is by now, for a sender that understands ``queued``."""
        operation = self._operations.find(message.id, now)
        if operation is None or QUEUE not in sender.features or self._operations.is_unusable(message.id):
            return None
        wording = frame.to if frame.logical_target is UNSET else frame.logical_target
        pending_reply = frame.require_pending_reply is True
        signature = self._operations.signature(wording, message, sender, pending_reply=pending_reply)
        return operation if signature == operation.signature else None

    def _answer_done(
        self, connection: Connection, sender: Session, frame: Send, operation: Operation
    ) -> Refusal | None:
        """Say once more what became of a send: an ask was answered, anything else delivered."""
        if operation.is_ask and not self._queueing.answer_waits(sender, operation.message_id):
            return Refusal("6.9.5", reasons.ALREADY_ANSWERED, after=operation.ticket)
        message_id = operation.message_id
        otherwise = DeliveryFailed(message_id, reasons.NOT_CONFIRMED_DURABLY, frame.attempt_id)
        self._answer(connection, Delivered(message_id, frame.attempt_id), operation.ticket, otherwise)
        return None

    def _aim_at_stage(self, to: str, message: Message) -> StageTarget | Refusal | None:
        """Return the workflow target that ``to`` is, None when it is none, or the refusal of its form (B3 to B5)."""
        target = parse_target(to)
        if target is None:
            removed = removed_form(to)
            if removed is None:
                return None
            return Refusal("B5", reasons.removed_target_form(self._stages.canonical_target(*removed)))
        if self._stages.is_non_agent(to, target):
            return Refusal("B3", reasons.NOT_AN_AGENT)
        if target.kind != "path" and message.expects_reply is True:
            return Refusal("B4", reasons.STAGE_ASK)
        return target

    def _ask_owner(
        self,
        connection: Connection,
        sender: Session,
        live: Session | None,
        stage: StageTarget,
        frame: Send,
        message: Message,
        signature: bytes | None,
        now: Instant,
    ) -> Refusal | bool:
        """Put a send before the owner of its stage; False when nobody owns it (6.12.4)."""
        if signature is None:
            wording = frame.to if frame.logical_target is UNSET else frame.logical_target
            pending_reply = frame.require_pending_reply is True
            signature = self._operations.signature(wording, message, sender, pending_reply=pending_reply)
        return self._owners.ask(connection, sender, frame, message, stage, live, signature, now)

    def _note_hold(self, admitted: Held | Refusal, now: Instant) -> Refusal | None:
        """Let a held send be the newest attempt of its operation: an earlier one is owed no answer any more."""
        if isinstance(admitted, Refusal):
            return admitted
        operation = self._operations.find(admitted.message_id, now)
        if operation is not None and operation.unconfirmed is not None:
            operation.unconfirmed.waiter.settle()
        return None

    def _decide_found(
        self,
        connection: Connection,
        sender: Session,
        target: Session,
        frame: Send,
        message: Message,
        now: Instant,
        *,
        stage: StageTarget | None = None,
        request: OwnerRequest | None = None,
    ) -> Refusal | None:
        """Go through protocol 4.8 D.

        ``stage`` is the live stage's target that led to the session; ``request`` is what the owner of a run has just
        decided to forward: groups and the owner have had their say then.
        """
        if not target.is_agent:
            return Refusal("D2", reasons.NOT_AN_AGENT)
        if target is sender:
            return Refusal("D3", reasons.SELF_TARGET)
        if frame.expected_recipient_id is not UNSET and frame.expected_recipient_id != target.id:
            return Refusal("D4", reasons.OTHER_RECIPIENT)
        wording = frame.to
        if frame.logical_target is not UNSET:
            wording = frame.logical_target
            is_reply = isinstance(frame, SupervisorSend) or message.reply_to is not UNSET
            if not self._resolver.wording_still_leads_to(wording, target, frame.to, sender, is_reply=is_reply, now=now):
                return Refusal("D4", reasons.OTHER_RECIPIENT)

        pending_reply = frame.require_pending_reply is True
        if request is not None:
            signature = request.signature
        else:
            signature = self._operations.signature(wording, message, sender, pending_reply=pending_reply)
        operation = self._operations.find(message.id, now)
        standing = self._operations.standing(operation, message.id, signature, target.target_identity)
        if standing is Standing.UNCERTAIN and not target.is_remote and operation is not None and operation.posted_to:
            standing = Standing.MOVED
        if standing is Standing.MATCH and operation is not None and _was_asked_elsewhere(operation, target):
            self._ask_anew(operation)
            operation = standing = None
        after = 0 if operation is None else operation.ticket
        if (
            standing is Standing.CONFLICT
            and operation is not None
            and (
                _is_done(operation, signature, target)
                or _is_done(operation, self._operations.signature_elsewhere(message, sender), target)
            )
        ):
            return self._answer_done(connection, sender, frame, operation)
        if standing is Standing.MOVED and (looked := self.look(connection, frame, target, operation, now)):
            return None if looked is True else looked

        answered = None
        reply_to = message.reply_to
        if reply_to is not UNSET:
            self._delivery.take_reply_for_receipt(sender, target, reply_to, now)
            answered = self._queueing.open_question(target, sender, reply_to)
            if answered is None:
                answered = self._queueing.late_question(target, sender, reply_to, now)
                if answered is not None:  # it may have been told of another session that was asked before
                    self._outbox.write(
                        target.connection, QuestionTarget(reply_to, "", sender.id), answered.operation.ticket
                    )
        is_answer = answered is not None
        is_known = standing is not None and standing in (Standing.MATCH, Standing.QUEUED)
        if pending_reply:
            refusal = self._refuse_known("D5", standing, operation, target, message)
            if refusal is not None:
                return refusal
            if is_known:
                return self._answer_again(connection, sender, target, frame, operation, standing, now)
            if not is_answer:
                return Refusal("D6", reasons.NO_OPEN_QUESTION, after=self._ticket_behind(reply_to, now))
        is_supervised = type(frame) is SupervisorSend
        if not (
            is_supervised
            or is_answer
            or sender.shares_group_with(target)
            or (target.address is not None and target.address.is_of_broker)
            or (reply_to is not UNSET and self._crossings.allows(reply_to, sender.id, target.id, now))
            or request is not None
            or (stage is not None and self._stages.controls_live(sender, target, stage))
        ):
            return Refusal("D7", reasons.DIFFERENT_GROUP, after=self._ticket_behind(reply_to, now))
        if is_known:
            return self._answer_again(connection, sender, target, frame, operation, standing, now)  # D8
        if standing is not None:
            refusal = self._refuse_known("D9 to D11", standing, operation, target, message)
            if refusal is not None:
                return refusal
        if frame.valid_for == 0:
            return Refusal("D23", too_late(operation), after=after)
        is_ask = message.expects_reply is True
        if is_ask and target.is_terminal:
            return Refusal("D12", reasons.TERMINAL, after=after)
        if is_ask and (circle := self._asking.circle(sender, target, answered)) is not None:
            return Refusal("D20", circle, after=after)
        cause = message.caused_by if reply_to is UNSET else reply_to
        if cause is not UNSET and request is None:
            looped = self._loops(sender, target, message, cause, is_answer, now)
            if looped is not None:
                return Refusal("D22", looped, after=after)
        if is_ask and target.cannot_be_told:
            return Refusal("D12", reasons.CANNOT_BE_TOLD, after=after)
        is_looked_for = target.was_at != () and operation is None and request is None
        if is_looked_for and (looked := self.look(connection, frame, target, None, now)):  # D13
            return None if looked is True else looked
        if stage is not None:
            asked = self._ask_owner(connection, sender, target, stage, frame, message, signature, now)  # D14
            if asked is not False:
                return None if asked is True else asked
        if target.inbound is not None and not is_answer and not is_supervised:
            action = target.inbound.action_for(sender_of(sender))
            if action == "refuse":
                return Refusal("D21", reasons.REFUSED_BY_POLICY, after=after)
            if action != "accept":
                if is_ask:
                    return Refusal("D21", reasons.kept_ask(action), after=after)
                return self._queueing.put_aside(
                    connection, sender, target, frame, message, signature, operation, action, now
                )
        if target.mailbox is not None:
            if target.work_mode is not None and operation is None and not (is_answer or stage or request):
                why = self._parking.reason_for(sender, target, frame, message)
                if why is not None:
                    meant, identity = meant_session(target), target.target_identity
                    return self._parking.park(connection, sender, meant, identity, why, frame, message, signature, now)
            if target.is_cut_off and not self._queueing.must_wait(sender, target, frame, message):
                unreachable = reasons.CLUSTER_UNAVAILABLE_TO_ASK if is_ask else reasons.CLUSTER_UNAVAILABLE
                return Refusal("D13", unreachable, after=after)
            if self._queueing.must_wait(sender, target, frame, message):
                return self._queueing.put_behind(
                    connection, sender, target, frame, message, signature, operation, answered, now
                )
        return self._delivery.carry(
            connection, sender, target, frame, message, signature, operation, answered, request, now
        )

    def _ask_anew(self, operation: Operation) -> None:
        for question in operation.questions:
            self._asking.close(question)
        self._operations.ask_anew(operation)

    def _loops(
        self, sender: Session, target: Session, message: Message, cause: str, is_answer: bool, now: Instant
    ) -> str | None:
        """Return why the guard against loops refuses a message that another one caused (protocol 15.3)."""
        if not sender.is_agent or message.id == cause:
            return None
        text = message.content.text
        return self._guard.judge(message.id, cause, sender.party, target.party, text, now, is_answer=is_answer)

    def _ticket_behind(self, reply_to: str | UnsetType, now: Instant) -> int:
        """Return the ticket on which it rests that this question is not open: another answer may have closed it."""
        question = None if reply_to is UNSET else self._operations.find(reply_to, now)
        return 0 if question is None else question.ticket

    def _refuse_known(
        self, rule: str, standing: Standing | None, operation: Operation | None, target: Session, message: Message
    ) -> Refusal | None:
        """Refuse what the row of this message id forbids (D5, D9 to D11)."""
        after = 0 if operation is None else operation.ticket
        if standing is Standing.CONFLICT:
            assert operation is not None, "something was there to conflict with"
            return Refusal(rule, conflict_with(operation), CONFLICT_CODE, after)
        if standing is Standing.MOVED:
            return Refusal(rule, reasons.UNCERTAIN_ELSEWHERE, after=after)
        if standing is Standing.INVALID:
            return Refusal(rule, reasons.authority_invalid(self._operations.trouble))
        if standing is Standing.UNCERTAIN and not target.confirms_receipts:
            assert operation is not None
            reason = reasons.UNDER_WAY if operation.under_way is not None else reasons.UNCERTAIN
            return Refusal(rule, reason, after=after)
        return None

    def _answer_again(
        self,
        connection: Connection,
        sender: Session,
        target: Session,
        frame: Send,
        operation: Operation | None,
        standing: Standing | None,
        now: Instant,
    ) -> Refusal | None:
        """Answer a retry of an operation whose fate is known, without forwarding it (D8, 6.9.5)."""
        assert operation is not None
        message_id, ticket = operation.message_id, operation.ticket
        otherwise = DeliveryFailed(message_id, reasons.NOT_CONFIRMED_DURABLY, frame.attempt_id)
        if standing is Standing.QUEUED:
            if not sender.knows_newest_frames and QUEUE not in sender.features:
                return Refusal("D8", reasons.SESSION_NOT_FOUND, after=ticket)
            self._queueing.answer_again(connection, frame, operation)
            return None
        if operation.is_ask:
            if operation.sender_groups != sender.group_identity:
                return Refusal("6.9.5", reasons.ROUTE_LOST, after=ticket)
            is_over = operation.answered and not self._queueing.answer_waits(sender, message_id)
            if is_over and QUEUE in sender.features:
                return Refusal("6.9.5", reasons.ALREADY_ANSWERED, after=ticket)
            if not operation.answered:
                circle = self._asking.circle(sender, target)
                if circle is not None:
                    return Refusal("D20", circle, after=ticket)
                was_open = bool(operation.questions)
                self._operations.renew_question(operation, self._limits.ask_ms, now)
                self._asking.open(sender, target, operation, now)
                if not was_open:
                    self._asking.tell_reopened(sender, target, message_id, ticket)
            if frame.resolve_reply_target is True and frame.attempt_id is not UNSET:
                self._outbox.write(connection, QuestionTarget(message_id, frame.attempt_id, target.id), ticket)
        self._answer(connection, Delivered(message_id, frame.attempt_id), ticket, otherwise)
        self._asking.settle_if_over(sender, target.id, message_id, now)
        return None


def _was_asked_elsewhere(operation: Operation, target: Session) -> bool:
    """Tell whether nobody where the target of an ask is now was shown it: it is asked there (D13)."""
    return operation.is_ask and not operation.answered and operation.posted_to not in ("", target.at_peer)


def _is_done(operation: Operation, signature: bytes, target: Session) -> bool:
    """Tell whether this very send is over, although its target means another session now, on another machine (D13).

    Who a name means is known here a moment later, or earlier, than where it is: that is no other message.
    """
    if operation.signature != signature or operation.state is not OperationState.ACCEPTED:
        return False
    is_elsewhere = target.is_remote or (operation.target or "").startswith(PEER)
    return is_elsewhere and (operation.answered or not operation.is_ask)
