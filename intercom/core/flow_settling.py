"""End attempts: each comes to one end, and the first one stays (protocol 12.4)."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from intercom.core import flow_tables as tables
from intercom.core.clock import Instant
from intercom.core.flow import Dispatch, Flow
from intercom.core.flow_book import FlowBook
from intercom.core.flow_move import FlowMove
from intercom.core.flow_records import BindingRecord, DispatchRecord, EvidenceRecord, GatesRecord, StepRecord

GONE = "its session was replaced or has ended"
REJECTED = "dispatch.rejected"
"""The event of a message that was given up before its worker confirmed it."""
_EVENTS = {
    "completed": "dispatch.completed",
    "failed": "dispatch.failed",
    "ambiguous": "dispatch.ambiguous",
    "retired": "dispatch.retired",
}


class Settling:
    """Settle dispatches; ``on_settled`` is called after each, so that the next step follows."""

    def __init__(self, book: FlowBook) -> None:
        self._book = book
        self.on_settled: Callable[[], None] = lambda: None

    def settle(self, dispatch: Dispatch, outcome: str, reason: str, now: Instant, *, sign: str | None = None) -> None:
        """End an open attempt in a move of its own; ``sign`` is an event before its end."""
        move = self._book.begin(now)
        self.settle_in(move, dispatch, outcome, reason, now, sign=sign)
        move.commit()
        self.on_settled()

    def settle_in(
        self,
        move: FlowMove,
        dispatch: Dispatch,
        outcome: str,
        reason: str | None,
        now: Instant,
        *,
        sign: str | None = None,
    ) -> None:
        """End an attempt as completed, failed or ambiguous as part of a move, and its step with it."""
        record = dispatch.record
        flow = self._book.flow(record.flow_id)
        assert flow is not None, "a dispatch belongs to a flow"
        if sign is not None:
            move.dispatch(dispatch, sign, transport="reject" if sign == REJECTED else None, detail={"reason": reason})
        record_binding(move, dispatch, binding_after(record, outcome, reason))
        move.dispatch(dispatch, _EVENTS[outcome], outcome=outcome, reason=reason)
        steps = move.step(flow, record.step_id, outcome)
        event = "all steps completed" if all(step.state == "completed" for step in steps) else None
        detail = {"dispatch": dispatch.id, "step": record.step_id, "outcome": outcome}
        why = flow.record.reason if reason is None else reason
        move.flow(flow, "flow.dispatch_completed", event, detail=detail, steps=steps, active_step=None, reason=why)
        move.withdraw(dispatch, reason or outcome)

    def message_lost(self, dispatch: Dispatch, reason: str, now: Instant) -> None:
        """End an attempt whose message is leaving the mailbox without a receipt."""
        move = self._book.begin(now)
        move.let_go(dispatch)
        self.settle_in(move, dispatch, "ambiguous", reason, now, sign=REJECTED)
        move.commit()
        self.on_settled()

    def session_gone(self, dispatch: Dispatch, grace_ms: int, now: Instant) -> None:
        """Withdraw the message of an attempt whose session will not come back; its report may still be brought.

        ``grace_ms`` is how long whoever acts under its address has for that.
        """
        is_first_sign = dispatch.record.evidence is None
        if not is_first_sign and dispatch.mail is None:
            return
        move = self._book.begin(now)
        if is_first_sign:
            evidence = EvidenceRecord(GONE, now.wall, now.wall + grace_ms)
            move.dispatch(dispatch, "work.generic_end_observed", detail={"evidence": GONE}, evidence=evidence)
            dispatch.evidence_since = now.mono
        move.withdraw(dispatch, GONE)
        move.commit()
        self.on_settled()

    def retire_uncounted(self, dispatch: Dispatch, reason: str, now: Instant) -> None:
        """Take an attempt back whose message cannot have left: its target is gone before the intent was recorded.

        The attempt does not count, and the step is pending as before (design section 7, A2.12).
        """
        move = self._book.begin(now)
        record = dispatch.record
        flow = self._book.flow(record.flow_id)
        assert flow is not None, "a dispatch belongs to a flow"
        move.dispatch(dispatch, "dispatch.retired", outcome="retired", reason=reason)
        step = flow.step(record.step_id)
        assert step is not None
        attempts = tuple(one for one in step.attempts if one != dispatch.id)
        current = attempts[-1] if attempts else None
        steps = move.step(flow, record.step_id, "retired", attempts=attempts, current=current)
        detail = {"dispatch": dispatch.id, "step": record.step_id, "outcome": "retired"}
        move.flow(flow, "flow.dispatch_withdrawn", detail=detail, steps=steps, active_step=None)
        move.withdraw(dispatch, reason)
        move.commit()
        self.on_settled()

    def cancel_in(self, move: FlowMove, flow: Flow, reason: str) -> None:
        """End a flow for good as part of a move: what is under way is retired, what is left is cancelled.

        Raises ``IllegalMove`` when the flow is over; nothing has changed then.
        """
        tables.FLOW.after(flow.record.state, "cancel")
        steps = flow.record.steps
        dispatch = self._book.open_of(flow)
        if dispatch is not None:
            steps = self._retire_in(move, flow, dispatch, f"flow cancelled: {reason}")
        steps = tuple(_cancelled(step) for step in steps)
        move.flow(flow, "flow.cancelled", "cancel", detail={}, steps=steps, active_step=None, reason=reason)

    def retire_left_open(self, flow: Flow, dispatch: Dispatch, now: Instant) -> None:
        """Retire what is under way in a flow that is over: it is never published again."""
        move = self._book.begin(now)
        steps = self._retire_in(move, flow, dispatch, f"flow {flow.record.state}: {flow.record.reason or 'over'}")
        steps = tuple(_cancelled(step) for step in steps)
        detail = {"dispatch": dispatch.id, "step": dispatch.record.step_id, "outcome": "retired"}
        move.flow(flow, "flow.projection_repaired", detail=detail, steps=steps, active_step=None)
        move.commit()

    def _retire_in(self, move: FlowMove, flow: Flow, dispatch: Dispatch, reason: str) -> tuple[StepRecord, ...]:
        record_binding(move, dispatch, binding_after(dispatch.record, "retired", reason))
        move.dispatch(dispatch, "dispatch.retired", outcome="retired", reason=reason)
        move.withdraw(dispatch, reason)
        return move.step(flow, dispatch.record.step_id, "retired")


def _cancelled(step: StepRecord) -> StepRecord:
    if step.state == "completed":
        return step
    return replace(step, state=tables.STEP.after(step.state, "flow cancelled"))


def record_binding(move: FlowMove, dispatch: Dispatch, binding: BindingRecord | None) -> None:
    """Record a binding as part of a move, if it is another one than before."""
    if binding != dispatch.record.binding:
        move.dispatch(
            dispatch, "dispatch.binding_recorded", detail={"binding": binding and binding.state}, binding=binding
        )


def binding_after(record: DispatchRecord, outcome: str, reason: str | None) -> BindingRecord | None:
    """Return what becomes of the binding of an attempt that ends like this."""
    binding = record.binding
    if binding is None or binding.state in tables.BINDING.ends():
        return binding
    if outcome in ("ambiguous", "retired"):
        return replace(binding, state=tables.BINDING.after(binding.state, "ambiguous"), reason=reason)
    if binding.state != "bound" or (outcome == "completed" and binding.todo_status != "completed"):
        return binding
    return replace(binding, state=tables.BINDING.after(binding.state, outcome))


def judge(record: DispatchRecord, gates: GatesRecord | None) -> tuple[str | None, str | None]:
    """Return how a reported attempt ends and why; ``None`` as the end: evidence is still to come (protocol 12.6)."""
    report = record.report
    assert report is not None
    if report.todo_id is not None and record.binding is None:
        return "ambiguous", f"to-do item {report.todo_id} was reported, and the step is bound to none"
    if report.outcome == "failed":
        return "failed", "the worker reported that the step failed"
    if gates is None or record.binding is None or not (gates.require_completed or gates.conflict_check):
        return "completed", None
    if report.todo_id is None:
        return None, "reported as completed, and nothing was said of its to-do item"
    if report.todo_status == "completed":
        return "completed", None
    said = f"reported as completed, and its to-do item {report.todo_id} is {report.todo_status}"
    return ("ambiguous" if gates.conflict_check else None), said
