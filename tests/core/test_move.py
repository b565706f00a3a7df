"""Moves: one append, and its inverses newest first."""

from __future__ import annotations

from intercom.core.clock import Instant
from intercom.core.effects import Append
from intercom.core.ledger import Ledger
from intercom.core.move import Move, take_back
from intercom.core.outbox import Outbox
from intercom.core.records import Change, DropOperation

NOW = Instant(1, 1)


def test_a_move_is_one_append_that_is_taken_back_newest_first() -> None:
    outbox, done = Outbox(), []
    ledger = Ledger(outbox)
    move = Move()
    for name in ("one", "two"):
        move.changes.append(DropOperation(len(move.changes)))
        move.inverse(lambda now, name=name: done.append((name, now)))  # type: ignore[misc]
    ticket = move.append(ledger)
    assert outbox.take() == [Append(ticket, (DropOperation(0), DropOperation(1)))]
    ledger.failed(ticket, NOW)
    assert done == [("two", NOW), ("one", NOW)]


def test_what_was_committed_is_not_taken_back() -> None:
    ledger, done = Ledger(Outbox()), []
    move = Move()
    move.inverse(done.append)
    ledger.committed(move.append(ledger), NOW)
    ledger.failed(2, NOW)
    assert done == []


def test_the_changes_may_belong_to_somebody_else() -> None:
    changes: list[Change] = [DropOperation(1)]
    done: list[Instant] = []
    move = Move(changes)
    move.changes.append(DropOperation(2))
    move.inverse(done.append)
    assert changes == [DropOperation(1), DropOperation(2)]
    take_back(move, NOW)
    assert done == [NOW]
