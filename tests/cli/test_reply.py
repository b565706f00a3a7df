from __future__ import annotations

import json

import pytest

from tests.support.commands import Shell, asked


def test_a_question_is_answered_by_another_process_of_the_identity(shell: Shell) -> None:
    """Design section 7: it stays with the address that was asked, not with the process that printed it."""
    asker, question = asked(shell)
    [open_one] = shell.run("pending", "--as", "worker", "--json").document["questions"]
    assert (open_one["messageId"], open_one["askerName"], open_one["askerIsHere"]) == (question, "planner", True)
    document = shell.run("reply", question, "because", "--as", "worker", "--json").document
    assert (document["state"], document["target"], document["question"]) == ("delivered", "planner", question)
    answer = json.loads(asker.finish().out)
    assert (answer["state"], answer["answer"]["text"]) == ("answered", "because")
    assert shell.run("pending", "--as", "worker", "--json").document["questions"] == []
    assert shell.run("trace", question, "--json").document["state"] == "answered"


def test_the_beginning_of_an_id_and_a_refusal(shell: Shell) -> None:
    asker, question = asked(shell)
    assert shell.run("reply", question[:6], "--error", "I", "cannot", "--as", "worker").status == 0
    result = asker.finish()
    document = json.loads(result.out)
    assert (result.status, document["code"], document["reason"]) == (1, "reply_error", "I cannot")


def test_what_is_not_asked_cannot_be_answered(shell: Shell) -> None:
    asker, question = asked(shell)
    for words in (("m-1", "because"), (question, "because")):
        name = "worker" if words[0] == "m-1" else "somebody"
        result = shell.run("reply", *words, "--as", name, "--json")
        assert (result.status, result.document["code"]) == (3, "unknown_question")
    assert shell.run("reply", question, "because", "--as", "worker").status == 0
    asker.finish()
    result = shell.run("reply", question, "again", "--as", "worker", "--json")
    assert (result.status, result.document["code"]) == (3, "unknown_question")


@pytest.mark.parametrize("words", [(), ("m-1",), (" ", "x")])
def test_words_are_missing(shell: Shell, words: tuple[str, ...]) -> None:
    result = shell.run("reply", *words, "--as", "worker", "--json")
    assert (result.status, result.document["code"]) == (2, "usage")


def test_a_guest_owes_nothing(shell: Shell) -> None:
    result = shell.run("reply", "m-1", "x", "--json")
    assert (result.status, result.document["code"]) == (2, "usage")
    assert not shell.home.exists()
