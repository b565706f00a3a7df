"""Test what becomes of letters between the engine and the core, without an engine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from intercom.cluster.envelope import SEVERAL, Enclosed, Envelope, enclose, seal
from intercom.cluster.nats.access import Unusable
from intercom.cluster.nats.consumer import Consumer, _check

KEY = bytes(32)


class Message:
    """Be what the engine handed out."""

    reply = "reply-to"
    headers = None

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.acks = 0

    async def ack(self) -> None:
        self.acks += 1


def test_an_envelope_is_let_go_of_when_all_its_letters_are_settled() -> None:
    """Section 2: acknowledged only after our own commit, of every letter in it."""
    arrived: list[tuple[int, Envelope]] = []

    async def play() -> None:
        consumer = Consumer(KEY, "b", lambda number, envelope: arrived.append((number, envelope)), lambda why: None)
        body = enclose(Enclosed("send", f"d{number}", Raw(b"1")) for number in range(3))
        message: Any = Message(seal(KEY, SEVERAL, body, from_broker="a", epoch=1, to_broker="b"))
        await consumer._take(message)
        assert [envelope.delivery_id for _, envelope in arrived] == ["d0", "d1", "d2"]
        for number, _ in (*arrived[1:], *arrived[1:]):
            consumer.settle(number)
        assert not consumer._settled
        consumer.settle(arrived[0][0])
        assert list(consumer._settled) == ["reply-to"] and message.acks == 0

    asyncio.run(play())


@pytest.mark.parametrize("body", [b"[1]", b'[["send"]]'])
def test_letters_that_cannot_be_read_are_let_go_of_and_told(body: bytes) -> None:
    """Section 3: what is foreign is dropped, acknowledged and logged."""
    told: list[str] = []

    async def play() -> None:
        consumer = Consumer(KEY, "b", lambda number, envelope: None, told.append)
        message: Any = Message(seal(KEY, SEVERAL, body, from_broker="a", epoch=1, to_broker="b"))
        await consumer._take(message)
        assert message.acks == 1 and "cannot be read" in told[0]

    asyncio.run(play())


@pytest.mark.parametrize("status", ["404", "408"])
def test_a_wish_that_had_its_time_is_made_again(status: str) -> None:
    _check({"Status": status, "Description": "Request Timeout"})
    _check({"Status": "409", "Description": "Leadership Change"})


@pytest.mark.parametrize(
    ("headers", "said"),
    [({"Status": "503"}, "gone"), ({"Status": "409", "Description": "Consumer Deleted"}, "Consumer Deleted")],
)
def test_a_stream_or_consumer_that_is_gone_ends_the_connection(headers: dict[str, str], said: str) -> None:
    """Section 5: stream deleted by an operator: unavailable with that reason, not asked for in a loop."""
    with pytest.raises(Unusable, match=said):
        _check(headers)
