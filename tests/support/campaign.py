"""Try one world after another by their numbers, and keep the count where the end of no process takes it away.

A long search is done in parts: each writes down what it has tried as soon as it knows what became of it, and the next
one goes on behind that.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any, Generic, TypeVar

import msgspec

import intercom

Outcome = TypeVar("Outcome")
_LOOK_S = 1.0
"""How often a process looks whether the one that started it is there."""


@dataclass(frozen=True)
class Tried(Generic[Outcome]):
    """Hold what became of one world; there is no outcome when its process ended, twice."""

    number: int
    outcome: Outcome | None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what one batch of worlds came to."""

    what: str
    code: str
    first: int
    worlds: int
    inputs: int
    slowest: float
    seconds: float
    wrong: tuple[int, ...] = ()


class Book:
    """Keep entries of one search in a file, a line each; a line that was being written when all ended is left out."""

    def __init__(self, path: Path | None, what: str) -> None:
        self._path = path
        self._what = what
        self.code = code_digest()
        self.entries: list[Entry] = []
        if path is not None and path.exists():
            lines = path.read_bytes().splitlines(keepends=True)
            whole = [line for line in lines if line.endswith(b"\n")]
            self.entries = [msgspec.json.decode(line, type=Entry) for line in whole]
            if other := {entry.what for entry in self.entries} - {what}:
                raise ValueError(f"{path} is about {', '.join(other)}, not about {what}")
            if len(whole) < len(lines):
                path.write_bytes(b"".join(whole))

    def next(self, otherwise: int) -> int:
        """Return the number of the first world that was not tried yet."""
        return max((entry.first + entry.worlds for entry in self.entries), default=otherwise)

    def add(
        self,
        first: int,
        worlds: int,
        seconds: float,
        *,
        inputs: int = 0,
        slowest: float = 0.0,
        wrong: Iterable[int] = (),
    ) -> None:
        """Write down what a batch came to; it is in the file when this returns."""
        entry = Entry(
            what=self._what,
            code=self.code,
            first=first,
            worlds=worlds,
            inputs=inputs,
            slowest=round(slowest, 3),
            seconds=round(seconds, 2),
            wrong=tuple(wrong),
        )
        self.entries.append(entry)
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(entry) + b"\n")

    @property
    def present(self) -> list[Entry]:
        """Return what was tried on the code as it is now."""
        return [entry for entry in self.entries if entry.code == self.code]

    @property
    def worlds(self) -> int:
        """Return how many worlds were tried on the code as it is now."""
        return sum(entry.worlds for entry in self.present)

    @property
    def inputs(self) -> int:
        """Return how many inputs were tried on the code as it is now."""
        return sum(entry.inputs for entry in self.present)

    def summary(self) -> str:
        """Say what was tried on the code as it is now, and how much more on earlier code."""
        present = self.present
        wrong = [number for entry in present for number in entry.wrong]
        counted = f"{self.worlds} worlds" + (f" with {self.inputs} inputs" if self.inputs else "")
        text = f"{self._what}: {counted} from {min((each.first for each in present), default=0)} on in "
        text += f"{sum(entry.seconds for entry in present):.0f} s"
        if self.inputs:
            text += f", the slowest input took {1000 * max(entry.slowest for entry in present):.0f} ms"
        text += f": {len(wrong)} with something wrong{f' ({wrong})' if wrong else ''}"
        earlier = sum(entry.worlds for entry in self.entries) - self.worlds
        return text + (f"; {earlier} worlds more on other code" if earlier else "")


def in_batches(
    try_one: Callable[[int], Outcome], numbers: Iterable[int], workers: int, at_once: int
) -> Iterator[tuple[list[Tried[Outcome]], float]]:
    """Try worlds on so many processes; give what became of each batch, and how many seconds that took.

    A process that ends takes no count with it: the worlds it had are tried again, each in a process of its own.
    """
    pending = iter(numbers)
    pool = _pool(workers)
    try:
        while batch := list(islice(pending, at_once * workers)):
            begun = time.monotonic()
            futures = [pool.submit(try_one, number) for number in batch]
            found = [_outcome(future) for future in futures]
            if any(isinstance(each, BrokenProcessPool) for each in found):
                pool.shutdown(cancel_futures=True)
                pool = _pool(workers)
                found = [
                    _alone(try_one, number) if isinstance(each, BrokenProcessPool) else each
                    for number, each in zip(batch, found, strict=True)
                ]
            tried = [Tried(number, each) for number, each in zip(batch, found, strict=True)]
            yield tried, time.monotonic() - begun
    finally:
        pool.shutdown(cancel_futures=True)


@cache
def code_digest() -> str:
    """Return what tells the code of the package from others."""
    top = Path(os.fspath(intercom.__file__)).parent
    digest = sha256()
    for path in sorted(top.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, initializer=_end_with, initargs=(os.getpid(),))


def _end_with(parent: int) -> None:
    """Let this process end when the one that started it has ended, however it did."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os._exit(1)

    Thread(target=look, daemon=True).start()


def _outcome(future: Future[Any]) -> Any:
    try:
        return future.result()
    except BrokenProcessPool as broken:
        return broken


def _alone(try_one: Callable[[int], Outcome], number: int) -> Outcome | None:
    with _pool(1) as pool:
        found = _outcome(pool.submit(try_one, number))
    return None if isinstance(found, BrokenProcessPool) else found
