"""Wait for several ends at once, and tell of everything that failed on the way (FE 4.4, primitive P16).

A drain is a function: it is called with whom to tell, and tells them, once, when nothing is left to do: with the error
it ended with, or with None. It may do so at once.

Rule 1: all drains begin, and all are awaited, whatever becomes of the others. Rule 2: then one is told: no error, the
only error, or one that holds them all. Rule 3: so whoever is told may let go of what the drains have used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeAlias

Outcome: TypeAlias = Exception | None
Told: TypeAlias = Callable[[Outcome], object]
Drain: TypeAlias = Callable[[Told], object]


def drain_all(drains: Iterable[Drain], told: Told) -> None:
    """Begin all drains together, and call ``told`` with their ``combined`` outcome when the last one has ended."""
    begun = tuple(drains)
    if not begun:
        told(None)
        return
    outcomes: list[Outcome] = [None] * len(begun)
    left = set(range(len(begun)))

    def ended(place: int, outcome: Outcome) -> None:
        if place not in left:
            return
        outcomes[place] = outcome
        left.remove(place)
        if not left:
            told(combined(outcomes))

    for place, drain in enumerate(begun):
        try:
            drain(partial(ended, place))
        except Exception as error:
            ended(place, error)


def combined(outcomes: Iterable[Outcome]) -> Outcome:
    """Return what to raise for several outcomes: nothing, the only error, or all of them in their order."""
    errors = [outcome for outcome in outcomes if outcome is not None]
    if len(errors) > 1:
        return ExceptionGroup(f"{len(errors)} parts did not end well", errors)
    return errors[0] if errors else None
