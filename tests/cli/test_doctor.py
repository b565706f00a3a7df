from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from intercom.cli import doctor
from intercom.cli.doctor import CHECKS
from intercom.client import blocking
from intercom.errors import HomeError
from intercom.limits import CONTROL_TALKS
from intercom.paths import Paths
from tests.cli.test_link import worker
from tests.support.brokers import POLL_S, BrokerProcess
from tests.support.commands import Shell, is_alive
from tests.support.fake_broker import FakeBroker, FakeLink
from tests.support.holding import database_held
from tests.support.processes import stop
from tests.support.raw import PATIENCE_S


def examined(shell: Shell, status: int, *arguments: str) -> dict[str, dict[str, str]]:
    """Return what doctor found, by the ids of its checks; it must end with this status."""
    result = shell.run("doctor", "--json", *arguments)
    assert result.status == status, result
    return {each["id"]: each for each in result.document["checks"]}


def wrong(found: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the checks that are not ok."""
    return {check_id: each["state"] for check_id, each in found.items() if each["state"] != "ok"}


def everything(home: Path) -> dict[str, tuple[int, int, str]]:
    """Return mode, time and content of every file."""
    found = {}
    for path in sorted(home.rglob("*")):
        status = path.lstat()
        content = sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path)] = (status.st_mode, status.st_mtime_ns, content)
    return found


def test_all_is_well_without_a_broker(shell: Shell) -> None:
    """F130: nothing is started, nothing is made."""
    found = examined(shell, 0)
    assert list(found) == list(CHECKS)
    assert not shell.home.exists()


def test_all_is_well_with_a_broker(shell: Shell) -> None:
    shell.serve()
    found = examined(shell, 0)
    pid = shell.broker_pid()
    assert f"(pid {pid}) is intercom " in found["broker"]["found"]
    assert str(pid) in found["lock"]["found"]
    lines = shell.run("doctor").text.splitlines()
    assert [line.split()[:2] for line in lines] == [["ok", check_id] for check_id in CHECKS]


def test_looking_keeps_nobody_alive(shell: Shell) -> None:
    """F130: asked again and again, a broker still leaves on time, and its log says nothing of it."""
    shell.serve({"INTERCOM_IDLE_MS": "700"})
    pid = shell.broker_pid()
    shell.run("doctor")
    log = (shell.home / "intercom.log").read_bytes()
    assert log.count(b"\n") == 1
    deadline = time.monotonic() + PATIENCE_S
    while is_alive(pid):
        assert shell.run("doctor").status in (0, 1)
        assert time.monotonic() < deadline, "doctor kept the broker alive"
        time.sleep(POLL_S)


def open_home(shell: Shell) -> None:
    shell.home.chmod(0o755)


def open_key(shell: Shell) -> None:
    (shell.home / "intercom.key").chmod(0o644)


def write_settings(shell: Shell) -> None:
    (shell.home / "intercom.toml").write_text("idle = 5\n")


def break_store(shell: Shell) -> None:
    (shell.home / "intercom.key").unlink()


def put_a_file_at_the_path(shell: Shell) -> None:
    (shell.home / "broker.sock").write_text("")


def log_an_error(shell: Shell) -> None:
    with (shell.home / "intercom.log").open("a") as file:
        file.write('{"time": "t", "pid": 1, "event": "fatal", "reason": "it broke", "level": "error"}\n')


@pytest.mark.parametrize(
    ("spoil", "check_id", "words"),
    [
        (open_home, "permissions", "mode 0755"),
        (open_key, "permissions", "intercom.key has mode 0644"),
        (write_settings, "settings", "is not a setting"),
        (break_store, "store", "intercom.key is missing"),
        (put_a_file_at_the_path, "socket_path", "is not a socket"),
        (log_an_error, "log", "fatal it broke"),
    ],
)
def test_one_thing_is_broken_and_that_one_is_named(
    shell: Shell, spoil: Callable[[Shell], None], check_id: str, words: str
) -> None:
    """F128: it names that one and changes nothing."""
    shell.serve()
    assert shell.run("stop").status == 0
    spoil(shell)
    before = everything(shell.home)
    found = examined(shell, 1)
    assert wrong(found) == {check_id: "bad"}
    assert words in found[check_id]["found"]
    assert everything(shell.home) == before
    if check_id not in ("log",):
        assert found[check_id]["hint"]


def test_an_older_copy_of_the_store_is_explained(shell: Shell) -> None:
    """A5.7."""
    shell.serve()
    assert shell.run("stop").status == 0
    with closing(sqlite3.connect(shell.home / "intercom.db")) as database:
        (journal_id,) = database.execute("SELECT value FROM meta WHERE key = 'journalId'").fetchone()
    head = shell.home / "intercom.head"
    head.touch(0o600)
    head.write_text(json.dumps({"journalId": journal_id, "seq": 99}))
    shell.serve()
    found = examined(shell, 1)
    assert wrong(found) == {"store": "bad"}
    assert "an older copy of it was put back" in found["store"]["found"]
    assert "intercom restart" in found["store"]["hint"]
    assert shell.run("stop").status == 0
    shell.serve()
    assert wrong(examined(shell, 0)) == {}


def test_a_home_that_is_none(shell: Shell) -> None:
    shell.home.write_text("")
    found = examined(shell, 1)
    assert wrong(found) == {"home": "bad", "socket": "bad", "broker": "unknown"}


def test_a_broker_that_does_not_answer(shell: Shell) -> None:
    """F6, F128: its process is named; what only it could tell is said to be unknown."""
    shell.serve()
    pid = shell.broker_pid()
    stop(pid)
    try:
        found = examined(shell, 1, "--timeout", "0.3")
        assert wrong(found) == {"broker": "bad", "store": "unknown"}
        assert str(pid) in found["broker"]["found"]
    finally:
        os.kill(pid, signal.SIGCONT)
    assert shell.broker_pid() == pid


def test_a_store_that_another_program_holds(shell: Shell) -> None:
    """F128: no broker begins meanwhile, and this is why."""
    shell.serve()
    shell.run("stop")
    with database_held(shell.home / "intercom.db") as holder:
        found = examined(shell, 1)
        assert wrong(found) == {"store": "bad"}
        assert found["store"]["found"] == f"{shell.home / 'intercom.db'} is held by process {holder}"
        assert "End that process" in found["store"]["hint"]
    examined(shell, 0)


def test_a_store_the_broker_cannot_use(shell: Shell) -> None:
    shell.serve()
    shell.run("stop")
    (shell.home / "intercom.key").unlink()
    shell.serve()
    found = examined(shell, 1)
    assert wrong(found) == {"store": "bad", "log": "bad"}
    assert "intercom.key is missing" in found["store"]["found"]


def test_another_version(home: Path, start_broker: Callable[..., BrokerProcess], shell: Shell) -> None:
    """F18: not served by an old broker without being told."""
    start_broker(command=old_broker())
    found = examined(shell, 1)
    assert wrong(found) == {"broker": "bad"}
    assert "intercom 0.0.1" in found["broker"]["found"]
    assert "intercom restart" in found["broker"]["hint"]


def old_broker() -> tuple[str, ...]:
    from tests.support.brokers import patched

    return patched("import intercom\nintercom.__version__ = '0.0.1'")


def test_a_broker_of_another_kind(shell: Shell) -> None:
    def script(link: FakeLink, number: int) -> None:
        frame = link.receive()
        link.send({"type": "health", "requestId": frame["requestId"], "instanceId": "x"})
        frame = link.receive()
        link.send({"type": "broker_status", "requestId": frame["requestId"], "report": {"pid": 5, "sessions": 0}})

    with FakeBroker(shell.home / "broker.sock", script):
        found = examined(shell, 1)
    assert found["broker"]["state"] == found["store"]["state"] == "unknown"
    assert found["lock"]["state"] == "bad"


def dies(link: FakeLink) -> None:
    link.receive()


def test_a_broker_that_dies_in_the_middle(shell: Shell) -> None:
    with FakeBroker(shell.home / "broker.sock", lambda link, number: dies(link), connections=CONTROL_TALKS):
        found = examined(shell, 1)
    assert found["broker"]["state"] == "bad"
    assert "before it answered" in found["broker"]["found"]


def test_somebody_holds_the_lock_and_does_not_serve(shell: Shell) -> None:
    import fcntl

    shell.home.mkdir(mode=0o700)
    with (shell.home / "broker.replace.lock").open("w") as lock:
        os.fchmod(lock.fileno(), 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = examined(shell, 1)
    assert wrong(found) == {"lock": "bad"}
    assert f"process {os.getpid()} " in found["lock"]["found"] or "a process " in found["lock"]["found"]


def test_a_stale_socket_is_no_trouble(shell: Shell) -> None:
    shell.home.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(shell.home / "broker.sock"))
    assert wrong(examined(shell, 0)) == {}
    assert (shell.home / "broker.sock").exists()


def test_the_worst_counts(shell: Shell) -> None:
    """F128: 6 when something could not be told and nothing is known to be wrong."""
    shell.serve()
    shell.run("stop")
    (shell.home / "broker.replace.lock").unlink()
    found = examined(shell, 6)
    assert wrong(found) == {"store": "unknown"}
    document: dict[str, Any] = shell.run("doctor", "--json").document
    assert (document["code"], document["state"]) == ("not_told", "unknown")
    plain = shell.run("doctor").text
    assert "unknown  store        there is no " in plain


def test_a_path_that_cannot_be_reached(shell: Shell) -> None:
    found = examined(shell, 1, "--home", "/dev/null/x")
    assert found["home"]["state"] == "bad"


def test_a_commit_that_failed_is_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = {"usable": True, "operations": 3, "lastFailure": {"reason": "the disk is full", "at": 1}}
    monkeypatch.setattr(doctor, "quiet_report", lambda *_: {"pid": 5, "broker": {"store": store}})
    found = doctor.Broker(Paths(home), 1).check_store()
    assert found.state == "bad"
    assert found.found.endswith("ago: the disk is full")


def test_durable_workers(shell: Shell) -> None:
    """FE 4.11: floors, open commands and pinned identities; a worker that came with another journal is told of."""
    shell.serve()
    first, link_id = worker(shell)
    with first:
        first.expect("link_confirmed")
        shell.run("command", "send", "ada", "{}")
        [check] = [each for each in shell.run("doctor", "--json").document["checks"] if each["id"] == "workers"]
        assert (check["state"], check["found"]) == (
            "ok", "ada: events up to 0, 1 open commands, journal journal-1",
        )  # fmt: skip
    second, _ = worker(shell, "journal-2")
    with second:
        second.expect("link_refused")
        [check] = [each for each in shell.run("doctor", "--json").document["checks"] if each["id"] == "workers"]
        assert (check["state"], check["found"]) == ("bad", "ada came with another journal than journal-1")
        assert f"`intercom link show {link_id}`" in check["hint"]


@pytest.mark.parametrize("is_served", [False, True])
def test_a_damaged_journal_of_a_durable_worker(shell: Shell, is_served: bool) -> None:
    """FE 4.11: it is found before its worker cannot begin, with a broker and without."""
    with blocking.connect("ada", home=shell.home, address=True, durable=True) as session:
        session.report_event("built")
    [journal] = shell.home.glob("identities/addresses/*.link")
    if not is_served:
        shell.run("stop")
    journal.write_bytes(b"garbage\n" + journal.read_bytes())
    check = examined(shell, 1)["workers"]
    assert (check["state"], check["found"]) == ("bad", f"{journal} is damaged in line 1")
    assert "intercom link repin" in check["hint"]
    with pytest.raises(HomeError, match="damaged in line 1"):
        blocking.connect("ada", home=shell.home, address=True, durable=True).__enter__()
    journal.unlink()
    assert examined(shell, 0)["workers"]["state"] == "ok"
