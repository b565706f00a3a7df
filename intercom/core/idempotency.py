"""Remember what became of requests that carry a key, so that a repetition has the outcome of the first.

    (none) --begin--> in flight --done--> result ------+
                        |   |                          +--TTL--> (none)
                        |   +--unknown--> unknown -----+
                        +--failed--> (none)

Rule 1: an equal key that is in flight shares the outcome of the one under way. Rule 2: a failure is not remembered;
what failed may be tried again under the same key. Rule 3: what was in flight when a process ended, and was recorded, is
unknown to the next one: it may have taken effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from msgspec import Struct
from msgspec.json import decode, encode

from intercom.core.clock import Instant
from intercom.core.deadlines import Deadline, Deadlines
from intercom.core.journal import Journal
from intercom.core.ledger import Ledger
from intercom.core.records import Change, IdempotencyRecord, IdempotencyState

ORDERS = "order"
"""Scope of the keys of orders of a coordinator."""
REPORTS = "report"
"""Scope of the names of a worker's reports."""
REPLIES = "reply"
"""Scope of the ids of replies to assignments."""
FLOWS = "flow"
"""Scope of the keys of requests about flows."""
SPAWNS = "spawn"
"""Scope of the keys of orders to start a session."""
RUNS = "run"
"""Scope of the ids of updates of a run."""
SCOPES = (ORDERS, REPORTS, REPLIES, FLOWS, SPAWNS, RUNS)


class Standing(Enum):
    """Say what is known of a key."""

    NEW = "new"
    IN_FLIGHT = "in flight"
    DONE = "done"
    UNKNOWN = "unknown"
    CONFLICT = "conflict"


class Outcome(Struct, frozen=True):
    """Hold what became of a request: a result, a refusal, or neither is known."""

    state: Standing
    """``DONE``, ``UNKNOWN``, or ``NEW`` after a failure: the key is free again."""
    result: dict[str, Any]
    """Of a failure: what the caller of ``failed`` gave."""
    ticket: int = 0
    """The append on which it rests."""


Told = Callable[[Any, Outcome, Instant], None]


class Entry:
    """Hold one key."""

    __slots__ = (
        "deadline",
        "fingerprint",
        "is_stored",
        "key",
        "number",
        "result",
        "scope",
        "sharers",
        "state",
        "ticket",
    )

    def __init__(self, number: int, scope: str, key: str, fingerprint: str) -> None:
        self.number = number
        self.scope = scope
        self.key = key
        self.fingerprint = fingerprint
        self.state = IdempotencyState.IN_FLIGHT
        self.result: dict[str, Any] = {}
        self.ticket = 0
        """Of the append with its newest row."""
        self.is_stored = False
        """A row of it is on disk, or on its way there."""
        self.sharers: list[tuple[Told, Any]] = []
        self.deadline: Deadline | None = None


_STANDINGS = {
    IdempotencyState.IN_FLIGHT: Standing.IN_FLIGHT,
    IdempotencyState.DONE: Standing.DONE,
    IdempotencyState.UNKNOWN: Standing.UNKNOWN,
}


