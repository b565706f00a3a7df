"""Let somebody claim addresses that belong to others, under a secret of its own."""

from __future__ import annotations

from typing import Any

from intercom.core.features import ADDRESS
from intercom.core.records import AddressRecord
from intercom.testing.keeping import MemoryKeeper
from tests.simulation.account import Broken
from tests.simulation.parts import Actor, Part
from tests.simulation.programs import Role

_PROMPT = 0.2
_AT_LAST = 3
"""How often each tries once all trouble is over."""


class Strangers(Part):
    """Hold one who wants the mail for an address, and one who wants to act under another."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        for role in (Role("max", address="shop"), Role("mia", address="desk", hold="none")):
            self.add(role, Stranger).keeper = MemoryKeeper(world._ids)


class Stranger(Actor):
    """Try to register under an address that somebody has."""

    part: Strangers
    tries_at_last: int = 0

    def start(self) -> None:
        """Begin once the address is on disk, so that it is another one's."""
        is_calm = self.part.world.is_calm
        may_begin = self.tries_at_last < _AT_LAST if is_calm else self.chance.random() < _PROMPT
        if may_begin and self.role.address in {record.name for record in self.part.rows(AddressRecord)}:
            self.tries_at_last += is_calm
            super().start()

    def act(self) -> bool:
        """Wait for what the broker says."""
        return True

    def _look(self) -> None:
        super()._look()
        # A broker that can record nothing grants no address: then it has a session of that name, and no more.
        if self.core is not None and self.is_online and ADDRESS in self.core.lifecycle.features:
            raise Broken("one-owner", f"{self.name} acts under {self.role.address}, which belongs to another one")
