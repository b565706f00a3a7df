"""Let the power fail between any two things a broker does to its files, and see that what it promised is there.

A real broker works under a small library (``power_shim.c``) that notes each write, sync and change of a name. Out of
the notes a home is made as a disk may hold it after any of them: nothing that was not synced, all of it, or some of it
down to single sectors. Each home is opened by the store, and some by a whole broker: what was promised before must be
there, and no such home may be refused.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from intercom.client import aio, blocking, control
from intercom.core.records import OperationState
from intercom.errors import BrokerError, IntercomError
from intercom.paths import PRIVATE_DIRECTORY, PRIVATE_FILE, Paths
from intercom.store.database import Store, StoreUnusable
from scripts.strain.power_images import FATES, Disk, notes
from tests.support.brokers import environment, patched

ROUNDS = 20
FAILURES = 0
"""How many moments are tried; 0 for all there are."""
WHOLE = 10
"""How many of the homes are also given to a whole broker."""
CHECKPOINT_PAGES = 20
CHECKPOINT_AHEAD_PAGES = 8
"""After so many pages the log of the database is worked in, by a commit and ahead of it: far more often than for users,
to see that too."""
START_S = 60.0
SHIM = Path(__file__).with_name("power_shim.c")


class Promise(NamedTuple):
    """Hold one answer: what was promised, by the time the notes had this length."""

    at: int
    kind: str
    name: str


def build(directory: Path) -> Path:
    """Compile the library and return its path; raises ``CalledProcessError``, or ``FileNotFoundError`` without gcc."""
    library = directory / "shim.so"
    command = ("gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(SHIM), "-ldl")
    subprocess.run(command, check=True, capture_output=True)
    return library


@contextmanager
def serving(home: Path, code: str = "", extra: Mapping[str, str] | None = None) -> Iterator[None]:
    """Have a broker for the length of the block, which runs some code before it begins."""
    process = subprocess.Popen(
        patched(code),
        env=environment(home, {"INTERCOM_IDLE_MS": "60000", **(extra or {})}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + START_S
        while not _answers(home):
            if process.poll() is not None or time.monotonic() >= deadline:
                raise RuntimeError("the broker does not begin")
            time.sleep(0.01)
        yield
    finally:
        process.terminate()
        process.wait(START_S)


async def promised(home: Path, trace: Path, rounds: int, prefix: str = "") -> list[Promise]:
    """Have the broker promise all that it can promise, over and over; return what it did, and when.

    ``prefix`` begins the names of everything that is new.
    """
    promises: list[Promise] = []

    def promise(kind: str, name: str) -> None:
        promises.append(Promise(trace.stat().st_size, kind, name))

    async def take_all(session: aio.Session) -> None:
        async for message in session.messages():
            if message.expects_reply:
                await message.reply("yes")

    async with (
        aio.connect("ada", home=home, start=False, address=True) as ada,
        aio.connect("bob", home=home, start=False, address=True) as bob,
        aio.connect("wes", home=home, start=False, address=True, work_mode="resident"),
        aio.connect("lead", home=home, start=False, coordinator=True) as lead,
        aio.connect("dur", home=home, start=False, address=True, durable=True) as dur,
        aio.connect("person", home=home, start=False, purpose="control") as person,
    ):
        async with aio.connect("eve", home=home, start=False, address=True):
            pass
        taking = asyncio.create_task(take_all(bob))
        for number in range(rounds):
            name = f"{prefix}plain-{number}"
            if (await ada.send("bob", name, message_id=name)).state == "delivered":
                promise("delivered", name)
            name = f"{prefix}mail-{number}"
            await ada.send("eve", name, message_id=name)
            promise("queued", name)
            name = f"{prefix}ask-{number}"
            await ada.ask("bob", name, message_id=name)
            promise("delivered", name)
            name = f"{prefix}work-{number}"
            await ada.send("wes", name, message_id=name)
            promise("parked", name)
            name = f"{prefix}task-{number}"
            await ada.invoke(bob.id, name, invocation_id=name)
            promise("invoked", name)
            name = f"{prefix}command-{number}"
            await person.send_command({"do": name}, address="dur", command_id=name)
            promise("ordered", name)
            seq = await dur.report_event("did", {"did": name})
            await dur.drain()
            promise("reported", str(seq))
            name = f"{prefix}flow-{number}"
            await lead.flows.create(name, "bob", [("one", "Do it.")])
            promise("written", name)
        taking.cancel()
    return promises


def promises_of(home: Path, trace: Path, rounds: int, noting: Mapping[str, str]) -> list[Promise]:
    """Have the sessions in a process whose work on its files is noted too; return what they were promised."""
    command = (sys.executable, "-P", "-m", "scripts.strain.power", "--work", str(home), str(trace), str(rounds))
    done = subprocess.run(command, env=environment(home, noting), capture_output=True, check=False, text=True)
    if done.returncode:
        raise RuntimeError(f"the sessions failed: {done.stderr}")
    return [Promise(*one) for one in json.loads(done.stdout)]


def kept(home: Path) -> Counter[tuple[str, str]]:
    """Return what the store of a home holds, as promises would name it; raises ``StoreUnusable``."""
    store = Store.open(Paths(home), time.time_ns() // 1_000_000)
    recovered = store.recovered
    store.close()
    found: Counter[tuple[str, str]] = Counter()
    found.update(("delivered", one.message_id) for one in recovered.operations if one.state is OperationState.ACCEPTED)
    found.update(("parked", one.inbox_id) for one in recovered.inbox)
    found.update(("invoked", one.invocation_id) for one in recovered.invocations)
    found.update(("ordered", one.command_id) for one in recovered.commands)
    found.update(("reported", str(one.seq)) for one in recovered.events)
    found.update(("written", one.flow_id) for one in recovered.flows)
    with closing(sqlite3.connect(Paths(home).database)) as connection:
        texts = {
            name
            for name, body in connection.execute("SELECT message_id, message FROM mail JOIN bodies USING (number)")
            if name.encode() in body
        }
    found.update(("queued", one.message_id) for one in recovered.mail if one.message_id in texts)
    return found


def write_home(home: Path, files: dict[str, bytes]) -> None:
    """Make a home out of what is left of one."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(mode=PRIVATE_DIRECTORY)
    for name, content in files.items():
        path = home / name
        path.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(PRIVATE_FILE)


