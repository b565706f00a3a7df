from __future__ import annotations

import pytest

from tests.support.commands import Shell


def test_where_there_is_no_other_machine_nothing_is_on_its_way(shell: Shell) -> None:
    shell.serve()
    for words in ((), ("list",), ("list", "--node", "studio")):
        result = shell.run("outbox", *words)
        assert (result.status, result.text) == (0, "nothing is on its way to another machine\n")
    assert shell.run("outbox", "--json").document == {"ok": True, "entries": [], "left": 0}


@pytest.mark.parametrize("what", ["show", "retry"])
def test_what_is_not_in_it(shell: Shell, what: str) -> None:
    shell.serve()
    result = shell.run("outbox", what, "d-1", "--json")
    assert (result.status, result.document["code"]) == (3, "unknown_delivery")


def test_giving_up_is_for_the_person(shell: Shell) -> None:
    """Design section 7, Trust."""
    result = shell.run("outbox", "cancel", "d-1", "--json")
    assert (result.status, result.document["code"]) == (7, "not_a_person")


@pytest.mark.parametrize("words", [("show",), ("list", "x"), ("hurry", "x"), ("show", "x", "--node", "n")])
def test_words_that_mean_nothing(shell: Shell, words: tuple[str, ...]) -> None:
    result = shell.run("outbox", *words, "--json")
    assert (result.status, result.document["code"]) == (2, "usage")
