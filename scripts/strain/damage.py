"""Damage every file of a home in every way, and see that the broker works with what is true or refuses with a reason.

A home is filled by a real broker, which is killed, so that the log of its database is there as well. Then copies of it
are damaged: files are cut off at many lengths, each range of their bytes is overwritten, older copies are put back,
something else takes their place. Of each copy a broker either keeps all it had promised, or tells that an older state
was put back, or refuses with a reason that names the file; ``intercom doctor`` says the same, the damaged files are
kept, and a second start ends as the first. Where what clients keep in it is damaged, a session either is who it was, or
is told what is wrong, and nobody else is troubled. Files and homes are taken away from brokers that serve them. Last,
see ``room``, a home fills up or may not be written any more.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from intercom.cli.main import main as command
from intercom.client import blocking, control
from intercom.errors import BrokerError, IntercomError, TargetNotFound
from intercom.paths import PRIVATE_DIRECTORY, PRIVATE_FILE, Paths
from scripts.strain import surroundings
from scripts.strain.power import Promise, kept, promised
from tests.support.brokers import environment
from tests.support.forking import Child, serving_child
from tests.support.processes import complaints

ROUNDS = 4
LENGTHS = 12
RANGES = 24
START_S = 30.0
SEND_S = 3.0
MAILS = 4
"""Messages that are sent after a home was damaged while it is served."""
POLL_S = 0.005
KEPT, OLDER, PARTIAL, REFUSED, UNSTARTED = "all kept", "told to be older", "newest lost", "refused", "did not begin"
NAMED, LOST = "identity kept", "identity refused"
OTHER_USER = 65_534
OWNER = "eve"
"""Who holds an address in the home, and keeps what proves it there."""
IDENTITIES = "identities"
FILES = (
    "intercom.db",
    "intercom.db-wal",
    "intercom.key",
    "intercom.head",
    "intercom.toml",
    "broker.pid",
    "broker.replace.lock",
    "intercom.spawn.lock",
    "intercom.log",
    "broker.log",
    "broker.sock",
    "broker.failed",
)


class Damage(NamedTuple):
    """Hold one way to damage a file."""

    name: str
    how: str
    do: Callable[[Path], object]


class Outcome(NamedTuple):
    """Hold what a broker made of a home: a word, and what was said."""

    word: str
    said: str


def fill(home: Path, older: Path) -> list[Promise]:
    """Have a broker fill a home, and put a copy of it from the middle of that aside; the broker is killed."""
    promises: list[Promise] = []
    for number, rounds in enumerate((ROUNDS // 2, ROUNDS - ROUNDS // 2)):
        broker = start(home)
        (home / "trace").touch()
        told = asyncio.run(promised(home, home / "trace", rounds, f"r{number}-"))
        promises += told
        broker.kill()
        broker.wait()
        broker.close()
        (home / "trace").unlink()
        if not number:
            shutil.copytree(
                home, older, symlinks=True, ignore=lambda _, names: [n for n in names if n.endswith(".sock")]
            )
    (home / "intercom.toml").write_text("idle_ms = 60000\n")
    return promises


def start(home: Path) -> Child:
    """Start a broker and return once it answers or has ended."""
    child = serving_child(home, environment(home, {}))
    deadline = time.monotonic() + START_S
    while child.poll() is None and time.monotonic() < deadline:
        try:
            control.health(Paths(home))
        except (BrokerError, IntercomError):
            time.sleep(POLL_S)
        else:
            break
    return child


def said_by(child: Child) -> str:
    """Return what a broker that has ended wrote, and let go of it."""
    assert child.stderr is not None
    said = complaints(child.stderr.read()).strip()
    child.close()
    return said


def doctor(home: Path) -> str:
    """Return what ``intercom doctor`` says is wrong."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()):
        command(["doctor", "--json", "--home", str(home)])
    checks: list[dict[str, Any]] = json.loads(out.getvalue())["checks"]
    return " | ".join(f"{one['found']} {one.get('hint', '')}" for one in checks if one["state"] != "ok")