def take_mail(home: Path) -> list[str]:
    """Start a whole broker on a home, be who was away, and return what comes; the durable worker comes, too."""
    with (
        serving(home),
        blocking.connect("dur", home=home, start=False, address=True, durable=True) as dur,
        blocking.connect("eve", home=home, start=False, address=True) as eve,
    ):
        dur.report_event("back", {})
        dur.drain()
        waiting = range(eve.mailbox().count)
        return [message.text for _ in waiting if (message := eve.receive(timeout=START_S)) is not None]


def fail_everywhere(
    directory: Path, rounds: int, failures: int, whole: int, chance: random.Random, fault: str = ""
) -> list[str]:
    """Let a broker work, let the power fail after each note, and return what is wrong then.

    ``fault`` is code that makes a broker one that deserves to be found out.
    """
    home, trace = directory / "home", directory / "trace"
    code = f"limits.CHECKPOINT_PAGES = {CHECKPOINT_PAGES}\nlimits.CHECKPOINT_AHEAD_PAGES = {CHECKPOINT_AHEAD_PAGES}\n"
    noting = {"LD_PRELOAD": str(build(directory)), "POWER_HOME": str(home), "POWER_TRACE": str(trace)}
    with serving(home, code + fault, noting):
        promises = promises_of(home, trace, rounds, noting)
    everything = list(notes(trace))
    moments = range(1, len(everything) + 1)
    tried = set(moments if not failures or failures >= len(moments) else chance.sample(moments, failures))
    given = set(chance.sample(sorted(tried), min(whole, len(tried))))
    disk = Disk(home)
    faults: list[str] = []
    homes = losses = 0
    for number, note in enumerate(everything, 1):
        disk.follow(note)
        if number not in tried:
            continue
        due = [one for one in promises if one.at <= note.end]
        for fate in FATES:
            place = directory / "image"
            files = disk.left(fate, chance)
            homes += 1
            losses += bool(disk.unsynced)
            where = f"after {note.what} of {Path(note.name).name}, note {number} of {len(everything)}, {fate}"
            write_home(place, files)
            try:
                found = kept(place)
            except StoreUnusable as error:
                faults.append(f"{where}: refused, {error.code}: {error.reason}")
                continue
            faults += [f"{where}: {one.kind} {one.name} is not there" for one in due if not found[one.kind, one.name]]
            if number in given:
                write_home(place, files)
                try:
                    mail = take_mail(place)
                except IntercomError as error:
                    faults.append(f"{where}: {error.code}: {error}")
                    continue
                wanted = [one.name for one in due if one.kind == "queued"]
                if mail[: len(wanted)] != wanted or len(mail) != len(set(mail)):
                    faults.append(f"{where}: of the mail {wanted} came {mail}")
        if len(faults) > 20:
            break
    kinds = Counter(one.kind for one in promises)
    print(f"{len(everything)} notes, {dict(Counter(note.what for note in everything))}")
    print(f"promised: {', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))}")
    print(
        f"{homes} homes were opened, {losses} of them with something not synced, {len(given) * len(FATES)} by a broker"
    )
    return faults


def _answers(home: Path) -> bool:
    try:
        control.health(Paths(home))
    except BrokerError:
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 when everything that was promised was there."""
    parser = argparse.ArgumentParser(
        prog="scripts/power-loss", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds of promises (default {ROUNDS})")
    parser.add_argument("--failures", type=int, default=FAILURES, help="moments to try (default: all)")
    parser.add_argument("--whole", type=int, default=WHOLE, help=f"moments to try with a broker (default {WHOLE})")
    parser.add_argument("--chance", type=int, default=0, help="number that decides what is lost (default 0)")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.work:
        home, trace, rounds = options.work
        print(json.dumps(asyncio.run(promised(Path(home), Path(trace), int(rounds)))))
        return 0
    begin = time.monotonic()
    with TemporaryDirectory(prefix="ic-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        place = Path(os.path.realpath(directory))
        chance = random.Random(options.chance)
        faults = fail_everywhere(place, options.rounds, options.failures, options.whole, chance)
    for fault in faults:
        print(fault)
    print(f"{time.monotonic() - begin:.0f} s\n{'failed' if faults else 'passed'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
