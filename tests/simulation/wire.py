"""Carry bytes between one client and one broker: in any pieces, as late as it pleases, cut off anywhere."""

from __future__ import annotations

import random
from collections.abc import Callable

from intercom.server.link import Link
from tests.simulation.machine import Doom


class Wire:
    """Hold one connection; its broker's end is what ``Link`` takes for a socket.

    What a side has written lies in the wire until the other reads it. ``room`` is what the wire takes of the broker's
    output beyond what lies in it: with little room frames are taken in part.
    """

    def __init__(self, number: int, chance: random.Random, doom: Doom, pid: int) -> None:
        self.number = number
        self.pid = pid
        """Of the client's process."""
        self._chance = chance
        self._doom = doom
        self.upstream = bytearray()
        self.downstream = bytearray()
        self.capacity = chance.choice((40, 300, 4_000, 100_000, 100_000))
        self.client_finished = self.client_gone = False
        self.broker_finished = self.broker_gone = False
        self.is_reset = False
        """The broker's end fails instead of coming to its end."""

    # --- the broker's end, as a socket

    def setblocking(self, flag: bool) -> None:
        """Do nothing: nothing here blocks."""

    def recv_into(self, buffer: bytearray) -> int:
        """Read a piece of what the client wrote."""
        if not self.upstream:
            if self.is_reset:
                raise ConnectionResetError
            if self.client_finished or self.client_gone:
                return 0
            raise BlockingIOError
        count = self._piece(len(self.upstream))
        buffer[:count] = self.upstream[:count]
        del self.upstream[:count]
        return count

    def send(self, data: bytes | memoryview, flags: int) -> int:
        """Take as much as there is room for; the process may die before it or after it."""
        self._doom.point()
        if self.client_gone:
            raise BrokenPipeError
        count = min(len(data), self.room)
        if not count:
            raise BlockingIOError
        self.downstream += data[:count]
        self._doom.point()
        return count

    def shutdown(self, how: int) -> None:
        """End what the broker says."""
        self.broker_finished = True

    def close(self) -> None:
        """End the broker's side."""
        self.broker_finished = self.broker_gone = True

    @property
    def room(self) -> int:
        """Return how many bytes of the broker's output the wire takes now."""
        return max(0, self.capacity - len(self.downstream))

    @property
    def can_be_read(self) -> bool:
        """Tell whether the broker would read something, or the end."""
        return bool(self.upstream) or self.client_finished or self.client_gone

    @property
    def is_abandoned(self) -> bool:
        """Tell whether the client has closed both ways and the broker has read everything."""
        return self.client_gone and not self.upstream

    # --- the client's end

    def write(self, data: bytes) -> None:
        """Write what a client says."""
        if not self.broker_gone and not self.client_finished:
            self.upstream += data

    def read(self) -> bytes | None:
        """Return a piece of what the broker wrote: nothing while nothing is there, ``None`` when it has ended."""
        if not self.downstream:
            return None if self.broker_finished else b""
        count = self._piece(len(self.downstream))
        data = bytes(self.downstream[:count])
        del self.downstream[:count]
        return data

    def finish(self) -> None:
        """End what the client says; it goes on reading."""
        self.client_finished = True

    def leave(self) -> None:
        """End the client's side."""
        self.client_finished = self.client_gone = True

    def cut(self) -> None:
        """End the connection for both, losing any part of what is on its way."""
        for stream in (self.upstream, self.downstream):
            del stream[self._chance.randint(0, len(stream)) :]
        self.is_reset = self._chance.random() < 0.3
        self.leave()
        self.broker_finished = self.broker_gone = True

    def _piece(self, most: int) -> int:
        return most if self._chance.random() < 0.6 else self._chance.randint(1, most)


class WireLink(Link):
    """Be a link over a wire, which has no descriptor the kernel could be asked about."""

    __slots__ = ("wire",)

    def __init__(self, wire: Wire, *arguments: object) -> None:
        self.wire = wire
        super().__init__(wire.number, wire, *arguments)  # type: ignore[arg-type]

    def is_abandoned(self) -> bool:
        """Tell whether the client has closed both ways and all it wrote was read."""
        return self.wire.is_abandoned


Connect = Callable[[Wire], None]
