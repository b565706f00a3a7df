"""Describe the machine a run was made on, as far as it bears on the figures."""

from __future__ import annotations

import os
import platform
import sqlite3
import tempfile
import time
from pathlib import Path
from statistics import median

SYNCS = 300
RECORD = b"x" * 512
IN_MEMORY = frozenset({"tmpfs", "ramfs", "devtmpfs"})
"""File systems on which a sync costs nothing and keeps nothing."""


def work_place(wished: str | None) -> Path:
    """Return the directory for temporary files: the one wished for, else a usual one that is not in memory."""
    if wished is not None:
        return Path(wished).resolve()
    usual = Path(tempfile.gettempdir()).resolve()
    lasting = Path("/var/tmp")
    if file_system(usual, _mounts()) in IN_MEMORY and lasting.is_dir():
        return lasting.resolve()
    return usual


def describe(place: Path) -> list[str]:
    """Return one line per fact; ``place`` is where the engines keep their files."""
    processors = len(os.sched_getaffinity(0))
    kind = file_system(place, _mounts())
    kept = ", which is in memory: what is called durable here is not" if kind in IN_MEMORY else ""
    return [
        f"{processors} CPUs, {processor_name(_read('/proc/cpuinfo'))}, Linux {platform.release()}",
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}",
        f"file system {kind}{kept}; appending 512 bytes and syncing them takes {sync_us(place):.0f} µs at the median",
    ]


def load() -> float:
    """Return how many processes wanted to run in the last minute, on average."""
    return os.getloadavg()[0]


def sync_us(place: Path) -> float:
    """Return the median time of one durable append to a growing file, in microseconds."""
    times = []
    with tempfile.TemporaryFile(dir=place) as file:
        for _ in range(SYNCS):
            begin = time.perf_counter()
            os.write(file.fileno(), RECORD)
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - begin)
    return median(times) * 1e6


def processor_name(cpuinfo: str) -> str:
    """Return the name of the first processor in the text of ``/proc/cpuinfo``."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return "of an unnamed kind"


def file_system(path: Path, mounts: str) -> str:
    """Return the type of the file system that holds ``path``, from the text of ``/proc/mounts``."""
    best, kind = "", "of an unknown type"
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) > 2:
            point = fields[1].replace("\\040", " ")
            holds = point == "/" or path == Path(point) or Path(point) in path.parents
            if holds and len(point) >= len(best):  # of several on one point the last one counts
                best, kind = point, fields[2]
    return kind


def _mounts() -> str:
    return _read("/proc/mounts")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
