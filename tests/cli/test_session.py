from __future__ import annotations

import json

import pytest

from intercom.cli.session import chosen, described
from intercom.client.mailviews import SessionRecord
from intercom.errors import RequestRefused
from tests.support.commands import Shell


def test_sessions_that_are_here(shell: Shell) -> None:
    shell.listen("worker")
    shell.run("send", "worker", "hi", "--as", "planner")
    [worker] = shell.run("session", "list", "--json").document["sessions"]
    assert (worker["name"], worker["state"], worker["address"], worker["kind"]) == (
        "worker", "active", "worker", "command",
    )  # fmt: skip
    every = shell.run("session", "list", "--all", "--json").document["sessions"]
    assert {(one["name"], one["state"], one["closedReason"]) for one in every} == {
        ("worker", "active", None),
        ("planner", "closed", "unregister"),
    }
    shown = shell.run("session", "show", worker["id"][:8], "--json").document["session"]
    assert shown["id"] == worker["id"]
    assert "state           active" in shell.run("session", "show", worker["id"]).text
    head, line = shell.run("session", "list").text.splitlines()
    assert (head.split()[0], line.split()[:3]) == ("NAME", ["worker", worker["id"][:8], "active"])


def test_nobody(shell: Shell) -> None:
    shell.serve()
    assert shell.run("session", "list").text == "no sessions\n"
    result = shell.run("session", "show", "abcd1234", "--json")
    assert (result.status, result.document["code"]) == (3, "unknown_session")


def test_closing_one_is_for_the_person(shell: Shell) -> None:
    worker = shell.listen("worker")
    [session] = shell.run("session", "list", "--json").document["sessions"]
    result = shell.run("session", "close", session["id"], "--json")
    assert (result.status, result.document["code"]) == (7, "not_a_person")
    assert worker.process.poll() is None


def test_the_person_closes_one(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = shell.listen("worker")
    [session] = shell.run("session", "list", "--json").document["sessions"]
    monkeypatch.setattr("intercom.cli.session.require_person", lambda _: None)
    document = shell.run("session", "close", session["id"][:8], "--json").document
    assert (document["id"], document["wasKnown"]) == (session["id"], True)
    ended = worker.finish()
    assert (ended.status, json.loads(ended.out)["code"]) == (1, "force_closed"), "it does not come back by itself"
    assert shell.run("session", "show", session["id"], "--json").document["session"]["state"] == "closed"


def test_a_hint(shell: Shell) -> None:
    shell.serve()
    refused = shell.run("session", "hint", "reviewing", "--as", "worker", "--json")
    assert (refused.status, refused.document["code"]) == (3, "unknown_session"), "nothing would show it"
    guest = shell.run("session", "hint", "reviewing", "--json")
    assert (guest.status, guest.document["code"]) == (2, "usage")
    listener = shell.listen("worker")
    document = shell.run("session", "hint", "reviewing", "the", "parser", "--as", "worker", "--json").document
    assert document["taskHint"] == "reviewing the parser"
    [listed] = shell.run("session", "list", "--json").document["sessions"]
    assert (listed["id"], listed["taskHint"]) == (document["id"], "reviewing the parser")
    assert listener.process.poll() is None
    shown = shell.run("session", "show", document["id"], "--json").document["session"]
    assert shown["taskHint"] == "reviewing the parser"


@pytest.mark.parametrize("words", [(), ("show",), ("list", "x"), ("close", "a", "b"), ("hint",), ("what",)])
def test_what_to_do_is_said(shell: Shell, words: tuple[str, ...]) -> None:
    result = shell.run("session", *words, "--json")
    assert (result.status, result.document["code"]) == (2, "usage")


def record(session_id: str) -> SessionRecord:
    return SessionRecord(
        id=session_id,
        name=None,
        state="active",
        since=0,
        groups=(),
        pid=1,
        kind=None,
        address=None,
        mailbox_count=0,
        task_hint=None,
        grace_deadline=None,
        closed_reason=None,
        generation=1,
        incarnation="i",
        label="l",
    )


def test_which_session_is_meant() -> None:
    records = [record("abcd-1"), record("abcd-2"), record("ABCD")]
    assert chosen(records, "abcd").id == "ABCD"
    assert chosen(records, "ABCD-2").id == "abcd-2"
    with pytest.raises(RequestRefused) as caught:
        chosen(records, "abcd-")
    assert (caught.value.code, caught.value.exit_status) == ("ambiguous_session", 4)
    assert described(records[0])["taskHint"] is None
