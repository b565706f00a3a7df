"""Play the worlds of one target by their numbers, on several processes, for a time or for a number of frames."""

from __future__ import annotations

import faulthandler
import itertools
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module

from tests.fuzz.tally import Tally
from tests.support.campaign import Book, in_batches

TARGETS = ("framing", "codec", "core", "targets", "editors", "files", "store", "broker")
"""Each is a module with ``play(number)``."""
HANGS_S = 120
"""A world that computes longer than this does not end: the process says where it is, and ends."""
WAITS_S = 3_600
"""One that takes longer than this waits for something that does not come; on a busy machine worlds take minutes."""
MEMORY_KIB = 1_000_000
"""What a process may grow to that plays worlds after one another, whatever is in them."""
_AT_ONCE = 8
_PROCESS_ENDED = "the process that played it ended, and so did the one that played it again"


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
    faulthandler.register(signal.SIGPROF, chain=True)
    signal.setitimer(signal.ITIMER_PROF, HANGS_S)
    faulthandler.dump_traceback_later(WAITS_S, exit=True)
    try:
        tally = player(target)(number)
    except Exception:
        return Played(number, 0, 0.0, traceback.format_exc())
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.unregister(signal.SIGPROF)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    failure = f"the process has grown to {grown} KiB" if grown > MEMORY_KIB else None
    return Played(number, tally.frames, tally.slowest, failure)


def search(
    target: str, workers: int, book: Book, *, first: int, minutes: float | None = None, frames: int | None = None
) -> Iterator[Played]:
    """Play worlds until time is up or the book counts so many frames; give what became of each.

    They begin with the first one the book does not know, or with ``first`` when it knows none.
    """
    end = None if minutes is None else time.monotonic() + minutes * 60
    begin = book.next(first)
    if frames is not None and book.inputs >= frames:
        return
    for batch, seconds in in_batches(partial(examine, target), itertools.count(begin), workers, _AT_ONCE):
        played = [tried.outcome or Played(tried.number, 0, 0.0, _PROCESS_ENDED) for tried in batch]
        book.add(
            batch[0].number,
            len(batch),
            seconds,
            inputs=sum(each.frames for each in played),
            slowest=max(each.slowest for each in played),
            wrong=[each.number for each in played if each.failure is not None],
        )
        yield from played
        if (end is not None and time.monotonic() >= end) or (frames is not None and book.inputs >= frames):
            return
