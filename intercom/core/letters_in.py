"""Let go of letters that arrived once all that followed from them is recorded; others come again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intercom.core.peer_records import Settle

if TYPE_CHECKING:
    from intercom.core.clock import Instant
    from intercom.core.ground import Ground


class LettersIn:
    """Settle letters."""

    def __init__(self, ground: Ground) -> None:
        self._ledger = ground.ledger
        self._outbox = ground.outbox

    def settle_when_recorded(self, arrival: int, now: Instant) -> None:
        """Let go of what arrived once everything is recorded that was asked for until now; never if that fails."""
        ticket = self._ledger.last_ticket
        if self._ledger.is_committed(ticket):
            self._settle(arrival, now)
        else:
            self._ledger.when_committed(ticket, self._settle, arrival)

    def _settle(self, arrival: int, now: Instant) -> None:
        self._outbox.add(Settle(arrival))
