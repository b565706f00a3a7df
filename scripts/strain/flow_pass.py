"""Measure one look of the broker at its flows while nothing is to be done: as many as it takes, as long as they may be.

The core is the real one, in memory: what is measured is the decision alone. Flows that are over must cost nothing, so
the same is measured again when many of them are kept.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from math import inf
from statistics import median

from intercom.limits import Limits
from intercom.testing.broker import MemoryBroker
from intercom.testing.session import MemorySession

PASSES = 200
BOUND_MS = 20.0
"""Longest look, at the median."""
OVER = 320
"""How many flows that are over are kept when it is measured again."""
NOISE_MS = 0.5
"""Difference between two looks that says nothing on a busy machine."""
GROWTH = 1.5
"""How many times as long the second look may take; a cost per flow that is over would be elevenfold."""


class Run:
    """Hold a broker with a coordinator, and write flows."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.limits = Limits()
        self.boss = self.broker.connect("boss", coordinator=True)
        self.count = 0

    def worker(self, name: str) -> MemorySession:
        """Let a worker come that takes every step it is given and reports none."""
        return self.broker.connect(name, flows=True, answer=lambda message: None)

    def flow(self, target: str, steps: int) -> str:
        """Write a flow and start it."""
        self.count += 1
        name = f"flow-{self.count}"
        self.boss.flows.create(name, target, [(f"step-{number}", "do it") for number in range(steps)])
        self.boss.flows.start(name)
        return name

    def end_some(self, count: int) -> None:
        """Write flows that are cancelled at once."""
        for _ in range(count):
            self.boss.flows.cancel(self.flow("nobody", 1), "not needed")

    def look_ms(self, passes: int) -> float:
        """Return how long a look takes, at the median."""
        core = self.broker._core
        assert core is not None
        look, now = core._flows.reconciler.run, self.broker.now
        taken = []
        for _ in range(passes):
            begun = time.perf_counter_ns()
            look(now)
            taken.append((time.perf_counter_ns() - begun) / 1e6)
        if effects := core.deadline_passed(now):
            raise AssertionError(f"there was something to do: {effects}")
        return median(taken)

    def states(self) -> dict[str, int]:
        """Return how many flows are known, are not over, and have a step under way."""
        core = self.broker._core
        assert core is not None
        states: dict[str, int] = core._flows.report()["flows"]
        return states


def everybody_works(run: Run) -> None:
    """Give every flow a worker of its own, who has not reported yet."""
    for number in range(run.limits.flows):
        run.worker(f"worker-{number}")
        run.flow(f"worker-{number}", run.limits.flow_steps)
    assert run.states()["dispatches"] == run.limits.flows


def one_works(run: Run) -> None:
    """Let all flows wait for the same worker."""
    run.worker("worker")
    for _ in range(run.limits.flows):
        run.flow("worker", run.limits.flow_steps)
    assert run.states()["dispatches"] == 1


CASES: dict[str, Callable[[Run], None]] = {"each flow at work": everybody_works, "one worker for all": one_works}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and say whether it was short enough."""
    parser = argparse.ArgumentParser(prog="flow-pass", description=__doc__)
    parser.add_argument("--passes", type=int, default=PASSES, help="looks to take the median of (default %(default)s)")
    parser.add_argument(
        "--bound-ms", type=float, default=BOUND_MS, help="longest look that passes, in ms; inf judges no time at all"
    )
    arguments = parser.parse_args(argv)
    passes, bound = arguments.passes, arguments.bound_ms
    faults = []
    for case, begin in CASES.items():
        run = Run()
        run.end_some(1)
        begin(run)
        live = run.states()["live"]
        first = run.look_ms(passes)
        kept = Run()
        kept.end_some(OVER)
        begin(kept)
        second = kept.look_ms(passes)
        print(f"{case}: {live} flows x {run.limits.flow_steps} steps, a look takes {first:.3f} ms", end="")
        print(f", with {kept.states()['known'] - live} that are over {second:.3f} ms")
        if max(first, second) > bound:
            faults.append(f"{case}: a look takes more than {bound:.0f} ms")
        if bound != inf and second > GROWTH * first + NOISE_MS:
            faults.append(f"{case}: flows that are over make a look longer")
    for fault in faults:
        print(fault)
    print("failed" if faults else "passed")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
