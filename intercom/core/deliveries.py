"""Hold what has to reach other brokers, and move it from state to state (FE 3.3).

    accepted, deferred --the peer has it--> peer_acked --> running --> completed, failed, cancelled
        |   ^    |
        |   +----+ the peer was not reached
        +--refused, or not reached for too long--> failed;  --not wanted, and never sent--> cancelled

Rule 1: a delivery and its row change together. Rule 2: the first end counts; that the peer could not be reached is
assumed only, and gives way to what the peer says after all.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec.json import encode
from msgspec.structs import replace

from intercom.core.clock import Instant
from intercom.core.deadlines import Deadline
from intercom.core.move import Move
from intercom.core.peer_records import DeliveryRecord

if TYPE_CHECKING:
    from intercom.core.journal import Journal
    from intercom.core.peer_records import RemoteRun

UNREACHABLE = "peer_unreachable"
REFUSED = "peer_rejected"
LATE = "timeout"
STATUS: dict[str, frozenset[str]] = {
    "accepted": frozenset({"deferred", "peer_acked", "failed", "cancelled"}),
    "deferred": frozenset({"peer_acked", "failed", "cancelled"}),
    "peer_acked": frozenset({"running", "completed", "failed", "cancelled"}),
    "running": frozenset({"completed", "failed", "cancelled"}),
    "completed": frozenset(),
    "failed": frozenset({"peer_acked", "running", "completed", "cancelled"}),
    "cancelled": frozenset(),
}
"""To which states a delivery may go from each."""
_FINAL = frozenset({REFUSED, LATE})
"""Of what failed for these reasons nothing can be heard any more; else its run says whether it was only assumed."""


class IllegalStep(Exception):
    """Say that a delivery cannot go there; nothing has changed."""


class Delivery:
    """Hold one delivery, and what only this process knows of it."""

    __slots__ = ("deadline", "due_at", "has_left", "record")

    def __init__(self, record: DeliveryRecord) -> None:
        self.record = record
        self.deadline: Deadline | None = None
        """When something is due: the next attempt, or the end of the wait for an answer."""
        self.due_at: int | None = None
        """The same by the wall clock, epoch ms."""
        self.has_left = False
        """An attempt of this process waits for its answer."""

    @property
    def waits(self) -> bool:
        """Tell whether the peer is not known to have it, and it is to be sent."""
        return self.record.status in ("accepted", "deferred")

    @property
    def is_at_peer(self) -> bool:
        """Tell whether the peer has it, and has not told its end."""
        return self.record.status in ("peer_acked", "running")

    def allows(self, status: str) -> bool:
        """Tell whether it may go to this state."""
        is_final = self.record.status == "failed" and self.record.failure in _FINAL
        return not is_final and status in STATUS[self.record.status]


class Deliveries:
    """Find deliveries, and change them together with their rows."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._by_id: dict[str, Delivery] = {}
        self._by_invocation: dict[str, Delivery] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, delivery_id: str) -> Delivery | None:
        """Return the delivery with this id."""
        return self._by_id.get(delivery_id)

    def of_invocation(self, invocation_id: str) -> Delivery | None:
        """Return the delivery of an invocation."""
        return self._by_invocation.get(invocation_id)

    def open_ones(self) -> list[Delivery]:
        """Return those that wait or are at their peer, the oldest first."""
        return [one for one in self._by_id.values() if one.waits or one.is_at_peer]

    def waiting_for(self, peer: str) -> list[Delivery]:
        """Return those that wait to be sent to a peer, the oldest first."""
        return [one for one in self._by_id.values() if one.waits and one.record.peer == peer]

    def at_peer(self, peer: str) -> list[Delivery]:
        """Return those that a peer has and has not told the end of, the oldest first."""
        return [one for one in self._by_id.values() if one.is_at_peer and one.record.peer == peer]

    def ended_at(self, peer: str) -> list[Delivery]:
        """Return those that a peer had and that failed, the oldest first."""
        failed = [one for one in self._by_id.values() if one.record.status == "failed" and one.record.peer == peer]
        return [one for one in failed if one.record.acked_at is not None]

    def enter(self, record: DeliveryRecord) -> Delivery:
        """Enter a delivery, also one that was read from the store."""
        delivery = Delivery(record)
        self._by_id[record.delivery_id] = self._by_invocation[record.invocation_id] = delivery
        return delivery

    def _leave(self, delivery: Delivery) -> None:
        self._by_id.pop(delivery.record.delivery_id, None)
        self._by_invocation.pop(delivery.record.invocation_id, None)

    def plan(self, record: DeliveryRecord, move: Move, now: Instant) -> Delivery:
        """Enter a new delivery."""
        delivery = self.enter(record)
        move.inverse(lambda now: self._leave(delivery))
        move.changes.append(self._journal.event("delivery.planned", record, now))
        return delivery

    def change(self, delivery: Delivery, kind: str, move: Move, now: Instant, told: Any = None, **members: Any) -> None:
        """Change the row of a delivery; ``told`` is told of an attempt. Raises ``IllegalStep`` before any change."""
        before = delivery.record
        status = members.get("status", before.status)
        if status != before.status and not delivery.allows(status):
            raise IllegalStep(f"a delivery that is {before.status} cannot become {status}")
        record = replace(before, **members)
        if record == before and told is None:
            return
        delivery.record = record
        move.inverse(lambda now: setattr(delivery, "record", before))
        if told is not None or status == before.status:
            move.changes.append(self._journal.event(kind, record, now, **(told or {})))
        if status != before.status:
            event = self._journal.event("delivery.state_changed", record, now, previousStatus=before.status)
            move.changes.append(event)

    def forget(self, delivery: Delivery, move: Move, now: Instant) -> None:
        """Forget a delivery whose invocation is forgotten."""
        self._leave(delivery)
        move.inverse(lambda now: self._back(delivery))
        move.changes.append(self._journal.event("delivery.forgotten", delivery.record, now, is_gone=True))

    def _back(self, delivery: Delivery) -> None:
        self._by_id[delivery.record.delivery_id] = self._by_invocation[delivery.record.invocation_id] = delivery


def delivery_id(requester: str, invocation_id: str, peer: str) -> str:
    """Return the id of a delivery, which is the same every time."""
    return sha256(encode([requester, invocation_id, peer])).hexdigest()[:32]


def status_of(run: RemoteRun) -> str:
    """Return what the state of a run at a peer makes of its delivery."""
    return {"queued": "peer_acked", "waking": "peer_acked", "waiting": "running"}.get(run.state, run.state)
