"""Keep what is due when: one heap of absolute monotonic times."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from msgspec import Struct

from intercom.core.clock import Instant


class Deadline(Struct, eq=False):
    """Name one thing that is due; ``action`` is called with ``subject`` unless it was cancelled before."""

    due: int
    action: Any
    """``Callable[[Any, Instant], None]``; None once it was cancelled."""
    subject: Any


class Deadlines:
    """Order deadlines by time, and those of one time by when they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Deadline]] = []
        """By time and by when it was set; the second is never the same twice."""
        self._set = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def add(self, due: int, action: Callable[[Any, Instant], None], subject: Any = None) -> Deadline:
        """Set ``action`` to be called at ``due`` (monotonic ms) and return a handle for ``cancel``."""
        self._set += 1
        deadline = Deadline(due, action, subject)
        heappush(self._heap, (due, self._set, deadline))
        return deadline

    def cancel(self, deadline: Deadline | None) -> None:
        """Take a deadline back; one that passed, was cancelled before or is None is fine."""
        if deadline is None or deadline.action is None:
            return
        deadline.action = deadline.subject = None
        self._cancelled += 1
        if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].action is not None]
            heapify(self._heap)
            self._cancelled = 0

    def next_due(self) -> int | None:
        """Return the earliest time (monotonic ms), or None when nothing is due ever."""
        heap = self._heap
        while heap and heap[0][2].action is None:
            heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else None

    def run(self, now: Instant) -> None:
        """Call everything that is due, the earliest first."""
        while (due := self.next_due()) is not None and due <= now.mono:
            _, _, deadline = heappop(self._heap)
            action, subject = deadline.action, deadline.subject
            deadline.action = deadline.subject = None
            assert action is not None
            action(subject, now)
