"""Whole workflows with real processes: a broker, a host with two runs, stages, senders, and a supervisor's child."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from intercom.client import blocking, control
from intercom.errors import SendRefused, StageRefused, TargetNotFound
from intercom.paths import Paths
from tests.support.brokers import BrokerProcess, environment
from tests.support.commands import Running, listen_to_signals, strict
from tests.support.raw import PATIENCE_S

pytestmark = pytest.mark.long

ROOT = "7f0c2f5e-3b1a-4c6d-9e21-5a4b3c2d1e0f"
NESTED = "1d2e3f40-5a6b-4c7d-8e9f-0a1b2c3d4e5f"
GROUP = f"workflow:{ROOT}"
BELOW = f"{GROUP}/{NESTED}"

PENDING = [["st-1", "reviewer-a", False], ["st-2", "reviewer-b", False]]
CHECKER = [["st-9", "checker", False]]


class World:
    """Hold a broker and the processes around it."""

    def __init__(self, home: Path, directory: Path) -> None:
        self.home = home
        self.directory = directory
        self.broker = BrokerProcess(home)
        self._running: list[Running] = []

    def start(self, module: str, *arguments: str) -> Running:
        """Start one of the programs of the tests; standard input is its end."""
        process = subprocess.Popen(
            (sys.executable, "-m", f"tests.support.{module}", str(self.home), str(self.directory), *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(self.home),
            preexec_fn=listen_to_signals,
        )
        running = Running(process)
        self._running.append(running)
        return running

    def host(self, *options: str, capability: str = "cap") -> Host:
        """Start a host that announces both runs, with stages that have not started."""
        host = Host(self.start("workflow_host", *options), capability)
        host.announce(ROOT, PENDING, possible=["reviewer-*"])
        host.announce(NESTED, CHECKER)
        return host

    def stage(self, target: str, name: str, capability: str = "cap") -> Running:
        """Start a stage; its first event is its first turn."""
        return self.start("workflow_stage", target, name, capability)

    def member(self, name: str) -> Any:
        """Open a session whose home group is the invocation: only such a one gets reports."""
        return blocking.connect(name, home=self.home, group=GROUP, start=False)

    def run(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Run the command and return its status and its document."""
        done = subprocess.run(
            (sys.executable, "-m", "intercom", *arguments, "--json"),
            capture_output=True,
            env=environment(self.home),
            stdin=subprocess.DEVNULL,
            timeout=3 * PATIENCE_S,
            check=False,
        )
        return done.returncode, strict(done.stdout.decode())

    def close(self) -> None:
        for running in self._running:
            running.close()
        self.broker.close()


class Host:
    """Tell a host process what to do."""

    def __init__(self, running: Running, capability: str) -> None:
        self.running = running
        self._capability = capability

    def tell(self, command: dict[str, Any]) -> None:
        assert self.running.process.stdin is not None
        self.running.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.running.process.stdin.flush()

    def expect(self, event: str) -> dict[str, Any]:
        found: dict[str, Any] = strict(self.running.line())
        assert found["event"] == event, found
        return found

    def announce(self, run: str, roster: list[list[Any]], possible: list[str] | None = None) -> None:
        self.tell({"run": run, "capability": self._capability, "roster": roster, "possible": possible or []})
        assert self.expect("announced")["run"] == run

    def kill(self) -> None:
        self.running.process.kill()
        self.running.process.wait()


