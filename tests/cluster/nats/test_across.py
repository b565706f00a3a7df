"""Test sessions on two machines: two brokers, a real NATS server between them, and the library on both sides."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from intercom import blocking
from intercom.errors import AmbiguousTarget, NotNow, SendRefused, TargetNotFound
from tests.support.brokers import POLL_S, BrokerProcess
from tests.support.engines import NatsServer, one_server
from tests.support.raw import PATIENCE_S


class Worker:
    """Be a session that answers every question with its text in capitals, and keeps what it was sent."""

    def __init__(self, name: str, home: Path, **more: Any) -> None:
        self.got: queue.Queue[str] = queue.Queue()
        self._here: queue.Queue[Any] = queue.Queue()
        self._thread = Thread(target=self._work, args=(name, home, more), daemon=True)
        self._thread.start()
        self.session = self._here.get(timeout=PATIENCE_S)

    def _work(self, name: str, home: Path, more: dict[str, Any]) -> None:
        with blocking.connect(name, home=home, start=False, **more) as session:
            self._here.put(session)
            for message in session.messages():
                if message.text == "leave":
                    return
                self.got.put(message.text)
                if message.expects_reply:
                    message.reply(message.text.upper())

    def next(self) -> str:
        """Return what came next."""
        return self.got.get(timeout=PATIENCE_S)

    def join(self) -> None:
        """Wait until it has left, as it was told to."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


class Machines:
    """Hold the engine and a broker on each of two machines."""

    def __init__(self, directory: Path) -> None:
        self.engine: NatsServer = one_server(directory / "nats")
        self.brokers: dict[str, BrokerProcess] = {}
        self._directory = directory
        key = directory / "mesh.key"
        key.write_bytes(bytes(range(32)))
        key.chmod(0o600)
        for name in ("laptop", "studio"):
            home = directory / name
            home.mkdir(mode=0o700)
            (home / "intercom.toml").write_text(
                f'[cluster]\nurl = "{self.engine.url}"\nkey_file = "{key}"\nnode = "{name}"\n'
            )
            self.start(name)

    def home(self, name: str) -> Path:
        """Return the home of a broker."""
        return self._directory / name

    def start(self, name: str) -> None:
        """Start the broker of a machine, which was killed or never ran."""
        self.brokers[name] = BrokerProcess(self.home(name))

    def close(self) -> None:
        """End everything."""
        for broker in self.brokers.values():
            broker.close()
        self.engine.close()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    made = Machines(tmp_path)
    yield made
    made.close()


def until(session: Any, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Follow who comes and goes until those whom this session sees are as wanted; return them by name."""
    events = session.events(timeout=PATIENCE_S)
    there = {view.name: view.raw for view in session.list() if view.name is not None}
    while not is_so(there):
        assert next(events, None) is not None, there
        there = {view.name: view.raw for view in session.list() if view.name is not None}
    return there


def until_it_is(broker: BrokerProcess, status: str) -> None:
    """Wait until a broker says that the way to others is like this."""
    deadline = time.monotonic() + PATIENCE_S
    with broker.connect() as client:
        while client.status()["multiNode"]["status"] != status:
            assert time.monotonic() < deadline
            time.sleep(POLL_S)


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
