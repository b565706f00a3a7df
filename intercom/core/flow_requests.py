"""Take requests about flows: who may ask what, and what follows (protocol 12).

Rule 1: a request is checked whole before anything changes. Rule 2: it is answered once what it did is recorded.
Rule 3: whoever controls flows does so in its own groups; a worker only reports.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct
from msgspec.json import encode
from msgspec.structs import replace

from intercom.core import features
from intercom.core import flow_tables as tables
from intercom.core.clock import Instant
from intercom.core.flow_book import Flow, FlowBook, FlowMove
from intercom.core.flow_reconcile import Reconciler
from intercom.core.flow_records import FlowRecord, StepRecord
from intercom.core.flow_reports import Reports
from intercom.core.flow_settling import Settling, record_binding
from intercom.core.flow_validation import CheckedStep, Invalid, checked_reason, checked_steps, checked_target, size
from intercom.core.flow_views import FlowViews
from intercom.core.idempotency import FLOWS, Entry, Register, Standing
from intercom.core.records import ReadBodies
from intercom.core.sessions import normalise_group
from intercom.limits import MIB, Limits
from intercom.wire import reasons
from intercom.wire.flows import (
    REPORT_PREFIX,
    FlowAppend,
    FlowCancel,
    FlowCollect,
    FlowCreate,
    FlowList,
    FlowPause,
    FlowReport,
    FlowReportRecorded,
    FlowResume,
    FlowRetry,
    Flows,
    FlowsCollected,
    FlowStart,
    FlowStatus,
)
from intercom.wire.flows import Flow as FlowAnswer
from intercom.wire.mail import RequestFailed

if TYPE_CHECKING:
    from intercom.core.connections import Connection
    from intercom.core.ledger import Ledger
    from intercom.core.outbox import Outbox
    from intercom.core.sessions import Session

_CONTROL = frozenset({features.COORDINATOR, features.OPERATOR})
_WORK = frozenset({features.FLOW_REPORT})


class Showing(Struct, frozen=True):
    """Remember who asked for a flow while its texts are read."""

    connection: Any
    session: Any
    request_id: str
    flow: Any


class FlowRequests:
    """Answer requests about flows."""

    def __init__(
        self,
        book: FlowBook,
        reconciler: Reconciler,
        settling: Settling,
        reports: Reports,
        views: FlowViews,
        ledger: Ledger,
        outbox: Outbox,
        next_body: Callable[[], int],
        trouble: Callable[[], str | None],
        keys: Register,
        limits: Limits,
    ) -> None:
        self._book = book
        self._reconciler = reconciler
        self._settling = settling
        self._reports = reports
        self._views = views
        self._ledger = ledger
        self._outbox = outbox
        self._next_body = next_body
        self._trouble = trouble
        self._keys = keys
        self._entry: Entry | None = None
        """Under which the request is made that is being carried out."""
        self._limits = limits

    def answer(self, connection: Connection, frame: Any, now: Instant) -> None:
        """Answer a request, or refuse it: every one gets exactly one answer."""
        session = connection.session
        assert session is not None, "only called for registered connections"
        trouble = self._trouble()
        needed = needed_for(type(frame))
        if not needed & session.features:
            names = " or ".join(sorted(needed))
            refused: Invalid | None = Invalid("feature_not_granted", f"This needs the feature {names}")
        elif trouble is not None:
            refused = Invalid("store_unusable", f"The store cannot be used, so flows stand still: {trouble}")
        else:
            refused = self._handle(connection, session, frame, now)
        if refused is not None:
            self._refuse(connection, frame.request_id, refused)

    def _handle(self, connection: Connection, session: Session, frame: Any, now: Instant) -> Invalid | None:
        """Carry a request out, unless its key tells that this was done before."""
        handler = _HANDLERS[type(frame)]
        key = getattr(frame, "request_key", UNSET)
        if key is UNSET:
            return handler(self, connection, session, frame, now)
        named = f"{session.sender_identity}/{key}"
        standing, entry = self._keys.begin(FLOWS, named, _fingerprint(frame), now)
        if standing is Standing.CONFLICT:
            return Invalid("request_key_conflict", f"Another request was made under the key {key}; choose another one")
        if standing is not Standing.NEW:
            flow = self._flow_for(session, frame.flow_id)
            if isinstance(flow, Invalid):
                return flow
            self._promise(connection, self._answer(frame.request_id, session, flow, {}, now))
            return None
        self._entry = entry
        refused = handler(self, connection, session, frame, now)
        if refused is not None:
            self._entry = None
            self._keys.failed(entry, {}, now)
        return refused

    def _commit(self, move: FlowMove, flow: Flow, now: Instant) -> None:
        """Record what a request did, and under which key."""
        entry, self._entry = self._entry, None
        if entry is None:
            move.commit()
            return
        keys = self._keys
        move.changes.append(keys.done(entry, {"flowId": flow.id}, now))
        move.inverse(lambda undone: keys.failed(entry, {}, undone))
        keys.settle(entry, move.commit(), now)

    # --- who may ------------------------------------------------------------------------------------------

    def _flow_for(self, session: Session, flow_id: str) -> Flow | Invalid:
        """Return a flow this session may control; others are not known to it."""
        flow = self._book.flow(flow_id)
        if flow is None or not self._may_control(session, flow):
            return Invalid("flow_unknown", f"No flow {flow_id} is known in your groups")
        return flow

    def _may_control(self, session: Session, flow: Flow) -> bool:
        return features.OPERATOR in session.features or flow.record.group in session.groups

    # --- to write flows -----------------------------------------------------------------------------------

    def _create(self, connection: Connection, session: Session, frame: FlowCreate, now: Instant) -> Invalid | None:
        group = session.home_group if frame.group is UNSET else normalise_group(frame.group)
        if group not in session.groups and features.OPERATOR not in session.features:
            return Invalid("invalid_flow", f"You are not in group {group}, so you cannot control a flow there")
        target = checked_target(frame.target)
        if isinstance(target, Invalid):
            return target
        steps = checked_steps(frame.steps, frozenset(), self._limits)
        if isinstance(steps, Invalid):
            return steps
        total = sum(size(step.prompt) for step in steps)
        if total > self._limits.flow_bytes:
            return Invalid(
                "flow_limit", f"The prompts of one flow come to {self._limits.flow_bytes // MIB} MiB at most"
            )
        if self._book.flow(frame.flow_id) is not None:
            return Invalid("flow_exists", f"A flow {frame.flow_id} exists already")
        if (refused := self._no_room()) is not None:
            return refused
        move = self._book.begin(now)
        record = FlowRecord(
            number=self._book.next_flow_number(),
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
        self._show(connection, frame.request_id, flow, now)
        return None

    def _written(self, step: CheckedStep) -> StepRecord:
        return StepRecord(step.step_id, self._next_body(), gates=step.gates, report_timeout_ms=step.report_timeout_ms)

    def _no_room(self) -> Invalid | None:
        if self._book.live_count < self._limits.flows:
            return None
        reason = f"{self._limits.flows} flows are not over; cancel one, or wait until one is"
        return Invalid("flow_limit", reason, retryable=True)

    def _append(self, connection: Connection, session: Session, frame: FlowAppend, now: Instant) -> Invalid | None:
        flow = self._flow_for(session, frame.flow_id)
        if isinstance(flow, Invalid):
            return flow
        record = flow.record
        if not tables.FLOW.allows(record.state, "append"):
            return _conflict(flow, "takes no more steps")
        place = next((place for place, step in enumerate(record.steps) if step.step_id == frame.after_step_id), None)
        if place is None:
            return Invalid("step_unknown", f"Flow {flow.id} has no step {frame.after_step_id}")
        tried = next((step for step in record.steps[place + 1 :] if step.attempts), None)
        if tried is not None:
            return Invalid("flow_conflict", f"Step {tried.step_id} was tried already; append behind it")
        steps = checked_steps(frame.steps, frozenset(step.step_id for step in record.steps), self._limits)
        if isinstance(steps, Invalid):
            return steps
        written = tuple(self._written(step) for step in steps)
        move = self._book.begin(now)
        for step, stored in zip(steps, written, strict=True):
            move.save_body(stored.body, step.prompt.encode("utf-8", "replace"))
        all_steps = (*record.steps[: place + 1], *written, *record.steps[place + 1 :])
        detail = {"after": frame.after_step_id, "steps": [step.step_id for step in written]}
        move.flow(flow, "flow.appended", "append", detail=detail, steps=all_steps)
        self._commit(move, flow, now)
        self._show(connection, frame.request_id, flow, now)
        return None

    # --- to control them ----------------------------------------------------------------------------------

    def _start(self, connection: Connection, session: Session, frame: FlowStart, now: Instant) -> Invalid | None:
        return self._moved(connection, session, frame, "start", "flow.started", now)

    def _pause(self, connection: Connection, session: Session, frame: FlowPause, now: Instant) -> Invalid | None:
        return self._moved(connection, session, frame, "pause", "flow.paused", now)

    def _moved(
        self, connection: Connection, session: Session, frame: Any, event: str, kind: str, now: Instant
    ) -> Invalid | None:
        flow = self._flow_for(session, frame.flow_id)
        if isinstance(flow, Invalid):
            return flow
        if not tables.FLOW.allows(flow.record.state, event):
            return _conflict(flow, f"cannot {event}")
        if event == "start" and flow.textless is not None:
            return _lost(flow.textless)
        move = self._book.begin(now)
        move.flow(flow, kind, event, detail={})
        self._commit(move, flow, now)
        self._show(connection, frame.request_id, flow, now)
        return None

    def _resume(self, connection: Connection, session: Session, frame: FlowResume, now: Instant) -> Invalid | None:
        flow = self._flow_for(session, frame.flow_id)
        if isinstance(flow, Invalid):
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
        if isinstance(target, Invalid):
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
        self._show(connection, frame.request_id, flow, now)
        return None

    def _retry(self, connection: Connection, session: Session, frame: FlowRetry, now: Instant) -> Invalid | None:
        flow = self._flow_for(session, frame.flow_id)
        if isinstance(flow, Invalid):
            return flow
        reason = checked_reason(frame.reason)
        if isinstance(reason, Invalid):
            return reason
        step = flow.step(frame.step_id)
        if step is None:
            return Invalid("step_unknown", f"Flow {flow.id} has no step {frame.step_id}")
        if not tables.FLOW.allows(flow.record.state, "retry"):
            return _conflict(flow, "retries nothing")
        if step.state not in tables.TRIED:
            return Invalid(
                "flow_conflict",
                f"Step {step.step_id} is {step.state}: only one that failed, or is ambiguous, can be tried again",
            )
        if flow.textless is not None:
            return _lost(flow.textless)
        if len(step.attempts) >= self._limits.flow_attempts:
            reason_ = f"Step {step.step_id} was tried {len(step.attempts)} times, which is the most"
            return Invalid("step_attempt_limit", reason_)
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
        self._show(connection, frame.request_id, flow, now)
        return None

    def _cancel(self, connection: Connection, session: Session, frame: FlowCancel, now: Instant) -> Invalid | None:
        flow = self._flow_for(session, frame.flow_id)
        if isinstance(flow, Invalid):
            return flow
        reason = checked_reason(frame.reason)
        if isinstance(reason, Invalid):
            return reason
        if not tables.FLOW.allows(flow.record.state, "cancel"):
            return _conflict(flow, "cannot be cancelled")
        move = self._book.begin(now)
        self._settling.cancel_in(move, flow, reason)
        self._commit(move, flow, now)
        self._show(connection, frame.request_id, flow, now)
        return None

    # --- to look at them ----------------------------------------------------------------------------------

    def _list(self, connection: Connection, session: Session, frame: FlowList, now: Instant) -> Invalid | None:
        mine = [flow for flow in self._book.flows() if self._may_control(session, flow)]
        mine.sort(key=lambda flow: flow.record.number, reverse=True)
        summaries = [self._views.summary(flow) for flow in mine[: self._limits.flows_listed]]
        self._promise(connection, Flows(frame.request_id, summaries, len(mine)))
        return None

    def _status(self, connection: Connection, session: Session, frame: FlowStatus, now: Instant) -> Invalid | None:
        flow = self._flow_for(session, frame.flow_id)
        if isinstance(flow, Invalid):
            return flow
        token = Showing(connection, session, frame.request_id, flow)
        self._outbox.add(ReadBodies(token, self._views.bodies_of(flow)))
        return None

    def bodies_read(self, token: Showing, bodies: dict[int, bytes] | None, now: Instant) -> None:
        """Answer ``flow_status`` after the texts were read; None: they could not be."""
        connection, flow = token.connection, token.flow
        if connection.session is not token.session:
            return
        if bodies is None:
            refused = Invalid("not_read", "The texts of the flow could not be read; ask again", retryable=True)
            return self._refuse(connection, token.request_id, refused)
        if not self._may_control(token.session, flow):
            refused = Invalid("authority_changed", "You have left the group of this flow meanwhile")
            return self._refuse(connection, token.request_id, refused)
        flow.read((step.body for step in flow.record.steps), bodies)
        answer = self._answer(token.request_id, token.session, flow, bodies, now)
        answer.dispatches = [
            self._views.dispatch(one, bodies, now.wall, now.mono) for one in self._book.dispatches_of(flow)
        ]
        self._promise(connection, answer)
        return None

    def _show(self, connection: Connection, request_id: str, flow: Flow, now: Instant) -> None:
        """Answer with a flow that has changed, and have it looked after."""
        session = connection.session
        assert session is not None, "only called for registered connections"
        self._promise(connection, self._answer(request_id, session, flow, {}, now))
        self._reconciler.kick()

    def _answer(
        self, request_id: str, session: Session, flow: Flow, bodies: dict[int, bytes], now: Instant
    ) -> FlowAnswer:
        newest = self._views.newest_dispatch(flow)
        dispatch = UNSET if newest is None else self._views.dispatch(newest, bodies, now.wall, now.mono)
        return FlowAnswer(
            request_id,
            self._views.flow(flow, bodies, session.sender_identity, now.wall),
            self._views.target(flow),
            dispatch,
        )

    # --- to report, and to delete -------------------------------------------------------------------------

    def _report(self, connection: Connection, session: Session, frame: FlowReport, now: Instant) -> Invalid | None:
        taken = self._reports.take(session, frame, now)
        if isinstance(taken, Invalid):
            return taken
        flow = self._book.flow(taken.record.flow_id)
        step = None if flow is None else flow.step(taken.record.step_id)
        assert step is not None, "a dispatch belongs to a step"
        answer = FlowReportRecorded(
            frame.request_id,
            REPORT_PREFIX + taken.id,
            "accepted",
            step.state,  # type: ignore[arg-type]  # the table holds the literals
        )
        self._promise(connection, answer)
        return None

    def _collect(self, connection: Connection, session: Session, frame: FlowCollect, now: Instant) -> Invalid | None:
        flows = [flow for flow in self.overdue(now) if self._may_control(session, flow)]
        if not frame.dry_run:
            self._delete(flows, now)
        self._promise(connection, FlowsCollected(frame.request_id, [flow.id for flow in flows]))
        return None

    def overdue(self, now: Instant) -> list[Flow]:
        """Return the flows that have been over for so long that they are deleted next."""
        before = now.wall - self._limits.flow_retention_ms
        over = [
            flow for flow in self._book.flows() if flow.record.over_at is not None and flow.record.over_at <= before
        ]
        return [flow for flow in over if self._book.open_of(flow) is None][: self._limits.flows_collected]

    def collect(self, now: Instant) -> None:
        """Delete flows that have been over for long."""
        self._delete(self.overdue(now), now)

    def _delete(self, flows: list[Flow], now: Instant) -> None:
        for flow in flows:
            move = self._book.begin(now)
            move.delete(flow)
            move.commit()

    # --- answers ------------------------------------------------------------------------------------------

    def _promise(self, connection: Connection, answer: Any) -> None:
        """Answer once everything the answer speaks of is recorded; when it cannot be, a refusal takes its place."""
        ticket = self._ledger.last_ticket
        self._outbox.write(connection, answer, ticket)
        self._ledger.rest(ticket, self._not_recorded, (connection, answer.request_id))

    def _not_recorded(self, subject: Any, now: Instant) -> None:
        connection, request_id = subject
        self._refuse(connection, request_id, Invalid("not_recorded", reasons.NOT_STORED, retryable=True))

    def _refuse(self, connection: Connection, request_id: str, no: Invalid) -> None:
        self._outbox.write(connection, RequestFailed(request_id, no.code, no.reason, no.retryable))


def needed_for(kind: type) -> frozenset[str]:
    """Return of which features one at least must have been granted for a request."""
    return _WORK if kind is FlowReport else _CONTROL


def _fingerprint(frame: Any) -> str:
    """Return what makes two requests the same, whatever their ids are."""
    return sha256(encode(replace(frame, request_id=""))).hexdigest()


def _conflict(flow: Flow, what: str) -> Invalid:
    return Invalid("flow_conflict", f"Flow {flow.id} is {flow.record.state} and {what}")


def _lost(step: StepRecord) -> Invalid:
    return Invalid("flow_conflict", f"The text of step {step.step_id} is lost, so the flow cannot go on")


_HANDLERS: dict[type, Callable[..., Invalid | None]] = {
    FlowCreate: FlowRequests._create,
    FlowStart: FlowRequests._start,
    FlowPause: FlowRequests._pause,
    FlowResume: FlowRequests._resume,
    FlowAppend: FlowRequests._append,
    FlowRetry: FlowRequests._retry,
    FlowCancel: FlowRequests._cancel,
    FlowList: FlowRequests._list,
    FlowStatus: FlowRequests._status,
    FlowReport: FlowRequests._report,
    FlowCollect: FlowRequests._collect,
}
REQUESTS = tuple(_HANDLERS)
"""The types of frames that ``FlowRequests`` answers."""
