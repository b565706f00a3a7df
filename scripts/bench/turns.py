"""Be the command ``intercom``, and note how long its event loop looked at nobody: the longest turn since it was asked.

A turn lasts from the end of one wait for input to the beginning of the next. The longest is kept in the file that the
environment variable names, as nanoseconds in eight bytes; who reads it writes zeros to begin anew.
"""

from __future__ import annotations

import mmap
import os
import selectors
import struct
from pathlib import Path
from time import perf_counter_ns
from typing import Any

VARIABLE = "BENCH_TURNS"
NUMBER = struct.Struct("=Q")


class Turns:
    """Hold the file between a broker and who watches it."""

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            file.truncate(NUMBER.size)
            self._shared = mmap.mmap(file.fileno(), NUMBER.size)

    def note(self, took_ns: int) -> None:
        """Keep the length of a turn when it is the longest."""
        if took_ns > NUMBER.unpack_from(self._shared)[0]:
            NUMBER.pack_into(self._shared, 0, took_ns)

    def take_ms(self) -> float:
        """Return the longest turn since the last call, in ms."""
        (longest,) = NUMBER.unpack_from(self._shared)
        NUMBER.pack_into(self._shared, 0, 0)
        return float(longest) / 1e6


class WatchedSelector(selectors.EpollSelector):
    """Wait for input, and note the time between two waits."""

    def __init__(self) -> None:
        super().__init__()
        self._turns = Turns(Path(os.environ[VARIABLE]))
        self._began: int | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        """Wait as the selector does."""
        if self._began is not None:
            self._turns.note(perf_counter_ns() - self._began)
        ready = super().select(timeout)
        self._began = perf_counter_ns()
        return ready


if __name__ == "__main__":
    from intercom.__main__ import run

    selectors.DefaultSelector = WatchedSelector  # type: ignore[assignment, misc]
    run()
