"""Take the measurements of one repetition of one engine, and those that concern our broker alone."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from subprocess import SubprocessError

from scripts.bench import commands, crowds, generator, stalls, stores
from scripts.bench.effort import (
    AGENTS,
    AGENTS_TAIL,
    BIG_FRAME,
    COLD_START,
    CROWDED,
    DRAINED,
    FEW,
    FULL_START,
    HOOK,
    HOOK_MEMORY,
    IDLE_MEMORY,
    INVOKED,
    LARGE,
    LARGE_BYTES,
    LIST,
    LIST_MEMORY,
    ONE_CPU,
    ONE_WAY,
    PIPELINED,
    PIPELINED_TAIL,
    PRESENCE,
    ROUND_TRIP,
    SEND,
    SEND_MEMORY,
    SLOW_DISK,
    Effort,
    Measurement,
    Sample,
)
from scripts.bench.engines import Engine
from scripts.bench.running import EngineFailed, Running
from scripts.bench.scene import Scene

OURS = "intercom"
CONFIRMED = "intercom-receipts"
SCENES: tuple[tuple[str, tuple[Measurement, ...], Callable[[Scene], dict[str, Sample]]], ...] = (
    (CONFIRMED, (DRAINED,), stores.drained),
    (OURS, (FEW, CROWDED), crowds.crowded),
    (OURS, (PRESENCE,), crowds.presence),
    (OURS, (IDLE_MEMORY,), crowds.memory),
    (OURS, (BIG_FRAME,), stalls.big_frames),
    (OURS, (SLOW_DISK,), stalls.slow_disk),
    (OURS, (FULL_START,), stores.full_start),
    (OURS, (LIST, SEND, HOOK, LIST_MEMORY, SEND_MEMORY, HOOK_MEMORY), commands.commands),
)
"""What our broker is measured in alone: the engine the figures are entered for, what they are, and how to get them."""


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
        one_at_a_time = effort.round_trip(engine, size)
        if ONE_CPU.key in wanted:
            with running.on_one_cpu():
                samples[ONE_CPU.key] = _load(running, loadgen, one_at_a_time)
        if ROUND_TRIP.key in wanted:
            samples[ROUND_TRIP.key] = _load(running, loadgen, one_at_a_time)
        for one, tail, load in (
            (AGENTS, AGENTS_TAIL, effort.throughput(32, 1, size)),
            (PIPELINED, PIPELINED_TAIL, effort.throughput(8, 16, size)),
        ):
            if one.key in wanted or tail.key in wanted:
                samples |= _under_load(running, loadgen, load, one, tail)
        if LARGE.key in wanted and engine.promise == "disk":
            samples[LARGE.key] = _load(running, loadgen, effort.throughput(8, 16, LARGE_BYTES))
        if engine.is_ours and engine.is_confirmed:
            if ONE_WAY.key in wanted:
                samples[ONE_WAY.key] = _load(running, loadgen, effort.one_way(size))
            if INVOKED.key in wanted:
                samples[INVOKED.key] = _load(running, loadgen, effort.one_way(size, "--invoke"))
    return samples


Alone = dict[tuple[str, str], Sample]
"""By the keys of measurement and engine."""


def measure_alone(wanted: Collection[str], found: Collection[str], scene: Scene) -> tuple[Alone, list[str]]:
    """Return the samples of everything wanted that concerns our broker alone, and what could not be measured.

    ``found`` are the engines that take part.
    """
    samples: Alone = {}
    troubles = []
    for engine, measurements, play in SCENES:
        if engine in found and any(one.key in wanted for one in measurements):
            try:
                samples |= {(key, engine): sample for key, sample in play(scene).items() if key in wanted}
            except (EngineFailed, OSError, RuntimeError, LookupError, SubprocessError) as error:
                troubles.append(f"{play.__name__}: {error!r}")
    return samples, troubles


def _under_load(
    running: Running, loadgen: str, load: generator.Load, one: Measurement, tail: Measurement
) -> dict[str, Sample]:
    before = running.cpu_seconds()
    result = generator.run(loadgen, running.engine, running.address, load)
    samples = {one.key: _sample(running, result, result.messages_per_s, before, result.generator_share)}
    if running.engine.promise == "disk":
        samples[tail.key] = Sample((result.p99_us / result.median_us,), faults=result.faults)
    return samples


def _load(running: Running, loadgen: str, load: generator.Load) -> Sample:
    before = running.cpu_seconds()
    result = generator.run(loadgen, running.engine, running.address, load)
    is_latency = load.mode == "latency"
    value = result.median_us if is_latency else result.messages_per_s
    return _sample(running, result, value, before, None if is_latency else result.generator_share)


def _sample(running: Running, result: generator.Result, value: float, before: float, share: float | None) -> Sample:
    used = running.cpu_seconds() - before
    return Sample((value,), used * 1e6 / max(1, result.messages), share, result.early, faults=result.faults)
