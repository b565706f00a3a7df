"""Run fuzzers from the command line."""

from __future__ import annotations

import argparse
import os
import random
import sys
from pathlib import Path

from tests.fuzz.runner import TARGETS, examine, search
from tests.support.campaign import Book

MINUTES = 1.0
SHOWN = 10
"""So many failures are shown in full."""


def main() -> int:
    """Play the worlds that were asked for; the status is 1 when something was wrong in one."""
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz",
        description="Give a part of intercom input that nobody would write, as one number decides. A number always "
        "gives the same world.",
    )
    parser.add_argument("target", nargs="?", choices=TARGETS, help="what is tried")
    parser.add_argument("number", nargs="?", type=int, help="play this one world and show what is wrong with it")
    parser.add_argument("--all", action="store_true", help="try every target, one after another")
    parser.add_argument("--minutes", type=float, help=f"go on for so long with each target (default {MINUTES:.0f})")
    parser.add_argument("--frames", type=int, metavar="N", help="go on until N inputs were tried")
    parser.add_argument(
        "--book",
        type=Path,
        metavar="FILE",
        help="count in this file, and go on behind what it holds; --frames is the sum, on the code as it is now",
    )
    parser.add_argument("--first", type=int, help="number of the first world; by default a random one")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes to use")
    arguments = parser.parse_args()
    if (arguments.target is None) is not arguments.all:
        parser.error("name one target, or --all")
    if arguments.all and arguments.book is not None:
        parser.error("a book is about one target")
    if arguments.number is not None:
        played = examine(arguments.target, arguments.number)
        sys.stdout.write(f"{played.failure or 'nothing is wrong with this world'}\n")
        return 1 if played.failure is not None else 0
    first = random.randrange(10**9) if arguments.first is None else arguments.first
    minutes = MINUTES if arguments.minutes is None and arguments.frames is None else arguments.minutes
    wrong = 0
    for target in TARGETS if arguments.all else (arguments.target,):
        book = Book(arguments.book, target)
        wrong += _report(target, book, arguments.workers, first, minutes, arguments.frames)
    return 1 if wrong else 0


def _report(target: str, book: Book, workers: int, first: int, minutes: float | None, frames: int | None) -> int:
    wrong = 0
    try:
        for played in search(target, workers, book, first=first, minutes=minutes, frames=frames):
            if played.failure is not None:
                wrong += 1
                if wrong <= SHOWN:
                    sys.stdout.write(f"{target} {played.number}: {played.failure}\n")
                    sys.stdout.flush()
    finally:
        sys.stdout.write(f"{book.summary()}\n")
        sys.stdout.flush()
    return wrong


if __name__ == "__main__":
    raise SystemExit(main())
