"""Test what is kept for brokers to whom the engine may not be able to hand it out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic_ns
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs
from nats.errors import NoRespondersError

from intercom.cluster.envelope import seal
from intercom.cluster.nats import direct as directly
from intercom.cluster.nats.direct import Direct, ahead_of, ends_here, time_told
from intercom.cluster.nats.engine import passed_ms
from intercom.core.records import Post


def post(number: int) -> Post:
    return Post(number, "b", "send", f"d{number}", "1", b"{}")


def given(direct: Direct) -> list[int]:
    """Return what goes in one turn, when each has come at once."""
    numbers: list[int] = []

    async def bring(posts: list[Post]) -> None:
        numbers.append(posts[0].number)

    async def turn() -> None:
        direct.is_silent = True
        await direct.give_all((), bring)
        seen = 0
        while seen < len(numbers):
            seen += 1
            await direct.came("b", numbers[seen - 1], bring)

    asyncio.run(turn())
    return numbers


def test_what_was_stored_long_ago_or_is_too_much_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is for what the engine may not have handed out: given again much later it might not be known any more."""
    monkeypatch.setattr(directly, "CLUSTER_JUST_STORED_BYTES", 5)
    direct = Direct()
    for number in (1, 2, 3):
        direct.stored([post(number)])
    assert given(direct) == [2, 3]
    direct.had(2)
    assert given(direct) == [3]
    monkeypatch.setattr(directly, "CLUSTER_JUST_STORED_MS", 0)
    assert given(direct) == [] and direct._bytes == 0


def test_what_its_broker_has_is_not_given_again_in_the_same_turn() -> None:
    """It may come through the engine while it waits to go directly."""
    direct = Direct()
    numbers: list[int] = []

    async def bring(posts: list[Post]) -> None:
        numbers.append(posts[0].number)

    async def turn() -> None:
        direct.is_silent = True
        await direct.give_all([[post(1)], [post(2)], [post(3)]], bring)
        direct.had(2)
        await direct.came("b", 1, bring)

    asyncio.run(turn())
    assert numbers == [1, 3]


KEY = bytes(32)


class Asked:
    """Be a connection on which a broker is asked for the time."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self.client = self
        self._answer = answer

    def clock_subject(self, broker_id: str) -> str:
        return f"clock.{broker_id}"

    async def request(self, subject: str, data: bytes, **more: Any) -> Any:
        return SimpleNamespace(data=self._answer(data))


def nobody(asked: bytes) -> bytes:
    raise NoRespondersError


@pytest.mark.parametrize(
    "answer",
    [
        nobody,
        lambda asked: b"{}",
        lambda asked: time_told(bytes(31) + b"1", "a", asked),
        lambda asked: time_told(KEY, "c", asked),
        lambda asked: time_told(KEY, "a", asked + b"0"),
        lambda asked: seal(KEY, "pong", b'{"asked":"%b","ms":1}' % asked, from_broker="a", epoch=0),
        lambda asked: seal(KEY, "clock", b"1", from_broker="a", epoch=0),
    ],
    ids=["nobody", "no envelope", "another key", "another broker", "another question", "another kind", "no time"],
)
def test_only_the_answer_of_the_broker_that_was_asked_tells_its_time(answer: Callable[[bytes], bytes]) -> None:
    """protocol 9.5.5: whoever can write to the engine cannot let a message be shown after its time."""
    engine: Any = Asked(answer)
    assert asyncio.run(ahead_of(engine, KEY, "a")) is None


def test_the_time_of_another_broker_is_told_not_too_early() -> None:
    engine: Any = Asked(lambda asked: time_told(KEY, "a", asked))
    before = passed_ms() - monotonic_ns() // 1_000_000
    ahead = asyncio.run(ahead_of(engine, KEY, "a"))
    assert ahead is not None and before <= ahead <= before + 10_000
    limited = [structs.replace(post(1), valid_until=monotonic_ns() // 1_000_000 + 500), post(2)]
    ends = ends_here(limited)
    assert list(ends) == [1] and ends[1] - ahead <= monotonic_ns() // 1_000_000 + 500
