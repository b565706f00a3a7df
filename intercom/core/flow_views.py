"""Show flows: what is, what each waits for and since when, and what a person may do next (protocol 5.70)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from msgspec.json import decode

from intercom.core import flow_tables as tables
from intercom.core.flow import Dispatch, Flow
from intercom.core.flow_book import FlowBook
from intercom.core.flow_messages import shown_gates
from intercom.core.flow_reconcile import Reconciler
from intercom.core.flow_records import DispatchRecord, ReportRecord, StepRecord, TargetIdentity
from intercom.core.flow_reports import Kept
from intercom.core.flow_targets import FlowTargets, Unreachable
from intercom.limits import Limits
from intercom.wire.flows import (
    CreatorAddress,
    DispatchView,
    EndEvidence,
    ExactIdentity,
    FlowSummary,
    FlowView,
    StepReport,
    StepView,
    TargetView,
    TodoBinding,
    TodoOutcome,
    Waiting,
)

if TYPE_CHECKING:
    from intercom.core.addresses import Addresses

Bodies = dict[int, bytes]


class FlowViews:
    """Turn what is recorded into what is shown."""

    def __init__(
        self, book: FlowBook, targets: FlowTargets, reconciler: Reconciler, addresses: Addresses, limits: Limits
    ) -> None:
        self._book = book
        self._targets = targets
        self._reconciler = reconciler
        self._addresses = addresses
        self._limits = limits

    def bodies_of(self, flow: Flow) -> tuple[int, ...]:
        """Return the numbers of all texts of a flow."""
        reports = [one.record.report for one in self._book.dispatches_of(flow)]
        return (*(step.body for step in flow.record.steps), *(one.body for one in reports if one is not None))

    def flow(self, flow: Flow, bodies: Bodies, requester: str, wall: int) -> FlowView:
        """Show a flow to whoever has this sender identity, with the texts that are given, as it is at ``wall``."""
        record = flow.record
        return FlowView(
            record.flow_id,
            record.target,
            record.state,  # type: ignore[arg-type]  # the table holds the literals
            record.group,
            record.creator,
            record.created_at,
            record.updated_at,
            record.revision,
            [self._step(step, bodies) for step in record.steps],
            self._next_actions(flow, wall),
            target_identity=UNSET if record.identity is None else _identity(record.identity),
            active_step_id=_or_unset(record.active_step),
            reason=_or_unset(record.reason),
            last_admit_reason=_or_unset(record.admit_reason),
            last_admit_at=_or_unset(record.admit_at),
            admit_attempts=record.admit_attempts,
            waiting=self._waiting(flow),
            is_yours=record.created_by == requester,
            creator_address=self._creator_address(record.created_by),
        )

    def summary(self, flow: Flow) -> FlowSummary:
        """Show a flow in a list."""
        record = flow.record
        return FlowSummary(
            record.flow_id,
            record.target,
            record.state,  # type: ignore[arg-type]  # the table holds the literals
            record.group,
            record.creator,
            record.created_at,
            record.updated_at,
            sum(step.state == "completed" for step in record.steps),
            len(record.steps),
            active_step_id=_or_unset(record.active_step),
            waiting=self._waiting(flow),
        )

    def newest_dispatch(self, flow: Flow) -> Dispatch | None:
        """Return the dispatch under way, else the newest."""
        attempts = self._book.dispatches_of(flow)
        return self._book.open_of(flow) or (attempts[-1] if attempts else None)

    def target(self, flow: Flow) -> TargetView:
        """Say whether the target is here, and is the one of the latest attempt."""
        record = flow.record
        found = self._targets.find(record.target, record.group)
        if isinstance(found, Unreachable):
            known = None if record.identity is None else self._targets.known_as(record.identity)
            if known is None:
                return TargetView(found=False, exact=False, reason=found.reason)
            return TargetView(
                found=False, exact=True, state=known.state.value, session_id=known.id, reason=found.reason
            )
        exact = record.identity is not None and self._targets.is_exactly(found, record.identity)
        return TargetView(found=True, exact=exact, state="active", session_id=found.id)

    def dispatch(self, dispatch: Dispatch, bodies: Bodies, wall: int, mono: int) -> DispatchView:
        """Show an attempt, with the texts that are given; the times are now."""
        record = dispatch.record
        ends = self._reconciler.ends_at(dispatch) if dispatch.is_open else None
        return DispatchView(
            record.dispatch_id,
            record.step_id,
            _identity(record.identity),
            record.transport,  # type: ignore[arg-type]  # the table holds the literals
            record.outcome,  # type: ignore[arg-type]  # the table holds the literals
            record.created_at,
            record.revision,
            published_at=_or_unset(record.published_at),
            accepted_at=_or_unset(record.accepted_at),
            delivery_state=_or_unset(record.delivery_state),
            completed_at=_or_unset(record.completed_at),
            reason=_or_unset(record.reason),
            correlation=_or_unset(record.correlation),
            report=UNSET if record.report is None else _report(record.report, bodies),
            evidence=UNSET
            if record.evidence is None
            else EndEvidence(record.evidence.detail, record.evidence.at, record.evidence.deadline),
            binding=self._binding(record),
            ignored_report_at=_or_unset(record.ignored_at),
            waits_until=UNSET if ends is None else wall + max(0, ends - mono),
        )

    def _binding(self, record: DispatchRecord) -> Any:
        flow = self._book.flow(record.flow_id)
        step = None if flow is None else flow.step(record.step_id)
        if step is None or step.gates is None:
            return UNSET
        binding = record.binding
        if binding is None:
            return TodoBinding(negotiated=False)
        return TodoBinding(
            negotiated=True,
            state=binding.state,  # type: ignore[arg-type]  # the table holds the literals
            todo_id=_or_unset(binding.todo_id),
            todo_status=_or_unset(binding.todo_status),
            reason=_or_unset(binding.reason),
        )

    def _step(self, step: StepRecord, bodies: Bodies) -> StepView:
        prompt = bodies.get(step.body)
        dispatch = self._book.dispatch(step.current)
        report = None if dispatch is None else dispatch.record.report
        is_result = dispatch is not None and dispatch.record.outcome in ("completed", "failed")
        is_result = is_result and step.state in ("completed", "failed")
        return StepView(
            step.step_id,
            step.state,  # type: ignore[arg-type]  # the table holds the literals
            list(step.attempts),
            prompt=UNSET if prompt is None else prompt.decode(),
            current_dispatch_id=_or_unset(step.current),
            result=_report(report, bodies) if report is not None and is_result else UNSET,
            todo_binding=UNSET if step.gates is None else shown_gates(step.gates),
            report_timeout_ms=_or_unset(step.report_timeout_ms),
        )

    def is_long_over(self, flow: Flow, wall: int) -> bool:
        """Tell whether a flow is over for so long that its texts are deleted."""
        over_at = flow.record.over_at
        return over_at is not None and over_at + self._limits.bodies_kept_ms <= wall

    def _next_actions(self, flow: Flow, wall: int) -> list[str]:
        """Return what a person may do now that is not refused; an action that needs a step names it."""
        state = flow.record.state
        goes_on = flow.textless is None and not self.is_long_over(flow, wall)
        has_room = flow.is_live or self._book.live_count < self._limits.flows
        step = flow.next_step
        retried = step.step_id if step is not None and goes_on and self._is_retried(step) else None
        actions = {
            "start": goes_on,
            "pause": True,
            "resume": goes_on and has_room,
            "retry": retried is not None,
            "append": len(flow.record.steps) < self._limits.flow_steps,
            "cancel": True,
        }
        named = {"retry": f"retry {retried}"}
        return [
            named.get(event, event)
            for event, is_taken in actions.items()
            if is_taken and tables.FLOW.allows(state, event)
        ]

    def _is_retried(self, step: StepRecord) -> bool:
        """Tell whether a step may be tried again once more."""
        return step.state in tables.TRIED and len(step.attempts) < self._limits.flow_attempts

    def _creator_address(self, identity: str) -> Any:
        address = self._addresses.of_key(identity)
        return UNSET if address is None else CreatorAddress(address.name, address.group)

    def _waiting(self, flow: Flow) -> Any:
        record = flow.record
        dispatch = self._book.open_of(flow)
        if dispatch is not None:
            return self._waiting_for(flow, dispatch)
        step = flow.next_step
        if record.state not in tables.LIVE or step is None:
            return UNSET
        if (lost := flow.textless) is not None:
            return Waiting(f"somebody to cancel it, for the text of step {lost.step_id} is lost", record.updated_at)
        if step.state in tables.TRIED:
            last = self._book.dispatch(step.current)
            since = record.updated_at if last is None else last.record.completed_at or record.updated_at
            why = "" if last is None or last.record.reason is None else f": {last.record.reason}"
            said = "has failed" if step.state == "failed" else "is ambiguous"
            if self._is_retried(step):
                return Waiting(f"somebody to retry or cancel, for step {step.step_id} {said}{why}", since)
            often = f"and was tried {len(step.attempts)} times, which is the most"
            return Waiting(f"somebody to cancel it, for step {step.step_id} {said} {often}{why}", since)
        if record.state == "draft":
            return Waiting("somebody to start it", record.created_at)
        if record.state == "paused":
            return Waiting("somebody to resume it", record.updated_at)
        if record.admit_attempts:
            count = f"{record.admit_attempts} of {self._limits.flow_admissions}"
            since = record.admit_at or record.updated_at
            return Waiting(f"its target (vain attempt {count}): {record.admit_reason}", since)
        found = self._targets.find(record.target, record.group)
        if not isinstance(found, Unreachable):
            other = self._book.open_at(found.id)
            if other is not None:
                return Waiting(
                    f"{record.target} to end step {other.record.step_id} of flow {other.record.flow_id}",
                    record.updated_at,
                )
            if self._book.is_taken(found.id):
                return Waiting(f"{record.target} to end a step of a flow on another machine", record.updated_at)
        return Waiting(f"step {step.step_id} to be handed to {record.target}", record.updated_at)

    def _waiting_for(self, flow: Flow, dispatch: Dispatch) -> Waiting:
        record, target = dispatch.record, flow.record.target
        away = ", which is away and may come back" if self._reconciler.is_away(dispatch) else ""
        if record.report is not None:
            return Waiting(f"word of the to-do item of step {record.step_id}{away}", record.report.at)
        if record.evidence is not None:
            return Waiting(f"the report of {target} although {record.evidence.detail}{away}", record.evidence.at)
        if record.accepted_at is not None:
            return Waiting(f"the report of {target}{away}", record.accepted_at)
        if record.published_at is not None:
            return Waiting(f"{target} to confirm step {record.step_id}{away}", record.published_at)
        return Waiting(f"step {record.step_id} to reach {target}{away}", record.created_at)


def _identity(identity: TargetIdentity) -> ExactIdentity:
    runtime = _or_unset(identity.runtime_session_id)
    return ExactIdentity(identity.broker_id, identity.session_id, identity.incarnation, runtime)


def _report(report: ReportRecord, bodies: Bodies) -> StepReport:
    body = bodies.get(report.body)
    kept = None if body is None else decode(body, type=Kept)
    todo: Any = UNSET
    if report.todo_id is not None:
        todo = TodoOutcome(report.todo_id, report.todo_status)  # type: ignore[arg-type]  # came from the wire
    return StepReport(
        report.outcome,  # type: ignore[arg-type]  # came from the wire
        report.at,
        summary=UNSET if kept is None else kept.summary,
        resources=UNSET if kept is None else kept.resources,
        todo_outcome=todo,
        prepared_at=_or_unset(report.prepared_at),
        attempts=report.attempts,
    )


def _or_unset(value: Any) -> Any:
    return UNSET if value is None else value
