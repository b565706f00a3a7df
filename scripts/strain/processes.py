"""Look at the broker processes of one home, and end what this program started by its process id."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from intercom.client import control
from intercom.errors import BrokerError
from intercom.locks import FileLock
from intercom.paths import Paths

TOP = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 60.0
"""Longest wait for anything that is bound to come, on a busy machine."""
LASTING = {
    "broker.log",
    "broker.replace.lock",
    "intercom.db",
    "intercom.head",
    "intercom.key",
    "intercom.log",
    "intercom.spawn.lock",
}
"""Files a home keeps when nobody serves it."""
_BROKER = [b"-P", b"-m", b"intercom", b"serve"]
_POLL_S = 0.01


@contextmanager
def own_home() -> Iterator[Paths]:
    """Give a new home for the length of the block; whoever still serves it at the end is stopped."""
    with TemporaryDirectory(prefix="ic-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        paths = Paths(Path(os.path.realpath(directory), "home"))
        try:
            yield paths
        finally:
            with suppress(BrokerError):
                control.shutdown(paths)
            for pid in brokers_of(paths):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            until(lambda: not brokers_of(paths))


def brokers_of(paths: Paths) -> list[int]:
    """Return the processes that serve this home, or are about to; a home of ours is nobody else's."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[1:5] == _BROKER and os.fsencode(paths.home) in words:
            found.append(int(entry.name))
    return found


def until(condition: Callable[[], bool]) -> bool:
    """Wait until something holds; return whether it did in time."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def left_over(paths: Paths) -> list[str]:
    """Say what a home that nobody serves holds and should not: files, held locks, processes."""
    faults = [f"process {pid} is still there" for pid in brokers_of(paths)]
    faults += [f"{path.name} was left" for path in paths.home.iterdir() if path.name not in LASTING]
    for path in (paths.lock, paths.spawn_lock):
        lock = FileLock(path)
        if not lock.try_acquire():
            faults.append(f"{path.name} is held by somebody")
        lock.release()
    return faults


def resident_kib(pid: int) -> int:
    """Return the resident memory of a process in KiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def descriptors(pid: int) -> int:
    """Return how many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid: int) -> int:
    """Return how many threads a process has."""
    return len(os.listdir(f"/proc/{pid}/task"))
