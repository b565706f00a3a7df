"""Test that who is given a task does and reports it with commands alone (protocol 13.3), with a real broker."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from tests.support.commands import Shell


def given(shell: Shell, invocation_id: str, task: str = "count the words", *, name: str = "rec") -> str:
    """Have an identity that receives its task as mail; return the id of the message that brought it."""
    shell.serve()
    assert shell.run("receive", "--as", name).status == 0  # its address is there from now on
    invoked = shell.run("invoke", name, task, "--as", "planner", "--id", invocation_id, "--json")
    assert invoked.status == 0
    [message] = shell.run("receive", "--as", name, "--json").document["messages"]
    assert message["invocation"] == {
        "invocationId": invocation_id,
        "runId": invoked.document["runId"],
        "action": "execute",
    }
    return str(message["id"])


def shown(shell: Shell, invocation_id: str) -> dict[str, Any]:
    return dict(shell.run("invocation", "show", "--json", "--", invocation_id).document["invocation"])


@pytest.mark.parametrize(
    ("what", "state", "member"), [("is done", "completed", "output"), ("cannot be done", "failed", "error")]
)
def test_the_command_that_is_printed_reports_it(shell: Shell, what: str, state: str, member: str) -> None:
    """Error texts and hints are followed literally (design section 1, 6)."""
    shell.serve()
    assert shell.run("receive", "--as", "the rec").status == 0
    assert shell.run("invoke", "the-rec", "build", "--as", "planner", "--id=-i1").status == 0
    lines = shell.run("receive", "--as", "the rec").text.splitlines()
    assert lines[0].split(" ", 1)[1].startswith("planner (")
    assert lines[1:3] == ["    build", "  task of invocation -i1 (execute)"]
    hint = lines[lines.index(f"  when it {what}:") + 1]
    program, *words = shlex.split(hint)
    assert program == "intercom"
    reported = shell.run(words[0], "--json", *words[1:-1], "42 words")
    assert (reported.status, reported.document) == (0, {"ok": True, "invocationId": "-i1", "state": state})
    view = shown(shell, "-i1")
    assert (view["state"], view[member]) == (state, "42 words")


def test_a_reply_to_its_message_completes_it(shell: Shell) -> None:
    """Protocol 13.3: everybody who can answer a message can do a task."""
    message = given(shell, "i-1")
    assert message.startswith("run:")
    replied = shell.run("reply", "--as", "rec", message, "two", "words", "--json")
    assert (replied.status, replied.document) == (0, {"ok": True, "invocationId": "i-1", "state": "completed"})
    assert shown(shell, "i-1")["output"] == "two words"
    again = shell.run("reply", "--as", "rec", message, "three", "--json")
    assert (again.status, again.document["code"]) == (3, "unknown_question")
    other = given(shell, "i-2")
    assert shell.run("reply", "--as", "rec", "--error", other[:12], "no time").text == "failed: i-2\n"
    assert shown(shell, "i-2")["error"] == "no time"
    strange = shell.run("reply", "--as", "planner", given(shell, "i-3"), "mine", "--json")
    assert (strange.status, strange.document["code"]) == (3, "unknown_question")


def test_the_result_of_a_task_is_a_text(shell: Shell) -> None:
    message = given(shell, "i-1")
    (shell.cwd / "notes.txt").write_text("n")
    refused = shell.run("reply", "--as", "rec", "--attach", "notes.txt", message, "see", "--json")
    assert (refused.status, refused.document["code"]) == (2, "usage")
    assert shown(shell, "i-1")["state"] == "running"


def test_it_is_reported_while_it_goes_on(shell: Shell) -> None:
    given(shell, "i-1")
    report = ("invocation", "report", "--as", "rec", "i-1")
    assert shell.run(*report, "waiting", "for", "a", "key").text == "waiting: i-1\n"
    assert (shown(shell, "i-1")["state"], shown(shell, "i-1")["summary"]) == ("waiting", "for a key")
    assert shell.run(*report, "running").status == 0
    assert shell.run(*report, "singing", "--json").document["code"] == "usage"
    assert shell.run(*report, "completed", "-", stdin=b"long\n").status == 0
    assert shown(shell, "i-1")["output"] == "long"
    late = shell.run(*report, "failed", "no", "--json")
    assert (late.status, late.document["code"]) == (4, "run_terminal")
    guest = shell.run("invocation", "report", "i-1", "completed", "--json")
    assert (guest.status, guest.document["code"]) == (2, "usage")


def test_pending_shows_tasks(shell: Shell) -> None:
    given(shell, "i-1")
    found = shell.run("pending", "--as", "rec", "--json").document
    assert (found["questions"], [task["invocationId"] for task in found["tasks"]]) == ([], ["i-1"])
    shown_to_all = shell.run("pending", "--as", "rec")
    head, line = shown_to_all.text.splitlines()
    assert (head.split(), line.split()[-3:]) == (["GIVEN", "STATE", "ACTION", "ID"], ["running", "execute", "i-1"])
    assert "intercom invocation report --as rec ID completed TEXT" in shown_to_all.errors
    assert shell.run("pending", "--as", "planner", "--json").document["tasks"] == [], "it only asked for it"
    assert shell.run("invocation", "report", "--as", "rec", "i-1", "completed").status == 0
    assert shell.run("pending", "--as", "rec").text == "no open questions\n"


def test_one_that_is_taken_back_is_reported(shell: Shell) -> None:
    """Protocol 13.4: cancelled is its target's own word for having stopped."""
    given(shell, "i-1")
    assert shell.run("invocation", "cancel", "i-1", "--as", "planner").status == 0
    lines = shell.run("receive", "--as", "rec").text.splitlines()
    assert "  invocation i-1 is not wanted any more" in lines
    assert not any("reply" in line or "send" in line for line in lines)
    hint = shlex.split(lines[lines.index("  when you have stopped:") + 1])
    assert shell.run(*hint[1:-1], "stopped half way").text == "cancelled: i-1\n"
    assert (shown(shell, "i-1")["state"], shown(shell, "i-1")["error"]) == ("cancelled", "stopped half way")


