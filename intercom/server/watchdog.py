"""End a process whose event loop stands still, so that clients can start a new one (protocol 3.7).

A thread ticks. A tick that comes late proves that the whole process was stopped or suspended and is not counted
against the loop; neither is the time the machine sleeps.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from threading import Event, Thread
from time import monotonic

from intercom.limits import WATCHDOG_LATE_MS, WATCHDOG_TICK_MS, WATCHDOG_TICKS


class Watchdog:
    """Count the ticks since the last sign of the event loop.

    Args:
        on_stall: called once, in the watchdog's thread, with the stacks of all threads; it should end the process.
        clock: monotonic seconds.
    """

    def __init__(self, on_stall: Callable[[list[str]], None], clock: Callable[[], float] = monotonic) -> None:
        self._on_stall = on_stall
        self._clock = clock
        self._stopped = Event()
        self._thread: Thread | None = None
        self._ticks = 0
        self._last = 0.0

    def start(self) -> None:
        """Begin to tick."""
        self._last = self._clock()
        self._thread = Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Tick no more."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def sign(self) -> None:
        """Say that the event loop turns."""
        self._ticks = 0

    def tick(self) -> bool:
        """Count one tick if it came in time; return whether the loop has stood still for too many."""
        now = self._clock()
        in_time = now - self._last <= (WATCHDOG_TICK_MS + WATCHDOG_LATE_MS) / 1000
        self._last = now
        if in_time:
            self._ticks += 1
        return self._ticks >= WATCHDOG_TICKS

    def _run(self) -> None:
        while not self._stopped.wait(WATCHDOG_TICK_MS / 1000):
            if self.tick():
                self._on_stall(stacks())
                return


def stacks() -> list[str]:
    """Return the call stack of every thread as text, one entry a thread."""
    return ["".join(traceback.format_stack(frame)) for frame in sys._current_frames().values()]
