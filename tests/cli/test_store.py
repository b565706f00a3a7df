from __future__ import annotations

import json
import os
import pty
import subprocess
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
    assert "move-aside" in shell.run("store", "check").errors
    shell.serve()
    asked = shell.run("store", "check", "--json")
    assert (asked.status, asked.document["code"], asked.document["askedBroker"]) == (1, "store_unusable", True)


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


def test_not_while_the_broker_uses_it(shell: Shell) -> None:
    shell.serve()
    result = as_person(shell, "store", "move-aside", "--yes", "--json")
    assert (result.status, result.document["code"]) == (5, "in_use")
    assert aside(shell) == []
    assert shell.broker_pid() > 1


@pytest.mark.parametrize("env", [None, {"CLAUDECODE": "1"}])
def test_an_agent_is_refused(shell: Shell, env: dict[str, str] | None) -> None:
    """Design section 7, Trust: 7 with that reason."""
    stopped(shell)
    if env is None:
        result = shell.run("store", "move-aside", "--yes", "--json")
    else:
        result = as_person(shell, "store", "move-aside", "--yes", "--json", env=env)
    assert (result.status, json.loads(result.out)["code"]) == (7, "not_a_person")
    assert aside(shell) == []


@pytest.mark.parametrize("arguments", [[], ["rebuild"], ["check", "check"]])
def test_mistakes(shell: Shell, arguments: list[str]) -> None:
    result = shell.run("store", *arguments, "--json")
    assert (result.status, result.document["code"]) == (2, "usage")