def outcome(home: Path, promises: Sequence[Promise]) -> Outcome:
    """Start a broker on a home, try to send, and say what came of it; faults are raised as ``AssertionError``."""
    child = start(home)
    try:
        if child.poll() is not None:
            said = said_by(child)
            assert child.returncode in (1, 5), f"the start ended with {child.returncode}: {said}"
            assert "Traceback" not in said, said
            return Outcome(UNSTARTED, said)
        report = control.broker_status(Paths(home))["broker"]
        restored = bool(report.get("journalRestored"))
        with blocking.connect("a", home=home, start=False) as a, blocking.connect("b", home=home, start=False):
            refusal = _refusal(a)
        if refusal is not None:
            return Outcome(REFUSED, refusal)
        child.terminate()
        child.wait(START_S)
        found = kept(home)
        lost = [one for one in promises if not found[one.kind, one.name]]
        return Outcome(OLDER if restored else PARTIAL if lost else KEPT, ", ".join(one.name for one in lost))
    finally:
        child.kill()
        child.wait()
        child.close()


def _refusal(session: blocking.Session) -> str | None:
    """Return why a mail is refused, if it is."""
    try:
        session.send("eve", "one more", message_id=f"more-{time.monotonic_ns()}")
    except TargetNotFound:
        return None  # of an older state, in which nobody was called so
    except IntercomError as error:
        return f"{error.reason} {error.hint}"
    return None


# --- ways to damage a file


