"""End a process whose event loop stands still, so that clients can start a new one (protocol 3.7).

A thread ticks. A tick that comes late proves that the whole process was stopped or suspended and is not counted
against the loop; neither is the time the machine sleeps. A process that others leave little of the processor comes
forward slowly and is not ended for it: while it computes, a tick counts for what it could compute in it.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from threading import Event, Thread
from time import monotonic, process_time

from intercom.limits import WATCHDOG_BLOCKED_MS, WATCHDOG_LATE_MS, WATCHDOG_TICK_MS, WATCHDOG_TICKS


class Watchdog:
    """Count the ticks since the last sign of the event loop.

    Args:
        on_stall: called once, in the watchdog's thread, with the stacks of all threads; it should end the process.
        clock: monotonic seconds.
        computed: seconds of the processor that the process has used.
    """

    def __init__(
        self,
        on_stall: Callable[[list[str]], None],
        clock: Callable[[], float] = monotonic,
        computed: Callable[[], float] = process_time,
    ) -> None:
        self._on_stall = on_stall
        self._clock = clock
        self._computed = computed
        self._stopped = Event()
        self._thread: Thread | None = None
        self._ticks = 0.0
        self._last = self._used = 0.0

    def start(self) -> None:
        """Begin to tick."""
        self._last, self._used = self._clock(), self._computed()
        self._thread = Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Tick no more."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def sign(self) -> None:
        """Say that the event loop turns."""
        self._ticks = 0.0

    def tick(self) -> bool:
        """Count one tick if it came in time; return whether the loop has stood still for too many."""
        now, used = self._clock(), self._computed()
        spent_ms = (used - self._used) * 1000
        in_time = now - self._last <= (WATCHDOG_TICK_MS + WATCHDOG_LATE_MS) / 1000
        self._last, self._used = now, used
        if in_time:
            # What waits for something else than the processor uses none, and will not come forward by itself.
            self._ticks += 1 if spent_ms < WATCHDOG_BLOCKED_MS else min(1, spent_ms / WATCHDOG_TICK_MS)
        return self._ticks >= WATCHDOG_TICKS

    def _run(self) -> None:
        while not self._stopped.wait(WATCHDOG_TICK_MS / 1000):
            if self.tick():
                self._on_stall(stacks())
                return


def stacks() -> list[str]:
    """Return the call stack of every thread as text, one entry a thread."""
    return ["".join(traceback.format_stack(frame)) for frame in sys._current_frames().values()]
