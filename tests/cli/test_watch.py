"""Test ``intercom watch``: follow, stop, and go on without gap or repetition."""

from __future__ import annotations

import json
import re
import signal
from typing import Any

from tests.support.commands import Running, Shell


def happened(running: Running) -> dict[str, Any]:
    return running.event("happened", "watch")


def test_what_happens_is_printed_as_it_happens(shell: Shell) -> None:
    shell.serve()
    running = shell.start("watch", "--json")
    assert running.event("snapshot", "watch")["states"] == []
    shell.run("receive", "--as", "worker")
    kinds = [happened(running)["kind"] for _ in range(4)]
    assert kinds == ["address.created", "address.held", "session.active", "session.closed"]
    shell.run("send", "worker", "the text", "--as", "planner", "--message-id", "m-1")
    while (event := happened(running))["kind"] != "mail.queued":
        pass
    assert event["about"] == {"messageId": "m-1", "target": "worker"}
    running.signal(signal.SIGINT)
    result = running.finish()
    assert result.status == 130
    last = json.loads(result.text.splitlines()[-1])
    assert (last["ok"], last["event"], last["code"]) == (False, "ended", "interrupted")
    assert f"--after {last['position']}" in result.errors
    assert "the text" not in result.text


def stopped(running: Running) -> dict[str, Any]:
    """Interrupt a command and return its last document."""
    running.signal(signal.SIGINT)
    last: dict[str, Any] = json.loads(running.finish().text.splitlines()[-1])
    return last


def test_a_later_one_goes_on_where_it_was(shell: Shell) -> None:
    """issue 7: follows and can resume, without gap or repetition."""
    shell.serve()
    shell.run("receive", "--as", "worker")
    first = shell.start("watch", "--message", "m-1", "--json")
    snapshot = first.event("snapshot", "watch")
    assert [state["state"] for state in snapshot["states"]] == ["unknown"]
    position = stopped(first)["position"]
    shell.run("send", "worker", "hi", "--as", "planner", "--message-id", "m-1")
    second = shell.start("watch", "--after", position, "--message", "m-1", "--json")
    queued = happened(second)
    assert queued["kind"] == "mail.queued"
    last = stopped(second)["position"]
    assert int(last.split("@")[0]) >= queued["seq"]
    shell.run("receive", "--as", "worker")
    third = shell.start("watch", "--after", last, "--message", "m-1", "--json")
    assert [happened(third)["kind"] for _ in range(2)] == ["mail.offered", "mail.delivered"]
    stopped(third)


def test_it_ends_when_its_time_is_over(shell: Shell) -> None:
    shell.serve()
    result = shell.run("watch", "--timeout", "1", "--json")
    assert (result.status, result.documents[-1]["event"]) == (0, "ended")


def test_for_a_person(shell: Shell) -> None:
    shell.listen("worker")
    shell.run("receive", "--as", "desk")
    running = shell.start("watch", "--address", "desk", "--group", "default")
    assert re.match(r"now  address free +address=desk group=default mailboxCount=0$", running.line())
    assert "session active" in running.line()
    shell.run("send", "desk", "hi", "--as", "planner", "--message-id", "m-1")
    seen = [running.line() for _ in range(1)]
    while "mail.queued" not in seen[-1]:
        seen.append(running.line())
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  mail.queued +messageId=m-1 target=desk$", seen[-1])
    running.signal(signal.SIGTERM)
    assert "to go on from here: --after " in running.finish().errors


def test_it_goes_on_over_the_end_of_the_broker(shell: Shell) -> None:
    listener = shell.listen("worker")
    running = shell.start("watch", "--json")
    running.event("snapshot", "watch")
    shell.run("restart")
    kinds = []
    while kinds[-1:] != ["session.active"]:
        kinds.append(happened(running)["kind"])
    assert "session.reconnecting" in kinds
    listener.close()


def test_what_cannot_be_gone_on_with_is_said(shell: Shell) -> None:
    shell.serve()
    running = shell.start("watch", "--after", "3@another")
    assert running.line() == "what happened before cannot be told: the broker has another store than then"
    running.signal(signal.SIGINT)
    assert running.finish().status == 130


def test_sessions_are_named_by_a_beginning(shell: Shell) -> None:
    shell.listen("worker")
    [session] = shell.run("session", "list", "--json").document["sessions"]
    running = shell.start("watch", "--session", session["id"][:6], "--json")
    snapshot = running.event("snapshot", "watch")
    assert snapshot["states"][0]["about"]["sessionId"] == session["id"]
    stopped(running)
    unknown = shell.run("watch", "--session", "ffff0000", "--timeout", "5", "--json")
    assert (unknown.status, unknown.document["code"]) == (3, "unknown_session")


def test_it_is_refused(shell: Shell) -> None:
    for arguments in (("--after", "x"), ("--message", " "), ("word",)):
        assert shell.run("watch", *arguments, "--json").document["code"] == "usage"
    shell.serve()
    refused = shell.run("watch", "--address", "nobody", "--timeout", "5", "--json")
    assert (refused.status, refused.document["code"], refused.document["event"]) == (3, "unknown_address", "ended")
