"""Connect at the very moment in which a broker that nobody needs leaves, again and again: no user may notice.

The moment is hunted: whenever the old broker still answered the next attempt comes a little later, whenever a new one
had to be started a little earlier. So about half the attempts meet a broker that is just going.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence

from intercom.client import aio, blocking, control
from intercom.errors import IntercomError, NoBroker
from intercom.paths import Paths
from scripts.strain.processes import brokers_of, left_over, own_home, until

ROUNDS = 2_000
IDLE_MS = 60
"""How long the broker of these rounds stays without anybody."""
STEP_MS = 1.0
"""How much earlier or later the next attempt comes."""
JITTER_MS = 2.0


def register(paths: Paths) -> None:
    """Be a session that looks around, from a plain program."""
    with blocking.connect("visitor", home=paths.home) as session:
        assert [view.id for view in session.list()] == [session.id]


def register_in_a_loop(paths: Paths) -> None:
    """Be a session that looks around, from an event loop."""

    async def visit() -> None:
        async with aio.connect("visitor", home=paths.home) as session:
            assert [view.id for view in await session.list()] == [session.id]

    asyncio.run(visit())


def attach(paths: Paths) -> None:
    """Be a session only if a broker is there; that none is there is an answer too."""
    try:
        with blocking.connect("visitor", home=paths.home, start=False) as session:
            session.list()
    except NoBroker:
        register(paths)


def ask_for_status(paths: Paths) -> None:
    """Ask the broker about itself, which never starts one; that none is there is an answer too."""
    try:
        assert control.broker_status(paths)["pid"]
    except NoBroker:
        register(paths)


VISITS: tuple[Callable[[Paths], None], ...] = (register, register_in_a_loop, register, attach, ask_for_status)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 when no visit failed."""
    parser = argparse.ArgumentParser(
        prog="scripts/idle-race", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument("--chance", type=int, default=0, help="number that decides the exact moments (default 0)")
    options = parser.parse_args(arguments)
    os.environ["INTERCOM_IDLE_MS"] = str(IDLE_MS)
    chance = random.Random(options.chance)
    faults: list[str] = []
    met: Counter[str] = Counter()
    slowest = aim = 0.0
    with own_home() as paths:
        register(paths)
        for number in range(options.rounds):
            last, left_at = instance(paths), time.monotonic()
            moment = left_at + (IDLE_MS + aim + chance.uniform(-JITTER_MS, JITTER_MS)) / 1000
            time.sleep(max(0.0, moment - time.monotonic()))
            visit = VISITS[number % len(VISITS)]
            begin = time.monotonic()
            try:
                visit(paths)
            except (IntercomError, AssertionError) as error:
                faults.append(f"round {number}, {visit.__name__}: {type(error).__name__}: {error}")
                register(paths)
            slowest = max(slowest, time.monotonic() - begin)
            same = last is not None and instance(paths) == last
            met["the old broker" if same else "a new one"] += 1
            aim += STEP_MS if same else -STEP_MS
            if len(brokers_of(paths)) > 1:
                until(lambda: len(brokers_of(paths)) <= 1)
        if not until(lambda: not brokers_of(paths)):
            faults.append("the broker did not leave when nobody needed it any more")
        faults += left_over(paths)
    for fault in faults:
        print(fault)
    counts = ", ".join(f"{count} met {what}" for what, count in sorted(met.items()))
    print(f"{options.rounds} rounds, {counts}; the slowest took {slowest * 1000:.0f} ms")
    print("failed" if faults else "passed")
    return 1 if faults else 0


def instance(paths: Paths) -> int | None:
    """Return which process the home's pid file names, which is written when a broker begins and removed at its end."""
    try:
        return int(paths.pid.read_text())
    except (OSError, ValueError):
        return None


if __name__ == "__main__":
    sys.exit(main())
