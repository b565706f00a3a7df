"""Decide when a broker that nobody needs may leave (protocol 3.5 and 3.6).

Pure: times come in as monotonic milliseconds, and who asks ``next_check`` sleeps until then.
"""

from __future__ import annotations

from collections.abc import Callable

from intercom.limits import FIRST_VISIT_MS, IDLE_MS, IDLE_RECHECK_MS, UNCLASSIFIED_PROTECTS_MS


class IdleCheck:
    """Keep the account of connections that keep the broker alive, and the one idle check.

    Args:
        now: when listening began; the first check is armed then, and not sooner than whoever started it can come.
        idle_ms: how long after the last activity a broker without a session leaves; None when it never does.
    """

    def __init__(self, now: int, idle_ms: int | None = IDLE_MS) -> None:
        self._idle_ms = idle_ms
        self._check: int | None = None if idle_ms is None else now + max(idle_ms, FIRST_VISIT_MS)
        self._unclassified: dict[int, int] = {}

    @property
    def next_check(self) -> int | None:
        """Return when ``is_over`` must be asked, or None while no check is armed."""
        return self._check

    def opened(self, number: int, now: int) -> None:
        """Note a new connection; it has not said what it is."""
        self._unclassified[number] = now

    def first_frame(self, number: int, *, is_health: bool, now: int) -> None:
        """Classify a connection; anything but a health probe is activity."""
        if self._unclassified.pop(number, None) is not None and not is_health:
            self._record_activity(now)

    def ended(self, number: int, now: int) -> None:
        """Note the end of a connection, whatever it was; one that never said a word was activity."""
        if self._unclassified.pop(number, None) is not None:
            self._record_activity(now)
        self.arm(now)

    def registered(self) -> None:
        """Cancel the check: somebody is here."""
        self._check = None

    def arm(self, now: int) -> None:
        """Arm the check; one that is armed stays as it is."""
        if self._check is None and self._idle_ms is not None:
            self._check = now + self._idle_ms

    def is_over(self, now: int, sessions: int, awaited: Callable[[], int] = lambda: 0) -> bool:
        """Tell whether the broker may leave.

        ``sessions`` counts every registered session, ``awaited`` those that lost their connection and may come back,
        and what goes on by itself: only asked when nobody is here.
        False when the check is not due, when somebody is here, and while a young connection has not said what it is.
        """
        if self._check is None or now < self._check:
            return False
        if sessions:
            self._check = None
            return False
        if awaited():
            self._check = now + (self._idle_ms or 0)
            return False
        youngest = max(self._unclassified.values(), default=None)
        if youngest is not None and now - youngest < UNCLASSIFIED_PROTECTS_MS:
            self._check = now + IDLE_RECHECK_MS
            return False
        return True

    def _record_activity(self, now: int) -> None:
        if self._check is not None and self._idle_ms is not None:
            self._check = max(self._check, now + self._idle_ms)
