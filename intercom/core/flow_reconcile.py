"""Look after the flows that have something to do: one pass at a time, in turn, each for itself (protocol 12.5).

What a pass does is derived from what is recorded, so it may be done at any time and again. A pass costs nothing for
flows that are over, and little for those that wait for somebody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intercom.core.clock import Instant
from intercom.core.deadlines import Deadline, Deadlines
from intercom.core.flow import Dispatch, Flow
from intercom.core.flow_admission import Admission
from intercom.core.flow_book import FlowBook
from intercom.core.flow_concerns import Mentions
from intercom.core.flow_records import EvidenceRecord
from intercom.core.flow_settling import GONE, REJECTED, Settling, judge
from intercom.core.flow_targets import FlowTargets
from intercom.core.records import SessionState
from intercom.limits import Limits

NO_CLUSTER = "its session is on another machine, and this broker is in no cluster any more"

if TYPE_CHECKING:
    from intercom.core.operations import Operations
    from intercom.core.outbox import Outbox


class Reconciler:
    """Run passes; ``kick`` asks for one, and any number of kicks before it begins ask for the same one."""

    def __init__(
        self,
        book: FlowBook,
        targets: FlowTargets,
        admission: Admission,
        settling: Settling,
        operations: Operations,
        deadlines: Deadlines,
        outbox: Outbox,
        mentions: Mentions,
        limits: Limits,
    ) -> None:
        self._book = book
        self._targets = targets
        self._admission = admission
        self._settling = settling
        self._operations = operations
        self._deadlines = deadlines
        self._outbox = outbox
        self._mentions = mentions
        self._limits = limits
        self._kicked: Deadline | None = None
        self._timed: Deadline | None = None
        self._due = 0
        """When the timed pass should run (monotonic ms)."""
        self.passes = 0
        """How many passes there were."""

    def kick(self) -> None:
        """Ask for a pass as soon as what happens now is done."""
        if self._kicked is None and self._book.live_count + self._book.open_count:
            self._kicked = self._deadlines.add(0, self._kicked_pass)

    def directory_changed(self) -> None:
        """Ask for a pass because somebody came, left or changed, if any flow waits for that."""
        self.kick()

    def _kicked_pass(self, _: None, now: Instant) -> None:
        self._kicked = None
        self.run(now)

    def _timed_pass(self, _: None, now: Instant) -> None:
        self._timed = None
        self.run(now)

    def run(self, now: Instant) -> None:
        """Go through all flows that are not over; those that were handed out a step last come last."""
        self.passes += 1
        gap = now.mono - self._due if self._due else 0
        if gap > self._limits.late_ms:
            self._forgive(gap, now)
        for flow in sorted(self._book.live(), key=lambda flow: flow.turn):
            self._look_after(flow, now)
        self._arm(now)

    def _look_after(self, flow: Flow, now: Instant) -> None:
        is_heard = self._mentions.is_heard
        dispatch = self._book.open_of(flow)
        before = (flow.record, dispatch and dispatch.record, flow.is_read)
        last = self._book.last_ticket
        try:
            if dispatch is not None:
                self.look_at(dispatch, now)
            else:
                self._admission.admit(flow, now)
        except Exception as error:  # a fault in one flow must stop no other
            self._book.roll_back(now)
            trouble = f"{type(error).__name__}: {error}"
            self._outbox.note("flow_trouble", flow=flow.id, error=trouble)
            self._mentions.mention("diagnostic", flow.record, None, now, reason=f"a fault of the broker: {trouble}")
        if is_heard and before != (flow.record, dispatch and dispatch.record, flow.is_read):
            self._mention_look(flow, dispatch, self._book.last_ticket != last, now)

    def _mention_look(self, flow: Flow, dispatch: Dispatch | None, has_recorded: bool, now: Instant) -> None:
        """Say that a look at a flow did something: that it began, and once what it did is recorded that it is over."""
        look = (flow, dispatch, self.passes)
        attempt = None if dispatch is None else dispatch.record
        self._mentions.mention("reconcile_start", flow.record, attempt, now, **{"pass": self.passes})
        if has_recorded:
            self._book.when_recorded(self._mention_end, look)
        else:
            self._mention_end(look, now)

    def _mention_end(self, look: tuple[Flow, Dispatch | None, int], now: Instant) -> None:
        flow, dispatch, number = look
        attempt = None if dispatch is None else dispatch.record
        more = {"reads": flow.next_step.step_id} if flow.is_read and flow.next_step is not None else {}
        self._mentions.mention("reconcile_finish", flow.record, attempt, now, **{"pass": number}, **more)

    def _forgive(self, gap: int, now: Instant) -> None:
        """Give everybody the time back in which this process stood still: nobody could report.

        What began behind the standstill, before this pass, has lost less of its time, or none.
        """
        for flow in self._book.live():
            dispatch = self._book.open_of(flow)
            if dispatch is not None:
                dispatch.accepted_since = min(dispatch.accepted_since + gap, now.mono)
                dispatch.report_since = min(dispatch.report_since + gap, now.mono)
                dispatch.evidence_since = min(dispatch.evidence_since + gap, now.mono)

    def _arm(self, now: Instant) -> None:
        """Set the next pass: after the pause while something is to be done, or when the next time is over."""
        self._deadlines.cancel(self._timed)
        self._timed, self._due = None, 0
        due = now.mono + self._limits.flow_reconcile_ms
        is_needed = False
        for flow in self._book.live():
            dispatch = self._book.open_of(flow)
            if dispatch is not None:
                is_needed = True
                ends = self.ends_at(dispatch)
                due = due if ends is None else max(min(due, ends), now.mono + 1)
            elif self._admission.candidate(flow) is not None:
                is_needed = True
        if is_needed:
            self._due = due
            self._timed = self._deadlines.add(due, self._timed_pass)

    # --- one attempt ------------------------------------------------------------------------------------

    def look_at(self, dispatch: Dispatch, now: Instant) -> None:
        """Decide about an attempt from what is known of it; the first rule that applies ends the look."""
        record = dispatch.record
        ends = self.ends_at(dispatch)
        is_over = ends is not None and ends <= now.mono
        if record.report is not None:
            if is_over:
                self._settling.settle(dispatch, "ambiguous", self._gate_reason(dispatch), now)
        elif record.evidence is not None:
            if is_over:
                reason = f"{record.evidence.detail}, and no report came in time"
                self._settling.settle(dispatch, "ambiguous", reason, now, sign="work.ended_unreported")
        elif self._targets.is_here(record.identity) and self._targets.known_as(record.identity) is None:
            self.target_gone(dispatch, now)
        elif (detail := self._evidence(dispatch)) is not None:
            move = self._book.begin(now)
            evidence = EvidenceRecord(detail, now.wall, now.wall + self._limits.flow_end_grace_ms)
            move.dispatch(dispatch, "work.generic_end_observed", detail={"evidence": detail}, evidence=evidence)
            move.commit()
            dispatch.evidence_since = now.mono
        elif is_over:
            self._settling.settle(dispatch, "ambiguous", "no report came in the time the step has", now)
        elif not self._targets.is_here(record.identity):
            self._look_elsewhere(dispatch, now)
        elif dispatch.mail is None and record.transport in ("prepared", "published"):
            self._settling.settle(dispatch, "ambiguous", "its message is lost", now, sign=REJECTED)

    def _look_elsewhere(self, dispatch: Dispatch, now: Instant) -> None:
        elsewhere = self._targets.elsewhere
        if elsewhere is None:
            self._settling.settle(dispatch, "ambiguous", NO_CLUSTER, now)
        else:
            elsewhere.look_at(dispatch, now)

    def target_gone(self, dispatch: Dispatch, now: Instant) -> None:
        """End an attempt whose session will not come back; one whose intent is not recorded yet never was."""
        if dispatch.record.report is not None:
            return  # what was reported is decided about by its own rule
        if self._book.is_committed(dispatch):
            if dispatch.record.address is None or dispatch.record.transport == "prepared":
                self._settling.settle(dispatch, "ambiguous", f"{GONE}, and there is no report", now)
            else:
                self._settling.session_gone(dispatch, self._limits.flow_end_grace_ms, now)
        else:
            self._settling.retire_uncounted(dispatch, "its session left before the attempt was recorded", now)

    def gone_elsewhere(self, dispatch: Dispatch, may_be_brought: bool, now: Instant) -> None:
        """Do the same for a session of another broker, which knows whether anybody may still bring its report."""
        if dispatch.record.report is not None:
            return
        if may_be_brought:
            self._settling.session_gone(dispatch, self._limits.flow_end_grace_ms, now)
        else:
            self._settling.settle(dispatch, "ambiguous", f"{GONE}, and there is no report", now)

    def _gate_reason(self, dispatch: Dispatch) -> str:
        flow = self._book.flow(dispatch.record.flow_id)
        step = None if flow is None else flow.step(dispatch.record.step_id)
        _, reason = judge(dispatch.record, None if step is None else step.gates)
        return f"{reason}, and nothing else came in time"

    def ends_at(self, dispatch: Dispatch) -> int | None:
        """Return when an attempt becomes ambiguous by time alone (monotonic ms)."""
        record = dispatch.record
        if record.report is not None:
            return dispatch.report_since + self._limits.flow_todo_gate_ms
        if record.evidence is not None:
            return dispatch.evidence_since + self._limits.flow_end_grace_ms
        flow = self._book.flow(record.flow_id)
        step = None if flow is None else flow.step(record.step_id)
        if step is None or step.report_timeout_ms is None or record.accepted_at is None:
            return None
        return dispatch.accepted_since + step.report_timeout_ms

    def _evidence(self, dispatch: Dispatch) -> str | None:
        """Return by what sign the work has ended, if there is one."""
        record = dispatch.record
        asked = None if record.correlation is None else self._operations.by_id(record.correlation)
        if asked is not None and asked.answered:
            return f"question {record.correlation}, which the work was to end with, was answered"
        session = self._targets.session_of(record.identity)
        if session is None or not session.is_terminal:
            return None
        ended = "its session says that it has finished"
        if record.correlation is None:
            return ended
        return f"{ended}, although question {record.correlation} is not answered"

    # --- recovery ---------------------------------------------------------------------------------------

    def recover(self, now: Instant) -> None:
        """Set the clocks of what was under way, and finish what was cut off."""
        for flow in list(self._book.flows()):
            dispatch = self._book.open_of(flow)
            if dispatch is None:
                continue
            record = dispatch.record
            if not flow.is_live:
                self._settling.retire_left_open(flow, dispatch, now)
                continue
            dispatch.accepted_since = now.mono - _elapsed(record.accepted_at, now)
            if record.report is not None:
                elapsed = min(_elapsed(record.report.at, now), self._limits.flow_todo_gate_ms)
                dispatch.report_since = now.mono - elapsed
            if record.evidence is not None:
                elapsed = min(_elapsed(record.evidence.at, now), self._limits.flow_end_grace_ms)
                dispatch.evidence_since = now.mono - elapsed
        self.kick()

    def is_away(self, dispatch: Dispatch) -> bool:
        """Tell whether the worker has lost its connection and may come back."""
        identity = dispatch.record.identity
        if not self._targets.is_here(identity):
            return self._targets.session_of(identity) is None
        known = self._targets.known_as(identity)
        return known is not None and known.state is SessionState.RECONNECTING


def _elapsed(at: int | None, now: Instant) -> int:
    """Return how long ago that was by the wall clock; a clock that was set back says: just now."""
    return 0 if at is None else max(0, now.wall - at)
