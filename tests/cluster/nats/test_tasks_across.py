"""Test tasks on two machines: two brokers, a real NATS server between them, and the library on both sides."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from intercom import blocking
from intercom.errors import IntercomError, RunFailed
from tests.support.hazards import Listener, Machines, dies_at, hurried, until, until_seen
from tests.support.raw import PATIENCE_S


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    yield made
    made.close()


def at(machines: Machines, name: str, called: str = "alice") -> Any:
    return blocking.connect(called, home=machines.home(name), start=False, timeout=2 * PATIENCE_S)


def delivery_of(session: Any, invocation_id: str) -> Any:
    [delivery] = session.invocation(invocation_id).deliveries
    return delivery


def test_a_task_is_done_on_the_other_machine_and_a_refusal_comes_from_there(machines: Machines) -> None:
    """A3.8 and section 4 between two brokers: done, with the output; refused after one attempt; labels with nodes."""
    bob = Listener("bob", machines.home("studio"))
    with at(machines, "laptop") as alice:
        until_seen(alice, "bob")
        done = alice.invoke("@bob", "build it", invocation_id="one").result(timeout=PATIENCE_S)
        assert (done.state, done.output) == ("completed", "BUILD IT")
        for label in ("@bob.node:studio", "bob@studio"):
            assert alice.resolve(label).target_id == bob.session.id
        with at(machines, "studio", "carol") as carol:
            carol.invoke("@bob", "paint it", invocation_id="two").result(timeout=PATIENCE_S)
        with pytest.raises(RunFailed, match="invocationId"):
            alice.invoke("@bob", "build another", invocation_id="two").result(timeout=PATIENCE_S)
        assert delivery_of(alice, "two").failure == "peer_rejected"
        assert bob.shown == {"build it": 1, "paint it": 1}


@pytest.mark.parametrize("moment", ["before it is known here", "before it is answered there"])
def test_a_broker_that_dies_between_acceptance_and_answer_leaves_one_run(tmp_path: Path, moment: str) -> None:
    """A3.9, A3.2: the peer accepted and our broker died before it stored that, and the peer died before it said so."""
    killed = "laptop" if moment == "before it is known here" else "studio"
    place = ("mesh.Mesh", "_arrived") if killed == "laptop" else ("pump.Pump", "submit")
    fault = hurried() + dies_at(*place, "invoked")
    machines = Machines(tmp_path, faults={killed: fault})
    try:
        bob = Listener("bob", machines.home("studio"))
        with at(machines, "laptop") as alice:
            until_seen(alice, "bob")
            invocation = alice.invoke("@bob", "build it", invocation_id="one")
            machines.wait_for_death(killed)
            machines.start(killed)
            done = until(lambda: _view(invocation), lambda view: view is not None and view.state == "completed")
            assert done.output == "BUILD IT" and bob.shown == {"build it": 1}
            assert delivery_of(alice, "one").status == "completed"
    finally:
        machines.close()


def _view(invocation: Any) -> Any:
    try:
        return invocation.view()
    except IntercomError:  # its broker is just starting
        return None


def test_a_peer_that_is_down_gets_it_when_it_comes(machines: Machines) -> None:
    """A3.7 between two brokers: deferred while the peer is away, sent at once when it is seen, and followed."""
    bob = Listener("bob", machines.home("studio"))
    with at(machines, "laptop") as alice:
        until_seen(alice, "bob")
        machines.brokers["studio"].kill()
        invocation = alice.invoke("@bob", "build it", invocation_id="one")
        machines.until("laptop", lambda found: found["status"] == "on" and not found["peers"])
        machines.start("studio")
        done = invocation.result(timeout=PATIENCE_S)
        assert (done.state, done.output) == ("completed", "BUILD IT") and bob.shown == {"build it": 1}


@pytest.mark.parametrize("killed", ["old", "new"])
def test_a_task_that_waits_at_an_address_moves_with_it(tmp_path: Path, killed: str) -> None:
    """Protocol 13.7: the old home hears of it late, and dies as it hands it on; or the new one as it takes it."""
    name, kind = ("studio", "invoke") if killed == "old" else ("laptop", "invoked")
    fault = hurried() + dies_at("pump.Pump", "submit", kind)
    machines = Machines(tmp_path, through=["studio"], faults={name: fault})
    try:
        machines.until_joined()
        with blocking.connect("bob", address="bob", home=machines.home("studio"), start=False):
            pass
        shutil.copytree(machines.home("studio") / "identities", machines.home("laptop") / "identities")
        with at(machines, "studio") as alice:
            invocation = alice.invoke("@bob", "build it", invocation_id="one")
            machines.proxies["studio"].cut()
            bob = Listener("bob", machines.home("laptop"), address="bob")
            machines.proxies["studio"].mend()
            machines.wait_for_death(name)
            machines.start(name)
            done = until(lambda: _view(invocation), lambda view: view is not None and view.state == "completed")
            assert done.output == "BUILD IT" and bob.shown == {"build it": 1}
    finally:
        machines.close()
