"""Write many rows with few calls of the database.

Python's module lets other threads run while the database works, and waits for its turn afterwards: with a call for each
row a busy program would wait for every one of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
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


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last of each run of successive numbers; what is written at once is one run, mostly."""
    ordered = sorted(numbers)
    if ordered[-1] - ordered[0] == len(ordered) - 1:
        return [(ordered[0], ordered[-1])]
    starts = [number for before, number in pairwise((-1, *ordered)) if number != before + 1]
    ends = [number for number, after in pairwise((*ordered, -1)) if after != number + 1]
    return list(zip(starts, ends, strict=True))
