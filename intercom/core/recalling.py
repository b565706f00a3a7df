"""Bring back, page by page, the operations that were left on disk at the start (design section 5).

They are settled: they only serve to know a message that is sent again. Until all are here nothing may be looked up
among them, so whoever sends waits, and only who sends; everybody else is served from the start on.
"""

from __future__ import annotations

from intercom.core.clock import Instant
from intercom.core.operations import Operations
from intercom.core.outbox import Outbox
from intercom.core.records import OperationsPage, ReadOperations
from intercom.limits import RECALL_ROWS, Limits


class Recalling:
    """Ask for one page after the other; ``operations`` is where they are entered."""

    def __init__(self, operations: Operations, outbox: Outbox, limits: Limits) -> None:
        self._operations = operations
        self._outbox = outbox
        self._ttl_ms = limits.operation_ttl_ms
        self._until = 0
        self.is_going_on = False

    def begin(self, until: int, now: Instant) -> None:
        """Bring back all rows up to the number ``until``; 0: there are none."""
        self._until = until
        self.is_going_on = until > 0
        if self.is_going_on:
            self._ask(0, now)

    def stop(self) -> None:
        """Ask for no more: they cannot be read."""
        self.is_going_on = False

    def read(self, page: OperationsPage, now: Instant) -> None:
        """Enter a page and ask for the next."""
        self._operations.recall(page, now)
        self.is_going_on = page.last < self._until
        if self.is_going_on:
            self._ask(page.last, now)

    def _ask(self, after: int, now: Instant) -> None:
        self._outbox.add(ReadOperations(after, self._until, RECALL_ROWS, now.wall, self._ttl_ms))
