"""Test the rows of section 5 of the cluster's specification against real brokers and servers, each with its ledger.

At the end of each: every send has one true outcome, and whoever it was for was shown it once. The rows on three
servers, of which one or most are lost, take elections, each of seconds: ``scripts/cluster-faults`` holds them.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from intercom import blocking
from intercom.errors import OutcomeUnknown, TargetNotFound
from tests.support.brokers import UNHURRIED_MS
from tests.support.hazards import Listener, Machines, Sender, dies_at, hurried, until_seen
from tests.support.raw import PATIENCE_S

Make = Callable[..., Machines]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make machines in a directory of the test, and end them all."""
    made: list[Machines] = []

    def build(**more: Any) -> Machines:
        made.append(Machines(tmp_path, **more))
        return made[-1]

    yield build
    for machines in made:
        machines.close()


def at(machines: Machines, name: str, called: str = "alice", **more: Any) -> Any:
    return blocking.connect(called, home=machines.home(name), start=False, timeout=2 * PATIENCE_S, **more)


def in_engine(machines: Machines, work: Callable[[Any], Any]) -> Any:
    """Do something as an operator of the engine does it."""

    async def run() -> Any:
        import nats

        client = await nats.connect(machines.engines[0].url)
        try:
            return await work(client.jetstream())
        finally:
            await client.close()

    return asyncio.run(run())


# --- brokers that die -----------------------------------------------------------------------------------

POINTS = {
    "A after commit, before publish": ("laptop", "pump.Pump", "submit", "send"),
    "A after publish, before mark": ("laptop", "mesh.Mesh", "_posted", "send"),
    "A after outcome, before answer": ("laptop", "mesh.Mesh", "_arrived", "outcome"),
    "B after pull, before commit": ("studio", "mesh.Mesh", "_arrived", "send"),
    "B after commit, before outcome published": ("studio", "pump.Pump", "submit", "outcome"),
    "B after outcome published, before acknowledgement": ("studio", "mesh.Mesh", "_posted", "outcome"),
}


@pytest.mark.parametrize("point", POINTS)
def test_a_broker_that_dies_on_the_way_of_a_message(make: Make, point: str) -> None:
    """Section 5: A and B killed at their three points each: once at the target, and a true answer."""
    killed, *place = POINTS[point]
    machines = make(faults={killed: hurried() + dies_at(*place)})
    bob = Listener("bob", machines.home("studio"))
    with at(machines, "laptop") as alice:
        until_seen(alice, "bob")
        told: list[str] = []
        sender = Sender(alice, "bob")
        sending = Thread(target=lambda: told.append(sender.send("hello", queue=True)), daemon=True)
        sending.start()
        machines.wait_for_death(killed)
        machines.start(killed)
        sending.join(2 * PATIENCE_S)
        assert told and told[0] in ("delivered", "queued")
        machines.until_joined()
        until_seen(alice, "bob")
        sender.settle(bob)


def test_a_message_that_may_have_arrived_stays_in_doubt_without_the_engine_and_for_a_new_broker(make: Make) -> None:
    """Section 5, engine unreachable, A killed: who repeats under the id is not told that nothing took effect."""
    machines = make(faults={"laptop": hurried(receipt_wait_ms=300)})

    def repeats() -> str:
        """Send the message as a program that knows nothing of earlier attempts; return what was told."""
        with at(machines, "laptop", address="alice") as alice, pytest.raises(OutcomeUnknown) as unknown:
            alice.send("bob", "once", message_id="m1", queue=False, timeout=1)
        return unknown.value.code

    with at(machines, "studio", "bob") as bob:
        with at(machines, "laptop", address="alice") as alice:
            until_seen(alice, "bob")
        assert repeats() == "receipt_missing"  # bob has it, and has not looked
        machines.engines[0].kill()
        machines.until("laptop", lambda found: found["status"] == "unavailable")
        assert repeats() == "receipt_missing"
        machines.brokers["laptop"].kill()
        machines.start("laptop")
        assert repeats() == "receipt_missing"
        machines.engines[0].start()
        machines.until_joined()
        message = bob.receive(timeout=PATIENCE_S)
        assert message is not None and message.text == "once"
        message.confirm()
        with at(machines, "laptop", address="alice") as alice:
            until_seen(alice, "bob")
            assert alice.send("bob", "once", message_id="m1", queue=False).state == "delivered"
            alice.send("bob", "the last one")
        message = bob.receive(timeout=PATIENCE_S)
        assert message is not None and message.text == "the last one"


# --- the way to the engine ------------------------------------------------------------------------------


def test_a_network_that_is_cut_takes_its_sessions_away_once_and_brings_them_back_once(make: Make) -> None:
    """Section 5, network between A and the engine cut, for shorter: as if it was unreachable; leases expire."""
    machines = make(through=["laptop"])
    bob, near = Listener("bob", machines.home("studio")), Listener("near", machines.home("laptop"))
    seen: Counter[str] = Counter()
    with at(machines, "laptop") as alice, at(machines, "studio", "carol") as carol:
        until_seen(alice, "bob")
        until_seen(carol, "alice")
        sender = Sender(alice, "bob")
        assert sender.send("before") == "delivered"
        machines.proxies["laptop"].cut()
        machines.until("laptop", lambda found: found["status"] == "unavailable")
        assert sender.send("meanwhile", queue=True) == "queued"
        assert sender.send("now", queue=False) in ("cluster_unavailable", "away")
        assert alice.ask("near", "you", timeout=PATIENCE_S).text == "YOU"
        for wanted in (False, True):
            for event in carol.events(timeout=PATIENCE_S):
                seen[f"{event.kind} {event.session_id}"] += event.kind in ("joined", "left")
                if ("alice" in {view.name for view in carol.list()}) is wanted:
                    break
            if not wanted:
                machines.proxies["laptop"].mend()
        bob.wait_for(["before", "meanwhile"])
        until_seen(alice, "bob")
        sender.settle(bob)
    assert sorted(seen.values())[-2:] == [1, 1], seen
    assert near.shown == {"you": 1}


