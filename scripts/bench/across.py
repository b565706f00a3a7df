"""Measure messages between two brokers against the bare engine between them, and what the engine costs local ones.

Everything runs on this machine: a NATS server, brokers that reach each other through it, and this process, which plays
the sessions on raw sockets. The bare engine is used from this process too, with the client library that brokers use:
published with acknowledgement, fetched by a pull consumer, acknowledged. A bare round trip has two commits in it, one
before each way, made by the store of a broker.

What is compared takes turns in short blocks, whose order changes, after both sides have run for a while: so what else
this machine does meets both alike. While the same processes run, the ratio is the median of those of the blocks; each
repetition begins with new ones. A bound counts as reached, or missed, when the median of all ratios is on that side of
it with fifteen parts of sixteen certainty.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from math import comb
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from intercom.core.records import OperationRecord, OperationState, SaveOperation
from intercom.paths import Paths
from intercom.store.database import Store
from scripts.bench import machine
from scripts.bench.report import number
from tests.support.brokers import BrokerProcess
from tests.support.engines import NatsServer, one_server
from tests.support.raw import RawClient

PAIRS = 8
IN_FLIGHT = 16
"""Of each pair."""
MESSAGES = 2_000
"""Of each side in a block."""
ROUND_TRIPS = 50
LOCAL_MESSAGES = 4_000
BLOCKS = 12
"""Of each side, while the same processes run."""
DOUBT = 1 / 16
"""How often at most the median lies beside the interval that a verdict rests on."""
LOCAL_TWINS = 4
"""How often two brokers are started in a repetition whose local messages are compared: of two of one kind, too, one is
some hundredths faster than the other for all its life."""
WARM_S = 1.5
"""How long each side runs before it is measured."""
TEXT = "x" * 256
SEEN_AFTER_S = 1.0
"""Until everybody is known everywhere: that they come is not what is measured."""
WAIT_S = 120.0
REPETITIONS = 5
MUST = {"one-way": 0.4, "round trip": 3.0, "local": 0.95}


class Session(asyncio.Protocol):
    """Be one session on a raw socket; ``taken`` gets every frame."""

    def __init__(self, taken: Callable[[Session, dict[str, Any]], None]) -> None:
        self._taken = taken
        self._left = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way to the broker."""
        self._transport = transport  # type: ignore[assignment]  # of a stream it is one

    def data_received(self, data: bytes) -> None:
        """Cut frames and hand them on."""
        data, at = self._left + data, 0
        while len(data) - at >= 4:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                break
            self._taken(self, msgspec.json.decode(data[at + 4 : end]))
            at = end
        self._left = data[at:]

    def write(self, **members: Any) -> None:
        """Write a frame."""
        payload = msgspec.json.encode(members)
        self._transport.write(struct.pack(">I", len(payload)) + payload)

    def end(self) -> None:
        """Leave."""
        self._transport.close()


