"""Measure what a hook costs a host that runs it after every step, when there is nothing to say."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from intercom.client import blocking
from scripts.hosts.trials import TOP

RUNS = 40
EVENT = json.dumps({"session_id": "timed", "hook_event_name": "PostToolBatch", "tool_response": "x" * 10_000}).encode()


def measure(top: Path) -> list[str]:
    """Return a line for each state a hook may find: no broker at all, a broker, a broker and mail of others."""
    home = top / "timed"
    lines = [_timed("no broker runs", home)]
    with blocking.connect("bystander", home=home):
        lines.append(_timed("a broker runs, no adapter", home))
        environ = {**_environment(home), "CLAUDE_CODE_SESSION_ID": "timed"}
        adapter = subprocess.Popen(
            [sys.executable, "-P", "-m", "intercom", "mcp", "--host", "claude", "--home", str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=environ,
        )
        try:
            end = time.monotonic() + 30
            while not list((home / "adapters").glob("*.json")) and time.monotonic() < end:
                time.sleep(0.05)
            lines.append(_timed("an adapter, nothing waits", home))
        finally:
            adapter.terminate()
            adapter.wait(10)
    lines.append(_timed("for comparison: python -c pass", home, [sys.executable, "-P", "-c", "pass"]))
    return lines


def _timed(what: str, home: Path, command: list[str] | None = None) -> str:
    words = command or [sys.executable, "-P", "-m", "intercom", "hook", "claude", "PostToolBatch", "--home", str(home)]
    taken: list[float] = []
    spent = _spent()
    for _ in range(RUNS):
        began = time.perf_counter()
        done = subprocess.run(words, input=EVENT, capture_output=True, env=_environment(home), check=True)
        taken.append((time.perf_counter() - began) * 1000)
        assert command or not done.stdout, f"there was something to say: {done.stdout!r}"
    taken.sort()
    processor = (_spent() - spent) / RUNS * 1000
    return (
        f"{what:<32} median {statistics.median(taken):4.0f} ms, 95 % below {taken[int(RUNS * 0.95) - 1]:4.0f} ms, "
        f"processor time {processor:4.0f} ms"
    )


def _spent() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home.parent), "PYTHONPATH": str(TOP)}
