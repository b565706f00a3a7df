from __future__ import annotations

import pytest

from intercom.cli.assignment import chosen
from intercom.client.working import REPORTABLE
from intercom.errors import AssignmentLost, RequestRefused
from tests.client.test_patience import VIEW
from tests.support.commands import Shell
from tests.support.working import desk, handed


def test_one_command_claims_another_reports_a_third_answers(shell: Shell) -> None:
    """Design section 7, identity of a command: what a command takes belongs to its address."""
    with desk(shell):
        work = handed(shell)["assignment"]
        name = work["assignmentId"]
        early = shell.run("assignment", "reply", name[:8], "three", "--as", "ada", "--json")
        assert (early.status, early.document["code"]) == (1, "assignment_not_accepted")
        accepted = shell.run("assignment", "report", name[:8], "accepted", "--as", "ada", "--json").document
        again = shell.run("assignment", "report", name[:8], "accepted", "--as", "ada", "--json").document
        assert accepted == again, "what can be said once counts once"
        started = shell.run("assignment", "report", name[:8], "started", "--as", "ada", "--json").document
        assert started["sequence"] == accepted["sequence"] + 1
        stranger = shell.run("assignment", "report", name, "failed", "--as", "bob", "--json")
        assert (stranger.status, stranger.document["code"]) == (3, "assignment_unknown")
        answered = shell.run("assignment", "reply", name[:8], "three", "words", "--as", "ada", "--json").document
        assert answered["state"] == "queued", "who asked was a command, and is gone"
        [message] = shell.run("receive", "--as", "planner", "--json").document["messages"]
        assert (message["text"], message["replyTo"], message["id"]) == (
            "three words", work["sourceMessageId"], answered["messageId"],
        )  # fmt: skip
        assert shell.run("inbox", "list", "--json").document["items"] == []


def test_an_answer_may_be_repeated_after_the_end(shell: Shell) -> None:
    """A1.11, FE 1.5: replies to an assignment that ended are answered from the reply record."""
    with desk(shell):
        work = handed(shell, "--accept")["assignment"]
        name, source = work["assignmentId"], work["sourceMessageId"]
        first = shell.run("assignment", "reply", name, "three", "--as", "ada", "--json").document
        again = shell.run("assignment", "reply", name, "three", "--as", "ada", "--source", source, "--json").document
        assert again == first
        changed = shell.run("assignment", "reply", name, "four", "--as", "ada", "--source", source, "--json")
        assert (changed.status, changed.document["code"]) == (4, "reply_idempotency_conflict")
        assert len(shell.run("receive", "--as", "planner", "--json").document["messages"]) == 1


def test_what_is_open(shell: Shell) -> None:
    with desk(shell):
        name = handed(shell)["assignment"]["assignmentId"]
        [view] = shell.run("assignment", "list", "--json").document["assignments"]
        assert (view["assignmentId"], view["address"], view["accepted"], view["mode"]) == (name, "ada", False, "staged")
        assert shell.run("assignment", "list", "--mine", "--as", "ada", "--json").document["assignments"] == [view]
        assert shell.run("assignment", "list", "--mine", "--as", "bob", "--json").document["assignments"] == []
        assert shell.run("assignment", "show", name[:8], "--json").document["assignment"] == view
        assert f"assignmentId    {name}" in shell.run("assignment", "show", name).text
        head, line = shell.run("assignment", "list").text.splitlines()
        assert (head.split()[0], "to accept it" in line, "ada" in line) == ("ID", True, True)
        failed = shell.run(
            "assignment", "report", name, "failed", "no", "time", "--retryable", "--code", "busy", "--as", "ada"
        )
        assert failed.text == "recorded: failed\n"
        assert shell.run("assignment", "list").text == "no open assignments\n"
        [item] = shell.run("inbox", "list", "--json").document["items"]
        assert item["returns"] == 1


def test_a_state_that_is_none(shell: Shell) -> None:
    result = shell.run("assignment", "report", "abcd", "done", "--as", "ada", "--json")
    assert (result.status, result.document["code"]) == (2, "usage")
    assert all(state in result.document["hint"] for state in REPORTABLE)


def test_nothing_is_there(shell: Shell) -> None:
    shell.serve()
    for call in (
        ("show", "abcd"),
        ("report", "abcd", "accepted", "--as", "ada"),
        ("reply", "abcd", "x", "--as", "ada"),
    ):
        result = shell.run("assignment", *call, "--json")
        assert (result.status, result.document["code"]) == (3, "assignment_unknown")


def test_a_guest_does_no_work(shell: Shell) -> None:
    shell.serve()
    result = shell.run("assignment", "report", "abcd", "accepted", "--json")
    assert (result.status, result.document["code"]) == (2, "usage")


@pytest.mark.parametrize("wrong", [(), ("list", "x"), ("show",), ("report", "a"), ("reply", "a"), ("end", "a")])
def test_called_wrongly(shell: Shell, wrong: tuple[str, ...]) -> None:
    result = shell.run("assignment", *wrong, "--as", "ada", "--json")
    assert (result.status, result.document["code"]) == (2, "usage")


def test_the_text_may_come_from_a_pipe(shell: Shell) -> None:
    with desk(shell):
        name = handed(shell, "--accept")["assignment"]["assignmentId"]
        shell.run("assignment", "reply", name, "-", "--as", "ada", stdin=b"three\nwords\n")
        [message] = shell.run("receive", "--as", "planner", "--json").document["messages"]
        assert message["text"] == "three\nwords"


def test_one_by_its_beginning() -> None:
    from msgspec.structs import replace

    views = [replace(VIEW, id=name) for name in ("abcd-1", "abcd-2", "wxyz-3")]
    assert chosen(views, "wxyz").id == "wxyz-3"
    with pytest.raises(RequestRefused) as caught:
        chosen(views, "abcd")
    assert (caught.value.code, caught.value.exit_status) == ("ambiguous_assignment", 4)
    with pytest.raises(AssignmentLost):
        chosen(views, "none")
