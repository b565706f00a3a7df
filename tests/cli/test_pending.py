from __future__ import annotations

from tests.support.commands import Shell, asked


def test_what_another_process_of_the_identity_received(shell: Shell) -> None:
    asker, question = asked(shell)
    [found] = shell.run("pending", "--as", "worker", "--json").document["questions"]
    assert (found["messageId"], found["askerName"], found["askerIsHere"]) == (question, "planner", True)
    assert found["deadline"] - found["askedAt"] >= 590_000, "an ask waits 10 minutes"
    assert shell.run("pending", "--as", "somebody", "--json").document["questions"] == []
    asker.close()


def test_for_a_person(shell: Shell) -> None:
    asker, question = asked(shell)
    head, line = shell.run("pending", "--as", "worker").text.splitlines()
    assert head.split() == ["ASKED", "LEFT", "BY", "ID"]
    assert "planner (" in line
    assert line.endswith(question)
    asker.close()


def test_nothing_is_owed(shell: Shell) -> None:
    assert shell.run("pending", "--as", "worker").text == "no open questions\n"


def test_a_guest_owes_nothing(shell: Shell) -> None:
    result = shell.run("pending", "--json")
    assert (result.status, result.document["code"]) == (2, "usage")
    assert not shell.home.exists()
