"""Measure messages between two brokers against the bare engine between them, and what the engine costs local ones.

Everything runs on this machine: a NATS server, two brokers that reach each other through it, and this process, which
plays the sessions on raw sockets. The bare engine is used from this process too, with the client library that brokers
use: published with acknowledgement, fetched by a pull consumer, acknowledged. Figures are medians over the
repetitions; each repetition begins with new processes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from scripts.bench import machine
from tests.support.brokers import BrokerProcess
from tests.support.engines import NatsServer, one_server

PAIRS = 8
IN_FLIGHT = 16
"""Of each pair."""
MESSAGES = 4_000
ROUND_TRIPS = 400
WARM_UP = 100
TEXT = "x" * 256
LOCAL_MESSAGES = 40_000
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

    async def enter(self, pairs: int, *, seen_after_s: float) -> None:
        """Register the sessions of so many pairs, and wait until senders can see recipients."""
        loop = asyncio.get_running_loop()
        for number in range(pairs):
            found = []
            for place, name in zip(self._places, (f"from-{number}", f"to-{number}"), strict=True):
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
        await asyncio.sleep(seen_after_s)

    async def one_way(self, messages: int, in_flight: int) -> float:
        """Send messages and wait for every outcome; return how many that were in a second."""
        await self._run(WARM_UP, 1, self._send)
        began = time.perf_counter()
        await self._run(messages, in_flight, self._send)
        return messages / (time.perf_counter() - began)

    async def round_trips(self, count: int) -> float:
        """Ask and wait for the answer, one after the other; return the median in ms."""
        await self._run(WARM_UP, 1, self._ask)
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
        """End all sessions."""
        for session in self._sessions:
            session.end()


# --- the bare engine ------------------------------------------------------------------------------------


async def bare_one_way(server: NatsServer) -> float:
    """Publish with acknowledgement and consume with acknowledgement; return messages in a second."""
    import nats

    client = await nats.connect(server.url)
    js = client.jetstream()
    await js.add_stream(name="bare", subjects=["bare.>"], retention="workqueue")
    consumer = await js.pull_subscribe("bare.a", durable="bare")
    window = asyncio.Semaphore(PAIRS * IN_FLIGHT)
    body = TEXT.encode()

    async def publish() -> None:
        try:
            await js.publish("bare.a", body)
        finally:
            window.release()

    async def consume(count: int) -> None:
        left = count
        while left:
            for message in await consumer.fetch(min(64, left), timeout=WAIT_S):
                await message.ack()
                left -= 1

    async def run(count: int) -> float:
        consuming = asyncio.create_task(consume(count))
        began = time.perf_counter()
        publishing = []
        for _ in range(count):
            await window.acquire()
            publishing.append(asyncio.create_task(publish()))
        await asyncio.gather(*publishing, consuming)
        return count / (time.perf_counter() - began)

    await run(WARM_UP)
    found = await run(MESSAGES)
    await client.close()
    return found


async def bare_round_trip(server: NatsServer) -> float:
    """Bring a message there and another back, both acknowledged; return the median in ms."""
    import nats

    client, other = await nats.connect(server.url), await nats.connect(server.url)
    js, far = client.jetstream(), other.jetstream()
    await js.add_stream(name="trip", subjects=["trip.>"], retention="workqueue")
    back, there = await js.pull_subscribe("trip.a", durable="a"), await far.pull_subscribe("trip.b", durable="b")
    body, took = TEXT.encode(), []

    async def answer() -> None:
        for _ in range(WARM_UP + ROUND_TRIPS):
            [message] = await there.fetch(1, timeout=WAIT_S)
            await far.publish("trip.a", body)
            await message.ack()

    answering = asyncio.create_task(answer())
    for _ in range(WARM_UP + ROUND_TRIPS):
        began = time.perf_counter()
        await js.publish("trip.b", body)
        [message] = await back.fetch(1, timeout=WAIT_S)
        took.append(time.perf_counter() - began)
        await message.ack()
    await answering
    await client.close()
    await other.close()
    return median(took[WARM_UP:]) * 1_000


def two_commits(directory: Path) -> float:
    """Return the median time that two commits take on this disk, in ms."""
    database = sqlite3.connect(directory / "commits.db", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE t (number INTEGER PRIMARY KEY, text TEXT)")
    took = []
    for _ in range(ROUND_TRIPS):
        began = time.perf_counter()
        for _ in range(2):
            database.execute("INSERT INTO t (text) VALUES (?)", (TEXT,))
        took.append(time.perf_counter() - began)
    database.close()
    return median(took) * 1_000


# --- one repetition -------------------------------------------------------------------------------------


class Homes:
    """Hold an engine and brokers in fresh homes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.server = one_server(directory / "nats")
        self._brokers: list[BrokerProcess] = []
        key = directory / "mesh.key"
        key.write_bytes(bytes(range(32)))
        key.chmod(0o600)

    def broker(self, name: str, *, is_joined: bool = True) -> BrokerProcess:
        """Start a broker, and wait until it is in the cluster when it is to be."""
        home = self._directory / name
        home.mkdir(mode=0o700)
        if is_joined:
            (home / "intercom.toml").write_text(
                f'[cluster]\nurl = "{self.server.url}"\nkey_file = "{self._directory}/mesh.key"\nnode = "{name}"\n'
            )
        broker = BrokerProcess(home, apart=True)
        self._brokers.append(broker)
        with broker.connect() as client:
            while is_joined and client.status()["multiNode"]["status"] != "on":
                time.sleep(0.01)
        return broker

    def close(self) -> None:
        """End everything."""
        for broker in self._brokers:
            broker.close()
        self.server.close()


