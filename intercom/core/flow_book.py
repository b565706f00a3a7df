"""Keep the flows and their dispatches, and change both together (protocol 12.2).

Rule 1: what changes in one move is one append: events, rows and the message that carries a dispatch. Rule 2: a move is
made in memory at once; when it cannot be recorded everything is again as it was before, the newest move first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from intercom.core import flow_tables as tables
from intercom.core.clock import Instant
from intercom.core.flow_records import DispatchRecord, FlowRecord, StepRecord, TargetIdentity
from intercom.core.journal import Journal
from intercom.core.ledger import Ledger
from intercom.core.mailboxes import Mail
from intercom.core.mailing import GivenUp, Letter, Mailing
from intercom.core.records import Change, ReleaseBody, SaveBody
from intercom.limits import Limits


class Dispatch:
    """Hold one attempt, and what only this process knows of it."""

    __slots__ = ("accepted_since", "evidence_since", "mail", "record", "report_since", "ticket")

    def __init__(self, record: DispatchRecord) -> None:
        self.record = record
        self.ticket = 0
        """Of its intent; once that is committed the target may have been handed the message."""
        self.mail: Mail | None = None
        """The message that carries it, as long as it is not confirmed."""
        self.accepted_since = 0
        self.report_since = 0
        self.evidence_since = 0
        """Since when the worker has it, its report waits for evidence, and evidence for a report (monotonic ms)."""

    @property
    def id(self) -> str:
        """Return its id."""
        return self.record.dispatch_id

    @property
    def is_open(self) -> bool:
        """Tell whether nothing has decided about it."""
        return self.record.outcome == tables.OUTCOME.begins


class Flow:
    """Hold one flow, and what only this process knows of it."""

    __slots__ = ("deferred_at", "is_read", "record", "ticket")

    def __init__(self, record: FlowRecord) -> None:
        self.record = record
        self.ticket = 0
        """Of its last change."""
        self.deferred_at: int | None = None
        """When it was last counted that its target cannot be reached (monotonic ms)."""
        self.is_read = False
        """The text of its next step is being read."""

    @property
    def id(self) -> str:
        """Return its id."""
        return self.record.flow_id

    @property
    def is_live(self) -> bool:
        """Tell whether it is not over."""
        return self.record.state in tables.LIVE

    @property
    def next_step(self) -> StepRecord | None:
        """Return the first step that is not completed."""
        return next((step for step in self.record.steps if step.state != "completed"), None)

    def step(self, step_id: str) -> StepRecord | None:
        """Return the step with this id."""
        return next((step for step in self.record.steps if step.step_id == step_id), None)


class FlowBook:
    """Find flows and dispatches; ``on_undone`` is told of every move that could not be recorded."""

    def __init__(self, journal: Journal, ledger: Ledger, mailing: Mailing, limits: Limits) -> None:
        self._journal = journal
        self._ledger = ledger
        self.mailing = mailing
        self._limits = limits
        self._flows: dict[str, Flow] = {}
        self._live: dict[str, Flow] = {}
        self._dispatches: dict[str, Dispatch] = {}
        self._of_flow: dict[str, dict[str, Dispatch]] = {}
        self._open: dict[str, Dispatch] = {}
        """By the id of their flow."""
        self._open_by_session: dict[str, Dispatch] = {}
        self._last_flow = 0
        self._last_dispatch = 0
        self._move: Move | None = None
        """The one that was begun and not asked for yet."""
        self.on_undone: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._flows)

    # --- look-up ----------------------------------------------------------------------------------------

    def flow(self, flow_id: str) -> Flow | None:
        """Return the flow with this id."""
        return self._flows.get(flow_id)

    def dispatch(self, dispatch_id: str | None) -> Dispatch | None:
        """Return the dispatch with this id."""
        return None if dispatch_id is None else self._dispatches.get(dispatch_id)

    def flows(self) -> Iterable[Flow]:
        """Return all flows, the oldest first."""
        return self._flows.values()

    def live(self) -> list[Flow]:
        """Return the flows that are not over, the oldest first."""
        return list(self._live.values())

    @property
    def live_count(self) -> int:
        """Return how many flows are not over."""
        return len(self._live)

    @property
    def open_count(self) -> int:
        """Return how many dispatches are under way."""
        return len(self._open)

    def dispatches_of(self, flow: Flow) -> list[Dispatch]:
        """Return the attempts of a flow, the oldest first."""
        return list(self._of_flow.get(flow.id, {}).values())

    def open_of(self, flow: Flow) -> Dispatch | None:
        """Return the dispatch of a flow that is under way: there is one at most."""
        return self._open.get(flow.id)

    def open_at(self, session_id: str) -> Dispatch | None:
        """Return the dispatch this session works on: there is one at most."""
        return self._open_by_session.get(session_id.lower())

    def is_committed(self, dispatch: Dispatch) -> bool:
        """Tell whether the intent of a dispatch is durable."""
        return self._ledger.is_committed(dispatch.ticket)

    def next_flow_number(self) -> int:
        """Return the number of the next flow."""
        self._last_flow += 1
        return self._last_flow

    def next_dispatch_number(self) -> int:
        """Return the number of the next dispatch."""
        self._last_dispatch += 1
        return self._last_dispatch

    # --- recovery ---------------------------------------------------------------------------------------

    def recover(self, flows: Iterable[FlowRecord], dispatches: Iterable[DispatchRecord]) -> None:
        """Enter what the store held."""
        for record in flows:
            self._last_flow = max(self._last_flow, record.number)
            self.enter_flow(Flow(record))
        for attempt in dispatches:
            self._last_dispatch = max(self._last_dispatch, attempt.number)
            self.enter_dispatch(Dispatch(attempt))

    # --- moves ------------------------------------------------------------------------------------------

    def begin(self, now: Instant) -> Move:
        """Begin a move; there is one at a time."""
        assert self._move is None, "the move before has not been asked for"
        self._move = Move(self, self._journal, self._ledger, self._limits, now)
        return self._move

    def asked_for(self) -> None:
        """Note that the move that was begun is on its way to the store."""
        self._move = None

    def roll_back(self, now: Instant) -> None:
        """Take back a move that was begun and could not be ended because of a fault."""
        move, self._move = self._move, None
        if move is not None:
            move.take_back(now)

    def enter_flow(self, flow: Flow) -> None:
        """Put a flow in, or note that it has changed."""
        self._flows[flow.id] = flow
        if flow.is_live:
            self._live[flow.id] = flow
        else:
            self._live.pop(flow.id, None)

    def enter_dispatch(self, dispatch: Dispatch) -> None:
        """Put a dispatch in, or note that it has changed."""
        record = dispatch.record
        self._dispatches[dispatch.id] = dispatch
        self._of_flow.setdefault(record.flow_id, {})[dispatch.id] = dispatch
        if dispatch.is_open:
            self._open[record.flow_id] = dispatch
            self._open_by_session[record.identity.session_id.lower()] = dispatch
        else:
            self._leave_open(dispatch)

    def _leave_open(self, dispatch: Dispatch) -> None:
        record = dispatch.record
        if self._open.get(record.flow_id) is dispatch:
            del self._open[record.flow_id]
        if self._open_by_session.get(record.identity.session_id.lower()) is dispatch:
            del self._open_by_session[record.identity.session_id.lower()]

    def remove_flow(self, flow: Flow) -> None:
        """Take a flow out."""
        self._flows.pop(flow.id, None)
        self._live.pop(flow.id, None)

    def remove_dispatch(self, dispatch: Dispatch) -> None:
        """Take a dispatch out."""
        self._leave_open(dispatch)
        self._dispatches.pop(dispatch.id, None)
        mine = self._of_flow.get(dispatch.record.flow_id, {})
        mine.pop(dispatch.id, None)
        if not mine:
            self._of_flow.pop(dispatch.record.flow_id, None)


class Move:
    """Collect what changes together; nothing is asked of the store before ``commit``."""

    def __init__(self, book: FlowBook, journal: Journal, ledger: Ledger, limits: Limits, now: Instant) -> None:
        self._book = book
        self._journal = journal
        self._ledger = ledger
        self._limits = limits
        self._now = now
        self._changes: list[Change] = []
        self._before: list[tuple[Flow | Dispatch, Any]] = []
        self._withdrawn: list[tuple[Dispatch, Mail, GivenUp]] = []
        self._let_go: list[tuple[Dispatch, Mail | None]] = []
        self._inverses: list[Callable[[Instant], None]] = []

    # --- flows ------------------------------------------------------------------------------------------

    def create(self, record: FlowRecord) -> Flow:
        """Enter a new flow."""
        flow = Flow(record)
        self._before.append((flow, None))
        self._book.enter_flow(flow)
        self._changes.append(self._event("flow.created", record, {}))
        return flow

    def flow(self, flow: Flow, kind: str, event: str | None = None, *, detail: dict[str, Any], **members: Any) -> None:
        """Change a flow; ``event`` names a move of its table and gives its next state.

        Raises ``IllegalMove`` before anything has changed.
        """
        record = flow.record
        if event is not None:
            members["state"] = tables.FLOW.after(record.state, event)
        is_over = members.get("state", record.state) not in tables.LIVE
        if is_over and record.over_at is None:
            members["over_at"] = self._now.wall
        changed = replace(record, revision=record.revision + 1, updated_at=self._now.wall, **members)
        self._before.append((flow, record))
        flow.record = changed
        self._book.enter_flow(flow)
        self._changes.append(self._event(kind, changed, detail))
        if is_over and record.over_at is None:
            self.release(self._book.dispatches_of(flow), changed, self._now.wall + self._limits.bodies_kept_ms)

    def step(self, flow: Flow, step_id: str, event: str, **members: Any) -> tuple[StepRecord, ...]:
        """Return the steps of a flow with one of them moved by an event of the table.

        Raises ``IllegalMove``; nothing has changed yet.
        """
        return tuple(
            replace(step, state=tables.STEP.after(step.state, event), **members) if step.step_id == step_id else step
            for step in flow.record.steps
        )

    def delete(self, flow: Flow) -> None:
        """Delete a flow with all its dispatches; only their history stays."""
        for dispatch in self._book.dispatches_of(flow):
            record = replace(dispatch.record, revision=dispatch.record.revision + 1)
            self._before.append((dispatch, dispatch.record))
            self._book.remove_dispatch(dispatch)
            self._changes.append(self._event("dispatch.deleted", record, {}, is_gone=True))
        record_of_flow = replace(flow.record, revision=flow.record.revision + 1)
        self._before.append((flow, flow.record))
        self._book.remove_flow(flow)
        self._changes.append(self._event("flow.deleted", record_of_flow, {}, is_gone=True))

    # --- dispatches -------------------------------------------------------------------------------------

    def prepare(self, record: DispatchRecord) -> Dispatch:
        """Enter a new dispatch."""
        dispatch = Dispatch(record)
        self._before.append((dispatch, None))
        self._book.enter_dispatch(dispatch)
        self._changes.append(self._event("dispatch.prepared", record, {}))
        return dispatch

    def dispatch(
        self,
        dispatch: Dispatch,
        kind: str,
        *,
        transport: str | None = None,
        outcome: str | None = None,
        detail: dict[str, Any] | None = None,
        **members: Any,
    ) -> None:
        """Change a dispatch; ``transport`` and ``outcome`` name moves of their tables.

        Raises ``IllegalMove`` before anything has changed.
        """
        record = dispatch.record
        if transport is not None:
            members["transport"] = tables.TRANSPORT.after(record.transport, transport)
        if outcome is not None:
            members["outcome"] = tables.OUTCOME.after(record.outcome, outcome)
            members["completed_at"] = self._now.wall
        changed = replace(record, revision=record.revision + 1, **members)
        self._before.append((dispatch, record))
        dispatch.record = changed
        self._book.enter_dispatch(dispatch)
        self._changes.append(self._event(kind, changed, detail or {}))

    # --- texts and messages -----------------------------------------------------------------------------

    def save_body(self, number: int, text: bytes) -> None:
        """Store a text."""
        self._changes.append(SaveBody(number, text))

    def release(self, dispatches: list[Dispatch], record: FlowRecord, until: int | None) -> None:
        """Keep the texts of a flow only until then (epoch ms), or for good."""
        numbers = [step.body for step in record.steps]
        numbers += [one.record.report.body for one in dispatches if one.record.report is not None]
        self._changes.extend(ReleaseBody(number, until) for number in numbers)

    def withdraw(self, dispatch: Dispatch, reason: str) -> None:
        """Take back the message of a dispatch as far as it is not confirmed."""
        mail = dispatch.mail
        if mail is not None and mail.confirmed_by is not None:
            self.let_go(dispatch)  # its receipt is recorded as soon as that can be
        elif mail is not None:
            dispatch.mail = None
            given_up = self._book.mailing.give_up([mail], "withdrawn", reason, self._changes, self._now)
            self._withdrawn.append((dispatch, mail, given_up))

    def add(self, change: Change, inverse: Callable[[Instant], None]) -> None:
        """Let something else change together with the flow; ``inverse`` takes it back in memory."""
        self._changes.append(change)
        self._inverses.append(inverse)

    def let_go(self, dispatch: Dispatch) -> None:
        """Note that the message of a dispatch is on the way out of its mailbox, whatever becomes of it."""
        self._let_go.append((dispatch, dispatch.mail))
        dispatch.mail = None

    # --- the end of a move ------------------------------------------------------------------------------

    def commit(self) -> int:
        """Ask for all of it; return the ticket."""
        ticket = self._ledger.append(tuple(self._changes), self.undo, None)
        for _, _, given_up in self._withdrawn:
            self._book.mailing.given_up(given_up, ticket, self._now)
        return self._settle(ticket)

    def commit_with(self, letter: Letter, dispatch: Dispatch) -> int:
        """Ask for all of it together with the message that carries a dispatch; return the ticket."""
        mail = self._book.mailing.put(letter, None, self._now, self.undo, None, *self._changes)
        dispatch.mail = mail
        dispatch.ticket = mail.ticket
        return self._settle(mail.ticket)

    def _settle(self, ticket: int) -> int:
        self._book.asked_for()
        for subject, _ in self._before:
            if isinstance(subject, Flow):
                subject.ticket = ticket
        return ticket

    def undo(self, _: Any, now: Instant) -> None:
        """Take back what could not be recorded."""
        self.take_back(now)
        self._book.on_undone()

    def take_back(self, now: Instant) -> None:
        """Make everything as it was before the move."""
        book = self._book
        for inverse in reversed(self._inverses):
            inverse(now)
        for dispatch, mail, given_up in reversed(self._withdrawn):
            book.mailing.unsettle_given_up(given_up, now)
            dispatch.mail = mail
        for dispatch, let_go in self._let_go:
            dispatch.mail = let_go
        for subject, before in reversed(self._before):
            if isinstance(subject, Flow):
                if before is None:
                    book.remove_flow(subject)
                else:
                    subject.record = before
                    book.enter_flow(subject)
            elif before is None:
                book.remove_dispatch(subject)
            else:
                subject.record = before
                book.enter_dispatch(subject)

    def _event(
        self, kind: str, row: FlowRecord | DispatchRecord, detail: dict[str, Any], *, is_gone: bool = False
    ) -> Any:
        what = "flow" if isinstance(row, FlowRecord) else "dispatch"
        event_id = f"{what}:{row.number}:{row.revision}"
        return self._journal.event(kind, row, self._now, event_id=event_id, is_gone=is_gone, **detail)


def identity_key(identity: TargetIdentity) -> tuple[str, str]:
    """Return what two identities must share to be the same one."""
    return identity.session_id.lower(), identity.incarnation
