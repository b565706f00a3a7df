"""Bring rows to the disk that describe how things are, and again after a commit that failed.

What such a row says has happened already, whatever the disk says: a connection is lost, a holder is here. So it is not
taken back; a little later the row is recorded as it is then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from intercom.core.clock import Instant
from intercom.core.deadlines import Deadlines
from intercom.core.journal import Journal
from intercom.core.ledger import Ledger
from intercom.core.records import Row


class Kept(Protocol):
    """Be something with a row."""

    is_saved: bool
    """Its row is on disk as it is, or on its way there."""

    @property
    def row(self) -> Row:
        """Return the row as it is to be stored."""


class Keeping:
    """Save rows together with the events that changed them."""

    def __init__(self, ledger: Ledger, journal: Journal, deadlines: Deadlines, retry_ms: int) -> None:
        self._ledger = ledger
        self._journal = journal
        self._deadlines = deadlines
        self._retry_ms = retry_ms

    def save(self, kind: str, kept: Kept, is_there: Callable[[Any], bool], now: Instant) -> int:
        """Append an event with the row as it is now; return the ticket.

        ``is_there`` tells later whether there still is such a thing to save.
        """
        kept.is_saved = True
        event = self._journal.event(kind, kept.row, now)
        return self._ledger.append((event,), self._not_saved, (kind, kept, is_there))

    def save_later(self, kind: str, kept: Kept, is_there: Callable[[Any], bool], now: Instant) -> None:
        """Save after a pause what was not recorded, unless it is saved before."""
        if kept.is_saved:
            kept.is_saved = False
            self._deadlines.add(now.mono + self._retry_ms, self._save_again, (kind, kept, is_there))

    def _not_saved(self, subject: Any, now: Instant) -> None:
        kind, kept, is_there = subject
        self.save_later(kind, kept, is_there, now)

    def _save_again(self, subject: Any, now: Instant) -> None:
        kind, kept, is_there = subject
        if not kept.is_saved and is_there(kept):
            self.save(kind, kept, is_there, now)
