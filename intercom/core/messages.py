"""Know every message that is on its way or may be sent again, who waits for an answer, and what was not confirmed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from intercom.core.asking import Asking
from intercom.core.clock import Instant
from intercom.core.ground import Ground
from intercom.core.guard import LoopGuard
from intercom.core.lifecycle import Known
from intercom.core.operations import Operations
from intercom.core.part import Part
from intercom.core.questions import Questions
from intercom.core.recalling import Recalling
from intercom.core.receipts import Receipts
from intercom.core.records import OperationState, Recovered
from intercom.core.registry import Registry
from intercom.core.supervision import Crossings
from intercom.core.waits import Waits


class Messages(Part):
    """Hold the tables of operations, questions and receipts.

    Args:
        key: 32 bytes under which signatures are made.
        store_trouble: why the store cannot be used.
    """

    def __init__(
        self, ground: Ground, registry: Registry, key: bytes, recovered: Recovered, store_trouble: str | None
    ) -> None:
        limits, deadlines = ground.limits, ground.deadlines
        waits = Waits()
        self.questions = Questions(deadlines, waits, registry.sessions.party_of)
        self.asking = Asking(self.questions, waits, registry.sessions, registry.addresses, limits, ground.outbox)
        self.operations = Operations(
            key, limits, ground.ledger, deadlines, ground.connections, recovered, store_trouble
        )
        self.recalling = Recalling(self.operations, ground.outbox, limits)
        self.receipts = Receipts(limits)
        self.crossings = Crossings(limits)
        self.guard = LoopGuard(limits)
        registry.lifecycle.on_ending.append(self._session_ending)

    def recover(self, recovered: Recovered, now: Instant) -> None:
        """Enter the operations, and open the questions again that are still to be answered."""
        for record in recovered.operations:
            operation = self.operations.recover(record, now)
            question = record.question
            is_open = question is not None and not question.answered and operation.question_due > now.mono
            if question is not None and is_open and record.state is OperationState.ACCEPTED:
                self.asking.recover(operation, question)
        if self.operations.trouble is None:
            self.recalling.begin(recovered.left_until, now)

    def shut(self, within_ms: int) -> None:
        """Let no new question be asked."""
        self.asking.is_shut = True

    def in_work(self, is_here: Callable[[str], bool]) -> dict[str, int]:
        """Return how many questions are open between sessions."""
        found = (each for each in self.questions if is_here(each.asker_id) and is_here(each.target_id))
        return {"questions": sum(1 for _ in found)}

    def stop(self, now: Instant) -> None:
        """Forget the reservations that nothing can become of any more."""
        self.operations.drop_leftovers()

    def report(self) -> dict[str, Any]:
        """Return how much is open."""
        return {
            "openQuestions": len(self.questions),
            "loopsRefused": self.guard.refused,
            "unconfirmedFrames": len(self.receipts),
        }

    def _session_ending(self, known: Known, now: Instant) -> None:
        """Nobody comes back to the questions of a session that has ended."""
        self.asking.asker_left(known.id)
