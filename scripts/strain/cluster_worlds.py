"""Let many worlds of brokers and a played engine go wrong: with messages, tasks, flows, and an address that roams.

``addresses`` is with mail for the address that roams, ``moves`` and ``late`` with tasks for it, ``doubt`` with mail for
one that goes to and fro between two brokers which are killed while what became of it is not known, ``copies`` between
three. In ``late`` and ``copies`` the engine hands out letters late, in another order, and again.

Of each number there is one world of each kind; the test suite runs the first few. What fails is told with its number.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tests.core import test_abroad_machine as messages
from tests.core import test_flows_between_machine as flows
from tests.core import test_homes_machine as homes
from tests.core import test_in_doubt_machine as doubt
from tests.core import test_roaming_machine as moves
from tests.core import test_tasks_machine as tasks

ADDRESS_STEPS = 300
"""What happens in a world of an address that roams: five times as much as in those of the test suite."""
KINDS: dict[str, Callable[[int], Any]] = {
    "addresses": lambda number: homes.roam(number, ADDRESS_STEPS),
    "copies": lambda number: doubt.roam(number, doubt.STEPS, "abc", doubt.COPIES),
    "doubt": lambda number: doubt.roam(number, doubt.STEPS),
    "late": lambda number: moves.roam(number, ADDRESS_STEPS, moves.LATE),
    "moves": lambda number: moves.roam(number, ADDRESS_STEPS),
    "messages": messages.test_whatever_fails_every_message_has_one_true_outcome,
    "flows": flows.test_whatever_fails_every_step_ends_as_its_worker_said,
    "tasks": tasks.test_whatever_fails_every_task_has_one_run_with_one_end,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 when every ledger is in order."""
    parser = argparse.ArgumentParser(prog="scripts/cluster-worlds", description=__doc__)
    parser.add_argument("--worlds", type=int, default=500, help="of each kind (default 500)")
    parser.add_argument("--first", type=int, default=0, help="number of the first (default 0)")
    parser.add_argument("--kind", choices=sorted(KINDS), help="only these")
    options = parser.parse_args(arguments)
    failed = 0
    for number in range(options.first, options.first + options.worlds):
        for kind, play in KINDS.items():
            if options.kind in (None, kind):
                try:
                    play(number)
                except Exception as error:
                    failed += 1
                    print(f"{kind} {number}: {error!r}"[:500], flush=True)
    print(f"{options.worlds} worlds of each kind, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
