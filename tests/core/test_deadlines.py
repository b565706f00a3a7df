"""Test the heap of what is due when."""

from __future__ import annotations

from intercom.core.clock import Instant
from intercom.core.deadlines import Deadlines, Timeouts


def test_what_is_due_is_called_the_earliest_first_and_once() -> None:
    """design 4 "Deadlines are data": one heap, absolute times"""
    deadlines = Deadlines()
    called: list[tuple[str, int]] = []

    def act(subject: str, now: Instant) -> None:
        called.append((subject, now.mono))

    assert deadlines.next_due() is None
    for due, subject in ((30, "c"), (10, "a"), (20, "b1"), (20, "b2"), (40, "d")):
        deadlines.add(due, act, subject)
    assert deadlines.next_due() == 10 and len(deadlines) == 5
    deadlines.run(Instant(9, 0))
    assert called == []
    deadlines.run(Instant(30, 0))
    assert called == [("a", 30), ("b1", 30), ("b2", 30), ("c", 30)]
    assert deadlines.next_due() == 40 and len(deadlines) == 1
    deadlines.run(Instant(50, 0))
    deadlines.run(Instant(60, 0))
    assert called[-1] == ("d", 50) and deadlines.next_due() is None


def test_deadlines_of_one_time_are_called_as_they_were_set() -> None:
    """design 4 "Pure": the same inputs give the same effects"""
    deadlines = Deadlines()
    called: list[int] = []
    for number in range(50):
        deadlines.add(10, lambda subject, now: called.append(subject), number)
    deadlines.run(Instant(10, 0))
    assert called == list(range(50))


def test_a_cancelled_deadline_is_never_called() -> None:
    """design 4 "Deadlines are data" """
    deadlines = Deadlines()
    called: list[str] = []
    first, second = (deadlines.add(10, lambda subject, now: called.append(subject), name) for name in "ab")
    for handle in (first, first, None):
        deadlines.cancel(handle)
    assert len(deadlines) == 1 and deadlines.next_due() == 10
    deadlines.run(Instant(10, 0))
    deadlines.cancel(second)
    assert called == ["b"] and len(deadlines) == 0


def test_an_action_may_set_and_cancel_deadlines() -> None:
    """design 4 "Deadlines are data" """
    deadlines = Deadlines()
    called: list[str] = []

    def first(subject: None, now: Instant) -> None:
        called.append("first")
        deadlines.cancel(third)
        deadlines.add(now.mono, lambda subject, now: called.append("at once"))
        deadlines.add(now.mono + 1, lambda subject, now: called.append("later"))

    deadlines.add(10, first)
    third = deadlines.add(11, lambda subject, now: called.append("third"))
    deadlines.run(Instant(12, 0))
    assert called == ["first", "at once"] and deadlines.next_due() == 13


def test_cancelled_deadlines_do_not_pile_up() -> None:
    """design 4 "Charge before you link": a receipt that came leaves nothing behind"""
    deadlines = Deadlines()
    kept = [deadlines.add(1_000 + number, lambda subject, now: None) for number in range(100)]
    for number in range(10_000):
        deadlines.cancel(deadlines.add(number, lambda subject, now: None))
    assert len(deadlines) == 100 and len(deadlines._heap) < 400
    assert deadlines.next_due() == 1_000
    for handle in kept:
        deadlines.cancel(handle)
    assert deadlines.next_due() is None and len(deadlines) == 0


class Patience:
    """Timeouts of ten ms, and what they called."""

    def __init__(self) -> None:
        self.deadlines = Deadlines()
        self.called: list[tuple[str, int]] = []
        self.timeouts = Timeouts(self.deadlines, 10, self.act)

    def act(self, subject: str, now: Instant) -> None:
        self.called.append((subject, now.mono))

    def add(self, subject: str, at: int) -> None:
        self.timeouts.add(subject, Instant(at, 0))

    def run(self, at: int) -> None:
        self.deadlines.run(Instant(at, 0))


def test_what_waits_equally_long_needs_one_deadline() -> None:
    """design 4 "Deadlines are data": thousands of receipts are awaited at once"""
    patience = Patience()
    for at, subject in enumerate("abc"):
        patience.add(subject, at)
    assert len(patience.deadlines) == 1
    patience.run(9)
    assert patience.called == []
    patience.run(11)
    assert patience.called == [("a", 11), ("b", 11)] and len(patience.deadlines) == 1
    patience.run(12)
    assert patience.called == [("a", 11), ("b", 11), ("c", 12)] and len(patience.deadlines) == 0
    patience.add("d", 20)
    patience.run(30)
    assert patience.called[-1] == ("d", 30)


def test_what_waits_no_more_is_not_called() -> None:
    """design 4 "Charge before you link": a receipt that came leaves nothing behind"""
    patience = Patience()
    patience.add("a", 0)
    patience.add("b", 5)
    patience.timeouts.cancel("a")
    patience.timeouts.cancel("a")
    patience.run(10)
    assert patience.called == [] and patience.deadlines.next_due() == 15
    patience.timeouts.cancel("b")
    patience.run(15)
    assert patience.called == [] and patience.deadlines.next_due() is None


def test_what_is_called_may_let_others_wait_anew_or_no_more() -> None:
    """design 4 "Deadlines are data" """
    patience = Patience()
    called: list[str] = []

    def act(subject: str, now: Instant) -> None:
        called.append(subject)
        if subject == "a":
            timeouts.cancel("b")
            timeouts.cancel("c")
            timeouts.add("c", now)
            timeouts.add("a", now)

    timeouts = Timeouts(patience.deadlines, 10, act)
    for subject in "abcd":
        timeouts.add(subject, Instant(0, 0))
    patience.run(10)
    assert called == ["a", "d"]
    patience.run(20)
    assert called == ["a", "d", "c", "a"]
