"""Let three kinds of client meet: ours, an older one of Atomic, and one of pi, each with its own way to a broker."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers import POLL_S, environment
from tests.support.commands import Shell
from tests.support.raw import PATIENCE_S, RawClient

DEFAULT = ("npx", ["--no-install", "tsx"])
SCRIPT = "/usr/lib/node_modules/atomic/extensions/intercom/broker/broker.ts"
VARIABLES = {
    "without variables": {},
    "with Atomic's": {"ATOMIC_CODING_AGENT_DIR": "a"},
    "with pi's": {"PI_CODING_AGENT_DIR": "p"},
    "with both": {"ATOMIC_CODING_AGENT_DIR": "a", "PI_CODING_AGENT_DIR": "p"},
}
"""Variables by name, their values below the directory of the test."""


class Foreigner:
    """Find or start a broker as the clients of Atomic and pi do (protocol 2.1, 2.3; hosts 7.3, 7.4)."""

    def __init__(self, user: Path, variables: dict[str, str], names: tuple[str, ...], standard: str) -> None:
        self.environ = {**environment(user / "home", variables), "HOME": str(user)}
        del self.environ["INTERCOM_HOME"]
        directory = next((variables[name] for name in names if name in variables), str(user / standard))
        self.runtime = Path(directory) / "intercom"
        self.fallback = user / ".pi" / "agent" / "intercom"
        self.process: subprocess.Popen[bytes] | None = None
        self._connections: list[RawClient] = []

    def spawn(self) -> None:
        """Start a broker by the settings that are found, as they do it."""
        for directory in (self.runtime, self.fallback):
            if (directory / "config.json").exists():
                settings = json.loads((directory / "config.json").read_text())
                break
        else:
            raise AssertionError("there is no config.json")
        command = settings.get("brokerCommand", DEFAULT[0]), settings.get("brokerArgs", DEFAULT[1])
        assert command != DEFAULT, "it would start its own broker"
        self.runtime.mkdir(parents=True, exist_ok=True)
        (self.runtime / "broker.log").write_bytes(b"")
        with open(self.runtime / "broker.log", "ab") as log:
            self.process = subprocess.Popen(
                [command[0], *command[1], SCRIPT],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                cwd=self.runtime.parent,
                env={**self.environ, "NODE_NO_WARNINGS": "1"},
                start_new_session=True,
            )

    def connect(self) -> RawClient:
        """Return a connection, to the broker that is there or to the one that is started."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._connections.append(RawClient(self.runtime / "broker.sock"))
                return self._connections[-1]
            except (FileNotFoundError, ConnectionRefusedError):
                if self.process is None:
                    self.spawn()
            assert time.monotonic() < deadline, (self.runtime / "broker.log").read_text()
            time.sleep(POLL_S)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def variables(request: pytest.FixtureRequest, short_path: Path) -> dict[str, str]:
    return {name: str(short_path / value) for name, value in VARIABLES[request.param].items()}


@pytest.fixture
def atomic(short_path: Path, variables: dict[str, str]) -> Iterator[Foreigner]:
    names = ("ATOMIC_CODING_AGENT_DIR", "PI_CODING_AGENT_DIR")
    client = Foreigner(short_path, variables, names, ".atomic/agent")
    yield client
    client.close()


@pytest.fixture
def pi(short_path: Path, variables: dict[str, str]) -> Iterator[Foreigner]:
    client = Foreigner(short_path, variables, ("PI_CODING_AGENT_DIR",), ".pi/agent")
    yield client
    client.close()


@pytest.fixture
def shell(home: Path, tmp_path: Path) -> Iterator[Shell]:
    made = Shell(home, tmp_path)
    yield made
    made.close()


def older_atomic(client: RawClient) -> None:
    """Register as the older snapshot does: one group, no return address."""
    client.register("planner", session={"group": "default", "status": "idle"})


def legacy_pi(client: RawClient) -> None:
    """Register as the original pi client does: a wish for an id, nothing else."""
    client.register("pi", sessionId="wish")


def converse(shell: Shell, atomic: RawClient, pi: RawClient) -> None:
    """Let everybody reach everybody: a send without attempt id, an ask across makes, a list."""
    pi.send_message("planner", "p1", "from pi")
    assert atomic.expect("message")["message"]["content"]["text"] == "from pi"
    pi.expect("delivered", messageId="p1")
    atomic.send_message("worker", "o1", "from atomic", attemptId="t1", message={"expectsReply": True})
    assert atomic.expect("delivered", messageId="o1")["attemptId"] == "t1"
    answer = atomic.expect("message")["message"]
    assert (answer["replyTo"], answer["content"]["text"]) == ("o1", "FROM ATOMIC")
    for name in ("planner", "pi"):
        assert shell.run("send", name, "from us").status in (0, 6)
    for client in (atomic, pi):
        assert client.expect("message")["message"]["content"]["text"] == "from us"
    assert {session["name"] for session in shell.run("list", "--json").document["sessions"]} >= {
        "planner", "pi", "worker"
    }  # fmt: skip


