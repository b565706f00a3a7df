"""Test what brings posts to the engine, against one that is played."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic_ns
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import UNSET, UnsetType, structs
from nats.errors import ConnectionClosedError

from intercom.cluster.envelope import enclosed, unseal
from intercom.cluster.nats import direct as directly
from intercom.cluster.nats import pump as pumping
from intercom.cluster.nats.access import Unusable
from intercom.cluster.nats.direct import CAME
from intercom.cluster.nats.engine import passed_ms
from intercom.cluster.nats.pump import Pump
from intercom.core.records import Post

ANSWER_S = 0.05


class PlayedEngine:
    """Take what is published, and answer when it is told to."""

    def __init__(self) -> None:
        self.client = self
        self.published: asyncio.Queue[tuple[str, dict[str, str]]] = asyncio.Queue()
        self.direct: asyncio.Queue[tuple[str, list[str]]] = asyncio.Queue()
        """What was given to brokers: to whom, and the ids of the letters."""
        self.data: list[bytes] = []
        self.untils: list[int | UnsetType] = []
        self.is_closed = False
        self.ms: int | None = 5_000_000
        self.asked = 0
        self._answer: dict[str, Callable[[Any], Awaitable[None]]] = {}

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, subject: str, cb: Callable[[Any], Awaitable[None]]) -> Any:
        self._answer[subject.partition(".")[2]] = cb
        return self

    async def unsubscribe(self) -> None:
        pass

    def direct_subject(self, peer: str) -> str:
        return f"direct.{peer}"

    def subject(self, peer: str) -> str:
        return f"mail.{peer}"

    async def publish(self, subject: str, data: bytes, reply: str, headers: dict[str, str]) -> None:
        if self.is_closed:
            raise ConnectionClosedError
        if subject.startswith("direct."):
            peer = subject.partition(".")[2]
            letters = enclosed(unseal(b"k" * 32, data, to_broker=peer))
            self.untils = [each.until for each in letters]
            self.direct.put_nowait((peer, [each.delivery_id for each in letters]))
            return
        self.data.append(data)
        self.published.put_nowait((reply, headers))

    async def time_ms(self) -> int | None:
        self.asked += 1
        return self.ms

    async def answer(self, reply: str, data: bytes = b'{"stream":"s","seq":1}') -> None:
        await self._say(SimpleNamespace(subject=reply, headers=None, data=data))

    async def say_that_nobody_is_there(self, reply: str) -> None:
        await self._say(SimpleNamespace(subject=reply, headers={"Status": "503"}, data=b""))

    async def _say(self, message: Any) -> None:
        await self._answer["direct.*.*" if ".direct." in message.subject else "*"](message)

    async def says(self, peer: str, number: int, word: bytes = b"+ACK") -> None:
        """Let a broker say that something has come, or that it has it for good."""
        await self.answer(f"inbox.direct.{peer}.{number}", word)

    async def given(self) -> tuple[str, list[str]]:
        return await asyncio.wait_for(self.direct.get(), 10)


def post(number: int, peer: str = "b") -> Post:
    return Post(number, peer, "send", f"d{number}", f"1.{number}", b"{}")


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


# --- directly -------------------------------------------------------------------------------------------

FAR_S = 600.0
"""A time that does not come in a test."""


def pumped(
    play: Callable[[PlayedEngine, Pump, asyncio.Task[None], list[int]], Awaitable[None]], *, stores: bool = True
) -> None:
    """Let a pump run while something is played."""

    async def run() -> None:
        posted: list[int] = []
        engine: Any = PlayedEngine()
        pump = Pump(b"k" * 32, "a", 1, lambda post: posted.append(post.number))
        running = asyncio.create_task(pump.run(engine, stores=stores))
        await play(engine, pump, running, posted)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is not answered go directly soon, and again; the engine is not given up."""
    monkeypatch.setattr(pumping, "_ANSWER_S", FAR_S)
    monkeypatch.setattr(pumping, "_DIRECT_S", 0.02)
    monkeypatch.setattr(pumping, "_DIRECT_AGAIN_S", 0.02)


