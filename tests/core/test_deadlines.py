"""Test the heap of what is due when."""

from __future__ import annotations

from intercom.core.clock import Instant
from intercom.core.deadlines import Deadlines


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
