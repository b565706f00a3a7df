"""Play two machines that nothing happens to: a broker in a home of its own on each, and a real engine between them."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

from intercom import blocking
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
