from __future__ import annotations

import json
import os
import pty
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.test_main import read_all
from tests.support.commands import INTERCOM, Result, Shell


def stopped(shell: Shell) -> None:
    """Let a broker make the files and leave."""
    shell.serve()
    assert shell.run("stop").status == 0


def as_person(shell: Shell, *arguments: str, env: dict[str, str] | None = None) -> Result:
    """Run a command whose standard input is a terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        (*INTERCOM, *arguments),
        stdin=follower,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=shell.environment(env),
    )
    os.close(follower)
    out, err = process.communicate(timeout=20)
    read_all(leader)
    return Result(process.returncode, out, err, "store")


def aside(shell: Shell) -> list[Path]:
    return sorted(shell.home.glob("store-aside-*"))


def test_a_store_in_order(shell: Shell) -> None:
    stopped(shell)
    result = shell.run("store", "check")
    assert (result.status, result.errors) == (0, "")
    assert result.text.startswith("in order: 0 message ids, ")
    document = shell.run("store", "check", "--json").document
    assert (document["askedBroker"], document["operations"]) == (False, 0)
    assert {each["name"] for each in document["files"]} == {"intercom.db", "intercom.key"}
    assert len(document["journalId"]) == 36


def test_a_broker_that_runs_is_asked(shell: Shell) -> None:
    """Design section 5: tools open the store only while they hold the lock, else they ask the broker."""
    worker = shell.listen("worker")
    shell.run("send", "worker", "hello", "--as", "planner")
    worker.event("message")
    document = shell.run("store", "check", "--json").document
    assert document == {"ok": True, "askedBroker": True, "pid": shell.broker_pid(), "operations": 1}
    assert f"says the broker (pid {shell.broker_pid()})" in shell.run("store", "check").text


def test_a_damaged_store_is_refused_by_both(shell: Shell) -> None:
    """Design section 5, fail closed."""
    stopped(shell)
    (shell.home / "intercom.key").write_bytes(bytes(32))
    result = shell.run("store", "check", "--json")
    assert (result.status, result.document["code"], result.document["trouble"]) == (1, "store_unusable", "wrong_key")
    assert "intercom store rebuild" in shell.run("store", "check").errors
    shell.serve()
    asked = shell.run("store", "check", "--json")
    assert (asked.status, asked.document["code"], asked.document["askedBroker"]) == (1, "store_unusable", True)


def test_rebuilding_is_advised_only_where_it_helps(shell: Shell) -> None:
    """Design section 5, fail closed: a store of a newer version is whole, and no new one may take its place."""
    stopped(shell)
    with closing(sqlite3.connect(shell.home / "intercom.db")) as connection, connection:
        connection.execute("UPDATE meta SET value = 1000000 WHERE key = 'schema'")
    result = shell.run("store", "check", "--json")
    assert (result.status, result.document["trouble"]) == (1, "newer")
    assert result.document["hint"] == "A newer intercom wrote them: use that one, or one newer still."
    refused = as_person(shell, "store", "rebuild", "--yes", "--json")
    assert (refused.status, refused.document["reason"]) == (1, result.document["reason"])
    assert refused.document["hint"] == f"Rebuilding does not mend that. {result.document['hint']}"
    shell.serve()
    asked = shell.run("store", "check", "--json").document
    assert asked["askedBroker"] and "rebuild" not in asked["hint"]


def test_with_a_damaged_store_no_verb_says_that_nothing_is_there(shell: Shell) -> None:
    """Design section 5, fail closed: what waits is not denied, and what to do is said."""
    shell.serve()
    shell.run("receive", "--as", "worker")
    shell.run("send", "worker", "x", "--as", "planner", "--message-id", "m1")
    stopped(shell)
    (shell.home / "intercom.key").write_bytes(bytes(32))
    for words in (
        ("receive", "--as", "worker"),
        ("mailbox", "--as", "worker"),
        ("pending", "--as", "worker"),
        ("trace", "m1"),
        ("addresses",),
        ("session", "list", "--all"),
        ("send", "worker", "y", "--as", "planner"),
    ):
        result = shell.run(*words, "--json")
        assert (result.status, result.document["code"]) == (1, "store_unusable"), words
        assert result.document["hint"] == "`intercom status` says what is wrong with the store."


def test_nothing_is_there(shell: Shell) -> None:
    assert shell.run("store", "check").text == "there is no store yet\n"
    assert shell.run("store", "check", "--json").document["files"] == []
    moved = as_person(shell, "store", "move-aside", "--yes", "--json")
    assert (moved.status, moved.document["movedTo"]) == (0, None)
    assert not shell.home.exists()


def test_a_person_puts_a_damaged_store_aside(shell: Shell) -> None:
    stopped(shell)
    spoilt = bytes(8_192)
    (shell.home / "intercom.db").write_bytes(spoilt)
    result = as_person(shell, "store", "move-aside", "--yes", "--json")
    assert result.status == 0, result
    [place] = aside(shell)
    assert result.document["movedTo"] == str(place)
    assert (place / "intercom.db").read_bytes() == spoilt
    assert (place / "intercom.key").exists()
    shell.listen("worker")
    assert shell.run("send", "worker", "hello").status == 0


def test_without_yes_it_only_says_what_would_be_lost(shell: Shell) -> None:
    stopped(shell)
    result = as_person(shell, "store", "move-aside", "--json")
    assert (result.status, result.document["code"]) == (2, "usage")
    assert "nothing was moved. It would forget: 0 message ids" in result.document["reason"]
    assert "--yes" in result.document["hint"]
    assert aside(shell) == []
    assert shell.run("store", "check").status == 0


@pytest.mark.parametrize("what", ["move-aside", "rebuild"])
def test_not_while_the_broker_uses_it(shell: Shell, what: str) -> None:
    shell.serve()
    result = as_person(shell, "store", what, "--yes", "--json")
    assert (result.status, result.document["code"]) == (5, "in_use")
    assert aside(shell) == []
    assert shell.broker_pid() > 1


def test_a_person_has_a_damaged_store_rebuilt(shell: Shell) -> None:
    """Design section 5: says what is lost, keeps the old files, and the next broker has a new journal."""
    worker = shell.listen("worker")
    assert shell.run("send", "worker", "once", "--as", "planner", "--message-id", "m-1").status == 0
    worker.event("message")
    worker.signal(signal.SIGINT)
    worker.finish()
    stopped(shell)
    before = shell.run("store", "check", "--json").document
    (shell.home / "intercom.key").unlink()
    refused = as_person(shell, "store", "rebuild", "--json")
    assert (refused.status, refused.document["code"]) == (2, "usage")
    assert "nothing was rebuilt. It would save 1 message ids" in refused.document["reason"]
    assert "the key is lost" in refused.document["reason"] and "--yes" in refused.document["hint"]
    assert aside(shell) == []
    result = as_person(shell, "store", "rebuild", "--yes", "--json")
    assert result.status == 0, result
    [place] = aside(shell)
    document = result.document
    assert (document["rebuilt"], document["savedKey"], document["movedTo"]) == (True, False, str(place))
    assert (document["operations"], document["lostRows"]) == (1, [])
    assert document["brokerId"] == before["brokerId"] and document["journalId"] != before["journalId"]
    assert (place / "intercom.db").exists()
    shell.listen("worker")
    again = shell.run("send", "worker", "once", "--as", "planner", "--message-id", "m-1", "--json")
    assert (again.status, again.document["code"]) == (1, "store_unusable"), "nobody can tell what it was used for"
    assert shell.run("send", "worker", "another").status == 0


def test_what_rebuilding_does_not_mend(shell: Shell) -> None:
    assert as_person(shell, "store", "rebuild", "--yes").text == "there is no store yet\n"
    stopped(shell)
    fine = as_person(shell, "store", "rebuild", "--yes")
    assert (fine.status, fine.text) == (0, "in order: there is nothing to rebuild\n")
    (shell.home / "intercom.key").rename(shell.home / "elsewhere")
    (shell.home / "intercom.key").symlink_to("elsewhere")
    result = as_person(shell, "store", "rebuild", "--yes", "--json")
    assert (result.status, result.document["code"]) == (1, "store_unusable")
    assert "is not a regular file" in result.document["reason"]
    assert aside(shell) == []


@pytest.mark.parametrize("what", ["move-aside", "rebuild"])
@pytest.mark.parametrize("env", [None, {"CLAUDECODE": "1"}])
def test_an_agent_is_refused(shell: Shell, env: dict[str, str] | None, what: str) -> None:
    """Design section 7, Trust: 7 with that reason."""
    stopped(shell)
    if env is None:
        result = shell.run("store", what, "--yes", "--json")
    else:
        result = as_person(shell, "store", what, "--yes", "--json", env=env)
    assert (result.status, json.loads(result.out)["code"]) == (7, "not_a_person")
    assert aside(shell) == []


@pytest.mark.parametrize("arguments", [[], ["mend"], ["check", "check"]])
def test_mistakes(shell: Shell, arguments: list[str]) -> None:
    result = shell.run("store", *arguments, "--json")
    assert (result.status, result.document["code"]) == (2, "usage")
