"""Kill the real broker around each of its commits, and the real client at its own, while a link is used (FE 4.6)."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from intercom.client import blocking, journalfile
from intercom.client.journalfile import JournalFile
from intercom.errors import NoBroker, RequestTimeout
from tests.conformance.test_mail_kills import Killed, met
from tests.support.brokers import BrokerProcess
from tests.support.processes import was_killed
from tests.support.raw import PATIENCE_S, EndOfStream, Frame, RawClient

pytestmark = pytest.mark.long

FEATURES = ["session.lifecycle", "push.receipts", "address", "queue", "link.durable"]
INFO = {"cwd": "/p", "model": "m", "pid": 1, "startedAt": 1, "lastActivity": 1}
EVENTS = 3


class Worker:
    """Play a worker whose journal is never lost."""

    def __init__(self) -> None:
        self.client: RawClient | None = None
        self.bootstrap: Frame = {}
        self.received: Counter[str] = Counter()
        """How often each command came."""
        self.rejected = "c2"
        self.body = {"kind": "command_applied", "commandId": "c1"}

    def come(self, broker: BrokerProcess) -> None:
        if self.client is not None:
            self.client.close()
        self.client = met(broker)
        self.write(
            {
                "type": "register",
                "session": {**INFO, "name": "w"},
                "returnAddress": "r",
                "acknowledgesReceipt": True,
                "features": FEATURES,
                "clientProtocolVersion": "1.0",
                "kind": "custom",
                "address": {"name": "w", "token": "t" * 64},
            }
        )
        self.bootstrap = self.next("link_bootstrap")
        self.write(
            {
                "type": "link_ready",
                "requestId": "ready",
                "linkId": self.bootstrap["linkId"],
                "generation": self.bootstrap["generation"],
                "lastReceivedCommandSeq": 0,
                "journalId": "journal",
            }
        )
        self.next("link_confirmed")

    def next(self, *types: str) -> Frame:
        """Return the next frame of these types; give each command that comes before it a receipt."""
        assert self.client is not None
        try:
            while True:
                frame = self.client.receive()
                if frame["type"] == "command":
                    self.take(frame)
                if frame["type"] in types:
                    return frame
        except (EndOfStream, ConnectionError):
            raise Killed from None

    def take(self, frame: Frame) -> None:
        command = {"commandId": frame["commandId"], "commandSeq": frame["commandSeq"]}
        self.received[frame["commandId"]] += 1
        if frame["commandId"] == self.rejected:
            self.write({"type": "command_rejected", **command, "errorCode": "no"})
        else:
            self.write({"type": "command_received", **command})

    def write(self, *frames: Frame) -> None:
        assert self.client is not None
        try:
            self.client.send(*frames)
        except ConnectionError:
            raise Killed from None

    def report(self) -> None:
        """Report everything behind the floor, and wait until it is acknowledged."""
        for seq in range(self.bootstrap["eventFloor"] + 1, EVENTS + 1):
            body = self.body if seq == 2 else {"kind": "note", "seq": seq}
            link_id = self.bootstrap["linkId"]
            event = {"linkId": link_id, "seq": seq, "eventId": f"e{seq}", "occurredAt": 1, "body": body}
            self.write({"type": "durable_event", **event})
        while self.bootstrap["eventFloor"] < EVENTS:
            self.bootstrap["eventFloor"] = self.next("event_ack")["highWater"]


def play(start: Callable[[], BrokerProcess]) -> tuple[Worker, list[Frame], list[Frame], int]:
    """Send three commands, let them come, report three events; every step is tried again after a death."""
    worker, deaths = Worker(), 0
    broker = start()
    seen: list[list[Frame]] = []

    def ask(kind: str, **members: Any) -> Frame:
        with met(broker) as boss:
            try:
                boss.register(
                    session={"recipientPurpose": "control"},
                    features=["operator"],
                    clientProtocolVersion="1.0",
                    kind="custom",
                )
                boss.send({"type": kind, "requestId": "q", **members})
                return boss.receive()
            except (EndOfStream, ConnectionError):
                raise Killed from None

    def order() -> None:
        for name in ("c1", "c2", "c3"):
            answer = ask("command_send", commandId=name, of={"address": "w"}, body={"do": name})
            assert answer["type"] == "command_stored", answer

    def take() -> None:
        while len(worker.received) < 3:
            frame = worker.client.receive() if worker.client is not None else {}
            assert frame["type"] == "command", frame
            worker.take(frame)

    def take_all() -> None:
        try:
            take()
        except (EndOfStream, ConnectionError):
            raise Killed from None

    def check() -> None:
        seen[:] = [
            ask("commands")["commands"],
            ask("link_events", linkId=worker.bootstrap["linkId"])["events"],
        ]

    steps: list[Callable[[], None]] = [lambda: worker.come(broker), order, take_all, worker.report, check]
    while steps:
        try:
            steps[0]()
            steps.pop(0)
        except Killed:
            deaths += 1
            broker.wait()
            broker = start()
            while len(steps) < 5:
                try:
                    worker.come(broker)
                    break
                except Killed:
                    broker.wait()
                    broker = start()
    if worker.client is not None:
        worker.client.close()
    broker.stop()  # perhaps this is the commit at which it is killed
    return worker, seen[0], seen[1], deaths


KILLING_AT = """
import signal
from intercom.store import database
moment, kind = "MOMENT", "KIND"
original = database.Store._commit
def commit(store, batch):
    def die(): os.kill(os.getpid(), signal.SIGKILL)
    has_come = any(getattr(change, "kind", None) == kind for _, changes in batch for change in changes)
    if has_come and moment == "before":
        store.before_commit = die
    took = original(store, batch)
    if has_come:
        die()
    return took