@pytest.mark.parametrize("first", ["ours", "atomic", "pi"])
@pytest.mark.parametrize("variables", VARIABLES, indirect=True)
def test_one_broker_whoever_starts_it(
    shell: Shell, home: Path, atomic: Foreigner, pi: Foreigner, variables: dict[str, str], first: str
) -> None:
    """F20; design section 7, Home: terminal, cron and every agent host meet at one broker."""
    for host in ("atomic", "pi"):
        assert shell.run("install", host, env=variables).status == 0

    def ours() -> None:
        shell.listen("worker", "--answer", "tr a-z A-Z", env=shell.environment())

    def theirs(foreigner: Foreigner, register: Callable[[RawClient], None]) -> Callable[[], None]:
        def connect() -> None:
            connections[foreigner] = foreigner.connect()
            register(connections[foreigner])

        return connect

    connections: dict[Foreigner, RawClient] = {}
    order = {"ours": ours, "atomic": theirs(atomic, older_atomic), "pi": theirs(pi, legacy_pi)}
    order[first]()
    for name, come in order.items():
        if name != first:
            come()
    converse(shell, connections[atomic], connections[pi])
    statuses = [client.status() for client in connections.values()]
    (pid,) = {status["pid"] for status in statuses} | {shell.broker_pid()}
    assert (home / "broker.pid").read_text() == str(pid)
    assert statuses[0]["broker"]["home"] == str(home)
    assert "startedBy" not in statuses[0]["broker"]
    assert shell.run("status", "--json", env={**variables, "INTERCOM_HOME": str(home)}).document["pid"] == pid


@pytest.mark.parametrize("variables", ["without variables", "with both"], indirect=True)
def test_one_broker_when_all_start_at_once(
    shell: Shell, home: Path, atomic: Foreigner, pi: Foreigner, variables: dict[str, str]
) -> None:
    """F1."""
    for host in ("atomic", "pi"):
        shell.run("install", host, env=variables)
    atomic.spawn()
    pi.spawn()
    listener = shell.start("listen", "--as", "worker", "--json", env=shell.environment())
    with atomic.connect() as first, pi.connect() as second:
        older_atomic(first)
        legacy_pi(second)
        listener.event("listening")
        pids = {first.status()["pid"], second.status()["pid"], shell.broker_pid()}
        assert len(pids) == 1
        started = [foreigner.process for foreigner in (atomic, pi) if foreigner.process is not None]
        losers = [process for process in started if process.pid not in pids]
        assert [process.wait(PATIENCE_S) for process in losers] == [0] * len(losers)


@pytest.mark.parametrize("variables", VARIABLES, indirect=True)
@pytest.mark.parametrize("make", ["atomic", "pi"])
def test_a_start_without_the_link_serves_where_its_client_looks_and_says_so(
    shell: Shell, request: pytest.FixtureRequest, variables: dict[str, str], make: str
) -> None:
    """Protocol 2.1, 2.3; design section 7, Home. The command alone was put into config.json."""
    from intercom.client.program import our_command

    foreigner: Foreigner = request.getfixturevalue(make)
    command, arguments = our_command("serve")
    foreigner.runtime.mkdir(parents=True)
    settings = {"brokerCommand": command, "brokerArgs": arguments}
    (foreigner.runtime / "config.json").write_text(json.dumps(settings))
    with foreigner.connect() as client:
        legacy_pi(client)
        report = client.status()
        assert foreigner.process is not None and report["pid"] == foreigner.process.pid
        facts: dict[str, Any] = report["broker"]
        assert facts["home"] == os.path.realpath(foreigner.runtime)
        assert facts["startedBy"] == "another program, which chose the home"
        (started,) = [line for line in _log(foreigner.runtime) if line["event"] == "started"]
        assert started["startedBy"] == facts["startedBy"]
        shown = shell.run("status", "--home", str(foreigner.runtime))
        assert "another program, which chose the home" in shown.text
        assert shell.run("status").status == 5  # nobody is at the home of everybody else


@pytest.mark.parametrize("variables", ["without variables"], indirect=True)
def test_a_settings_file_of_another_host_moves_no_broker(
    shell: Shell, home: Path, atomic: Foreigner, pi: Foreigner, variables: dict[str, str]
) -> None:
    """Protocol 2.3: Atomic falls back to the settings of pi, and must find the broker where it looks itself."""
    assert shell.run("install", "pi").status == 0
    with atomic.connect() as client, pi.connect() as other:
        assert client.status()["broker"]["home"] == str(atomic.runtime)
        assert other.status()["broker"]["home"] == str(home)


def _log(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "intercom.log").read_text().splitlines()]
