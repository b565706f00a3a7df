"""Live through an assignment: work that was handed to one worker (protocol 10.4).

    (none) --created--> assigned --accepted--> accepted --reply, failed, expired, session closed--> (gone)
                           |
                           +--not accepted in time, session closed, handed back, broker stops--> given back
                           +--failed for good, expired--> (gone)

Rule 1: an assignment and its message change in one append. Rule 2: it ends once; whatever is reported later moves
nothing. Rule 3: only accepted work can be lost in the middle, and then it is called ambiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import UNSET, Struct
from msgspec.structs import replace

from intercom.core.clock import Instant
from intercom.core.deadlines import Deadline, Deadlines
from intercom.core.inbox import Parked, is_same_worker
from intercom.core.journal import Journal
from intercom.core.ledger import Ledger
from intercom.core.mailing import Brought, Mailing
from intercom.core.move import Move
from intercom.core.parking import Parking
from intercom.core.records import AssignmentRecord, InboxRecord
from intercom.limits import Limits
from intercom.wire import notices
from intercom.wire.work import AssignmentInfo

if TYPE_CHECKING:
    from intercom.core.addresses import Addresses
    from intercom.core.idempotency import Entry
    from intercom.core.lifecycle import Known
    from intercom.core.mailboxes import Mail
    from intercom.core.offers import Offered
    from intercom.core.sessions import Session

TIMEOUT = "acceptance_timeout"
SESSION_LOST = "session_lost"
SHUTDOWN = "broker_shutdown"


class Moving(Protocol):
    """Be told of an assignment that moves."""

    def __call__(
        self, assignment: Assignment, state: str, why: str, move: Move, now: Instant, *, is_over: bool
    ) -> None:
        """Take notice of a state, and why an assignment is over."""


class Worker(Struct, frozen=True):
    """Name who is handed work."""

    session_id: str
    incarnation: str | None
    address: int | None
    mode: str
    """``pushed`` or ``staged``."""
    known: Any = None
    """The ``Known`` session."""
    session: Any = None
    """The connected one."""


class Assignment:
    """Hold one open assignment, and what only this process knows of it."""

    __slots__ = ("answer", "deadline", "mail", "offered", "order", "parked", "record", "ticket")

    def __init__(self, record: AssignmentRecord, parked: Parked) -> None:
        self.record = record
        self.parked = parked
        self.answer: str | None = None
        """What its worker replied."""
        self.ticket = 0
        """Of its newest change."""
        self.deadline: Deadline | None = None
        self.mail: Mail | None = None
        """Its message in the mailbox of a worker that is away."""
        self.offered: Offered | None = None
        """Its message on the way to the worker."""
        self.order: Entry | None = None
        """The order that waits for its hand-over."""

    @property
    def id(self) -> str:
        """Return its id."""
        return self.record.assignment_id

    def is_of(self, session: Session) -> bool:
        """Tell whether this session is its worker, or acts under the worker's address."""
        return is_same_worker(session, self.record.session_id, self.record.address)


