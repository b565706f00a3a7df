"""Take the reports of workers: only an exact one moves a step on (protocol 12.6).

Rule 1: it counts only from the very incarnation that was handed the step. Rule 2: it is recorded once; what differs is
refused, except that evidence about the to-do item may follow while a gate waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from msgspec import UNSET, Struct
from msgspec.json import encode
from msgspec.structs import replace

from intercom.core import flow_tables as tables
from intercom.core.clock import Instant
from intercom.core.flow import Dispatch
from intercom.core.flow_book import FlowBook
from intercom.core.flow_records import BindingRecord, ReportRecord
from intercom.core.flow_settling import Settling, judge, record_binding
from intercom.core.flow_targets import FlowTargets
from intercom.core.flow_validation import checked_report
from intercom.core.giving import No
from intercom.core.sessions import Session
from intercom.wire.flows import DISPATCH_PREFIX, FlowReport


class Kept(Struct, frozen=True):
    """Hold the texts of a report as they are stored."""

    summary: str
    resources: list[str]


class Reports:
    """Accept reports; ``on_waiting`` is called when one waits for evidence."""

    def __init__(self, book: FlowBook, targets: FlowTargets, settling: Settling, next_body: Callable[[], int]) -> None:
        self._book = book
        self._targets = targets
        self._settling = settling
        self._next_body = next_body
        self.on_waiting: Callable[[], None] = lambda: None

    def take(self, session: Session, frame: FlowReport, now: Instant) -> Dispatch | No:
        """Record a report and what follows from it; return the dispatch, or why nothing was recorded."""
        dispatch = self._book.dispatch(frame.dispatch_id)
        if dispatch is None:
            return No("dispatch_unknown", f"No dispatch {frame.dispatch_id} is known here")
        record = dispatch.record
        if not self._targets.may_report(session, record.identity, record.address):
            reason = "Only the session that was handed this step, or one that acts under its address, may report it"
            return No("not_flow_target", reason)
        content = checked_report(frame)
        if isinstance(content, No):
            return content
        if record.report is None and dispatch.is_open:
            if record.transport == tables.TRANSPORT.begins:
                return No("dispatch_unknown", f"Dispatch {frame.dispatch_id} has not been handed over yet")
            self._prove_arrival(dispatch, session, now)
        is_brought = frame.attempt > 1 or not self._targets.is_exactly(session, record.identity)
        return self._take_content(dispatch, frame, content, session.id if is_brought else None, now)

    def take_from_elsewhere(
        self, dispatch: Dispatch, frame: FlowReport, offers: int, bringer: str | None, now: Instant
    ) -> Dispatch | No:
        """Do the same with what the broker of the worker brings, which knows that it comes from nobody else.

        Args:
            dispatch: what was reported.
            frame: as the worker wrote it.
            offers: how often the step was handed over there.
            bringer: the session that brought it after the worker had written it down, if one did.
            now: the time.
        """
        content = checked_report(frame)
        if isinstance(content, No):
            return content
        if dispatch.record.report is None and dispatch.is_open:
            self.arrived_elsewhere(dispatch, offers, now)
        return self._take_content(dispatch, frame, content, bringer, now)

    def _take_content(
        self, dispatch: Dispatch, frame: FlowReport, content: tuple[str, list[str]], bringer: str | None, now: Instant
    ) -> Dispatch | No:
        summary, resources = content
        digest = digest_of(frame.outcome, summary, resources)
        todo = None if frame.todo_outcome is UNSET else frame.todo_outcome
        if dispatch.record.report is not None:
            return self._again(dispatch, dispatch.record.report, digest, todo, now)
        if not dispatch.is_open:
            return self._too_late(dispatch, frame, now)
        report = report_of(frame, self._next_body(), digest, now)
        self._record(dispatch, report, encode(Kept(summary, resources)), now, bringer)
        return dispatch

    def _again(self, dispatch: Dispatch, report: ReportRecord, digest: str, todo: Any, now: Instant) -> Dispatch | No:
        if digest != report.digest:
            return No("report_conflict", "Another report of this dispatch was recorded; that one stays")
        if todo is None or (todo.todo_id, todo.todo_status) == (report.todo_id, report.todo_status):
            return dispatch
        if not dispatch.is_open:
            return No("report_conflict", "The dispatch was decided about with what its first report said")
        binding = dispatch.record.binding
        if binding is not None and binding.todo_id not in (None, todo.todo_id):
            return No("binding_conflict", f"The dispatch is bound to item {binding.todo_id} already")
        self._record(dispatch, replace(report, todo_id=todo.todo_id, todo_status=todo.todo_status), None, now)
        return dispatch

    def _too_late(self, dispatch: Dispatch, frame: FlowReport, now: Instant) -> No:
        record = dispatch.record
        if record.ignored_at is None:
            move = self._book.begin(now)
            move.dispatch(dispatch, "dispatch.report_ignored", detail={"outcome": frame.outcome}, ignored_at=now.wall)
            move.commit()
        why = f": {record.reason}" if record.reason else ""
        return No("dispatch_closed", f"This attempt is {record.outcome} already{why}; do not report it again")

    def _prove_arrival(self, dispatch: Dispatch, session: Session, now: Instant) -> None:
        """Let the report stand for a receipt that has not come."""
        if dispatch.record.transport == "published":
            self._book.mailing.received(session, DISPATCH_PREFIX + dispatch.id, now)
        if dispatch.record.transport == "published":
            self.accepted(dispatch, now)

    def published(self, dispatch: Dispatch, now: Instant) -> None:
        """Record that a step is being handed over."""
        if dispatch.record.transport == tables.TRANSPORT.begins:
            move = self._book.begin(now)
            move.dispatch(dispatch, "dispatch.published", transport="publish", published_at=now.wall)
            move.commit()

    def arrived_elsewhere(self, dispatch: Dispatch, offers: int, now: Instant) -> None:
        """Record that the worker has a step that was handed over so often by another broker."""
        self.published(dispatch, now)
        if dispatch.record.transport == "published":
            self.accepted(dispatch, now, offers=offers)

    def accepted(
        self, dispatch: Dispatch, now: Instant, *, is_confirmed: bool = False, offers: int | None = None
    ) -> None:
        """Record that the worker has the step.

        Args:
            dispatch: the attempt.
            now: the time.
            is_confirmed: its message is leaving the mailbox.
            offers: how often it was handed over; None: as its message says.
        """
        record = dispatch.record
        flow = self._book.flow(record.flow_id)
        assert flow is not None, "a dispatch belongs to a flow"
        if offers is None:
            offers = 1 if dispatch.mail is None else dispatch.mail.offers
        move = self._book.begin(now)
        move.dispatch(
            dispatch,
            "dispatch.accepted",
            transport="accept",
            accepted_at=now.wall,
            delivery_state="accepted" if offers <= 1 else "replayed",
        )
        steps = move.step(flow, record.step_id, "accepted")
        move.flow(flow, "flow.dispatch_accepted", detail={"dispatch": dispatch.id}, steps=steps)
        if is_confirmed:
            move.let_go(dispatch)
        else:
            move.withdraw(dispatch, "the worker reported it before it confirmed it")
        move.commit()
        dispatch.accepted_since = now.mono

    def _record(
        self,
        dispatch: Dispatch,
        report: ReportRecord,
        body: bytes | None,
        now: Instant,
        bringer: str | None = None,
    ) -> None:
        """Record a report and what follows from it; ``bringer`` brought it after the worker had written it down."""
        record = dispatch.record
        flow = self._book.flow(record.flow_id)
        assert flow is not None, "a dispatch belongs to a flow"
        step = flow.step(record.step_id)
        assert step is not None
        move = self._book.begin(now)
        if body is not None:
            move.save_body(report.body, body)
        if bringer is not None:
            brought = {"attempts": report.attempts, "preparedAt": report.prepared_at, "by": bringer}
            move.dispatch(dispatch, "report_outbox.accepted", detail=brought)
        move.dispatch(dispatch, f"work.reported_{report.outcome}", report=report)
        record_binding(move, dispatch, _bound(record.binding, report))
        if body is not None:
            dispatch.report_since = now.mono
        outcome, reason = judge(dispatch.record, step.gates)
        if outcome is not None:
            self._settling.settle_in(move, dispatch, outcome, reason, now)
        move.commit()
        if outcome is None:
            self.on_waiting()
        else:
            self._settling.on_settled()


def digest_of(outcome: str, summary: str, resources: list[str]) -> str:
    """Return what tells a repeat of a report from another one."""
    return sha256(encode((outcome, summary, resources))).hexdigest()


def report_of(frame: FlowReport, body: int, digest: str, now: Instant) -> ReportRecord:
    """Return a report as it is stored, its texts in the body with this number."""
    todo = None if frame.todo_outcome is UNSET else frame.todo_outcome
    todo_id, todo_status = (None, None) if todo is None else (todo.todo_id, todo.todo_status)
    prepared_at = None if frame.prepared_at is UNSET else frame.prepared_at
    return ReportRecord(frame.outcome, body, digest, now.wall, todo_id, todo_status, prepared_at, frame.attempt)


def _bound(binding: BindingRecord | None, report: ReportRecord) -> BindingRecord | None:
    """Return the binding after a report: the first item that is named stays."""
    if binding is None or report.todo_id is None:
        return binding
    if binding.state == "pending":
        binding = replace(binding, state=tables.BINDING.after("pending", "bind"), todo_id=report.todo_id)
    return replace(binding, todo_status=report.todo_status)
