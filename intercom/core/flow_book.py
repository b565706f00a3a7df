"""Keep the flows and their dispatches, and find them; they change by moves (``flow_move``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from intercom.core.clock import Instant
from intercom.core.flow import Dispatch, Flow
from intercom.core.flow_move import FlowMove
from intercom.core.flow_records import DispatchRecord, FlowRecord
from intercom.core.journal import Journal
from intercom.core.ledger import Ledger
from intercom.core.mailing import Mailing
from intercom.core.move import take_back
from intercom.limits import Limits

if TYPE_CHECKING:
    from intercom.core.sessions import Session


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
        self._turns = 0
        self._last_number = 0
        """The greatest that a flow or dispatch has: the journal may be younger than the rows, once it was lost."""
        self._move: FlowMove | None = None
        """The one that was begun and not asked for yet."""
        self.on_undone: Callable[[], None] = lambda: None
        self.is_taken: Callable[[str], bool] = lambda session_id: False
        """Tells whether a session works on a step of a flow that is at another broker."""
        self.must_wait: Callable[[str, str], bool] = lambda session_id, flow_id: False
        """Tells whether a flow has to wait for its turn at a session, because of flows at other brokers."""
        self.took: Callable[[str, str], None] = lambda session_id, flow_id: None
        """Is told that a flow had its turn at a session."""
        self.on_ended: Callable[[Dispatch, int, Instant], None] = lambda dispatch, ticket, now: None
        """Is told of every attempt that ends, with the ticket on which that rests."""

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

    def open_ones(self) -> list[Dispatch]:
        """Return the dispatches that are under way."""
        return list(self._open.values())

    def open_at(self, session_id: str) -> Dispatch | None:
        """Return the dispatch this session works on: there is one at most."""
        return self._open_by_session.get(session_id.lower())

    def is_busy(self, session: Session, flow: Flow) -> bool:
        """Tell whether a session cannot be handed a step of a flow now because of another flow, wherever that is."""
        waits = not session.is_remote and self.must_wait(session.id, flow.id)
        return waits or self.open_at(session.id) is not None

    def is_committed(self, dispatch: Dispatch) -> bool:
        """Tell whether the intent of a dispatch is durable."""
        return self._ledger.is_committed(dispatch.ticket)

    def is_recorded(self, flow: Flow) -> bool:
        """Tell whether all there is of a flow is durable, its texts too."""
        return self._ledger.is_committed(flow.ticket)

    @property
    def last_ticket(self) -> int:
        """Return the ticket of the newest append."""
        return self._ledger.last_ticket

    def when_recorded(self, told: Callable[[Any, Instant], None], subject: Any) -> None:
        """Call ``told(subject, now)`` once the newest append is durable; never if it fails."""
        self._ledger.when_committed(self._ledger.last_ticket, told, subject)

    def next_number(self) -> int:
        """Return the number of the next flow or dispatch: above that of any event, so no other one ever had it."""
        self._last_number = max(self._last_number, self._journal.last_sequence) + 1
        return self._last_number

    # --- recovery ---------------------------------------------------------------------------------------

    def recover(
        self, flows: Iterable[FlowRecord], dispatches: Iterable[DispatchRecord], lost_texts: frozenset[int]
    ) -> None:
        """Enter what the store held, and which texts it did not hold."""
        for record in flows:
            self._last_number = max(self._last_number, record.number)
            flow = Flow(record)
            flow.lost_texts = lost_texts & record.needed_texts
            self.enter_flow(flow)
        for attempt in dispatches:
            self._last_number = max(self._last_number, attempt.number)
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
