"""Collect what one append changes, and how each change in memory is taken back."""

from __future__ import annotations

from collections.abc import Callable

from intercom.core.clock import Instant
from intercom.core.ledger import Ledger
from intercom.core.records import Change


class Move:
    """Hold the changes of one append and their inverses.

    Whoever takes part changes its memory, adds its changes, and calls ``inverse`` with what takes them back.

    Args:
        changes: a list that is appended by somebody else; then ``take_back`` is called by them.
    """

    __slots__ = ("changes", "inverses")

    def __init__(self, changes: list[Change] | None = None) -> None:
        self.changes: list[Change] = [] if changes is None else changes
        self.inverses: list[Callable[[Instant], None]] = []

    def inverse(self, inverse: Callable[[Instant], None]) -> None:
        """Call this if the append fails; the last one first."""
        self.inverses.append(inverse)

    def append(self, ledger: Ledger) -> int:
        """Append everything and return the ticket."""
        return ledger.append(tuple(self.changes), take_back, self)


def take_back(move: Move, now: Instant) -> None:
    """Take everything back, newest first; the inverse of the append of a move."""
    for inverse in reversed(move.inverses):
        inverse(now)
