"""Flows from the command line: written, watched, done by a listener, reported, and what is refused."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.cli.answering import summary_of
from intercom.cli.flow_files import read_flow
from intercom.errors import UsageError
from intercom.limits import FLOW_SUMMARY_BYTES
from tests.support.commands import Running, Shell
from tests.support.launching import until


def listener(shell: Shell, *arguments: str, name: str = "worker") -> Running:
    """Start a listener and return it once it listens."""
    running = shell.start("listen", "--as", name, "--json", *arguments)
    running.event("listening")
    return running


def status(shell: Shell, flow_id: str = "f") -> dict[str, Any]:
    document: dict[str, Any] = shell.run("flow", "status", flow_id, "--json").document
    return document


def settled(shell: Shell, accept: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait until a flow is as it should be."""
    found: list[dict[str, Any]] = []

    def look() -> bool:
        found.append(status(shell))
        return accept(found[-1]["flow"])

    until(look)
    return found[-1]


def step_states(flow: dict[str, Any]) -> list[str]:
    return [step["state"] for step in flow["steps"]]


def test_a_flow_in_two_shells(shell: Shell) -> None:
    """Issue: `listen --answer` does the steps and reports them by the status of its command."""
    worker = listener(
        shell, "--answer", 'printf "%s by %s" "$INTERCOM_STEP_ID" "$(cat)"; test "$INTERCOM_STEP_ID" != two'
    )
    created = shell.run(
        "flow", "create", "--id", "f", "--target", "worker", "--step", "one=sing", "--step", "two=dance", "--start",
        "--as", "boss", "--json",
    ).document  # fmt: skip
    assert created["flow"]["state"] == "active"
    done = settled(shell, lambda flow: step_states(flow) == ["completed", "failed"])
    assert done["flow"]["steps"][0]["result"]["summary"] == "one by sing"
    assert done["flow"]["nextActions"] == ["pause", "retry two", "append"]
    assert worker.event("message")["flow"]["stepId"] == "one"
    reported = worker.event("reported")
    assert (reported["outcome"], reported["stepState"]) == ("completed", "completed")
    worker.event("message")
    assert worker.event("reported")["outcome"] == "failed"
    text = shell.run("flow", "status", "f").text
    assert "intercom flow retry f two --reason TEXT" in text and "FAILED" in text
    assert "flow cancel" not in text, "nobody without a name may"
    assert "intercom flow cancel --as boss f --reason TEXT" in shell.run("flow", "status", "f", "--as", "boss").text
    retry = ("flow", "retry", "f", "two", "--reason", "the key is there now", "--as", "boss")
    tried = shell.run(*retry, "--json").document
    assert tried["flow"]["steps"][1]["state"] in ("pending", "dispatching", "awaiting_result", "failed")
    again = settled(
        shell, lambda flow: flow["steps"][1]["state"] == "failed" and len(flow["steps"][1]["attempts"]) == 2
    )
    assert again["dispatches"][2]["dispatchId"] == again["flow"]["steps"][1]["attempts"][1]
    cancelled = shell.run("flow", "cancel", "f", "--reason", "enough", "--as", "boss", "--json").document
    assert (cancelled["flow"]["state"], cancelled["flow"]["reason"]) == ("cancelled", "enough")
    assert "f " in shell.run("flow", "list").text
    watched = shell.run("flow", "watch", "f", "--timeout", "0.2", "--json").documents
    assert watched[0]["states"][0]["state"] == "cancelled"


