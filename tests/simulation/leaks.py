"""Look whether a broker holds more for people who have left than the next one that reads the same disk.

So what is in memory is what is on disk, once nothing is under way: nothing was forgotten and nothing left behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from intercom.core.deadlines import Deadlines
from tests.simulation.process import Process

_DEPTH = 7
_OF_ONE_LIFE = (
    "_retired_addresses",
    "_capabilities._held",
    "_capabilities._known",
    "_crossings._known",
    "decisions._by_message",
)
"""Names of what a broker remembers while it lives, within bounds, and never writes down."""


def holdings(process: Process) -> dict[str, int]:
    """Return how much every container of the broker's parts holds, by its path."""
    seen: set[int] = set()
    return held_by(process.broker, "broker", seen) | held_by(process.performer, "performer", seen)


def held_by(thing: Any, path: str, seen: set[int] | None = None) -> dict[str, int]:
    """Return how much every container of one thing holds; what is in ``seen`` is counted elsewhere."""
    return dict(_containers(thing, path, set() if seen is None else seen))


def differences(before: dict[str, int], after: dict[str, int]) -> list[str]:
    """Return which containers of a broker held something else than those of the next one."""
    paths = sorted(before.keys() | after.keys())
    return [
        f"{path} held {before.get(path, 0)}, then {after.get(path, 0)}"
        for path in paths
        if before.get(path, 0) != after.get(path, 0) and not path.endswith(_OF_ONE_LIFE)
    ]


def _containers(thing: Any, path: str, seen: set[int], depth: int = 0) -> Iterator[tuple[str, int]]:
    if id(thing) in seen or depth > _DEPTH:
        return
    seen.add(id(thing))
    if isinstance(thing, Deadlines):  # one that was taken back stays in its heap for a while
        yield path, len(thing)
        return
    for name, value in _members(thing):
        where = f"{path}.{name}"
        if isinstance(value, dict | list | set | deque):
            if id(value) not in seen:
                seen.add(id(value))
                yield where, len(value)
        elif type(value).__module__.startswith("intercom."):
            yield from _containers(value, where, seen, depth + 1)


def _members(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, Struct):
        return
    names: list[str] = [*getattr(thing, "__dict__", {})]
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    for name in sorted(set(names)):
        value = getattr(thing, name, None)
        if value is not None and not callable(value):
            yield name, value
