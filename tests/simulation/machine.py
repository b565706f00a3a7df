"""Be the machine a broker runs on: its clocks, its event loop turned by hand, and the moments at which it dies."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from intercom.core.clock import Instant

_FIRST = Instant(mono=1_000_000, wall=1_700_000_000_000)


class Killed(BaseException):
    """Say that the broker's process is gone in the middle of what it did; nothing of it may catch this."""


class Clock:
    """Hold the time of one world on both clocks."""

    def __init__(self) -> None:
        self.now = _FIRST

    def __call__(self) -> Instant:
        return self.now

    def advance(self, milliseconds: int) -> None:
        """Let time pass on both clocks."""
        self.now = Instant(self.now.mono + milliseconds, self.now.wall + milliseconds)

    def set_wall(self, milliseconds: int) -> None:
        """Move the time of day alone, forwards or back."""
        self.now = Instant(self.now.mono, self.now.wall + milliseconds)

    def ids(self, chance: random.Random) -> Callable[[], str]:
        """Return what gives UUIDs that come out of one chance, and differ in their first eight digits."""
        return lambda: "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}".format(
            *(chance.getrandbits(bits) for bits in (32, 16, 12, 12, 48))
        )


@dataclass(eq=False)
class Timer:
    """Hold one call that is due later."""

    due: float
    call: Callable[[], object] | None

    def cancel(self) -> None:
        """Call it never."""
        self.call = None


@dataclass(eq=False)
class Loop:
    """Stand where the event loop of a broker's process is; the world decides what happens next.

    Only what the broker's links and its performer ask of a loop is here.
    """

    clock: Clock
    readers: dict[Any, Callable[[], object]] = field(default_factory=dict)
    writers: dict[Any, Callable[[], object]] = field(default_factory=dict)
    soon: list[Callable[[], object]] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)

    def add_reader(self, sock: Any, call: Callable[[], object]) -> None:
        """Call whenever the socket can be read."""
        self.readers[sock] = call

    def remove_reader(self, sock: Any) -> None:
        """Do not call any more."""
        self.readers.pop(sock, None)

    def add_writer(self, sock: Any, call: Callable[[], object]) -> None:
        """Call whenever the socket takes something."""
        self.writers[sock] = call

    def remove_writer(self, sock: Any) -> None:
        """Do not call any more."""
        self.writers.pop(sock, None)

    def call_later(self, seconds: float, call: Callable[..., object], *arguments: Any) -> Timer:
        """Call once after a time."""
        timer = Timer(self.clock.now.mono + seconds * 1000, lambda: call(*arguments))
        self.timers.append(timer)
        return timer

    def due(self) -> list[Timer]:
        """Return the timers whose time has come."""
        self.timers = [timer for timer in self.timers if timer.call is not None]
        return [timer for timer in self.timers if timer.due <= self.clock.now.mono]

    def next_due(self) -> int | None:
        """Return when the next timer is due, in monotonic milliseconds."""
        return min((int(timer.due) for timer in self.timers if timer.call is not None), default=None)

    def run(self, timer: Timer) -> None:
        """Do what a timer is for."""
        self.timers.remove(timer)
        if timer.call is not None:
            timer.call()


class Doom:
    """Count what a broker's process does that others can see, and end it at a moment chosen before."""

    def __init__(self) -> None:
        self._left: int | None = None
        self.points = 0

    def set(self, points: int) -> None:
        """Let the process die at the next point but this many."""
        self._left = points

    @property
    def is_set(self) -> bool:
        """Tell whether the process is about to die."""
        return self._left is not None

    def point(self) -> None:
        """Raise ``Killed`` when the moment has come."""
        self.points += 1
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise Killed
