from __future__ import annotations

from tests.support.commands import Shell


def test_who_receives_and_what_waits(shell: Shell) -> None:
    worker = shell.listen("worker")
    shell.run("send", "worker", "hi", "--as", "planner")
    shell.run("receive", "--as", "planner", "--group", "alpha")
    found = {
        (address["name"], address["group"]): address
        for address in shell.run("addresses", "--json").document["addresses"]
    }
    assert set(found) == {("worker", "default"), ("planner", "default"), ("planner", "alpha")}
    assert found["worker", "default"]["holderState"] == "active"
    assert found["planner", "default"]["holder"] is None
    assert found["worker", "default"]["waiting"] == 0
    worker.close()
    shell.wait_for_sessions(0)
    shell.run("send", "worker", "hi", "--as", "planner")
    [waits] = [a for a in shell.run("addresses", "--json").document["addresses"] if a["name"] == "worker"]
    assert (waits["waiting"], waits["oldestAt"] is not None) == (1, True)


def test_for_a_person(shell: Shell) -> None:
    shell.serve()
    assert shell.run("addresses").text == "no addresses\n"
    shell.run("receive", "--as", "worker")
    head, line = shell.run("addresses").text.splitlines()
    assert head.split()[:4] == ["NAME", "GROUP", "RECEIVES", "WAITING"]
    assert line.split()[:4] == ["worker", "default", "-", "0"]


def test_a_command_without_a_name_has_an_address_that_tells_nothing_of_it(shell: Shell) -> None:
    """Identity of a command, rules 2 and 3: no visible name, and yet replies find the way."""
    worker = shell.listen("worker")
    host = {"CLAUDE_CODE_SESSION_ID": "secret-id"}
    result = shell.run("send", "worker", "hi", "--json", env=host)
    assert result.document["guest"] is False
    sender = worker.event("message")["from"]
    assert "name" not in sender
    [name] = [a["name"] for a in shell.run("addresses", "--json").document["addresses"] if a["name"] != "worker"]
    assert name.startswith("host-")
    assert "secret" not in name
    answer = shell.run("send", sender["id"], "back", "--as", "worker", "--json")
    assert (answer.status, answer.document["state"]) == (0, "queued")
    received = shell.run("receive", "--json", env=host).document
    assert [message["text"] for message in received["messages"]] == ["back"]
