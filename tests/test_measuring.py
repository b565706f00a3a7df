"""Try the measure of what the tests of the core and of the wire run: it fails a run that leaves something out."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.brokers import TOP
from tests.support.measuring import FAILED, counts

LONGEST_S = 250


@pytest.mark.timeout(LONGEST_S + 50)
def test_what_no_test_runs_is_named_and_fails_the_run() -> None:
    """The tests of one file pass, and run next to nothing of the rest."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.measuring", "-n", "1"]
    done = subprocess.run(
        [*command, "tests/wire/test_capability.py"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_S,
    )
    assert done.returncode == FAILED, done.stdout + done.stderr
    assert " passed" in done.stdout and " failed" not in done.stdout
    assert "Traceback" not in done.stderr, "it fails for nothing else, such as what it left open"
    named = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("intercom/")]
    assert "intercom/core/delivery.py" in named
    assert "intercom/wire/capability.py" not in named
    assert not [name for name in named if not name.startswith(("intercom/core/", "intercom/wire/"))]


def test_other_tests_do_not_count(request: pytest.FixtureRequest) -> None:
    """What the tests of the broker's sockets reach in the core is not tested by the core's own tests."""
    assert not counts(request.node)
