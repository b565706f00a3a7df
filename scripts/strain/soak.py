"""Let fifty sessions talk, come, go and crash for an hour, and judge whether the broker stays as it was.

Memory, descriptors, threads and rows are looked at again and again and printed. The run fails when one of them
grows, when an answer is lost, doubled or untrue, or when anything but the end of a peer reaches a user. It ends by
itself, and ends nothing but what it started.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from statistics import median

from intercom.client import aio, control
from intercom.errors import AskTimeout, IntercomError, OutcomeUnknown, PeerGone, SendRefused, TargetNotFound
from intercom.limits import Limits
from intercom.paths import Paths
from scripts.strain.processes import TOP, brokers_of, descriptors, left_over, own_home, resident_kib, threads, until

SESSIONS = 50
CRASHING = 4
"""Sessions among them that are processes of their own, and are killed instead of leaving."""
MINUTES = 60.0
STAY_S = (2.0, 60.0)
"""Shortest and longest stay of one session; a short run has shorter ones."""
STAYS = 8
"""Stays after one another for which there is time in every run."""
PAUSE_S = 1.0
"""Mean pause between two things one session does."""
SAMPLES = 60
LEAST_PAUSE_S = 1.0
ROW_KIB = 2
"""Memory one remembered operation, or one remembered session, may cost."""
SLACK_KIB = 4_096
"""Growth of memory that is taken for noise."""
SLACK_DESCRIPTORS = 8
"""When all have left: the threads of the store keep the database open once they had something to do."""
CHURN_DESCRIPTORS = 16
"""While some come and others are ended: sessions are not counted at the same moment as descriptors."""
ROW_TTL_S = Limits().operation_ttl_ms / 1000
GROUPS = ("default", "red", "blue")
PEER_ENDS = (PeerGone, TargetNotFound)
"""What a sender is told when the other side has just left."""
WAITING = "Would deadlock"
"""What is said to one of two who ask each other at the same time."""
UNCERTAIN = "outcome unknown"
"""What is counted when the other side crashed with a message it had not confirmed."""
CRASHER = """
import sys
from contextlib import suppress
from intercom.client.blocking import connect
from intercom.errors import IntercomError
with connect(sys.argv[1], home=sys.argv[2]) as session:
    for message in session.messages():
        if message.expects_reply:
            with suppress(IntercomError):  # who asked may be gone
                message.reply("yes")