class Play:
    """Hold sessions on two brokers, or two on one: senders of the first, recipients of the other."""

    def __init__(self, near: Path, far: Path) -> None:
        self._places = (near, far)
        self._sessions: list[Session] = []
        self._ids: asyncio.Queue[str] = asyncio.Queue()
        self._done = asyncio.Event()
        self.sent = self.settled = 0
        self._most = 0
        self._senders: list[tuple[Session, str]] = []
        self._of: dict[Session, tuple[Session, str]] = {}
        self.failures: list[str] = []
        self._began: dict[str, float] = {}
        self.took: list[float] = []

    async def enter(self, pairs: int) -> None:
        """Register the sessions of so many pairs, and wait until senders can see recipients."""
        loop = asyncio.get_running_loop()
        for pair in range(pairs):
            found = []
            for place, name in zip(self._places, (f"from-{pair}", f"to-{pair}"), strict=True):
                _, session = await loop.create_unix_connection(lambda: Session(self._take), str(place))
                moment = int(time.time() * 1_000)
                about = {"name": name, "cwd": "/", "model": "bench", "pid": os.getpid()}
                info = {**about, "startedAt": moment, "lastActivity": moment}
                session.write(
                    type="register", session=info, acknowledgesReceipt=True, returnAddress=f"r-{name}-{moment}"
                )
                self._sessions.append(session)
                found.append((session, await self._ids.get()))
            self._senders.append((found[0][0], found[1][1]))
            self._of[found[1][0]] = found[0]
        await asyncio.sleep(SEEN_AFTER_S)

    async def one_way(self, messages: int) -> float:
        """Send messages and wait for every outcome; return how many that were in a second."""
        began = time.perf_counter()
        await self._run(messages, IN_FLIGHT, self._send)
        return messages / (time.perf_counter() - began)

    async def round_trips(self, count: int) -> float:
        """Ask and wait for the answer, one after the other; return the median in ms."""
        self.took.clear()
        await self._run(count, 1, self._ask)
        return median(self.took) * 1_000

    async def _run(self, most: int, in_flight: int, begin: Callable[[Session, str], None]) -> None:
        self.sent, self.settled, self._most, self._begin = 0, 0, most, begin
        self._done.clear()
        for _ in range(in_flight):
            for session, to in self._senders:
                self._next(session, to)
        async with asyncio.timeout(WAIT_S):
            await self._done.wait()

    def _next(self, session: Session, to: str) -> None:
        if self.sent < self._most:
            self.sent += 1
            self._begin(session, to)

    def _send(self, session: Session, to: str, **more: Any) -> None:
        message_id = os.urandom(16).hex()
        self._began[message_id] = time.perf_counter()
        message = {"id": message_id, "timestamp": 1, "content": {"text": TEXT}, **more}
        session.write(type="send", to=to, message=message, attemptId="1")

    def _ask(self, session: Session, to: str) -> None:
        self._send(session, to, expectsReply=True)

    def _take(self, session: Session, frame: dict[str, Any]) -> None:
        kind = frame["type"]
        if kind == "registered":
            self._ids.put_nowait(frame["sessionId"])
        elif kind == "message":
            self._take_message(session, frame)
        elif kind == "delivery_failed":
            self.failures.append(frame["reason"])
            self._settled(session)
        elif kind == "delivered" and self._begin == self._send and session not in self._of:
            self._settled(session)

    def _take_message(self, session: Session, frame: dict[str, Any]) -> None:
        message = frame["message"]
        session.write(type="received", messageId=message["id"])
        if message.get("expectsReply"):
            answer = {"id": os.urandom(16).hex(), "timestamp": 1, "content": {"text": TEXT}, "replyTo": message["id"]}
            session.write(type="send", to=frame["from"]["id"], message=answer, attemptId="1")
        elif (asked := message.get("replyTo")) is not None:
            self.took.append(time.perf_counter() - self._began[asked])
            self._settled(session)

    def _settled(self, session: Session) -> None:
        self.settled += 1
        if self.settled >= self._most:
            self._done.set()
        else:
            to = next(to for sender, to in self._senders if sender is session)
            self._next(session, to)

    def leave(self) -> None:
        """End all sessions; raise if anything was refused."""
        for session in self._sessions:
            session.end()
        if self.failures:
            raise SystemExit(f"{len(self.failures)} messages failed: {self.failures[0]}")


# --- the bare engine ------------------------------------------------------------------------------------


class Bare:
    """Use the engine without brokers: two connections, a stream, and a consumer at each end.

    Args:
        server: of the engine.
        directory: where the store lies whose commits are in a round trip.
    """

    def __init__(self, server: NatsServer, directory: Path) -> None:
        self._url = server.url
        self._store = Store.open(Paths(directory), int(time.time() * 1_000))
        self._commits = 0

    async def enter(self) -> None:
        """Connect, and make what is needed."""
        import nats

        self._near, self._far = await nats.connect(self._url), await nats.connect(self._url)
        self._js, self._far_js = self._near.jetstream(), self._far.jetstream()
        await self._js.add_stream(name="bare", subjects=["bare.>"], retention="workqueue")
        self._back = await self._js.pull_subscribe("bare.a", durable="a")
        self._there = await self._far_js.pull_subscribe("bare.b", durable="b")

    async def leave(self) -> None:
        """End the connections, and close the store."""
        await self._near.close()
        await self._far.close()
        self._store.close()

    async def one_way(self, messages: int) -> float:
        """Publish with acknowledgement and consume with acknowledgement; return messages in a second."""
        window = asyncio.Semaphore(PAIRS * IN_FLIGHT)
        body = TEXT.encode()

        async def publish() -> None:
            try:
                await self._js.publish("bare.b", body)
            finally:
                window.release()

        async def consume() -> None:
            left = messages
            while left:
                for message in await self._there.fetch(min(64, left), timeout=WAIT_S):
                    await message.ack()
                    left -= 1

        began = time.perf_counter()
        consuming = asyncio.create_task(consume())
        publishing = []
        for _ in range(messages):
            await window.acquire()
            publishing.append(asyncio.create_task(publish()))
        await asyncio.gather(*publishing, consuming)
        return messages / (time.perf_counter() - began)

    async def round_trips(self, count: int) -> float:
        """Commit, bring a message there, commit, and bring another back, all acknowledged; return the median in ms."""
        body, took = TEXT.encode(), []

        async def answer() -> None:
            for _ in range(count):
                [message] = await self._there.fetch(1, timeout=WAIT_S)
                self._commit()
                await self._far_js.publish("bare.a", body)
                await message.ack()

        answering = asyncio.create_task(answer())
        for _ in range(count):
            began = time.perf_counter()
            self._commit()
            await self._js.publish("bare.b", body)
            [message] = await self._back.fetch(1, timeout=WAIT_S)
            took.append(time.perf_counter() - began)
            await message.ack()
        await answering
        return median(took) * 1_000

    def _commit(self) -> None:
        """Make a row durable that says that a message was reserved."""
        self._commits += 1
        row = OperationRecord(
            number=self._commits,
            message_id=os.urandom(16).hex(),
            state=OperationState.RESERVED,
            signature=os.urandom(32),
            sender="session:a",
            target="session:b",
            sender_session="a",
            recipient_session="b",
            reserved_at=int(time.time() * 1_000),
        )
        self._store.commit([(self._commits, (SaveOperation(row),))])


