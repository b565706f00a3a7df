"""Take the requests about inbox, assignments and replies (protocol 10.6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Raw, Struct
from msgspec.json import encode

from intercom.core import features
from intercom.core.addresses import Addresses
from intercom.core.assignments import Assignment, Assignments
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.giving import Giving, No
from intercom.core.handing import IN_PROGRESS, Grant, Handing, HandOver
from intercom.core.idempotency import REPORTS, Register, Standing
from intercom.core.inbox import Inbox, Parked
from intercom.core.ledger import Ledger
from intercom.core.lifecycle import Lifecycle
from intercom.core.move import Move
from intercom.core.outbox import Outbox
from intercom.core.parking import Parking, claim_policy, preview_of
from intercom.core.records import ReadBodies, SessionState
from intercom.core.replies import NOT_ACCEPTED, OTHERS, STALE, Replies, identity_of
from intercom.core.sessions import Session
from intercom.limits import PREVIEWS_READ, Limits
from intercom.wire.work import (
    AssignmentList,
    AssignmentRecorded,
    AssignmentReply,
    AssignmentReport,
    AssignmentShow,
    AssignmentShown,
    InboxAwait,
    InboxClaim,
    InboxDispatch,
    InboxEntry,
    InboxItem,
    InboxItems,
    InboxList,
    InboxPresence,
    InboxPresenceReport,
    InboxSettle,
    InboxSettled,
    InboxShow,
)
from intercom.wire.work import (
    Assignments as AssignmentsAnswer,
)

_SEES = frozenset({features.INBOX, features.WORK, features.COORDINATOR, features.OPERATOR})
_WORKS = frozenset({features.WORK})
_NEEDED: dict[type, frozenset[str]] = {
    InboxList: _SEES,
    InboxShow: _SEES,
    InboxPresence: _SEES,
    InboxDispatch: frozenset({features.COORDINATOR, features.OPERATOR}),
    InboxClaim: _WORKS,
    InboxAwait: _WORKS,
    InboxSettle: _SEES,
    AssignmentReport: _WORKS,
    AssignmentReply: _WORKS,
    AssignmentList: _SEES,
    AssignmentShow: _SEES,
}
"""Of which features one at least must have been granted."""

_BROKER_OWNED = frozenset({"assigned", "delivery_attempted", "reply_requested", "reply_emitted", "target_lost"})
_REPORTS = {
    (False, "accepted"): "accept",
    (False, "waiting_for_capability"): "give back",
    (False, "failed"): "give back if retryable",
    (False, "expired"): "end",
    (True, "accepted"): "note",
    (True, "started"): "note",
    (True, "waiting_for_capability"): "note",
    (True, "interrupted"): "note",
    (True, "failed"): "end",
    (True, "expired"): "end",
}
"""What a report leads to, by whether the assignment is accepted and by the reported state; all else is refused."""


class Showing(Struct, frozen=True):
    """Remember who wants to read which parked message."""

    connection: Any
    request_id: str
    parked: Any


class Listing(Struct, frozen=True):
    """Remember who wants a list for which texts are read."""

    connection: Any
    session: Any
    frame: InboxList
    numbers: tuple[int, ...]


class Desk:
    """Answer requests about work: every one gets exactly one answer."""

    def __init__(
        self,
        inbox: Inbox,
        parking: Parking,
        assignments: Assignments,
        handing: Handing,
        replies: Replies,
        register: Register,
        addresses: Addresses,
        lifecycle: Lifecycle,
        giving: Giving,
        ledger: Ledger,
        outbox: Outbox,
        limits: Limits,
    ) -> None:
        self._inbox = inbox
        self._parking = parking
        self._assignments = assignments
        self._handing = handing
        self._replies = replies
        self._register = register
        self._addresses = addresses
        self._lifecycle = lifecycle
        self._giving = giving
        self._ledger = ledger
        self._outbox = outbox
        self._limits = limits

    def answer(self, connection: Connection, frame: Any, now: Instant) -> None:
        """Answer a request, or refuse it."""
        session = connection.session
        assert session is not None, "only called for registered connections"
        if self._ledger.is_closed:
            no = No("store_unusable", "The store cannot be used, so nothing can be parked or handed out")
            return self._giving.refuse(connection, frame.request_id, no)
        needed = _NEEDED[type(frame)]
        if not needed & session.features:
            names = " or ".join(sorted(needed))
            no = No("feature_not_granted", f"This needs the feature {names}")
            return self._giving.refuse(connection, frame.request_id, no)
        refused = _HANDLERS[type(frame)](self, connection, session, frame, now)
        if refused is not None:
            self._giving.decline(connection, frame.request_id, refused)
        return None

    def read(self, token: object, bodies: dict[int, bytes] | None, now: Instant) -> None:
        """Go on after messages were read, for one of ``READ_FOR_WORK``."""
        if isinstance(token, HandOver):
            self._handing.push_read(token, bodies, now)
        elif isinstance(token, Grant):
            self._handing.grant_read(token, bodies, now)
        elif isinstance(token, Showing):
            self._shown(token, bodies, now)
        else:
            assert isinstance(token, Listing), "it is one of READ_FOR_WORK"
            self._listed(token, bodies, now)

    # --- the inbox --------------------------------------------------------------------------------------

    def _seen_by(self, session: Session) -> list[Parked]:
        return [parked for parked in self._inbox.in_order() if self._handing.may_see(session, parked)]

    def _list(self, connection: Connection, session: Session, frame: InboxList, now: Instant) -> No | None:
        seen = [parked for parked in self._seen_by(session) if parked.record.number > frame.after]
        page = seen[: frame.limit]
        unread = [parked for parked in page if parked.preview is None and self._ledger.is_committed(parked.ticket)]
        if unread:
            numbers = tuple(parked.record.number for parked in unread[:PREVIEWS_READ])
            self._outbox.add(ReadBodies(Listing(connection, session, frame, numbers), numbers))
            return None
        entries = [self._entry(parked) for parked in page]
        pressure, count = self._inbox.is_under_pressure, len(self._inbox)
        answer = InboxItems(frame.request_id, entries, pressure, count, self._inbox.capacity)
        self._giving.give(connection, answer, self._ledger.last_ticket)
        return None

    def _listed(self, token: Listing, bodies: dict[int, bytes] | None, now: Instant) -> None:
        """Go on with a list after the texts were read whose beginnings it shows."""
        if bodies is None:
            return self._giving.refuse(token.connection, token.frame.request_id, self._giving.not_read)
        for parked in self._inbox.in_order():
            if parked.preview is None and parked.record.number in token.numbers:
                parked.preview = preview_of(bodies.get(parked.record.number, b""))
        self._list(token.connection, token.session, token.frame, now)
        return None

    def _entry(self, parked: Parked) -> InboxEntry:
        record = parked.record
        address = self._addresses.get(record.target_address)
        is_gone = False
        if address is None and record.target_session is not None:
            known = self._lifecycle.get(record.target_session)
            is_gone = known is None or known.state is SessionState.CLOSED
        return InboxEntry(
            record.inbox_id,
            record.number,
            record.reason,  # type: ignore[arg-type]  # one of the reasons
            claim_policy(parked, is_gone),
            record.parked_at,
            Raw(record.sender_info),
            record.target,
            parked.preview or "",
            record.size,
            list(record.groups),
            _or_unset(record.target_session),
            UNSET if address is None else address.name,
            _or_unset(record.assignment),
            record.expires_at if record.valid_until is None else min(record.valid_until, record.expires_at),
            record.returns or UNSET,
            _or_unset(record.return_reason),
        )

    def _show(self, connection: Connection, session: Session, frame: InboxShow, now: Instant) -> No | None:
        parked = self._handing.find(session, frame.inbox_id)
        if isinstance(parked, No):
            return parked
        if not self._ledger.is_committed(parked.ticket):
            return self._giving.not_read
        self._outbox.add(ReadBodies(Showing(connection, frame.request_id, parked), (parked.record.number,)))
        return None

    def _shown(self, token: Showing, bodies: dict[int, bytes] | None, now: Instant) -> None:
        parked: Parked = token.parked
        message = None if bodies is None else bodies.get(parked.record.number)
        if message is None or self._inbox.get(parked.id) is not parked:
            return self._giving.refuse(token.connection, token.request_id, self._giving.not_read)
        answer = InboxItem(token.request_id, self._entry(parked), Raw(message))
        self._giving.give(token.connection, answer, self._ledger.last_ticket)
        return None

    def _presence(self, connection: Connection, session: Session, frame: InboxPresence, now: Instant) -> No | None:
        free = [parked for parked in self._inbox.in_order() if parked.is_free]
        claimable = [parked for parked in free if self._handing.may_claim(session, parked)]
        bound = sum(parked.record.claim == "bound_session" for parked in claimable)
        assigned = len(self._assignments.of(session))
        answer = InboxPresenceReport(frame.request_id, bound, len(claimable), assigned, self._inbox.is_under_pressure)
        self._giving.give(connection, answer, self._ledger.last_ticket)
        return None

    def _settle(self, connection: Connection, session: Session, frame: InboxSettle, now: Instant) -> No | None:
        parked = self._handing.find(session, frame.inbox_id)
        if isinstance(parked, No):
            return parked
        if not parked.is_free:
            return IN_PROGRESS
        if not self._handing.may_settle(session, parked):
            return No("not_allowed", "Only the operator, a coordinator in its groups, or who may claim it settles it")
        move = Move()
        self._parking.end(parked, "settled", move, now, session.id)
        self._giving.give(connection, InboxSettled(frame.request_id, "handled_no_reply"), move.append(self._ledger))
        return None

    # --- assignments ------------------------------------------------------------------------------------

    def _dispatch(self, connection: Connection, session: Session, frame: InboxDispatch, now: Instant) -> No | None:
        return self._handing.dispatch(connection, session, frame, now)

    def _claim(self, connection: Connection, session: Session, frame: InboxClaim, now: Instant) -> No | None:
        return self._handing.claim(connection, session, frame.request_id, frame.inbox_id, now)

    def _await(self, connection: Connection, session: Session, frame: InboxAwait, now: Instant) -> No | None:
        self._handing.wait(connection, session, frame, now)
        return None

    def _reply(self, connection: Connection, session: Session, frame: AssignmentReply, now: Instant) -> No | None:
        return self._replies.reply(connection, session, frame, now)

    def _visible(self, session: Session, assignment: Assignment) -> bool:
        if features.OPERATOR in session.features or assignment.is_of(session):
            return True
        return features.COORDINATOR in session.features and assignment.parked.is_in(session.groups)

    def _assignments_of(
        self, connection: Connection, session: Session, frame: AssignmentList, now: Instant
    ) -> No | None:
        seen = [assignment for assignment in self._assignments.all() if self._visible(session, assignment)]
        infos = [self._assignments.info(assignment) for assignment in seen[frame.after :][: frame.limit]]
        self._giving.give(connection, AssignmentsAnswer(frame.request_id, infos), self._ledger.last_ticket)
        return None

    def _assignment(self, connection: Connection, session: Session, frame: AssignmentShow, now: Instant) -> No | None:
        assignment = self._assignments.get(frame.assignment_id)
        if assignment is None or not self._visible(session, assignment):
            return STALE
        answer = AssignmentShown(frame.request_id, self._assignments.info(assignment))
        self._giving.give(connection, answer, self._ledger.last_ticket)
        return None

    # --- reports ----------------------------------------------------------------------------------------

    def _report(self, connection: Connection, session: Session, frame: AssignmentReport, now: Instant) -> No | None:
        key = f"{identity_of(session)} {frame.assignment_id} {frame.state_event_id}"
        content = [frame.state, frame.retryable is True, _or_none(frame.reason_code), _or_none(frame.detail)]
        fingerprint = encode(content).decode()
        known = self._register.find(REPORTS, key)
        if known is not None:
            standing, entry = self._register.begin(REPORTS, key, fingerprint, now)
            if standing is not Standing.DONE:
                reason = "Another report was made under this stateEventId"
                return No("state_event_conflict", reason, category="acceptance_rejected")
            outcome = self._register.outcome(entry)
            answer = AssignmentRecorded(frame.request_id, outcome.result["stateSequence"])
            self._giving.give(connection, answer, outcome.ticket)
            return None
        assignment = self._assignments.get(frame.assignment_id)
        if assignment is None or assignment.record.message_id != frame.source_message_id:
            return STALE
        if not assignment.is_of(session):
            return OTHERS
        if frame.state in _BROKER_OWNED:
            reason = f"The broker itself sets the state {frame.state}"
            return No("state_broker_owned", reason, category="acceptance_rejected")
        last = assignment.record.sequence
        sequence = last + 1 if frame.state_sequence is UNSET else frame.state_sequence
        if assignment.record.mode == "staged":
            sequence = max(sequence, last + 1)
        if sequence <= last:
            reason = f"The last state has the number {last}, and this report {sequence}"
            return No("sequence_stale", reason, category="acceptance_rejected")
        deed = _REPORTS.get((assignment.record.accepted, frame.state))
        if deed is None:
            return NOT_ACCEPTED
        move = Move()
        detail = {name: value for name, value in zip(_DETAILS, content[1:], strict=True) if value}
        detail["session"] = session.id
        _, entry = self._register.begin(REPORTS, key, fingerprint, now)
        move.inverse(lambda now: self._register.withdraw(entry))
        self._carry_out(deed, assignment, frame, sequence, detail, move, now)
        move.changes.append(self._register.done(entry, {"stateSequence": sequence}, now))
        ticket = assignment.ticket = self._assignments.append(move, now)
        self._register.settle(entry, ticket, now)
        if deed == "accept":
            self._handing.accepted(assignment, now)
        self._giving.give(connection, AssignmentRecorded(frame.request_id, sequence), ticket)
        return None

    def _carry_out(
        self,
        deed: str,
        assignment: Assignment,
        frame: AssignmentReport,
        sequence: int,
        detail: dict[str, Any],
        move: Move,
        now: Instant,
    ) -> None:
        why = frame.state if frame.reason_code is UNSET else frame.reason_code
        if deed == "accept":
            self._assignments.accept(assignment, sequence, move, now, detail)
        elif deed == "note":
            self._assignments.note(assignment, frame.state, move, now, sequence, detail=detail)
        elif deed == "give back" or (deed == "give back if retryable" and frame.retryable is True):
            self._assignments.give_back(assignment, frame.state, why, move, now, sequence=sequence, detail=detail)
        else:
            outcome = "failed" if frame.state == "failed" else "expired"
            self._assignments.end(assignment, frame.state, outcome, why, move, now, sequence=sequence, detail=detail)


_DETAILS = ("retryable", "reasonCode", "detail")
_HANDLERS: dict[type, Callable[..., No | None]] = {
    InboxList: Desk._list,
    InboxShow: Desk._show,
    InboxPresence: Desk._presence,
    InboxDispatch: Desk._dispatch,
    InboxClaim: Desk._claim,
    InboxAwait: Desk._await,
    InboxSettle: Desk._settle,
    AssignmentReport: Desk._report,
    AssignmentReply: Desk._reply,
    AssignmentList: Desk._assignments_of,
    AssignmentShow: Desk._assignment,
}
READ_FOR_WORK = (HandOver, Grant, Showing, Listing)
"""For what messages are read."""
WORK_REQUESTS = tuple(_HANDLERS)
"""The types of frames that ``Desk`` answers."""


def _or_unset(value: Any) -> Any:
    return UNSET if value is None else value


def _or_none(value: Any) -> Any:
    return None if value is UNSET else value
