"""Bring steps of flows to sessions that other brokers answer for, and take what those say of them (protocol 12.11).

    recorded here --> posted --its broker has stored it--> handed over there --> reported
                        ^                 |
                        +-- not heard ----+-- that broker was away: it is asked how the step is

Rule 1: nothing is posted before its intent is recorded, and every copy of it says the same. Rule 2: what the other
broker says is taken as what happens here is: it counts once, in whatever order it is heard. Rule 3: an attempt that
was posted and of whose broker nothing is heard for the whole window is ambiguous; one that never left does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, DecodeError, Raw, Struct
from msgspec.json import decode, encode

from intercom.core import features
from intercom.core import flow_tables as tables
from intercom.core.clock import Instant
from intercom.core.flow import Dispatch, Flow
from intercom.core.flow_messages import message_of
from intercom.core.flow_records import StepRecord, TargetIdentity
from intercom.core.flow_settling import REJECTED
from intercom.core.forwarding import pause_ms
from intercom.core.giving import No
from intercom.core.letters_in import LettersIn
from intercom.core.peer_records import Arrived
from intercom.core.records import ReadBodies
from intercom.core.sessions import NODE
from intercom.core.standins import StandIn
from intercom.core.step_letters import (
    DISPATCH,
    DISPATCHED,
    INQUIRE,
    OVER,
    REPORT,
    REPORTED,
    DispatchedLetter,
    DispatchLetter,
    InquireLetter,
    OverLetter,
    ReportedLetter,
    ReportLetter,
)
from intercom.core.steps_waiting import StepOnItsWay
from intercom.limits import MINUTE_MS
from intercom.wire.flows import DISPATCH_PREFIX, FlowReport, TodoOutcome

if TYPE_CHECKING:
    from intercom.core.flows import FlowsOfBroker
    from intercom.core.ground import Ground
    from intercom.core.peers import Peers
    from intercom.core.sessions import Session
    from intercom.core.tasks_out import Postman

NOT_KNOWN = "the broker of its session does not know it any more: its store was replaced by an older copy, or rebuilt"


class Bringing(Struct, frozen=True):
    """Remember which attempt is brought while the text of its step is read."""

    dispatch: Any
    way: Any


_NEVER = Instant(0, 0)


class _Way:
    """Remember how far an attempt was brought by this process."""

    __slots__ = ("away_ms", "is_new", "is_stored", "looked_at", "next_at", "posts")

    def __init__(self, now: Instant, *, is_new: bool) -> None:
        self.is_new = is_new
        """No earlier process can have posted it."""
        self.is_stored = False
        """The broker of its session said that it has it."""
        self.posts = 0
        self.next_at: int | None = now.mono
        """When it is posted, or asked for, next (monotonic ms); None: there is nothing to ask."""
        self.away_ms = 0
        """For how long that broker has not been reached."""
        self.looked_at = now.mono


class StepsOut:
    """Be what flows need of other brokers (``Elsewhere``).

    Args:
        flows: the flows of this broker.
        peers: the other brokers.
        postman: posts letters.
        here: what this machine is called.
    """

    kinds = frozenset({DISPATCHED, REPORT})
    """The letters it takes."""

    def __init__(self, ground: Ground, flows: FlowsOfBroker, peers: Peers, postman: Postman, here: str) -> None:
        self.here = here
        self._own = ground.identity.broker_id
        self._ledger = ground.ledger
        self._outbox = ground.outbox
        self._letters = LettersIn(ground)
        self._limits = ground.limits
        self._book = flows.book
        self._reports = flows.reports
        self._settling = flows.settling
        self._admission = flows.admission
        self._reconciler = flows.reconciler
        self._peers = peers
        self._postman = postman
        self._ways: dict[str, _Way] = {}
        """Of the attempts that are open, by their ids."""

    # --- who is elsewhere -------------------------------------------------------------------------------

    def is_there(self, node: str) -> bool:
        """Tell whether another machine that is called so can be reached."""
        return any(peer.name.lower() == node.lower() for peer in self._peers.there())

    def unfit(self, session: Session) -> str | None:
        """Return why a session elsewhere cannot be handed a step now."""
        assert isinstance(session, StandIn), "every session that is elsewhere has one"
        if session.is_cut_off:
            return f"is on machine {session.info.get(NODE)}, which cannot be reached now"
        if session.is_terminal:
            return "has finished and takes nothing more"
        if not session.incarnation:
            return f"cannot be told from its next start: it did not ask for {features.LIFECYCLE}"
        if features.FLOW_REPORT not in session.granted:
            return f"cannot report: it did not ask for {features.FLOW_REPORT}"
        return None

    def identity_of(self, session: Session) -> TargetIdentity:
        """Return the exact identity of a session elsewhere."""
        assert isinstance(session, StandIn), "every session that is elsewhere has one"
        peer = session.connection.peer_id  # type: ignore[attr-defined]  # a stand-in has no other connection
        return TargetIdentity(peer, session.id, session.incarnation, session.runtime_session_id)

    def granted(self, session: Session) -> frozenset[str]:
        """Return the features that its broker granted a session elsewhere."""
        assert isinstance(session, StandIn), "every session that is elsewhere has one"
        return session.granted

    # --- out --------------------------------------------------------------------------------------------

    def begun(self, dispatch: Dispatch, now: Instant) -> None:
        """Bring an attempt to its session, once it is recorded."""
        self._ways[dispatch.id] = _Way(now, is_new=True)
        self._ledger.when_committed(dispatch.ticket, self._recorded, dispatch)

    def _recorded(self, dispatch: Dispatch, now: Instant) -> None:
        if dispatch.is_open:
            self.look_at(dispatch, now)

    def look_at(self, dispatch: Dispatch, now: Instant) -> None:
        """Post what is due of an open attempt; give up one whose broker has not been reached for too long."""
        if not self._book.is_committed(dispatch):
            return
        way = self._ways.get(dispatch.id)
        if way is None:
            way = self._ways[dispatch.id] = _Way(now, is_new=False)
        since, way.looked_at = now.mono - way.looked_at, now.mono
        if self._postman.is_cut_off(_peer_of(dispatch)):
            # What is longer than the pause between two looks is a time in which this process stood still.
            way.away_ms += min(since, self._limits.flow_reconcile_ms + self._limits.late_ms)
            self._wait(dispatch, way, now)
            return
        way.away_ms = 0
        if way.next_at is not None and way.next_at <= now.mono:
            way.next_at = now.mono + pause_ms(dispatch.id, way.posts + 1, self._limits)
            self._post(dispatch, way)

    def _wait(self, dispatch: Dispatch, way: _Way, now: Instant) -> None:
        node = self._peers.name_of(_peer_of(dispatch))
        if way.is_new and not way.posts:
            self._take_back(dispatch, f"machine {node} could not be reached any more", now)
        elif way.away_ms >= self._limits.peer_window_ms:
            minutes = way.away_ms // MINUTE_MS
            reason = f"machine {node}, on which its session is, was not reached for {minutes} minutes"
            self._settling.settle(dispatch, "ambiguous", reason, now)

    def _post(self, dispatch: Dispatch, way: _Way) -> None:
        if way.is_stored or dispatch.record.transport != tables.TRANSPORT.begins:
            way.posts += 1
            self._postman.post(
                _peer_of(dispatch), INQUIRE, dispatch.id, InquireLetter(dispatch.id), self._ledger.last_ticket
            )
        else:
            step = self._place_of(dispatch)[1]
            self._outbox.add(ReadBodies(Bringing(dispatch, way), (step.body,)))

    def read(self, bringing: Bringing, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant) -> None:
        """Post an attempt whose text was read; None: it could not be, and is read again later."""
        dispatch: Dispatch = bringing.dispatch
        record = dispatch.record
        if bodies is None or not dispatch.is_open or record.transport != tables.TRANSPORT.begins:
            return
        flow, step = self._place_of(dispatch)
        way: _Way = bringing.way
        if step.body not in bodies:
            self._text_lost(dispatch, way, f"the text of step {step.step_id} is lost", now)
            return
        way.posts += 1
        attempt = step.attempts.index(dispatch.id) + 1
        message = encode(message_of(flow.record, step, record, bodies[step.body].decode(), attempt))
        letter = DispatchLetter(
            dispatch.id,
            record.flow_id,
            record.step_id,
            record.group,
            record.identity,
            flow.record.target,
            Raw(message),
        )
        self._postman.post(_peer_of(dispatch), DISPATCH, dispatch.id, letter, dispatch.ticket)

    def _text_lost(self, dispatch: Dispatch, way: _Way, reason: str, now: Instant) -> None:
        if way.is_new and not way.posts:
            self._settling.retire_uncounted(dispatch, reason, now)  # and the flow is given up for it
        else:
            self._settling.settle(dispatch, "ambiguous", reason, now)

    def ended(self, dispatch: Dispatch, ticket: int) -> None:
        """Let the broker of its session know that an attempt is over, once that is recorded."""
        way = self._ways.pop(dispatch.id, None)
        never_left = way is not None and way.is_new and not way.posts
        if _peer_of(dispatch) != self._own and not never_left:
            self._say_over(dispatch, ticket)

    def _say_over(self, dispatch: Dispatch, ticket: int, settles: int = 0) -> None:
        letter = OverLetter(dispatch.id, dispatch.record.outcome, dispatch.record.reason or "")
        self._postman.post(_peer_of(dispatch), OVER, dispatch.id, letter, ticket, settles=settles)

    def peer_seen(self, peer: str, now: Instant) -> None:
        """Ask a broker that was away, or is another process now, how what it has is."""
        for dispatch in self._book.open_ones():
            if _peer_of(dispatch) == peer and (way := self._ways.get(dispatch.id)) is not None:
                way.next_at = now.mono
        self._reconciler.kick()

    def on_their_way(self) -> list[StepOnItsWay]:
        """Return the attempts that the brokers of their sessions are not known to have."""
        return [
            self._shown(dispatch)
            for dispatch in self._book.open_ones()
            if _peer_of(dispatch) != self._own
            and dispatch.record.transport == tables.TRANSPORT.begins
            and not self._way_of(dispatch).is_stored
        ]

    def _way_of(self, dispatch: Dispatch) -> _Way:
        return self._ways.get(dispatch.id) or _Way(_NEVER, is_new=False)

    def _shown(self, dispatch: Dispatch) -> StepOnItsWay:
        flow, step = self._place_of(dispatch)

        def again(now: Instant) -> None:
            self._way_of(dispatch).next_at = now.mono
            self._reconciler.kick()

        return StepOnItsWay(
            step.body,
            "step",
            DISPATCH_PREFIX + dispatch.id,
            _peer_of(dispatch),
            flow.record.target,
            flow.id,
            self._way_of(dispatch).posts,
            dispatch.record.created_at,
            again,
        )

    # --- in ---------------------------------------------------------------------------------------------

    def arrived(self, fact: Arrived, now: Instant) -> None:
        """Take what the broker of a worker says; what cannot be read is let go of."""
        try:
            if self._ledger.is_closed:
                pass  # it is said again to a process that can record it
            elif fact.kind == REPORT:
                self._reported(fact, decode(fact.body, type=ReportLetter), now)
                return
            else:
                self._dispatched(fact, decode(fact.body, type=DispatchedLetter), now)
                return
        except DecodeError:
            pass
        self._letters.settle_when_recorded(fact.arrival, now)

    def _reported(self, fact: Arrived, letter: ReportLetter, now: Instant) -> None:
        dispatch = self._book.dispatch(letter.dispatch_id)
        if dispatch is None or _peer_of(dispatch) != fact.peer:
            reason = f"No dispatch {letter.dispatch_id} is known to the broker of its flow"
            answer = ReportedLetter(letter.dispatch_id, letter.version, code="dispatch_unknown", reason=reason)
        else:
            bringer = letter.by if letter.is_brought or letter.attempt > 1 else None
            taken = self._reports.take_from_elsewhere(dispatch, _frame_of(letter), letter.offers, bringer, now)
            if isinstance(taken, No):
                answer = ReportedLetter(letter.dispatch_id, letter.version, code=taken.code, reason=taken.reason)
            else:
                state = self._place_of(dispatch)[1].state
                answer = ReportedLetter(letter.dispatch_id, letter.version, step_state=state)
        ticket = self._ledger.last_ticket
        self._postman.post(fact.peer, REPORTED, letter.dispatch_id, answer, ticket, settles=fact.arrival)

    def _dispatched(self, fact: Arrived, letter: DispatchedLetter, now: Instant) -> None:
        dispatch = self._book.dispatch(letter.dispatch_id)
        is_kept_there = letter.state in ("stored", "busy", "free", "lost", "gone")
        if dispatch is None and is_kept_there:
            over = OverLetter(letter.dispatch_id, "unknown", "the broker of its flow does not know it")
            ticket = self._ledger.last_ticket
            self._postman.post(fact.peer, OVER, letter.dispatch_id, over, ticket, settles=fact.arrival)
            return
        if dispatch is not None and _peer_of(dispatch) == fact.peer:
            if dispatch.is_open:
                self._apply(dispatch, letter, now)
            elif is_kept_there:
                self._say_over(dispatch, self._ledger.last_ticket, fact.arrival)
                return
        self._letters.settle_when_recorded(fact.arrival, now)

    def _apply(self, dispatch: Dispatch, letter: DispatchedLetter, now: Instant) -> None:
        """Let an open attempt be as the broker of its session says that it is."""
        way = self._ways.setdefault(dispatch.id, _Way(now, is_new=False))
        was_stored = way.is_stored or dispatch.record.transport != tables.TRANSPORT.begins
        if letter.state in ("stored", "lost", "gone"):
            way.next_at = None
            if not was_stored:
                self._reached(dispatch, now)
            way.is_stored = True
            self._moved(dispatch, letter, now)
        if letter.state == "lost":
            if dispatch.record.transport != "accepted":
                self._lost(dispatch, letter.reason, now)
        elif letter.state == "gone":
            self._reconciler.gone_elsewhere(dispatch, letter.may_be_brought, now)
        elif letter.state == "unknown":
            if dispatch.record.report is None:
                self._settling.settle(dispatch, "ambiguous", NOT_KNOWN, now)
        elif was_stored:
            return  # the rest speaks of what was not stored there by then
        elif letter.state == "refused":
            node = self._peers.name_of(_peer_of(dispatch))
            self._take_back(dispatch, f"the broker of machine {node} refused it: {letter.reason}", now)
        elif letter.state == "busy":
            way.next_at = now.mono + self._limits.peer_retry_most_ms
        elif letter.state == "free":
            way.next_at = now.mono
            self._reconciler.kick()

    def _lost(self, dispatch: Dispatch, reason: str, now: Instant) -> None:
        said = f"its message was given up: {reason}"
        self._settling.settle(dispatch, "ambiguous", said, now, sign=REJECTED)

    def _moved(self, dispatch: Dispatch, letter: DispatchedLetter, now: Instant) -> None:
        if letter.transport == "published":
            self._reports.published(dispatch, now)
        elif letter.transport == "accepted":
            self._reports.arrived_elsewhere(dispatch, letter.offers, now)

    def _reached(self, dispatch: Dispatch, now: Instant) -> None:
        """Count the vain attempts to reach the target from the beginning."""
        flow = self._place_of(dispatch)[0]
        flow.deferred_at = flow.refused_at = None
        if flow.record.admit_attempts:
            move = self._book.begin(now)
            detail = {"dispatch": dispatch.id}
            move.flow(flow, "flow.target_reached", detail=detail, admit_attempts=0, admit_reason=None, admit_at=None)
            move.commit()

    def _take_back(self, dispatch: Dispatch, reason: str, now: Instant) -> None:
        """Let an attempt not count that its session was provably never handed; its target could not be reached."""
        flow = self._place_of(dispatch)[0]
        self._settling.retire_uncounted(dispatch, reason, now)
        flow.refused_at = now.mono
        if flow.record.state == "active":
            self._admission.defer(flow, reason, now)

    def _place_of(self, dispatch: Dispatch) -> tuple[Flow, StepRecord]:
        flow = self._book.flow(dispatch.record.flow_id)
        assert flow is not None, "a dispatch belongs to a flow"
        step = flow.step(dispatch.record.step_id)
        assert step is not None, "a dispatch belongs to a step"
        return flow, step


def _peer_of(dispatch: Dispatch) -> str:
    return dispatch.record.identity.broker_id


def _frame_of(letter: ReportLetter) -> FlowReport:
    """Return a report as its worker wrote it."""
    todo: Any = UNSET
    if letter.todo_id is not None and letter.todo_status is not None:
        todo = TodoOutcome(letter.todo_id, letter.todo_status)
    return FlowReport(
        "",
        letter.dispatch_id,
        letter.outcome,
        letter.summary,
        list(letter.resources),
        todo,
        UNSET if letter.prepared_at is None else letter.prepared_at,
        letter.attempt,
    )
