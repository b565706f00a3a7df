"""Carry bytes between a client and a broker in memory; nothing is ever lost but by somebody's end."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from intercom.core.effects import Write
from intercom.limits import FRAME_BYTES
from intercom.wire.framing import FrameReader

if TYPE_CHECKING:
    from intercom.testing.broker import MemoryBroker


class Wire:
    """Hold one connection: bytes in both directions; made by ``MemoryBroker.wire``."""

    def __init__(self, broker: MemoryBroker, number: int) -> None:
        """Begin open."""
        self.number = number
        self.is_open = True
        self._broker = broker
        self._reader = FrameReader(FRAME_BYTES)
        self._outgoing = bytearray()
        """What the client wrote and the broker has not read."""
        self._incoming = bytearray()
        """What the broker wrote and the client has not read."""
        self._queue: deque[Write] = deque()
        """Frames that wait for their commit, or stand behind one that does."""
        self._finishing = False

    def write(self, data: bytes) -> None:
        """Write bytes to the broker, whole frames or not; a closed connection swallows them."""
        if self.is_open:
            self._outgoing += data
            self._broker._turn()

    def read(self) -> bytes:
        """Return what the broker wrote since the last call; ``is_open`` tells whether more can come."""
        data, self._incoming = bytes(self._incoming), bytearray()
        return data

    @property
    def has_data(self) -> bool:
        """Tell whether ``read`` would return anything."""
        return bool(self._incoming)

    def close(self) -> None:
        """End the connection; doing it again does nothing."""
        if self.is_open:
            self._broker._client_ended(self)
            self._broker._turn()

    def _drop(self) -> list[Write]:
        dropped, self._queue = list(self._queue), deque()
        return dropped
