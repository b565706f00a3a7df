"""Put together what deals with invocations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from intercom.core.clock import Instant
from intercom.core.concerns import State
from intercom.core.invocation_concerns import invocation_concern, of_diagnosis, of_invocation
from intercom.core.invocation_dispatch import Dispatching, Pushing
from intercom.core.invocation_records import DiagnosisRecord, InvocationRecord
from intercom.core.invocation_requests import InvocationRequests, Showing
from intercom.core.invocation_targets import Targets
from intercom.core.invocations import Invocation, Invocations
from intercom.core.move import Move

if TYPE_CHECKING:
    from intercom.core.addresses import Addresses
    from intercom.core.deadlines import Deadlines
    from intercom.core.inbox import Inbox
    from intercom.core.journal import Journal
    from intercom.core.ledger import Ledger
    from intercom.core.lifecycle import Lifecycle
    from intercom.core.mailboxes import Mailboxes
    from intercom.core.mailing import Mailing
    from intercom.core.offers import Offers
    from intercom.core.outbox import Outbox
    from intercom.core.parking import Parking
    from intercom.core.policies import Policies
    from intercom.core.queueing import Queueing
    from intercom.core.records import Recovered, StoreIdentity
    from intercom.core.sessions import SessionTable
    from intercom.core.watches import Watches
    from intercom.core.work import Work
    from intercom.limits import Limits


class Invoking:
    """Hold the parts that deal with invocations.

    Args:
        node: what this machine is called in labels.
        broker_info: the session object under which the broker itself writes.
    """

    def __init__(
        self,
        *,
        sessions: SessionTable,
        addresses: Addresses,
        lifecycle: Lifecycle,
        policies: Policies,
        inbox: Inbox,
        parking: Parking,
        boxes: Mailboxes,
        mailing: Mailing,
        queueing: Queueing,
        work: Work,
        offers: Offers,
        watches: Watches,
        journal: Journal,
        ledger: Ledger,
        deadlines: Deadlines,
        outbox: Outbox,
        limits: Limits,
        ids: Callable[[], str],
        next_number: Callable[[], int],
        identity: StoreIdentity,
        node: str,
        broker_info: bytes,
    ) -> None:
        self._boxes = boxes
        self._ledger = ledger
        self._book = Invocations(journal, limits)
        targets = Targets(sessions, addresses, lifecycle, identity.broker_id, node, limits, policies)
        self._dispatching = Dispatching(
            self._book,
            targets,
            inbox,
            parking,
            boxes,
            mailing,
            offers,
            work,
            ledger,
            deadlines,
            outbox,
            limits,
            next_number,
            identity.epoch,
            broker_info,
        )
        self._requests = InvocationRequests(
            self._book,
            targets,
            self._dispatching,
            mailing,
            boxes,
            work.register,
            journal,
            ledger,
            outbox,
            limits,
            ids,
            next_number,
            identity.journal_id,
            broker_info,
        )
        self.answer = self._requests.answer
        self.received = self._dispatching.received
        self.mail_moving = self._dispatching.mail_moving
        self.due_soon = self._dispatching.due_soon
        mailing.told_with = self._dispatching.told
        queueing.on_answer = self._dispatching.answered
        work.assignments.on_moving = self._dispatching.assignment_moving
        parking.on_leaving = self._dispatching.parked_leaving
        watches.follow(InvocationRecord, of_invocation)
        watches.follow(DiagnosisRecord, of_diagnosis)
        watches.describe("invocation", self._state_of, self._every_state)

    def bodies_read(
        self, token: object, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant
    ) -> None:
        """Go on after texts were read; None: they could not be."""
        if isinstance(token, Pushing):
            self._dispatching.push_read(token, bodies, now)
        elif isinstance(token, Showing):
            self._requests.read(token, numbers, bodies, now)

    def recover(self, recovered: Recovered, now: Instant) -> None:
        """Enter what was read from the store, and go on with what an earlier process was doing."""
        for record in recovered.invocations:
            self._book.recover(record)
        for diagnosis in recovered.diagnoses:
            self._book.recover_diagnosis(diagnosis)
        for mail in recovered.mail:
            invocation = self._book.of_message(mail.message_id)
            box = self._boxes.get(mail.mailbox)
            if invocation is not None and box is not None and mail.assignment is None:
                invocation.mail = box.entries.get(mail.number)
        if not self._ledger.is_closed:
            self._dispatching.recovered(now)

    def shut(self) -> None:
        """Hand nothing over any more: the broker leaves soon."""
        self._dispatching.is_shut = True

    def count_in_work(self, is_here: Callable[[str], bool]) -> int:
        """Return how many runs are being worked on by sessions that are here; assignments are counted elsewhere."""
        records = (each.record for each in self._book.open_ones())
        return sum(
            record.state == "running"
            and record.placement != "inbox"
            and record.worker is not None
            and is_here(record.worker)
            for record in records
        )

    def tidy(self, now: Instant) -> None:
        """Forget what had its time."""
        move = Move()
        self._book.tidy(move, now)
        if move.changes:
            move.append(self._ledger)

    def status(self) -> dict[str, Any]:
        """Return what the status report says of invocations."""
        return {"open": self._book.open_count, "remembered": len(self._book), "diagnoses": self._book.diagnosis_count}

    def _state_of(self, invocation_id: str) -> State | None:
        invocation = self._book.get(invocation_id)
        return None if invocation is None else _state(invocation)

    def _every_state(self) -> Iterable[State]:
        return map(_state, self._book.open_ones())


def _state(invocation: Invocation) -> State:
    return State("invocation", invocation.record.state, invocation_concern(invocation.record, {}))


TOKENS = Pushing | Showing
"""What is read for invocations."""
