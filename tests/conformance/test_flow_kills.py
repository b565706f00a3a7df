"""Kill the real broker, the real worker, and both, at every point of the life of a step (A2.4, A2.14)."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from intercom.client import blocking
from intercom.client.flowviews import Flow
from intercom.errors import IntercomError
from tests.support.brokers import POLL_S, BrokerProcess, environment
from tests.support.raw import PATIENCE_S

pytestmark = pytest.mark.long

KILLING = """
import signal
from intercom.store import database
who, kind, moment, home = WHO, "KIND", "MOMENT", Path(os.environ["INTERCOM_HOME"])
mark = home / "killed"
original = database.Store._commit
def die():
    mark.touch()
    if "worker" in who:
        os.kill(int((home / "worker.pid").read_text()), signal.SIGKILL)
    if "broker" in who:
        os.kill(os.getpid(), signal.SIGKILL)
def commit(store, batch):
    is_hit = any(getattr(change, "kind", None) == kind for _, changes in batch for change in changes)
    is_hit = is_hit and not mark.exists()
    if is_hit and moment == "before":
        die()
    took = original(store, batch)
    if is_hit and moment == "after":
        die()
    return took
database.Store._commit = commit
"""
WORKER = """
import os, sys
from pathlib import Path
from intercom.client import blocking
from intercom.errors import IntercomError
home = Path(os.environ["INTERCOM_HOME"])
if (home / "dies").exists():
    (home / "dies").unlink()
    from intercom.client import reporting
    reporting.Outbox.sent = lambda *arguments: os.kill(os.getpid(), 9)
with blocking.connect("worker", home=home, address=True, flows=True, start=False, timeout=20) as session:
    (home / "worker.pid").write_text(str(os.getpid()))
    print("here", flush=True)
    while True:
        message = session.receive(timeout=30)
        if message is None:
            continue
        print("got", message.flow.dispatch_id, flush=True)
        session.receive(timeout=0.3)  # which confirms it
        print("confirmed", flush=True)
        try:
            print(message.flow.report("completed", "done", timeout=20).step_state, flush=True)
        except IntercomError as error:
            print(error.code, flush=True)
