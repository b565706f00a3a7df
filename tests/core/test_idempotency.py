"""Keys of requests: a repetition has the outcome of the first (FE 5.2 P9, A1.9, FE 1.5 control orders)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.clock import Instant
from intercom.core.deadlines import Deadlines
from intercom.core.idempotency import Entry, Outcome, Register, Standing
from intercom.core.journal import Journal
from intercom.core.ledger import Ledger
from intercom.core.outbox import Outbox
from intercom.core.records import Change, Happened, IdempotencyRecord, IdempotencyState

NOW = Instant(1_000, 1_700_000_000_000)
TTL_MS = 5_000


class Books:
    """Hold a register and what it wrote."""

    def __init__(self, recovered: list[IdempotencyRecord] | None = None, entries: int = 10) -> None:
        self.outbox = Outbox()
        self.deadlines = Deadlines()
        self.ledger = Ledger(self.outbox)
        self.register = Register(
            Journal(0),
            self.ledger,
            self.deadlines,
            {"order": TTL_MS, "reply": 2 * TTL_MS},
            entries,
            recovered or [],
            NOW,
        )
        self.told: list[tuple[str, Outcome]] = []

    def begin(self, key: str = "k", fingerprint: str = "f", scope: str = "order") -> tuple[Standing, Entry]:
        return self.register.begin(scope, key, fingerprint, NOW)

    def share(self, entry: Entry, name: str) -> None:
        self.register.share(entry, lambda subject, outcome, now: self.told.append((subject, outcome)), name)

    def rows(self) -> dict[int, IdempotencyRecord]:
        """Return the rows that the appends so far lead to."""
        rows: dict[int, IdempotencyRecord] = {}
        for effect in self.outbox.effects:
            for change in getattr(effect, "changes", ()):
                self.apply(rows, change)
        return rows

    def apply(self, rows: dict[int, IdempotencyRecord], change: Change) -> None:
        assert isinstance(change, Happened) and isinstance(change.row, IdempotencyRecord)
        rows[change.row.number] = change.row
        if change.is_gone:
            del rows[change.row.number]

    def finish(self, entry: Entry, result: dict[str, Any]) -> int:
        ticket = self.ledger.append((self.register.done(entry, result, NOW),))
        self.register.settle(entry, ticket, NOW)
        return ticket


def test_a_new_key_is_in_flight_until_it_has_an_outcome() -> None:
    books = Books()
    standing, entry = books.begin()
    assert standing is Standing.NEW
    assert books.begin() == (Standing.IN_FLIGHT, entry)
    ticket = books.finish(entry, {"id": 1})
    assert books.begin() == (Standing.DONE, entry)
    assert books.register.outcome(entry) == Outcome(Standing.DONE, {"id": 1}, ticket)


def test_an_equal_key_in_flight_shares_the_outcome() -> None:
    """A1.9"""
    books = Books()
    _, entry = books.begin()
    books.share(entry, "one")
    books.share(entry, "two")
    ticket = books.finish(entry, {"id": 1})
    assert books.told == [(name, Outcome(Standing.DONE, {"id": 1}, ticket)) for name in ("one", "two")]
    books.register.settle(entry, ticket, NOW)
    assert len(books.told) == 2


def test_a_failure_is_shared_and_not_remembered() -> None:
    """A1.9: after failure the same key may succeed."""
    books = Books()
    _, entry = books.begin()
    books.share(entry, "one")
    books.register.failed(entry, {"code": "no"}, NOW)
    assert books.told == [("one", Outcome(Standing.NEW, {"code": "no"}))]
    standing, again = books.begin()
    assert standing is Standing.NEW and again is not entry
    assert books.rows() == {}


def test_other_content_under_a_key_is_a_conflict_in_every_state() -> None:
    books = Books()
    _, entry = books.begin()
    assert books.begin(fingerprint="g")[0] is Standing.CONFLICT
    books.finish(entry, {})
    assert books.begin(fingerprint="g")[0] is Standing.CONFLICT


def test_scopes_do_not_meet() -> None:
    books = Books()
    books.begin()
    assert books.begin(scope="reply", fingerprint="g")[0] is Standing.NEW


def test_what_is_not_known_stays_not_known() -> None:
    """A1.12"""
    books = Books()
    _, entry = books.begin()
    changes = (books.register.keep(entry, {"messageId": "m"}, NOW),)
    books.ledger.append(changes)
    ticket = books.ledger.append((books.register.unknown(entry, NOW),))
    books.register.settle(entry, ticket, NOW)
    assert books.begin() == (Standing.UNKNOWN, entry)
    assert books.register.outcome(entry).result == {"messageId": "m"}
    assert books.rows()[1].state is IdempotencyState.UNKNOWN


@pytest.mark.parametrize(("scope", "ms"), [("order", TTL_MS), ("reply", 2 * TTL_MS)])
def test_an_outcome_is_forgotten_after_the_time_of_its_scope(scope: str, ms: int) -> None:
    books = Books()
    _, entry = books.begin(scope=scope)
    books.finish(entry, {})
    books.deadlines.run(Instant(NOW.mono + ms - 1, NOW.wall))
    assert books.begin(scope=scope)[0] is Standing.DONE
    books.deadlines.run(Instant(NOW.mono + ms, NOW.wall))
    assert books.rows() == {}
    assert books.begin(scope=scope)[0] is Standing.NEW


def test_what_was_recorded_in_flight_and_never_settled_is_forgotten_in_time() -> None:
    books = Books()
    _, entry = books.begin()
    books.ledger.append((books.register.keep(entry, {}, NOW),))
    books.deadlines.run(Instant(NOW.mono + TTL_MS, NOW.wall))
    assert books.rows() == {} and books.begin()[0] is Standing.NEW


def test_what_is_in_flight_gives_way_to_nothing() -> None:
    books = Books(entries=2)
    for key in ("a", "b", "c", "d"):
        assert books.begin(key)[0] is Standing.NEW
    assert len(books.register) == 4


def test_the_oldest_outcome_gives_way() -> None:
    books = Books(entries=2)
    for key in ("a", "b"):
        books.finish(books.begin(key)[1], {})
    books.begin("c")
    assert books.begin("a", "other")[0] is Standing.NEW
    assert books.register.find("order", "b") is None


def test_an_outcome_that_was_not_recorded_is_taken_back() -> None:
    books = Books()
    _, entry = books.begin()
    books.finish(entry, {"id": 1})
    books.register.reopen(entry, NOW)
    assert books.begin() == (Standing.IN_FLIGHT, entry)


def record(state: IdempotencyState, left_ms: int = 100, number: int = 7) -> IdempotencyRecord:
    return IdempotencyRecord(number, "order", "k", "f", state, b'{"id":1}', NOW.wall + left_ms)


def test_an_outcome_survives_a_restart_for_the_rest_of_its_time() -> None:
    books = Books([record(IdempotencyState.DONE)])
    standing, entry = books.begin()
    assert (standing, books.register.outcome(entry).result) == (Standing.DONE, {"id": 1})
    books.deadlines.run(Instant(NOW.mono + 100, NOW.wall))
    assert books.begin()[0] is Standing.NEW


def test_what_was_in_flight_when_the_broker_died_is_unknown() -> None:
    """FE 1.7: after send, before the result was stored."""
    books = Books([record(IdempotencyState.IN_FLIGHT)])
    assert books.begin()[0] is Standing.UNKNOWN


def test_a_clock_that_was_set_back_keeps_nothing_longer() -> None:
    """A5.3"""
    books = Books([record(IdempotencyState.DONE, left_ms=10**9)])
    books.deadlines.run(Instant(NOW.mono + TTL_MS, NOW.wall))
    assert books.begin()[0] is Standing.NEW


def test_numbers_are_not_used_twice() -> None:
    books = Books([record(IdempotencyState.DONE)])
    assert books.begin("other")[1].number == 8


def test_a_key_of_a_scope_that_is_not_known_any_more_is_left_alone_and_its_number_is_not_given_again() -> None:
    """A store may be older or newer than the broker"""
    row = IdempotencyRecord(7, "gone", "k", "f", IdempotencyState.DONE, b"{}", NOW.wall + TTL_MS)
    books = Books([row])
    assert len(books.register) == 0 and books.register.find("gone", "k") is None
    assert books.begin()[1].number == 8


@pytest.mark.parametrize("how", ["failed", "withdraw"])
def test_the_end_of_one_that_gave_way_takes_nothing_from_its_successor(how: str) -> None:
    """P9: the key belongs to whoever has it now"""
    books = Books(entries=1)
    _, first = books.begin()
    books.finish(first, {})
    books.begin("other")
    _, second = books.begin()
    assert second is not first
    books.register.reopen(first, NOW)
    if how == "failed":
        books.register.failed(first, {"code": "no"}, NOW)
    else:
        books.register.withdraw(first)
    assert books.register.find("order", "k") is second
