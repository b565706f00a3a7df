"""Keep the flows and their dispatches, and change both together (protocol 12.2).

Rule 1: what changes in one move is one append: events, rows and the message that carries a dispatch. Rule 2: a move is
made in memory at once; when it cannot be recorded everything is again as it was before, the newest move first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from intercom.core import flow_tables as tables
from intercom.core.clock import Instant
from intercom.core.flow_records import DispatchRecord, FlowRecord, StepRecord
from intercom.core.journal import Journal
from intercom.core.ledger import Ledger
from intercom.core.mailboxes import Mail
from intercom.core.mailing import GivenUp, Letter, Mailing
from intercom.core.move import Move, take_back
from intercom.core.records import ReleaseBody, SaveBody
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

    __slots__ = ("deferred_at", "is_read", "lost_texts", "record", "ticket", "turn")

    def __init__(self, record: FlowRecord) -> None:
        self.record = record
        self.ticket = 0
        """Of its last change."""
        self.deferred_at: int | None = None
        """When it was last counted that its target cannot be reached (monotonic ms)."""
        self.is_read = False
        """The text of its next step is being read."""
        self.turn = 0
        """Grows with every step that is handed out: flows with a smaller one come before it."""
        self.lost_texts: frozenset[int] = frozenset()
        """Numbers of prompts that are known not to be there."""

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

    @property
    def textless(self) -> StepRecord | None:
        """Return the first step that can never be handed out, because its text is lost."""
        if not self.lost_texts & self.record.needed_texts:
            return None
        return next(step for step in self.record.steps if step.state != "completed" and step.body in self.lost_texts)

    def read(self, numbers: Iterable[int], bodies: Mapping[int, bytes]) -> None:
        """Take notice of which of its texts are there."""
        self.lost_texts = (self.lost_texts - frozenset(bodies)) | (frozenset(numbers) - frozenset(bodies))

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
        self._turns = 0
        self._move: FlowMove | None = None
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

    def had_its_turn(self, flow: Flow) -> None:
        """Let a flow be the last in line: those that wait for the same target come before it."""
        self._turns += 1
        flow.turn = self._turns

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

    @property
    def last_ticket(self) -> int:
        """Return the ticket of the newest append."""
        return self._ledger.last_ticket

    def when_recorded(self, told: Callable[[Any, Instant], None], subject: Any) -> None:
        """Call ``told(subject, now)`` once the newest append is durable; never if it fails."""
        self._ledger.when_committed(self._ledger.last_ticket, told, subject)

    def next_flow_number(self) -> int:
        """Return the number of the next flow."""
        self._last_flow += 1
        return self._last_flow

    def next_dispatch_number(self) -> int:
        """Return the number of the next dispatch."""
        self._last_dispatch += 1
        return self._last_dispatch

    # --- recovery ---------------------------------------------------------------------------------------

    def recover(
        self, flows: Iterable[FlowRecord], dispatches: Iterable[DispatchRecord], lost_texts: frozenset[int]
    ) -> None:
        """Enter what the store held, and which texts it did not hold."""
        for record in flows:
            self._last_flow = max(self._last_flow, record.number)
            flow = Flow(record)
            flow.lost_texts = lost_texts & record.needed_texts
            self.enter_flow(flow)
        for attempt in dispatches:
            self._last_dispatch = max(self._last_dispatch, attempt.number)
            self.enter_dispatch(Dispatch(attempt))

    # --- moves ------------------------------------------------------------------------------------------

    def begin(self, now: Instant) -> FlowMove:
        """Begin a move; there is one at a time."""
        assert self._move is None, "the move before has not been asked for"
        self._move = FlowMove(self, self._journal, self._ledger, self._limits, now)
        return self._move

    def asked_for(self) -> None:
        """Note that the move that was begun is on its way to the store."""
        self._move = None

    def roll_back(self, now: Instant) -> None:
        """Take back a move that was begun and could not be ended because of a fault."""
        move, self._move = self._move, None
        if move is not None:
            take_back(move, now)

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


class FlowMove(Move):
    """Collect what changes together with flows; nothing is asked of the store before ``commit``."""

    __slots__ = ("_book", "_changed", "_journal", "_ledger", "_limits", "_now", "_withdrawn")

    def __init__(self, book: FlowBook, journal: Journal, ledger: Ledger, limits: Limits, now: Instant) -> None:
        super().__init__()
        self._book = book
        self._journal = journal
        self._ledger = ledger
        self._limits = limits
        self._now = now
        self._changed: list[Flow] = []
        self._withdrawn: list[GivenUp] = []

    # --- flows ------------------------------------------------------------------------------------------

    def create(self, record: FlowRecord) -> Flow:
        """Enter a new flow."""
        flow = Flow(record)
        self._changed.append(flow)
        self._book.enter_flow(flow)
        self.inverse(lambda now: self._book.remove_flow(flow))
        self._add_event("flow.created", record, {})
        return flow

    def flow(self, flow: Flow, kind: str, event: str | None = None, *, detail: dict[str, Any], **members: Any) -> None:
        """Change a flow; ``event`` names a move of its table and gives its next state.

        Raises ``IllegalMove`` before anything of it has changed.
        """
        record = flow.record
        if event is not None:
            members["state"] = tables.FLOW.after(record.state, event)
        is_over = members.get("state", record.state) not in tables.LIVE
        ends_now = is_over and record.over_at is None
        if ends_now:
            members["over_at"] = self._now.wall
        changed = replace(record, revision=record.revision + 1, updated_at=self._now.wall, **members)
        self._changed.append(flow)
        self._set_flow(flow, changed)
        self.inverse(lambda now: self._set_flow(flow, record))
        self._add_event(kind, changed, detail)
        if ends_now:
            self.release(self._book.dispatches_of(flow), changed, self._now.wall + self._limits.bodies_kept_ms)

    def _set_flow(self, flow: Flow, record: FlowRecord) -> None:
        flow.record = record
        self._book.enter_flow(flow)

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
        book = self._book
        for dispatch in book.dispatches_of(flow):
            record = replace(dispatch.record, revision=dispatch.record.revision + 1)
            book.remove_dispatch(dispatch)
            self._add_event("dispatch.deleted", record, {}, is_gone=True)
            self.inverse(lambda now, dispatch=dispatch: book.enter_dispatch(dispatch))  # type: ignore[misc]
        book.remove_flow(flow)
        self.inverse(lambda now: book.enter_flow(flow))
        record_of_flow = replace(flow.record, revision=flow.record.revision + 1)
        self._add_event("flow.deleted", record_of_flow, {}, is_gone=True)

    # --- dispatches -------------------------------------------------------------------------------------

    def prepare(self, record: DispatchRecord) -> Dispatch:
        """Enter a new dispatch."""
        dispatch = Dispatch(record)
        self._book.enter_dispatch(dispatch)
        self.inverse(lambda now: self._book.remove_dispatch(dispatch))
        self._add_event("dispatch.prepared", record, {})
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

        Raises ``IllegalMove`` before anything of it has changed.
        """
        record = dispatch.record
        if transport is not None:
            members["transport"] = tables.TRANSPORT.after(record.transport, transport)
        if outcome is not None:
            members["outcome"] = tables.OUTCOME.after(record.outcome, outcome)
            members["completed_at"] = self._now.wall
        changed = replace(record, revision=record.revision + 1, **members)
        self._set_dispatch(dispatch, changed)
        self.inverse(lambda now: self._set_dispatch(dispatch, record))
        self._add_event(kind, changed, detail or {})

    def _set_dispatch(self, dispatch: Dispatch, record: DispatchRecord) -> None:
        dispatch.record = record
        self._book.enter_dispatch(dispatch)

    # --- texts and messages -----------------------------------------------------------------------------

    def save_body(self, number: int, text: bytes) -> None:
        """Store a text."""
        self.changes.append(SaveBody(number, text))

    def release(self, dispatches: list[Dispatch], record: FlowRecord, until: int | None) -> None:
        """Keep the texts of a flow only until then (epoch ms), or for good."""
        numbers = [step.body for step in record.steps]
        numbers += [one.record.report.body for one in dispatches if one.record.report is not None]
        self.changes.extend(ReleaseBody(number, until) for number in numbers)

    def withdraw(self, dispatch: Dispatch, reason: str) -> None:
        """Take back the message of a dispatch as far as it is not confirmed."""
        mail, mailing = dispatch.mail, self._book.mailing
        if mail is None:
            return
        self.let_go(dispatch)
        if mail.confirmed_by is None:  # else its receipt is recorded as soon as that can be
            given_up = mailing.give_up([mail], "withdrawn", reason, self.changes, self._now)
            self._withdrawn.append(given_up)
            self.inverse(lambda now: mailing.unsettle_given_up(given_up, now))

    def let_go(self, dispatch: Dispatch) -> None:
        """Note that the message of a dispatch is on the way out of its mailbox, whatever becomes of it."""
        self._hold(dispatch, None)

    def _hold(self, dispatch: Dispatch, mail: Mail | None) -> None:
        before, dispatch.mail = dispatch.mail, mail

        def hold_again(now: Instant) -> None:
            dispatch.mail = before

        self.inverse(hold_again)

    # --- the end of a move ------------------------------------------------------------------------------

    def commit(self) -> int:
        """Ask for all of it; return the ticket."""
        ticket = self._ledger.append(tuple(self.changes), _undo, self)
        for given_up in self._withdrawn:
            self._book.mailing.given_up(given_up, ticket, self._now)
        return self._settle(ticket)

    def commit_with(self, letter: Letter, dispatch: Dispatch) -> int:
        """Ask for all of it together with the message that carries a dispatch; return the ticket."""
        mail = self._book.mailing.put(letter, None, self._now, _undo, self, *self.changes)
        self._hold(dispatch, mail)
        dispatch.ticket = mail.ticket
        return self._settle(mail.ticket)

    def _settle(self, ticket: int) -> int:
        self._book.asked_for()
        for flow in self._changed:
            flow.ticket = ticket
        return ticket

    def undone(self) -> None:
        """Say that it could not be recorded."""
        self._book.on_undone()

    def _add_event(
        self, kind: str, row: FlowRecord | DispatchRecord, detail: dict[str, Any], *, is_gone: bool = False
    ) -> None:
        what = "flow" if isinstance(row, FlowRecord) else "dispatch"
        event_id = f"{what}:{row.number}:{row.revision}"
        event = self._journal.event(kind, row, self._now, event_id=event_id, is_gone=is_gone, **detail)
        self.changes.append(event)


def _undo(move: FlowMove, now: Instant) -> None:
    """Take back what could not be recorded, and have everything looked at again."""
    take_back(move, now)
    move.undone()
