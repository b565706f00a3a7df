"""Test what becomes of letters between the engine and the core, without an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic_ns
from typing import Any

import pytest
from msgspec import Raw

from intercom.cluster.envelope import SEVERAL, Enclosed, Envelope, enclose, seal
from intercom.cluster.nats import consumer as consuming
from intercom.cluster.nats.access import NotNow, Unusable
from intercom.cluster.nats.consumer import Consumer, _is_kept
from intercom.cluster.nats.direct import CAME
from intercom.cluster.parts import Parts

KEY = bytes(32)


class Message:
    """Be what the engine handed out."""

    reply = "reply-to"
    subject = "mail.b"
    headers: dict[str, str] | None = None

    def __init__(self, data: bytes) -> None:
        self.data = data


class Clock:
    """Be an engine that is only asked what time it is."""

    def __init__(self, ms: int | None = None) -> None:
        self.ms = ms
        self.asked = 0

    async def time_ms(self) -> int | None:
        self.asked += 1
        return self.ms

    async def ahead(self, broker_id: str) -> int | None:
        return await consuming._ahead(self)  # type: ignore[arg-type]


def took(engine: Any, data: bytes) -> list[int | None]:
    """Return until when the letters of an envelope are of use, as the core is told."""
    told: list[int | None] = []

    async def play() -> None:
        consumer = Consumer(KEY, "b", lambda number, envelope, until: told.append(until), lambda why: None)
        message: Any = Message(data)
        await consumer._take(message, Parts(), engine.ahead)

    asyncio.run(play())
    return told


def test_an_envelope_is_let_go_of_when_all_its_letters_are_settled() -> None:
    """Section 2: acknowledged only after our own commit, of every letter in it."""
    arrived: list[tuple[int, Envelope]] = []

    engine: Any = Clock()

    async def play() -> None:
        consumer = Consumer(KEY, "b", lambda number, envelope, _: arrived.append((number, envelope)), lambda why: None)
        body = enclose(Enclosed("send", f"d{number}", Raw(b"1")) for number in range(3))
        message: Any = Message(seal(KEY, SEVERAL, body, from_broker="a", epoch=1, to_broker="b"))
        await consumer._take(message, Parts(), engine.ahead)
        assert [envelope.delivery_id for _, envelope in arrived] == ["d0", "d1", "d2"]
        for number, _ in (*arrived[1:], *arrived[1:]):
            consumer.settle(number)
        assert not consumer._settled
        consumer.settle(arrived[0][0])
        assert list(consumer._settled) == ["reply-to"]

    asyncio.run(play())


@pytest.mark.parametrize("body", [b"[1]", b'[["send"]]'])
def test_letters_that_cannot_be_read_are_let_go_of_and_told(body: bytes) -> None:
    """Section 3: what is foreign is dropped, acknowledged and logged."""
    told: list[str] = []
    engine: Any = Clock()

    async def play() -> None:
        consumer = Consumer(KEY, "b", lambda number, envelope, until: None, told.append)
        message: Any = Message(seal(KEY, SEVERAL, body, from_broker="a", epoch=1, to_broker="b"))
        await consumer._take(message, Parts(), engine.ahead)
        assert list(consumer._settled) == ["reply-to"] and "cannot be read" in told[0]

    asyncio.run(play())


class Handing:
    """Be an engine that hands out what a test says."""

    stream = "mail"

    def __init__(self) -> None:
        self.client = self
        self.wishes: asyncio.Queue[str] = asyncio.Queue()
        self.hand: Callable[[Any], Awaitable[None]]

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, subject: str, cb: Callable[[Any], Awaitable[None]]) -> None:
        self.hand = cb

    async def publish(self, subject: str, data: bytes, reply: str) -> None:
        assert subject == "$JS.API.CONSUMER.MSG.NEXT.mail.broker_b"
        self.wishes.put_nowait(reply)


def letter(number: int) -> Any:
    return Message(seal(KEY, "send", b"1", from_broker="a", epoch=1, to_broker="b", delivery_id=f"d{number}"))


def said(wish: int, **headers: str) -> Any:
    message = Message(b"")
    message.subject, message.headers = f"inbox.{wish}", headers
    return message


def consumed(told: Callable[[str], None], play: Callable[[Handing, asyncio.Task[None]], Awaitable[None]]) -> None:
    """Let a consumer run while something is played; it has made its first wish then."""

    async def run() -> None:
        engine: Any = Handing()
        consumer = Consumer(KEY, "b", lambda number, envelope, until: told(envelope.delivery_id), lambda why: None)
        running = asyncio.create_task(consumer.run(engine))
        assert await asyncio.wait_for(engine.wishes.get(), 10) == "inbox.1"
        await play(engine, running)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await engine.hand(letter(99))

    asyncio.run(run())


def test_there_is_a_wish_at_the_engine_at_all_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is handed out is taken in its order, and nothing any more after the end."""
    monkeypatch.setattr(consuming, "CLUSTER_BATCH", 3)
    monkeypatch.setattr(consuming, "CLUSTER_WISH_BEAT_MS", 600_000)
    told: list[str] = []

    async def play(engine: Handing, running: asyncio.Task[None]) -> None:
        for number in range(3):
            assert engine.wishes.empty()
            await engine.hand(letter(number))
        assert await asyncio.wait_for(engine.wishes.get(), 10) == "inbox.2"  # all of the first came
        await engine.hand(letter(3))
        await engine.hand(said(2, Status="408", Description="Request Timeout"))
        assert await asyncio.wait_for(engine.wishes.get(), 10) == "inbox.3"
        await engine.hand(said(2, Status="408", Description="Request Timeout"))  # over for the second time
        await engine.hand(said(3, Status="100", Description="Idle Heartbeat"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert engine.wishes.empty()
        await engine.hand(said(3, Status="408", Description="Request Timeout"))
        assert await asyncio.wait_for(engine.wishes.get(), 10) == "inbox.4"

    consumed(told.append, play)
    assert told == ["d0", "d1", "d2", "d3"]


def test_a_wish_of_which_nothing_is_heard_is_lost_with_whoever_kept_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 5, a server that handed out is killed or stands still: nobody waits for what it does not hand out."""
    monkeypatch.setattr(consuming, "CLUSTER_WISH_BEAT_MS", 40)

    async def play(engine: Handing, running: asyncio.Task[None]) -> None:
        for _ in range(4):
            await asyncio.wait({running}, timeout=0.02)
            await engine.hand(said(1, Status="100", Description="Idle Heartbeat"))
        with pytest.raises(NotNow, match="hands out nothing more"):
            await asyncio.wait_for(running, 10)

    consumed(lambda delivery_id: None, play)


def test_what_makes_it_impossible_to_go_on_ends_the_connection() -> None:
    """Section 5: unavailable with that reason; also where what comes cannot be taken."""

    async def gone(engine: Handing, running: asyncio.Task[None]) -> None:
        await engine.hand(said(1, Status="409", Description="Consumer Deleted"))
        with pytest.raises(Unusable, match="Consumer Deleted"):
            await asyncio.wait_for(running, 10)

    async def broken(engine: Handing, running: asyncio.Task[None]) -> None:
        await engine.hand(letter(0))
        with pytest.raises(ValueError, match="no room"):
            await asyncio.wait_for(running, 10)

    def refuse(delivery_id: str) -> None:
        raise ValueError("no room")

    consumed(lambda delivery_id: None, gone)
    consumed(refuse, broken)


@pytest.mark.parametrize("status", ["404", "408"])
def test_a_wish_that_had_its_time_is_made_again(status: str) -> None:
    assert not _is_kept({"Status": status, "Description": "Request Timeout"})
    assert not _is_kept({"Status": "409", "Description": "Leadership Change"})
    assert _is_kept({"Status": "100", "Description": "Idle Heartbeat"})


@pytest.mark.parametrize(
    ("headers", "said"),
    [({"Status": "503"}, "gone"), ({"Status": "409", "Description": "Consumer Deleted"}, "Consumer Deleted")],
)
def test_a_stream_or_consumer_that_is_gone_ends_the_connection(headers: dict[str, str], said: str) -> None:
    """Section 5: stream deleted by an operator: unavailable with that reason, not asked for in a loop."""
    with pytest.raises(Unusable, match=said):
        _is_kept(headers)


def test_how_long_a_letter_lay_in_the_engine_is_told_by_the_clock_of_that() -> None:
    """protocol 9.5.5; section 5: no clock of another machine counts, only that of the engine."""
    engine = Clock(5_000_000)
    letters = [Enclosed("send", "d0", Raw(b"1"), 5_000_700), Enclosed("send", "d1", Raw(b"1"))]
    began = monotonic_ns() // 1_000_000
    several = took(engine, seal(KEY, SEVERAL, enclose(letters), from_broker="a", epoch=1, to_broker="b"))
    [late] = took(engine, seal(KEY, "send", b"1", from_broker="a", epoch=1, to_broker="b", until=4_999_000))
    ended = monotonic_ns() // 1_000_000
    assert several[0] is not None and began + 699 <= several[0] <= ended + 699 and several[1] is None
    assert late is not None and began - 1_001 <= late <= ended - 1_001 and engine.asked == 2


def test_a_letter_whose_age_cannot_be_told_is_of_use_until_no_time_at_all() -> None:
    """What the core makes of that: tests/core/test_abroad.py."""
    data = seal(KEY, "send", b"1", from_broker="a", epoch=1, to_broker="b", until=4_999_000)
    assert took(Clock(None), data) == [None]


def test_what_is_not_limited_asks_the_engine_for_no_time() -> None:
    engine = Clock(5_000_000)
    assert took(engine, seal(KEY, "send", b"1", from_broker="a", epoch=1, to_broker="b")) == [None]
    assert engine.asked == 0


class Listening(Handing):
    """Be an engine where others give something directly."""

    def __init__(self) -> None:
        super().__init__()
        self.subjects: list[str] = []
        self.told: list[tuple[str, bytes]] = []
        self.is_over = False

    def direct_subject(self, broker_id: str) -> str:
        return f"direct.{broker_id}"

    async def subscribe(self, subject: str, cb: Callable[[Any], Awaitable[None]]) -> Any:
        self.subjects.append(subject)
        await super().subscribe(subject, cb)
        return self

    async def unsubscribe(self) -> None:
        self.is_over = True

    async def publish(self, subject: str, data: bytes, reply: str = "") -> None:
        self.told.append((subject, data))


def test_what_is_given_directly_is_answered_once_it_is_settled_and_not_what_is_foreign() -> None:
    """Section 3: taken only after our own commit; section 5: nothing is lost while the engine has nobody to decide."""
    arrived: list[tuple[int, str]] = []
    foreign: list[str] = []

    async def play() -> None:
        engine: Any = Listening()
        consumer = Consumer(KEY, "b", lambda number, it, _: arrived.append((number, it.delivery_id)), foreign.append)
        running = asyncio.create_task(consumer.listen(engine))
        await asyncio.sleep(0)
        assert engine.subjects == ["direct.b"]
        foreign_one = letter(9)
        foreign_one.data = foreign_one.data.replace(b"d9", b"d8")
        await engine.hand(foreign_one)
        assert not engine.told and len(foreign) == 1 and list(consumer._settled) == ["reply-to"]
        consumer._settled.clear()
        await engine.hand(letter(1))
        assert arrived == [(1, "d1")] and not consumer._settled
        assert engine.told == [("reply-to", CAME)]
        consumer.settle(1)
        assert list(consumer._settled) == ["reply-to"]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert engine.is_over

    asyncio.run(play())


@pytest.mark.parametrize("is_told", [True, False])
def test_what_is_of_use_for_a_time_and_given_directly_is_judged_by_the_clock_of_who_gave_it(is_told: bool) -> None:
    """protocol 9.5.5: the engine's clock cannot be asked then; what cannot be judged is not taken, and comes again."""
    until: list[int | None] = []
    own_ms = 7_000_000

    async def play() -> None:
        engine: Any = Listening()

        async def request(subject: str, asked: bytes, **more: Any) -> Any:
            assert subject == "clock.a"
            told = asked if is_told else b"an earlier one"
            body = b'{"asked":"%b","ms":%d}' % (told, own_ms)
            return Message(seal(KEY, "clock", body, from_broker="a", epoch=1))

        engine.request = request
        engine.clock_subject = lambda broker_id: f"clock.{broker_id}"
        consumer = Consumer(KEY, "b", lambda number, envelope, each: until.append(each), lambda why: None)
        running = asyncio.create_task(consumer.listen(engine))
        await asyncio.sleep(0)
        began = monotonic_ns() // 1_000_000
        data = seal(KEY, "send", b"1", from_broker="a", epoch=1, to_broker="b", until=own_ms + 600)
        await engine.hand(Message(data))
        ended = monotonic_ns() // 1_000_000
        if is_told:
            assert until[0] is not None and began + 599 <= until[0] <= ended + 599
            assert engine.told == [("reply-to", CAME)]
        else:
            assert not until and not engine.told and not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(play())


def test_who_may_take_nothing_more_ends_the_connection_and_takes_nothing_behind_it() -> None:
    told: list[str] = []

    def refuse(number: int, envelope: Envelope, until: int | None) -> None:
        told.append(envelope.delivery_id)
        raise Unusable("stood still")

    async def play() -> None:
        engine: Any = Listening()
        consumer = Consumer(KEY, "b", refuse, lambda why: None)
        running = asyncio.create_task(consumer.listen(engine))
        await asyncio.sleep(0)
        await engine.hand(letter(1))
        await engine.hand(letter(2))
        with pytest.raises(Unusable, match="stood still"):
            await asyncio.wait_for(running, 10)
        assert engine.is_over

    asyncio.run(play())
    assert told == ["d1"]


def test_a_new_connection_begins_with_nothing_of_the_one_before() -> None:
    """What was not settled comes again; the word that something was settled belongs to the connection it came on."""

    async def play() -> None:
        consumer = Consumer(KEY, "b", lambda number, envelope, until: None, lambda why: None)
        for number in (1, 2):
            await consumer._take(letter(number), Parts(), Clock().ahead)
        consumer.settle(1)
        consumer.begin_anew()
        consumer.settle(2)
        assert not consumer._settled

    asyncio.run(play())
