"""Put brokers on machines of their own, an engine between them, and whatever can go wrong in between.

A machine here is a home with a broker; what it reaches the engine by can be a proxy that drops what comes.
"""

from __future__ import annotations

import queue
import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

from intercom import blocking
from intercom.errors import IntercomError
from tests.support.brokers import POLL_S, BrokerProcess, limited
from tests.support.engines import NatsServer, one_server, three_servers
from tests.support.raw import PATIENCE_S

QUICK = {
    "CLUSTER_LEASE_MS": 1_500,
    "CLUSTER_RENEW_MS": 300,
    "CLUSTER_LOOK_MS": 100,
    "CLUSTER_PING_MS": 1_000,
    "CLUSTER_ANSWER_MS": 1_000,
    "CLUSTER_CONNECT_MS": 1_000,
    "CLUSTER_PAUSE_MS": 50,
    "CLUSTER_PAUSE_MOST_MS": 200,
    "CLUSTER_REDELIVERY_MS": 1_000,
}
"""Times of the way to other machines that a test can wait for."""
QUICK_LIMITS = {"busy_ms": 300, "peer_absent_ms": 200, "peer_return_ms": 2_000}
"""The same of the core."""


def hurried(**core: int) -> str:
    """Return the fault of a broker that has ``QUICK`` times on its way to others; ``core``: numbers to decide by."""
    return (
        "for name in [each for each in sys.modules if each.startswith('intercom.cluster.nats')]:\n"
        "    del sys.modules[name]\n"
        f"for name, value in {QUICK!r}.items():\n"
        "    setattr(limits, name, value)\n"
    ) + limited(**{**QUICK_LIMITS, **core})


def dies_at(place: str, method: str, kind: str, *, after: bool = False) -> str:
    """Return the fault of a broker that is killed where something of this kind passes for the first time.

    Args:
        place: module and class below ``intercom.cluster.nats``, ``pump.Pump``.
        method: whose first argument has a ``kind``, or is one.
        kind: of the letter.
        after: let the method do its work before.
    """
    module, _, name = place.partition(".")
    return (
        f"import signal\nfrom intercom.cluster.nats.{module} import {name}\n"
        f"original_{method} = {name}.{method}\n"
        f"def {method}(self, *args):\n"
        f"    is_it = any({kind!r} in (each, getattr(each, 'kind', None)) for each in args)\n"
        + ("" if not after else f"    result = original_{method}(self, *args)\n")
        + "    if is_it:\n        os.kill(os.getpid(), signal.SIGKILL)\n"
        + (f"    return original_{method}(self, *args)\n" if not after else "    return result\n")
        + f"{name}.{method} = {method}\n"
    )


class Proxy:
    """Stand between brokers and a server of the engine; ``cut`` drops every byte until ``mend``."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._is_cut = Event()
        self._is_over = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Return where it is reached."""
        return f"nats://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Drop everything; connections stay open, and new ones are taken, as where a cable is cut."""
        self._is_cut.set()

    def mend(self) -> None:
        """Let everything through again; what was cut off meanwhile is ended, as its peers would find."""
        self._is_cut.clear()

    def close(self) -> None:
        """End every connection."""
        self._is_over.set()
        self._thread.join(PATIENCE_S)
        self._listener.close()

    def _run(self) -> None:
        pairs: dict[socket.socket, socket.socket | None] = {}
        while not self._is_over.is_set():
            ready, _, _ = select.select([self._listener, *pairs], [], [], 0.02)
            for each in ready:
                if each is self._listener:
                    self._take(pairs)
                elif each in pairs:
                    self._pass_on(each, pairs)
            if not self._is_cut.is_set():
                for each in [one for one, other in pairs.items() if other is None]:
                    self._end(each, pairs)
        for each in list(pairs):
            self._end(each, pairs)

    def _take(self, pairs: dict[socket.socket, socket.socket | None]) -> None:
        near, _ = self._listener.accept()
        far = None
        if not self._is_cut.is_set():
            try:
                far = socket.create_connection(("127.0.0.1", self._to), timeout=1)
            except OSError:
                near.close()
                return
            pairs[far] = near
        pairs[near] = far

    def _pass_on(self, one: socket.socket, pairs: dict[socket.socket, socket.socket | None]) -> None:
        try:
            data = one.recv(1 << 16)
            other = pairs[one]
            if self._is_cut.is_set():
                if data and other is not None:
                    pairs[one] = pairs[other] = None  # bytes were lost: nothing can follow them
                elif not data:
                    self._end(one, pairs)
                return
            if data and other is not None:
                other.sendall(data)
                return
        except OSError:
            pass
        self._end(one, pairs)

    def _end(self, one: socket.socket, pairs: dict[socket.socket, socket.socket | None]) -> None:
        other = pairs.pop(one, None)
        one.close()
        if other is not None:
            pairs.pop(other, None)
            other.close()


