"""Test that a drain awaits everything and keeps every error (FE 4.4), in every order of events."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from intercom.core.ordered import OrderedInbox
from intercom.drains import Outcome, Told, combined, drain_all
from tests.support.orders import interleavings

FIRST, SECOND = ValueError("first"), KeyError("second")


class Part:
    """Be a drain that ends when a test says so; ``begins_with`` is what it does at once."""

    def __init__(self, begins_with: str = "nothing", error: Exception | None = None) -> None:
        self.told: Told | None = None
        self.begins_with = begins_with
        self.error = error

    def drain(self, told: Told) -> None:
        self.told = told
        if self.begins_with == "an end":
            told(self.error)
        if self.begins_with == "a raise":
            raise self.error or RuntimeError("without a reason")

    def end(self) -> None:
        assert self.told is not None, "every part has begun"
        self.told(self.error)


@pytest.mark.parametrize("begins_with", ["nothing", "an end", "a raise"])
@pytest.mark.parametrize("errors", [*product([None, FIRST], [None, SECOND], [None])])
def test_every_order_of_three_ends(errors: tuple[Outcome, ...], begins_with: str) -> None:
    """A4.13: all are awaited, one combined error is told, once, and only then is anything let go of."""
    for order in permutations(range(3)):
        parts = [Part(error=error) for error in errors]
        if begins_with != "nothing" and (begins_with == "an end" or errors[1] is not None):
            parts[1].begins_with = begins_with
        log: list[Outcome] = []
        drain_all([part.drain for part in parts], log.append)
        for ended, place in enumerate(order):
            left = set(order[ended:]) - ({1} if parts[1].begins_with != "nothing" else set())
            assert bool(log) is (not left), "told when the last one has ended"
            parts[place].end()
            parts[place].end()  # twice changes nothing
        [outcome] = log
        expected = [error for error in errors if error is not None]
        if len(expected) > 1:
            assert isinstance(outcome, ExceptionGroup)
            assert list(outcome.exceptions) == expected, "in the order of the parts, not of their ends"
        else:
            assert outcome is (expected[0] if expected else None)


def test_nothing_to_drain_is_drained() -> None:
    told: list[Outcome] = []
    drain_all([], told.append)
    assert told == [None]
    assert combined([]) is None


def test_every_order_of_two_inboxes_that_are_drained_together() -> None:
    """A4.5, A4.13: each is awaited until nothing waits in it, and a failure until then is the outcome."""
    for order in set(interleavings(("a push", "a done", "a done"), ("b push", "b fail"), ("drain",))):
        inboxes = {name: OrderedInbox[int](lambda frame: False, lambda error: None, frames=9, size=9) for name in "ab"}
        waiting = {"a": 0, "b": 0}
        has_failed = False
        expected: dict[str, Outcome] = {}
        told: list[Outcome] = []
        for place, event in enumerate(order):
            what, _, does = event.partition(" ")
            if does == "push":
                inboxes[what].push(place, 1)
                waiting[what] += 1
            elif does == "done":
                inboxes[what].done()
                waiting[what] = 0
            elif does == "fail":
                inboxes[what].fail(FIRST)
                waiting[what], has_failed = 0, True
            else:
                drain_all([inbox.drain for inbox in inboxes.values()], told.append)
            if "drain" in order[: place + 1]:
                for name in waiting:
                    if waiting[name] == 0:
                        expected.setdefault(name, FIRST if has_failed and name == "b" else None)
            assert told == ([expected["b"]] if len(expected) == 2 else []), order
