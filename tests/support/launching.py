"""Help to test what starts processes: bounded waits, and a look at who is alive."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from intercom.client.launch import Launch
from tests.support.raw import PATIENCE_S


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that is bound to come; fail when it does not."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)


def is_alive(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def has_text(file: Path) -> bool:
    """Tell whether a file is there and complete: its text ends in a line break."""
    return file.exists() and file.read_text().endswith("\n")


def run(launch: Launch) -> int:
    """Run an attempt to its end and return the descriptor of the connection; the caller closes it."""
    steps = launch.steps()
    try:
        while True:
            time.sleep(next(steps))
    except StopIteration as found:
        descriptor: int = found.value.detach()
        return descriptor
    finally:
        steps.close()
