"""Say what a session is doing: the last begun of what is still under way, else that it is idle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count

from intercom.client.composing import clean_text
from intercom.errors import UsageError

BUSY = "busy"
IDLE = "idle"


class Activity:
    """Hold what is under way; ``tell`` announces a status without waiting for anybody."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """Begin with nothing under way, and say nothing of it: a session need not be one that works."""
        self._tell = tell
        self._under_way: dict[int, str] = {}
        self._numbers = count()

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        """Be busy for the length of a ``with`` block; blocks may lie in one another, and overlap."""
        said = clean_text(what, "what")
        number = next(self._numbers)
        self._under_way[number] = f"{BUSY}: {said}" if said else BUSY
        try:
            self._tell(self._status)
            yield
        finally:
            before = self._status
            del self._under_way[number]
            # A forked child that leaves the block has nothing to say.
            with suppress(UsageError):
                if self._status != before:
                    self._tell(self._status)

    @property
    def _status(self) -> str:
        return list(self._under_way.values())[-1] if self._under_way else IDLE
