from __future__ import annotations

import pytest

from tests.support.commands import Shell


def test_later_commands_of_the_same_name_act_in_the_group(shell: Shell) -> None:
    worker = shell.listen("worker", "--group", "alpha")
    assert shell.run("send", "worker", "hello", "--as", "planner").status == 3
    result = shell.run("join", "alpha", "--as", "planner")
    assert (result.status, result.errors) == (0, "")
    assert result.text == "later commands of planner act in: default, alpha\n"
    assert shell.run("send", "worker", "hello", "--as", "Planner").status == 0
    assert worker.event("message")["from"]["groups"] == ["default", "alpha"]
    assert shell.run("send", "worker", "hello", "--as", "other").status == 3
    assert shell.run("send", "worker", "hello", "--as", "planner", "--group", "beta").status == 3


def test_the_document(shell: Shell) -> None:
    document = shell.run("join", "alpha", " beta ", "--as", "planner", "--json").document
    assert document == {"ok": True, "groups": ["default", "alpha", "beta"], "name": "planner", "rule": "name"}
    assert shell.run("join", "beta", "--as", "planner", "--json").document == document
    assert not (shell.home / "broker.sock").exists()


def test_a_session_of_an_agent_host_needs_no_name(shell: Shell) -> None:
    shell.listen("worker", "--group", "alpha")
    mine = {"CODEX_THREAD_ID": "t-1"}
    assert (
        shell.run(
            "join",
            "alpha",
            env=mine,
        ).status
        == 0
    )
    assert shell.run("send", "worker", "hello", env=mine).status == 0
    assert shell.run("send", "worker", "hello", env={"CODEX_THREAD_ID": "t-2"}).status == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ["join", "--as", "me too"],
        ["join", "alpha"],
        ["join", " ", "--as", "planner"],
        ["join", "auto", "--as", "planner"],
        ["join", "alpha", "--as", "broker"],
        ["join", "alpha", "--as", " "],
        ["leave", "alpha"],
        ["leave", "", "--as", "planner"],
    ],
)
def test_mistakes(shell: Shell, arguments: list[str]) -> None:
    """F53; of a guest nothing is remembered, and it is told what to do."""
    result = shell.run(*arguments, "--json")
    assert (result.status, result.document["code"]) == (2, "usage")
    assert not shell.home.exists()


def test_too_many_groups(shell: Shell) -> None:
    names = [f"g{number}" for number in range(64)]
    result = shell.run("join", *names, "--as", "planner", "--json")
    assert (result.status, result.document["code"]) == (1, "presence_refused")
    assert shell.run("join", *names[:63], "--as", "planner").status == 0


def test_leaving(shell: Shell) -> None:
    shell.run("join", "alpha", "beta", "--as", "planner")
    for arguments, groups in (
        (["leave", "gamma"], ["default", "alpha", "beta"]),
        (["leave", "default"], ["alpha", "beta"]),
        (["leave", "alpha"], ["beta"]),
        (["leave", "beta"], ["default"]),
        (["leave"], ["default"]),
    ):
        result = shell.run(*arguments, "--as", "planner", "--json")
        assert (result.status, result.document["groups"]) == (0, groups)
    shell.run("join", "alpha", "--as", "planner")
    assert shell.run("leave", "--as", "planner").text == "later commands of planner act in: default\n"
    assert shell.run("whoami", "--as", "planner", "--json").document["groupsFrom"] == "standard"


def test_names_are_refused_without_what_steers_a_terminal(shell: Shell) -> None:
    """F110."""
    result = shell.run("join", "a\x1b[2J", "--as", "x")
    assert result.status == 2
    assert "a\\x1b[2J" in result.errors
    assert "\x1b" not in result.errors