def event_of(running: Running, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = strict(running.line())
    assert found["event"] == kind, found
    return found


def text_of(session: blocking.Session) -> str:
    """Return the text of the next message."""
    found = session.receive(timeout=PATIENCE_S)
    assert found is not None
    return found.text


@pytest.fixture
def world(home: Path, tmp_path: Path) -> Iterator[World]:
    world = World(home, tmp_path)
    try:
        yield world
    finally:
        world.close()


def test_a_workflow_from_its_first_message_to_its_last(world: World) -> None:
    """Protocol 6.12, F95, F96, F98: asked in vain, queued, first turn, live, ambiguous, broadcast, reported."""
    host = world.host()
    with world.member("lead") as lead:
        states = {stage.target: stage.state for stage in lead.list_stages()}
        assert states == {
            f"{GROUP}/st-1": "pending",
            f"{GROUP}/st-2": "pending",
            f"{BELOW}/st-9": "pending",
            f"{GROUP}/reviewer-*": "possible",
        }

        with pytest.raises(SendRefused) as refused:
            lead.ask(f"{GROUP}/reviewer-a", "ready?", timeout=PATIENCE_S)
        assert refused.value.code == "stage_ask"
        with pytest.raises(SendRefused) as refused:
            lead.ask(f"{GROUP}/**", "ready?", timeout=PATIENCE_S)
        assert refused.value.code == "stage_ask"

        first = lead.send(f"{GROUP}/reviewer-a", "first", message_id="m1")
        assert (first.state, first.position, first.is_known) == ("queued", 1, True)
        second = lead.send(f"{GROUP}/st-1", "second")
        assert (second.state, second.position) == ("queued", 2), "one queue, whatever the stage is called"
        again = lead.send(f"{GROUP}/reviewer-a", "first", message_id="m1")
        assert (again.state, again.position) == ("queued", 1), "kept once"
        assert lead.send(f"{GROUP}/st-1", "first", message_id="m1").position == 1, "under whatever name"
        assert lead.send(f"{BELOW}/checker", "check").position == 1
        status, document = world.run("send", "--group", GROUP, "--as", "cli", f"{GROUP}/reviewer-a", "third")
        assert (status, document["state"], document["position"], document["known"]) == (0, "queued", 3, True)

        stage = world.stage(f"{GROUP}/st-1", "reviewer-a")
        turn = event_of(stage, "turn")
        assert turn["texts"] == ["first", "second", "third"]
        checker = world.stage(f"{BELOW}/st-9", "checker")
        assert event_of(checker, "turn")["texts"] == ["check"]
        shown = {view.target: (view.state, view.session_id) for view in lead.list_stages()}
        assert shown[f"{GROUP}/st-1"] == ("running", turn["id"])
        _, document = world.run("list", "--group", GROUP)
        assert {each["target"]: each["lifecycle"] for each in document["stages"]} == {
            f"{GROUP}/st-1": "running",
            f"{GROUP}/st-2": "pending",
            f"{BELOW}/st-9": "running",
        }

        assert lead.send(f"{GROUP}/reviewer-a", "now live").state == "delivered"
        assert event_of(stage, "message") == {"event": "message", "text": "now live", "sender": "lead"}
        assert lead.ask(f"{GROUP}/reviewer-a", "and?", timeout=PATIENCE_S).text == "st-1 answers"
        event_of(stage, "message")

        host.announce(ROOT, [["st-1", "reviewer-a", True], ["st-2", "reviewer-a", False]])
        with pytest.raises(SendRefused, match="several stages"):
            lead.send(f"{GROUP}/reviewer-a", "which one?")
        assert lead.send(f"{GROUP}/st-1", "by id").state == "delivered"
        assert event_of(stage, "message")["text"] == "by id"

        host.announce(NESTED, [["st-9", "checker", True]])
        everyone = lead.send(f"{GROUP}/**", "stop soon", message_id="all")
        assert everyone.state == "queued"
        assert event_of(stage, "message")["text"] == "stop soon"
        assert event_of(checker, "message")["text"] == "stop soon"
        assert set(host.expect("reached")["stages"]) == {f"{GROUP}/st-1", f"{BELOW}/st-9"}
        late = world.stage(f"{GROUP}/st-2", "reviewer-a")
        assert event_of(late, "turn")["texts"] == ["stop soon"], (
            "a stage gets a broadcast at most once, and late ones too"
        )

        host.tell({"notify": ["m1", "reviewer-a has read it"]})
        report = lead.receive(timeout=PATIENCE_S)
        assert report is not None
        assert (report.is_notification, report.reply_to, report.text) == (True, "m1", "reviewer-a has read it")
        assert lead.receive(timeout=0.01) is None
        assert host.expect("notified")["state"] == "delivered"


def test_a_host_that_is_restarted(world: World) -> None:
    """Protocol 6.12.3: a dormant route keeps taking messages until the run is resumed by another session."""
    host = world.host()
    with world.member("lead") as lead:
        assert lead.send(f"{GROUP}/reviewer-a", "before", message_id="m1").position == 1
        host.kill()
        deadline = threading.Event()
        while True:
            try:
                lead.send(f"{GROUP}/reviewer-a", "into the gap")
            except TargetNotFound:
                break
            assert not deadline.wait(0.01)

        dormant = world.host("dormant")
        assert lead.send(f"{GROUP}/reviewer-a", "while dormant", message_id="m2").position in (2, 3)
        assert lead.send(f"{GROUP}/reviewer-a", "before", message_id="m1").position == 1, "the queue is the same one"

        resumed = world.host(capability="another")
        lost = {dormant.expect("run_lost")["run"] for _ in range(2)}
        assert lost == {ROOT, NESTED}
        position = lead.send(f"{GROUP}/reviewer-a", "after").position
        assert position is not None and position >= 3
        stage = world.stage(f"{GROUP}/st-1", "reviewer-a", "another")
        texts = [text for text in event_of(stage, "turn")["texts"] if text != "into the gap"]
        assert texts == ["before", "while dormant", "after"]

        with (
            blocking.connect("thief", home=world.home, group=GROUP, start=False) as thief,
            pytest.raises(StageRefused) as refused,
            thief.stage(ROOT, "st-2", capability="cap"),
        ):
            pass
        assert refused.value.code == "capability_mismatch"
        assert resumed.running.process.poll() is None


def test_everything_comes_back_after_the_broker_died(world: World) -> None:
    """F94 and protocol 6.12: runs and stages are announced again, in whatever order they return."""
    host = world.host()
    stage = world.stage(f"{GROUP}/st-1", "reviewer-a")
    event_of(stage, "turn")
    with world.member("lead") as lead:
        world.broker.kill()
        world.broker = BrokerProcess(world.home)
        host.expect("reconnected")
        waiting = threading.Event()
        while {view.target: view.state for view in lead.list_stages()}.get(f"{GROUP}/st-1") != "running":
            assert not waiting.wait(0.02)
        assert lead.send(f"{GROUP}/reviewer-b", "still there?").state == "queued"
        assert lead.ask(f"{GROUP}/reviewer-a", "and you?", timeout=PATIENCE_S).text == "st-1 answers"


def test_a_child_that_is_brought_back_while_three_wait(world: World) -> None:
    """Protocol 6.11 and 8.8: held under name and former id, handed over in order, each once."""
    with ExitStack() as stack:
        boss = stack.enter_context(blocking.connect("boss", home=world.home, start=False))
        capability = boss.authorize_child("reviewer")
        with blocking.connect("reviewer", home=world.home, supervisor=capability, start=False) as child:
            former = child.id
        boss.reserve_child("reviewer", aliases=[former])
        senders = [
            stack.enter_context(blocking.connect(name, home=world.home, start=False)) for name in ("a", "b", "c")
        ]
        held = []
        for sender, target in zip(senders, ("reviewer", former, "Reviewer"), strict=True):
            receipt = sender.send(target, f"from {sender.name}", hold=True)
            assert (receipt.state, receipt.target) == ("held", target)
            held.append(receipt)
        back = stack.enter_context(blocking.connect("reviewer", home=world.home, supervisor=capability, start=False))
        assert [text_of(back) for _ in held] == ["from a", "from b", "from c"]
        assert back.receive(timeout=0.01) is None
        for sender, receipt in zip(senders, held, strict=True):
            assert sender.outcome(receipt, timeout=PATIENCE_S).state == "delivered"
        boss.release_child("reviewer")


def test_a_child_that_does_not_come_back(world: World) -> None:
    """Protocol 4.13: told to who waits, and to who comes later."""
    with ExitStack() as stack:
        boss = stack.enter_context(blocking.connect("boss", home=world.home, start=False))
        boss.authorize_child("reviewer")
        boss.reserve_child("reviewer")
        sender = stack.enter_context(blocking.connect("a", home=world.home, start=False))
        held = sender.send("reviewer", "hi", hold=True)
        assert held.state == "held"
        boss.release_child("reviewer", gone="reviewer was cancelled")
        with pytest.raises(SendRefused, match="reviewer was cancelled"):
            sender.outcome(held, timeout=PATIENCE_S)
        with pytest.raises(SendRefused, match="reviewer was cancelled"):
            sender.send("reviewer", "hi again")


def test_a_supervisor_that_is_restarted_takes_its_child_over(world: World) -> None:
    """Protocol 6.6 and 8.8: the same owner token and the same capability, from another process."""
    token = str(uuid.uuid4())
    with blocking.connect("boss", home=world.home, owner_token=token, start=False) as boss:
        capability = boss.authorize_child("reviewer")
    with ExitStack() as stack:
        boss = stack.enter_context(blocking.connect("boss", home=world.home, owner_token=token, start=False))
        assert boss.authorize_child("reviewer", capability=capability) == capability
        boss.reserve_child("reviewer")
        status: list[Any] = []
        words = ("send", "--as", "x", "reviewer", "are you back?")
        command = threading.Thread(target=lambda: status.append(world.run(*words)))
        command.start()
        listing = threading.Event()
        while control.broker_status(Paths(world.home))["sessions"] < 2:
            assert not listing.wait(0.02)
        child = stack.enter_context(blocking.connect("reviewer", home=world.home, supervisor=capability, start=False))
        found = child.receive(timeout=PATIENCE_S)
        assert found is not None and found.text == "are you back?"
        assert child.receive(timeout=0.01) is None
        command.join(3 * PATIENCE_S)
        assert [(code, document["state"]) for code, document in status] == [(0, "delivered")]


def test_the_fifty_first_message(world: World) -> None:
    """F96, F98: the host's own limit, over all names of the stage; the refusal says so."""
    world.host()
    with world.member("lead") as lead:
        for number in range(50):
            key = "reviewer-a" if number % 2 else "st-1"
            assert lead.send(f"{GROUP}/{key}", f"text {number}").position == number + 1
        with pytest.raises(SendRefused, match="50 messages"):
            lead.send(f"{GROUP}/reviewer-a", "one too many")
        with pytest.raises(SendRefused, match="no stage"):
            lead.send(f"{GROUP}/unknown", "hello")
        with pytest.raises(TargetNotFound):
            lead.send(f"workflow:{uuid.uuid4()}/a", "a run nobody hosts")