"""


@dataclass
class Sample:
    """Hold what was seen at one moment; memory in KiB."""

    second: int
    memory: int
    descriptors: int
    threads: int
    sessions: int
    rows: int
    allowed_rows: int
    remembered: int
    unconfirmed: int
    questions: int
    own_memory: int
    own_descriptors: int


class Soak:
    """Run the sessions and keep account of what they saw."""

    def __init__(self, paths: Paths, seconds: float, chance: random.Random) -> None:
        self.paths = paths
        self.seconds = seconds
        self.stay = (STAY_S[0], max(STAY_S[0], min(STAY_S[1], seconds / STAYS)))
        self.chance = chance
        self.present: dict[str, aio.Session | None] = {}
        """Sessions in reach by name; ``None`` for one of another process."""
        self.seen: dict[str, Counter[str]] = {}
        """Texts that each session in this process received, by its name; names are never used twice."""
        self.done: Counter[str] = Counter()
        self.faults: list[str] = []
        self.strange_answers: list[tuple[str, str]] = []
        """Questions, and answers that are not what their listeners answer."""
        self.taken_for_answers: set[str] = set()
        """Messages that their senders' libraries took for the answer they owed."""
        self.samples: list[Sample] = []
        self.unfinished = 0
        """Messages whose sender never heard that they arrived: one of the two was gone."""
        self._sent_at: deque[float] = deque()
        self._number = 0

    async def run(self) -> None:
        """Do it all; faults are in ``faults`` afterwards."""
        begin = time.monotonic()
        async with aio.connect("watcher", home=self.paths.home, purpose="control"):
            first = control.broker_status(self.paths)
            pid = first["pid"]
            before = (descriptors(pid), len(os.listdir("/proc/self/fd")))
            end = begin + self.seconds
            async with asyncio.TaskGroup() as tasks:
                for number in range(SESSIONS):
                    crashes = number < CRASHING
                    tasks.create_task(self._crash_again(end) if crashes else self._stay_again(end))
                tasks.create_task(self._look(begin, end))
            self._expect_same_broker(first)
            await asyncio.sleep(LEAST_PAUSE_S)  # what was said last is still on its way to the core
            last = control.broker_status(self.paths)
            if last["broker"]["openQuestions"]:
                self.faults.append(f"{last['broker']['openQuestions']} open questions when all had left")
            if last["broker"]["unconfirmedFrames"] > self.unfinished:
                kept = last["broker"]["unconfirmedFrames"]
                self.faults.append(f"{kept} messages not confirmed, {self.unfinished} sends without an end")
            if last["sessions"] != 1:
                self.faults.append(f"{last['sessions']} sessions when all but the watcher had left")
            after = (descriptors(pid), len(os.listdir("/proc/self/fd")))
            for who, was, now in zip(("broker", "library"), before, after, strict=True):
                if now > was + SLACK_DESCRIPTORS:
                    self.faults.append(f"the {who} holds {now} descriptors when all have left, {was} before")
        self.faults += [
            f"the answer to {question} was {text}"
            for question, text in self.strange_answers
            if text not in self.taken_for_answers
        ]
        self.faults += judge(self.samples)

    # --- sessions

    def _name(self) -> str:
        self._number += 1
        return f"s{self._number}"

    async def _stay_again(self, end: float) -> None:
        while (left := end - time.monotonic()) > 0:
            name = self._name()
            try:
                async with asyncio.timeout(min(left, self.chance.uniform(*self.stay))) as stay:
                    async with aio.connect(name, home=self.paths.home) as session:
                        await self._live(name, session)
            except TimeoutError:
                if not stay.expired():
                    raise
            except (IntercomError, ExceptionGroup) as error:
                self._fault(name, error)
            self.seen.pop(name, None)
            self.done["stays"] += 1

    async def _live(self, name: str, session: aio.Session) -> None:
        self.seen[name] = Counter()
        self.present[name] = session
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._listen(name, session))
                tasks.create_task(self._act(name, session))
        finally:
            self.present.pop(name, None)

    async def _crash_again(self, end: float) -> None:
        while (left := end - time.monotonic()) > 0:
            name = self._name()
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CRASHER, name, str(self.paths.home), stdin=asyncio.subprocess.DEVNULL, cwd=TOP
            )
            self.present[name] = None
            with suppress(TimeoutError):
                await asyncio.wait_for(child.wait(), min(left, self.chance.uniform(*self.stay)))
            self.present.pop(name, None)
            if child.returncode is not None:
                self.faults.append(f"the process of {name} ended by itself with {child.returncode}")
            else:
                child.send_signal(signal.SIGKILL)
                await child.wait()
            self.done["crashes"] += 1

    async def _listen(self, name: str, session: aio.Session) -> None:
        async for message in session.messages():
            seen = self.seen[name]
            seen[message.text] += 1
            if seen[message.text] > 1:
                self.faults.append(f"{name} got {message.text} {seen[message.text]} times")
            if message.expects_reply:
                with suppress(SendRefused, *PEER_ENDS), self._message():
                    await message.reply(f"re {message.text}")

    async def _act(self, name: str, session: aio.Session) -> None:
        while True:
            await asyncio.sleep(self.chance.expovariate(1 / PAUSE_S))
            kind = self.chance.choices(("send", "ask", "presence", "group", "list"), (70, 12, 8, 6, 4))[0]
            others = [other for other in self.present if other != name]
            if not others:
                continue
            other = self.chance.choice(others)
            try:
                await getattr(self, f"_{kind}")(name, session, other)
                self.done[kind] += 1
            except PEER_ENDS:
                self.done["peer gone"] += 1
            except SendRefused as error:
                if WAITING not in error.reason:
                    raise
                self.done["would have waited for each other"] += 1
            except AskTimeout:
                self.done["ask timed out"] += 1
            except OutcomeUnknown as error:
                if other in self.present:
                    self._fault(name, error)
                self.done[UNCERTAIN] += 1

    async def _send(self, name: str, session: aio.Session, other: str) -> None:
        text = self._text(name)
        self._sent_at.append(time.monotonic())
        with self._message():
            receipt = await session.send(other, text)
        # A receipt is written when the consumer is done with the message, so it must have had it.
        if receipt.inferred_reply_to is not None:
            self.taken_for_answers.add(text)  # it owed the other one an answer when it said this (F67)
        elif receipt.state == "delivered" and other in self.seen and not self.seen[other][text]:
            self.faults.append(f"{text} was called delivered and never reached {other}")

    async def _ask(self, name: str, session: aio.Session, other: str) -> None:
        text = self._text(name)
        self._sent_at += (time.monotonic(), time.monotonic())  # the answer is remembered too
        with self._message():
            answer = await session.ask(other, text, timeout=STAY_S[1])
        if other in self.seen and answer.text != f"re {text}":
            self.strange_answers.append((text, answer.text))

    async def _presence(self, name: str, session: aio.Session, other: str) -> None:
        await session.set_presence(status=f"after {other}")

    async def _group(self, name: str, session: aio.Session, other: str) -> None:
        group = self.chance.choice(GROUPS[1:])
        if group in session.groups:
            await session.leave(group)
        else:
            await session.join(group)

    async def _list(self, name: str, session: aio.Session, other: str) -> None:
        names = {view.name for view in await session.list()}
        if name not in names:
            self.faults.append(f"{name} does not find itself in the list")

    @contextmanager
    def _message(self) -> Iterator[None]:
        """Count the message that is sent in the block as unfinished until its fate is known."""
        self.unfinished += 1
        yield
        self.unfinished -= 1

    def _text(self, name: str) -> str:
        self._number += 1
        return f"{name}-{self._number}"

    def _fault(self, name: str, error: Exception) -> None:
        if isinstance(error, ExceptionGroup):
            for inner in error.exceptions:
                self._fault(name, inner)
        else:
            self.faults.append(f"{name}: {type(error).__name__}: {error}")

    # --- judging

    async def _look(self, begin: float, end: float) -> None:
        pause = max(LEAST_PAUSE_S, self.seconds / SAMPLES)
        print("  ".join(field.name for field in fields(Sample)))
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(pause, left))
            status = control.broker_status(self.paths)
            pid, now = status["pid"], time.monotonic()
            while self._sent_at and self._sent_at[0] < now - ROW_TTL_S:
                self._sent_at.popleft()
            sample = Sample(
                second=int(now - begin),
                memory=resident_kib(pid),
                descriptors=descriptors(pid),
                threads=threads(pid),
                sessions=status["sessions"],
                rows=status["broker"]["store"]["operations"],
                allowed_rows=len(self._sent_at),
                remembered=status["broker"]["mail"]["sessionsRemembered"],
                unconfirmed=status["broker"]["unconfirmedFrames"],
                questions=status["broker"]["openQuestions"],
                own_memory=resident_kib(os.getpid()),
                own_descriptors=descriptors(os.getpid()),
            )
            self.samples.append(sample)
            print("  ".join(f"{value:>{len(name)}}" for name, value in asdict(sample).items()), flush=True)

    def _expect_same_broker(self, first: dict[str, object]) -> None:
        last = control.broker_status(self.paths)
        if last["pid"] != first["pid"] or brokers_of(self.paths) != [first["pid"]]:
            self.faults.append(f"process {first['pid']} served at first, {last['pid']} at last")


