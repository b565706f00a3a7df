"""Remember the ids a model need not know whole: of what it speaks of, and of what it may have sent already.

Whether a message arrived can be unknown: the broker was silent, or the host cancelled the call. When a tool is called
again with the same arguments soon after, that is the same message, which cannot arrive twice (protocol 6.9).
"""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

import anyio

from intercom.errors import IntercomError
from intercom.limits import KNOWN_MESSAGES, RETRY_IDENTITY_MS, TOOL_REPEATS


class Known:
    """Hold the ids of the newest messages a model knows of."""

    def __init__(self) -> None:
        """Begin with none."""
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def add(self, message_id: str) -> None:
        """Note one more; the oldest is forgotten for it."""
        self._ids[message_id] = None
        self._ids.move_to_end(message_id)
        if len(self._ids) > KNOWN_MESSAGES:
            self._ids.popitem(last=False)


class Repeats:
    """Hold the ids of messages whose outcome is not known, by what was to be sent."""

    def __init__(self) -> None:
        """Begin with none."""
        self._ids: OrderedDict[Hashable, tuple[str, float]] = OrderedDict()

    def take(self, what: Hashable) -> str:
        """Return the id under which to send it: the one of an attempt whose outcome is not known, else a new one."""
        known = self._ids.pop(what, None)
        return known[0] if known is not None and time.monotonic() < known[1] else str(uuid.uuid4())

    def holds(self, what: Hashable) -> bool:
        """Tell whether an attempt of this is remembered whose outcome is not known."""
        known = self._ids.get(what)
        return known is not None and time.monotonic() < known[1]

    def keep(self, what: Hashable, message_id: str) -> None:
        """Take notice that it may have arrived under this id."""
        self._ids[what] = (message_id, time.monotonic() + RETRY_IDENTITY_MS / 1000)
        if len(self._ids) > TOOL_REPEATS:
            self._ids.popitem(last=False)

    @contextmanager
    def attempt(self, what: Hashable) -> Iterator[str]:
        """Give the id for one attempt, and keep it if the block does not learn what became of it."""
        message_id = self.take(what)
        try:
            yield message_id
        except IntercomError as error:
            if error.retry == "same_id":
                self.keep(what, message_id)
            raise
        except anyio.get_cancelled_exc_class():
            self.keep(what, message_id)
            raise
