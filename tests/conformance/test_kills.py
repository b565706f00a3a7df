"""A broker that ends at random moments, and what its answers are worth afterwards."""

from __future__ import annotations

import random
import select
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.brokers import BrokerProcess, patched
from tests.support.raw import PATIENCE_S, EndOfStream, RawClient

pytestmark = pytest.mark.long

SENDS = 2_000
WINDOW = 16
ENDS = 10
CONFIRMING = {"acknowledgesReceipt": True}
FEW_AT_ONCE = patched("limits.RECALL_ROWS = 50")
"""Operations come back in pages after every start."""


class Traffic:
    """Send numbered messages from one session to another, again under their ids when the broker ended in between."""

    def __init__(self, start_broker: Callable[..., BrokerProcess], *, confirms: bool) -> None:
        self.start_broker = start_broker
        self.confirms = confirms
        self.unanswered: dict[str, bool] = {}
        self.delivered: set[str] = set()
        self.refused: dict[str, str] = {}
        self.seen: Counter[str] = Counter()
        self.attempts = 0
        self.sender_id = self.receiver_id = ""
        self.connect()

    def connect(self) -> None:
        self.broker = self.start_broker(settings={"watchdog": False}, command=FEW_AT_ONCE)
        self.receiver, self.receiver_id = self.join("receiver", self.receiver_id, CONFIRMING if self.confirms else {})
        self.sender, self.sender_id = self.join("sender", self.sender_id, {})
        for message_id in self.unanswered:
            self.write(message_id)

    def join(self, name: str, session_id: str, extra: dict[str, Any]) -> tuple[RawClient, str]:
        client = self.broker.connect()
        wish = {"preferredSessionId": session_id} if session_id else {}
        registered = client.register(name, returnAddress=f"return-{name}", **wish, **extra)
        assert not session_id or registered["sessionId"] == session_id
        return client, registered["sessionId"]

    def write(self, message_id: str) -> None:
        self.attempts += 1
        self.unanswered[message_id] = True
        self.sender.send_message(self.receiver_id, message_id, f"text of {message_id}", attemptId=f"{self.attempts}")

    def step(self, timeout: float) -> bool:
        """Handle one frame of either side; False when a connection ended or nothing came."""
        for client in (self.receiver, self.sender):
            if client.has_frame:
                break
        else:
            ready, _, _ = select.select([self.receiver.socket, self.sender.socket], [], [], timeout)
            if not ready:
                return False
            client = self.receiver if self.receiver.socket in ready else self.sender
        try:
            frame = client.receive(timeout)
        except (EndOfStream, ConnectionResetError):
            return False
        if client is self.receiver and frame["type"] == "message":
            self.seen[frame["message"]["id"]] += 1
            if self.confirms:
                client.send({"type": "received", "messageId": frame["message"]["id"]})
        elif frame["type"] in ("delivered", "delivery_failed"):
            assert self.unanswered.pop(frame["messageId"], None), f"answered twice: {frame}"
            if frame["type"] == "delivered":
                self.delivered.add(frame["messageId"])
            else:
                self.refused[frame["messageId"]] = frame["reason"]
        return True

    def drain(self) -> None:
        """Read what the kernel still holds of an ended broker."""
        for client in (self.receiver, self.sender):
            while True:
                try:
                    frame = client.receive(PATIENCE_S)
                except (EndOfStream, ConnectionResetError):
                    break
                if client is self.receiver and frame["type"] == "message":
                    self.seen[frame["message"]["id"]] += 1
                elif frame["type"] == "delivered":
                    self.unanswered.pop(frame["messageId"], None)
                    self.delivered.add(frame["messageId"])
                elif frame["type"] == "delivery_failed":
                    self.unanswered.pop(frame["messageId"], None)
                    self.refused[frame["messageId"]] = frame["reason"]
            client.close()

    def run(self, end: Callable[[BrokerProcess], object], chance: random.Random) -> None:
        moments = sorted(chance.sample(range(50, 4 * SENDS), ENDS))
        steps, sent = 0, 0
        while sent < SENDS or self.unanswered:
            try:
                while sent < SENDS and len(self.unanswered) < WINDOW:
                    sent += 1
                    self.write(f"m{sent}")
                alive = True
                if moments and steps >= moments[0]:
                    moments.pop(0)
                    end(self.broker)
                    alive = False
                else:
                    steps += 1
                    alive = self.step(PATIENCE_S)
            except (BrokenPipeError, ConnectionResetError):
                alive = False
            if not alive:
                self.drain()
                self.connect()
        self.sender.close()
        self.receiver.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("confirms", [False, True], ids=["plain", "confirming"])
def test_what_was_called_delivered_arrived_and_nothing_arrived_twice(
    start_broker: Callable[..., BrokerProcess], confirms: bool
) -> None:
    """protocol 6.9, 6.10: kill -9 during 2 000 sends, each retried under its id"""
    traffic = Traffic(start_broker, confirms=confirms)
    traffic.run(BrokerProcess.kill, random.Random(20261129))
    assert len(traffic.delivered) + len(traffic.refused) == SENDS
    assert traffic.delivered <= traffic.seen.keys()
    assert all(reason.startswith("Outcome unknown") for reason in traffic.refused.values())
    if confirms:
        assert not traffic.refused, "a recipient that confirms receipts can always be sent a copy"
    else:
        assert max(traffic.seen.values()) == 1


@pytest.mark.timeout(120)
@pytest.mark.parametrize("confirms", [False, True], ids=["plain", "confirming"])
def test_a_graceful_stop_costs_nobody_anything(start_broker: Callable[..., BrokerProcess], confirms: bool) -> None:
    """design 5, Stop: every retry after it succeeds"""
    traffic = Traffic(start_broker, confirms=confirms)
    traffic.run(BrokerProcess.stop, random.Random(42))
    assert not traffic.refused
    assert len(traffic.delivered) == SENDS
    assert traffic.delivered <= traffic.seen.keys()
    if not confirms:
        assert max(traffic.seen.values()) == 1
