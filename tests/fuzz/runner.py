"""Play the worlds of one target by their numbers, on several processes, for a time or for a number of frames."""

from __future__ import annotations

import faulthandler
import itertools
import resource
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module

from tests.fuzz.tally import Tally

TARGETS = ("framing", "codec", "core", "targets", "editors", "files", "store", "broker")
"""Each is a module with ``play(number)``."""
HANGS_S = 120
"""A world that takes longer than this stands still: the process says where, and ends."""
MEMORY_KIB = 1_000_000
"""What a process may grow to that plays worlds after one another, whatever is in them."""
_AT_ONCE = 8


@dataclass(frozen=True)
class Played:
    """Hold what became of one world."""

    number: int
    frames: int
    slowest: float
    failure: str | None


def player(target: str) -> Callable[[int], Tally]:
    """Return what plays the worlds of a target."""
    play: Callable[[int], Tally] = import_module(f"tests.fuzz.{target}").play
    return play


def examine(target: str, number: int) -> Played:
    """Play one world, and tell what was wrong with it."""
    faulthandler.dump_traceback_later(HANGS_S, exit=True)
    try:
        tally = player(target)(number)
    except Exception:
        return Played(number, 0, 0.0, traceback.format_exc())
    finally:
        faulthandler.cancel_dump_traceback_later()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    failure = f"the process has grown to {grown} KiB" if grown > MEMORY_KIB else None
    return Played(number, tally.frames, tally.slowest, failure)


def search(
    target: str, first: int, workers: int, *, minutes: float | None = None, frames: int | None = None
) -> Iterator[Played]:
    """Play worlds from a number on until time is up or so many frames were tried; give what became of each."""
    end = None if minutes is None else time.monotonic() + minutes * 60
    count = 0
    numbers = itertools.count(first)
    with ProcessPoolExecutor(workers) as pool:
        while (end is None or time.monotonic() < end) and (frames is None or count < frames):
            batch = list(itertools.islice(numbers, _AT_ONCE * workers))
            for played in pool.map(examine, itertools.repeat(target), batch):
                count += played.frames
                yield played
