"""Put together what deals with invocations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from intercom.core.clock import Instant
from intercom.core.concerns import State
from intercom.core.deliveries import Deliveries
from intercom.core.forwarding import Forwarding, Sending
from intercom.core.invocation_concerns import invocation_concern, of_delivery, of_diagnosis, of_invocation, of_nobody
from intercom.core.invocation_dispatch import Dispatching, Pushing
from intercom.core.invocation_records import DiagnosisRecord, InvocationRecord
from intercom.core.invocation_requests import REQUESTS, InvocationRequests, Showing
from intercom.core.invocation_targets import Targets
from intercom.core.invocations import NOBODY, Invocation, Invocations
from intercom.core.move import Move
from intercom.core.part import Handler, Part, Reader
from intercom.core.peer_records import DeliveryRecord, OutboxRecord, PeerRecord
from intercom.core.peers import Peers
from intercom.wire.invocations import Invoke

if TYPE_CHECKING:
    from intercom.core.following import Following
    from intercom.core.ground import Ground
    from intercom.core.messages import Messages
    from intercom.core.peer_records import PeerFact
    from intercom.core.post import Post
    from intercom.core.records import Recovered
    from intercom.core.registry import Registry
    from intercom.core.sending import Sending as SendingPart
    from intercom.core.work import Work


class Invoking(Part):
    """Hold the parts that deal with invocations; ``node`` is what this machine is called in labels."""

    def __init__(
        self,
        ground: Ground,
        registry: Registry,
        messages: Messages,
        post: Post,
        sending: SendingPart,
        following: Following,
        work: Work,
        node: str,
    ) -> None:
        ledger, journal, limits, outbox = ground.ledger, ground.journal, ground.limits, ground.outbox
        boxes, mailing, identity = post.boxes, post.mailing, ground.identity
        next_number = messages.operations.next_number
        self._boxes = boxes
        self._mailing = mailing
        self._ledger = ledger
        self.book = Invocations(journal, limits)
        self.peers = Peers(
            identity.broker_id,
            journal,
            ledger,
            next_number,
            registry.is_known_here,
        )
        self._deliveries = Deliveries(journal)
        self.forwarding = Forwarding(
            self.book,
            self._deliveries,
            self.peers,
            ledger,
            ground.deadlines,
            outbox,
            limits,
            next_number,
            identity.epoch,
        )
        self.book.on_forgetting = self.forwarding.forget
        self.targets = targets = Targets(
            registry.sessions,
            registry.addresses,
            registry.lifecycle,
            identity.broker_id,
            node,
            limits,
            registry.policies,
            self.peers,
        )
        self.dispatching = Dispatching(
            self.book,
            targets,
            post.inbox,
            post.parking,
            boxes,
            mailing,
            sending.offers,
            work,
            ledger,
            ground.deadlines,
            outbox,
            limits,
            next_number,
            identity.epoch,
            ground.broker_info,
            self.forwarding,
        )
        self._requests = InvocationRequests(
            self.book,
            targets,
            self.dispatching,
            mailing,
            boxes,
            work.register,
            journal,
            ledger,
            outbox,
            limits,
            ground.ids,
            next_number,
            identity.journal_id,
            ground.broker_info,
        )
        sending.on_late.append(self.dispatching.received)
        mailing.on_moving.append(self.dispatching.mail_moving)
        mailing.on_left = self.dispatching.mail_left
        mailing.told_with = self.dispatching.told
        post.queueing.on_answer = self.dispatching.answered
        work.assignments.on_moving = self.dispatching.assignment_moving
        post.parking.on_leaving = self.dispatching.parked_leaving
        post.parking.on_given_back = self.dispatching.parked_again
        watches = following.watches
        watches.follow(InvocationRecord, of_invocation)
        watches.follow(DiagnosisRecord, of_diagnosis)
        watches.follow(DeliveryRecord, of_delivery)
        watches.follow(PeerRecord, of_nobody)
        watches.follow(OutboxRecord, of_nobody)
        watches.describe("invocation", self._state_of, self._every_state)

    def handlers(self) -> Mapping[type, Handler]:
        """Return who takes requests about invocations."""
        return dict.fromkeys(REQUESTS, self._requests.answer)

    def readers(self) -> Mapping[type, Reader]:
        """Return who goes on after texts were read."""
        return {Pushing: self._push_read, Showing: self._requests.read, Sending: self.forwarding.text_read}

    def due_soon(self, now: Instant) -> int:
        """Return how many invocations go on so soon that the broker stays for them."""
        return self.dispatching.due_soon(now)

    def _push_read(
        self, token: Pushing, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant
    ) -> None:
        self.dispatching.push_read(token, bodies, now)

    def recover(self, recovered: Recovered, now: Instant) -> None:
        """Enter what was read from the store, and go on with what an earlier process was doing."""
        for record in recovered.invocations:
            self.book.recover(record, recovered.senders.get(record.number, NOBODY))
        for diagnosis in recovered.diagnoses:
            self.book.recover_diagnosis(diagnosis)
        for delivery in recovered.deliveries:
            self._deliveries.enter(delivery)
        self.peers.recover(recovered.peers)
        for mail in recovered.mail:
            box = self._boxes.get(mail.mailbox)
            if box is not None and mail.assignment is None:
                self.dispatching.recover_mail(mail.message_id, box.entries.get(mail.number))
        if not self._ledger.is_closed:
            self.dispatching.recovered(now)

    def peer_told(self, fact: PeerFact, now: Instant) -> None:
        """Take note of what is heard of other brokers."""
        self.forwarding.told(fact, now)

    begins = (Invoke,)

    def shut(self, within_ms: int) -> None:
        """Hand nothing over any more."""
        self.dispatching.is_shut = self.forwarding.is_shut = True
        self._mailing.stays = self.dispatching.brings

    def in_work(self, is_here: Callable[[str], bool]) -> dict[str, int]:
        """Return how many tasks somebody has who is here; those that came as assignments are counted as such."""
        return {"runs": sum(self.dispatching.is_in_work(each, is_here) for each in self.book.open_ones())}

    def tidy(self, now: Instant) -> None:
        """Forget what had its time."""
        move = Move()
        self.book.tidy(move, now)
        if move.changes:
            move.append(self._ledger)

    def report(self) -> dict[str, Any]:
        """Return how many invocations are known."""
        book = self.book
        return {
            "invocations": {
                "open": book.open_count,
                "remembered": len(book),
                "diagnoses": book.diagnosis_count,
            }
        }

    def _state_of(self, invocation_id: str) -> State | None:
        invocation = self.book.get(invocation_id)
        return None if invocation is None else _state(invocation)

    def _every_state(self) -> Iterable[State]:
        return map(_state, self.book.open_ones())


def _state(invocation: Invocation) -> State:
    return State("invocation", invocation.record.state, invocation_concern(invocation.record, {}))
