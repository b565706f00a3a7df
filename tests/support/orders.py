"""Put events into every order that can be, so that no case is left to luck."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

Event = TypeVar("Event")


def interleavings(*sources: Sequence[Event]) -> Iterator[tuple[Event, ...]]:
    """Yield every order of all events in which those of one source stay in theirs."""
    waiting = [source for source in sources if source]
    if not waiting:
        yield ()
    for place, source in enumerate(waiting):
        rest = (*waiting[:place], source[1:], *waiting[place + 1 :])
        for order in interleavings(*rest):
            yield (source[0], *order)
