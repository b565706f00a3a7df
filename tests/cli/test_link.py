from __future__ import annotations

from typing import Any

import pytest

from intercom.cli.command import chosen as chosen_command
from intercom.cli.link import chosen as chosen_link
from intercom.client.linkviews import CommandView, LinkView
from intercom.errors import RequestRefused
from tests.support.commands import Shell
from tests.support.raw import RawClient

FEATURES = ["session.lifecycle", "push.receipts", "address", "queue", "link.durable"]


def worker(shell: Shell, journal: str = "journal-1", token: str = "t" * 40) -> tuple[RawClient, str]:
    """Register a worker under the address ``ada`` and be ready; return it with its link."""
    client = shell.connect()
    client.register(
        "ada",
        returnAddress="r",
        acknowledgesReceipt=True,
        features=FEATURES,
        clientProtocolVersion="1.0",
        kind="custom",
        address={"name": "ada", "token": token},
    )
    bootstrap = client.expect("link_bootstrap")
    client.send(
        {
            "type": "link_ready",
            "requestId": "r",
            "linkId": bootstrap["linkId"],
            "generation": bootstrap["generation"],
            "lastReceivedCommandSeq": 0,
            "journalId": journal,
        }
    )
    return client, bootstrap["linkId"]


def test_a_command_from_the_sender_to_its_outcome(shell: Shell) -> None:
    """FE 4.11"""
    shell.serve()
    client, link_id = worker(shell)
    with client:
        client.expect("link_confirmed")
        sent = shell.run("command", "send", "ada", '{"do": "build"}', "--id", "build-1", "--json").document["command"]
        again = shell.run("command", "send", link_id, '{"do": "build"}', "--id", "build-1", "--json").document[
            "command"
        ]
        assert (sent["state"], sent["commandSeq"], again["number"]) == ("pending", 1, sent["number"])
        assert client.expect("command")["body"] == {"do": "build"}
        client.send({"type": "command_received", "commandId": "build-1", "commandSeq": 1})
        body = {"kind": "command_applied", "commandId": "build-1", "detail": "done"}
        client.send(
            {"type": "durable_event", "linkId": link_id, "seq": 1, "eventId": "e", "occurredAt": 1, "body": body}
        )
        assert client.expect("event_ack")["highWater"] == 1
        shown = shell.run("command", "show", "build", "--json").document["command"]
        assert (shown["state"], shown["detail"], shown["body"]) == ("applied", "done", {"do": "build"})
        assert shell.run("command", "list").text.splitlines()[1].split()[:2] == ["build-1", "applied"]
        [link] = shell.run("link", "list", "--json").document["links"]
        assert (link["id"], link["state"], link["eventFloor"], link["openCommands"]) == (link_id, "ready", 1, 0)
        [event] = shell.run("link", "events", "ada", "--json").document["events"]
        assert (event["kind"], event["body"]) == ("command_applied", body)
        assert "journalId       journal-1" in shell.run("link", "show", link_id[:8]).text
        refused = shell.run("command", "send", "ada", '{"do": "else"}', "--id", "build-1", "--json")
        assert (refused.status, refused.document["code"]) == (4, "conflict")


def test_another_journal_is_for_the_person(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """FE 4.4; design section 7, Trust"""
    shell.serve()
    first, link_id = worker(shell)
    with first:
        first.expect("link_confirmed")
    second, _ = worker(shell, "journal-2")
    with second:
        assert second.expect("link_refused")["code"] == "journal_identity_changed"
        arguments = ("link", "repin", link_id, "--journal", "journal-2", "--yes")
        refused = shell.run(*arguments, "--json")
        assert (refused.status, refused.document["code"]) == (7, "not_a_person")
        assert shell.run("link", "show", "ada", "--json").document["link"]["refused"] == "journal_identity_changed"
        told = shell.run("link", "show", "ada").errors
        assert told == f"to let it go on with the other journal: `intercom {' '.join(arguments)}`\n"
        monkeypatch.setattr("intercom.cli.link.require_person", lambda _: None)
        assert shell.run(*arguments[:-1], "--json").status == 2, "it is said twice that it is wanted"
        assert shell.run(*arguments, "--json").document["ambiguous"] == []
        assert second.expect("link_bootstrap")["eventFloor"] == 0


def test_nothing_is_there(shell: Shell) -> None:
    shell.serve()
    assert shell.run("link", "list").text == "no links\n"
    assert shell.run("command", "list").text == "no commands\n"
    for arguments in (("link", "show", "abcd"), ("command", "send", "abcd", "{}")):
        result = shell.run(*arguments, "--json")
        assert (result.status, result.document["code"]) == (3, "unknown_link")
    result = shell.run("command", "show", "abcd", "--json")
    assert (result.status, result.document["code"]) == (3, "unknown_command")


@pytest.mark.parametrize(
    "arguments",
    [
        ("link",),
        ("link", "show"),
        ("link", "list", "x"),
        ("command",),
        ("command", "send", "ada"),
        ("command", "send", "ada", "no object"),
        ("command", "send", "ada", "[]"),
        ("command", "send", "ada", '{"a":NaN}'),
        ("command", "send", "ada", '{"a":[-Infinity]}'),
        ("command", "send", "ada", '{"a":1e400}'),
        ("command", "send", "ada", '{"a":' * 100_000),
        ("command", "show"),
        ("link", "events", "abcd", "--after", "-1"),
        ("command", "list", "--after", "-1"),
        ("command", "list", "--after", "9007199254740992"),
    ],
)
def test_called_wrongly(shell: Shell, arguments: tuple[str, ...]) -> None:
    assert shell.run(*arguments, "--json").status == 2


def link(link_id: str, address: str | None = None) -> LinkView:
    members: dict[str, Any] = dict.fromkeys(LinkView.__struct_fields__)
    return LinkView(**{**members, "id": link_id, "address": address})


def test_which_link_is_meant() -> None:
    views = [link("abcd1"), link("abcd2", "ada")]
    assert chosen_link(views, "ADA") is views[1]
    assert chosen_link(views, "abcd1") is views[0]
    with pytest.raises(RequestRefused, match="2 links"):
        chosen_link(views, "abcd")


def test_which_command_is_meant() -> None:
    members: dict[str, Any] = dict.fromkeys(CommandView.__struct_fields__)
    views = [CommandView(**{**members, "id": name}) for name in ("build", "build-1", "a")]
    assert chosen_command(views, "build") is views[0]
    assert chosen_command(views, "a") is views[2]
    with pytest.raises(RequestRefused, match="No command"):
        chosen_command(views, "test")
