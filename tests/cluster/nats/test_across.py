"""Test sessions on two machines: two brokers, a real NATS server between them, and the library on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from intercom import blocking
from intercom.errors import AmbiguousTarget, NotNow, SendRefused, TargetNotFound
from tests.support.raw import PATIENCE_S
from tests.support.two_machines import Machines, Worker, until, until_it_is


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    yield made
    made.close()


def test_sessions_on_two_machines_talk(machines: Machines) -> None:
    """The same names, groups and promises: send, ask, reply, ``name@node``, refusals."""
    bob = Worker("bob", machines.home("studio"))
    walled = Worker("eve", machines.home("studio"), group="secret")
    with blocking.connect("alice", home=machines.home("laptop"), start=False) as alice:
        there = until(alice, lambda names: "bob" in names)
        assert there["bob"]["node"] == "studio" and "node" not in there["alice"] and "eve" not in there
        assert alice.send("bob", "hello").state == "delivered"
        assert bob.next() == "hello"
        assert alice.ask("bob", "how are you", timeout=PATIENCE_S).text == "HOW ARE YOU"
        assert alice.ask("bob@studio", "and now", timeout=PATIENCE_S).text == "AND NOW"
        with pytest.raises(TargetNotFound):
            alice.send("bob@laptop", "nobody")
        with pytest.raises(SendRefused, match="group"):
            alice.send(walled.session.id, "let me in")
        with blocking.connect("bob", home=machines.home("laptop"), start=False), pytest.raises(AmbiguousTarget):
            alice.send("bob", "which")
        alice.send("bob@studio", "leave")
        bob.join()
        until(alice, lambda names: "bob" not in names)


def test_while_the_engine_is_gone_what_may_wait_waits_and_those_here_notice_nothing(machines: Machines) -> None:
    """Engine unreachable: queued, or refused (``cluster_unavailable``); after its return all arrive once, in order."""
    bob, near = Worker("bob", machines.home("studio")), Worker("near", machines.home("laptop"))
    with blocking.connect("alice", home=machines.home("laptop"), start=False) as alice:
        until(alice, lambda names: "bob" in names)
        machines.engine.kill()
        until_it_is(machines.brokers["laptop"], "unavailable")
        assert [alice.send("bob", f"{number}").state for number in range(3)] == ["queued"] * 3
        with pytest.raises(NotNow) as refused:
            alice.ask("bob", "there?", timeout=PATIENCE_S)
        assert refused.value.code == "cluster_unavailable"
        assert alice.ask("near", "you", timeout=PATIENCE_S).text == "YOU"
        machines.engine.start()
        assert [bob.next() for _ in range(3)] == ["0", "1", "2"]
        until_it_is(machines.brokers["laptop"], "on")
        assert alice.ask("bob", "there?", timeout=PATIENCE_S).text == "THERE?"
        assert bob.next() == "there?" and bob.got.empty()
        for each in ("bob", "near"):
            alice.send(each, "leave")
        bob.join()
        near.join()


@pytest.mark.parametrize("killed", ["laptop", "studio"])
def test_a_broker_that_is_killed_between_two_messages_and_comes_back(machines: Machines, killed: str) -> None:
    """Sessions come back by themselves, on both machines, and talk on; nothing is lost and nothing comes twice."""
    bob = Worker("bob", machines.home("studio"))
    with blocking.connect("alice", home=machines.home("laptop"), start=False) as alice:
        until(alice, lambda names: "bob" in names)
        assert alice.send("bob", "before").state == "delivered"
        machines.brokers[killed].kill()
        machines.start(killed)
        until_it_is(machines.brokers[killed], "on")
        assert alice.send("bob", "after").state in ("delivered", "queued")
        assert [bob.next(), bob.next()] == ["before", "after"]
        until(alice, lambda names: "bob" in names)
        assert alice.ask("bob", "and now", timeout=PATIENCE_S).text == "AND NOW"
        assert bob.next() == "and now" and bob.got.empty()
        alice.send("bob", "leave")
        bob.join()
