from __future__ import annotations

import json

import pytest

from intercom.cli.policy import rule_of, told
from intercom.client.attending import PolicyRule
from intercom.errors import UsageError
from tests.cli.test_me import person
from tests.support.commands import Shell
from tests.support.schemas import assert_described


@pytest.mark.parametrize(
    ("word", "rule"),
    [
        ("hold", PolicyRule("hold")),
        ("refuse:from=planner", PolicyRule("refuse", sender="planner")),
        ("quiet:group=a=b:c", PolicyRule("quiet", group="a=b:c")),
    ],
)
def test_a_rule_is_one_word(word: str, rule: PolicyRule) -> None:
    assert rule_of(word) == rule
    assert told([rule]) == word


@pytest.mark.parametrize("word", ["", "shout", "hold:", "hold:who=x", "hold:from=", "hold:from", ":from=x"])
def test_what_is_no_rule(word: str) -> None:
    if word == "hold:":
        assert rule_of(word) == PolicyRule("hold")
        return
    with pytest.raises(UsageError):
        rule_of(word)


def test_the_person_sets_shows_and_clears_a_policy(shell: Shell) -> None:
    """Protocol 15.2.2"""
    assert shell.run("receive", "--as", "worker").status == 0
    status, text = person(shell, "policy", "set", "worker", "accept:from=planner", "refuse", "--json")
    assert status == 0
    assert_described(json.loads(text), "policy")
    found = shell.run("policy", "list", "--json").document
    [policy] = found["policies"]
    assert (policy["owner"], policy["setBy"]) == ("worker", "person")
    assert [rule["action"] for rule in policy["rules"]] == ["accept", "refuse"]
    assert "accept:from=planner refuse" in shell.run("policy", "list").text
    refused = shell.run("send", "worker", "hello", "--as", "chatty", "--json")
    assert (refused.status, refused.document["code"]) == (1, "refused_by_policy")
    assert shell.run("send", "worker", "hello", "--as", "planner").status == 0
    assert person(shell, "policy", "clear", "worker") == (0, "worker: accept\n")
    assert shell.run("send", "worker", "hello", "--as", "chatty").status == 0
    assert shell.run("policy", "list").text == "everything is let through to everybody\n"


def test_quiet_messages_are_read_by_who_looks_for_its_mail(shell: Shell) -> None:
    """Protocol 15.2.1: `listen` is not woken, `receive` reads them"""
    listener = shell.start("listen", "--as", "worker", "--json")
    listener.event("listening")
    assert person(shell, "policy", "set", "worker", "quiet")[0] == 0
    [row] = [line for line in shell.run("list").text.splitlines() if line.startswith("worker")]
    assert "[quiet]" in row
    sent = shell.run("send", "worker", "one", "--as", "planner", "--json").document
    assert (sent["state"], sent["kept"]) == ("queued", "quiet")
    asked = shell.run("ask", "worker", "two", "--as", "planner", "--json")
    assert (asked.status, asked.document["code"]) == (5, "undisturbed")
    unqueued = shell.run("send", "worker", "three", "--as", "planner", "--no-queue", "--json")
    assert (unqueued.status, unqueued.document["code"]) == (5, "away")
    listener.close()
    assert [m["text"] for m in shell.run("receive", "--as", "worker", "--json").document["messages"]] == ["one"]


def test_a_held_message_is_released_or_refused(shell: Shell) -> None:
    """F111"""
    assert shell.run("receive", "--as", "worker").status == 0
    person(shell, "policy", "set", "worker", "hold")
    for message_id in ("m1", "m2"):
        shell.run("send", "worker", message_id, "--as", "planner", "--message-id", message_id)
    assert shell.run("policy", "list").text.splitlines()[-1].split()[0] == "m2"
    assert person(shell, "policy", "release", "m1") == (0, "let through: message m1\n")
    assert person(shell, "policy", "refuse", "m2") == (0, "refused: message m2\n")
    status, text = person(shell, "policy", "release", "m1", "--json")
    assert (status, json.loads(text)["code"]) == (3, "unknown_message")
    assert [m["id"] for m in shell.run("receive", "--as", "worker", "--json").document["messages"]] == ["m1"]


def test_a_policy_outlives_the_broker(shell: Shell) -> None:
    assert shell.run("receive", "--as", "worker").status == 0
    person(shell, "policy", "set", "worker", "refuse")
    shell.run("stop")
    assert shell.run("send", "worker", "hello", "--as", "planner", "--json").document["code"] == "refused_by_policy"


@pytest.mark.parametrize(
    "words", [("set", "w", "hold"), ("clear", "w"), ("release", "m"), ("refuse", "m")], ids=" ".join
)
def test_agents_say_nothing_for_the_person(shell: Shell, words: tuple[str, ...]) -> None:
    """Design section 7, Trust"""
    result = shell.run("policy", *words, "--json")
    assert (result.status, result.document["code"]) == (7, "not_a_person")


@pytest.mark.parametrize("words", [(), ("set",), ("set", "w"), ("list", "x"), ("clear",), ("show",)], ids=str)
def test_called_wrongly(shell: Shell, words: tuple[str, ...]) -> None:
    result = shell.run("policy", *words, "--json")
    assert (result.status, result.document["code"]) == (2, "usage")


def test_nobody_is_called_so(shell: Shell) -> None:
    status, text = person(shell, "policy", "set", "nobody", "hold", "--json")
    assert (status, json.loads(text)["code"]) == (3, "unknown_session")
