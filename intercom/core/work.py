"""Put together what deals with work: inbox, assignments, replies, and the requests about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from intercom.core.addresses import Addresses
from intercom.core.assignments import Assignments, orphans
from intercom.core.clock import Instant
from intercom.core.closing import Closed as Closed
from intercom.core.closing import Closing
from intercom.core.deadlines import Deadlines
from intercom.core.desk import Desk
from intercom.core.giving import Giving
from intercom.core.handing import Handing
from intercom.core.idempotency import SCOPES, Register
from intercom.core.inbox import Inbox
from intercom.core.journal import Journal
from intercom.core.ledger import Ledger
from intercom.core.lifecycle import Lifecycle
from intercom.core.mailboxes import Mailboxes
from intercom.core.mailing import Mailing
from intercom.core.move import Move
from intercom.core.offers import Offers
from intercom.core.operations import Operations
from intercom.core.outbox import Outbox
from intercom.core.parking import Parking
from intercom.core.records import IdempotencyRecord, Recovered
from intercom.core.replies import Replies
from intercom.core.sessions import SessionTable
from intercom.limits import Limits


class Work:
    """Hold the parts that deal with work."""

    def __init__(
        self,
        inbox: Inbox,
        parking: Parking,
        mailing: Mailing,
        boxes: Mailboxes,
        operations: Operations,
        addresses: Addresses,
        sessions: SessionTable,
        lifecycle: Lifecycle,
        offers: Offers,
        journal: Journal,
        ledger: Ledger,
        deadlines: Deadlines,
        outbox: Outbox,
        limits: Limits,
        ids: Callable[[], str],
        keys: Iterable[IdempotencyRecord],
        now: Instant,
    ) -> None:
        self._inbox = inbox
        self._parking = parking
        self._mailing = mailing
        self._boxes = boxes
        self._journal = journal
        self._ledger = ledger
        ttl_ms = dict.fromkeys(SCOPES, limits.order_ttl_ms)
        self.register = Register(journal, ledger, deadlines, ttl_ms, limits.keyed_outcomes, keys, now)
        giving = Giving(outbox, ledger)
        self.assignments = Assignments(
            parking, mailing, addresses, journal, ledger, deadlines, limits, ids, operations.next_number
        )
        self.handing = Handing(
            inbox,
            parking,
            self.assignments,
            mailing,
            sessions,
            lifecycle,
            self.register,
            offers,
            giving,
            ledger,
            deadlines,
            outbox,
            limits,
            ids,
        )
        self.replies = Replies(self.assignments, self.register, mailing, boxes, sessions, offers, giving, ledger, ids)
        self.closing = Closing(self.assignments, parking, mailing, addresses, ledger)
        self.desk = Desk(
            inbox,
            parking,
            self.assignments,
            self.handing,
            self.replies,
            self.register,
            addresses,
            lifecycle,
            giving,
            ledger,
            outbox,
            limits,
        )

    def recover(self, recovered: Recovered, now: Instant) -> None:
        """Enter what was read from the store, and go on with what an earlier process was handing over."""
        for parked in recovered.inbox:
            self._parking.recover(parked, now)
        by_number = {parked.record.number: parked for parked in self._inbox.in_order()}
        lost = {record.assignment_id for record in orphans(recovered.assignments, recovered.inbox)}
        move = Move()
        for record in recovered.assignments:
            if record.assignment_id in lost:
                move.changes.append(self._journal.event("assignment.target_lost", record, now, is_gone=True))
            else:
                self.assignments.recover(record, by_number[record.inbox], now)
        for entry in by_number.values():
            if not entry.is_free and self.assignments.get(entry.record.assignment or "") is None:
                self._parking.give_back(entry, "assignment_lost", move, now)
        for mail in recovered.mail:
            box = self._boxes.get(mail.mailbox)
            found = None if box is None else box.entries.get(mail.number)
            if found is None or mail.assignment is None:
                continue
            assignment = self.assignments.get(mail.assignment)
            if assignment is None or assignment.record.accepted:
                self._mailing.end_work(found, "voided", move.changes, now)
            else:
                assignment.mail = found
        if move.changes:
            move.append(self._ledger)
        if not self._ledger.is_closed:
            self.handing.recovered(now)
