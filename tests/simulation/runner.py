"""Run worlds by their numbers: one, a few hundred, or as many as there is time for."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.account import Broken
from tests.simulation.world import World
from tests.support.campaign import Book, in_batches

_MEMORY = Path("/dev/shm")
"""Where files need no disk: what a sync leaves is modelled, and real ones would only take time."""
_STORY_LINES = 60
_AT_ONCE = 25


@dataclass(frozen=True)
class Failure:
    """Say what was wrong in one world."""

    number: int
    rule: str
    """The rule that was broken, or the kind of error."""
    report: str

    def __str__(self) -> str:
        return f"world {self.number}: {self.report}"


def live(number: int) -> str:
    """Live through one world; return what tells it from others, and raise what is wrong with it."""
    place = Path(tempfile.mkdtemp(prefix="ic-sim-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None))
    try:
        return World(number, place).run()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def examine(number: int) -> Failure | None:
    """Live through one world, and tell what was wrong, if anything was, with the end of its story."""
    place = Path(tempfile.mkdtemp(prefix="ic-sim-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None))
    world = World(number, place)
    try:
        world.run()
    except Broken as broken:
        return Failure(number, broken.rule, "\n".join([*world.account.story[-_STORY_LINES:], str(broken)]))
    except Exception as error:
        story = "\n".join(world.account.story[-_STORY_LINES:])
        return Failure(number, type(error).__name__, f"{story}\n{traceback.format_exc()}")
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return None


def search(
    numbers: Iterable[int], workers: int, minutes: float | None = None, book: Book | None = None
) -> Iterator[tuple[int, list[Failure]]]:
    """Live through many worlds; give after each batch how many it held and what was wrong, until time is up."""
    end = None if minutes is None else time.monotonic() + minutes * 60
    for batch, seconds in in_batches(_examined, numbers, workers, _AT_ONCE):
        became = [found for tried in batch for found in tried.outcome or _ended(tried.number)]
        failures = [failure for failure in became if failure is not None]
        if book is not None:
            wrong = [failure.number for failure in failures]
            book.add(batch[0].number, len(batch), seconds, wrong=wrong)
        yield len(batch), failures
        if end is not None and time.monotonic() >= end:
            return


def _examined(number: int) -> tuple[Failure | None]:
    return (examine(number),)


def _ended(number: int) -> tuple[Failure]:
    return (Failure(number, "ended", "the process that lived through it ended, and so did the one that tried again"),)