def test_a_step_is_reported_by_a_command_of_the_same_name(shell: Shell) -> None:
    """FE 2.11; design section 7, Identity of a command."""
    worker = listener(shell)
    shell.run("flow", "create", "--id", "f", "--target", "worker", "--step", "one=x", "--start", "--as", "boss")
    step = worker.event("message")["flow"]
    refused = shell.run("flow", "report", step["dispatchId"], "completed", "--summary", "s", "--as", "other", "--json")
    assert (refused.status, refused.document["code"]) == (1, "not_flow_target")
    report = (
        "flow",
        "report",
        step["dispatchId"],
        "completed",
        "--summary",
        "s",
        "--resource",
        "file:a",
        "--as",
        "worker",
    )
    first = shell.run(*report, "--json").document
    assert first["stepState"] == "completed"
    again = shell.run(*report, "--json").document
    assert again == first
    other = shell.run(*report[:4], "--summary", "t", "--as", "worker", "--json")
    assert (other.status, other.document["code"]) == (4, "report_conflict")
    assert status(shell)["flow"]["state"] == "completed"


def test_what_was_reported_is_shown_without_a_broker(shell: Shell) -> None:
    """FE 2.9, outbox state: what this identity has written down, and whether the broker has it."""
    worker = listener(shell, "--answer", "printf 'all\\nwell'")
    shell.run("flow", "create", "--id", "f", "--target", "worker", "--step", "one=x", "--start", "--as", "boss")
    worker.event("message")
    dispatch_id = worker.event("reported")["dispatchId"]
    [report] = shell.run("flow", "reports", "--as", "worker", "--json").document["reports"]
    assert (report["dispatchId"], report["state"], report["attempts"]) == (dispatch_id, "accepted", 1)
    assert report["preparedAt"] <= report["publishedAt"] <= report["acceptedAt"]
    text = shell.run("flow", "reports", "--as", "worker").text
    assert "accepted" in text and "all ..." in text
    assert shell.run("flow", "reports", "--as", "boss").text == "no reports\n"
    assert shell.run("flow", "reports").status == 2


def test_the_command_that_listen_prints_can_be_followed(shell: Shell) -> None:
    """Design section 9: a hint is safe to follow as it stands, in whatever shell."""
    worker = shell.start("listen", "--as", "worker", "--group", "g")
    shell.run(
        "flow", "create", "--id", "f", "--target", "worker", "--step", "one=x", "--start", "--group", "g", "--as", "b"
    )
    lines = iter(worker.line, "  when it cannot be done:")
    told = next(line for line in lines if "intercom flow report" in line).replace("TEXT", "done")
    assert " --as worker --group g " in told
    reported = shell.run(*shlex.split(told)[1:], "--json")
    assert (reported.status, reported.document.get("stepState")) == (0, "completed")


def test_what_may_be_done_next_is_what_the_reader_may_do(shell: Shell) -> None:
    """Design section 9: the commands that are offered work for whoever reads them."""
    create = ("flow", "create", "--id", "f", "--target", "w", "--step", "one=x", "--group", "g")
    assert "flow cancel" not in shell.run(*create).text, "the next command is another guest"
    told = shell.run("flow", "status", "f").text
    start = next(line for line in told.splitlines() if "flow start" in line)
    assert start == "  intercom flow start --group g f"
    assert shell.run(*start.split()[1:]).status == 0


def test_a_key_of_a_guest_is_refused(shell: Shell) -> None:
    refused = shell.run("flow", "create", "--id", "f", "--target", "w", "--step", "one=x", "--key", "k", "--json")
    assert refused.status == 2 and "--as NAME" in refused.document["hint"]


def test_a_change_shows_what_status_shows(shell: Shell) -> None:
    create = ("flow", "create", "--id", "f", "--target", "w", "--step", "one=sing\nloudly", "--as", "boss")
    created = shell.run(*create).text
    assert "sing ..." in created, "there is more of it"


def test_no_text_of_others_looks_like_ours_or_floods(shell: Shell) -> None:
    long = "a" * 5_000
    shell.run("flow", "create", "--id", "f", "--target", "w", "--step", f"one={long}", "--start", "--as", "boss")
    lines = shell.run("flow", "status", "f").text.splitlines()
    assert max(map(len, lines)) < 300 and any(line.endswith("a...") for line in lines)
    shell.run("flow", "cancel", "f", "--reason", "no\nnext:\n  rm", "--as", "boss")
    lines = shell.run("flow", "status", "f").text.splitlines()
    assert "next:" not in lines
    assert [line for line in lines if line.startswith("reason: no\\")]


