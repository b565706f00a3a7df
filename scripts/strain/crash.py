"""Kill real brokers at every named moment of their lives, while real sessions work, and see that nothing is lost.

A broker is a fork of this program with a home, files, sockets and a process of its own. At the moment it was given (see
``points.py``) it is killed, or stopped first: it stands still while the sessions wait, and is killed, goes on, or finds
itself replaced because somebody deleted its lock and started another one. The sessions go on with the next broker.
From time to time everything comes to rest: then what was sent is compared with what was seen, and a home that nobody
serves must hold nothing but what every home holds.

The order of the moments follows from ``--chance``; what processes do meanwhile is the kernel's.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from intercom.client import aio, control, recovery
from intercom.errors import IntercomError
from intercom.paths import Paths
from intercom.server import ownership
from scripts.strain.crash_work import Work
from scripts.strain.points import POINTS, Point
from scripts.strain.processes import LASTING
from tests.support.brokers import environment
from tests.support.forking import Child, serving_child

KILLS = 1_000
MINUTES = 60.0
ROUNDS_BEFORE_REST = 20
"""Deaths after which everything comes to its end and is compared."""
LONGEST_LIFE_S = 3.0
"""After that a broker whose moment does not come is killed as it is."""
STILL_S = 0.15
"""How long a broker stands still before it is killed or goes on."""
START_S = 30.0
POLL_S = 0.003
AT_ONCE_MS = 50
HELD = 5
"""Status of a broker that does not begin, because another one has its lock or its store."""
IDLE_MS = 60_000
SOON_MS = 50
STOPS = 0.3
"""How many of the brokers between two that die at a moment of their own are told to leave, instead of being killed."""
LOOK_MS = 40
"""How often sessions look for the next broker; much more often than they do for users, who do not kill so many."""
AT_ONCE, STILL, GOES_ON, REPLACED = "killed", "stopped and killed", "stopped and continued", "stopped and replaced"
MANNERS = (AT_ONCE, AT_ONCE, AT_ONCE, STILL, GOES_ON, REPLACED)
IRREPLACEABLE = ("first", "idle", "shutdown", "migration")
"""Groups in which nobody takes the place of a broker that stands still."""
ENDS = ("shutdown", "drain", "idle")
REQUESTS = 0.5
"""How many of those that leave are asked to by a request; the others get a signal."""
DRAIN_S = 0.2
AGED = "CREATE TABLE aged_{number} (id TEXT PRIMARY KEY)"


class Throne:
    """Hold the brokers of one home, one after the other."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.paths = Paths(home)
        self.broker: Child | None = None
        self.faults: list[str] = []
        self.versions = 0
        """Versions of the tables that the programs know beside those there are."""
        self._children: list[Child] = []

    def start(
        self, point: Point | None = None, number: str = "SIGKILL", call: int = 1, idle_ms: int = IDLE_MS
    ) -> Child:
        """Start a broker that dies, or stands still, at a moment."""
        code = "from intercom.store import schema\n"
        code += "".join(
            f"schema.STEPS = (*schema.STEPS, ({AGED.format(number=each)!r},))\n" for each in range(self.versions)
        )
        if idle_ms != IDLE_MS:  # the first visit is sure to come
            code += f"from intercom.server import lifecycle\nlifecycle.FIRST_VISIT_MS = {IDLE_MS}\n"
        if point is not None:
            code += f"from scripts.strain.points import arm\narm({point.name!r}, {number!r}, {call})\n"
        environ = environment(self.home, {"INTERCOM_IDLE_MS": str(idle_ms)})
        self.broker = serving_child(self.home, environ, code)
        self._children.append(self.broker)
        return self.broker

    async def until_it_answers(self) -> None:
        """Wait until the broker serves; another one is started when it was too late."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if not self.answers():
                if self.broker is None or self.broker.poll() is not None:
                    self.ended(self.broker, "at its start")
                    self.start()
                await asyncio.sleep(POLL_S)
            else:
                return
        self.faults.append("no broker answers")

    def answers(self) -> bool:
        """Tell whether a broker answers at once."""
        return ownership.probe(self.paths.socket, AT_ONCE_MS) is ownership.Presence.ANSWERS

    def ended(self, child: Child | None, when: str) -> None:
        """Note how a broker ended that nobody killed."""
        if child is not None and child.returncode not in (0, -signal.SIGKILL):
            said = "" if child.stderr is None else child.stderr.read().decode(errors="replace")
            self.faults.append(f"a broker ended with {child.returncode} {when}: {said.strip()}")

    async def stop(self) -> None:
        """Let the broker leave, and look at what it leaves behind."""
        await self.until_it_answers()
        assert self.broker is not None
        self.broker.terminate()
        await until(lambda: self.broker is None or self.broker.poll() is not None)
        if self.broker.poll() is None:
            self.faults.append("a broker does not leave")
        self.ended(self.broker, "when it was told to leave")
        left = {path.name for path in self.home.iterdir()} - LASTING - {"identities"}
        self.faults += [f"{name} was left" for name in sorted(left)]

    def close(self) -> None:
        """End every broker that is left, and free what belongs to the dead ones."""
        for child in self._children:
            child.kill()
            child.wait()
            child.close()

    def forget_dead(self) -> None:
        """Free what belongs to the dead ones."""
        for child in [child for child in self._children if child is not self.broker and child.poll() is not None]:
            self._children.remove(child)
            child.close()


class Crashes:
    """Kill brokers by a plan, and keep the count."""

    def __init__(
        self, directory: Path, kills: int, seconds: float, chance: random.Random, names: Sequence[str]
    ) -> None:
        self.directory = directory
        self.kills = kills
        self.deadline = time.monotonic() + seconds
        self.chance = chance
        self.points = [point for point in POINTS if not names or any(point.name.startswith(name) for name in names)]
        self.killed: Counter[str] = Counter()
        self.stopped: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        """Deaths that did not come because their moment did not."""
        self.manners: Counter[str] = Counter()
        self.faults: list[str] = []
        self._fresh = 0
        self._asking: set[asyncio.Task[None]] = set()

    @property
    def is_over(self) -> bool:
        """Tell whether it is enough, or late."""
        return self.killed.total() >= self.kills or time.monotonic() >= self.deadline or len(self.faults) > 20

    async def run(self) -> Counter[str]:
        """Do it all; return what the sessions did."""
        throne = Throne(self.directory / "busy")
        work = Work(throne.paths)
        throne.start()
        await throne.until_it_answers()
        try:
            async with work.running():
                await self._rounds(throne, work)
            await throne.stop()
        finally:
            throne.close()
        self.faults += throne.faults + work.ledger.wrong
        return work.ledger.done

    async def _rounds(self, throne: Throne, work: Work) -> None:
        plan: list[tuple[Point, str]] = []
        rounds = 0
        while not self.is_over:
            if not plan:
                plan = [(point, self._manner(point)) for point in self.points]
                self.chance.shuffle(plan)
            point, manner = plan.pop()
            work.going.set()
            try:
                if point.group == "first":
                    await self._alone(point, manner)
                elif point.group == "idle":
                    await self._idle(point, manner)
                else:
                    await self._round(throne, point, manner)
            except IntercomError as error:
                self.faults.append(f"{point.name}, {manner}: {type(error).__name__}: {error}")
            rounds += 1
            throne.forget_dead()
            if rounds % ROUNDS_BEFORE_REST == 0 or self.is_over:
                await self._rest(throne, work)

    def _manner(self, point: Point) -> str:
        manner = self.chance.choice(MANNERS)
        return AT_ONCE if manner == REPLACED and point.group in IRREPLACEABLE else manner

    async def _rest(self, throne: Throne, work: Work) -> None:
        await throne.until_it_answers()
        await work.settle()
        faults = work.ledger.faults() + throne.faults
        throne.faults = []
        if faults:
            self.faults += [f"after {self.killed.total()} kills: {fault}" for fault in faults]

    # --- one death

    async def _round(self, throne: Throne, point: Point, manner: str) -> None:
        """End the broker, and let the next one die at its moment while the sessions work."""
        if self.chance.random() < STOPS and throne.broker is not None:
            throne.broker.terminate()
            await until(lambda: throne.broker is None or throne.broker.poll() is not None)
            throne.ended(throne.broker, "when it was told to leave")
        await self._kill(throne, "anywhere")
        if point.group == "migration":
            throne.versions += 1
        throne.start(point, "SIGKILL" if manner == AT_ONCE else "SIGSTOP", self.chance.randint(1, point.most))
        if point.group in ENDS:
            await throne.until_it_answers()
            await asyncio.sleep(self.chance.uniform(0, 0.1))
            await self._let_leave(throne, point)
        await self._meet(throne, point, manner)

    async def _let_leave(self, throne: Throne, point: Point) -> None:
        assert throne.broker is not None
        if point.group != "drain" and self.chance.random() >= REQUESTS:
            throne.broker.terminate()
            return
        ask = _drain if point.group == "drain" else control.shutdown
        asking = asyncio.create_task(asyncio.to_thread(_quietly, ask, throne.paths))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)

    async def _meet(self, throne: Throne, point: Point, manner: str) -> None:
        """Wait for the moment, and do what is to be done when it has come."""
        broker = throne.broker
        assert broker is not None
        await until(lambda: broker.poll() is not None or _stands_still(broker.pid), LONGEST_LIFE_S)
        if broker.poll() is not None:
            throne.ended(broker, f"at {point.name}")
            if broker.returncode == -signal.SIGKILL:
                self.killed[point.name] += 1
                self.manners[AT_ONCE] += 1
            else:
                self.missed[point.name] += 1
        elif not _stands_still(broker.pid):
            self.missed[point.name] += 1
            await self._kill(throne, "anywhere")
        else:
            self.stopped[point.name] += 1
            self.manners[manner] += 1
            await asyncio.sleep(STILL_S)
            if manner == REPLACED:
                await self._replace(throne, broker, point.name)
            elif manner == GOES_ON:
                broker.send_signal(signal.SIGCONT)
                if point.group in ENDS:
                    await until(lambda: broker.poll() is not None)
                    throne.ended(broker, f"after it stood still at {point.name}")
                else:
                    await asyncio.sleep(self.chance.uniform(0, 0.1))
            else:
                await self._kill(throne, point.name)
        await self._succeed(throne)

    async def _kill(self, throne: Throne, name: str) -> None:
        broker = throne.broker
        if broker is not None and broker.poll() is None:
            broker.kill()
            await until(lambda: broker.poll() is not None)
            self.killed[name] += 1

    async def _succeed(self, throne: Throne) -> None:
        """Let the next broker serve for a moment, so that the sessions meet one."""
        if throne.broker is None or throne.broker.poll() is not None:
            throne.start()
        await throne.until_it_answers()
        await asyncio.sleep(self.chance.uniform(0, 0.2))

    async def _replace(self, throne: Throne, broker: Child, name: str) -> None:
        """Take from a broker that stands still what shows that it serves, start another, and let the first go on."""
        for path in (throne.paths.lock, throne.paths.socket):
            path.unlink(missing_ok=True)
        other = throne.start()
        await until(lambda: other.poll() is not None or throne.answers())
        if other.poll() is not None and other.returncode != HELD:  # the store is still held by who stands still
            throne.ended(other, f"in the place of one that stands still at {name}")
        await asyncio.sleep(STILL_S)
        broker.send_signal(signal.SIGCONT)
        await until(lambda: broker.poll() is not None)
        if broker.poll() is None:
            throne.faults.append("a broker that was replaced stays")
            broker.kill()
            broker.wait()
        await self._kill(throne, "after it had replaced another")

    # --- deaths for which there are no sessions

    async def _alone(self, point: Point, manner: str) -> None:
        """Let the first broker of a new home die, and use the home then."""
        self._fresh += 1
        throne = Throne(self.directory / f"new-{self._fresh}")
        try:
            throne.start(point, "SIGKILL" if manner == AT_ONCE else "SIGSTOP")
            await self._meet(throne, point, manner)
            async with aio.connect("a", home=throne.home, start=False, address=True) as a:
                await a.set_presence(status="here")
                report = control.broker_status(throne.paths)["broker"]["store"]
                if report.get("trouble"):
                    throne.faults.append(f"at {point.name} the store was left unusable: {report['trouble']}")
            await throne.stop()
        finally:
            throne.close()
            self.faults += throne.faults

    async def _idle(self, point: Point, manner: str) -> None:
        """Let a broker die while it leaves because nobody is here; mail waits in it."""
        self._fresh += 1
        throne = Throne(self.directory / f"idle-{self._fresh}")
        texts = [f"mail-{number}" for number in range(3)]
        try:
            throne.start()
            await throne.until_it_answers()
            async with aio.connect("eve", home=throne.home, start=False, address=True):
                pass
            await throne.stop()
            throne.start(point, "SIGKILL" if manner == AT_ONCE else "SIGSTOP", idle_ms=SOON_MS)
            await throne.until_it_answers()
            async with aio.connect("a", home=throne.home, start=False) as a:
                for text in texts:
                    receipt = await a.send("eve", text)
                    if receipt.state != "queued":
                        throne.faults.append(f"mail for somebody who is away was {receipt.state}")
            await self._meet(throne, point, manner)
            async with aio.connect("eve", home=throne.home, start=False, address=True) as eve:
                got = [(await eve.receive()).text for _ in texts]
            if got != texts:
                throne.faults.append(f"{point.name}: {got} came instead of {texts}")
            await throne.stop()
        finally:
            throne.close()
            self.faults += throne.faults


def _quietly(call: Callable[[Paths], object], paths: Paths) -> None:
    with suppress(IntercomError):
        call(paths)


def _drain(paths: Paths) -> object:
    return control.drain(paths, DRAIN_S)


def _stands_still(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False


async def until(condition: Callable[[], bool], seconds: float = START_S) -> None:
    """Wait for something that is bound to come, or as long as that may take."""
    deadline = time.monotonic() + seconds
    while True:
        if condition() or time.monotonic() >= deadline:
            return
        await asyncio.sleep(POLL_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 when nothing was lost, doubled or left."""
    parser = argparse.ArgumentParser(
        prog="scripts/crash", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=KILLS, help=f"how many brokers die (default {KILLS})")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"how long it may take (default {MINUTES:.0f})")
    parser.add_argument("--chance", type=int, default=0, help="number that decides about the order (default 0)")
    parser.add_argument("--points", nargs="*", default=(), help="only moments whose names begin so; `list` shows them")
    options = parser.parse_args(arguments)
    if options.points == ["list"]:
        print("\n".join(point.name for point in POINTS))
        return 0
    recovery.RECONNECT_LOOK_MS = LOOK_MS  # type: ignore[attr-defined]
    begin = time.monotonic()
    with TemporaryDirectory(prefix="ic-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        place = Path(os.path.realpath(directory))
        crashes = Crashes(place, options.kills, options.minutes * 60, random.Random(options.chance), options.points)
        done = asyncio.run(crashes.run())
    for name in [point.name for point in crashes.points] + ["anywhere", "after it had replaced another"]:
        numbers = crashes.killed[name], crashes.stopped[name], crashes.missed[name]
        print("{:<32} killed {:>4}  stopped {:>4}  did not come {:>3}".format(name, *numbers))
    print(", ".join(f"{number} {what}" for what, number in sorted(crashes.manners.items())))
    print(", ".join(f"{number} {what}" for what, number in sorted(done.items())))
    for fault in crashes.faults:
        print(fault)
    took = time.monotonic() - begin
    print(f"{crashes.killed.total()} kills in {took:.0f} s\n{'failed' if crashes.faults else 'passed'}")
    return 1 if crashes.faults else 0


if __name__ == "__main__":
    sys.exit(main())