def ways(template: Path, older: Path, chance: random.Random, lengths: int, ranges: int) -> Iterator[Damage]:
    """Yield all ways to damage the files of a home."""
    for name in FILES:
        path = template / name
        size = path.stat().st_size if path.is_file() else 0
        some = {0, 1, size // 2, max(0, size - 1), *(chance.randrange(size + 1) for _ in range(lengths))}
        for length in sorted(length for length in some if length < size):
            yield Damage(name, f"cut off at {length} of {size}", partial(os.truncate, length=length))
        step = max(1, size // max(1, ranges))
        for begin in range(0, size, step):
            left = min(step, size - begin)
            yield Damage(name, f"zeros from {begin}", partial(_overwrite, begin=begin, data=bytes(left)))
            yield Damage(name, f"anything from {begin}", partial(_overwrite, begin=begin, data=chance.randbytes(left)))
        if (older / name).is_file():
            yield Damage(name, OLD, partial(_put_back, older))
        for how, do in ELSE.items():
            if how != "other owner" or os.geteuid() == 0:
                yield Damage(name, how, do)


def ways_of_identities(template: Path, chance: random.Random, lengths: int) -> Iterator[Damage]:
    """Yield all ways to damage what clients keep in a home."""
    for path in (template / IDENTITIES, *sorted((template / IDENTITIES).rglob("*"))):
        name = str(path.relative_to(template))
        if path.is_file():
            size = path.stat().st_size
            some = {0, size // 2, *(chance.randrange(size + 1) for _ in range(lengths))}
            for length in sorted(length for length in some if length < size):
                yield Damage(name, f"cut off at {length} of {size}", partial(os.truncate, length=length))
            data = chance.randbytes(size)
            yield Damage(name, "anything in it", partial(_overwrite, begin=0, data=data))
        for how, do in ELSE.items():
            if how != "other owner" or os.geteuid() == 0:
                yield Damage(name, how, do)


def ways_meanwhile(older: Path) -> Iterator[Damage]:
    """Yield all ways to damage a home while it is served."""
    for name in FILES:
        yield Damage(name, "deleted", _away)
        if (older / name).is_file():
            yield Damage(name, OLD, partial(_put_back, older))
            yield Damage(name, "cut off at 0", partial(os.truncate, length=0))
    yield Damage("", "deleted", shutil.rmtree)
    yield Damage("", "renamed", _renamed)
    yield Damage("", "link to it", _linked)


def _overwrite(file: Path, begin: int, data: bytes) -> None:
    with open(file, "r+b") as opened:
        opened.seek(begin)
        opened.write(data)


def _put_back(older: Path, file: Path) -> None:
    shutil.copy(older / file.name, file)


def _away(file: Path) -> None:
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    elif os.path.lexists(file):
        file.unlink()


def _directory(file: Path) -> None:
    _away(file)
    file.mkdir()


def _pipe(file: Path) -> None:
    _away(file)
    os.mkfifo(file)


def _renamed(file: Path) -> None:
    shutil.rmtree(file.with_name("elsewhere"), ignore_errors=True)
    file.rename(file.with_name("elsewhere"))


def _linked(file: Path) -> None:
    if file.exists():
        _renamed(file)
        file.symlink_to("elsewhere")


def _dangling(file: Path) -> None:
    _away(file)
    file.symlink_to("nowhere")


def _shut(file: Path) -> None:
    if file.exists():
        file.chmod(0)


def _given_away(file: Path) -> None:
    if file.exists():
        os.lchown(file, OTHER_USER, -1)


OLD = "older copy"
ELSE: dict[str, Callable[[Path], object]] = {
    "deleted": _away,
    "directory": _directory,
    "pipe": _pipe,
    "link to it": _linked,
    "dangling link": _dangling,
    "mode 0": _shut,
    "other owner": _given_away,
}
"""Ways that need neither length nor place."""


# --- judging


def judge(template: Path, place: Path, damage: Damage, promises: Sequence[Promise]) -> tuple[str, list[str]]:
    """Damage a copy of a home, and say what came of it and what is wrong with that."""
    _copy(template, place)
    file = place / damage.name
    damage.do(file)
    before = contents(place)
    where = f"{damage.name}, {damage.how}"
    faults = []
    try:
        first = outcome(place, promises)
    except (AssertionError, IntercomError) as error:
        return "failed", [f"{where}: {type(error).__name__}: {error}"]
    if first.word in (REFUSED, UNSTARTED):
        after = contents(place)
        faults += [f"{where}: {name} was changed although it was refused" for name in touched(before, after)]
        if str(place) not in first.said:
            faults.append(f"{where}: {first.word} without a name: {first.said}")
        told = doctor(place)
        if str(place) not in told:
            faults.append(f"{where}: doctor does not name it: {told!r}; it was {first.said!r}")
        again = outcome(place, promises)
        if again != first:
            faults.append(f"{where}: first {first}, then {again}")
    elif first.word == PARTIAL and not damage.name.startswith("intercom.db"):
        faults.append(f"{where}: lost {first.said}")
    elif first.word == PARTIAL and damage.how == OLD:
        faults.append(f"{where}: an older copy is not noticed: {first.said}")
    return first.word, faults


def judge_identity(template: Path, place: Path, damage: Damage) -> tuple[str, list[str]]:
    """Damage what clients keep in a home, and say who can still be who they were, and what is wrong with that."""
    _copy(template, place)
    damage.do(place / damage.name)
    where = f"{damage.name}, {damage.how}"
    child = start(place)
    faults: list[str] = []
    word = NAMED
    try:
        try:
            with blocking.connect(OWNER, home=place, start=False, address=True, timeout=START_S) as owner:
                got = owner.receive(timeout=START_S)
                if got is None:
                    faults.append(f"{where}: {OWNER} is not given its mail")
        except IntercomError as error:
            word = LOST
            said = f"{error.reason} {error.hint}"
            if str(place) not in said and error.code != "address_taken":
                faults.append(f"{where}: refused without a name: {error.code}: {said}")
        with blocking.connect("a", home=place, start=False) as a, blocking.connect("b", home=place, start=False) as b:
            a.send("b", "hello")
            if b.receive(timeout=START_S) is None:
                faults.append(f"{where}: others are troubled")
    except (IntercomError, OSError) as error:
        faults.append(f"{where}: {type(error).__name__}: {error}")
    finally:
        child.terminate()
        child.wait(START_S)
    said = said_by(child)
    if child.returncode or said:
        faults.append(f"{where}: the broker ended with {child.returncode}: {said}")
    return word, faults


def judge_meanwhile(template: Path, place: Path, damage: Damage, promises: Sequence[Promise]) -> tuple[str, list[str]]:
    """Damage a home while it is served, and say what came of that and what is wrong with it."""
    _copy(template, place)
    where = f"{damage.name or 'the home'}, {damage.how} while it is served"
    told = list(promises)
    child = start(place)
    try:
        with blocking.connect("a", home=place, start=False, timeout=START_S) as a:
            a.send("eve", "before", message_id="before")
            told.append(Promise(0, "queued", "before"))
            damage.do(place / damage.name)
            for number in range(MAILS):
                name = f"after-{number}"
                try:
                    receipt = a.send("eve", name, message_id=name, timeout=SEND_S)
                except IntercomError:
                    continue
                if receipt.state == "queued":
                    told.append(Promise(0, "queued", name))
    except IntercomError:
        pass  # the broker has left, as it does when it sees that its home is gone
    child.terminate()
    try:
        child.wait(START_S)
    except subprocess.TimeoutExpired:
        return "failed", [f"{where}: the broker does not leave"]
    finally:
        child.kill()
        child.wait()
    said = said_by(child)
    faults = [f"{where}: the broker ended with {child.returncode}: {said}"] if child.returncode or said else []
    served = place.with_name("elsewhere") if damage.how == "renamed" else place
    if damage.how == "deleted" and not damage.name:
        return "gone", faults
    try:
        found = outcome(served.resolve(), told)
    except (AssertionError, IntercomError) as error:
        return "failed", [*faults, f"{where}: {type(error).__name__}: {error}"]
    if found.word == PARTIAL:
        faults.append(f"{where}: lost {found.said}")
    elif found.word in (REFUSED, UNSTARTED) and str(served.resolve()) not in found.said:
        faults.append(f"{where}: {found.word} without a name: {found.said}")
    return found.word, faults


def _copy(template: Path, place: Path) -> None:
    for old in (place, place.with_name("elsewhere")):
        if old.is_symlink():
            old.unlink()
        for shut in (path for path in old.rglob("*") if path.is_dir() and not path.is_symlink()):
            shut.chmod(PRIVATE_DIRECTORY)  # who is not root removes nothing from one of mode 0
        shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(template, place, symlinks=True, ignore=shutil.ignore_patterns("*.sock"))


def contents(home: Path) -> dict[str, bytes | None]:
    """Return what lies in the files of a home that a broker refuses to work with."""
    return {
        path.name: _content(path) if path.is_file() and not path.is_symlink() else None
        for path in home.iterdir()
        if path.name in ("intercom.db", "intercom.db-wal", "intercom.key", "intercom.toml")
    }


def _content(file: Path) -> bytes:
    """Return what is in a file, of whatever mode."""
    try:
        return file.read_bytes()
    except PermissionError:
        mode = file.stat().st_mode
        file.chmod(PRIVATE_FILE)
        try:
            return file.read_bytes()
        finally:
            file.chmod(mode)


def touched(before: dict[str, bytes | None], after: dict[str, bytes | None]) -> list[str]:
    """Return the names of those that were changed."""
    return [name for name in sorted(before | after) if before.get(name) != after.get(name)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 when no damage led to a lie, a loss or a crash."""
    parser = argparse.ArgumentParser(
        prog="scripts/damage", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", type=int, default=LENGTHS, help=f"lengths to cut each file to (default {LENGTHS})")
    parser.add_argument("--ranges", type=int, default=RANGES, help=f"ranges of each file (default {RANGES})")
    parser.add_argument("--most", type=int, default=0, help="how many ways to try (default: all)")
    parser.add_argument("--chance", type=int, default=0, help="number that decides about places (default 0)")
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    chance = random.Random(options.chance)
    counted: Counter[str] = Counter()
    faults: list[str] = []
    with TemporaryDirectory(prefix="ic-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        top = Path(os.path.realpath(directory))
        template, older, place = top / "home", top / "older", top / "damaged"
        promises = fill(template, older)
        every = list(ways(template, older, chance, options.lengths, options.ranges))
        for damage in every if not options.most else chance.sample(every, min(options.most, len(every))):
            word, found = judge(template, place, damage, promises)
            counted[word] += 1
            faults += found
        every = list(ways_of_identities(template, chance, options.lengths))
        for damage in every if not options.most else chance.sample(every, min(options.most, len(every))):
            word, found = judge_identity(template, place, damage)
            counted[word] += 1
            faults += found
        every = list(ways_meanwhile(older))
        for damage in every if not options.most else chance.sample(every, min(options.most, len(every))):
            word, found = judge_meanwhile(template, place, damage, promises)
            counted[word] += 1
            faults += found
        for how in surroundings.WAYS:
            word, found = surroundings.judge(template, top, how, promises)
            counted[word] += 1
            faults += found
    for fault in faults:
        print(fault)
    print(", ".join(f"{count} {word}" for word, count in sorted(counted.items())))
    print(f"{counted.total()} homes in {time.monotonic() - begin:.0f} s\n{'failed' if faults else 'passed'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