# --- one repetition -------------------------------------------------------------------------------------


class Homes:
    """Hold an engine and brokers in fresh homes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.server = one_server(directory / "nats")
        self._brokers: list[BrokerProcess] = []
        key = directory / "mesh.key"
        key.write_bytes(bytes(range(32)))
        key.chmod(0o600)

    def home(self, name: str) -> Path:
        """Make a directory."""
        home = self.directory / name
        home.mkdir(mode=0o700)
        return home

    def join(self, home: Path) -> None:
        """Let the broker of a home be in the cluster."""
        (home / "intercom.toml").write_text(
            f'[cluster]\nurl = "{self.server.url}"\nkey_file = "{self.directory}/mesh.key"\nnode = "{home.name}"\n'
        )

    def broker(self, name: str, *, is_joined: bool = True) -> BrokerProcess:
        """Start a broker, and wait until it is in the cluster when it is to be."""
        home = self.home(name)
        if is_joined:
            self.join(home)
        broker = BrokerProcess(home, apart=True)
        self._brokers.append(broker)
        if is_joined:
            wait_until_on(broker.socket)
        return broker

    def close(self) -> None:
        """End everything."""
        for broker in self._brokers:
            broker.close()
        self.server.close()


def wait_until_on(place: Path) -> None:
    """Return when the broker at this socket is in its cluster."""
    with closing(RawClient(place)) as client:
        while client.status()["multiNode"]["status"] != "on":
            time.sleep(0.01)


Block = Callable[[], Awaitable[float]]
Pair = tuple[float, float]
"""What one block gave: ours, and what it is compared with."""


class Compared(msgspec.Struct, frozen=True):
    """Hold what two sides gave while the same processes ran."""

    ours: float
    theirs: float
    ratio: float


def compared(pairs: Sequence[Pair]) -> Compared:
    """Return the medians of blocks, and that of their ratios."""
    ours, theirs = zip(*pairs, strict=True)
    return Compared(median(ours), median(theirs), median(our / their for our, their in pairs))


async def in_turns(ours: Block, theirs: Block) -> list[Pair]:
    """Let two sides run alone for a while, then in blocks by turns; return what these gave."""
    for side in (ours, theirs):
        until = time.perf_counter() + WARM_S
        while time.perf_counter() < until:
            await side()
    found = []
    for place in range(BLOCKS):
        if place % 2:
            found.append((await ours(), await theirs()))
        else:
            other = await theirs()
            found.append((await ours(), other))
    return found


async def across(homes: Homes) -> dict[str, list[Compared]]:
    """Compare what crosses between two brokers with the bare engine."""
    near, far = homes.broker("near"), homes.broker("far")
    bare = Bare(homes.server, homes.home("bare"))
    await bare.enter()
    found: dict[str, list[Compared]] = {}
    many = Play(near.socket, far.socket)
    await many.enter(PAIRS)
    pairs = await in_turns(lambda: many.one_way(MESSAGES), lambda: bare.one_way(MESSAGES))
    found["one-way"] = [compared(pairs)]
    many.leave()
    one = Play(near.socket, far.socket)
    await one.enter(1)
    pairs = await in_turns(lambda: one.round_trips(ROUND_TRIPS), lambda: bare.round_trips(ROUND_TRIPS))
    found["round trip"] = [compared(pairs)]
    one.leave()
    await bare.leave()
    return found


async def local(homes: Homes) -> dict[str, list[Compared]]:
    """Compare brokers that are in a cluster with ones that are in none, as new and as busy as the others."""
    homes.broker("peer")
    found: list[Compared] = []
    for twins in range(LOCAL_TWINS):
        joined, alone = homes.broker(f"joined-{twins}"), homes.broker(f"alone-{twins}", is_joined=False)
        plays = [Play(broker.socket, broker.socket) for broker in (joined, alone)]
        for play in plays:
            await play.enter(PAIRS)
        first, second = (lambda play=play: play.one_way(LOCAL_MESSAGES) for play in plays)
        found.append(compared(await in_turns(first, second)))
        for play in plays:
            play.leave()
        for broker in (joined, alone):
            broker.close()
    return {"local": found}


def repetition(directory: Path) -> dict[str, list[Compared]]:
    """Measure everything once."""
    found: dict[str, list[Compared]] = {}
    for scene in (across, local):
        place = directory / scene.__name__
        place.mkdir()
        with closing(Homes(place)) as homes:
            found |= asyncio.run(scene(homes))
    return found


# --- what is said ---------------------------------------------------------------------------------------


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return between what the median of many more is, but for ``DOUBT``; of fewer than five the lowest and highest."""
    ordered, count = sorted(values), len(values)
    left_out, doubt = 0, 2 * comb(count, 0) / 2**count
    while doubt + 2 * comb(count, left_out + 1) / 2**count <= DOUBT:
        left_out += 1
        doubt += 2 * comb(count, left_out) / 2**count
    return ordered[left_out], ordered[-1 - left_out]


