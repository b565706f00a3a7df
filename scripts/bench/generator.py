"""Build the load generator, run it against an engine, and read what it found."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.bench.engines import Engine
from scripts.bench.running import LOG_CHARACTERS, EngineFailed

SOURCES = Path(__file__).resolve().parent
BUILD_S = 120.0
RUN_S = 120.0
"""Longest run of the generator; it bounds itself far below."""

FAULTS = {
    "lost": "lost",
    "duplicates": "arrived twice",
    "missing_acks": "not answered",
    "dup_acks": "answered twice",
    "bad_content": "with wrong content",
    "delivery_failed": "refused",
    "errors": "errors",
    "unknown": "frames that belong to nothing",
}
"""What the generator counts and must not find, by the name it gives it."""


class NotBuilt(Exception):
    """Say why the generator cannot be built here."""


@dataclass(frozen=True)
class Load:
    """Describe one run: a round trip at a time, or pairs with a window of requests each."""

    mode: str
    options: tuple[str, ...]
    size: int
    """Bytes of each text."""


@dataclass(frozen=True)
class Result:
    """Hold what one run of the generator found; times in microseconds."""

    messages: int
    messages_per_s: float
    median_us: float
    p99_us: float
    generator_share: float
    """Processor time of the generator divided by the time measured; near 1 it is the generator that limits."""
    early: int
    """Answers that came although the recipient had not confirmed yet."""
    faults: tuple[str, ...]


def build(directory: Path) -> dict[str, str]:
    """Compile the C programs into ``directory`` and return their paths by name.

    ``dbusbroker`` is left out where its library is missing. Raises ``NotBuilt``.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NotBuilt("there is no C compiler; the package gcc of the distribution has one")
    built = {}
    for name, target, options in (
        ("loadgen", "loadgen", ()),
        ("forwarder", "forwarder", ()),
        ("timed", "timed", ()),
        ("slowsync", "slowsync.so", ("-shared", "-fPIC", "-ldl")),
        ("dbusbroker", "dbusbroker", ("-lsystemd",)),
    ):
        if name == "dbusbroker" and not _has_libsystemd():
            continue
        place = str(directory / target)
        command = [compiler, "-O2", "-Wall", "-o", place, str(SOURCES / f"{name}.c"), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
        if done.returncode:
            raise NotBuilt(f"{name}.c does not compile:\n{done.stderr.strip()}")
        built[name] = place
    return built


def run(program: str, engine: Engine, address: str, load: Load) -> Result:
    """Put one load on an engine that answers; raises ``EngineFailed`` when it could not be measured at all."""
    command = [program, "--proto", engine.protocol, "--addr", address, "--json", "--mode", load.mode]
    command += ["--size", str(load.size), *load.options, *engine.generator_options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise EngineFailed(f"the generator did not end within {RUN_S:.0f} s") from error
    return parse(done.returncode, done.stdout, done.stderr)


def parse(status: int, output: str, errors: str) -> Result:
    """Read the generator's output; raises ``EngineFailed`` when it reports no run."""
    said = errors.strip()[-LOG_CHARACTERS:]
    try:
        report: dict[str, Any] = json.loads(output)
        faults = [f"{report[name]} {meaning}" for name, meaning in FAULTS.items() if report[name]]
        if status and not faults:
            faults = [f"the generator ended with status {status}"]
        if faults and said:
            faults.append(" ".join(said.split()))
        return Result(
            messages=report["msgs"],
            messages_per_s=report["msgs_per_s"],
            median_us=report["p50_us"],
            p99_us=report["p99_us"],
            generator_share=report["cpu_frac"],
            early=report["early_delivered"],
            faults=tuple(faults),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise EngineFailed(said or f"the generator ended with status {status} and no report") from error


def _has_libsystemd() -> bool:
    finder = shutil.which("pkg-config")
    if sys.platform != "linux" or finder is None:
        return False
    return subprocess.run([finder, "--exists", "libsystemd"], check=False).returncode == 0
