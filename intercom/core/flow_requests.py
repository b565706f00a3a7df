"""Take requests about flows: who may ask what, what was asked before, and how it is answered (protocol 12).

Rule 1: a request is answered once what it did is recorded. Rule 2: whoever controls flows looks at those of its own
groups; a worker only reports.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct
from msgspec.json import encode
from msgspec.structs import replace

from intercom.core import features
from intercom.core.clock import Instant
from intercom.core.flow import Flow
from intercom.core.flow_book import FlowBook
from intercom.core.flow_changes import CHANGES, FlowChanges, may_control
from intercom.core.flow_move import FlowMove
from intercom.core.flow_reconcile import Reconciler
from intercom.core.flow_reports import Reports
from intercom.core.flow_settling import Settling
from intercom.core.flow_views import FlowViews
from intercom.core.giving import Giving, No
from intercom.core.idempotency import FLOWS, Entry, Register, Standing
from intercom.core.records import ReadBodies
from intercom.limits import Limits
from intercom.wire.flows import (
    REPORT_PREFIX,
    FlowCollect,
    FlowList,
    FlowReport,
    FlowReportRecorded,
    Flows,
    FlowsCollected,
    FlowStatus,
)
from intercom.wire.flows import Flow as FlowAnswer

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
    texts: tuple[int, ...]
    """Numbers of its prompts; they were on disk when they were asked for, unless they are lost."""


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
        self._changes = FlowChanges(book, settling, views, next_body, self._commit, limits)
        self._reports = reports
        self._views = views
        self._ledger = ledger
        self._outbox = outbox
        self._giving = Giving(outbox, ledger)
        self._trouble = trouble
        self._keys = keys
        self.report_elsewhere: Callable[[Connection, Session, FlowReport, Instant], No | None] | None = None
        """Takes reports of steps whose flow is at another broker."""
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
            no = No("feature_not_granted", f"This needs the feature {' or '.join(sorted(needed))}")
            return self._giving.refuse(connection, frame.request_id, no)
        if trouble is not None:
            no = No("store_unusable", f"The store cannot be used, so flows stand still: {trouble}")
            return self._giving.refuse(connection, frame.request_id, no)
        refused = self._handle(connection, session, frame, now)
        return None if refused is None else self._giving.decline(connection, frame.request_id, refused)

    def _handle(self, connection: Connection, session: Session, frame: Any, now: Instant) -> No | None:
        """Carry a request out, unless its key tells that this was done before."""
        handler = _HANDLERS[type(frame)]
        key = getattr(frame, "request_key", UNSET)
        if key is UNSET:
            return handler(self, connection, session, frame, now)
        named = f"{session.sender_identity}/{key}"
        standing, entry = self._keys.begin(FLOWS, named, _fingerprint(frame), now)
        if standing is Standing.CONFLICT:
            return No("request_key_conflict", f"Another request was made under the key {key}; choose another one")
        if standing is not Standing.NEW:
            flow = self._changes.flow_for(session, frame.flow_id)
            if isinstance(flow, No):
                return flow
            self._giving.promise(connection, self._answer(frame.request_id, session, flow, {}, now))
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

    def _change(self, connection: Connection, session: Session, frame: Any, now: Instant) -> No | None:
        """Answer with a flow as it is once it has changed, and have it looked after."""
        flow = self._changes.take(session, frame, now)
        if isinstance(flow, No):
            return flow
        self._giving.promise(connection, self._answer(frame.request_id, session, flow, {}, now))
        self._reconciler.kick()
        return None

    # --- to look at them ----------------------------------------------------------------------------------

    def _list(self, connection: Connection, session: Session, frame: FlowList, now: Instant) -> No | None:
        mine = [flow for flow in self._book.flows() if may_control(session, flow)]
        mine.sort(key=lambda flow: flow.record.number, reverse=True)
        summaries = [self._views.summary(flow) for flow in mine[: self._limits.flows_listed]]
        self._giving.promise(connection, Flows(frame.request_id, summaries, len(mine)))
        return None

    def _status(self, connection: Connection, session: Session, frame: FlowStatus, now: Instant) -> No | None:
        flow = self._changes.flow_for(session, frame.flow_id)
        if isinstance(flow, No):
            return flow
        self._read_texts((connection, session, frame.request_id, flow), now)
        return None

    def _read_texts(self, subject: tuple[Connection, Session, str, Flow], now: Instant) -> None:
        """Read the texts of a flow once all of them are on disk: one that was not read yet would be taken for lost."""
        connection, session, request_id, flow = subject
        if self._book.is_recorded(flow):
            token = Showing(connection, session, request_id, flow, flow.record.texts)
            self._outbox.add(ReadBodies(token, self._views.bodies_of(flow)))
            return
        ticket = self._ledger.last_ticket
        self._ledger.when_committed(ticket, self._read_texts, subject)
        self._giving.rest(connection, request_id, ticket)

    def bodies_read(
        self, token: Showing, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant
    ) -> None:
        """Answer ``flow_status`` after the texts were read; None: they could not be."""
        connection, flow = token.connection, token.flow
        if connection.session is not token.session:
            return
        if bodies is None:
            refused = No("not_read", "The texts of the flow could not be read; ask again", retryable=True)
            return self._giving.refuse(connection, token.request_id, refused)
        if not may_control(token.session, flow):
            refused = No("authority_changed", "You have left the group of this flow meanwhile")
            return self._giving.refuse(connection, token.request_id, refused)
        is_known = self._book.flow(flow.id) is flow
        if not is_known:  # it was deleted
            return self._giving.refuse(connection, token.request_id, self._giving.not_read)
        if not set(self._views.bodies_of(flow)) <= set(numbers):  # something was reported meanwhile
            return self._read_texts((connection, token.session, token.request_id, flow), now)
        flow.read(token.texts, bodies)
        answer = self._answer(token.request_id, token.session, flow, bodies, now)
        answer.dispatches = [
            self._views.dispatch(one, bodies, now.wall, now.mono) for one in self._book.dispatches_of(flow)
        ]
        self._giving.promise(connection, answer)
        return None

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

    def _report(self, connection: Connection, session: Session, frame: FlowReport, now: Instant) -> No | None:
        if self.report_elsewhere is not None and self._book.dispatch(frame.dispatch_id) is None:
            return self.report_elsewhere(connection, session, frame, now)
        taken = self._reports.take(session, frame, now)
        if isinstance(taken, No):
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
        self._giving.promise(connection, answer)
        return None

    def _collect(self, connection: Connection, session: Session, frame: FlowCollect, now: Instant) -> No | None:
        flows = [flow for flow in self.overdue(now) if may_control(session, flow)]
        if not frame.dry_run:
            self._delete(flows, now)
        self._giving.promise(connection, FlowsCollected(frame.request_id, [flow.id for flow in flows]))
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


def needed_for(kind: type) -> frozenset[str]:
    """Return of which features one at least must have been granted for a request."""
    return _WORK if kind is FlowReport else _CONTROL


def _fingerprint(frame: Any) -> str:
    """Return what makes two requests the same, whatever their ids are."""
    return sha256(encode(replace(frame, request_id=""))).hexdigest()


_HANDLERS: dict[type, Callable[..., No | None]] = {
    **dict.fromkeys(CHANGES, FlowRequests._change),
    FlowList: FlowRequests._list,
    FlowStatus: FlowRequests._status,
    FlowReport: FlowRequests._report,
    FlowCollect: FlowRequests._collect,
}
REQUESTS = tuple(_HANDLERS)
"""The types of frames that ``FlowRequests`` answers."""