def test_listen_does_tasks_with_its_command(shell: Shell) -> None:
    """Protocol 13.3, as for steps of flows: output and status are the report."""
    command = 'tee copy; echo "|$INTERCOM_INVOCATION_ID|$INTERCOM_ACTION"; ! grep -q fail copy'
    listener = shell.listen("worker", "--answer", command)
    done = shell.run("invoke", "worker", "count", "--as", "planner", "--id", "i-1", "--wait", "--json")
    assert (done.status, done.document["invocation"]["output"]) == (0, "count|i-1|execute")
    assert listener.event("message")["invocation"]["invocationId"] == "i-1"
    reported = listener.event("reported")
    assert (reported["invocationId"], reported["runState"]) == ("i-1", "completed")
    failed = shell.run("invoke", "worker", "fail", "--as", "planner", "--id", "i-2", "--wait", "--json")
    assert (failed.status, failed.document["code"]) == (1, "run_failed")
    assert "the command ended with status 1" in failed.document["reason"]
    assert listener.event("message")["invocation"]["invocationId"] == "i-2"
    assert listener.event("reported")["runState"] == "failed"


def test_listen_ends_the_command_of_a_task_that_is_taken_back(shell: Shell) -> None:
    """Protocol 13.4: the command is stopped, those behind it are not begun, and both are reported cancelled."""
    listener = shell.listen("worker", "--answer", 'touch "begun-$INTERCOM_INVOCATION_ID"; exec sleep 600')
    for name in ("i-1", "i-2"):
        assert shell.run("invoke", "worker", "go", "--as", "planner", "--id", name).status == 0
        assert listener.event("message")["invocation"]["invocationId"] == name
    shell.wait_for(lambda: (shell.cwd / "begun-i-1").exists())
    for name in ("i-2", "i-1"):
        assert shell.run("invocation", "cancel", name, "--as", "planner").status == 0
        assert listener.event("message")["invocation"]["cancelled"] is True
        reported = listener.event("reported")
        assert (reported["invocationId"], reported["runState"]) == (name, "cancelled")
        assert shown(shell, name)["state"] == "cancelled"
    assert not (shell.cwd / "begun-i-2").exists()


def test_a_result_that_is_too_large_has_failed(shell: Shell) -> None:
    """Protocol 13.6 invalid_update: nobody waits for ever for what cannot be recorded."""
    shell.listen("worker", "--answer", "head -c 1500000 /dev/zero | tr '\\0' x")
    failed = shell.run("invoke", "worker", "go", "--as", "planner", "--wait", "--json")
    assert (failed.status, failed.document["code"]) == (1, "run_failed")
    assert "too large" in failed.document["reason"]


def test_without_a_command_listen_tells_how_it_is_reported(shell: Shell) -> None:
    shell.serve()
    listener = shell.start("listen", "--as", "worker")
    shell.wait_for_sessions(1)
    assert shell.run("invoke", "worker", "go", "--as", "planner", "--id", "i-1").status == 0
    while (line := listener.line().strip()) != "when it is done:":
        assert "send" not in line
    assert listener.line().strip() == "intercom invocation report --as worker i-1 completed TEXT"
