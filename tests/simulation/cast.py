"""Decide who takes part in a world, as its number says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from intercom.config import Durability
from tests.simulation.children import Children
from tests.simulation.flows import Flows
from tests.simulation.invocations import Invocations
from tests.simulation.links import Links
from tests.simulation.policies import Policies
from tests.simulation.programs import Role
from tests.simulation.runs import Runs
from tests.simulation.strangers import Strangers
from tests.simulation.watching import Watching
from tests.simulation.works import Works

if TYPE_CHECKING:
    from tests.simulation.parts import Part
    from tests.simulation.world import World

WRITERS = (
    Role("amy"),
    Role("bob", is_retaken=True),
    Role("desk", address=True),
    Role("shop", address=True),
    Role("clerk", address="shop", hold="none"),
    Role("guest"),
)
"""Who only write, ask and answer."""
_SOME = (Role("amy"), Role("desk", address=True), Role("shop", address=True))
"""As many of them as still find time where others do more."""
_ADDRESSES = (Role("desk", address=True), Role("shop", address=True))
"""Whom nothing in the inbox is for: what is sent to them waits in their mailboxes."""


@dataclass(frozen=True)
class Cast:
    """Hold who takes part, and what broker they get."""

    roles: tuple[Role, ...] = WRITERS
    parts: tuple[Callable[[World], Part], ...] = ()
    inbox_entries: int = 0
    """Without an inbox a message for a session that has ended is given up, and its sender told."""
    durability: Durability = "full"


_LETTERS = Cast()
_FLOWS = Cast(_SOME, (Flows,))
_LINKS = Cast(_SOME, (Links,))
_WORK = Cast(_ADDRESSES, (Works,), inbox_entries=6)
_PARTICULAR = Cast(_SOME, (Policies,))
_TASKS = Cast(_SOME, (Invocations,))
_STAGES = Cast(_ADDRESSES, (Runs,))
_FAMILY = Cast(_ADDRESSES, (Children,))
_CASTS = {
    0: _FLOWS,
    1: _WORK,
    2: _TASKS,
    3: _LINKS,
    6: Cast(durability="memory"),
    7: Cast(_SOME, (Flows, Watching)),
    8: _FLOWS,
    9: _WORK,
    10: _TASKS,
    11: _LINKS,
    12: Cast(_SOME, (Invocations, Watching)),
    14: _PARTICULAR,
    15: Cast(_SOME, (Links, Watching)),
}
"""By the rest of a number divided by ``_EVERY``; all others are letters alone."""
_EVERY = 16
_RARER = {13: _STAGES, 21: _FAMILY, 25: _FAMILY, 27: _STAGES}
"""By the rest of a number divided by twice that; they come before the others."""
_RAREST = {
    20: Cast(_ADDRESSES, (Runs,), durability="memory"),
    36: Cast(_ADDRESSES, (Children,), durability="memory"),
    37: Cast(_SOME, (Invocations, Strangers)),
    61: Cast(_SOME, (Policies, Strangers)),
}
"""By the rest of a number divided by four times that; they come first."""


def cast_of(number: int) -> Cast:
    """Return the cast of the world with this number."""
    return (
        _RAREST.get(number % (4 * _EVERY)) or _RARER.get(number % (2 * _EVERY)) or _CASTS.get(number % _EVERY, _LETTERS)
    )
