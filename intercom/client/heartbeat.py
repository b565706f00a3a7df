"""Find out whether a silent broker is still there, without mistaking a pause of this process for its death.

After ``HEARTBEAT_MS`` without a byte the session asks ``health`` (protocol 4.20). Then it looks ``HEARTBEAT_LOOKS``
times for an answer. A look that comes late is not counted: the process was stopped, suspended or starved meanwhile, and
what the broker answered may still lie unread in the kernel (F106).
"""

from __future__ import annotations

from enum import Enum

from intercom.limits import HEARTBEAT_LATE_MS, HEARTBEAT_LOOK_MS, HEARTBEAT_LOOKS, HEARTBEAT_MS


class Pulse(Enum):
    """Name what is to be done after a look."""

    WAIT = "wait"
    ASK = "ask"
    """Write a ``health`` request."""
    DEAD = "dead"
    """Break the connection: the broker does not answer."""


class Heartbeat:
    """Watch one connection; times are monotonic milliseconds."""

    def __init__(self) -> None:
        self.due: int | None = None
        """When the next look is due, or ``None`` while nothing is watched."""
        self._looks = 0
        """Looks since the question that counted."""
        self._has_asked = False

    def begin(self, now: int) -> None:
        """Watch a connection whose broker understands ``health``."""
        self._has_asked = False
        self._looks = 0
        self.due = now + HEARTBEAT_MS

    def stop(self) -> None:
        """Watch nothing: the connection is gone."""
        self.due = None

    def heard(self, now: int) -> None:
        """Take notice that something came from the broker, whatever it was."""
        if self.due is not None:
            self.begin(now)

    def look(self, now: int, *, is_reading: bool) -> Pulse:
        """Let time pass; ``is_reading`` tells whether an answer would have been read."""
        if self.due is None or now < self.due:
            return Pulse.WAIT
        late = now - self.due
        self.due = now + HEARTBEAT_LOOK_MS
        if not self._has_asked:
            self._has_asked = True
            return Pulse.ASK
        if is_reading and late < HEARTBEAT_LATE_MS:
            self._looks += 1
        return Pulse.DEAD if self._looks >= HEARTBEAT_LOOKS else Pulse.WAIT
