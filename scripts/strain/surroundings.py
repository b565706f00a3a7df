"""Run ``room`` where a file system can fill up, or a user has no right to write, and nothing else is touched by it.

A file system of its own is mounted where no other process sees it. Whoever is root gives up the right to write what it
may not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from scripts.strain.power import Promise

WAYS = FULL, READ_ONLY = "full", "read-only"


def surroundings(how: str) -> tuple[str, ...] | None:
    """Return what has to run the program so that it works; ``None``: this machine does not allow that."""
    is_root = os.geteuid() == 0
    command: tuple[str, ...]
    if how == READ_ONLY:
        command = ("setpriv", "--bounding-set=-dac_override") if is_root else ()
    else:
        command = ("unshare", "--mount") if is_root else ("unshare", "--user", "--map-root-user", "--mount")
    if not command:
        return ()
    tried = [*command, "mount", "-t", "tmpfs", "tmpfs", "/mnt"] if how == FULL else [*command, "true"]
    with suppress(OSError):
        if subprocess.run(tried, capture_output=True, check=False).returncode == 0:
            return command
    return None


def judge(template: Path, top: Path, how: str, promises: Sequence[Promise]) -> tuple[str, list[str]]:
    """Try one of them on a copy of a home, in surroundings of its own; return what came of it, and what is wrong."""
    command = surroundings(how)
    if command is None:
        return f"{how} not tried", []
    place = top / "room"
    place.mkdir(exist_ok=True)
    done = subprocess.run(
        [*command, sys.executable, "-P", "-m", "scripts.strain.room", how, str(template), str(place)],
        input=json.dumps(promises),
        capture_output=True,
        text=True,
        check=False,
    )
    shutil.rmtree(place)
    if done.returncode:
        return "failed", [f"the home, {how} while it is served: {done.stderr or done.stdout}"]
    told: list[str] = json.loads(done.stdout)
    return how, [f"the home, {how} while it is served: {fault}" for fault in told]
