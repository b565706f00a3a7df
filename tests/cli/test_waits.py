from __future__ import annotations

from tests.support.commands import Shell, asked


def test_who_waits_for_whom(shell: Shell) -> None:
    asker, question = asked(shell)
    found = shell.run("waits", "--json").document
    [wait] = found["waits"]
    assert (wait["asker"], wait["target"], wait["messageId"], wait["state"]) == ("planner", "worker", question, "open")
    assert found["total"] == 1 and wait["since"] < wait["deadline"]
    head, line = shell.run("waits").text.splitlines()
    assert head.split() == ["WAITS", "FOR", "SINCE", "STATE", "ID"]
    assert line.split()[:2] == ["planner", "worker"] and line.endswith(question)
    asker.close()


def test_an_ask_that_would_close_a_circle_says_how_to_go_on(shell: Shell) -> None:
    """F64: refused at once, with the circle named"""
    asker, _ = asked(shell)
    holder = shell.start("listen", "--as", "planner", "--json")
    holder.event("listening")
    result = shell.run("ask", "planner", "what do you mean?", "--as", "worker", "--json")
    assert (result.status, result.document["code"]) == (1, "would_deadlock")
    assert "planner, which waits for you" in result.document["reason"]
    assert "`intercom waits`" in result.document["hint"]
    assert shell.run("send", "planner", "what do you mean?", "--as", "worker", "--progress").status == 0
    for running in (asker, holder):
        running.close()


def test_nobody_waits(shell: Shell) -> None:
    assert shell.run("waits").text == "nobody waits for an answer\n"
    assert shell.run("waits", "--json").document == {"ok": True, "waits": [], "total": 0}
