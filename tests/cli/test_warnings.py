"""Start the broker and commands in the development mode of Python, with every warning an error."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.support.brokers import BrokerProcess, environment
from tests.support.raw import PATIENCE_S

STRICT = (sys.executable, "-W", "error", "-X", "dev", "-m", "intercom")
SPOILT = ("Warning", "Traceback", "Exception ignored")
"""What the interpreter says of a resource that nobody closed, or of what ends a process."""
CALLS = (("list",), ("send", "nobody", "hello", "--as", "amy"), ("flow", "list"), ("doctor",), ("stop",))
"""One of each way to reach a broker, and what takes the most files into its hands."""


@pytest.mark.timeout(6 * PATIENCE_S)
def test_nothing_is_left_open(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker(command=(*STRICT, "serve"))
    for call in CALLS:
        done = subprocess.run(
            (*STRICT, *call),
            env=environment(broker.home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE_S,
            check=False,
        )
        assert not [word for word in SPOILT if word in done.stderr], done.stderr
    assert broker.wait(3 * PATIENCE_S) == 0
    assert not [word for word in SPOILT if word in broker.errors], broker.errors