class Assignments:
    """Move assignments from state to state."""

    def __init__(
        self,
        parking: Parking,
        mailing: Mailing,
        addresses: Addresses,
        journal: Journal,
        ledger: Ledger,
        deadlines: Deadlines,
        limits: Limits,
        ids: Callable[[], str],
        next_number: Callable[[], int],
    ) -> None:
        self._parking = parking
        self._mailing = mailing
        self._addresses = addresses
        self._journal = journal
        self._ledger = ledger
        self._deadlines = deadlines
        self._limits = limits
        self._ids = ids
        self._next_number = next_number
        self._by_id: dict[str, Assignment] = {}
        self._by_session: dict[str, dict[str, Assignment]] = {}
        self._by_address: dict[int, dict[str, Assignment]] = {}
        self.on_ended: Callable[[Assignment, str, Instant], None] = lambda assignment, why, now: None
        """Is told of each that was given back or has ended, and why."""
        self.on_moving: Moving = lambda assignment, state, why, move, now, *, is_over: None
        """Is told of each that moves, before that is appended, with what is appended."""
        parking.on_overdue = self._message_overdue
        mailing.brought_by = self.brought_by
        mailing.on_work_lost = self._text_lost

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, assignment_id: str) -> Assignment | None:
        """Return the open assignment with this id."""
        return self._by_id.get(assignment_id)

    def all(self) -> list[Assignment]:
        """Return the open assignments, the oldest first."""
        return sorted(self._by_id.values(), key=lambda assignment: assignment.record.number)

    def of(self, session: Session) -> list[Assignment]:
        """Return what this session, or its address, was handed, the oldest first."""
        found = dict(self._by_session.get(session.id, {}))
        if session.address is not None:
            found.update(self._by_address.get(session.address.number, {}))
        return sorted(found.values(), key=lambda assignment: assignment.record.number)

    def accepted_for(self, session: Session, message_id: str) -> Assignment | None:
        """Return the accepted assignment of this message that the session works on."""
        for assignment in self.of(session):
            if assignment.record.accepted and assignment.record.message_id == message_id:
                return assignment
        return None

    def due_soon(self, now: Instant) -> int:
        """Return how many go back soon unless they are accepted."""
        return sum(
            assignment.deadline is not None and assignment.deadline.due - now.mono <= self._limits.due_soon_ms
            for assignment in self._by_id.values()
        )

    def info(self, assignment: Assignment) -> AssignmentInfo:
        """Return an assignment as its worker is told of it."""
        record = assignment.record
        address = self._addresses.get(record.address)
        return AssignmentInfo(
            record.assignment_id,
            record.message_id,
            record.message_id,
            "handoff",
            record.mode,  # type: ignore[arg-type]  # the two modes
            record.assigned_at,
            record.state,  # type: ignore[arg-type]  # a processing state
            record.sequence,
            record.accepted,
            record.session_id,
            record.attempts,
            UNSET if record.accept_deadline is None or record.accepted else record.accept_deadline,
            UNSET if record.incarnation is None else record.incarnation,
            UNSET if address is None else address.name,
        )

    def brought_by(self, assignment_id: str) -> Brought | None:
        """Return what the message of an assignment is handed over with."""
        assignment = self._by_id[assignment_id]
        assert assignment.record.push_id is not None, "only what is pushed comes as mail"
        return Brought(assignment.record.push_id, self.info(assignment))

    # --- begin ------------------------------------------------------------------------------------------

    def create(
        self, parked: Parked, worker: Worker, accept_ms: int, order_key: str | None, move: Move, now: Instant
    ) -> Assignment:
        """Let a worker have a free message, until ``accept_ms`` from now unless it accepts; 0 and less: for ever."""
        record = AssignmentRecord(
            self._ids(),
            self._next_number(),
            parked.record.number,
            parked.id,
            worker.session_id,
            worker.incarnation,
            worker.address,
            worker.mode,
            now.wall,
            now.wall + accept_ms if accept_ms > 0 else None,
            "assigned",
            1,
            push_id=self._ids() if worker.mode == "pushed" else None,
            order_key=order_key,
        )
        assignment = Assignment(record, parked)
        self._parking.assign(parked, assignment.id, worker.session_id, move, now)
        self._enter(assignment)
        move.inverse(lambda now: self._leave(assignment))
        detail: dict[str, Any] = {"session": worker.session_id, "assignment": assignment.id}
        move.changes.append(self._journal.event("assignment.assigned", record, now, **detail))
        self._arm(assignment, now)
        return assignment

    def recover(self, record: AssignmentRecord, parked: Parked, now: Instant) -> Assignment:
        """Enter an assignment read from the store."""
        assignment = Assignment(record, parked)
        self._enter(assignment)
        self._arm(assignment, now)
        return assignment

    def _enter(self, assignment: Assignment) -> None:
        record = assignment.record
        self._by_id[assignment.id] = assignment
        self._by_session.setdefault(record.session_id, {})[assignment.id] = assignment
        if record.address is not None:
            self._by_address.setdefault(record.address, {})[assignment.id] = assignment

    def _leave(self, assignment: Assignment) -> None:
        self._deadlines.cancel(assignment.deadline)
        assignment.deadline = None
        record = assignment.record
        del self._by_id[assignment.id]
        _discard(self._by_session, record.session_id, assignment.id)
        if record.address is not None:
            _discard(self._by_address, record.address, assignment.id)

    # --- from state to state ----------------------------------------------------------------------------

    def note(
        self, assignment: Assignment, state: str, move: Move, now: Instant, sequence: int = 0, **members: Any
    ) -> None:
        """Record a state that does not end an assignment; without ``sequence`` it gets the next number."""
        detail = members.pop("detail", {})
        self._change(assignment, move, state=state, sequence=sequence or assignment.record.sequence + 1, **members)
        move.changes.append(self._journal.event(f"assignment.{state}", assignment.record, now, **detail))
        self.on_moving(assignment, state, "", move, now, is_over=False)

    def accept(self, assignment: Assignment, sequence: int, move: Move, now: Instant, detail: dict[str, Any]) -> None:
        """Let the worker take responsibility: the deadline stops, and that it has the message is proven."""
        due = 0 if assignment.deadline is None else assignment.deadline.due
        self._deadlines.cancel(assignment.deadline)
        assignment.deadline = None
        self.note(assignment, "accepted", move, now, sequence, accepted=True, detail=detail)
        self._end_mail(assignment, "delivered", move, now)
        if due:
            move.inverse(lambda now: self._arm_at(assignment, max(due, now.mono + self._limits.mail_retry_ms)))

    def give_back(
        self,
        assignment: Assignment,
        state: str,
        why: str,
        move: Move,
        now: Instant,
        *,
        sequence: int = 0,
        detail: dict[str, Any] | None = None,
    ) -> None:
        """End an assignment that was not accepted: its message is free again."""
        self._end(assignment, state, why, "voided", move, now, sequence, detail or {})
        self._parking.give_back(assignment.parked, why, move, now)

    def end(
        self,
        assignment: Assignment,
        state: str,
        outcome: str,
        why: str,
        move: Move,
        now: Instant,
        *,
        sequence: int = 0,
        detail: dict[str, Any] | None = None,
    ) -> None:
        """End an assignment together with its message."""
        self._end(assignment, state, why, "delivered", move, now, sequence, detail or {})
        self._parking.end(assignment.parked, outcome, move, now, assignment.record.session_id)

    def _end(
        self,
        assignment: Assignment,
        state: str,
        why: str,
        mail: str,
        move: Move,
        now: Instant,
        sequence: int,
        detail: dict[str, Any],
    ) -> None:
        due = 0 if assignment.deadline is None else assignment.deadline.due
        self._leave(assignment)
        before = assignment.record
        assignment.record = replace(before, state=state, sequence=sequence or before.sequence + 1)
        move.inverse(lambda now: self._come_back(assignment, before, due, now))
        detail = {"session": before.session_id, "assignment": assignment.id, "reason": why, **detail}
        event = self._journal.event(f"assignment.{state}", assignment.record, now, is_gone=True, **detail)
        move.changes.append(event)
        self._end_mail(assignment, mail, move, now)
        self.on_moving(assignment, state, str(detail.get("detail", why)), move, now, is_over=True)
        self.on_ended(assignment, why, now)

    def _end_mail(self, assignment: Assignment, kind: str, move: Move, now: Instant) -> None:
        mail = assignment.mail
        if mail is not None:
            assignment.mail = None
            if self._mailing.end_work(mail, kind, move.changes, now):
                move.inverse(lambda now: self._mail_back(assignment, mail, now))

    def _mail_back(self, assignment: Assignment, mail: Mail, now: Instant) -> None:
        assignment.mail = mail
        self._mailing.put_back(mail, now)

    def _change(self, assignment: Assignment, move: Move, **members: Any) -> None:
        before = assignment.record
        assignment.record = replace(before, **members)
        move.inverse(lambda now: _set(assignment, before))

    def _come_back(self, assignment: Assignment, record: AssignmentRecord, due: int, now: Instant) -> None:
        assignment.record = record
        self._enter(assignment)
        if due:
            self._arm_at(assignment, max(due, now.mono + self._limits.mail_retry_ms))

    # --- what ends them besides their workers -----------------------------------------------------------

    def session_closed(self, known: Known, why: str, move: Move, now: Instant) -> None:
        """Give back what a session that will not return has not accepted; what it has is ambiguous.

        The work of an address stays its own: whoever acts under it goes on.
        """
        for assignment in list(self._by_session.get(known.id, {}).values()):
            if assignment.record.address is not None:
                continue
            if assignment.record.accepted:
                self.end(assignment, "interrupted", "ambiguous", why, move, now)
            else:
                self.give_back(assignment, "target_lost", SESSION_LOST, move, now)

    def shut_down(self, now: Instant) -> None:
        """Give back everything that is not accepted: the broker ends."""
        open_ones = [assignment for assignment in self.all() if not assignment.record.accepted]
        if open_ones and self._mailing.can_promise:
            move = Move()
            for assignment in open_ones:
                self.give_back(assignment, "target_lost", SHUTDOWN, move, now)
            move.append(self._ledger)

    def lose_message(self, assignment: Assignment, reason: str, now: Instant) -> None:
        """End an assignment whose message cannot be read any more, and tell the sender."""
        move = Move()
        self._end(assignment, "failed", "body_lost", "voided", move, now, 0, {})
        given_up = self._parking.give_up(assignment.parked, "undeliverable", reason, move, now)
        self._mailing.given_up(given_up, move.append(self._ledger), now)

    def _text_lost(self, assignment_id: str, now: Instant) -> None:
        self.lose_message(self._by_id[assignment_id], notices.BODY_LOST, now)

    def _message_overdue(self, parked: Parked, now: Instant) -> None:
        """Give up a message whose time is over before its worker was handed it."""
        assignment = self._by_id.get(parked.record.assignment or "")
        if assignment is None or assignment.record.accepted:
            return
        mail = assignment.mail
        if mail is not None and mail.offers == 0:
            move = Move()
            self.give_back(assignment, "target_lost", "expired", move, now)
            move.append(self._ledger)

    def _arm(self, assignment: Assignment, now: Instant) -> None:
        record = assignment.record
        if record.accept_deadline is not None and not record.accepted:
            left = min(max(0, record.accept_deadline - now.wall), record.accept_deadline - record.assigned_at)
            self._arm_at(assignment, now.mono + left)

    def _arm_at(self, assignment: Assignment, due: int) -> None:
        self._deadlines.cancel(assignment.deadline)
        assignment.deadline = self._deadlines.add(due, self._overdue, assignment)

    def _overdue(self, assignment: Assignment, now: Instant) -> None:
        assignment.deadline = None
        if self._mailing.can_promise:
            move = Move()
            move.inverse(lambda now: self._arm_at(assignment, now.mono + self._limits.mail_retry_ms))
            self.give_back(assignment, "target_lost", TIMEOUT, move, now)
            self.append(move, now)

    def append(self, move: Move, now: Instant) -> int:
        """Append a move, and tell once it is recorded that something may be free."""
        ticket = move.append(self._ledger)
        self._ledger.when_committed(ticket, self._tell_free, None)
        return ticket

    def _tell_free(self, _: None, now: Instant) -> None:
        self._parking.on_free(now)


def orphans(records: Iterable[AssignmentRecord], inbox: Iterable[InboxRecord]) -> list[AssignmentRecord]:
    """Return the assignments whose message is not there, or belongs to another one by now."""
    held = {record.number: record.assignment for record in inbox}
    return [record for record in records if held.get(record.inbox) != record.assignment_id]


def _set(assignment: Assignment, record: AssignmentRecord) -> None:
    assignment.record = record


def _discard(index: dict[Any, dict[str, Assignment]], key: Any, assignment_id: str) -> None:
    entries = index[key]
    del entries[assignment_id]
    if not entries:
        del index[key]