database.Store._commit = commit
"""
KINDS = (
    "link.dialing",
    "link.ready",
    "command.pending",
    "command.offered",
    "command.received",
    "command.rejected",
    "event.stored",
    "command.applied",
)
"""What a commit can hold while a link is used, in the order in which it comes."""


def mortal(
    start_broker: Callable[..., BrokerProcess], home: Path, moment: str, kinds: Sequence[str]
) -> Callable[[], BrokerProcess]:
    """Return what starts the next broker of a home: one that dies at the first of the kinds, then at the second, ..."""
    faults = [KILLING_AT.replace("MOMENT", moment).replace("KIND", kind) for kind in kinds]

    def start() -> BrokerProcess:
        return start_broker(home, fault=faults.pop(0) if faults else "")

    return start


def check(worker: Worker, told: list[Frame], events: list[Frame], deaths: int) -> None:
    """Each event once and in order, each outcome once, and what was rejected never again."""
    assert [event["eventId"] for event in events] == ["e1", "e2", "e3"]
    assert {each["commandId"]: each["state"] for each in told} == {
        "c1": "applied",
        "c2": "rejected",
        "c3": "received",
    }
    assert deaths or set(worker.received.values()) == {1}, "a copy comes only after a death"


@pytest.mark.parametrize("moment", ["before", "after"])
def test_no_kind_of_commit_is_a_bad_moment_to_die(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, moment: str
) -> None:
    """FE 4.6, A4.2, A4.9, A5.1: one broker after the other dies, each at its kind of commit."""
    worker, told, events, deaths = play(mortal(start_broker, tmp_path / "home", moment, KINDS))
    check(worker, told, events, deaths)
    assert deaths == len(KINDS), "each of them came, and was the end"


MANY = 400
"""So many frames that more than an inbox takes wait, however few the broker reads at once."""
ALL = 200
TURN = 100


def event(link_id: str, seq: int) -> Frame:
    told = {"linkId": link_id, "seq": seq, "eventId": f"e{seq}", "occurredAt": 1}
    return {"type": "durable_event", **told, "body": {"kind": "note", "seq": seq}}


def flood(start: Callable[[], BrokerProcess], mortals: int) -> tuple[BrokerProcess, Worker, int]:
    """Write too much at once until as many brokers died of it, and once more; then report everything in turns."""
    worker, broker, deaths, is_refused = Worker(), start(), 0, False
    while True:
        try:
            worker.come(broker)
            assert worker.bootstrap["eventFloor"] < ALL, "most of what came too fast was not stored"
            link_id, floor = worker.bootstrap["linkId"], worker.bootstrap["eventFloor"]
            if deaths < mortals or not is_refused:
                worker.write(*(event(link_id, seq) for seq in range(floor + 1, floor + MANY + 1)))
                assert worker.next("link_refused")["code"] == "inbox_overflow"
                is_refused = deaths == mortals
                with pytest.raises(Killed):
                    worker.next("event_ack")
                continue
            while floor < ALL:
                most = min(floor + TURN, ALL)
                worker.write(*(event(link_id, seq) for seq in range(floor + 1, most + 1)))
                while floor < most:
                    floor = worker.next("event_ack")["highWater"]
            return broker, worker, deaths
        except Killed:
            deaths += 1
            broker.wait()
            broker = start()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("kinds", [(), ("event.stored", "link.inbox_overflow")])
def test_too_much_at_once(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, moment: str, kinds: tuple[str, ...]
) -> None:
    """A4.3: the link fails, once, and after coming back everything is stored once, in order.

    One broker dies at the event that is handled, one at the failure.
    """
    home = tmp_path / "home"
    broker, worker, deaths = flood(mortal(start_broker, home, moment, kinds), len(kinds))
    assert deaths == len(kinds)
    if not kinds:
        assert broker.log.count('"inbox_overflow"') == 1, "one failure is told of"
    with blocking.connect(purpose="control", home=home, start=False) as person:
        seen: list[str] = []
        while page := person.link_events(worker.bootstrap["linkId"], after=len(seen)):
            seen += [each.id for each in page]
    assert seen == [f"e{seq}" for seq in range(1, ALL + 1)]
    assert broker.stop() == 0


FACTS = ("receive", "begin", "report", "settle", "shorten")
"""What a worker writes down before it says or does anything."""


class Deadly:
    """Let this process die when it writes a kind of fact down, or at its n-th sync."""

    def __init__(self, moment: str, at: str) -> None:
        self._moment = moment
        self._at = at
        self._left = int(at) if at.isdigit() else -1
        self._is_armed = False
        self._originals = os.fsync, JournalFile._append, JournalFile._rewrite
        os.fsync = self._sync
        JournalFile._append = lambda journal, fact, **options: self._append(journal, fact, **options)  # type: ignore[method-assign]  # in a process of its own
        JournalFile._rewrite = lambda journal: self._rewrite(journal)  # type: ignore[method-assign]
        if at == "shorten":
            journalfile.JOURNAL_SHORTENED_BYTES = 1

    def _sync(self, descriptor: Any) -> None:
        self._left -= 1
        is_last = self._left == 0 or self._is_armed
        if is_last and self._moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        self._originals[0](descriptor)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)

    def _append(self, journal: JournalFile, fact: dict[str, Any], **options: Any) -> None:
        kind = {"c": "receive", "d": "begin", "e": "report"}.get(next(iter(fact)), "")
        if kind == "report" and b"command_" in bytes(fact["b"]):
            kind = "settle"
        self._is_armed = kind == self._at
        self._originals[1](journal, fact, **options)

    def _rewrite(self, journal: JournalFile) -> None:
        self._is_armed = self._at == "shorten"
        self._originals[2](journal)


def run_client(home: Path, moment: str = "never", at: object = "nothing", wait: float = 0.2) -> bool:
    """Carry commands out in a process of its own, as a worker does that may die; tell whether it did."""

    def work() -> None:
        with (
            suppress(NoBroker),  # it died of what the worker before this one had left
            blocking.connect("w", address=True, durable=True, home=home, start=False) as session,
        ):
            Deadly(moment, str(at))
            for command in session.commands(timeout=wait):
                with (home / "done").open("a") as done:
                    done.write(f"{command.id}\n")
                session.report_event("done", {"id": command.id})
                command.done()
            with suppress(RequestTimeout):  # the broker may have died, and nobody starts another one
                session.drain(timeout=2)

    return was_killed(work)


def order_two(broker: BrokerProcess, number: int) -> list[str]:
    """Send two commands to the worker, and return their ids."""
    names = [f"{number}a", f"{number}b"]
    with blocking.connect(purpose="control", home=broker.home, start=False) as person:
        for name in names:
            person.send_command({}, address="w", command_id=name)
    return names


def carry_out_all(home: Path) -> None:
    """Let a worker come until no command waits any more; one may give up before the broker has brought it all."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        assert not run_client(home)
        with blocking.connect(purpose="control", home=home, start=False) as person:
            waiting = {each.id: each.state for each in person.command_list() if each.state not in ("applied", "failed")}
        if not waiting:
            return
        assert time.monotonic() < deadline, waiting


