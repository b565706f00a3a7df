"""Kill the real broker around each of its commits, and the real client at its own, while a link is used (FE 4.6)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.client import blocking
from tests.conformance.test_mail_kills import KILLING, Killed
from tests.support.brokers import TOP, BrokerProcess, environment
from tests.support.raw import PATIENCE_S, EndOfStream, Frame, RawClient

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
        self.client = broker.connect()
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
        with broker.connect() as boss:
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


@pytest.mark.parametrize("moment", ["before", "after"])
def test_no_commit_is_a_bad_moment_to_die(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, moment: str
) -> None:
    """FE 4.6, A4.2, A4.9, A5.1: each event once and in order, each outcome once, what was rejected never again."""
    commits = 0
    while True:
        commits += 1
        faults = [KILLING.replace("MOMENT", moment).replace("COUNT", str(commits))]

        def start(faults: list[str] = faults, home: Path = tmp_path / str(commits)) -> BrokerProcess:
            return start_broker(home, fault=faults.pop() if faults else "")

        worker, told, events, deaths = play(start)
        assert [event["eventId"] for event in events] == ["e1", "e2", "e3"]
        assert {each["commandId"]: each["state"] for each in told} == {
            "c1": "applied",
            "c2": "rejected",
            "c3": "received",
        }
        assert deaths or set(worker.received.values()) == {1}, "a copy comes only after a death"
        if not deaths:
            break
    assert commits > 6, "every step takes a commit at least"


CLIENT = """
import os, sys
from intercom.client import blocking, journalfile
home, moment, left = sys.argv[1], sys.argv[2], [int(sys.argv[3])]
original = os.fsync
def fsync(descriptor):
    left[0] -= 1
    if left[0] == 0 and moment == "before":
        os.kill(os.getpid(), 9)
    original(descriptor)
    if left[0] == 0:
        os.kill(os.getpid(), 9)
with (
    blocking.connect(purpose="control", home=home, start=False) as person,
    blocking.connect("w", address=True, durable=True, home=home, start=False) as session,
):
    journalfile.os.fsync = fsync
    is_open = True
    while is_open:
        is_open = any(command.state not in ("applied", "failed") for command in person.command_list())
        for command in session.commands(timeout=0.02):
            with open(os.path.join(home, "done"), "a") as done:
                done.write(command.id + "\\n")
            session.report_event("done", {"id": command.id})
            command.done()
    while session.unstored_events:
        next(iter(session.commands(timeout=0.05)), None)
"""


def run_client(broker: BrokerProcess, moment: str, count: int) -> int:
    """Run a worker until no command is open; it dies at its fsync of this number."""
    arguments = [sys.executable, "-c", CLIENT, str(broker.home), moment, str(count)]
    done = subprocess.run(
        arguments,
        cwd=TOP,
        env=environment(broker.home),
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_S,
        check=False,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


@pytest.mark.parametrize("moment", ["before", "after"])
def test_no_moment_is_a_bad_one_for_the_worker_to_die(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, moment: str
) -> None:
    """A4.2, A4.10: no command is begun twice, what was done is told or called interrupted, and no event is lost."""
    count = 0
    while True:
        count += 1
        broker = start_broker(tmp_path / str(count))
        run_client(broker, moment, 10_000)
        with blocking.connect(purpose="control", home=broker.home, start=False) as person:
            for name in ("c1", "c2"):
                person.send_command({}, address="w", command_id=name)
        ended = run_client(broker, moment, count)
        if ended:
            run_client(broker, moment, 10_000)
        with blocking.connect(purpose="control", home=broker.home, start=False) as person:
            states = {each.id: (each.state, each.error_code) for each in person.command_list()}
            [link] = person.links()
            events = [json.dumps(event.body, sort_keys=True) for event in person.link_events(link.id)]
        done = (broker.home / "done").read_text("utf-8").split()
        assert len(done) == len(set(done)), "nothing is begun twice"
        assert len(events) == len(set(events)) == link.event_floor, "nothing is lost or told twice"
        assert set(states.values()) <= {("applied", None), ("failed", "interrupted")}
        if not ended:
            assert (set(states.values()), sorted(done)) == ({("applied", None)}, ["c1", "c2"])
            break
        assert broker.stop() == 0
    assert count > 6, "receiving, beginning, reporting and settling are on disk each"
