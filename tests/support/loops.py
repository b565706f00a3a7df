"""Turn an event loop by hand: real descriptors, a clock that only moves when it is told to."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Any

BOUND_S = 5.0


class HandTimer:
    """Stand for one timer; ``cancelled`` tells whether it was taken back."""

    def __init__(self, due: float, callback: Callable[[], object]) -> None:
        self.due = due
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class HandLoop:
    """Offer the part of an asyncio event loop the server uses; nothing runs unless a test says so."""

    def __init__(self) -> None:
        self.readers: dict[int, Callable[[], object]] = {}
        self.writers: dict[int, Callable[[], object]] = {}
        self.soon: list[Callable[[], object]] = []
        self._timers: list[HandTimer] = []
        self._now = 1_000.0

    @property
    def timers(self) -> list[HandTimer]:
        """Return the timers that will still go off."""
        return [timer for timer in self._timers if not timer.cancelled]

    def time(self) -> float:
        return self._now

    def add_reader(self, descriptor: Any, callback: Callable[[], object]) -> None:
        self.readers[_number(descriptor)] = callback

    def remove_reader(self, descriptor: Any) -> bool:
        return self.readers.pop(_number(descriptor), None) is not None

    def add_writer(self, descriptor: Any, callback: Callable[[], object]) -> None:
        self.writers[_number(descriptor)] = callback

    def remove_writer(self, descriptor: Any) -> bool:
        return self.writers.pop(_number(descriptor), None) is not None

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def call_later(self, delay: float, callback: Callable[[], object]) -> HandTimer:
        return self.call_at(self._now + delay, callback)

    def call_at(self, due: float, callback: Callable[[], object]) -> HandTimer:
        timer = HandTimer(due, callback)
        self._timers.append(timer)
        return timer

    def poll(self) -> bool:
        """Call what is ready now, readers first; return whether anything was."""
        readable, writable, _ = select.select(list(self.readers), list(self.writers), [], 0)
        callbacks = [(self.readers, fd) for fd in readable] + [(self.writers, fd) for fd in writable]
        for table, descriptor in callbacks:
            if descriptor in table:
                table[descriptor]()
        return bool(callbacks)

    def turn(self) -> bool:
        """Poll and call what was asked for soon; return whether there was anything to do."""
        polled = self.poll()
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()
        return polled or bool(soon)

    def settle(self) -> None:
        """Turn until nothing is left to do."""
        for _ in range(10_000):
            if not self.turn():
                return
        raise AssertionError("the loop does not come to rest")

    def advance(self, seconds: float) -> None:
        """Move the clock and let every timer go off that is due, in order."""
        self._now += seconds
        while due := sorted((t for t in self.timers if t.due <= self._now), key=lambda timer: timer.due):
            due[0].cancelled = True
            due[0].callback()


def _number(descriptor: Any) -> int:
    return descriptor if isinstance(descriptor, int) else int(descriptor.fileno())