"""
GRACE_MS = 3_000
POINTS = {
    "the intent is committed": ("dispatch.prepared", "after"),
    "it is sent": ("dispatch.accepted", "before"),
    "it is accepted": ("dispatch.accepted", "after"),
    "the report has arrived": ("work.reported_completed", "before"),
    "it is completed": ("dispatch.completed", "after"),
}


class Worker:
    """Hold one process that does steps; what it prints says what happened to it."""

    def __init__(self, home: Path) -> None:
        (home / "worker.pid").unlink(missing_ok=True)
        self.process = subprocess.Popen(
            (sys.executable, "-c", WORKER),
            env=environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "here\n"

    def end(self) -> list[str]:
        """End it, and return the ids of the dispatches it got."""
        self.process.kill()
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        return [line.split()[1] for line in out.splitlines() if line.startswith("got ")]


def until(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 3 * PATIENCE_S
    while not look():
        assert time.monotonic() < deadline, what
        time.sleep(POLL_S)


def status(home: Path) -> Flow | None:
    """Return the flow, or None while no broker can tell."""
    try:
        with blocking.connect(home=home, purpose="control", start=False, timeout=2) as person:
            return person.flows.status("f")
    except IntercomError:
        return None


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("who", [("broker",), ("worker",), ("broker", "worker")], ids="+".join)
def test_one_dispatch_and_one_effective_message(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, who: tuple[str, ...], point: str
) -> None:
    """A2.4: killed after the intent, after the send, after acceptance, after the report, after completion.

    A2.14: what a worker had written down before it died is brought by its next start.
    """
    kind, moment = POINTS[point]
    home = tmp_path / "home"
    settings: dict[str, Any] = {"flow_end_grace_ms": GRACE_MS}
    code = KILLING.replace("WHO", repr(who)).replace("KIND", kind).replace("MOMENT", moment)
    broker = start_broker(home, fault=code, settings=settings)
    worker = Worker(home)
    workers = [worker]
    with blocking.connect("boss", home=home, coordinator=True, start=False) as boss:
        boss.flows.create("f", "worker", [("one", "sing")])
        try:
            boss.flows.start("f", timeout=0.5)
        except IntercomError:
            assert "broker" in who, "only a broker that is killed may leave it open whether it began"
        until(lambda: (home / "killed").exists(), "nobody was killed")
        if "broker" in who:
            broker.wait()
            start_broker(home, settings=settings)
        if "worker" in who:
            worker.process.wait(PATIENCE_S)
            workers.append(Worker(home))
        found: list[Flow] = []

        def is_over() -> bool:
            flow = status(home)
            if flow is not None:
                found.append(flow)
            return flow is not None and flow.step("one").state in ("completed", "ambiguous")

        until(is_over, f"it is {found[-1].step('one').state if found else 'unknown'}")
    seen = [dispatch_id for one in workers for dispatch_id in one.end()]
    step = found[-1].step("one")
    assert len(step.attempts) == 1, "one dispatch in every case"
    assert seen in ([], [step.attempts[0]]), "one effective message in every case"
    if "worker" not in who or point in ("the report has arrived", "it is completed"):
        assert (step.state, len(seen)) == ("completed", 1)
        if point == "the report has arrived" and "broker" in who:
            assert step.result is not None and step.result.attempts > 1, "it was brought again, and that is told"
    else:
        assert step.state == "ambiguous"


def test_a_report_that_was_never_sent_is_brought_by_the_next_start(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """A2.14: written down, killed before it was sent; its next start sends it, once, and the flow goes on."""
    home = tmp_path / "home"
    start_broker(home, settings={"flow_end_grace_ms": GRACE_MS * 20})
    (home / "dies").touch()
    first = Worker(home)
    with blocking.connect("boss", home=home, coordinator=True, start=False) as boss:
        boss.flows.create("f", "worker", [("one", "sing"), ("two", "dance")])
        boss.flows.start("f")
        first.process.wait(3 * PATIENCE_S)
        flow = boss.flows.status("f")
        assert flow.step("one").state in ("awaiting_result", "dispatching") and flow.step("one").result is None
        again = Worker(home)
        until(lambda: boss.flows.status("f").state == "completed", "it does not go on")
        flow = boss.flows.status("f")
        again.end()
        first.end()
    assert [len(step.attempts) for step in flow.steps] == [1, 1]
    brought = flow.step("one").result
    assert brought is not None and (brought.summary, brought.attempts) == ("done", 1)
    assert brought.prepared_at is not None and brought.prepared_at <= brought.reported_at


def test_rows_that_are_deleted_come_back_as_they_were(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    """A2.15: equal in ids, times and states, to who looks at the flow; and the flow goes on."""
    home = tmp_path / "home"
    broker = start_broker(home)
    with (
        blocking.connect("boss", home=home, coordinator=True, start=False) as boss,
        blocking.connect("worker", home=home, flows="todo", start=False) as worker,
    ):
        gated = {"step_id": "two", "prompt": "dance", "todo_binding": {"conflict_check": True}}
        boss.flows.create("f", "worker", [("one", "sing"), gated, ("three", "rest")])
        boss.flows.create("draft", "worker", [("one", "sing")])
        boss.flows.start("f")
        for outcome, todo in (("completed", None), ("completed", ("t", "in_progress"))):
            message = worker.receive(timeout=PATIENCE_S)
            assert message is not None and message.flow is not None
            message.flow.report(outcome, "so it was", ["file:a"], todo=todo)
        boss.flows.retry("f", "two", "again")
        message = worker.receive(timeout=PATIENCE_S)
        assert message is not None and message.flow is not None
        worker.receive(timeout=0.1)  # which confirms it
        before = [boss.flows.status(flow_id) for flow_id in ("f", "draft")]
        broker.kill()
        with closing(sqlite3.connect(home / "intercom.db")) as connection:
            for table in ("flows", "dispatches"):
                connection.execute(f"DELETE FROM {table}")
            connection.commit()
        start_broker(home)
        after = [boss.flows.status(flow_id, timeout=PATIENCE_S) for flow_id in ("f", "draft")]
        until(lambda: len(worker.list()) > 1, "it is not back")
        assert [flow.steps for flow in after] == [flow.steps for flow in before]
        assert [flow.dispatches for flow in after] == [flow.dispatches for flow in before]
        for old, new in zip(before, after, strict=True):
            assert (new.state, new.revision, new.created_at, new.updated_at, new.reason) == (
                old.state, old.revision, old.created_at, old.updated_at, old.reason,
            )  # fmt: skip
        assert message.flow.report("completed", "done", todo=("t", "completed")).step_state == "completed"
