"""Hand the next step of a flow to its target: look, read its text, look again, record, and only then send (12.3).

Rule 1: one step of a flow is under way at most, and one at a target, whatever the flow. Rule 2: who cannot be reached
is counted, once a pause; who is busy with another flow is waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.json import encode

from intercom.core import features
from intercom.core import flow_tables as tables
from intercom.core.clock import Instant
from intercom.core.flow import Dispatch, Flow
from intercom.core.flow_book import FlowBook
from intercom.core.flow_concerns import Mentions
from intercom.core.flow_messages import message_of
from intercom.core.flow_records import BindingRecord, DispatchRecord, StepRecord, TargetIdentity
from intercom.core.flow_settling import record_binding
from intercom.core.flow_targets import FlowTargets, Unreachable
from intercom.core.mailing import Letter
from intercom.core.records import ReadBodies
from intercom.limits import Limits
from intercom.wire.flows import DISPATCH_PREFIX

if TYPE_CHECKING:
    from intercom.core.asking import Asking
    from intercom.core.mailboxes import Mailboxes
    from intercom.core.outbox import Outbox
    from intercom.core.sessions import Session


class Admitting(Struct, frozen=True):
    """Remember what was seen while the text of a step is read."""

    flow: Flow
    step_id: str
    target: str
    identity: TargetIdentity
    is_recorded: bool
    """All texts of the flow were on disk when this one was asked for, unless they are lost."""


class Admission:
    """Begin attempts; ``on_failed`` is called when a flow was given up."""

    def __init__(
        self,
        book: FlowBook,
        targets: FlowTargets,
        boxes: Mailboxes,
        asking: Asking,
        outbox: Outbox,
        mentions: Mentions,
        ids: Callable[[], str],
        limits: Limits,
        broker_info: bytes,
    ) -> None:
        self._book = book
        self._targets = targets
        self._boxes = boxes
        self._asking = asking
        self._outbox = outbox
        self._mentions = mentions
        self._ids = ids
        self._limits = limits
        self._broker_info = broker_info
        self.is_shut = False
        """The broker leaves soon: no step is handed out any more."""

    def candidate(self, flow: Flow) -> StepRecord | None:
        """Return the step that may be handed out now, if the flow goes on by itself."""
        if flow.record.state != "active" or self._book.open_of(flow) is not None:
            return None
        step = flow.next_step
        return step if step is not None and step.state == tables.STEP.begins else None

    def admit(self, flow: Flow, now: Instant) -> None:
        """Take the first look; the text of the step is read next."""
        step = self.candidate(flow)
        if step is None or flow.is_read or self.is_shut:
            return
        found = self._observe(flow)
        if isinstance(found, Unreachable):
            self.defer(flow, found.reason, now)
        elif not self._book.is_busy(found, flow) and not self._was_just_refused(flow, now):
            flow.is_read = True
            identity, is_recorded = self._targets.identity_of(found), self._book.is_recorded(flow)
            seen = Admitting(flow, step.step_id, flow.record.target, identity, is_recorded)
            self._outbox.add(ReadBodies(seen, (step.body,)))

    def body_read(self, token: Admitting, number: int, bodies: dict[int, bytes] | None, now: Instant) -> None:
        """Look again after the text of a step was read, and record the attempt with its message."""
        flow = token.flow
        flow.is_read = False
        step = self.candidate(flow)
        if step is None or bodies is None or self._book.flow(flow.id) is not flow:
            return
        if number not in bodies and not token.is_recorded:
            return None  # its commit was under way; the next pass reads it
        flow.read((number,), bodies)
        if self.is_shut or not self._book.mailing.can_promise:
            return
        if (step.step_id, flow.record.target) != (token.step_id, token.target):
            return self.admit(flow, now)  # it was changed meanwhile: look anew
        if number not in bodies:
            return self._give_up(flow, step, now)
        found = self._observe(flow)
        if isinstance(found, Unreachable):
            return self.defer(flow, found.reason, now)
        if not self._targets.is_exactly(found, token.identity):
            return self.defer(flow, f"{flow.record.target} was replaced meanwhile", now)
        if not self._book.is_busy(found, flow):
            self._record(flow, step, found, bodies[number].decode(), now)
        return None

    def _was_just_refused(self, flow: Flow, now: Instant) -> bool:
        """Tell whether the broker of a session elsewhere has refused a step within this pause."""
        return flow.refused_at is not None and now.mono - flow.refused_at < self._limits.flow_reconcile_ms

    def _observe(self, flow: Flow) -> Session | Unreachable:
        found = self._targets.find(flow.record.target, flow.record.group)
        if isinstance(found, Unreachable):
            return found
        if found.is_remote:
            return found  # its broker knows whether there is room
        box = found.mailbox
        assert box is not None, "a session that was found has one"
        if not self._boxes.has_room(box, self._limits.flow_prompt_bytes):
            return Unreachable(f"the mailbox of {found.name or found.id} is full")
        return found

    def defer(self, flow: Flow, reason: str, now: Instant) -> None:
        """Count that the target cannot be reached, once a pause; give the flow up when that was too often."""
        if flow.deferred_at is not None and now.mono - flow.deferred_at < self._limits.flow_reconcile_ms:
            return
        flow.deferred_at = now.mono
        count = flow.record.admit_attempts + 1
        move = self._book.begin(now)
        if count < self._limits.flow_admissions:
            move.flow(
                flow,
                "flow.admission_deferred",
                detail={"attempt": count, "reason": reason},
                admit_attempts=count,
                admit_reason=reason,
                admit_at=now.wall,
            )
        else:
            text = f"not reachable after {count} attempts: {reason}"
            move.flow(
                flow,
                "flow.admission_failed",
                "not reachable",
                detail={"attempt": count, "reason": reason},
                admit_attempts=count,
                admit_reason=reason,
                admit_at=now.wall,
                reason=text,
            )
        move.commit()

    def _give_up(self, flow: Flow, step: StepRecord, now: Instant) -> None:
        """Fail a flow whose next step nobody can be told: a text that is lost does not come back."""
        move = self._book.begin(now)
        reason = f"the text of step {step.step_id} is lost"
        detail = {"step": step.step_id, "reason": reason}
        move.flow(flow, "flow.admission_failed", "not reachable", detail=detail, reason=reason)
        move.commit()

    def _record(self, flow: Flow, step: StepRecord, target: Session, prompt: str, now: Instant) -> None:
        identity = self._targets.identity_of(target)
        negotiated = self._targets.features_of(target) >= features.TODO
        dispatch_id = self._ids()
        owed = self._owed(flow, target)
        record = DispatchRecord(
            number=self._book.next_number(),
            dispatch_id=dispatch_id,
            flow_id=flow.id,
            step_id=step.step_id,
            group=flow.record.group,
            revision=1,
            identity=identity,
            created_at=now.wall,
            negotiated=negotiated,
            address=None if target.address is None else target.address.number,
            correlation=owed[0] if len(owed) == 1 else None,
        )
        move = self._book.begin(now)
        attempts = (*step.attempts, dispatch_id)
        steps = move.step(flow, step.step_id, "handed out", attempts=attempts, current=dispatch_id)
        dispatch = move.prepare(record)
        if step.gates is not None:
            move.dispatch(dispatch, "dispatch.capabilities_recorded", detail={"negotiated": negotiated})
            record_binding(move, dispatch, BindingRecord() if negotiated else None)
        # Of one elsewhere it is known that it can be reached when its broker has the step.
        reached: dict[str, Any] = (
            {} if target.is_remote else {"admit_attempts": 0, "admit_reason": None, "admit_at": None}
        )
        move.flow(
            flow,
            "flow.dispatch_admitted",
            detail={"dispatch": dispatch_id, "step": step.step_id},
            steps=steps,
            active_step=step.step_id,
            identity=identity,
            **reached,
        )
        if target.is_remote:
            assert self._targets.elsewhere is not None, "who knows no other brokers knows nobody there"
            dispatch.ticket = move.commit()
            self._targets.elsewhere.begun(dispatch, now)
        else:
            flow.deferred_at = None
            assert target.known is not None
            letter = Letter(
                mailbox=target.known.mailbox_key,
                message_id=DISPATCH_PREFIX + dispatch_id,
                message=encode(message_of(flow.record, step, dispatch.record, prompt, len(attempts))),
                sender_info=self._broker_info,
                sender_mailbox=None,
                sender_session="",
                target=flow.record.target,
            )
            move.commit_with(letter, dispatch)
        self._book.had_its_turn(flow)
        self._book.took(target.id, flow.id)
        if record.correlation is None and self._mentions.is_heard:
            self._book.when_recorded(self._mention_uncorrelated, (flow, dispatch, len(owed)))

    def _mention_uncorrelated(self, subject: tuple[Flow, Dispatch, int], now: Instant) -> None:
        flow, dispatch, count = subject
        questions = f"{count} questions" if count else "no question"
        reason = f"not correlated: its creator has {questions} open with the worker, whose answer would end the work"
        self._mentions.mention("diagnostic", flow.record, dispatch.record, now, reason=reason)

    def _owed(self, flow: Flow, target: Session) -> list[str]:
        """Return the questions that the creator asked this worker and that are open: the answer ends the work."""
        return [
            question.message_id
            for question in self._asking.owed(target.id, target.target_identity)
            if question.operation.sender == flow.record.created_by
        ]
