"""The conversations of tests/vectors, played against the core alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from intercom.limits import UNREGISTERED_FRAME_BYTES, Limits
from intercom.wire.capability import capability_for, is_made_with
from intercom.wire.framing import FrameReader, FramingError
from tests.core.harness import World
from tests.support.vectors import VECTORS, conversations, play


class CorePlayer:
    def __init__(self) -> None:
        self.world = World()
        self.clients: dict[str, int] = {}
        self.unread: dict[str, list[dict[str, Any]]] = {}
        self.readers: dict[str, FrameReader] = {}

    def write(self, client: str, frame: dict[str, Any]) -> None:
        number = self._number_of(client)
        self.unread[client].extend(self.world.feed(number, json.dumps(frame).encode()))

    def write_bytes(self, client: str, data: bytes) -> None:
        number = self._number_of(client)
        reader = self.readers.setdefault(client, FrameReader(UNREGISTERED_FRAME_BYTES))
        reader.feed(data)
        try:
            while (payload := reader.next_frame()) is not None:
                self.unread[client].extend(self.world.feed(number, payload))
        except FramingError as error:
            self.world.perform(self.world.broker.protocol_error(number, str(error), self.world.now))

    def _number_of(self, client: str) -> int:
        if client not in self.clients:
            self.clients[client] = self.world.connect()
            self.unread.setdefault(client, [])
        return self.clients[client]

    def read(self, client: str) -> dict[str, Any] | None:
        number = self.clients[client]
        self.world.pass_time(0)
        self.unread[client].extend(self.world.got(number))
        if not self.unread[client] and not self.world.stopped:
            self.world.pass_time(2 * Limits().drain_look_ms)  # a broker that drains looks twice
            self.unread[client].extend(self.world.got(number))
        if self.unread[client]:
            return self.unread[client].pop(0)
        assert self.world.stopped or number in self.world.finished or number in self.world.destroyed, "nothing came"
        return None

    def end(self, client: str) -> None:
        self.world.end(self.clients.pop(client))

    def exit_status(self) -> int:
        assert self.world.stopped
        return 0


@pytest.mark.parametrize("path", conversations(), ids=lambda path: path.stem)
def test_conversation(path: Path) -> None:
    """protocol 8"""
    play(path, CorePlayer())


def test_capability_vector() -> None:
    """protocol 6.6: the test vector"""
    vector = json.loads((VECTORS / "6.6-capability.json").read_text())
    assert capability_for(vector["ownerToken"], vector["childName"], vector["nonce"]) == vector["capability"]
    assert is_made_with(vector["capability"], vector["ownerToken"], vector["childName"])
    assert not is_made_with(vector["capability"], vector["ownerToken"], "another")
