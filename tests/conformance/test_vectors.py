"""The conversations of tests/vectors, played against a real broker process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers import BrokerProcess
from tests.support.raw import EndOfStream, RawClient, packed
from tests.support.vectors import conversations, play


class BrokerPlayer:
    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.clients: dict[str, RawClient] = {}

    def write(self, client: str, frame: dict[str, Any]) -> None:
        self.write_bytes(client, packed(frame))

    def write_bytes(self, client: str, data: bytes) -> None:
        if client not in self.clients:
            self.clients[client] = RawClient(self.broker.socket)
        self.clients[client].send_bytes(data)

    def read(self, client: str) -> dict[str, Any] | None:
        try:
            return self.clients[client].receive()
        except EndOfStream:
            return None

    def end(self, client: str) -> None:
        self.clients.pop(client).close()

    def exit_status(self) -> int:
        return self.broker.wait()


@pytest.mark.parametrize("path", conversations(), ids=lambda path: path.stem)
def test_conversation(path: Path, broker: BrokerProcess) -> None:
    """protocol 8"""
    player = BrokerPlayer(broker)
    try:
        play(path, player)
    finally:
        for client in player.clients.values():
            client.close()
