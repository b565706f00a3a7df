"""Write many rows with few calls of the database.

Python's module lets other threads run while the database works, and waits for its turn afterwards: with a call for each
row a busy program would wait for every one of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

from msgspec import Struct

from intercom.limits import ROWS_AT_ONCE


class Insert(Struct, frozen=True):
    """Hold a statement that inserts rows, in the pieces of which one for several rows is made."""

    head: str
    """Up to VALUES."""
    marks: str
    """The values of one row, in parentheses."""

    def run(self, connection: sqlite3.Connection, rows: Sequence[Sequence[Any]]) -> None:
        """Insert these rows, in their order."""
        whole = len(rows) - len(rows) % ROWS_AT_ONCE
        if whole:
            starts = range(0, whole, ROWS_AT_ONCE)
            together = [list(chain.from_iterable(rows[start : start + ROWS_AT_ONCE])) for start in starts]
            connection.executemany(self._statement(ROWS_AT_ONCE), together)
        if whole < len(rows):
            connection.executemany(self._statement(1), rows[whole:])

    def _statement(self, count: int) -> str:
        return f"{self.head}{', '.join([self.marks] * count)}"


def runs(keys: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Return the first and the last of each run of successive numbers, which what is written at once has few of.

    Each key that is a text is a run of its own.
    """
    ordered = sorted(keys)
    if not isinstance(ordered[0], int):
        return list(zip(ordered, ordered, strict=True))
    if ordered[-1] - ordered[0] == len(ordered) - 1:
        return [(ordered[0], ordered[-1])]
    starts = [number for before, number in pairwise((-1, *ordered)) if number != before + 1]
    ends = [number for number, after in pairwise((*ordered, -1)) if after != number + 1]
    return list(zip(starts, ends, strict=True))


def spans(values: Mapping[int, Any]) -> list[tuple[Any, int, int]]:
    """Return each value with the first and the last of every run of numbers that have it."""
    numbers: dict[Any, list[int]] = {}
    for number, value in values.items():
        numbers.setdefault(value, []).append(number)
    return [(value, *run) for value, having in numbers.items() for run in runs(having)]
