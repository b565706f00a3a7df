"""Measure the commands that agents call all the time: whole processes, from their start to their end."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from scripts.bench.effort import HOOK, HOOK_MEMORY, LIST, LIST_MEMORY, SEND, SEND_MEMORY, Measurement, Sample
from scripts.bench.peers import Peer
from scripts.bench.running import EngineFailed, Running
from scripts.bench.scene import Scene

PEERS = 8
"""Sessions that are there meanwhile."""
COMMAND_S = 20.0
"""Longest run of all repetitions of one command, each."""
EVENT = {"session_id": "s", "prompt": "go on", "cwd": "/", "hook_event_name": "UserPromptSubmit"}
CALLS: tuple[tuple[Measurement, Measurement, tuple[str, ...]], ...] = (
    (LIST, LIST_MEMORY, ("list", "--json")),
    (SEND, SEND_MEMORY, ("send", "peer-0", "hello")),
    (HOOK, HOOK_MEMORY, ("hook", "claude", "UserPromptSubmit")),
)


def installed() -> list[str]:
    """Return the installed command, as a user runs it, or what comes closest."""
    script = Path(sys.executable).with_name("intercom")
    return [str(script)] if script.is_file() else [sys.executable, "-P", "-m", "intercom"]


def commands(scene: Scene) -> dict[str, Sample]:
    """Measure wall time and peak memory of each command, with a few sessions there."""
    samples: dict[str, Sample] = {}
    with scene.broker() as running, ExitStack() as there:
        for number in range(PEERS):
            there.enter_context(Peer(running.address, f"peer-{number}"))
        _expect_all(running)
        event = running.directory / "event"
        event.write_text(json.dumps(EVENT))
        for took, held, words in CALLS:
            runs = _timed(scene, running, event, words)
            samples[took.key] = Sample(tuple(wall_us / 1_000 for _, wall_us, _ in runs))
            samples[held.key] = Sample(tuple(kib * 1_024 / 1e6 for _, _, kib in runs))
    return samples


def _expect_all(running: Running) -> None:
    """See that the command does what is measured, and meets warm files."""
    done = subprocess.run(
        [*installed(), "list", "--json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=running.environment,
        timeout=COMMAND_S,
        check=False,
    )
    try:
        sessions = json.loads(done.stdout)["sessions"]
    except (ValueError, KeyError) as error:
        raise EngineFailed(f"intercom list ended with status {done.returncode}") from error
    if len(sessions) != PEERS:
        raise EngineFailed(f"intercom list shows {len(sessions)} sessions instead of {PEERS}")


def _timed(scene: Scene, running: Running, event: Path, words: Sequence[str]) -> list[tuple[int, int, int]]:
    """Return status, wall time in microseconds and peak memory in KiB of each run but the first."""
    count = scene.effort.commands + 1
    done = subprocess.run(
        [scene.built["timed"], str(count), str(event), *installed(), *words],
        capture_output=True,
        text=True,
        env=running.environment,
        cwd=running.directory,
        timeout=COMMAND_S * count,
        check=True,
    )
    runs = [(int(status), int(wall_us), int(kib)) for status, wall_us, kib in map(str.split, done.stdout.splitlines())]
    if any(status for status, _, _ in runs):
        raise EngineFailed(f"intercom {' '.join(words)} ended with status {[status for status, _, _ in runs]}")
    return runs[1:]
