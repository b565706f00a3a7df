"""Be the command ``intercom``, and note how long its event loop looked at nobody: the longest turn since it was asked.

A turn lasts from the end of one wait for input to the beginning of the next. The longest one by the clock, and the one
that took most processor time, are kept in the file that the environment variable names, as nanoseconds in eight bytes
each; who reads them writes zeros to begin anew.
"""

from __future__ import annotations

import mmap
import os
import selectors
import struct
from pathlib import Path
from time import perf_counter_ns, thread_time_ns
from typing import Any, NamedTuple

VARIABLE = "BENCH_TURNS"
NUMBERS = struct.Struct("=QQ")


class Turn(NamedTuple):
    """Say how long a turn took, by the clock and of the processor's time, in ms."""

    wall_ms: float
    busy_ms: float


class Turns:
    """Hold the file between a broker and who watches it."""

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            file.truncate(NUMBERS.size)
            self._shared = mmap.mmap(file.fileno(), NUMBERS.size)

    def note(self, wall_ns: int, busy_ns: int) -> None:
        """Keep what is longer than what is kept."""
        longest, busiest = NUMBERS.unpack_from(self._shared)
        if wall_ns > longest or busy_ns > busiest:
            NUMBERS.pack_into(self._shared, 0, max(wall_ns, longest), max(busy_ns, busiest))

    def take(self) -> Turn:
        """Return what was longest since the last call."""
        longest, busiest = NUMBERS.unpack_from(self._shared)
        NUMBERS.pack_into(self._shared, 0, 0, 0)
        return Turn(longest / 1e6, busiest / 1e6)


class WatchedSelector(selectors.EpollSelector):
    """Wait for input, and note the time between two waits."""

    def __init__(self) -> None:
        super().__init__()
        self._turns = Turns(Path(os.environ[VARIABLE]))
        self._began: tuple[int, int] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        """Wait as the selector does."""
        if self._began is not None:
            wall, busy = self._began
            self._turns.note(perf_counter_ns() - wall, thread_time_ns() - busy)
        ready = super().select(timeout)
        self._began = perf_counter_ns(), thread_time_ns()
        return ready


if __name__ == "__main__":
    from intercom.__main__ import run

    selectors.DefaultSelector = WatchedSelector  # type: ignore[assignment, misc]
    run()
