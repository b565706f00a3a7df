"""Change flows as coordinators ask: write them, begin, halt and end them, try steps again (protocol 12, 4.60 to 4.66).

Rule 1: a request is checked whole before anything changes. Rule 2: whoever controls flows does so in its own groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from msgspec.structs import replace

from intercom.core import features
from intercom.core import flow_tables as tables
from intercom.core.clock import Instant
from intercom.core.flow import Flow
from intercom.core.flow_book import FlowBook
from intercom.core.flow_move import FlowMove
from intercom.core.flow_records import FlowRecord, StepRecord
from intercom.core.flow_settling import Settling, record_binding
from intercom.core.flow_validation import CheckedStep, checked_reason, checked_steps, checked_target, size
from intercom.core.flow_views import FlowViews
from intercom.core.giving import No
from intercom.core.sessions import normalise_group
from intercom.limits import MIB, Limits
from intercom.wire.flows import FlowAppend, FlowCancel, FlowCreate, FlowPause, FlowResume, FlowRetry, FlowStart

if TYPE_CHECKING:
    from intercom.core.sessions import Session


class FlowChanges:
    """Carry out requests that change a flow; ``commit`` records what one of them did."""

    def __init__(
        self,
        book: FlowBook,
        settling: Settling,
        views: FlowViews,
        next_body: Callable[[], int],
        commit: Callable[[FlowMove, Flow, Instant], None],
        limits: Limits,
    ) -> None:
        self._book = book
        self._settling = settling
        self._views = views
        self._next_body = next_body
        self._commit = commit
        self._limits = limits

    def take(self, session: Session, frame: Any, now: Instant) -> Flow | No:
        """Carry a request out; return the flow it changed, or why nothing has changed."""
        return _HANDLERS[type(frame)](self, session, frame, now)

    # --- who may ------------------------------------------------------------------------------------------

    def flow_for(self, session: Session, flow_id: str) -> Flow | No:
        """Return a flow this session may control; others are not known to it."""
        flow = self._book.flow(flow_id)
        if flow is None or not may_control(session, flow):
            return No("flow_unknown", f"No flow {flow_id} is known in your groups")
        return flow

    # --- to write flows -----------------------------------------------------------------------------------

    def _create(self, session: Session, frame: FlowCreate, now: Instant) -> Flow | No:
        group = session.home_group if frame.group is UNSET else normalise_group(frame.group)
        if group not in session.groups and features.OPERATOR not in session.features:
            return No("invalid_flow", f"You are not in group {group}, so you cannot control a flow there")
        target = checked_target(frame.target)
        if isinstance(target, No):
            return target
        steps = checked_steps(frame.steps, frozenset(), self._limits)
        if isinstance(steps, No):
            return steps
        total = sum(size(step.prompt) for step in steps)
        if total > self._limits.flow_bytes:
            return No("flow_limit", f"The prompts of one flow come to {self._limits.flow_bytes // MIB} MiB at most")
        if self._book.flow(frame.flow_id) is not None:
            return No("flow_exists", f"A flow {frame.flow_id} exists already")
        if (refused := self._no_room()) is not None:
            return refused
        move = self._book.begin(now)
        record = FlowRecord(
            number=self._book.next_number(),
            flow_id=frame.flow_id,
            revision=1,
            state=tables.FLOW.begins,
            target=target,
            group=group,
            created_by=session.sender_identity,
            creator=session.name or (session.id if session.address is None else session.address.name),
            creator_session=session.id,
            created_at=now.wall,
            updated_at=now.wall,
            steps=tuple(self._written(step) for step in steps),
        )
        for step, written in zip(steps, record.steps, strict=True):
            move.save_body(written.body, step.prompt.encode("utf-8", "replace"))
        flow = move.create(record)
        self._commit(move, flow, now)
        return flow

    def _written(self, step: CheckedStep) -> StepRecord:
        return StepRecord(step.step_id, self._next_body(), gates=step.gates, report_timeout_ms=step.report_timeout_ms)

    def _no_room(self) -> No | None:
        if self._book.live_count < self._limits.flows:
            return None
        reason = f"{self._limits.flows} flows are not over; cancel one, or wait until one is"
        return No("flow_limit", reason, retryable=True)

    def _append(self, session: Session, frame: FlowAppend, now: Instant) -> Flow | No:
        flow = self.flow_for(session, frame.flow_id)
        if isinstance(flow, No):
            return flow
        record = flow.record
        if not tables.FLOW.allows(record.state, "append"):
            return _conflict(flow, "takes no more steps")
        place = next((place for place, step in enumerate(record.steps) if step.step_id == frame.after_step_id), None)
        if place is None:
            return No("step_unknown", f"Flow {flow.id} has no step {frame.after_step_id}")
        tried = next((step for step in record.steps[place + 1 :] if step.attempts), None)
        if tried is not None:
            return No("flow_conflict", f"Step {tried.step_id} was tried already; append behind it")
        steps = checked_steps(frame.steps, frozenset(step.step_id for step in record.steps), self._limits)
        if isinstance(steps, No):
            return steps
        written = tuple(self._written(step) for step in steps)
        move = self._book.begin(now)
        for step, stored in zip(steps, written, strict=True):
            move.save_body(stored.body, step.prompt.encode("utf-8", "replace"))
        all_steps = (*record.steps[: place + 1], *written, *record.steps[place + 1 :])
        detail = {"after": frame.after_step_id, "steps": [step.step_id for step in written]}
        move.flow(flow, "flow.appended", "append", detail=detail, steps=all_steps)
        self._commit(move, flow, now)
        return flow

    # --- to control them ----------------------------------------------------------------------------------

    def _start(self, session: Session, frame: FlowStart, now: Instant) -> Flow | No:
        return self._moved(session, frame, "start", "flow.started", now)

    def _pause(self, session: Session, frame: FlowPause, now: Instant) -> Flow | No:
        return self._moved(session, frame, "pause", "flow.paused", now)

    def _moved(self, session: Session, frame: Any, event: str, kind: str, now: Instant) -> Flow | No:
        flow = self.flow_for(session, frame.flow_id)
        if isinstance(flow, No):
            return flow
        if not tables.FLOW.allows(flow.record.state, event):
            return _conflict(flow, f"cannot {event}")
        if event == "start" and flow.textless is not None:
            return _lost(flow.textless)
        move = self._book.begin(now)
        move.flow(flow, kind, event, detail={})
        self._commit(move, flow, now)
        return flow

    def _resume(self, session: Session, frame: FlowResume, now: Instant) -> Flow | No:
        flow = self.flow_for(session, frame.flow_id)
        if isinstance(flow, No):
            return flow
        record = flow.record
        if not tables.FLOW.allows(record.state, "resume"):
            return _conflict(flow, "cannot resume")
        if flow.textless is not None:
            return _lost(flow.textless)
        members: dict[str, Any] = {"admit_attempts": 0, "admit_reason": None, "admit_at": None}
        was_over = record.over_at is not None
        if was_over:
            if self._views.is_long_over(flow, now.wall):
                return _conflict(flow, "failed too long ago to resume, its texts are deleted")
            if (refused := self._no_room()) is not None:
                return refused
            members |= {"over_at": None, "reason": None}
        target = record.target if frame.target is UNSET else checked_target(frame.target)
        if isinstance(target, No):
            return target
        if target != record.target:
            if self._book.open_of(flow) is not None:
                return _conflict(flow, "cannot change its target while a step is under way")
            members |= {"target": target, "identity": None}
        flow.deferred_at = None
        move = self._book.begin(now)
        move.flow(flow, "flow.resumed", "resume", detail={"target": target}, **members)
        if was_over:
            move.release(self._book.dispatches_of(flow), flow.record, None)
        self._commit(move, flow, now)
        return flow

    def _retry(self, session: Session, frame: FlowRetry, now: Instant) -> Flow | No:
        flow = self.flow_for(session, frame.flow_id)
        if isinstance(flow, No):
            return flow
        reason = checked_reason(frame.reason)
        if isinstance(reason, No):
            return reason
        step = flow.step(frame.step_id)
        if step is None:
            return No("step_unknown", f"Flow {flow.id} has no step {frame.step_id}")
        if not tables.FLOW.allows(flow.record.state, "retry"):
            return _conflict(flow, "retries nothing")
        if step.state not in tables.TRIED:
            return No(
                "flow_conflict",
                f"Step {step.step_id} is {step.state}: only one that failed, or is ambiguous, can be tried again",
            )
        if flow.textless is not None:
            return _lost(flow.textless)
        if len(step.attempts) >= self._limits.flow_attempts:
            reason_ = f"Step {step.step_id} was tried {len(step.attempts)} times, which is the most"
            return No("step_attempt_limit", reason_)
        move = self._book.begin(now)
        last = self._book.dispatch(step.current)
        if last is not None and last.record.binding is not None and last.record.binding.state in ("pending", "bound"):
            state = tables.BINDING.after(last.record.binding.state, "ambiguous")
            binding = replace(last.record.binding, state=state, reason=f"retried: {reason}")
            record_binding(move, last, binding)
        steps = move.step(flow, step.step_id, "retry", current=None)
        detail = {"step": step.step_id, "reason": reason}
        move.flow(flow, "flow.retry_requested", "retry", detail=detail, steps=steps, reason=reason)
        self._commit(move, flow, now)
        return flow

    def _cancel(self, session: Session, frame: FlowCancel, now: Instant) -> Flow | No:
        flow = self.flow_for(session, frame.flow_id)
        if isinstance(flow, No):
            return flow
        reason = checked_reason(frame.reason)
        if isinstance(reason, No):
            return reason
        if not tables.FLOW.allows(flow.record.state, "cancel"):
            return _conflict(flow, "cannot be cancelled")
        move = self._book.begin(now)
        self._settling.cancel_in(move, flow, reason)
        self._commit(move, flow, now)
        return flow


def may_control(session: Session, flow: Flow) -> bool:
    """Tell whether a session controls a flow; others do not exist for it."""
    return features.OPERATOR in session.features or flow.record.group in session.groups


def _conflict(flow: Flow, what: str) -> No:
    return No("flow_conflict", f"Flow {flow.id} is {flow.record.state} and {what}")


def _lost(step: StepRecord) -> No:
    return No("flow_conflict", f"The text of step {step.step_id} is lost, so the flow cannot go on")


_HANDLERS: dict[type, Callable[..., Flow | No]] = {
    FlowCreate: FlowChanges._create,
    FlowStart: FlowChanges._start,
    FlowPause: FlowChanges._pause,
    FlowResume: FlowChanges._resume,
    FlowAppend: FlowChanges._append,
    FlowRetry: FlowChanges._retry,
    FlowCancel: FlowChanges._cancel,
}
CHANGES = tuple(_HANDLERS)
"""The types of requests that ``FlowChanges`` carries out."""
