"""Hold what parts of a world have in common: programs that do one thing a broker is for, and the account of it."""

from __future__ import annotations

import random
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

from intercom.store.history import AnyRecord, read_records
from intercom.store.pair import read_only
from tests.simulation.programs import Program, Role

if TYPE_CHECKING:
    from tests.simulation.machine import Clock
    from tests.simulation.world import World

AnyActor = TypeVar("AnyActor", bound="Actor")


class Part:
    """Add programs to a world, and judge what they were told."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.chance: random.Random = world.chance
        self.clock: Clock = world.clock
        self.count = 0
        """Of the things that were named."""

    def add(self, role: Role, kind: type[AnyActor]) -> AnyActor:
        """Add a program to the world."""
        actor = self.world.program(role, kind)
        actor.part = self
        self.world.programs.append(actor)
        return actor

    def name(self, letter: str) -> str:
        """Return a name that nothing has yet."""
        self.count += 1
        return f"{letter}{self.count}"

    def tell(self, line: str) -> None:
        """Add a line to the story."""
        self.world.account.tell(line)

    def rows(self, kind: type[AnyRecord]) -> list[AnyRecord]:
        """Return what the broker's disk holds of one kind."""
        with closing(read_only(self.world.disk.paths.database)) as connection:
            found = [record for _, record in read_records(connection, kind)]
        return [record for record in found if record is not None]

    def at_rest(self) -> None:
        """Look at everything once nothing is under way; raises ``Broken``."""


class Actor(Program):
    """Be a program of a part."""

    part: Part