def check_worker(broker: BrokerProcess, names: Sequence[str], *, died: bool) -> None:
    """Fail when something was begun twice, lost, told twice, or has an outcome that is not known."""
    done = (broker.home / "done").read_text("utf-8").split()
    assert len(done) == len(set(done)), "nothing is begun twice"
    with blocking.connect(purpose="control", home=broker.home, start=False) as person:
        states = {each.id: (each.state, each.error_code) for each in person.command_list()}
        [link] = person.links()
        events: list[str] = []
        while page := person.link_events(link.id, after=len(events)):
            events += [json.dumps(event.body, sort_keys=True) for event in page]
    assert len(events) == len(set(events)) == link.event_floor, "nothing is lost or told twice"
    outcomes = {states[name] for name in names}
    assert outcomes <= {("applied", None), *([("failed", "interrupted")] if died else [])}, outcomes


@pytest.mark.parametrize("moment", ["before", "after"])
def test_no_kind_of_fact_is_a_bad_moment_for_the_worker_to_die(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, moment: str
) -> None:
    """A4.2, A4.10: no command is begun twice, what was done is told or called interrupted, and no event is lost."""
    broker = start_broker(tmp_path / "home")
    assert not run_client(broker.home, wait=0.01)
    for number, fact in enumerate(FACTS):
        names = order_two(broker, number)
        assert run_client(broker.home, moment, fact)
        carry_out_all(broker.home)
        check_worker(broker, names, died=True)
    assert broker.stop() == 0


@pytest.mark.parametrize("moment", ["before", "after"])
def test_both_sides_die(start_broker: Callable[..., BrokerProcess], tmp_path: Path, moment: str) -> None:
    """FE 4.6: the broker at what it has just taken, the worker at what it does next."""
    home = tmp_path / "home"
    start = mortal(start_broker, home, moment, ("command.received", "event.stored", "command.applied"))
    names: list[str] = []
    first = start_broker(home)
    assert not run_client(home, wait=0.01)
    assert first.stop() == 0
    for number, fact in enumerate(("begin", "report", "settle")):
        broker = start()
        names += order_two(broker, number)
        run_client(home, moment, fact)
        if broker.process.poll() is None:
            run_client(home)
        assert broker.wait() == -signal.SIGKILL
    last = start()
    carry_out_all(home)
    check_worker(last, names, died=True)
    assert last.stop() == 0
