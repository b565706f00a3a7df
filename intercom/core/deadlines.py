"""Keep what is due when: one heap of absolute monotonic times."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import takewhile
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


class Timeouts:
    """Call for everything that has waited too long, where all wait for the same time: one deadline serves them all.

    Args:
        deadlines: where that one is set.
        wait_ms: how long each waits, in ms.
        action: is called with what has waited so long, the longest first.
    """

    def __init__(self, deadlines: Deadlines, wait_ms: int, action: Callable[[Any, Instant], None]) -> None:
        self._deadlines = deadlines
        self._wait_ms = wait_ms
        self._action = action
        self._waiting: dict[Any, int] = {}
        """When each is due, monotonic ms, the earliest first."""
        self._look: Deadline | None = None

    def add(self, subject: Any, now: Instant) -> None:
        """Let something wait from now on; it is told from others by what it is, and waits once."""
        self._waiting[subject] = due = now.mono + self._wait_ms
        if self._look is None:
            self._look = self._deadlines.add(due, self._look_again)

    def cancel(self, subject: Any) -> None:
        """Let something wait no more; what does not wait is fine."""
        self._waiting.pop(subject, None)

    def _look_again(self, _: None, now: Instant) -> None:
        self._look = None
        overdue = list(takewhile(lambda subject: self._waiting[subject] <= now.mono, self._waiting))
        for subject in overdue:
            # What is called before may have let it wait anew, or no more.
            if self._waiting.get(subject, now.mono + 1) <= now.mono:
                del self._waiting[subject]
                self._action(subject, now)
        if self._waiting and self._look is None:
            self._look = self._deadlines.add(next(iter(self._waiting.values())), self._look_again)
