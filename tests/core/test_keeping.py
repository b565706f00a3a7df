"""Test that rows about what has happened reach the disk in the end, whatever becomes of single commits."""

from __future__ import annotations

from intercom.core.clock import Instant
from intercom.core.deadlines import Deadlines
from intercom.core.effects import Append
from intercom.core.journal import Journal
from intercom.core.keeping import Keeping
from intercom.core.ledger import Ledger
from intercom.core.outbox import Outbox
from intercom.core.records import AddressRecord, Happened

RETRY_MS = 50


class Thing:
    """Be something with a row that changes."""

    def __init__(self) -> None:
        self.is_saved = True
        self.last_held_at = 1

    @property
    def row(self) -> AddressRecord:
        return AddressRecord(1, "n", "g", None, (), 1, self.last_held_at)


class Rig:
    def __init__(self) -> None:
        self.outbox, self.deadlines, self.thing = Outbox(), Deadlines(), Thing()
        self.ledger = Ledger(self.outbox)
        self.keeping = Keeping(self.ledger, Journal(0), self.deadlines, RETRY_MS)
        self.is_there = True

    def save(self, held_at: int, now: int = 0) -> int:
        self.thing.last_held_at = held_at
        return self.keeping.save("address.held", self.thing, lambda thing: self.is_there, Instant(now, now))

    def appended(self) -> list[int]:
        """Return what the appends since the last look would store."""
        found = []
        for effect in self.outbox.take():
            assert isinstance(effect, Append)
            (event,) = effect.changes
            assert isinstance(event, Happened) and isinstance(event.row, AddressRecord)
            found.append(event.row.last_held_at)
        return found


def test_a_row_is_saved_as_it_is_when_it_is_saved_again() -> None:
    rig = Rig()
    ticket = rig.save(2)
    rig.ledger.failed(ticket, Instant(10, 10))
    assert rig.appended() == [2]
    rig.thing.last_held_at = 3
    rig.deadlines.run(Instant(10 + RETRY_MS - 1, 0))
    assert rig.appended() == []
    rig.deadlines.run(Instant(10 + RETRY_MS, 0))
    assert rig.appended() == [3]


def test_one_saving_makes_up_for_all_that_failed() -> None:
    rig = Rig()
    first = rig.save(2)
    rig.save(3)
    rig.ledger.failed(first, Instant(0, 0))
    rig.appended()
    rig.deadlines.run(Instant(RETRY_MS, 0))
    assert rig.appended() == [3]
    assert len(rig.deadlines) == 0


def test_a_later_saving_makes_up_for_one_that_failed() -> None:
    rig = Rig()
    rig.ledger.failed(rig.save(2), Instant(0, 0))
    rig.ledger.committed(rig.save(3), Instant(1, 1))
    rig.appended()
    rig.deadlines.run(Instant(RETRY_MS, 0))
    assert rig.appended() == []


def test_what_is_gone_is_not_saved() -> None:
    rig = Rig()
    rig.ledger.failed(rig.save(2), Instant(0, 0))
    rig.appended()
    rig.is_there = False
    rig.deadlines.run(Instant(RETRY_MS, 0))
    assert rig.appended() == []


def test_a_commit_that_fails_again_is_tried_again() -> None:
    rig = Rig()
    rig.ledger.failed(rig.save(2), Instant(0, 0))
    rig.deadlines.run(Instant(RETRY_MS, 0))
    rig.ledger.failed(rig.ledger.last_ticket, Instant(RETRY_MS, 0))
    rig.appended()
    rig.deadlines.run(Instant(2 * RETRY_MS, 0))
    assert rig.appended() == [2]
