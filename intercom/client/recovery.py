"""Decide when a session that lost its connection tries again, and when it says so instead.

There is always exactly one next attempt while a session is open and offline (F8). Pauses before starting a broker
grow; in between the session looks every ``RECONNECT_LOOK_MS`` whether somebody else has started one, because a healthy
broker without its listeners calls them absent (F77). A call of the user makes the attempt due now. After
``RECONNECT_PATIENCE`` failures of a kind that waiting does not cure the callers are told, and until one of them calls
again the session only attaches to a broker that somebody else starts.
"""

from __future__ import annotations

from collections.abc import Callable

from intercom.errors import (
    AccessDenied,
    HomeError,
    IntercomError,
    NoBroker,
    ProtocolViolation,
    RegistrationRefused,
    StartFailed,
    TooLarge,
    UsageError,
)
from intercom.limits import RECONNECT_DELAYS_MS, RECONNECT_LOOK_MS, RECONNECT_PATIENCE, STABLE_MS

HOPELESS = (AccessDenied, HomeError, RegistrationRefused, TooLarge, UsageError)
"""Errors that are told at the first time."""
DOUBTFUL = (StartFailed, ProtocolViolation)
"""Errors that are told when they have come ``RECONNECT_PATIENCE`` times in a row."""


class Recovery:
    """Hold the schedule of reconnect attempts; times are monotonic milliseconds.

    ``chance`` gives numbers from 0 to 1; pauses vary by a quarter so that clients do not come back in step.
    """

    def __init__(self, chance: Callable[[], float]) -> None:
        self._chance = chance
        self._failures = 0
        self._doubtful = 0
        self._at: int | None = 0
        self._start_at = 0
        self._is_look = False
        self._registered_at: int | None = None
        self._may_start = True

    @property
    def at(self) -> int | None:
        """Return when the next attempt is due, or ``None`` while one is under way or the session is online."""
        return self._at

    @property
    def may_start(self) -> bool:
        """Tell whether the attempt that is due or under way may start a broker."""
        return self._may_start and not self._is_look and (self._at is None or self._at >= self._start_at)

    @property
    def is_look(self) -> bool:
        """Tell whether the attempt under way only looks for a broker; one that may start a broker follows."""
        return self._is_look

    def begun(self) -> None:
        """Take notice that an attempt is under way."""
        self._is_look = self._at is not None and self._at < self._start_at
        self._at = None

    def registered(self, now: int) -> None:
        """Take notice that the session is registered."""
        self._at = None
        self._registered_at = now
        self._may_start = True

    def lost(self, now: int, error: IntercomError | None) -> bool:
        """Take notice that a connection or an attempt ended; tell whether the callers should be told."""
        was_look, self._is_look = self._is_look, False
        if was_look and isinstance(error, NoBroker):
            self._at = min(now + RECONNECT_LOOK_MS, self._start_at)
            return False
        if self._registered_at is not None and now - self._registered_at >= STABLE_MS:
            self._failures = self._doubtful = 0
        self._registered_at = None
        pause = 0 if self._failures == 0 and error is None else self._pause()
        self._failures += 1
        self._start_at = now + pause
        self._at = min(now + RECONNECT_LOOK_MS, self._start_at)
        if isinstance(error, HOPELESS):
            self._may_start = False
            return True
        if isinstance(error, DOUBTFUL):
            self._doubtful += 1
            if self._doubtful >= RECONNECT_PATIENCE:
                self._may_start = False
                return True
        return False

    def wait(self, now: int, pause_ms: int) -> None:
        """Plan the next attempt after a pause that says nothing about the broker's health."""
        self._registered_at = None
        self._is_look = False
        self._at = self._start_at = now + pause_ms

    def hurry(self, now: int) -> None:
        """Make the next attempt due now because the user waits for it."""
        self._may_start = True
        self._start_at = min(self._start_at, now)
        if self._at is not None and self._at > now:
            self._at = now

    def _pause(self) -> int:
        place = min(max(self._failures - 1, 0), len(RECONNECT_DELAYS_MS) - 1)
        return int(RECONNECT_DELAYS_MS[place] * (1 - self._chance() / 4))