class Register:
    """Know the keys of every scope.

    A caller that may take effect in more than one step first calls ``keep`` and appends what it returns, then acts,
    then appends what ``done`` or ``unknown`` return and hands the ticket to ``settle``. One whose effect is a single
    append skips ``keep``. When an append fails its inverse calls ``reopen`` or ``failed``.

    Args:
        ttl_ms: how long outcomes are remembered, in ms, by scope; no other scope is taken.
        entries: most keys that are remembered; settled ones give way, the oldest first.
    """

    def __init__(
        self,
        journal: Journal,
        ledger: Ledger,
        deadlines: Deadlines,
        ttl_ms: Mapping[str, int],
        entries: int,
        recovered: Iterable[IdempotencyRecord],
        now: Instant,
    ) -> None:
        self._journal = journal
        self._ledger = ledger
        self._deadlines = deadlines
        self._ttl_ms = ttl_ms
        self._limit = entries
        self._entries: dict[tuple[str, str], Entry] = {}
        self._last_number = 0
        for record in recovered:
            self._recover(record, now)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, scope: str, key: str) -> Entry | None:
        """Return what is known of a key."""
        return self._entries.get((scope, key))

    def begin(self, scope: str, key: str, fingerprint: str, now: Instant) -> tuple[Standing, Entry]:
        """Return what is known of a key; when nothing is, it is in flight from now on.

        ``fingerprint`` stands for everything that makes two requests the same.
        """
        entry = self._entries.get((scope, key))
        if entry is not None:
            if entry.fingerprint != fingerprint:
                return Standing.CONFLICT, entry
            return _STANDINGS[entry.state], entry
        self._make_room(now)
        self._last_number += 1
        entry = Entry(self._last_number, scope, key, fingerprint)
        self._entries[scope, key] = entry
        return Standing.NEW, entry

    def share(self, entry: Entry, told: Told, subject: Any) -> None:
        """Call ``told(subject, outcome, now)`` when what is in flight has come to an end."""
        entry.sharers.append((told, subject))

    def outcome(self, entry: Entry) -> Outcome:
        """Return the outcome of a key that is settled."""
        return Outcome(_STANDINGS[entry.state], entry.result, entry.ticket)

    # --- from state to state ----------------------------------------------------------------------------

    def keep(self, entry: Entry, result: dict[str, Any], now: Instant) -> Change:
        """Return the change that records a key in flight, with what is fixed of its result; it is kept for its time."""
        entry.result = result
        self._arm(entry, now)
        return self._row(entry, "idempotency.begun", now)

    def done(self, entry: Entry, result: dict[str, Any], now: Instant) -> Change:
        """Return the change that records a result."""
        entry.state, entry.result = IdempotencyState.DONE, result
        return self._row(entry, "idempotency.done", now)

    def unknown(self, entry: Entry, now: Instant) -> Change:
        """Return the change that records that the request may have taken effect or not."""
        entry.state = IdempotencyState.UNKNOWN
        return self._row(entry, "idempotency.unknown", now)

    def settle(self, entry: Entry, ticket: int, now: Instant) -> None:
        """Remember an outcome that is recorded with this ticket for its time, and tell it to who shares it."""
        entry.ticket = ticket
        self._arm(entry, now)
        self._tell(entry, self.outcome(entry), now)

    def reopen(self, entry: Entry, now: Instant) -> None:
        """Take an outcome back that could not be recorded: the key is in flight as before."""
        self._arm(entry, now)
        entry.state = IdempotencyState.IN_FLIGHT
        entry.ticket = 0
        self._entries.setdefault((entry.scope, entry.key), entry)

    def failed(self, entry: Entry, refusal: dict[str, Any], now: Instant) -> None:
        """Forget a key whose request had no effect, and tell the refusal to who shares it."""
        self._forget(entry, now)
        self._tell(entry, Outcome(Standing.NEW, refusal), now)

    def withdraw(self, entry: Entry) -> None:
        """Forget a key of which nothing was ever recorded; whoever shares it is told by the caller."""
        self._deadlines.cancel(entry.deadline)
        entry.deadline = None
        entry.is_stored = False
        if self._entries.get((entry.scope, entry.key)) is entry:
            del self._entries[entry.scope, entry.key]

    # --- help -------------------------------------------------------------------------------------------

    def _arm(self, entry: Entry, now: Instant) -> None:
        self._deadlines.cancel(entry.deadline)
        due = now.mono + self._ttl_ms[entry.scope]
        entry.deadline = self._deadlines.add(due, self._is_over, entry)

    def _tell(self, entry: Entry, outcome: Outcome, now: Instant) -> None:
        sharers, entry.sharers = entry.sharers, []
        for told, subject in sharers:
            told(subject, outcome, now)

    def _row(self, entry: Entry, kind: str, now: Instant) -> Change:
        entry.is_stored = True
        return self._journal.event(kind, self._record(entry, now), now)

    def _record(self, entry: Entry, now: Instant) -> IdempotencyRecord:
        return IdempotencyRecord(
            entry.number,
            entry.scope,
            entry.key,
            entry.fingerprint,
            entry.state,
            encode(entry.result),
            now.wall + self._ttl_ms[entry.scope],
        )

    def _recover(self, record: IdempotencyRecord, now: Instant) -> None:
        self._last_number = max(self._last_number, record.number)
        ttl = self._ttl_ms.get(record.scope)
        if ttl is None:
            return
        entry = Entry(record.number, record.scope, record.key, record.fingerprint)
        entry.is_stored = True
        entry.result = decode(record.result)
        entry.state = record.state
        if record.state is IdempotencyState.IN_FLIGHT:
            entry.state = IdempotencyState.UNKNOWN
        self._entries[record.scope, record.key] = entry
        left = min(max(0, record.expires_at - now.wall), ttl)
        entry.deadline = self._deadlines.add(now.mono + left, self._is_over, entry)

    def _make_room(self, now: Instant) -> None:
        if len(self._entries) >= self._limit:
            settled = (entry for entry in self._entries.values() if entry.state is not IdempotencyState.IN_FLIGHT)
            oldest = next(settled, None)
            if oldest is not None:
                self._forget(oldest, now)

    def _is_over(self, entry: Entry, now: Instant) -> None:
        entry.deadline = None
        self._forget(entry, now)

    def _forget(self, entry: Entry, now: Instant) -> None:
        self._deadlines.cancel(entry.deadline)
        entry.deadline = None
        if self._entries.get((entry.scope, entry.key)) is entry:
            del self._entries[entry.scope, entry.key]
        if entry.is_stored:
            entry.is_stored = False
            gone = self._journal.event("idempotency.forgotten", self._record(entry, now), now, is_gone=True)
            self._ledger.append((gone,))