class Machines:
    """Hold the engine and a broker on each of two machines.

    Args:
        directory: for everything.
        servers: of the engine, 1 or 3.
        faults: Python code that a broker runs before it serves, by machine.
        through: machines that reach the engine by a proxy.
        keys: bytes of the key of a machine, where it is not the common one.
    """

    def __init__(
        self,
        directory: Path,
        *,
        names: Sequence[str] = ("laptop", "studio"),
        servers: int = 1,
        faults: dict[str, str] | None = None,
        through: Sequence[str] = (),
        keys: dict[str, bytes] | None = None,
    ) -> None:
        self._directory = directory
        self.engines: list[NatsServer] = (
            [one_server(directory / "nats")] if servers == 1 else three_servers(directory / "nats")
        )
        self.proxies: dict[str, Proxy] = {}
        self.brokers: dict[str, BrokerProcess] = {}
        try:
            for name in names:
                self._prepare(name, name in through, (keys or {}).get(name, bytes(range(32))))
                self.start(name, (faults or {}).get(name, hurried()))
        except BaseException:
            self.close()
            raise

    def _prepare(self, name: str, is_through_proxy: bool, key: bytes) -> None:
        home = self.home(name)
        home.mkdir(mode=0o700)
        (home / "mesh.key").write_bytes(key)
        (home / "mesh.key").chmod(0o600)
        urls = [engine.url for engine in self.engines]
        if is_through_proxy:
            self.proxies[name] = Proxy(self.engines[0].port)
            urls = [self.proxies[name].url]
        written = ", ".join(f'"{url}"' for url in urls)
        (home / "intercom.toml").write_text(
            f'[cluster]\nurl = [{written}]\nkey_file = "{home}/mesh.key"\nnode = "{name}"\n'
        )

    def home(self, name: str) -> Path:
        """Return the home of a broker."""
        return self._directory / name

    def start(self, name: str, fault: str | None = None) -> None:
        """Start the broker of a machine, which was killed or never ran."""
        if name in self.brokers:
            self.brokers[name].close()
        self.brokers[name] = BrokerProcess(self.home(name), fault=hurried() if fault is None else fault)

    def wait_for_death(self, name: str) -> None:
        """Wait until a broker that is to die at some place has died there."""
        self.brokers[name].wait()

    def report(self, name: str) -> dict[str, Any]:
        """Return what a broker says of other machines."""
        with self.brokers[name].connect() as client:
            found: dict[str, Any] = client.status()["multiNode"]
        return found

    def until(self, name: str, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until what a broker says of other machines is as wanted; return it."""
        return until(lambda: self.report(name), is_so)

    def until_joined(self) -> None:
        """Wait until every broker sees every other."""
        for name in self.brokers:
            self.until(name, lambda found: len(found.get("peers", ())) == len(self.brokers) - 1)

    def close(self) -> None:
        """End everything."""
        for broker in self.brokers.values():
            broker.close()
        for proxy in self.proxies.values():
            proxy.close()
        for engine in self.engines:
            if engine.process.poll() is None:
                engine.thaw()
            engine.close()


def until(look: Callable[[], Any], is_so: Callable[[Any], bool]) -> Any:
    """Look again and again until what is seen is as wanted; return it."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so(seen := look()):
        assert time.monotonic() < deadline, seen
        time.sleep(POLL_S)
    return seen


class Listener:
    """Be a session that keeps what it is shown, answers every question, and does every task and step.

    Args:
        name: its name.
        home: of its broker.
        more: for ``connect``.
    """

    def __init__(self, name: str, home: Path, **more: Any) -> None:
        self.shown: Counter[str] = Counter()
        self.got: queue.Queue[str] = queue.Queue()
        self._here: queue.Queue[Any] = queue.Queue()
        self._thread = Thread(target=self._work, args=(name, home, more), daemon=True)
        self._thread.start()
        self.session = self._here.get(timeout=PATIENCE_S)

    def _work(self, name: str, home: Path, more: dict[str, Any]) -> None:
        with blocking.connect(name, home=home, start=False, timeout=2 * PATIENCE_S, **more) as session:
            self._here.put(session)
            for message in session.messages():
                if message.text == "leave":
                    return
                self.shown[message.text] += 1
                self.got.put(message.text)
                if message.flow is not None:
                    with suppress(IntercomError):  # it is written down, and sent again by the session itself
                        message.flow.report("completed", message.text.upper())
                elif message.invocation is not None:
                    message.invocation.complete(message.text.upper())
                elif message.expects_reply:
                    message.reply(message.text.upper())

    def next(self) -> str:
        """Return what came next."""
        return self.got.get(timeout=PATIENCE_S)

    def join(self) -> None:
        """Wait until it has left, as it was told to."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def wait_for(self, texts: Sequence[str]) -> None:
        """Wait until each of these was shown."""
        until(lambda: self.shown, lambda shown: all(shown[text] for text in texts))


class Sender:
    """Send, and write down what was told of every message; ``settle`` holds it against what was shown.

    Whatever has no answer is sent again under its id, as people's programs do.
    """

    def __init__(self, session: Any, to: str) -> None:
        self.session = session
        self._to = to
        self.told: dict[str, str] = {}

    def send(self, text: str, **more: Any) -> str:
        """Send a message; return what was told."""
        try:
            told = str(self.session.send(self._to, text, **more).state)
        except IntercomError as error:
            told = error.code
        self.told[text] = told
        return told

    def settle(self, listener: Listener) -> None:
        """Find everything that was told as delivered or queued shown once, and nothing else more than once."""
        listener.wait_for([text for text, told in self.told.items() if told in ("delivered", "queued")])
        assert self.send("the last one", queue=True) in ("delivered", "queued")
        listener.wait_for(["the last one"])  # in order for each sender: what is to come has come
        assert max(listener.shown.values()) == 1, listener.shown
        refused = {text for text, told in self.told.items() if told not in ("delivered", "queued")}
        uncertain = {text for text in refused if self.told[text] in ("not_confirmed", "uncertain")}
        assert not (refused - uncertain) & set(listener.shown), self.told


def until_seen(session: Any, name: str) -> None:
    """Wait until a session is listed."""
    until(lambda: seen_by(session), lambda there: name in there)


def until_gone(session: Any, name: str) -> None:
    """Wait until a session is listed no more."""
    until(lambda: seen_by(session), lambda there: name not in there)


def seen_by(session: Any) -> dict[str, Any]:
    """Return those that a session sees, by name, as they are described to it."""
    return {view.name: view.raw for view in session.list() if view.name is not None}
