"""Find out whether the process behind a lost connection lives, and when it ends (design section 7, A1.4)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from intercom.limits import PROCESS_EXIT_MS

_Process: TypeAlias = tuple[int, int | None]
"""Its number, and when it started in kernel ticks where that is known."""


class Processes:
    """Watch processes by descriptors of the kernel, which never mean another process.

    A process has one descriptor however many sessions it had: else one program could use up all that the broker may
    have.

    Args:
        loop: tells when a process ends.
        on_judged: called with the reference and whether the process lives: once when it is judged, and again when it
            ends later.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_judged: Callable[[str, bool], None]) -> None:
        self._loop = loop
        self._on_judged = on_judged
        self._descriptors: dict[_Process, int] = {}
        self._refs: dict[_Process, dict[str, None]] = {}
        """Who wants to be told of the end of each process that has a descriptor."""
        self._processes: dict[str, _Process] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def watch(self, ref: str, pid: int, started: int | None) -> None:
        """Judge the process with this number that started at this time (kernel ticks), and tell of its end."""
        self.forget(ref)
        process = (pid, started)
        if process not in self._descriptors:
            descriptor = _open(pid)
            if not _is_same(pid, started):
                if descriptor is not None:
                    os.close(descriptor)
                self._timers[ref] = self._loop.call_later(0, self._judge, ref, False)
                return
            if descriptor is not None:
                try:
                    self._loop.add_reader(descriptor, self._ended, process)
                except OSError:  # the kernel has a limit for what one user may watch
                    os.close(descriptor)
                else:
                    self._descriptors[process], self._refs[process] = descriptor, {}
        if process in self._refs:
            self._refs[process][ref] = None
            self._processes[ref] = process
        self._timers[ref] = self._loop.call_later(PROCESS_EXIT_MS / 1000, self._look, ref, pid, started)

    def forget(self, ref: str) -> None:
        """Watch this process no longer; one that is not watched is fine."""
        timer = self._timers.pop(ref, None)
        if timer is not None:
            timer.cancel()
        process = self._processes.pop(ref, None)
        if process is not None:
            refs = self._refs[process]
            del refs[ref]
            if not refs:
                self._close(process)

    def close(self) -> None:
        """Watch nothing any more."""
        for ref in [*self._processes, *self._timers]:
            self.forget(ref)

    def _close(self, process: _Process) -> None:
        del self._refs[process]
        descriptor = self._descriptors.pop(process)
        self._loop.remove_reader(descriptor)
        os.close(descriptor)

    def _ended(self, process: _Process) -> None:
        refs = list(self._refs[process])
        for ref in refs:
            self.forget(ref)
        for ref in refs:
            self._on_judged(ref, False)

    def _look(self, ref: str, pid: int, started: int | None) -> None:
        self._judge(ref, _is_same(pid, started))

    def _judge(self, ref: str, is_alive: bool) -> None:
        self._timers.pop(ref, None)
        if not is_alive:
            self.forget(ref)
        self._on_judged(ref, is_alive)


def start_of(pid: int) -> int | None:
    """Return when a process started, in ticks since boot; None when the kernel does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def _open(pid: int) -> int | None:
    if sys.platform.startswith("linux"):
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None


def _is_same(pid: int, started: int | None) -> bool:
    """Tell whether the process lives and is the one that started then."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it lives and is somebody else's
    if started is None:
        return True
    now = start_of(pid)
    return now is None or now == started
