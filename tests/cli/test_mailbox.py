from __future__ import annotations

from argparse import Namespace

import pytest

from intercom.cli.mailbox import looks_like_a_session
from tests.support.commands import Shell


def put(shell: Shell, *options: str) -> str:
    shell.serve()
    shell.run("receive", "--as", "worker", *options)
    message_id: str = shell.run("send", "worker", "hi", "--as", "planner", "--json", *options).document["messageId"]
    return message_id


def test_what_waits_for_this_identity(shell: Shell) -> None:
    message_id = put(shell)
    document = shell.run("mailbox", "--as", "worker", "--json").document
    [entry] = document["entries"]
    assert (document["count"], document["bytes"]) == (1, entry["bytes"])
    assert (entry["messageId"], entry["state"], entry["position"], entry["offers"]) == (message_id, "queued", 1, 0)
    assert entry["from"]["name"] == "planner"
    assert entry["expiresAt"] - entry["queuedAt"] == 7 * 24 * 3_600_000, "design section 7, Queueing"
    assert shell.run("mailbox", "show", "--as", "worker", "--json").document == document


def test_looking_takes_nothing_out(shell: Shell) -> None:
    put(shell)
    for _ in range(2):
        assert shell.run("mailbox", "show", "worker", "--json").document["count"] == 1
    head, line = shell.run("mailbox", "show", "worker").text.splitlines()
    assert head.split()[:4] == ["PLACE", "STATE", "WAITS", "EXPIRES"]
    assert "planner (" in line
    assert len(shell.run("receive", "--as", "worker", "--json").document["messages"]) == 1


def test_addresses_of_one_name_are_told_apart_by_their_group(shell: Shell) -> None:
    put(shell)
    put(shell, "--group", "alpha")
    result = shell.run("mailbox", "show", "worker", "--json")
    assert (result.status, result.document["code"]) == (4, "ambiguous_address")
    assert shell.run("mailbox", "show", "worker", "--group", "alpha", "--json").document["count"] == 1
    assert shell.run("mailbox", "--as", "worker", "--group", "alpha", "--json").document["count"] == 1


def test_an_identity_that_never_spoke_has_an_empty_mailbox(shell: Shell) -> None:
    shell.serve()
    assert shell.run("mailbox", "--as", "ada").text == "the mailbox of ada is empty\n"


def test_what_is_not_there(shell: Shell) -> None:
    shell.serve()
    result = shell.run("mailbox", "show", "nobody", "--json")
    assert (result.status, result.document["code"]) == (3, "unknown_address")
    session_id = "b1111111-1111-4111-8111-111111111111"
    result = shell.run("mailbox", "show", session_id, "--json")
    assert (result.status, result.document["code"]) == (3, "unknown_session")


@pytest.mark.parametrize("words", [(), ("show", "a", "b"), ("list",)])
def test_one_mailbox_is_named(shell: Shell, words: tuple[str, ...]) -> None:
    result = shell.run("mailbox", *words, "--json")
    assert (result.status, result.document["code"]) == (2, "usage")


def test_a_mailbox_may_be_called_show(shell: Shell) -> None:
    from intercom.cli.mailbox import whose

    assert whose(Namespace(words=["show", "show"], groups=None)) == {"address": "show"}
    assert whose(Namespace(words=["show", "ada"], groups=["g"])) == {"address": "ada", "group": "g"}
    assert whose(Namespace(words=["show", "@me"], groups=["g"])) == {"address": "@me"}


def test_a_session_id_is_told_from_a_name() -> None:
    assert looks_like_a_session("b1111111-1111-4111-8111-111111111111")
    assert not looks_like_a_session("b1111111-1111-4111-8111-11111111111x")
    assert not looks_like_a_session("worker")
