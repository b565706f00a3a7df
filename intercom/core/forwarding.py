"""Bring invocations to the brokers that are the authority for their targets, and follow what becomes of them (FE 3.3).

    planned with the invocation --> an attempt under a lease --the peer has it--> its reports set the run
                                     ^        |
                                     +-pause--+ not reached

Rule 1: nothing is sent before the commit that stored its lease. Rule 2: an attempt that is not answered may have
arrived; what follows it goes under the same id. Rule 3: each delivery has its own time; a slow peer delays nobody else.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from intercom.core import deliveries as states
from intercom.core.clock import Instant
from intercom.core.deliveries import Deliveries, Delivery, status_of
from intercom.core.invocation_records import InvocationRecord
from intercom.core.invocations import ENDED, Invocation, Invocations, Texts
from intercom.core.move import Move
from intercom.core.peer_records import (
    ClusterState,
    DeliveryRecord,
    Follow,
    Forward,
    Forwarded,
    Mirrored,
    PeerFact,
    PeerLost,
    PeerSeen,
    Recall,
    RemoteRun,
    RemoteTask,
)
from intercom.core.records import ReadBodies
from intercom.wire import notices

if TYPE_CHECKING:
    from intercom.core.deadlines import Deadlines
    from intercom.core.ledger import Ledger
    from intercom.core.outbox import Outbox
    from intercom.core.peers import Peers
    from intercom.limits import Limits


class Sending(Struct, frozen=True):
    """Remember for which attempt a text is read."""

    delivery: Any
    invocation: Any
    attempt: int


class Forwarding:
    """Send deliveries, and set runs by what their peers say."""

    def __init__(
        self,
        book: Invocations,
        deliveries: Deliveries,
        peers: Peers,
        ledger: Ledger,
        deadlines: Deadlines,
        outbox: Outbox,
        limits: Limits,
        next_number: Callable[[], int],
        epoch: int,
    ) -> None:
        self._book = book
        self._deliveries = deliveries
        self._peers = peers
        self._ledger = ledger
        self._deadlines = deadlines
        self._outbox = outbox
        self._limits = limits
        self._next_number = next_number
        self._epoch = epoch
        self.is_shut = False
        """Nothing is sent any more: the broker is about to leave."""
        self.carry: Callable[[Forward | Follow | Recall, Instant], None] = lambda work, now: outbox.add(work)
        """Brings work to a peer."""
        self.go_on: Callable[[Invocation, str, Instant], bool] = lambda invocation, peer, now: False
        """Brings a task to where its address is at home now, which this peer has not; False: to that peer still."""
        self._epochs: dict[str, int] = {}
        """Of the processes of peers that were seen last."""
        self._told: dict[type, Callable[[Any, Instant], None]] = {
            PeerSeen: self._seen,
            PeerLost: self._lost,
            ClusterState: self._way_changed,
            Forwarded: self._heard,
            Mirrored: self._heard,
        }

    # --- what is planned --------------------------------------------------------------------------------

    def plan(self, invocation: Invocation, peer: str, move: Move, now: Instant) -> Delivery:
        """Record, with the invocation, that it has to reach a peer; the caller calls ``planned`` behind that."""
        record = invocation.record
        return self._deliveries.plan(
            DeliveryRecord(
                self._next_number(),
                states.delivery_id(record.requester, record.invocation_id, peer),
                record.invocation_id,
                record.requester,
                record.requester_session,
                record.target,
                peer,
                "accepted",
                now.wall,
            ),
            move,
            now,
        )

    def planned(self, delivery: Delivery, now: Instant) -> None:
        """Send what is recorded now."""
        self._attempt(delivery, now)

    # --- attempts ---------------------------------------------------------------------------------------

    def _attempt(self, delivery: Delivery, now: Instant) -> None:
        """Send a delivery that is due, under a lease, or put it off."""
        self._disarm(delivery)
        record = delivery.record
        if not delivery.waits or delivery.has_left or self._ledger.is_closed or self.is_shut:
            return None
        invocation = self._book.get(record.invocation_id)
        if invocation is None or not invocation.is_open:
            return self._give_up(delivery, states.REFUSED, "its invocation is over", now)
        if not record.attempts and self.go_on(invocation, record.peer, now):
            return None
        take_until = invocation.record.take_until
        if take_until is not None and take_until <= now.wall and not record.attempts:
            return self._give_up(delivery, states.LATE, "nobody took it in the time it was given", now)
        if not self._peers.is_there(record.peer):
            return self._put_off(delivery, "the machine it is for is not there", self._limits.peer_absent_ms, now)
        move = Move()
        lease = {"lease_epoch": self._epoch, "lease_until": now.wall + self._limits.job_lease_ms}
        attempt = record.attempts + 1
        move.inverse(lambda now: self._arm(delivery, self._limits.mail_retry_ms, now))
        self._deliveries.change(delivery, "delivery.leased", move, now, attempts=attempt, next_attempt_at=None, **lease)
        self._ledger.when_committed(move.append(self._ledger), self._read, Sending(delivery, invocation, attempt))
        return None

    def _read(self, sending: Sending, now: Instant) -> None:
        self._outbox.add(ReadBodies(sending, (sending.invocation.record.number,)))

    def text_read(
        self, sending: Sending, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant
    ) -> None:
        """Send a delivery whose text was read; None: it could not be."""
        delivery: Delivery = sending.delivery
        record = delivery.record
        if not delivery.waits or record.attempts != sending.attempt:
            return None
        if bodies is None:
            return self._put_off(delivery, "the store could not be read", self._limits.peer_absent_ms, now)
        task: InvocationRecord = sending.invocation.record
        if task.number not in bodies:
            return self._give_up(delivery, states.REFUSED, notices.BODY_LOST, now)
        delivery.has_left = True
        self._arm(delivery, self._limits.forward_ms, now)
        self.carry(self._work(delivery, sending.invocation, bodies[task.number], 0), now)
        return None

    def _work(self, delivery: Delivery, invocation: Invocation, message: bytes, after: int) -> Forward:
        task, record = invocation.record, delivery.record
        remote = RemoteTask(
            task.invocation_id,
            task.target,
            task.asked,
            task.action,
            task.ensure_awake,
            task.requester,
            invocation.info,
            message,
            task.created_at,
            task.take_until,
            task.wishes,
        )
        return Forward(record.peer, record.delivery_id, record.attempts, remote, after)

    def _arm(self, delivery: Delivery, pause_ms: int, now: Instant) -> None:
        self._disarm(delivery)
        delivery.deadline = self._deadlines.add(now.mono + pause_ms, self._due, delivery)
        delivery.due_at = now.wall + pause_ms

    def _disarm(self, delivery: Delivery) -> None:
        self._deadlines.cancel(delivery.deadline)
        delivery.deadline = None

    def _due(self, delivery: Delivery, now: Instant) -> None:
        delivery.deadline = None
        if delivery.has_left:
            self._missed(delivery, "no answer came in time", now)
        else:
            self._attempt(delivery, now)

    def _missed(self, delivery: Delivery, why: str, now: Instant) -> None:
        """Try again later what its peer did not answer, until the window is over."""
        delivery.has_left = False
        self._disarm(delivery)
        record = delivery.record
        attempted = self._attempted(delivery, "failed", error=why)
        self._put_off(delivery, why, pause_ms(record.delivery_id, record.attempts, self._limits), now, attempted)

    def _put_off(
        self, delivery: Delivery, why: str, pause: int, now: Instant, attempted: dict[str, Any] | None = None
    ) -> None:
        record = delivery.record
        waited_ms, window_ms = now.wall - record.first_queued_at, self._window_ms(record)
        if waited_ms >= window_ms:
            said = f"{self._peers.name_of(record.peer)} was not reached with {record.attempts} attempts"
            return self._give_up(
                delivery, states.UNREACHABLE, f"{said} in {waited_ms // 1000} seconds: {why}", now, attempted
            )
        pause = min(pause, max(0, record.first_queued_at + window_ms - now.wall))
        self._arm(delivery, pause, now)
        if record.status == "deferred" and attempted is None and record.lease_epoch is None:
            return None  # nothing has changed but when it is looked at again
        move = Move()
        self._deliveries.change(
            delivery,
            "delivery.put_off" if attempted is None else "delivery.attempted",
            move,
            now,
            attempted,
            status="deferred",
            next_attempt_at=now.wall + pause,
            lease_epoch=None,
            lease_until=None,
            failure=states.UNREACHABLE,
            detail=why,
        )
        move.append(self._ledger)
        return None

    def _window_ms(self, record: DeliveryRecord) -> int:
        """Return how long a delivery is tried: what waited for an address, and follows it, as long as mail does."""
        invocation = self._book.get(record.invocation_id)
        has_followed = invocation is not None and invocation.record.turn > 0
        return self._limits.mail_ttl_ms if has_followed else self._limits.peer_window_ms

    def _attempted(self, delivery: Delivery, status: str, **more: Any) -> dict[str, Any]:
        """Return what is told of an attempt."""
        return {"attempt": delivery.record.attempts, "status": status, **more}

    def _give_up(
        self, delivery: Delivery, failure: str, why: str, now: Instant, attempted: dict[str, Any] | None = None
    ) -> None:
        """End a delivery as failed, and its run with it."""
        self._disarm(delivery)
        move = Move()
        record = delivery.record
        self._deliveries.change(
            delivery,
            "delivery.attempted",
            move,
            now,
            attempted,
            status="failed",
            next_attempt_at=None,
            lease_epoch=None,
            lease_until=None,
            failure=failure,
            detail=why,
        )
        invocation = self._book.get(record.invocation_id)
        if invocation is not None and invocation.is_open:
            texts = Texts(error=f"It was not handed over: {why}"[: self._limits.run_text_characters])
            is_assumed = failure == states.UNREACHABLE and record.attempts > 0
            self._book.end(invocation, "failed", texts, move, now, self._next_number(), reconciled=is_assumed)
        ticket = move.append(self._ledger)
        if invocation is not None:
            invocation.ticket = ticket

    # --- what is heard ----------------------------------------------------------------------------------

    def told(self, fact: PeerFact, now: Instant) -> None:
        """Take note of what is heard of other brokers."""
        told = self._told.get(type(fact))
        if told is not None:
            told(fact, now)

    def _lost(self, fact: PeerLost, now: Instant) -> None:
        self._peers.lost(fact)

    def _way_changed(self, fact: ClusterState, now: Instant) -> None:
        if fact.status == "on":
            for peer in self._peers.there():
                self._go_on_with(peer.broker_id, now)

    def _heard(self, fact: Forwarded | Mirrored, now: Instant) -> None:
        delivery = self._deliveries.get(fact.delivery_id)
        if delivery is None or self._ledger.is_closed:
            return
        if fact.peer not in (None, delivery.record.peer):
            return  # nobody else has a say in it
        if isinstance(fact, Mirrored):
            self._mirrored(delivery, fact, now)
        else:
            self._answered(delivery, fact, now)

    def _seen(self, fact: PeerSeen, now: Instant) -> None:
        """Send what waits for a peer that has come, and ask a new process of it for the reports of what it has."""
        is_there_anew = self._peers.seen(fact, now)
        is_another, self._epochs[fact.broker_id] = self._epochs.get(fact.broker_id) != fact.epoch, fact.epoch
        if is_there_anew or is_another:
            self._go_on_with(fact.broker_id, now)

    def _go_on_with(self, peer: str, now: Instant) -> None:
        for delivery in self._deliveries.waiting_for(peer):
            if not delivery.has_left and delivery.record.lease_epoch != self._epoch:
                self._attempt(delivery, now)
        for delivery in self._deliveries.at_peer(peer):
            self._follow(delivery, now)
        for delivery in self._deliveries.ended_at(peer):
            if self._is_assumed(delivery):
                self._ask_on(delivery, now)

    def _answered(self, delivery: Delivery, fact: Forwarded, now: Instant) -> None:
        """Take the answer to an attempt; that the peer has it counts whenever it is heard."""
        record = delivery.record
        invocation = self._book.get(record.invocation_id)
        if invocation is None or (fact.peer is not None and fact.turn != invocation.record.turn):
            return
        is_newest = fact.attempt == record.attempts
        if fact.verdict in ("accepted", "duplicate"):
            if fact.run is not None and fact.run.is_let_go:
                self._let_go(delivery, invocation, fact.run, now)
            elif self._may_be_at_peer(delivery):
                self._acked(delivery, fact, now)
            return
        if not is_newest or not delivery.waits:
            return
        has_gone_on = fact.is_elsewhere and self.go_on(invocation, record.peer, now)
        if has_gone_on or not delivery.has_left:
            return
        if fact.is_elsewhere:
            self._missed(delivery, "the address it is for is not at home there", now)
        elif fact.verdict == "unreachable":
            self._missed(delivery, fact.reason or "it was not reached", now)
        else:
            delivery.has_left = False
            attempted = self._attempted(delivery, "failed", error=fact.reason)
            said = f"{self._peers.name_of(record.peer)} refused it: {fact.reason}"
            self._give_up(delivery, states.REFUSED, said, now, attempted)

    def _may_be_at_peer(self, delivery: Delivery) -> bool:
        """Tell whether it counts when the peer says that it has it: it waits, or its end was only assumed."""
        return delivery.waits or self._is_assumed(delivery)

    def _is_assumed(self, delivery: Delivery) -> bool:
        """Tell whether the end of a delivery is only assumed."""
        invocation = self._book.get(delivery.record.invocation_id)
        return invocation is not None and invocation.record.reconciled and delivery.allows("peer_acked")

    def _acked(self, delivery: Delivery, fact: Forwarded, now: Instant) -> None:
        delivery.has_left = False
        self._disarm(delivery)
        move = Move()
        duplicate = {"duplicate": True} if fact.verdict == "duplicate" else {}
        self._deliveries.change(
            delivery,
            "delivery.attempted",
            move,
            now,
            self._attempted(delivery, "acknowledged", **duplicate),
            status="peer_acked",
            next_attempt_at=None,
            lease_epoch=None,
            lease_until=None,
            failure=None,
            detail=None,
            acked_at=now.wall,
            peer_run=None if fact.run is None else fact.run.run_id,
        )
        if fact.run is not None:
            self._apply(delivery, fact.run, move, now)
        self._ledger.when_committed(move.append(self._ledger), self._follow, delivery)

    def _follow(self, delivery: Delivery, now: Instant) -> None:
        """Ask for the reports of the run, and tell the peer when it is not wanted any more."""
        record = delivery.record
        if not delivery.is_at_peer:
            return
        self._ask_on(delivery, now)
        invocation = self._book.get(record.invocation_id)
        if invocation is not None and invocation.record.cancel_asked_at is not None:
            self.carry(Recall(record.peer, record.delivery_id, record.invocation_id, ""), now)

    def _ask_on(self, delivery: Delivery, now: Instant) -> None:
        """Ask for the reports behind the newest that was taken."""
        record = delivery.record
        self.carry(Follow(record.peer, record.delivery_id, record.invocation_id, record.mirrored), now)

    def _mirrored(self, delivery: Delivery, fact: Mirrored, now: Instant) -> None:
        """Take a report of a run; one that is known says nothing, and a gap is filled before anything is taken."""
        record = delivery.record
        invocation = self._book.get(record.invocation_id)
        if invocation is not None and fact.run.is_let_go:
            return self._let_go(delivery, invocation, fact.run, now)
        if fact.seq <= record.mirrored or not (delivery.is_at_peer or self._may_be_at_peer(delivery)):
            return None
        if invocation is not None and fact.run.run_id and fact.run.turn != invocation.record.turn:
            return None
        if fact.after > record.mirrored:
            return self._ask_on(delivery, now)
        move = Move()
        move.inverse(lambda now: self._follow(delivery, now))
        if not delivery.is_at_peer:  # a report says as much as the answer to an attempt, and may overtake it
            delivery.has_left = False
            self._disarm(delivery)
            acked = {"status": "peer_acked", "acked_at": now.wall, "next_attempt_at": None, "failure": None}
            free = {"lease_epoch": None, "lease_until": None, "detail": None}
            self._deliveries.change(delivery, "delivery.mirrored", move, now, **acked, **free)
        self._deliveries.change(delivery, "delivery.mirrored", move, now, mirrored=fact.seq, peer_run=fact.run.run_id)
        self._apply(delivery, fact.run, move, now)
        move.append(self._ledger)
        return None

    def _let_go(self, delivery: Delivery, invocation: Invocation, run: RemoteRun, now: Instant) -> None:
        """Bring a task on that its peer has let go of, since its address is at home elsewhere by now."""
        if not invocation.is_open or run.turn != invocation.record.turn:
            return
        peer = delivery.record.peer
        if not self.go_on(invocation, peer, now):
            self.plan_again(invocation, peer, now, self._limits.peer_absent_ms)  # which has not heard of it here

    # --- with an address that moves -----------------------------------------------------------------------

    def plan_again(self, invocation: Invocation, peer: str, now: Instant, pause_ms: int = 0) -> None:
        """Let a task that no peer has go to this one, after a pause."""
        move = Move()
        self._give_way(invocation, move, now)
        self._book.change(invocation, "run.updated", move, now, authority=peer, turn=invocation.record.turn + 1)
        delivery = self.plan(invocation, peer, move, now)
        move.inverse(lambda now: self._disarm(delivery))
        invocation.ticket = move.append(self._ledger)
        if pause_ms:
            self._arm(delivery, pause_ms, now)
        else:
            self._ledger.when_committed(invocation.ticket, self.planned, delivery)

    def _give_way(self, invocation: Invocation, move: Move, now: Instant) -> None:
        """Let the delivery of a task be none any more, in the append of the caller."""
        delivery = self._deliveries.of_invocation(invocation.id)
        assert delivery is not None, "it was a peer's"
        self._disarm(delivery)
        delivery.has_left = False
        self._deliveries.forget(delivery, move, now)
        move.inverse(lambda now: self._arm(delivery, self._limits.mail_retry_ms, now))

    def come_home(self, invocation: Invocation, move: Move, now: Instant) -> None:
        """Let a task that no peer has be for this broker, in the append of the caller."""
        self._give_way(invocation, move, now)
        self._book.change(invocation, "run.updated", move, now, authority=None)

    def hand_on(self, invocation: Invocation, peer: str, message: bytes, move: Move, now: Instant) -> None:
        """Append ``move``, with which a task is a peer's from now on, and send it behind that."""
        delivery = self.plan(invocation, peer, move, now)
        lease = {"lease_epoch": self._epoch, "lease_until": now.wall + self._limits.job_lease_ms}
        self._deliveries.change(delivery, "delivery.leased", move, now, attempts=1, **lease)
        move.inverse(lambda now: self._disarm(delivery))
        invocation.ticket = move.append(self._ledger)
        delivery.has_left = True
        self._arm(delivery, self._limits.forward_ms, now)
        self.carry(self._work(delivery, invocation, message, invocation.ticket), now)

    def _apply(self, delivery: Delivery, run: RemoteRun, move: Move, now: Instant) -> None:
        """Set delivery and run by what the peer says of its run."""
        status = status_of(run)
        if status != delivery.record.status and delivery.allows(status):
            self._deliveries.change(delivery, "delivery.mirrored", move, now, status=status)
        invocation = self._book.get(delivery.record.invocation_id)
        if invocation is None or not (invocation.is_open or invocation.record.reconciled):
            return
        texts = Texts(run.summary, run.output, run.error)
        if run.state in ENDED:
            if (run.state, run.reconciled) == (invocation.record.state, invocation.record.reconciled):
                return
            self._book.end(invocation, run.state, texts, move, now, self._next_number(), reconciled=run.reconciled)
        elif run.state in ("running", "waiting"):
            if run.state != invocation.record.state:
                self._book.take(invocation, None, move, now, run.state)
            self._book.keep_texts(invocation, texts, move, now, self._next_number())
        elif invocation.record.reconciled:
            self._book.take(invocation, None, move, now)

    # --- what the requester wants -----------------------------------------------------------------------

    def open_ones(self) -> list[Delivery]:
        """Return the deliveries that wait or are at their peer, the oldest first."""
        return self._deliveries.open_ones()

    def try_now(self, delivery: Delivery, now: Instant) -> None:
        """Send what waits to its peer now, and let its time begin anew."""
        if not delivery.waits or delivery.has_left or delivery.record.lease_epoch == self._epoch:
            return
        move = Move()
        self._deliveries.change(delivery, "delivery.put_off", move, now, first_queued_at=now.wall)
        move.append(self._ledger)
        self._attempt(delivery, now)

    def is_untouched(self, invocation: Invocation) -> bool:
        """Tell whether an invocation was never sent to its peer."""
        delivery = self._deliveries.of_invocation(invocation.id)
        return delivery is not None and delivery.waits and not delivery.record.attempts

    def cancel(self, invocation: Invocation, move: Move, now: Instant) -> None:
        """End the delivery of what was never sent, in the same append."""
        delivery = self._deliveries.of_invocation(invocation.id)
        if delivery is not None and delivery.allows("cancelled"):
            self._disarm(delivery)
            move.inverse(lambda now: self._arm(delivery, 0, now))
            self._deliveries.change(delivery, "", move, now, status="cancelled", next_attempt_at=None)

    def recall(self, invocation: Invocation, reason: str, now: Instant) -> None:
        """Tell the peer, once it has it, that it is not wanted any more."""
        delivery = self._deliveries.of_invocation(invocation.id)
        if delivery is not None and delivery.is_at_peer:
            record = delivery.record
            self.carry(Recall(record.peer, record.delivery_id, record.invocation_id, reason), now)

    def forget(self, invocation: Invocation, move: Move, now: Instant) -> None:
        """Forget the delivery of an invocation that is forgotten, in the same append."""
        delivery = self._deliveries.of_invocation(invocation.id)
        if delivery is not None:
            self._disarm(delivery)
            self._deliveries.forget(delivery, move, now)

    def delivery_of(self, invocation_id: str) -> DeliveryRecord | None:
        """Return the delivery of an invocation, if it has one."""
        delivery = self._deliveries.of_invocation(invocation_id)
        if delivery is None or delivery.has_left or delivery.deadline is None:
            return None if delivery is None else delivery.record
        return replace(delivery.record, next_attempt_at=delivery.due_at)

    # --- start ------------------------------------------------------------------------------------------

    def recovered(self, now: Instant) -> None:
        """Go on with what an earlier process was sending; its leases are void.

        What a peer has is followed again once that peer is seen.
        """
        for delivery in self._deliveries.open_ones():
            record = delivery.record
            if delivery.waits:
                is_due = record.lease_epoch is not None or record.next_attempt_at is None
                self._arm(delivery, 0 if is_due else max(0, (record.next_attempt_at or 0) - now.wall), now)


def pause_ms(delivery_id: str, attempt: int, limits: Limits) -> int:
    """Return how long to wait after an attempt, in ms: it doubles, within bounds, and is spread by the id.

    What is sent to one peer does not come back all at once, and the same inputs wait the same time.
    """
    plain: int = min(limits.peer_retry_ms << min(attempt - 1, 20), limits.peer_retry_most_ms)
    share = int.from_bytes(sha256(f"{delivery_id} {attempt}".encode()).digest()[:4], "big") / 0xFFFFFFFF
    spread = plain * limits.peer_retry_spread_percent / 100
    return max(limits.peer_retry_ms, round(plain - spread + 2 * spread * share))
