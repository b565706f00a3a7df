"""Test how commands are started for sessions: what they find, what they do not find, and that nobody waits for them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from intercom.config import SpawnKind
from intercom.paths import Paths
from intercom.server import spawning
from intercom.server.spawning import TOKEN_VARIABLE, CommandSpawner
from tests.support.brokers import BrokerProcess
from tests.support.launching import until
from tests.support.raw import PATIENCE_S, RawClient

REPORT = """
import json, os, sys
prompt = sys.stdin.read()
opened = sorted(int(name) for name in os.listdir('/proc/self/fd'))
told = {'prompt': prompt, 'argv': sys.argv[1:], 'cwd': os.getcwd(), 'env': dict(os.environ), 'fds': opened,
        'leads': os.getsid(0) == os.getpid() == os.getpgid(0), 'out': os.readlink('/proc/self/fd/1')}
with open(sys.argv[1] + '.part', 'w') as file:
    json.dump(told, file)
os.rename(sys.argv[1] + '.part', sys.argv[1])
"""

SLEEPER = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"


class Nursery:
    """Hold a spawner with its loop, and what failed."""

    def __init__(self, place: Path, environ: dict[str, str] | None = None) -> None:
        self.place = place
        self.loop = asyncio.new_event_loop()
        self.failed: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        kinds = {
            "reporter": SpawnKind((sys.executable, "-c", REPORT, str(place / "told")), str(place)),
            "failing": SpawnKind((sys.executable, "-c", "raise SystemExit(3)")),
            "killed": SpawnKind((sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")),
            "fine": SpawnKind((sys.executable, "-c", "")),
            "missing": SpawnKind((str(place / "nothing"),)),
            "nowhere": SpawnKind((sys.executable, "-c", ""), str(place / "nowhere")),
            "sleeping": SpawnKind(
                (
                    sys.executable,
                    "-c",
                    f"import os, time; open({str(place / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)",
                )
            ),
        }
        given = {"PATH": os.environ["PATH"], **(environ or {})}
        self.spawner = CommandSpawner(
            kinds, Paths(place), given, self.loop, lambda ref, reason: self.failed.put_nowait((ref, reason))
        )

    def next_failure(self) -> tuple[str, str]:
        return self.loop.run_until_complete(asyncio.wait_for(self.failed.get(), PATIENCE_S))

    def until(self, path: Path) -> str:
        """Return what a file holds as soon as something is in it, while the loop turns."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            self.loop.run_until_complete(asyncio.sleep(0.01))
            if path.exists() and (text := path.read_text()):
                return text
        raise AssertionError(f"{path} was not written")

    def until_reaped(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.spawner._running:
            assert time.monotonic() < deadline
            self.loop.run_until_complete(asyncio.sleep(0.01))


@pytest.fixture
def nursery(short_path: Path) -> Iterator[Nursery]:
    nursery = Nursery(
        short_path,
        {
            "INTERCOM_NAME": "somebody",
            "INTERCOM_SPAWN_TOKEN": "of another",
            "CLAUDECODE": "1",
            "CODEX_THREAD_ID": "t",
            "KEPT": "yes",
        },
    )
    yield nursery
    nursery.spawner.close()
    nursery.loop.close()


def test_a_command_finds_prompt_token_and_home_and_nothing_of_the_broker(nursery: Nursery) -> None:
    """design 7, Trust: argv from the settings, the prompt on stdin, the token in the environment."""
    ours = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(ours, True)
    prompt = "look; $(touch x) \N{GREEK SMALL LETTER ALPHA}\n" * 10_000
    nursery.spawner.spawn("1", "reporter", prompt, "secret")
    told: dict[str, Any] = json.loads(nursery.until(nursery.place / "told"))
    os.close(ours)
    assert told["prompt"] == prompt
    assert told["argv"] == [str(nursery.place / "told")]
    assert told["cwd"] == str(nursery.place)
    assert told["env"][TOKEN_VARIABLE] == "secret"
    assert told["env"]["INTERCOM_HOME"] == str(nursery.place)
    assert told["env"]["KEPT"] == "yes"
    assert not {"INTERCOM_NAME", "CLAUDECODE", "CODEX_THREAD_ID"} & told["env"].keys()
    assert told["leads"] is True, "a session and process group of its own"
    assert told["out"] == "/dev/null"
    assert ours not in told["fds"]
    assert len([number for number in told["fds"] if number > 2]) == 1, "the one with which it looks"
    nursery.until_reaped()
    assert nursery.failed.empty()


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("failing", "The command ended with status 3"),
        ("killed", "The command ended by signal 9"),
        ("missing", "The command of missing cannot be started: No such file or directory"),
        ("nowhere", "The command of nowhere cannot be started: its directory {place}/nowhere is not there"),
    ],
)
def test_failures_are_told(nursery: Nursery, kind: str, reason: str) -> None:
    nursery.spawner.spawn("7", kind, "", "t")
    assert nursery.failed.empty(), "never from within the call"
    assert nursery.next_failure() == ("7", reason.format(place=nursery.place))
    nursery.until_reaped()


