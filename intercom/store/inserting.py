"""Insert many rows with few calls of the database.

Python's module lets other threads run while the database works, and waits for its turn afterwards: with a call for each
row a busy program would wait for every one of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any

from msgspec import Struct

from intercom.limits import ROWS_AT_ONCE


class Insert(Struct, frozen=True):
    """Hold a statement that inserts rows, in the pieces of which one for several rows is made."""

    head: str
    """Up to VALUES."""
    marks: str
    """The values of one row, in parentheses."""
    tail: str = ""

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
        return f"{self.head}{', '.join([self.marks] * count)}{self.tail}"
