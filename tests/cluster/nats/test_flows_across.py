"""Test flows whose worker is on another machine: two brokers and a real NATS server."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from intercom import blocking
from intercom.errors import IntercomError
from intercom.limits import Limits
from tests.support.hazards import Listener, Machines, dies_at, hurried, until, until_seen
from tests.support.raw import PATIENCE_S

STEPS = [("one", "do one"), ("two", "do two")]
ARRIVED, SUBMITTED = ("mesh.Mesh", "_arrived"), ("pump.Pump", "submit")
PATIENT = {"flow_admissions": 100}
"""However long a machine takes to come back under load, a flow is not given up for it."""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[list[Machines]]:
    """Hold the machines of a test, which are ended."""
    made: list[Machines] = []
    yield made
    for machines in made:
        machines.close()


def boss_at(machines: Machines, name: str = "laptop") -> Any:
    return blocking.connect("boss", home=machines.home(name), start=False, coordinator=True, timeout=2 * PATIENCE_S)


def worker_at(machines: Machines, name: str = "studio", called: str = "bob") -> Listener:
    return Listener(called, machines.home(name), flows=True)


def flow_of(boss: Any, flow_id: str = "f") -> Any:
    """Return a flow as it is now; None: its broker is just starting."""
    try:
        return boss.flows.status(flow_id)
    except IntercomError:
        return None


def until_over(boss: Any, flow_id: str = "f") -> Any:
    """Wait until a flow is over; return it."""
    return until(
        lambda: flow_of(boss, flow_id), lambda flow: flow is not None and flow.state not in ("draft", "active")
    )


def started(boss: Any, timeout: float) -> bool:
    """Start the flow, unless its broker dies meanwhile; return whether it did: the same key means the same start."""
    try:
        boss.flows.start("f", key="s", timeout=timeout)
    except IntercomError:
        return False
    return True


def begin(boss: Any, target: str, flow_id: str = "f") -> None:
    boss.flows.create(flow_id, target, STEPS, key=f"create {flow_id}", timeout=PATIENCE_S)
    boss.flows.start(flow_id, key=f"start {flow_id}", timeout=PATIENCE_S)


def test_a_flow_is_done_on_another_machine_and_its_target_is_named_truly(made: list[Machines], tmp_path: Path) -> None:
    """A2.1 and A2.3 between two brokers: step by step, by name@node; who is not there is said truly."""
    machines = Machines(tmp_path, faults={"laptop": hurried(flow_reconcile_ms=250)})
    made.append(machines)
    bob = worker_at(machines)
    with boss_at(machines) as boss:
        until_seen(boss, "bob")
        begin(boss, "bob@studio")
        flow = until_over(boss)
        assert (flow.state, [step.result.summary for step in flow.steps]) == ("completed", ["DO ONE", "DO TWO"])
        assert flow.target_identity.session_id == bob.session.id
        begin(boss, "bob@laptop", "g")
        begin(boss, "bob@cellar", "h")
        reasons = [until_over(boss, flow_id).reason for flow_id in ("g", "h")]
        beginning = f"not reachable after {Limits().flow_admissions} attempts: nobody in group default is called"
        assert reasons == [
            f"{beginning} bob@laptop, nor bob on this machine",
            f"{beginning} bob@cellar, and no machine called cellar can be reached",
        ]
    assert bob.shown == {"do one": 1, "do two": 1}


@pytest.mark.parametrize(
    ("killed", "place", "kind"),
    [
        ("laptop", SUBMITTED, "dispatch"),
        ("laptop", ARRIVED, "dispatched"),
        ("laptop", SUBMITTED, "reported"),
        ("studio", ARRIVED, "dispatch"),
        ("studio", SUBMITTED, "dispatched"),
        ("studio", SUBMITTED, "report"),
        ("studio", ARRIVED, "reported"),
    ],
    ids=[
        "recorded, not published",
        "published, its answer not taken",
        "report recorded, not answered",
        "arrived, not stored",
        "stored, not answered",
        "report stored, not published",
        "report answered, that not taken",
    ],
)
def test_a_broker_that_dies_leaves_one_attempt_and_one_report(
    made: list[Machines], tmp_path: Path, killed: str, place: tuple[str, str], kind: str
) -> None:
    """A2.4, A2.14 and cluster 5: each step has one attempt, is shown once, and is completed, whoever dies where."""
    faults = {name: hurried(**PATIENT) for name in ("laptop", "studio")}
    faults[killed] += dies_at(*place, kind)
    machines = Machines(tmp_path, faults=faults)
    made.append(machines)
    bob = worker_at(machines)
    with boss_at(machines) as boss:
        until_seen(boss, "bob")
        boss.flows.create("f", "bob", STEPS, key="c", timeout=PATIENCE_S)
        is_started = started(boss, timeout=0.5)
        machines.wait_for_death(killed)
        machines.start(killed, hurried(**PATIENT))
        until(lambda: is_started or started(boss, timeout=PATIENCE_S), lambda is_so: is_so)
        flow = until_over(boss)
        assert (flow.state, [step.state for step in flow.steps]) == ("completed", ["completed"] * 2), flow
        assert [len(step.attempts) for step in flow.steps] == [1, 1] and len(flow.dispatches) == 2
    assert bob.shown == {"do one": 1, "do two": 1}


def test_a_report_is_stored_while_the_machine_of_the_flow_is_away(made: list[Machines], tmp_path: Path) -> None:
    """A2.14 between two brokers: the worker is told what is so, and need not say it again; then it is answered."""
    faults = {name: hurried(**PATIENT) for name in ("laptop", "studio")}
    machines = Machines(tmp_path, faults=faults)
    made.append(machines)
    home = machines.home("studio")
    with (
        boss_at(machines) as boss,
        blocking.connect("bob", home=home, start=False, flows=True, timeout=2 * PATIENCE_S) as bob,
    ):
        until_seen(boss, "bob")
        boss.flows.create("f", "bob", STEPS[:1])
        boss.flows.start("f")
        message = bob.receive(timeout=PATIENCE_S)
        assert message is not None and message.flow is not None
        machines.brokers["laptop"].kill()
        machines.until("studio", lambda found: found["status"] == "on" and not found["peers"])
        reported = message.flow.report("completed", "done")
        assert (reported.state, reported.step_state) == ("stored", "awaiting_result")
        assert machines.report("studio")["outbox"] == 1
        machines.start("laptop", hurried(**PATIENT))
        flow = until_over(boss)
        assert (flow.state, flow.steps[0].result.summary) == ("completed", "done")
        again = until(lambda: message.flow.report("completed", "done"), lambda found: found.state == "accepted")
        assert again.step_state == "completed"


def test_rows_that_are_deleted_on_both_machines_come_back_as_they_were(made: list[Machines], tmp_path: Path) -> None:
    """A2.15 between two brokers: equal to who looks at the flow, and its worker reports what it was handed."""
    machines = Machines(tmp_path, faults={name: hurried(**PATIENT) for name in ("laptop", "studio")})
    made.append(machines)
    home = machines.home("studio")
    with (
        boss_at(machines) as boss,
        blocking.connect("bob", home=home, start=False, flows=True, timeout=2 * PATIENCE_S) as bob,
    ):
        until_seen(boss, "bob")
        boss.flows.create("f", "bob", STEPS)
        boss.flows.start("f")
        message = bob.receive(timeout=PATIENCE_S)
        assert message is not None and message.flow is not None
        message.flow.report("completed", "done")
        message = bob.receive(timeout=PATIENCE_S)
        assert message is not None and message.flow is not None
        message.confirm()
        before = until(lambda: flow_of(boss), lambda flow: flow.step("two").state == "awaiting_result")
        for name, tables in (("laptop", ("flows", "dispatches")), ("studio", ("hosted",))):
            machines.brokers[name].kill()
            with closing(sqlite3.connect(machines.home(name) / "intercom.db")) as connection:
                for table in tables:
                    connection.execute(f"DELETE FROM {table}")
                connection.commit()
            machines.start(name, hurried(**PATIENT))
        after = until(lambda: flow_of(boss), lambda flow: flow is not None)
        assert (after.steps, after.created_at) == (before.steps, before.created_at)
        assert after.dispatches == before.dispatches
        until(lambda: reported(message.flow), lambda found: found == "completed")
        assert until_over(boss).state == "completed"


def reported(step: Any) -> str:
    """Report a step; return what it is then, nothing while a broker is just starting."""
    try:
        return str(step.report("completed", "done", timeout=PATIENCE_S).step_state)
    except IntercomError:
        return ""
