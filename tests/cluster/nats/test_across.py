"""Test sessions on two machines: two brokers, a real NATS server between them, and the library on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from intercom import blocking
from intercom.errors import AmbiguousTarget, NotNow, SendRefused, TargetNotFound
from tests.support.hazards import Listener, Machines, seen_by, until_gone, until_seen
from tests.support.raw import PATIENCE_S


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    yield made
    made.close()


def until_it_is(machines: Machines, name: str, status: str) -> None:
    """Wait until a broker says that the way to others is like this."""
    machines.until(name, lambda found: found["status"] == status)


def test_sessions_on_two_machines_talk(machines: Machines) -> None:
    """The same names, groups and promises: send, ask, reply, ``name@node``, refusals."""
    bob = Listener("bob", machines.home("studio"))
    walled = Listener("eve", machines.home("studio"), group="secret")
    with blocking.connect("alice", home=machines.home("laptop"), start=False) as alice:
        until_seen(alice, "bob")
        there = seen_by(alice)
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
        until_gone(alice, "bob")


def test_while_the_engine_is_gone_what_may_wait_waits_and_those_here_notice_nothing(machines: Machines) -> None:
    """Engine unreachable: queued, or refused (``cluster_unavailable``); after its return all arrive once, in order."""
    bob, near = Listener("bob", machines.home("studio")), Listener("near", machines.home("laptop"))
    with blocking.connect("alice", home=machines.home("laptop"), start=False) as alice:
        until_seen(alice, "bob")
        machines.engines[0].kill()
        until_it_is(machines, "laptop", "unavailable")
        assert [alice.send("bob", f"{number}").state for number in range(3)] == ["queued"] * 3
        with pytest.raises(NotNow) as refused:
            alice.ask("bob", "there?", timeout=PATIENCE_S)
        assert refused.value.code == "cluster_unavailable"
        assert alice.ask("near", "you", timeout=PATIENCE_S).text == "YOU"
        machines.engines[0].start()
        assert [bob.next() for _ in range(3)] == ["0", "1", "2"]
        until_it_is(machines, "laptop", "on")
        assert alice.ask("bob", "there?", timeout=PATIENCE_S).text == "THERE?"
        assert bob.next() == "there?" and bob.got.empty()
        for each in ("bob", "near"):
            alice.send(each, "leave")
        bob.join()
        near.join()


@pytest.mark.parametrize("killed", ["laptop", "studio"])
def test_a_broker_that_is_killed_between_two_messages_and_comes_back(machines: Machines, killed: str) -> None:
    """Sessions come back by themselves, on both machines, and talk on; nothing is lost and nothing comes twice."""
    bob = Listener("bob", machines.home("studio"))
    with blocking.connect("alice", home=machines.home("laptop"), start=False) as alice:
        until_seen(alice, "bob")
        assert alice.send("bob", "before").state == "delivered"
        machines.brokers[killed].kill()
        machines.start(killed)
        until_it_is(machines, killed, "on")
        assert alice.send("bob", "after").state in ("delivered", "queued")
        assert [bob.next(), bob.next()] == ["before", "after"]
        until_seen(alice, "bob")
        assert alice.ask("bob", "and now", timeout=PATIENCE_S).text == "AND NOW"
        assert bob.next() == "and now" and bob.got.empty()
        alice.send("bob", "leave")
        bob.join()