def judge(samples: Sequence[Sample]) -> list[str]:
    """Say what grew between the second and the last quarter of a run; the first one is for warming up."""
    faults = [f"{sample.rows} rows, {sample.allowed_rows} sent" for sample in samples if _has_too_many_rows(sample)]
    quarter = len(samples) // 4
    if not quarter:
        return [*faults, "there are too few samples to judge"]
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]

    def growth(name: str) -> float:
        return float(median(getattr(one, name) for one in late) - median(getattr(one, name) for one in early))

    # Closed sessions are remembered up to a limit that an hour of coming and going does not reach.
    kept = max(0, growth("rows")) + max(0, growth("remembered"))
    grown = growth("memory") - ROW_KIB * kept
    if grown > SLACK_KIB:
        faults.append(f"the memory of the broker grew by {grown:.0f} KiB beside its rows and remembered sessions")
    if growth("own_memory") > 2 * SLACK_KIB:
        faults.append(f"the memory of the library's user grew by {growth('own_memory'):.0f} KiB")
    for who, name in (("the broker", "descriptors"), ("this process", "own_descriptors")):
        beside = growth(name) - growth("sessions")
        if beside > CHURN_DESCRIPTORS:
            faults.append(f"{who} holds {beside:.0f} descriptors more beside those of sessions")
    return faults + ([f"threads grew by {growth('threads'):.0f}"] if growth("threads") > SLACK_DESCRIPTORS else [])


def _has_too_many_rows(sample: Sample) -> bool:
    # The broker forgets in steps, and a send that is under way is counted a little earlier than its row.
    return sample.rows > 1.05 * sample.allowed_rows + SESSIONS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 when nothing grew and nothing failed."""
    parser = argparse.ArgumentParser(
        prog="scripts/soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"how long it takes (default {MINUTES:.0f})")
    parser.add_argument("--chance", type=int, default=0, help="number that decides what happens when (default 0)")
    options = parser.parse_args(arguments)
    with own_home() as paths:
        soak = Soak(paths, options.minutes * 60, random.Random(options.chance))
        asyncio.run(soak.run())
        if not until(lambda: not brokers_of(paths)):
            soak.faults.append("the broker did not leave when nobody needed it any more")
        soak.faults += left_over(paths)
    print(", ".join(f"{number} {what}" for what, number in sorted(soak.done.items())))
    for fault in soak.faults:
        print(fault)
    print("failed" if soak.faults else "passed")
    return 1 if soak.faults else 0


if __name__ == "__main__":
    sys.exit(main())