def verdict(ratios: Sequence[float], bound: float, *, is_most: bool = False) -> str:
    """Return whether a bound is reached, or missed, by the whole of the interval."""
    reached = [end <= bound if is_most else end >= bound for end in interval(ratios)]
    return "reached" if all(reached) else "not settled" if any(reached) else "missed"


TITLES = {
    "one-way": (
        f"between machines, {PAIRS} pairs, {IN_FLIGHT} in flight each, messages/s with their outcome",
        f"JetStream, {PAIRS * IN_FLIGHT} in flight",
    ),
    "round trip": (
        "between machines, question and answer, ms, p50",
        "JetStream there and back with two commits",
    ),
    "local": (f"on one machine in a cluster, {PAIRS} pairs, {IN_FLIGHT} in flight each, messages/s", "in none"),
}
"""What is measured, and what it is compared with."""


def spread(values: Sequence[float]) -> str:
    """Return the median with the lowest and the highest."""
    return f"{number(median(values))} ({number(min(values))} to {number(max(values))})"


def lines(results: dict[str, list[Compared]]) -> list[str]:
    """Return the table and whether each bound is reached."""
    found = [
        "| measured | intercom | beside | ratio | must |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, (title, beside) in TITLES.items():
        each = results[name]
        ratios = [one.ratio for one in each]
        is_most = name == "round trip"
        must = f"at {'most' if is_most else 'least'} {MUST[name]:g} ×: {verdict(ratios, MUST[name], is_most=is_most)}"
        ours, theirs = spread([one.ours for one in each]), spread([one.theirs for one in each])
        ratio = " to ".join(map(number, interval(ratios)))
        found.append(f"| {title} | {ours} | {theirs} {beside} | {number(median(ratios))} × ({ratio}) | {must} |")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench/across", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help=f"default {REPETITIONS}")
    options = parser.parse_args(arguments)
    results: dict[str, list[Compared]] = {name: [] for name in TITLES}
    for place in range(options.repetitions):
        with TemporaryDirectory(prefix="ic-", dir="/tmp", ignore_cleanup_errors=True) as directory:
            found = repetition(Path(directory))
        for name, each in found.items():
            results[name] += each
        told = ", ".join(
            f"{name} {one.ours:,.4g} by {one.theirs:,.4g} is {one.ratio:.2f}"
            for name, each in found.items()
            for one in each
        )
        print(f"# {place + 1}/{options.repetitions} {told}", file=sys.stderr, flush=True)
    print("\n".join(lines(results)))
    print()
    print(
        "\n".join(
            f"- {fact}" for fact in [*machine.describe(Path("/tmp")), f"load after the run: {machine.load():.1f}"]
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