def test_a_stream_that_is_deleted_or_full_is_said_and_nothing_is_lost(make: Make) -> None:
    """Section 5, stream deleted or full: unavailable with that reason; what is told as queued arrives."""
    # Letters go directly while the engine is slow, as on a busy machine, and need not be refused then.
    patient = (
        f"limits.CLUSTER_DIRECT_MS = {UNHURRIED_MS}\nlimits.CLUSTER_PAUSE_MS = limits.CLUSTER_PAUSE_MOST_MS = 1_000\n"
    )
    machines = make(faults={"laptop": hurried(receipt_wait_ms=1_000) + patient})
    bob = Listener("bob", machines.home("studio"))
    with at(machines, "laptop") as alice:
        until_seen(alice, "bob")
        sender = Sender(alice, "bob")
        assert sender.send("before", queue=True) in ("delivered", "queued")
        bob.wait_for(["before"])

        async def fill(js: Any) -> None:
            config = (await js.stream_info("intercom_mail")).config
            config.max_bytes = 1
            await js.update_stream(config)

        in_engine(machines, fill)
        assert sender.send("full", queue=True) == "queued"
        machines.until("laptop", lambda found: found["status"] == "unavailable" and "maximum bytes" in found["reason"])

        async def delete(js: Any) -> None:
            await js.delete_stream("intercom_mail")

        in_engine(machines, delete)
        machines.until_joined()
        bob.wait_for(["full"])
        sender.settle(bob)


# --- stores, clocks and keys ----------------------------------------------------------------------------


def test_a_restored_old_copy_of_a_store_sends_what_it_held_again_and_nothing_comes_twice(make: Make) -> None:
    """Section 5: new journalId; its outbox rows are published again under the same ids."""
    machines = make()
    bob = Listener("bob", machines.home("studio"))
    with at(machines, "laptop") as alice:
        until_seen(alice, "bob")
        machines.engines[0].kill()
        machines.until("laptop", lambda found: found["status"] == "unavailable")
        sender = Sender(alice, "bob")
        assert sender.send("waits", queue=True) == "queued"
        machines.brokers["laptop"].kill()
        copy = machines.home("laptop").parent / "copy"
        shutil.copytree(machines.home("laptop"), copy, ignore=shutil.ignore_patterns("*.sock", "*.lock"))
        machines.engines[0].start()
        machines.start("laptop")
        bob.wait_for(["waits"])
        assert sender.send("later", queue=True) in ("delivered", "queued")
        bob.wait_for(["later"])
        machines.brokers["laptop"].kill()
        for file in machines.home("laptop").glob("intercom.db*"):
            file.unlink()
        for file in copy.glob("intercom.db*"):
            shutil.copy(file, machines.home("laptop") / file.name)
        machines.start("laptop")
        machines.until_joined()
        until_seen(alice, "bob")
        sender.settle(bob)


AHEAD = (
    "from intercom.core import clock\n"
    "import time as real\nwall, wall_ns = real.time, real.time_ns\n"
    "real.time = lambda: wall() + 3_600\nreal.time_ns = lambda: wall_ns() + 3_600 * 10**9\n"
)


@pytest.mark.parametrize("ahead", ["laptop", "studio"])
def test_a_clock_that_is_an_hour_off_changes_nothing(make: Make, ahead: str) -> None:
    """Section 5: leases are the server's; nothing depends on comparing clocks: not what is valid only for a while."""
    machines = make(faults={ahead: hurried() + AHEAD})
    bob = Listener("bob", machines.home("studio"))
    with at(machines, "laptop") as alice:
        until_seen(alice, "bob")
        sender = Sender(alice, "bob")
        assert sender.send("hello", valid_for=60) == "delivered"
        assert alice.ask("bob", "and you", timeout=PATIENCE_S).text == "AND YOU"
        done = alice.invoke("@bob", "build it", take_within=60.0).result(timeout=PATIENCE_S)
        assert done.output == "BUILD IT"
        sender.settle(bob)


@pytest.mark.parametrize("more", [{}, {"address": "alice"}], ids=["a session", "an address"])
def test_a_message_longer_than_the_engine_takes_crosses_and_costs_nobody_anything(
    make: Make, more: dict[str, str]
) -> None:
    """An engine takes 1 MiB at a time; a message may have more, and what comes behind it must not wait for ever."""
    machines = make()
    bob = Listener("bob", machines.home("studio"))
    with at(machines, "laptop", **more) as alice:
        until_seen(alice, "bob")
        sender = Sender(alice, "bob")
        long = "long " * 300_000
        assert sender.send(long, queue=True) in ("delivered", "queued")
        bob.wait_for([long])
        assert machines.report("laptop")["status"] == "on"
        sender.settle(bob)


def test_two_clusters_with_one_prefix_and_two_keys_do_not_hear_each_other(make: Make) -> None:
    """Section 5: each drops the other's envelopes; and it is said."""
    machines = make(keys={"studio": bytes(32)})
    Listener("bob", machines.home("studio"))
    with at(machines, "laptop") as alice:
        for name in ("laptop", "studio"):
            machines.until(name, lambda found: found["status"] == "on" and found.get("foreign", 0) > 0)
            assert machines.report(name)["peers"] == []
        assert [view.name for view in alice.list()] == ["alice"]
        with pytest.raises(TargetNotFound):
            alice.send("bob", "hello")
