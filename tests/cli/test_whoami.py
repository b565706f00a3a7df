from __future__ import annotations

import json
import os
import pty
import subprocess

from tests.cli.test_main import read_all
from tests.support.commands import INTERCOM, Shell


def test_a_name(shell: Shell) -> None:
    result = shell.run("whoami", "--as", "planner")
    assert (result.status, result.errors) == (0, "")
    assert result.text.splitlines() == [
        "name        planner",
        "address     planner",
        "identity    name: the name given by --as",
        "groups      default",
        f"home        {shell.home}",
        f"socket      {shell.home / 'broker.sock'}",
    ]
    assert not shell.home.exists()


def test_the_document(shell: Shell) -> None:
    shell.run("join", "alpha", "--as", "planner")
    document = shell.run("whoami", "--json", env={"INTERCOM_NAME": "planner"}).document
    assert document == {
        "ok": True,
        "name": "planner",
        "rule": "name",
        "address": "planner",
        "because": "the name given by INTERCOM_NAME",
        "groups": ["default", "alpha"],
        "groupsFrom": "joined",
        "home": str(shell.home),
        "socket": str(shell.home / "broker.sock"),
    }
    given = shell.run("whoami", "--as", "planner", "--group", "beta", "--json").document
    assert (given["groups"], given["groupsFrom"]) == (["beta"], "given")


def test_every_other_rule(shell: Shell) -> None:
    guest = shell.run("whoami", "--json").document
    assert (guest["rule"], guest["name"], guest["address"]) == ("guest", None, None)
    host = shell.run("whoami", "--json", env={"CLAUDE_CODE_SESSION_ID": "s"}).document
    assert (host["rule"], host["because"]) == ("host", "CLAUDE_CODE_SESSION_ID of Claude Code")
    other = shell.run("whoami", "--json", env={"CLAUDE_CODE_SESSION_ID": "t"}).document
    assert host["address"].startswith("host-")
    assert other["address"] != host["address"]


def test_a_terminal(shell: Shell) -> None:
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        (*INTERCOM, "whoami", "--json"),
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=shell.environment(),
        start_new_session=True,
    )
    os.close(follower)
    shown = json.loads(read_all(leader))
    assert process.wait(10) == 0
    assert shown["rule"] == "terminal"
    assert shown["because"] == f"the terminal session of {process.pid}"


def test_a_name_nobody_may_have(shell: Shell) -> None:
    """F53."""
    result = shell.run("whoami", "--as", "system", "--json")
    assert (result.status, result.document["code"]) == (2, "usage")
