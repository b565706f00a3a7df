from __future__ import annotations

from tests.support.commands import Shell


def states(shell: Shell, message_id: str) -> list[str]:
    document = shell.run("trace", message_id, "--json").document
    found = [event["state"] for event in document["events"]]
    assert document["messageId"] == message_id
    assert document["where"]
    assert [event["at"] for event in document["events"]] == sorted(event["at"] for event in document["events"])
    return [*found, f"now {document['state']}"]


def away(shell: Shell) -> None:
    """Have an address that nobody holds."""
    shell.serve()
    shell.run("receive", "--as", "worker")


def test_a_delivered_message(shell: Shell) -> None:
    shell.listen("worker")
    shell.run("send", "worker", "hi", "--as", "planner", "--message-id", "m-1")
    assert states(shell, "m-1") == ["reserved", "delivered", "now delivered"]


def test_a_message_that_waited(shell: Shell) -> None:
    """Truth of states: queued is not delivered, and delivered comes after it was handed over."""
    away(shell)
    shell.run("send", "worker", "hi", "--as", "planner", "--message-id", "m-1")
    assert states(shell, "m-1") == ["queued", "now queued"]
    assert "worker" in shell.run("trace", "m-1", "--json").document["where"]
    shell.run("receive", "--as", "worker")
    found = states(shell, "m-1")
    assert (found[0], found[-2:]) == ("queued", ["delivered", "now delivered"])


def test_an_expired_message(shell: Shell) -> None:
    away(shell)
    shell.run("send", "worker", "hi", "--as", "planner", "--message-id", "m-1", "--valid-for", "1s")
    shell.wait_for(lambda: states(shell, "m-1")[-1] == "now expired")
    told = shell.run("receive", "--as", "planner", "--json").document["messages"]
    assert [(message["notice"]["kind"], message["notice"]["messageId"]) for message in told] == [("expired", "m-1")]
    assert shell.run("receive", "--as", "worker", "--json").document["messages"] == []


def test_for_a_person(shell: Shell) -> None:
    away(shell)
    shell.run("send", "worker", "hi", "--as", "planner", "--message-id", "m-1")
    first, last = shell.run("trace", "m-1").text.splitlines()
    assert first.split()[2:] == ["queued"]
    assert last.startswith("now: queued: ")


def test_nothing_is_known(shell: Shell) -> None:
    shell.serve()
    result = shell.run("trace", "m-\x1b1", "--json")
    assert (result.status, result.document["code"]) == (3, "unknown_message")
    assert "\x1b" not in shell.run("trace", "m-\x1b1").errors


def test_one_message_is_named(shell: Shell) -> None:
    for words in ((), ("a", "b")):
        assert shell.run("trace", *words, "--json").document["code"] == "usage"
