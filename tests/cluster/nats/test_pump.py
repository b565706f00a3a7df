"""Test what brings posts to the engine, against one that is played."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic_ns
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET, structs

from intercom.cluster.envelope import enclosed, unseal
from intercom.cluster.nats import pump as pumping
from intercom.cluster.nats.access import Unusable
from intercom.cluster.nats.pump import Pump
from intercom.core.records import Post

ANSWER_S = 0.05


class PlayedEngine:
    """Take what is published, and answer when it is told to."""

    def __init__(self) -> None:
        self.client = self
        self.published: asyncio.Queue[tuple[str, dict[str, str]]] = asyncio.Queue()
        self.data: list[bytes] = []
        self.ms: int | None = 5_000_000
        self.asked = 0
        self._answer: Callable[[Any], Awaitable[None]]

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, subject: str, cb: Callable[[Any], Awaitable[None]]) -> None:
        self._answer = cb

    def subject(self, peer: str) -> str:
        return f"mail.{peer}"

    async def publish(self, subject: str, data: bytes, reply: str, headers: dict[str, str]) -> None:
        self.data.append(data)
        self.published.put_nowait((reply, headers))

    async def time_ms(self) -> int | None:
        self.asked += 1
        return self.ms

    async def answer(self, reply: str, data: bytes = b'{"stream":"s","seq":1}') -> None:
        await self._answer(SimpleNamespace(subject=reply, headers=None, data=data))


def post(number: int) -> Post:
    return Post(number, "b", "send", f"d{number}", f"1.{number}", b"{}")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pumping, "_ANSWER_S", ANSWER_S)


def test_a_connection_whose_posts_were_all_answered_goes_on() -> None:
    """Nothing is waited for any more: that nothing more comes says nothing about the engine."""

    async def play() -> None:
        posted: list[int] = []
        engine = PlayedEngine()
        pump = Pump(b"k" * 32, "a", 1, lambda post: posted.append(post.number))
        running = asyncio.create_task(pump.run(engine))  # type: ignore[arg-type]
        for number in (1, 2):
            pump.submit(post(number))
            reply, _ = await engine.published.get()
            await engine.answer(reply)
            done, _ = await asyncio.wait({running}, timeout=3 * ANSWER_S)
            assert not done
        assert posted == [1, 2]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())


@pytest.mark.parametrize("later", [False, True])
def test_an_engine_that_does_not_answer_is_given_up_and_keeps_nothing(later: bool) -> None:
    """Also when it has answered what came before: what it did not store goes to the next connection, in order."""

    async def play() -> None:
        engine = PlayedEngine()
        pump = Pump(b"k" * 32, "a", 1, lambda post: None)
        running = asyncio.create_task(pump.run(engine))  # type: ignore[arg-type]
        pump.submit(post(1))
        reply, _ = await engine.published.get()
        for number in (2, 3):
            pump.submit(post(number))
        if later:
            await engine.answer(reply)
        with pytest.raises(Unusable, match="it does not answer"):
            await asyncio.wait_for(running, 10)
        assert [each.number for each in pump.waiting()] == ([2, 3] if later else [1, 2, 3])

    asyncio.run(play())


def test_what_waits_for_one_broker_goes_together_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 3: in order for each target broker; a copy of the same letters has the same id."""
    monkeypatch.setattr(pumping, "CLUSTER_LETTERS", 3)
    monkeypatch.setattr(pumping, "CLUSTER_LETTERS_BYTES", 20)
    pump = Pump(b"k" * 32, "a", 1, lambda post: None)
    sizes = {1: "b", 2: "c", 3: "b", 4: "b", 5: "b", 6: "c", 7: "b"}
    for number, peer in sizes.items():
        body = b"1" * (15 if number == 5 else 4)
        pump.submit(Post(number, peer, "send", f"d{number}", "1", body))
    together = []
    while pump._waiting:
        together.append([each.number for each in pump._next()])
    assert together == [[1, 3, 4], [2, 6], [5, 7]]


def test_a_copy_of_the_same_letters_is_known_by_the_engine() -> None:
    """The id is made of what names the attempts."""

    async def play() -> None:
        found = []
        for _ in range(2):
            engine = PlayedEngine()
            pump = Pump(b"k" * 32, "a", 1, lambda post: None)
            for number in (1, 2):
                pump.submit(post(number))
            running = asyncio.create_task(pump.run(engine))  # type: ignore[arg-type]
            _, headers = await engine.published.get()
            found.append(headers["Nats-Msg-Id"])
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert found[0] == found[1]

    asyncio.run(play())


@pytest.mark.parametrize("ms", [5_000_000, None])
@pytest.mark.parametrize("limits", [[None], [700], [700, None, -300]], ids=["none", "one", "several"])
def test_until_when_a_letter_is_of_use_is_said_by_the_clock_of_the_engine(
    ms: int | None, limits: list[int | None]
) -> None:
    """protocol 9.5.5: also the time counts that it waited here for a connection; what is not limited asks nothing."""

    async def play() -> None:
        engine = PlayedEngine()
        engine.ms = ms
        pump = Pump(b"k" * 32, "a", 1, lambda post: None)
        began = monotonic_ns() // 1_000_000
        for number, left in enumerate(limits, 1):
            until = None if left is None else began + left
            pump.submit(structs.replace(post(number), valid_until=until))
        running = asyncio.create_task(pump.run(engine))  # type: ignore[arg-type]
        await engine.published.get()
        took = monotonic_ns() // 1_000_000 - began
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        letters = enclosed(unseal(b"k" * 32, engine.data[0], to_broker="b"))
        for letter, left in zip(letters, limits, strict=True):
            if left is None or ms is None:
                assert letter.until is UNSET
            else:
                assert letter.until is not UNSET and ms + left - took <= letter.until + 1 <= ms + left
        assert engine.asked == (limits != [None])

    asyncio.run(play())
