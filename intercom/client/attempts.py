"""Make one attempt at a time to get something, and let what comes of an earlier one do no harm (FE 4.3).

    idle --begin--> trying --won--> held --let_go--> idle
     ^                 |
     +-- failed, cancel, its time is up

Rule 1: an attempt has one outcome. Rule 2: what an attempt brings that is over, or whose time is up, is retired at
once: nothing of it is used, no error of it is told, nor one of retiring it. Rule 3: nothing is retired twice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from enum import Enum
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class _Stage(Enum):
    IDLE = "idle"
    TRYING = "trying"
    HELD = "held"


class Attempts(Generic[Thing]):
    """Hold the attempt that counts, and what it brought; times are monotonic milliseconds.

    Args:
        retire: gives back a thing that is not used, or no more.
    """

    def __init__(self, retire: Callable[[Thing], None] = lambda thing: None) -> None:
        self._retire = retire
        self._stage = _Stage.IDLE
        self._key: Hashable = None
        self._due = 0
        self._thing: Thing | None = None

    @property
    def is_trying(self) -> bool:
        """Tell whether an attempt is under way."""
        return self._stage is _Stage.TRYING

    @property
    def is_held(self) -> bool:
        """Tell whether the last attempt brought something that is still held."""
        return self._stage is _Stage.HELD

    @property
    def thing(self) -> Thing | None:
        """Return what is held."""
        return self._thing

    @property
    def due(self) -> int | None:
        """Return when the time of the attempt under way is up."""
        return self._due if self._stage is _Stage.TRYING else None

    def begin(self, key: Hashable, now: int, within_ms: int) -> None:
        """Begin an attempt that ``key``, which no other one had, tells from others; it may take ``within_ms``.

        Raises ``RuntimeError`` while another attempt is under way or something is held, and changes nothing then.
        """
        if self._stage is not _Stage.IDLE:
            raise RuntimeError(f"an attempt was begun while the last one is {self._stage.value}")
        self._stage, self._key, self._due = _Stage.TRYING, key, now + within_ms

    def won(self, key: Hashable, thing: Thing, now: int) -> bool:
        """Take what an attempt brought; False when it came too late, and was retired."""
        if self.counts(key) and not self.is_late(now):
            self._stage, self._thing = _Stage.HELD, thing
            return True
        self._give_back(thing)
        return False

    def failed(self, key: Hashable) -> bool:
        """Take notice that an attempt failed; False when nobody waits for it any more, so nobody is to be told."""
        return self.counts(key) and self.cancel()

    def is_late(self, now: int) -> bool:
        """Tell, once, that the time of the attempt under way is up; it is over then."""
        return self._stage is _Stage.TRYING and now >= self._due and self.cancel()

    def cancel(self) -> bool:
        """End the attempt under way; tell whether there was one."""
        was_trying = self._stage is _Stage.TRYING
        if was_trying:
            self._stage = _Stage.IDLE
        return was_trying

    def let_go(self) -> bool:
        """Retire what is held; tell whether something was."""
        if self._stage is not _Stage.HELD:
            return False
        thing, self._thing = self._thing, None
        self._stage = _Stage.IDLE
        assert thing is not None, "what is held is something"
        self._give_back(thing)
        return True

    def counts(self, key: Hashable) -> bool:
        """Tell whether the attempt with this key is the one under way."""
        return self._stage is _Stage.TRYING and self._key == key

    def _give_back(self, thing: Thing) -> None:
        with suppress(OSError):
            self._retire(thing)
