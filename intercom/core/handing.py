"""Hand parked messages to workers: on order, on claim, and to whoever waits for work (protocol 10.3).

    order --checks--> assigned --commit--> pushed --receipt--> done
                          |                    +--missing, and not accepted meanwhile--> given back, refused
                          +--the worker is away: its mailbox; it comes for its work: staged--> done

Rule 1: nothing leaves before the assignment is on disk. Rule 2: an order that failed leaves the message parked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw, Struct
from msgspec.json import encode
from msgspec.structs import asdict

from intercom.core import features
from intercom.core.assignments import Assignment, Assignments, Worker
from intercom.core.clock import Instant
from intercom.core.deadlines import Deadline, Deadlines
from intercom.core.giving import Giving, No
from intercom.core.idempotency import ORDERS, Entry, Outcome, Register, Standing
from intercom.core.inbox import Inbox, Parked
from intercom.core.ledger import Ledger
from intercom.core.lifecycle import Known, Lifecycle
from intercom.core.mailing import Mailing
from intercom.core.move import Move, take_back
from intercom.core.offers import Missing, Offers
from intercom.core.outbox import Outbox
from intercom.core.parking import Parking
from intercom.core.records import ReadBodies, SessionState
from intercom.core.sessions import Session, SessionTable
from intercom.limits import LONGEST_VALIDITY_MS, Limits
from intercom.wire import notices
from intercom.wire.frames import MessageFrame
from intercom.wire.work import AssignmentGranted, InboxAwait, InboxDispatch, InboxDispatched, InboxNothing

if TYPE_CHECKING:
    from intercom.core.arrivals import Cause
    from intercom.core.connections import Connection
    from intercom.core.mailboxes import Mail

IN_PROGRESS = No("assignment_in_progress", "Somebody has this message already", True, category="assignment_in_progress")
_UNKNOWN = No("inbox_unknown", "No such message is parked, or this session may not see it")


class HandOver(Struct, frozen=True):
    """Remember for which push a message is read."""

    assignment: Any


class Grant(Struct, frozen=True):
    """Remember for whose request a message is read."""

    connection: Any
    request_id: str
    assignment: Any


class _Waiting(Struct):
    """Hold a request for work that is not answered yet."""

    connection: Any
    session: Any
    frame: InboxAwait
    deadline: Deadline | None = None


class Handing:
    """Carry out orders and claims."""

    def __init__(
        self,
        inbox: Inbox,
        parking: Parking,
        assignments: Assignments,
        mailing: Mailing,
        sessions: SessionTable,
        lifecycle: Lifecycle,
        register: Register,
        offers: Offers,
        giving: Giving,
        ledger: Ledger,
        deadlines: Deadlines,
        outbox: Outbox,
        limits: Limits,
        ids: Callable[[], str],
    ) -> None:
        self._inbox = inbox
        self._parking = parking
        self._assignments = assignments
        self._mailing = mailing
        self._sessions = sessions
        self._lifecycle = lifecycle
        self._register = register
        self._offers = offers
        self._giving = giving
        self._ledger = ledger
        self._deadlines = deadlines
        self._outbox = outbox
        self._limits = limits
        self._ids = ids
        self._waiting: dict[str, _Waiting] = {}
        self.is_shut = False
        """The broker leaves soon: nothing is taken out of the inbox any more."""
        assignments.on_ended = self._ended
        parking.on_free = self._serve_all

    # --- who may ----------------------------------------------------------------------------------------

    def may_see(self, session: Session, parked: Parked) -> bool:
        """Tell whether a session sees a message: it sent it, or may settle it."""
        record = parked.record
        is_mine = record.sender_mailbox is not None and record.sender_mailbox == session.return_mailbox
        return is_mine or record.sender_session == session.id or self.may_settle(session, parked)

    def may_settle(self, session: Session, parked: Parked) -> bool:
        """Tell whether a session may claim a message, hand it out in its groups, or do everything."""
        if features.OPERATOR in session.features:
            return True
        if features.COORDINATOR in session.features and parked.is_in(session.groups):
            return True
        return self.may_claim(session, parked)

    def may_claim(self, session: Session, parked: Parked) -> bool:
        """Tell whether the claim policy of a message, which may be in somebody's hands, allows this worker."""
        if features.WORK not in session.features or session.id == parked.record.sender_session:
            return False
        if parked.record.claim == "bound_session":
            return parked.is_for(session)
        return parked.record.claim == "any_session" and parked.is_in(session.groups)

    def find(self, session: Session, inbox_id: str) -> Parked | No:
        """Return the message with this id that a session may see."""
        parked = self._inbox.get(inbox_id)
        return parked if parked is not None and self.may_see(session, parked) else _UNKNOWN

    def _worker(self, session_id: str, orderer: Session) -> Worker | No:
        """Return the worker with this session id, if whoever orders reaches it."""
        sees_all = features.OPERATOR in orderer.features
        session = self._sessions.get(session_id)
        if session is not None and (sees_all or session.shares_group_with(orderer)):
            return _NOT_CAPABLE if session.work_mode is None else worker_of(session)
        known = self._lifecycle.get(session_id)
        is_away = known is not None and known.state is SessionState.RECONNECTING
        if known is not None and is_away and (sees_all or known.is_in(orderer.groups)):
            return _NOT_CAPABLE if known.record.work_mode is None else _away_worker(known)
        reason = f"No session {session_id} is here or on its way back that this session reaches"
        return No("target_unknown", reason, category="target_unavailable_before_acceptance")

    # --- orders -----------------------------------------------------------------------------------------

    def dispatch(self, connection: Connection, session: Session, frame: InboxDispatch, now: Instant) -> No | None:
        """Carry out an order, or share the outcome of an equal one."""
        key = self._ids() if frame.idempotency_key is UNSET else frame.idempotency_key
        source = None if frame.source_message_id is UNSET else frame.source_message_id
        accept_ms = self._limits.accept_ms if frame.accept_within_ms is UNSET else frame.accept_within_ms
        if accept_ms > LONGEST_VALIDITY_MS:
            return No("bad_request", f"inbox_dispatch: acceptWithinMs may be {LONGEST_VALIDITY_MS} at most")
        fingerprint = encode([frame.inbox_id, self._meant(frame.target_session_id), source, accept_ms]).decode()
        standing, entry = self._register.begin(ORDERS, f"{session.sender_identity} {key}", fingerprint, now)
        if standing is Standing.CONFLICT:
            return No("order_key_conflict", "Another order was given under this idempotencyKey")
        subject = (connection, frame.request_id)
        if standing is Standing.DONE:
            self._tell_order(subject, self._register.outcome(entry), now)
            return None
        self._register.share(entry, self._tell_order, subject)
        if standing is Standing.NEW:
            refused = self._order(session, frame, entry, source, accept_ms, now)
            if refused is not None:
                self._register.failed(entry, asdict(refused), now)
        return None

    def _meant(self, session_id: str) -> str:
        """Return what stands for a worker in an order: of commands of one address the next one is as good."""
        party = self._sessions.party_of(session_id)
        return party if party.startswith("address:") else session_id

    def _order(
        self, session: Session, frame: InboxDispatch, entry: Entry, source: str | None, accept_ms: int, now: Instant
    ) -> No | None:
        parked = self.find(session, frame.inbox_id)
        if isinstance(parked, No):
            return parked
        if source is not None and source != parked.id:
            return No("source_mismatch", f"The message in this place has another id than {source}")
        worker = self._worker(frame.target_session_id, session)
        if isinstance(worker, No):
            return worker
        if not parked.is_free:
            given = self._assignments.get(parked.record.assignment or "")
            is_same = given is not None and given.record.session_id == worker.session_id
            if given is None or not is_same or given.record.order_key != entry.key:
                return IN_PROGRESS
            self._succeed(given, entry, now)
            return None
        if not (features.OPERATOR in session.features or parked.is_in(session.groups)):
            return No("not_allowed", "Only a coordinator in a group of the message's target may hand it out")
        return self._hand_out(parked, worker, entry, accept_ms, now)

    def _hand_out(self, parked: Parked, worker: Worker, entry: Entry, accept_ms: int, now: Instant) -> No | None:
        move = Move()
        move.inverse(lambda now: self._order_not_recorded(entry, now))
        assignment = self._assignments.create(parked, worker, accept_ms, entry.key, move, now)
        handed_to = "staging" if worker.mode == "staged" else "session" if worker.session is not None else "mailbox"
        if handed_to == "mailbox" and not self._put_into_mailbox(assignment, worker.known, move, now):
            move.inverses.pop(0)
            take_back(move, now)
            return _not_writable("its mailbox is full")
        if handed_to == "session":
            assignment.order = entry
        else:
            move.changes.append(self._register.done(entry, _result(assignment, handed_to), now))
        ticket = assignment.ticket = move.append(self._ledger)
        if handed_to == "session":
            self._ledger.when_committed(ticket, self._read_for_push, assignment)
            return None
        self._register.settle(entry, ticket, now)
        if assignment.mail is not None:
            self._mailing.work_put(assignment.mail, ticket)
        self._ledger.when_committed(ticket, self._serve_after, None)
        return None

    def _order_not_recorded(self, entry: Entry, now: Instant) -> None:
        if entry.is_stored:
            self._register.withdraw(entry)  # who asked is told in place of the answer that was lost
        else:
            self._register.failed(entry, asdict(self._giving.not_recorded), now)

    def _put_into_mailbox(self, assignment: Assignment, known: Known, move: Move, now: Instant) -> bool:
        record = assignment.parked.record
        mail = self._mailing.put_work(known.mailbox_key, record, assignment.id, move.changes, now)
        if mail is None:
            return False
        assignment.mail = mail
        move.inverse(lambda now: self._take_out_of_mailbox(assignment, mail))
        return True

    def _take_out_of_mailbox(self, assignment: Assignment, mail: Mail) -> None:
        self._mailing.leave(mail)
        assignment.mail = None

    def _succeed(self, assignment: Assignment, entry: Entry, now: Instant) -> None:
        """Record that an order was carried out; its answer rests on that."""
        assignment.order = None
        handed_to = "session" if assignment.mail is None else "mailbox"
        if assignment.record.mode == "staged":
            handed_to = "staging"
        move = Move()
        move.changes.append(self._register.done(entry, _result(assignment, handed_to), now))
        move.inverse(lambda now: self._register.withdraw(entry))
        self._register.settle(entry, move.append(self._ledger), now)

    def _tell_order(self, subject: Any, outcome: Outcome, now: Instant) -> None:
        connection, request_id = subject
        if outcome.state is Standing.DONE:
            result = outcome.result
            dispatched = InboxDispatched(request_id, result["assignmentId"], result["handedTo"])
            self._giving.give(connection, dispatched, outcome.ticket)
        else:
            self._giving.refuse(connection, request_id, No(**outcome.result))

    def _ended(self, assignment: Assignment, why: str, now: Instant) -> None:
        """Stop handing over what was given back or has ended."""
        if assignment.offered is not None:
            self._offers.withdraw(assignment.offered)
            assignment.offered = None
        entry, assignment.order = assignment.order, None
        if entry is not None:
            self._register.failed(entry, asdict(_not_writable(why)), now)

    def accepted(self, assignment: Assignment, now: Instant) -> None:
        """Take an acceptance for the receipt of what is on its way (A1.10)."""
        if assignment.offered is not None:
            self._offers.withdraw(assignment.offered)
            assignment.offered = None
        if assignment.order is not None:
            self._succeed(assignment, assignment.order, now)

    # --- push -------------------------------------------------------------------------------------------

    def _read_for_push(self, assignment: Assignment, now: Instant) -> None:
        self._outbox.add(ReadBodies(HandOver(assignment), (assignment.parked.record.number,)))

    def push_read(self, token: HandOver, bodies: dict[int, bytes] | None, now: Instant) -> None:
        """Push a message that was read; ``None``: it could not be."""
        assignment: Assignment = token.assignment
        if self._assignments.get(assignment.id) is not assignment or not self._mailing.can_promise:
            return
        record = assignment.parked.record
        session = self._sessions.get(assignment.record.session_id)
        if bodies is None or session is None:
            return self._return(assignment, Missing.NOT_WRITTEN.value, now)
        if record.number not in bodies:
            return self._assignments.lose_message(assignment, notices.BODY_LOST, now)
        push_id = assignment.record.push_id
        assert push_id is not None, "only what is pushed is read for it"
        frame = MessageFrame(
            Raw(record.sender_info),
            Raw(bodies[record.number]),
            push_id=push_id,
            assignment=self._assignments.info(assignment),
        )
        frame.invocation = self._mailing.told_with(record.inbox_id, session)
        assignment.offered = self._offers.offer(
            session,
            frame,
            parked_id(assignment),
            push_id,
            now,
            after=assignment.ticket,
            on_received=self._received,
            on_missing=self._missing,
            subject=assignment,
        )
        return None

    def _received(self, assignment: Assignment, now: Instant) -> None:
        assignment.offered = None
        assert assignment.order is not None, "what is pushed was ordered, and an acceptance takes the offer back"
        self._succeed(assignment, assignment.order, now)

    def _missing(self, assignment: Assignment, why: Missing, now: Instant) -> None:
        assignment.offered = None
        self._return(assignment, why.value, now)

    def _return(self, assignment: Assignment, why: str, now: Instant) -> None:
        if self._mailing.can_promise:
            move = Move()
            self._assignments.give_back(assignment, "target_lost", why, move, now)
            self._assignments.append(move, now)

    # --- claims -----------------------------------------------------------------------------------------

    def claim(
        self, connection: Connection, session: Session, request_id: str, inbox_id: str, now: Instant
    ) -> No | None:
        """Let a worker take a parked message; what it has and has not accepted is granted again."""
        parked = self.find(session, inbox_id)
        if isinstance(parked, No):
            return parked
        if not parked.is_free:
            given = self._assignments.get(parked.record.assignment or "")
            if given is None or given.record.accepted or not given.is_of(session):
                return IN_PROGRESS
            self._grant(connection, request_id, given, now)
            return None
        if not self.may_claim(session, parked):
            return No("not_allowed", "This message is for another session; a coordinator may hand it out")
        self._grant(connection, request_id, self._claimed(session, parked, now), now)
        return None

    def _claimed(self, session: Session, parked: Parked, now: Instant) -> Assignment:
        move = Move()
        worker = worker_of(session)
        taken = Worker(worker.session_id, worker.incarnation, worker.address, "staged")
        assignment = self._assignments.create(parked, taken, self._limits.accept_ms, None, move, now)
        assignment.ticket = move.append(self._ledger)
        return assignment

    def _grant(self, connection: Connection, request_id: str, assignment: Assignment, now: Instant) -> None:
        """Read a message and give it to a worker, once everything it rests on is recorded."""
        grant = Grant(connection, request_id, assignment)
        ticket = self._ledger.last_ticket
        if self._ledger.is_committed(ticket):
            self._read_for_grant(grant, now)
        else:
            self._ledger.when_committed(ticket, self._read_for_grant, grant)
            self._giving.rest(connection, request_id, ticket)

    def _read_for_grant(self, grant: Grant, now: Instant) -> None:
        self._outbox.add(ReadBodies(grant, (grant.assignment.parked.record.number,)))

    def grant_read(self, grant: Grant, bodies: dict[int, bytes] | None, now: Instant) -> None:
        """Answer with a message that was read; ``None``: it could not be."""
        assignment: Assignment = grant.assignment
        record = assignment.parked.record
        if bodies is None or self._assignments.get(assignment.id) is not assignment:
            return self._giving.refuse(grant.connection, grant.request_id, self._giving.not_read)
        if record.number not in bodies:
            if not assignment.record.accepted and self._mailing.can_promise:
                self._assignments.lose_message(assignment, notices.BODY_LOST, now)
            return self._giving.refuse(grant.connection, grant.request_id, _UNKNOWN)
        info = self._assignments.info(assignment)
        session = grant.connection.session
        invoked = UNSET if session is None else self._mailing.told_with(record.inbox_id, session)
        granted = AssignmentGranted(
            grant.request_id, info, Raw(record.sender_info), Raw(bodies[record.number]), invoked
        )
        self._giving.give(grant.connection, granted, self._ledger.last_ticket)
        return None

    # --- waiting for work -------------------------------------------------------------------------------

    def wait(self, connection: Connection, session: Session, frame: InboxAwait, now: Instant) -> None:
        """Give a worker its next work, now or when there is some; the broker holds one request of each."""
        self._stop_waiting(session, now)
        waiting = _Waiting(connection, session, frame)
        if self._serve(waiting, now):
            return
        hold_ms = min(frame.timeout_ms, self._limits.inbox_hold_ms)
        if hold_ms == 0:
            self._outbox.write(connection, InboxNothing(frame.request_id))
            return
        waiting.deadline = self._deadlines.add(now.mono + hold_ms, self._waited_enough, waiting)
        self._waiting[session.id] = waiting

    def session_left(self, session: Session, cause: Cause, now: Instant) -> None:
        """Forget the request of a session whose connection has ended, and what is on its way to it."""
        waiting = self._waiting.get(session.id)
        if waiting is not None and waiting.session is session:
            self._deadlines.cancel(waiting.deadline)
            del self._waiting[session.id]
        self._offers.session_left(session, now)

    def _stop_waiting(self, session: Session, now: Instant) -> None:
        waiting = self._waiting.get(session.id)
        if waiting is not None:
            self._deadlines.cancel(waiting.deadline)
            self._waited_enough(waiting, now)

    def _waited_enough(self, waiting: _Waiting, now: Instant) -> None:
        del self._waiting[waiting.session.id]
        self._outbox.write(waiting.connection, InboxNothing(waiting.frame.request_id))

    def _serve_after(self, _: None, now: Instant) -> None:
        self._serve_all(now)

    def _serve_all(self, now: Instant) -> None:
        for waiting in list(self._waiting.values()):
            if self._waiting.get(waiting.session.id) is waiting and self._serve(waiting, now):
                self._deadlines.cancel(waiting.deadline)
                self._waiting.pop(waiting.session.id, None)

    def _serve(self, waiting: _Waiting, now: Instant) -> bool:
        session, frame = waiting.session, waiting.frame
        staged = [
            assignment
            for assignment in self._assignments.of(session)
            if assignment.record.mode == "staged" and not assignment.record.accepted
        ]
        if staged:
            chosen = min(staged, key=lambda assignment: (assignment.record.attempts, assignment.record.number))
            if frame.mark_attempt:
                move = Move()
                attempts = chosen.record.attempts + 1
                self._assignments.note(chosen, "delivery_attempted", move, now, attempts=attempts)
                chosen.ticket = move.append(self._ledger)
            self._grant(waiting.connection, frame.request_id, chosen, now)
            return True
        if not frame.claim or self.is_shut:
            return False
        for parked in self._inbox.in_order():
            if parked.is_free and self.may_claim(session, parked):
                self._grant(waiting.connection, frame.request_id, self._claimed(session, parked, now), now)
                return True
        return False

    # --- start ------------------------------------------------------------------------------------------

    def recovered(self, now: Instant) -> None:
        """Go on with what an earlier process was handing over: the same assignment, or back to the inbox (FE 1.7)."""
        for assignment in self._assignments.all():
            record = assignment.record
            if record.accepted or record.mode != "pushed" or assignment.mail is not None:
                continue
            known = self._lifecycle.get(record.session_id)
            move = Move()
            is_away = known is not None and known.state is SessionState.RECONNECTING
            if known is not None and is_away and self._put_into_mailbox(assignment, known, move, now):
                assert assignment.mail is not None
                self._mailing.work_put(assignment.mail, move.append(self._ledger))
            else:
                self._return(assignment, "session_lost", now)


def worker_of(session: Session) -> Worker:
    """Return a connected session as a worker."""
    known = session.known
    return Worker(
        session.id,
        None if known is None else known.record.incarnation,
        None if session.address is None else session.address.number,
        "staged" if session.work_mode == "managed_turn" else "pushed",
        known,
        session,
    )


def _away_worker(known: Known) -> Worker:
    record = known.record
    mode = "staged" if record.work_mode == "managed_turn" else "pushed"
    return Worker(record.session_id, record.incarnation, record.address, mode, known)


def parked_id(assignment: Assignment) -> str:
    """Return the id of the message of an assignment."""
    return assignment.record.message_id


def _result(assignment: Assignment, handed_to: str) -> dict[str, Any]:
    return {"assignmentId": assignment.id, "handedTo": handed_to}


_NOT_CAPABLE = No(
    "target_not_capable",
    "The target takes no assignments: it registered without the feature work.assignments",
    category="target_unavailable_before_acceptance",
)


def _not_writable(why: str) -> No:
    return No(
        "target_not_writable",
        f"The message could not be handed over ({why}); it is parked as before",
        True,
        category="target_unavailable_before_acceptance",
    )
