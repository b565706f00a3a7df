"""Wake the event loop at the next of all deadlines with one timer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle


class Alarm:
    """Call ``ring`` when the time that was set last has come, or somewhat earlier, never later.

    A timer that is armed for an earlier time than needed stays: deadlines are moved back with every message, and one
    idle wake-up costs less than moving the timer each time. Who is rung sets the alarm again.
    """

    def __init__(self, loop: AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._timer: TimerHandle | None = None
        self._due = 0

    def set(self, due: int | None) -> None:
        """Ring at ``due`` (monotonic ms) at the latest; None asks for nothing."""
        if due is None or (self._timer is not None and self._due <= due):
            return
        self.cancel()
        self._due = due
        # One more millisecond: the clock that is asked then counts whole ones.
        self._timer = self._loop.call_at((due + 1) / 1000, self._go_off)

    def cancel(self) -> None:
        """Ring no more until it is set again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _go_off(self) -> None:
        self._timer = None
        self._ring()
