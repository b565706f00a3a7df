from __future__ import annotations

from tests.support.commands import Shell


def test_groups_with_somebody_in_them(shell: Shell) -> None:
    """F58: which groups there are is shown (protocol 4.4), not who is in them."""
    shell.listen("worker", "--group", "beta", "--group", "alpha")
    shell.listen("other")
    shell.run("join", "alpha", "--as", "planner")
    result = shell.run("groups", "--as", "planner")
    assert (result.status, result.errors) == (0, "")
    assert [line.split() for line in result.text.splitlines()] == [
        ["GROUP", "SESSIONS", "MINE"],
        ["alpha", "1", "yes"],
        ["beta", "1", "-"],
        ["default", "1", "yes"],
    ]
    document = shell.run("groups", "--group", "beta", "--json").document
    assert document["groups"] == [
        {"group": "alpha", "sessionCount": 1, "member": False},
        {"group": "beta", "sessionCount": 1, "member": True},
        {"group": "default", "sessionCount": 1, "member": False},
    ]


def test_nobody_is_here(shell: Shell) -> None:
    """F60, F61: the command itself is not counted."""
    shell.serve()
    assert shell.run("groups").text == "nobody is here\n"
    assert shell.run("groups", "--json").document == {"ok": True, "groups": []}


def test_group_names_are_spelled_out(shell: Shell) -> None:
    """F110."""
    shell.serve()
    with shell.connect() as peer:
        peer.register("peer", session={"groups": ["a\x1b]0;x\x07\nb"]})
        assert "a\\x1b]0;x\\x07\\nb" in shell.run("groups").text
