"""Cut an envelope that is longer than the engine takes, and put it together again.

A part says nothing by itself: only the whole is opened, and believed if its mac is right.
"""

from __future__ import annotations

from collections import OrderedDict

from msgspec import Struct

from intercom.limits import CLUSTER_PART_BYTES, CLUSTER_PARTS

HEADER = "Intercom-Part"
"""Holds the number of a part, how many there are, and what they are parts of."""


class Odd(Exception):
    """Say that something is no part of anything."""


class Whole(Struct, frozen=True):
    """Hold what was put together, with what each of its parts came with."""

    data: bytes
    came_with: tuple[str, ...]


def cut(data: bytes) -> list[bytes]:
    """Return an envelope in parts; one that is short enough is one."""
    return [data[at : at + CLUSTER_PART_BYTES] for at in range(0, len(data), CLUSTER_PART_BYTES)] or [b""]


def header_of(number: int, count: int, of: str) -> str:
    """Return what is said of a part; ``of`` is the same for all of one envelope, and of no other."""
    return f"{number}/{count}/{of}"


class Parts:
    """Keep parts until all of their envelope are there; those that came first go first when there are too many."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, dict[int, tuple[bytes, str]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, header: str, data: bytes, came_with: str) -> Whole | None:
        """Return the envelope that this part makes whole; raise ``Odd`` for what is none.

        A part that comes again, with something else, takes the place of the earlier one.
        """
        number, _, rest = header.partition("/")
        count, _, of = rest.partition("/")
        if not (number.isdecimal() and count.isdecimal() and of):
            raise Odd("its part is not numbered")
        if not 0 <= int(number) < int(count) <= CLUSTER_PARTS or len(data) > CLUSTER_PART_BYTES:
            raise Odd("it is of too many parts, or too long")
        parts = self._kept.setdefault(rest, {})
        parts[int(number)] = (data, came_with)
        if len(parts) == int(count):
            del self._kept[rest]
            found = [parts[each] for each in range(int(count))]
            return Whole(b"".join(part for part, _ in found), tuple(way for _, way in found))
        if len(self._kept) > CLUSTER_PARTS:
            self._kept.popitem(last=False)
        return None
