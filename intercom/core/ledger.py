"""Give appends their tickets, and undo what was never committed.

Every change of durable state is made in memory at once and appended under a ticket. The append carries its
inverse. Frames and answers that rest on it carry the ticket and wait for the commit. When a commit fails, the
inverses of that append and of all later ones run, newest first; nothing that rested on them has left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from intercom.core.clock import Instant
from intercom.core.effects import Append
from intercom.core.journal import Journal
from intercom.core.outbox import Outbox
from intercom.core.records import Change, Happened


class Ledger:
    """Number appends and remember how to take back the uncommitted ones."""

    def __init__(self, outbox: Outbox, journal: Journal | None = None) -> None:
        self._outbox = outbox
        self._journal = journal or Journal(0)
        self._uncommitted: deque[tuple[int, Callable[[Any, Instant], None], Any]] = deque()
        self._resting: list[tuple[int, Callable[[Any, Instant], None], Any]] = []
        self._awaiting: deque[tuple[int, Callable[[Any, Instant], None], Any]] = deque()
        self._events: deque[tuple[int, Happened]] = deque()
        """Events that are not committed yet, with their tickets."""
        self.on_event: Callable[[Happened, Instant], None] = lambda event, now: None
        """Is told of every event once it is committed, in their order."""
        self._last_ticket = 0
        self._settled = 0
        """Up to here every append is committed or undone."""
        self.is_closed = False
        """The store cannot be used: nothing is appended any more, and nothing may be promised."""

    @property
    def last_ticket(self) -> int:
        """Return the ticket of the newest append."""
        return 0 if self.is_closed else self._last_ticket

    @property
    def last_sequence(self) -> int:
        """Return the sequence of the newest event that waits for its commit; 0 when none does."""
        return self._events[-1][1].seq if self._events else 0

    def append_row(self, change: Change, undo: Callable[[Any, Instant], None], subject: Any) -> int:
        """Ask for a durable change that is no event, as ``append`` does: every message asks for two."""
        if self.is_closed:
            return 0
        self._last_ticket = ticket = self._last_ticket + 1
        self._uncommitted.append((ticket, undo, subject))
        self._outbox.effects.append(Append(ticket, (change,)))
        return ticket

    def append(
        self, changes: tuple[Change, ...], undo: Callable[[Any, Instant], None] | None = None, subject: Any = None
    ) -> int:
        """Ask for a durable change and return its ticket.

        ``undo(subject, now)`` takes the change in memory back; None when it needs no taking back. On a closed store
        nothing is asked for and the ticket is 0.
        """
        if self.is_closed:
            return 0
        self._last_ticket = ticket = self._last_ticket + 1
        if undo is not None:
            self._uncommitted.append((ticket, undo, subject))
        self._number(ticket, changes)
        self._outbox.effects.append(Append(ticket, changes))
        return ticket

    def _number(self, ticket: int, changes: tuple[Change, ...]) -> None:
        """Give the events that are being appended their numbers."""
        journal = self._journal
        for change in changes:
            if change.__class__ is Happened:
                journal.last_sequence = change.seq = journal.last_sequence + 1
                self._events.append((ticket, change))

    def join(self, ticket: int, changes: tuple[Change, ...], undo: Callable[[Any, Instant], None], subject: Any) -> int:
        """Let changes be part of the newest append, where that is the one with this ticket and nobody has it yet.

        Else they are an append of their own. Returns the ticket on which they rest.
        """
        effects = self._outbox.effects
        if ticket == self._last_ticket and not self.is_closed:
            for place in range(len(effects) - 1, -1, -1):
                newest = effects[place]
                if type(newest) is Append:
                    effects[place] = Append(ticket, (*newest.changes, *changes))
                    self._uncommitted.append((ticket, undo, subject))
                    self._number(ticket, changes)
                    return ticket
        return self.append(changes, undo, subject)

    def rest(self, ticket: int, told: Callable[[Any, Instant], None], subject: Any) -> None:
        """Call ``told(subject, now)`` if the append with this ticket fails: an answer that rests on it is lost then."""
        if ticket > self._settled:
            self._resting.append((ticket, told, subject))

    def when_committed(self, ticket: int, action: Callable[[Any, Instant], None], subject: Any) -> None:
        """Call ``action(subject, now)`` once the newest append, with this ticket, is committed; never if it fails."""
        if not ticket:
            return
        assert ticket == self._last_ticket, "only of the newest append, so that they are called in order"
        self._awaiting.append((ticket, action, subject))

    def is_committed(self, ticket: int) -> bool:
        """Tell whether the append with this ticket, which did not fail, is durable."""
        return ticket <= self._settled

    def committed(self, ticket: int, now: Instant) -> None:
        """Forget the inverses of everything up to ``ticket`` and go on with what waited for it."""
        self._settled = ticket
        if self._resting:
            self._resting = [entry for entry in self._resting if entry[0] > ticket]
        uncommitted = self._uncommitted
        if ticket == self._last_ticket:
            uncommitted.clear()
        while uncommitted and uncommitted[0][0] <= ticket:
            uncommitted.popleft()
        events = self._events
        while events and events[0][0] <= ticket:
            self.on_event(events.popleft()[1], now)
        awaiting = self._awaiting
        while awaiting and awaiting[0][0] <= ticket:
            _, action, subject = awaiting.popleft()
            action(subject, now)

    def failed(self, first: int, now: Instant) -> None:
        """Take back, newest first, every change with ticket ``first`` or a later one; then tell who rested on them."""
        self._settled = self._last_ticket
        resting, self._resting = self._resting, []
        while self._awaiting and self._awaiting[-1][0] >= first:
            self._awaiting.pop()
        while self._events and self._events[-1][0] >= first:
            self._events.pop()
        uncommitted = self._uncommitted
        while uncommitted and uncommitted[-1][0] >= first:
            _, undo, subject = uncommitted.pop()
            undo(subject, now)
        for ticket, told, subject in resting:
            if ticket >= first:
                told(subject, now)