def test_the_text_says_when_no_todo_item_is_asked_for(shell: Shell) -> None:
    """A2.8: a binding that was not negotiated is told."""
    worker = listener(shell)
    flow = {"id": "f", "target": "worker", "steps": [{"id": "one", "prompt": "p", "todo": {"require_completed": True}}]}
    shell.run("flow", "create", "-", "--start", "--as", "boss", stdin=json.dumps(flow).encode())
    worker.event("message")
    assert "to-do item of step one: not asked for" in shell.run("flow", "status", "f").text


def test_what_was_written_by_others_is_for_the_person(shell: Shell) -> None:
    """Design section 7, Trust."""
    shell.run("flow", "create", "--id", "f", "--target", "w", "--step", "one=x", "--as", "boss")
    refused = shell.run("flow", "cancel", "f", "--reason", "no", "--as", "other", "--json")
    assert (refused.status, refused.document["code"]) == (7, "not_a_person")
    assert status(shell)["flow"]["state"] == "draft"


def test_a_flow_is_controlled_by_every_coordinator_of_its_group(shell: Shell) -> None:
    shell.run("flow", "create", "--id", "f", "--target", "nobody", "--step", "one=x", "--as", "boss")
    other = ("--as", "other", "--json")
    assert shell.run("flow", "start", "f", *other).document["flow"]["state"] == "active"
    assert shell.run("flow", "pause", "f", *other).document["flow"]["state"] == "paused"
    resumed = shell.run("flow", "resume", "f", "--target", "somebody", *other).document
    assert (resumed["flow"]["state"], resumed["flow"]["target"]) == ("active", "somebody")
    appended = shell.run("flow", "append", "f", "--after", "one", "--step", "two=y", *other).document
    assert [step["stepId"] for step in appended["flow"]["steps"]] == ["one", "two"]
    far = shell.run("flow", "pause", "f", "--group", "far", *other)
    assert (far.status, far.document["code"]) == (3, "flow_unknown")
    assert shell.run("flow", "gc", "--dry-run", "--json").document == {"ok": True, "flowIds": [], "dryRun": True}


def test_a_key_names_a_request(shell: Shell) -> None:
    create = ("flow", "create", "--id", "f", "--target", "w", "--step", "one=x", "--as", "boss", "--json")
    assert shell.run(*create, "--key", "k").status == 0
    assert shell.run(*create, "--key", "k").status == 0
    taken = shell.run(*create)
    assert (taken.status, taken.document["code"]) == (4, "flow_exists")
    assert "intercom flow list" in taken.document["hint"]
    other = shell.run(*create[:6], "--step", "one=y", "--as", "boss", "--json", "--key", "k")
    assert (other.status, other.document["code"]) == (4, "request_key_conflict")


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [
        (("start", "none"), 3, "flow_unknown"),
        (("status", "none"), 3, "flow_unknown"),
        (("append", "f", "--after", "none", "--step", "two=y"), 3, "step_unknown"),
        (("report", "none", "completed", "--summary", "s", "--as", "boss"), 3, "dispatch_unknown"),
        (("resume", "f"), 4, "flow_conflict"),
        (("create", "--id", "g", "--target", "@me", "--step", "one=x"), 2, "invalid_flow"),
        (("append", "f", "--after", "one", "--step", "one=x"), 2, "invalid_flow"),
    ],
)
def test_the_status_of_what_is_not_there_or_stands_against_it(
    shell: Shell, words: tuple[str, ...], status: int, code: str
) -> None:
    """README: 3 for what there is not, 4 for what stands against it; each with a hint."""
    shell.run("flow", "create", "--id", "f", "--target", "w", "--step", "one=x", "--as", "boss")
    refused = shell.run("flow", *words, "--json")
    assert (refused.status, refused.document["code"]) == (status, code)
    assert refused.document["hint"]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("dance",),
        ("start",),
        ("start", "a", "b"),
        ("create",),
        ("create", "--id", "f", "--step", "one=x"),
        ("create", "--id", "f", "--target", "w", "--step", "one"),
        ("create", "--id", "f g", "--target", "w", "--step", "one=x"),
        ("append", "f", "--step", "one=x"),
        ("retry", "f", "one"),
        ("cancel", "f"),
        ("report", "d", "completed"),
        ("report", "d", "fine", "--summary", "s", "--as", "w"),
        ("report", "d", "failed", "--summary", "s", "--todo", "t", "--as", "w"),
    ],
)
def test_what_is_called_wrongly(shell: Shell, words: tuple[str, ...]) -> None:
    assert shell.run("flow", *words).status == 2


