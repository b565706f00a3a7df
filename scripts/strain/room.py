"""Take a served home the room, or the right, to write, and see that nobody is told what is not on the disk.

``full``: its file system fills up. ``read-only``: its owner may write none of it any more. Whoever sends meanwhile is
told that nothing was recorded, or what is told is true; lists and the state of the broker are shown as ever. Once the
home can be written again, the same ids are sent again, without a start, and arrive once. A broker that is started
meanwhile works with what is true, or refuses with a reason that names the home, and changes nothing.

The program runs in ``surroundings`` of its own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from intercom.client import blocking, control
from intercom.errors import IntercomError
from intercom.paths import Paths
from scripts.strain import damage
from scripts.strain.power import Promise
from scripts.strain.surroundings import FULL, READ_ONLY

ROOM_MIB = 8
MAILS = 2_000
"""Most that are sent while nothing can be written; a log that has grown before takes some of them all the same."""
REFUSED = 3
"""So many refusals are enough."""
TEXT = "x" * 2_000
RECEIVE_S = 0.2
SEND_S = 0.3
"""As long the library sends again what was refused."""


@contextmanager
def taken(home: Path, how: str) -> Iterator[None]:
    """Let nothing be written in a home for the length of the block."""
    if how == FULL:
        ballast = home.with_name("ballast")
        with open(ballast, "wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(1_024)):
                pass
        try:
            yield
        finally:
            ballast.unlink()
        return
    every = [home, *(path for path in home.rglob("*") if path.is_file() or path.is_dir())]
    modes = {path: path.stat().st_mode for path in every}
    for path, mode in sorted(modes.items(), reverse=True):
        path.chmod(mode & 0o555)
    try:
        yield
    finally:
        for path, mode in sorted(modes.items()):
            with suppress(FileNotFoundError):
                path.chmod(mode)


class Round:
    """Send to somebody who is here and to somebody who is away, and keep what was answered."""

    def __init__(self, home: Path) -> None:
        self.faults: list[str] = []
        self.told: list[Promise] = []
        self.refused: list[tuple[str, str]] = []
        self._sender = blocking.connect("a", home=home, start=False, timeout=damage.START_S)
        self._home = home
        self._got: Counter[str] = Counter()
        self._is_over = threading.Event()
        self._is_there = threading.Event()
        self._reader = threading.Thread(target=self._read)

    def _read(self) -> None:
        with blocking.connect("b", home=self._home, start=False, timeout=damage.START_S) as b:
            self._is_there.set()
            while True:
                is_last = self._is_over.is_set()
                message = b.receive(timeout=RECEIVE_S)
                if message is not None:
                    self._got[message.id] += 1
                elif is_last:
                    return

    def __enter__(self) -> Round:
        self._a = self._sender.__enter__()
        self._reader.start()
        self._is_there.wait(damage.START_S)
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._reader.join()
        self._sender.__exit__(None, None, None)
        delivered = {one.name for one in self.told if one.kind == "delivered"}
        twice = [name for name, count in self._got.items() if count > 1]
        if twice or not delivered <= self._got.keys():
            self.faults.append(f"twice: {twice}, told and not there: {sorted(delivered - self._got.keys())}")

    def send(self, target: str, name: str, timeout: float = damage.START_S) -> bool:
        """Tell whether it was confirmed."""
        kind = "queued" if target == damage.OWNER else "delivered"
        try:
            receipt = self._a.send(target, TEXT, message_id=name, timeout=timeout)
        except IntercomError as error:
            self.refused.append((target, name))
            if error.retry != "same_id" and error.code != "not_recorded":
                self.faults.append(f"{name} is refused with {error.code}: {error.reason}")
            return False
        if receipt.state != kind:
            self.faults.append(f"{name} is {receipt.state}")
        self.told.append(Promise(0, kind, name))
        return True

    def goes_on(self) -> None:
        """See that what writes nothing works."""
        if not {"a", "b"} <= {session.name for session in self._a.list()}:
            self.faults.append("not everybody is shown")
        control.broker_status(Paths(self._home))


def served(home: Path, how: str) -> tuple[list[str], list[Promise]]:
    """Take a broker the room while it serves; return what is wrong, and what it promised."""
    child = damage.start(home)
    with Round(home) as sending:
        sending.send("b", "before")
        with taken(home, how):
            for number in range(MAILS):
                sending.send("b" if number % 2 else damage.OWNER, f"meanwhile-{number}", SEND_S)
                if len(sending.refused) >= REFUSED or (how == READ_ONLY and number >= REFUSED):
                    break
            sending.goes_on()
            if how == FULL and not sending.refused:
                sending.faults.append("nothing was refused, so it was not full")
        again, sending.refused = sending.refused, []
        for target, name in again:
            if not sending.send(target, name):
                sending.faults.append(f"{name} is refused though there is room again")
        sending.send("b", "after")
    child.terminate()
    child.wait(damage.START_S)
    said = damage.said_by(child)
    if child.returncode or said:
        sending.faults.append(f"the broker ended with {child.returncode}: {said}")
    return sending.faults, sending.told


def started(home: Path, how: str, promises: Sequence[Promise]) -> list[str]:
    """Start a broker that cannot write; return what is wrong with what it says."""
    faults = []
    with taken(home, how):
        before = damage.contents(home)
        found = damage.outcome(home, promises)
        if found.word == damage.PARTIAL:
            faults.append(f"a start loses {found.said}")
        elif found.word in (damage.REFUSED, damage.UNSTARTED):
            faults += [f"{name} was changed by a start" for name in damage.touched(before, damage.contents(home))]
            told = damage.doctor(home)
            faults += [f"it is not named: {said!r}" for said in (found.said, told) if str(home) not in said]
    return faults


def main(how: str, template: Path, place: Path, promises: Sequence[Promise]) -> list[str]:
    """Try a home; return what is wrong."""
    if how == FULL:
        options = f"size={ROOM_MIB}m,mode=0700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
    home = place / "home"
    shutil.copytree(template, home, symlinks=True, ignore=shutil.ignore_patterns("*.sock"))
    faults, told = served(home, how)
    told = [*promises, *told]
    faults += started(home, how, told)
    found = damage.outcome(home, told)
    if found.word != damage.KEPT:
        faults.append(f"afterwards {found.word}: {found.said}")
    return faults


if __name__ == "__main__":
    before = [Promise(*one) for one in json.load(sys.stdin)]
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), before)))
