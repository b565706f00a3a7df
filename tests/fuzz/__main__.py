"""Run fuzzers from the command line."""

from __future__ import annotations

import argparse
import os
import random
import sys
import time

from tests.fuzz.runner import TARGETS, examine, search

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
    parser.add_argument("--first", type=int, help="number of the first world; by default a random one")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes to use")
    arguments = parser.parse_args()
    if (arguments.target is None) is not arguments.all:
        parser.error("name one target, or --all")
    if arguments.number is not None:
        played = examine(arguments.target, arguments.number)
        sys.stdout.write(f"{played.failure or 'nothing is wrong with this world'}\n")
        return 1 if played.failure is not None else 0
    first = random.randrange(10**9) if arguments.first is None else arguments.first
    minutes = MINUTES if arguments.minutes is None and arguments.frames is None else arguments.minutes
    wrong = 0
    for target in TARGETS if arguments.all else (arguments.target,):
        wrong += _report(target, first, arguments.workers, minutes, arguments.frames)
    return 1 if wrong else 0


def _report(target: str, first: int, workers: int, minutes: float | None, frames: int | None) -> int:
    begun, worlds, tried, slowest, wrong = time.monotonic(), 0, 0, 0.0, 0
    for played in search(target, first, workers, minutes=minutes, frames=frames):
        worlds += 1
        tried += played.frames
        slowest = max(slowest, played.slowest)
        if played.failure is not None:
            wrong += 1
            if wrong <= SHOWN:
                sys.stdout.write(f"{target} {played.number}: {played.failure}\n")
    seconds = time.monotonic() - begun
    sys.stdout.write(
        f"{target}: {tried} inputs in {worlds} worlds from {first} on in {seconds:.0f} s, the slowest took "
        f"{1000 * slowest:.0f} ms: {wrong} with something wrong\n"
    )
    sys.stdout.flush()
    return wrong


if __name__ == "__main__":
    raise SystemExit(main())
