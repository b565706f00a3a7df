from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from intercom import __version__
from intercom.cli.status import described, last_failure
from intercom.paths import Paths
from tests.support.brokers import POLL_S
from tests.support.commands import Shell, is_alive
from tests.support.processes import stop


def test_without_a_broker_none_is_started(shell: Shell) -> None:
    """F130; design section 9: 5."""
    result = shell.run("status")
    assert (result.status, result.text) == (5, "")
    assert str(shell.home / "broker.sock") in result.errors
    document = shell.run("status", "--json").document
    assert (document["ok"], document["code"]) == (False, "no_broker")
    assert (document["home"], document["socket"]) == (str(shell.home), str(shell.home / "broker.sock"))
    assert not shell.home.exists()


def test_what_a_person_wants_to_know(shell: Shell) -> None:
    shell.listen("worker")
    pid = shell.broker_pid()
    lines = dict(line.split(maxsplit=1) for line in shell.run("status").text.splitlines() if "running" not in line)
    assert lines["broker"] == f"pid {pid}, intercom {__version__}"
    assert lines["home"] == str(shell.home)
    assert lines["socket"] == str(shell.home / "broker.sock")
    assert lines["sessions"] == "1"
    assert lines["store"] == "in order, 0 operations"
    assert lines["durability"] == "full"
    assert lines["may"].startswith("start   nothing: "), "the label has two words"
    assert "running for 0 s" in shell.run("status").text or "running for" in shell.run("status").text


def test_the_report_is_whole(shell: Shell) -> None:
    shell.listen("worker")
    result = shell.run("status", "--json")
    document = result.document
    assert result.status == 0
    assert (document["ok"], document["pid"], document["sessions"]) == (True, shell.broker_pid(), 1)
    assert document["home"] == str(shell.home)
    assert document["broker"]["version"] == __version__
    assert document["broker"]["store"] == {"usable": True, "operations": 0}
    assert abs(document["broker"]["startedAt"] - time.time() * 1000) < 60_000


def test_looking_keeps_nobody_alive(shell: Shell) -> None:
    """F130: asked again and again, a broker still leaves on time."""
    shell.serve({"INTERCOM_IDLE_MS": "700"})
    pid = shell.broker_pid()
    deadline = time.monotonic() + 10
    while is_alive(pid):
        assert shell.run("status").status in (0, 5, 6)  # 6: it left between question and answer
        assert time.monotonic() < deadline, "status kept the broker alive"
        time.sleep(POLL_S)
    assert shell.run("status").status == 5


def test_a_broker_that_does_not_answer(shell: Shell) -> None:
    """F6: its process is named, within the time that was given."""
    shell.serve()
    pid = shell.broker_pid()
    stop(pid)
    try:
        result = shell.run("status", "--json", "--timeout", "0.3")
        assert (result.status, result.document["code"]) == (5, "busy")
        assert str(pid) in result.document["reason"]
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_store_that_cannot_be_used_is_said(shell: Shell) -> None:
    """Design section 5, fail closed."""
    shell.serve()
    assert shell.run("stop").status == 0
    (shell.home / "intercom.key").unlink()
    shell.serve()
    assert "cannot be used, nothing is delivered: " in shell.run("status").text
    assert shell.run("status", "--json").document["broker"]["store"]["usable"] is False
    shell.listen("worker")
    refused = shell.run("send", "worker", "hello", "--json")
    assert (refused.status, refused.document["code"]) == (1, "store_unusable")


def test_a_home_too_long_for_a_socket(shell: Shell) -> None:
    """F19: status says where the socket is."""
    home = shell.home / ("long" * 30)
    deep = Shell(home, shell.cwd)
    try:
        assert deep.run("list").status == 0
        result = deep.run("status")
        assert "too long for a socket" in result.text
        assert str(home) in result.text
        assert deep.run("stop").status == 0
    finally:
        deep.run("stop")


def test_a_commit_that_failed_is_said() -> None:
    """The store can be used, and could not keep what came last: a full disk, for instance."""
    store = {"usable": True, "operations": 3, "lastFailure": {"reason": "the disk is full", "at": time.time() * 1000}}
    lines = dict(described({"pid": 5, "sessions": 0, "broker": {"store": store}}, Paths(Path("/home"))))
    assert lines["store"].startswith("could not be written ")
    assert "ago: the disk is full" in lines["store"]
    assert last_failure({"usable": True}) is None


def test_mail_and_who_is_away_are_told() -> None:
    """F128: how much waits, and since when."""
    mail = {"waiting": 2, "bytes": 10, "mailboxes": 1, "oldestAt": (time.time() - 7_200) * 1000, "sessionsAway": 3}
    lines = dict(described({"pid": 5, "sessions": 1, "broker": {"mail": mail}}, Paths(Path("/home"))))
    assert lines["mail"] == "2 messages waiting, the oldest for 2 h 0 min"
    assert lines["sessions"] == "1, 3 away"


def test_flows_that_are_not_over_are_told() -> None:
    """protocol 7: a broker stays for them"""
    ours = {"flows": {"known": 5, "live": 2, "dispatches": 1}}
    lines = dict(described({"pid": 5, "sessions": 0, "broker": ours}, Paths(Path("/home"))))
    assert lines["flows"] == "2 not over, 1 with a step under way"
    ours["flows"]["live"] = 0
    assert "flows" not in dict(described({"pid": 5, "sessions": 0, "broker": ours}, Paths(Path("/home"))))


def test_an_older_copy_is_told() -> None:
    """A5.7."""
    ours = {"store": {"usable": True, "operations": 0}, "journalRestored": True}
    lines = dict(described({"pid": 5, "sessions": 0, "broker": ours}, Paths(Path("/home"))))
    assert "an older copy of it was put back" in lines["store"]
