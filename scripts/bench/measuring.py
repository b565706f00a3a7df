"""Take the measurements of one repetition of one engine."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from scripts.bench import generator
from scripts.bench.engines import Engine
from scripts.bench.running import EngineFailed, Running, enter, reach

PEERS = 8
"""Sessions that are there while ``intercom list`` is timed."""
COMMAND_S = 20.0
"""Longest run of one command."""


@dataclass(frozen=True)
class Measurement:
    """Describe one thing that is measured."""

    key: str
    title: str
    unit: str
    more_is_better: bool = False


PIPELINED = Measurement("pipelined", "8 pairs, 16 in flight each", "messages/s", more_is_better=True)
AGENTS = Measurement("agents", "32 pairs, 1 in flight each", "messages/s", more_is_better=True)
ONE_CPU = Measurement("one-cpu", "round trip on one CPU", "µs")
ROUND_TRIP = Measurement("round-trip", "round trip", "µs")
COLD_START = Measurement("cold-start", "start to first answer", "ms")
LIST = Measurement("list", "`intercom list --json`", "ms")
ONE_WAY = Measurement("one-way", "8 pairs, 16 sends in flight, answered", "sends/s", more_is_better=True)
INVOKED = Measurement("invoked", "8 pairs, 16 invocations in flight, accepted", "invocations/s", more_is_better=True)
MEASUREMENTS = (PIPELINED, AGENTS, ONE_CPU, ROUND_TRIP, ONE_WAY, INVOKED, COLD_START, LIST)
"""In the order of the table."""


@dataclass(frozen=True)
class Effort:
    """Say how long each measurement lasts."""

    seconds: float
    warm_seconds: float
    rounds: int
    commands: int
    """Runs of ``intercom list`` a repetition."""
    requests: int
    """Sends without a reply, and invocations, a repetition: what is invoked stays open, and a broker bounds that."""

    def throughput(self, pairs: int, window: int, size: int) -> generator.Load:
        """Return the load of some pairs with a window of requests each."""
        options = ("--pairs", str(pairs), "--window", str(window))
        times = ("--secs", str(self.seconds), "--warm-secs", str(self.warm_seconds))
        return generator.Load("throughput", (*options, *times), size)

    def round_trip(self, engine: Engine, size: int) -> generator.Load:
        """Return the load of one request at a time; syncs take long, so there are fewer."""
        rounds = self.rounds // 3 if engine.promise == "disk" else self.rounds
        return generator.Load("latency", ("--rounds", str(rounds), "--warm-rounds", str(rounds // 10)), size)

    def one_way(self, size: int, *more: str) -> generator.Load:
        """Return the load of 8 pairs of which one side asks, with 16 requests that wait for the broker's answer each.

        Both sides are registered as sessions that may invoke, and be invoked.
        """
        options = ("--pairs", "8", "--window", "16", "--register-extra", INVOKERS, *more)
        times = ("--rounds", str(self.requests), "--warm-rounds", str(self.requests // 10))
        return generator.Load("one-way", (*options, *times), size)


INVOKERS = (
    '"features":["session.lifecycle","push.receipts","queue","invoke"],"clientProtocolVersion":"1.0","kind":"custom"'
)
"""What sessions register with that have things done, and do them."""
FULL = Effort(seconds=2.0, warm_seconds=0.5, rounds=4_500, commands=5, requests=6_000)
QUICK = Effort(seconds=0.5, warm_seconds=0.2, rounds=900, commands=2, requests=1_500)


@dataclass(frozen=True)
class Sample:
    """Hold what one measurement of one repetition gave."""

    values: tuple[float, ...]
    cpu_us: float | None = None
    """Processor time of the engine per message."""
    generator_share: float | None = None
    early: int = 0
    faults: tuple[str, ...] = ()


def measure(
    engine: Engine, program: str, loadgen: str, wanted: Collection[str], effort: Effort, size: int, place: Path
) -> dict[str, Sample]:
    """Return the samples of one fresh start of an engine, by the key of the measurement.

    ``place`` is the directory in which it gets a directory of its own, ``size`` the bytes of each text. Raises
    ``EngineFailed``.
    """
    samples: dict[str, Sample] = {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=place, ignore_cleanup_errors=True) as directory,
        Running(engine, program, Path(directory)) as running,
    ):
        started_ms = running.wait_until_it_answers()
        if COLD_START.key in wanted:
            samples[COLD_START.key] = Sample((started_ms,))
        if LIST.key in wanted and engine.key == "intercom":
            samples[LIST.key] = Sample(_time_list(running, effort.commands))
        one_at_a_time = effort.round_trip(engine, size)
        if ONE_CPU.key in wanted:
            with running.on_one_cpu():
                samples[ONE_CPU.key] = _load(running, loadgen, one_at_a_time)
        if ROUND_TRIP.key in wanted:
            samples[ROUND_TRIP.key] = _load(running, loadgen, one_at_a_time)
        if AGENTS.key in wanted:
            samples[AGENTS.key] = _load(running, loadgen, effort.throughput(32, 1, size))
        if PIPELINED.key in wanted:
            samples[PIPELINED.key] = _load(running, loadgen, effort.throughput(8, 16, size))
        if engine.is_ours and engine.is_confirmed:
            if ONE_WAY.key in wanted:
                samples[ONE_WAY.key] = _load(running, loadgen, effort.one_way(size))
            if INVOKED.key in wanted:
                samples[INVOKED.key] = _load(running, loadgen, effort.one_way(size, "--invoke"))
    return samples


def _load(running: Running, loadgen: str, load: generator.Load) -> Sample:
    before = running.cpu_seconds()
    result = generator.run(loadgen, running.engine, running.address, load)
    used = running.cpu_seconds() - before
    is_latency = load.mode == "latency"
    return Sample(
        (result.median_us if is_latency else result.messages_per_s,),
        used * 1e6 / max(1, result.messages),
        None if is_latency else result.generator_share,
        result.early,
        result.faults,
    )


def _time_list(running: Running, count: int) -> tuple[float, ...]:
    with ExitStack() as there:
        for number in range(PEERS):
            there.enter_context(_session(running.address, f"peer-{number}"))
        _list_once(running.environment)  # the first one finds cold files
        return tuple(_list_once(running.environment) for _ in range(count))


def _session(address: str, name: str) -> socket.socket:
    connection = reach(address)
    try:
        enter(connection, name)
    except BaseException:
        connection.close()
        raise
    return connection


def _command() -> list[str]:
    """Return the installed command, as a user runs it, or what comes closest."""
    installed = Path(sys.executable).with_name("intercom")
    return [str(installed)] if installed.is_file() else [sys.executable, "-P", "-m", "intercom"]


def _list_once(environment: Mapping[str, str]) -> float:
    begin = time.perf_counter()
    done = subprocess.run(
        [*_command(), "list", "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=dict(environment),
        timeout=COMMAND_S,
        check=False,
    )
    took_ms = (time.perf_counter() - begin) * 1_000
    try:
        sessions = json.loads(done.stdout)["sessions"]
    except (ValueError, KeyError) as error:
        raise EngineFailed(f"intercom list ended with status {done.returncode}") from error
    if len(sessions) != PEERS:
        raise EngineFailed(f"intercom list shows {len(sessions)} sessions instead of {PEERS}")
    return took_ms