async def played(near: Path, far: Path, pairs: int, work: Callable[[Play], Awaitable[float]]) -> float:
    """Do something with sessions on two brokers; raise if anything was refused."""
    play = Play(near, far)
    await play.enter(pairs, seen_after_s=SEEN_AFTER_S)
    found = await work(play)
    play.leave()
    if play.failures:
        raise SystemExit(f"{len(play.failures)} messages failed: {play.failures[0]}")
    return found


def repetition(directory: Path, number: int) -> dict[str, float]:
    """Measure everything once; what is compared changes its order with the number."""
    homes = Homes(directory)
    try:
        one, other, alone = homes.broker("one"), homes.broker("other"), homes.broker("alone", is_joined=False)
        works: list[tuple[str, Callable[[], float]]] = [
            ("remote one-way", lambda: _go(one, other, PAIRS, lambda play: play.one_way(MESSAGES, IN_FLIGHT))),
            ("bare one-way", lambda: asyncio.run(bare_one_way(homes.server))),
            ("remote round trip", lambda: _go(one, other, 1, lambda play: play.round_trips(ROUND_TRIPS))),
            ("bare round trip", lambda: asyncio.run(bare_round_trip(homes.server))),
            ("two commits", lambda: two_commits(directory)),
            ("local, joined", lambda: _go(one, one, PAIRS, lambda play: play.one_way(LOCAL_MESSAGES, IN_FLIGHT))),
            ("local, alone", lambda: _go(alone, alone, PAIRS, lambda play: play.one_way(LOCAL_MESSAGES, IN_FLIGHT))),
        ]
        return {name: work() for name, work in (works if number % 2 else reversed(works))}
    finally:
        homes.close()


def _go(one: BrokerProcess, other: BrokerProcess, pairs: int, work: Callable[[Play], Awaitable[float]]) -> float:
    return asyncio.run(played(one.socket, other.socket, pairs, work))


# --- what is said ---------------------------------------------------------------------------------------


def lines(results: list[dict[str, float]]) -> list[str]:
    """Return the table and whether each bound is reached."""
    middle = {name: median(result[name] for result in results) for name in results[0]}
    spread = {name: (min(r[name] for r in results), max(r[name] for r in results)) for name in results[0]}

    def row(title: str, ours: str, theirs: str, ratio: float, bound: str, is_reached: bool) -> str:
        low, high = spread[ours]
        said = f"{middle[ours]:,.4g} ({low:,.4g} to {high:,.4g})"
        return f"| {title} | {said} | {theirs} | {ratio:.2f} × | {bound}: {'reached' if is_reached else 'missed'} |"

    one_way = middle["remote one-way"] / middle["bare one-way"]
    engine_ms = middle["bare round trip"] + middle["two commits"]
    trip = middle["remote round trip"] / engine_ms
    local = median(result["local, joined"] / result["local, alone"] for result in results)
    return [
        "| measured | intercom | beside | ratio | must |",
        "| --- | --- | --- | --- | --- |",
        row(
            f"between machines, {PAIRS} pairs, {IN_FLIGHT} in flight each, messages/s with their outcome",
            "remote one-way",
            f"{middle['bare one-way']:,.4g} JetStream, {PAIRS * IN_FLIGHT} in flight",
            one_way,
            f"at least {MUST['one-way']} ×",
            one_way >= MUST["one-way"],
        ),
        row(
            "between machines, question and answer, ms, p50",
            "remote round trip",
            f"{middle['bare round trip']:.2f} JetStream there and back and {middle['two commits']:.2f} for two commits",
            trip,
            f"at most {MUST['round trip']:g} ×",
            trip <= MUST["round trip"],
        ),
        row(
            f"on one machine in a cluster, {PAIRS} pairs, {IN_FLIGHT} in flight each, messages/s",
            "local, joined",
            f"{middle['local, alone']:,.4g} in none",
            local,
            f"at least {MUST['local']} ×",
            local >= MUST["local"],
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench/across", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help=f"default {REPETITIONS}")
    options = parser.parse_args(arguments)
    results = []
    for number in range(options.repetitions):
        with TemporaryDirectory(prefix="ic-", dir="/tmp", ignore_cleanup_errors=True) as directory:
            results.append(repetition(Path(directory), number))
        told = ", ".join(f"{name} {value:,.4g}" for name, value in sorted(results[-1].items()))
        print(f"# {number + 1}/{options.repetitions} {told}", file=sys.stderr, flush=True)
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