FLOW = {"id": "f", "target": "w", "steps": [{"id": "one", "prompt": "p", "report_timeout_s": 1.5}]}
TOML = """
id = "f"
target = "w"
[[steps]]
id = "one"
prompt = "p"
report_timeout_s = 1.5
"""


@pytest.mark.parametrize(("name", "text"), [("f.json", json.dumps(FLOW)), ("f.toml", TOML), ("f", json.dumps(FLOW))])
def test_a_flow_in_a_file(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    flow = read_flow(str(tmp_path / name))
    assert flow["steps"] == [{"step_id": "one", "prompt": "p", "report_timeout_ms": 1_500}]


@pytest.mark.parametrize(
    "text",
    [
        "colour = 1",
        "id = 1",
        "steps = 1",
        "steps = [1]",
        "steps = [{ id = 'a' }]",
        "steps = [{ id = 'a', prompt = 'p', colour = 1 }]",
        "steps = [{ id = 'a', prompt = 'p', todo = 1 }]",
        "steps = [{ id = 'a', prompt = 'p', report_timeout_s = true }]",
        "steps = [{ id = 'a', prompt = 'p', report_timeout_s = 0 }]",
        "steps = [{ id = 'a', prompt = 'p', report_timeout_s = inf }]",
        "steps = [{ id = 'a', prompt = 'p', report_timeout_s = nan }]",
        '{"steps": [{"id": "a", "prompt": "p", "report_timeout_s": 1' + 400 * "0" + "}]}",
        '{"steps": [{"id": "a", "prompt": "p", "report_timeout_s": Infinity}]}',
        "= =",
        '{"a": ',
        "[" * 5_000,
    ],
)
def test_a_file_that_holds_no_flow(tmp_path: Path, text: str) -> None:
    """The sentence names the file."""
    place = tmp_path / "x.toml"
    place.write_text(text)
    with pytest.raises(UsageError) as refused:
        read_flow(str(place))
    assert str(place) in refused.value.reason


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        read_flow(str(tmp_path / "none.toml"))


def test_a_flow_from_standard_input(shell: Shell) -> None:
    created = shell.run("flow", "create", "-", "--json", "--as", "boss", stdin=TOML.encode())
    assert created.document["flow"]["steps"][0]["reportTimeoutMs"] == 1_500


@pytest.mark.parametrize("prompt", ["p\ud800", " "])
def test_a_prompt_that_would_be_changed_or_is_blank_is_refused(shell: Shell, prompt: str) -> None:
    """FE 2.2: nothing is changed silently."""
    flow = {**FLOW, "steps": [{"id": "one", "prompt": prompt}]}
    assert shell.run("flow", "create", "-", "--as", "boss", stdin=json.dumps(flow).encode()).status == 2
    assert shell.run("flow", "status", "f").status == 3


def test_the_summary_of_a_command() -> None:
    assert summary_of(" \n", "completed") == "completed"
    cut = summary_of("\u00e9" * FLOW_SUMMARY_BYTES, "failed")
    assert len(cut.encode()) == FLOW_SUMMARY_BYTES


STATES: dict[str, list[tuple[str, ...]]] = {
    "draft": [],
    "active": [("start", "f")],
    "paused": [("start", "f"), ("pause", "f")],
    "cancelled": [("cancel", "f", "--reason", "enough")],
}


@pytest.mark.parametrize("state", STATES)
def test_every_command_under_next_is_followed_as_it_stands(shell: Shell, state: str) -> None:
    """Design section 9: in every state, by whoever reads it in whatever group, with what is in capitals said."""
    reader = ("--as", "boss", "--group", "home")
    create = ("flow", "create", "--id", "f", "--target", "w", "--step", "one=x", "--step", "two=y")
    verbs: list[str] = []
    for place in range(6):
        for words in [create[1:], *STATES[state]]:
            named = [f"f{place}" if word == "f" else word for word in words]
            assert shell.run("flow", *named, "--as", "boss", "--group", "g").status == 0
        told = shell.run("flow", "status", f"f{place}", *reader).text.partition("next:\n")[2].splitlines()
        if place >= len(told):
            break
        command = shlex.split(told[place].replace("ID=TEXT", "more=z"))
        assert command[:2] == ["intercom", "flow"] and command[3:7] == ["--as", "boss", "--group", "g"]
        followed = shell.run(*command[1:])
        assert followed.status == 0, (command, followed)
        verbs.append(command[2])
        shell.run("flow", "cancel", f"f{place}", "--reason", "over", "--as", "boss", "--group", "g")
    expected = {
        "draft": ["start", "append", "cancel"],
        "active": ["pause", "append", "cancel"],
        "paused": ["resume", "append", "cancel"],
        "cancelled": [],
    }
    assert verbs == expected[state]


def test_an_agent_without_a_name_may_cancel_what_it_has_written(shell: Shell) -> None:
    """Design section 7, Identity of a command: a session of a host is known again by its address."""
    agent = {"CLAUDE_CODE_SESSION_ID": "a-session"}
    created = shell.run("flow", "create", "--id", "f", "--target", "w", "--step", "one=x", "--json", env=agent)
    assert created.document["flow"]["createdBy"].startswith("host-")
    mine = shell.run("flow", "status", "f", "--json", env=agent).document["flow"]
    assert (mine["isYours"], "cancel" in mine["nextActions"]) == (True, True)
    for other in ({"CLAUDE_CODE_SESSION_ID": "another"}, {}):
        theirs = shell.run("flow", "status", "f", "--json", env=other).document["flow"]
        assert (theirs["isYours"], "cancel" in theirs["nextActions"]) == (False, False)
    told = shell.run("flow", "status", "f", "--group", "far", env=agent).text
    [cancel] = [line for line in told.splitlines() if "cancel" in line]
    assert "--group default" in cancel, "the address that has written it is one of its home group"
    done = shell.run(*shlex.split(cancel)[1:], "--json", env=agent)
    assert done.document["flow"]["state"] == "cancelled"


def test_only_the_newest_attempt_of_a_step_is_told_of(shell: Shell) -> None:
    """What is over says nothing of how it is: not its old to-do items, nor why it was once retried."""
    worker = listener(shell, "--answer", "false")
    flow = {"id": "f", "target": "worker", "steps": [{"id": "one", "prompt": "p", "todo": {"require_completed": True}}]}
    created = shell.run("flow", "create", "-", "--start", stdin=json.dumps(flow).encode())
    assert re.search(r", by [0-9a-f]{8}$", created.text.splitlines()[0]), created.text
    for _ in range(2):
        worker.event("message")
        worker.event("reported")
        shell.run("flow", "retry", "f", "one", "--reason", "again", "--as", "boss")
    text = shell.run("flow", "status", "f").text
    assert text.count("to-do item of step one") == 1
    assert "last reason: " in text
