"""End a process whose event loop stands still, so that clients can start a new one (protocol 3.7).

A thread ticks. A tick that comes late proves that the whole process was stopped or suspended and is not counted
against the loop; neither is the time the machine sleeps. A process that others leave little of the processor comes
forward slowly and is not ended for it: while it computes, or would if it were let, a tick counts for what it could
compute in it. Nor is one that gets something done, however long a turn of its loop takes.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from threading import Event, Thread, get_native_id
from time import monotonic, process_time

from intercom.limits import WATCHDOG_BLOCKED_MS, WATCHDOG_LATE_MS, WATCHDOG_TICK_MS, WATCHDOG_TICKS


class Watchdog:
    """Count the ticks since the last sign of the event loop.

    Args:
        on_stall: called once, in the watchdog's thread, with the stacks of all threads; it should end the process.
        clock: monotonic seconds.
        computed: seconds of the processor that the process has used.
        is_runnable: whether a thread, given by the kernel's number of it, computes or waits for a processor.
        progress: what is another thing whenever the loop has got something done, read in the watchdog's thread. A turn
            of the loop may have a thousand connections to serve: it is long then, and no stall.
    """

    def __init__(
        self,
        on_stall: Callable[[list[str]], None],
        clock: Callable[[], float] = monotonic,
        computed: Callable[[], float] = process_time,
        is_runnable: Callable[[int], bool] | None = None,
        progress: Callable[[], object] = lambda: None,
    ) -> None:
        self._on_stall = on_stall
        self._clock = clock
        self._computed = computed
        self._is_runnable = is_runnable or runnable
        self._progress = progress
        self._done = progress()
        self._loops_thread = 0
        self._stopped = Event()
        self._thread: Thread | None = None
        self._ticks = 0.0
        self._last = self._used = 0.0

    def start(self) -> None:
        """Begin to tick; called by the thread of the loop."""
        self._loops_thread = get_native_id()
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
        now, used, done = self._clock(), self._computed(), self._progress()
        if done != self._done:
            self._done = done
            self.sign()
        spent_ms = (used - self._used) * 1000
        in_time = now - self._last <= (WATCHDOG_TICK_MS + WATCHDOG_LATE_MS) / 1000
        self._last, self._used = now, used
        if in_time:
            # What waits for something else than the processor uses none, and will not come forward by itself.
            is_blocked = spent_ms < WATCHDOG_BLOCKED_MS and not self._is_runnable(self._loops_thread)
            self._ticks += 1 if is_blocked else min(1, spent_ms / WATCHDOG_TICK_MS)
        return self._ticks >= WATCHDOG_TICKS

    def _run(self) -> None:
        while not self._stopped.wait(WATCHDOG_TICK_MS / 1000):
            if self.tick():
                self._on_stall(stacks())
                return


def runnable(thread: int) -> bool:
    """Tell whether a thread of this process computes or waits for a processor, where the kernel says so (Linux)."""
    try:
        with open(f"/proc/self/task/{thread}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"R"
    except OSError:
        return False


def stacks() -> list[str]:
    """Return the call stack of every thread as text, one entry a thread."""
    return ["".join(traceback.format_stack(frame)) for frame in sys._current_frames().values()]