@pytest.fixture
def once(direct: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be one turn."""
    monkeypatch.setattr(pumping, "_DIRECT_AGAIN_S", FAR_S)


@pytest.mark.usefixtures("direct")
def test_what_the_engine_does_not_answer_goes_to_its_broker_directly_until_that_has_it() -> None:
    """Section 5, a server that leads stands still: sends go on."""

    async def play(engine: PlayedEngine, pump: Pump, running: asyncio.Task[None], posted: list[int]) -> None:
        pump.submit(post(1))
        assert await engine.given() == ("b", ["d1"])
        await engine.say_that_nobody_is_there("inbox.direct.b.1")
        assert await engine.given() == ("b", ["d1"])
        await engine.says("b", 1, CAME)
        assert await engine.given() == ("b", ["d1"])
        assert posted == []
        await engine.says("b", 1)
        assert posted == [1]
        await engine.says("b", 1)
        await engine.say_that_nobody_is_there("inbox.1")
        await engine.answer("inbox.1", b'{"error":{"description":"no"}}')
        assert posted == [1] and not running.done() and pump._refused is None

    pumped(play)


@pytest.mark.usefixtures("once")
def test_once_silent_the_engine_is_passed_by_until_it_answers() -> None:
    """What follows goes both ways at once; behind an answer of the engine it goes to that alone."""

    async def play(engine: PlayedEngine, pump: Pump, running: asyncio.Task[None], posted: list[int]) -> None:
        pump.submit(post(1))
        assert await engine.given() == ("b", ["d1"])
        await engine.says("b", 1, CAME)
        pump.submit(post(2))
        assert await engine.given() == ("b", ["d2"])
        assert [(await engine.published.get())[0] for _ in range(2)] == ["inbox.1", "inbox.2"]
        await engine.answer("inbox.2")
        assert posted == [2]
        pump.submit(post(3))
        assert (await asyncio.wait_for(engine.published.get(), 10))[0] == "inbox.3"
        await engine.answer("inbox.3")
        assert posted == [2, 3] and engine.direct.empty()

    pumped(play)


async def stored(engine: PlayedEngine, pump: Pump, *posts: Post) -> None:
    """Let the engine store posts, on a connection that ends behind that."""
    running = asyncio.create_task(pump.run(engine))  # type: ignore[arg-type]
    for each in posts:
        pump.submit(each)
        reply, _ = await engine.published.get()
        await engine.answer(reply)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.usefixtures("once")
def test_while_nothing_can_be_stored_all_goes_directly_and_what_was_just_stored_goes_first() -> None:
    """Section 3, order as published: the engine may not be able to hand out what it stored; nobody is told twice."""

    async def play() -> None:
        posted: list[int] = []
        engine: Any = PlayedEngine()
        pump = Pump(b"k" * 32, "a", 1, lambda post: posted.append(post.number))
        await stored(engine, pump, post(1), post(2))
        pump.submit(post(3))
        running = asyncio.create_task(pump.run(engine, stores=False))
        assert await engine.given() == ("b", ["d1"])
        await engine.says("b", 1)
        assert await engine.given() == ("b", ["d2"])
        await engine.says("b", 2, CAME)
        assert await engine.given() == ("b", ["d3"])
        await engine.says("b", 3)
        assert posted == [1, 2, 3] and engine.published.empty()
        pump.submit(post(4))
        assert await engine.given() == ("b", ["d4"])
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())


@pytest.mark.usefixtures("once")
def test_nothing_passes_what_is_not_known_to_have_come() -> None:
    """Section 3, order as published: who begins to listen between two letters is not given the second one first."""

    async def play(engine: PlayedEngine, pump: Pump, running: asyncio.Task[None], posted: list[int]) -> None:
        pump.submit(post(1))
        assert await engine.given() == ("b", ["d1"])
        pump.submit(post(2))
        pump.submit(post(3, "c"))
        assert await engine.given() == ("c", ["d3"])  # what is for others does not wait
        await engine.says("b", 7, CAME)
        assert engine.direct.empty()
        await engine.says("b", 1, CAME)
        assert await engine.given() == ("b", ["d2"])

    pumped(play, stores=False)


@pytest.mark.usefixtures("once")
def test_a_broker_that_is_handed_out_nothing_calls_for_what_is_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 5: the engine may store everything and have nobody who hands it out; nobody else's letters go so."""

    async def play(engine: PlayedEngine, pump: Pump, running: asyncio.Task[None], posted: list[int]) -> None:
        for number, peer in enumerate("bcb", 1):
            pump.submit(post(number, peer))
            reply, _ = await engine.published.get()
            await engine.answer(reply)
        assert posted == [1, 2, 3]
        pump.call("b")
        assert await engine.given() == ("b", ["d1"])
        await engine.says("b", 1)
        assert await engine.given() == ("b", ["d3"])
        await engine.says("b", 3)
        pump.call("b")
        monkeypatch.setattr(directly, "CLUSTER_CALLED_MS", 0)
        for number, peer in enumerate("cb", 4):
            pump.submit(post(number, peer))
        assert await engine.given() == ("b", ["d5"])
        pump.call("b")
        while not engine.published.empty():
            engine.published.get_nowait()
        pump.submit(post(6))
        await asyncio.wait_for(engine.published.get(), 10)
        await asyncio.sleep(0)
        assert engine.direct.empty()

    pumped(play)


@pytest.mark.usefixtures("once")
def test_what_is_of_use_only_for_a_time_says_until_when_by_our_clock() -> None:
    """protocol 9.5.5: the engine's cannot be asked."""

    async def play(engine: PlayedEngine, pump: Pump, running: asyncio.Task[None], posted: list[int]) -> None:
        limited = structs.replace(post(1), valid_until=monotonic_ns() // 1_000_000 + 600_000)
        began = passed_ms()
        pump.submit(limited)
        assert await engine.given() == ("b", ["d1"])
        [until] = engine.untils
        assert until is not UNSET and began + 599_990 <= until <= passed_ms() + 600_000
        assert engine.asked == 0

    pumped(play, stores=False)


@pytest.mark.usefixtures("direct")
def test_a_connection_that_takes_nothing_more_ends_it_and_nothing_is_lost() -> None:
    """Also where it is found out by who gives directly: nobody waits for answers on it."""

    async def play(engine: PlayedEngine, pump: Pump, running: asyncio.Task[None], posted: list[int]) -> None:
        pump.submit(post(1))
        assert await engine.given() == ("b", ["d1"])
        engine.is_closed = True
        with pytest.raises(ConnectionClosedError):
            await asyncio.wait_for(running, 10)
        assert [each.number for each in pump.waiting()] == [1]

    pumped(play)
