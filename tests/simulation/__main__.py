"""Run the simulator from the command line."""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
from pathlib import Path

from tests.simulation.runner import examine, search
from tests.support.campaign import Book


def main() -> int:
    """Live through the worlds that were asked for; the status is 1 when a rule was broken in one."""
    parser = argparse.ArgumentParser(
        prog="scripts/simulate",
        description="Let programs talk over a broker that dies on a disk that fails, as one number decides. A number "
        "always gives the same world.",
    )
    parser.add_argument("number", nargs="?", type=int, help="live through this world and show its story")
    parser.add_argument("--minutes", type=float, help="go on with new worlds for so long")
    parser.add_argument("--worlds", type=int, metavar="N", help="live through N worlds")
    parser.add_argument("--first", type=int, help="the first of them; by default a random one")
    parser.add_argument(
        "--book",
        type=Path,
        metavar="FILE",
        help="count in this file, and go on behind what it holds; --worlds is the sum, on the code as it is now",
    )
    parser.add_argument("--jobs", type=int, metavar="N", default=os.cpu_count() or 1, help="processes to use")
    arguments = parser.parse_args()
    if arguments.number is not None:
        failure = examine(arguments.number)
        sys.stdout.write(f"{failure or 'nothing is wrong with this world'}\n")
        return 1 if failure is not None else 0
    book = Book(arguments.book, "worlds")
    first = book.next(random.randrange(10**9) if arguments.first is None else arguments.first)
    left = None if arguments.worlds is None else max(0, arguments.worlds - book.worlds)
    numbers = itertools.count(first) if left is None else range(first, first + left)
    minutes = 1.0 if arguments.minutes is None and arguments.worlds is None else arguments.minutes
    found = 0
    try:
        for _, failures in search(numbers, arguments.jobs, minutes, book):
            for failure in failures:
                found += 1
                sys.stdout.write(f"{failure}\n\n")
                sys.stdout.flush()
    finally:
        sys.stdout.write(f"{book.summary()}\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
