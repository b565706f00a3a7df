"""Put together what deals with work: inbox, assignments, replies, and the requests about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from intercom.core import concerns
from intercom.core.assignments import Assignment, Assignments, orphans
from intercom.core.clock import Instant
from intercom.core.closing import Closing
from intercom.core.concerns import State
from intercom.core.desk import READ_FOR_WORK, WORK_REQUESTS, Desk
from intercom.core.following import Following
from intercom.core.giving import Giving
from intercom.core.ground import Ground
from intercom.core.handing import Handing
from intercom.core.idempotency import SCOPES, Register
from intercom.core.inbox import Parked
from intercom.core.membership import Membership
from intercom.core.messages import Messages
from intercom.core.move import Move
from intercom.core.part import Handler, Part, Reader
from intercom.core.post import Post
from intercom.core.records import AssignmentRecord, IdempotencyRecord, InboxRecord, Recovered
from intercom.core.registry import Registry
from intercom.core.replies import Replies
from intercom.core.sending import Sending
from intercom.core.watches import Watches
from intercom.wire.work import InboxClaim, InboxDispatch


class Work(Part):
    """Hold the parts that deal with work."""

    def __init__(
        self,
        ground: Ground,
        registry: Registry,
        messages: Messages,
        post: Post,
        sending: Sending,
        membership: Membership,
        following: Following,
        keys: Iterable[IdempotencyRecord],
        now: Instant,
    ) -> None:
        ledger, journal, limits, ids = ground.ledger, ground.journal, ground.limits, ground.ids
        deadlines, outbox = ground.deadlines, ground.outbox
        inbox, parking, mailing, boxes = post.inbox, post.parking, post.mailing, post.boxes
        addresses, sessions, lifecycle = registry.addresses, registry.sessions, registry.lifecycle
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
            parking, mailing, addresses, journal, ledger, deadlines, limits, ids, messages.operations.next_number
        )
        self.handing = Handing(
            inbox,
            parking,
            self.assignments,
            mailing,
            sessions,
            lifecycle,
            self.register,
            sending.offers,
            giving,
            ledger,
            deadlines,
            outbox,
            limits,
            ids,
        )
        self.replies = Replies(
            self.assignments, self.register, mailing, boxes, sessions, sending.offers, giving, ledger, ids
        )
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
        post.queueing.on_reply = self.replies.sent
        mailing.take_unclaimed = self.closing.take_unclaimed
        membership.arrivals.on_departed.append(self.handing.session_left)
        membership.arrivals.on_restarted = self.closing.restarted
        lifecycle.on_closing = self.closing.closing
        lifecycle.on_closed = self.closing.recorded
        lifecycle.on_unclosed = self.closing.not_recorded
        self._let_follow(following.watches)

    def _let_follow(self, watches: Watches) -> None:
        """Let watches tell of what is parked, of assignments, and of what was ordered under a key."""
        watches.follow(InboxRecord, concerns.of_inbox)
        watches.follow(AssignmentRecord, concerns.of_assignment)
        watches.follow(IdempotencyRecord, concerns.of_keyed)

        def parked(one: Parked) -> State:
            return State("inbox", "parked" if one.is_free else "assigned", concerns.inbox_concern(one.record))

        def assigned(one: Assignment) -> State:
            return State("assignment", one.record.state, concerns.assignment_concern(one.record, {}))

        watches.describe(
            "inbox",
            lambda inbox_id: None if (one := self._inbox.get(inbox_id)) is None else parked(one),
            lambda: map(parked, self._inbox.in_order()),
        )
        watches.describe(
            "assignment",
            lambda assignment_id: None if (one := self.assignments.get(assignment_id)) is None else assigned(one),
            lambda: map(assigned, self.assignments.all()),
        )

    def handlers(self) -> Mapping[type, Handler]:
        """Return who takes requests about work."""
        return dict.fromkeys(WORK_REQUESTS, self.desk.answer)

    def readers(self) -> Mapping[type, Reader]:
        """Return who goes on after messages were read."""
        return dict.fromkeys(READ_FOR_WORK, self._read)

    def _read(self, token: Any, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant) -> None:
        self.desk.read(token, bodies, now)

    def due_soon(self, now: Instant) -> int:
        """Return how many assignments are due so soon that the broker stays for them."""
        return self.assignments.due_soon(now)

    begins = (InboxDispatch, InboxClaim)

    def shut(self, within_ms: int) -> None:
        """Take nothing out of the inbox any more."""
        self.handing.is_shut = True

    def in_work(self, is_here: Callable[[str], bool]) -> dict[str, int]:
        """Return how many assignments are not answered."""
        return {"assignments": sum(is_here(each.record.session_id) for each in self.assignments.all())}

    def stop(self, now: Instant) -> None:
        """Let go of what could not be handed over any more."""
        self.assignments.shut_down(now)

    def report(self) -> dict[str, Any]:
        """Return how much is parked, and how much is under way."""
        return {
            "inbox": {
                "parked": len(self._inbox),
                "capacity": self._inbox.capacity,
                "underPressure": self._inbox.is_under_pressure,
                "assignments": len(self.assignments),
            }
        }

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
