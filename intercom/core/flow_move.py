"""Change flows and their dispatches together (protocol 12.2).

Rule 1: what changes in one move is one append: events, rows and the message that carries a dispatch. Rule 2: a move is
made in memory at once; when it cannot be recorded everything is again as it was before, the newest move first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from intercom.core import flow_tables as tables
from intercom.core.clock import Instant
from intercom.core.flow import Dispatch, Flow
from intercom.core.flow_records import DispatchRecord, FlowRecord, StepRecord
from intercom.core.journal import Journal
from intercom.core.ledger import Ledger
from intercom.core.mailboxes import Mail
from intercom.core.mailing import GivenUp, Letter
from intercom.core.move import Move, take_back
from intercom.core.records import ReleaseBody, SaveBody
from intercom.limits import Limits

if TYPE_CHECKING:
    from intercom.core.flow_book import FlowBook


class FlowMove(Move):
    """Collect what changes together with flows; nothing is asked of the store before ``commit``."""

    __slots__ = ("_book", "_changed", "_ended", "_journal", "_ledger", "_limits", "_now", "_withdrawn")

    def __init__(self, book: FlowBook, journal: Journal, ledger: Ledger, limits: Limits, now: Instant) -> None:
        super().__init__()
        self._book = book
        self._journal = journal
        self._ledger = ledger
        self._limits = limits
        self._now = now
        self._changed: list[Flow] = []
        self._ended: list[Dispatch] = []
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
            self._ended.append(dispatch)
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
        for dispatch in self._ended:
            self._book.on_ended(dispatch, ticket, self._now)
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
