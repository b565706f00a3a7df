"""Remember for a while what owners of workflow runs decided about messages, for those who ask what became of one.

The broker keeps no row of what it did not forward itself: the run has it (protocol 6.12.4). This is memory only, of
the newest ``Limits.owner_decisions``, and no rule rests on it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from intercom.core.clock import Instant

if TYPE_CHECKING:
    from intercom.core.owners import OwnerRequest
    from intercom.limits import Limits

Outcome = Literal["reserved", "delivered", "queued", "undeliverable", "uncertain"]
"""In the words of a trace (protocol 9.6.3)."""


class Decision(Struct, frozen=True):
    """Hold what became of one message."""

    outcome: Outcome
    where: str
    """A sentence without its end, as a trace has it."""
    asked_at: int
    """Epoch ms."""
    decided_at: int | None
    involved: frozenset[str]
    """The session ids and identities of its sender and of the owner."""
    sender_session: str


class OwnerDecisions:
    """Hold the newest decision about each message."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_message: OrderedDict[str, tuple[int, Decision]] = OrderedDict()
        """With until when it is told (monotonic ms)."""

    def note(self, request: OwnerRequest, outcome: Outcome, now: Instant, position: int = 0) -> None:
        """Remember what became of a message that an owner was asked about."""
        self._by_message.pop(request.message_id, None)
        until = now.mono + self._limits.operation_ttl_ms
        self._by_message[request.message_id] = until, decision_of(request, outcome, now.wall, position)
        while len(self._by_message) > self._limits.owner_decisions or self._is_first_over(now):
            self._by_message.popitem(last=False)

    def _is_first_over(self, now: Instant) -> bool:
        until, _ = next(iter(self._by_message.values()))
        return until <= now.mono

    def find(self, message_id: str, now: Instant) -> Decision | None:
        """Return what was decided about this message, while that is told."""
        until, decision = self._by_message.get(message_id, (0, None))
        return decision if now.mono < until else None


def decision_of(request: OwnerRequest, outcome: Outcome, decided_at: int | None, position: int = 0) -> Decision:
    """Return how a message stands that an owner was asked about."""
    owner = f"the owner of workflow run {request.run_id}"
    where = {
        "reserved": f"with {owner}, who has not said what becomes of it",
        "delivered": f"where {owner} brought it",
        "queued": f"kept by {owner} for {request.text}, at position {position} when that was said",
        "undeliverable": f"nowhere any more: {owner} refused it, and its sender was told why",
        "uncertain": f"not known: {owner} was asked and did not answer",
    }[outcome]
    sender = request.sender
    involved = frozenset({sender.id, sender.sender_identity, request.owner.id, request.owner.sender_identity})
    return Decision(outcome, where, request.asked_at, decided_at, involved, sender.id)
