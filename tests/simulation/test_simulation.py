"""Live through many worlds in which the broker dies, the disk fails and wires break; see that faults are noticed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import runner
from tests.simulation.found import FOUND
from tests.simulation.runner import examine, live, search

WORLDS = int(os.environ.get("INTERCOM_WORLDS", "64"))
"""How many worlds a run of the suite lives through, beside those that found something."""
_PARTS = 8


@pytest.mark.parametrize("number", FOUND)
def test_a_world_that_found_something(number: int) -> None:
    assert examine(number) is None, FOUND[number]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(_PARTS))
def test_no_promise_is_broken_in_any_world(part: int) -> None:
    """Design section 1: nothing is called delivered that was not, and no mail is lost when the broker restarts."""
    failures = [failure for number in range(part, WORLDS, _PARTS) if (failure := examine(number)) is not None]
    assert not failures, "\n\n".join(map(str, failures))


def test_a_world_is_the_same_every_time() -> None:
    """Design section 4: the same inputs give the same effects, whatever Python's hashes are."""
    command = (sys.executable, "-c", "from tests.simulation.runner import live; print(live(7))")
    top = Path(__file__).parents[2]
    told = {
        subprocess.run(
            command,
            cwd=top,
            env={**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": str(top)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashes in ("1", "2", "3")
    }
    assert told == {f"{live(7)}\n"}


def test_a_search_leaves_out_no_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_AT_ONCE", 2)
    assert sum(lived for lived, _ in search(range(5), 1)) == 5