@pytest.mark.parametrize("is_announced", [True, False])
def test_the_end_of_a_command_is_taken_and_a_good_one_is_no_failure(
    nursery: Nursery, monkeypatch: pytest.MonkeyPatch, is_announced: bool
) -> None:
    """It is reaped, also where the kernel does not announce its end."""
    if not is_announced:
        monkeypatch.setattr(spawning, "_announced", lambda pid: None)
        monkeypatch.setattr(spawning, "SPAWN_LOOK_MS", 10)
    nursery.spawner.spawn("1", "fine", "", "t")
    nursery.spawner.spawn("2", "failing", "", "t")
    pids = [process.pid for process in nursery.spawner._running.values()]
    assert nursery.next_failure()[0] == "2"
    nursery.until_reaped()
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    assert nursery.failed.empty()


def test_what_runs_goes_on_when_nobody_watches_any_more(nursery: Nursery) -> None:
    """It never holds the broker's stop."""
    nursery.spawner.spawn("1", "sleeping", "", "t")
    pid = int(nursery.until(nursery.place / "pid"))
    nursery.spawner.close()
    os.kill(pid, 0)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


CHILD = """
import os, sys
from intercom import blocking
with blocking.connect("child", start=False) as session:
    session.send("boss", sys.stdin.read())
    session.receive(timeout=60)
"""


def ordered(client: RawClient, key: str, kind: str) -> None:
    client.send({"type": "spawn_session", "requestId": key, "idempotencyKey": key, "kind": kind, "prompt": "be good"})
    client.expect("spawn_status", requestId=key, status="received")


def test_a_broker_starts_what_its_settings_name_and_stops_at_once(
    home: Path, start_broker: Any, short_path: Path
) -> None:
    """FE 1.5 from end to end, with a program that knows nothing of it: the library shows the token."""
    home.mkdir(mode=0o700)
    program = short_path / "child.py"
    program.write_text(CHILD)
    (home / "intercom.toml").write_text(
        f"[spawn.child]\ncommand = [{sys.executable!r}, {str(program)!r}]\n"
        f"[spawn.broken]\ncommand = [{sys.executable!r}, '-c', 'raise SystemExit(4)']\n"
    )
    broker: BrokerProcess = start_broker()
    with broker.connect() as boss, broker.connect() as listener:
        listener.register("boss")
        control = {"recipientPurpose": "control"}
        boss.register(session=control, features=["operator"], clientProtocolVersion="1.0", kind="custom")
        assert boss.status()["broker"]["spawnKinds"] == ["broken", "child"]
        ordered(boss, "k1", "child")
        message = listener.expect("message")
        assert (message["from"]["name"], message["message"]["content"]["text"]) == ("child", "be good")
        boss.expect("spawn_status", requestId="k1", status="applied", sessionId=message["from"]["id"])
        ordered(boss, "k2", "broken")
        failed = boss.expect("spawn_status", requestId="k2", status="failed", code="spawn_failed")
        assert failed["reason"] == "The command ended with status 4"
        pid = message["from"]["peer"]["pid"]
        began = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - began < PATIENCE_S
    os.kill(pid, signal.SIGKILL)
    assert "be good" not in broker.log


def test_what_it_started_outlives_it_and_holds_nothing_of_it(home: Path, start_broker: Any) -> None:
    """F13: the next broker begins although the child of the one that was killed lives on."""
    home.mkdir(mode=0o700)
    (home / "intercom.toml").write_text('[spawn.sleeper]\ncommand = ["sleep", "600"]\n')
    broker: BrokerProcess = start_broker()
    with broker.connect() as boss:
        control = {"recipientPurpose": "control"}
        boss.register(session=control, features=["operator"], clientProtocolVersion="1.0", kind="custom")
        ordered(boss, "k", "sleeper")
        children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children")
        until(lambda: bool(children.read_text().split()))
        [child] = map(int, children.read_text().split())
        pidfd = os.pidfd_open(child)
        try:
            until(lambda: Path(f"/proc/{child}/comm").read_text() == "sleep\n")
            broker.kill()
            held = [os.readlink(descriptor) for descriptor in Path(f"/proc/{child}/fd").iterdir()]
            assert not [target for target in held if target.startswith((str(home), "socket:"))]
            assert start_broker().stop() == 0
        finally:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.close(pidfd)
