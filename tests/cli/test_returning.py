"""Test that a verb that looks for something first is not misled by a broker that has just started."""

from __future__ import annotations

import os
import signal
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import pytest

from intercom.cli import returning
from intercom.errors import RequestRefused
from tests.support.commands import Running, Shell
from tests.support.processes import stop


@pytest.mark.parametrize(("looks", "young"), [(1, 0), (1, 5), (3, 2), (2, 1)])
def test_it_looks_until_it_is_found_or_the_broker_is_no_more_young(
    monkeypatch: pytest.MonkeyPatch, looks: int, young: int
) -> None:
    """``looks`` are needed to find it; as many look-ups fail as the broker is young."""
    ages = iter([0] * young + [None] * 9)
    monkeypatch.setattr(returning, "young_until", lambda paths: next(ages))
    monkeypatch.setattr(returning, "paths_of", lambda arguments: Path())
    count = 0

    def look() -> str:
        nonlocal count
        count += 1
        if count < looks:
            raise RequestRefused("no", code="unknown_question")
        return "found"

    assert returning.look_until_known(look, "unknown_question", Namespace()) == "found"
    assert count == looks


@pytest.mark.parametrize(("code", "young", "looks"), [("unknown_question", 2, 3), ("ambiguous_question", 2, 1)])
def test_it_says_what_it_did_not_find(monkeypatch: pytest.MonkeyPatch, code: str, young: int, looks: int) -> None:
    ages: Iterator[int | None] = iter([0] * young + [None])
    monkeypatch.setattr(returning, "young_until", lambda paths: next(ages))
    monkeypatch.setattr(returning, "paths_of", lambda arguments: Path())
    count = 0

    def look() -> str:
        nonlocal count
        count += 1
        raise RequestRefused("no", code=code)

    with pytest.raises(RequestRefused):
        returning.look_until_known(look, "unknown_question", Namespace())
    assert count == looks


def halted(*processes: Running) -> None:
    for running in processes:
        stop(running.process.pid)


def test_a_question_is_answered_while_both_sides_are_on_their_way_back(shell: Shell) -> None:
    """Design section 5 "Asks survive", section 7: the broker died, and neither the asker nor the asked is back."""
    shell.serve()
    listener = shell.listen("worker")
    asker = shell.start("ask", "worker", "why?", "--as", "planner", "--json")
    question = listener.event("message")["id"]
    shell.wait_for_questions(1)
    halted(listener, asker)
    try:
        os.kill(shell.broker_pid(), signal.SIGKILL)
        [owed] = shell.run("pending", "--as", "worker", "--json").document["questions"]
        assert (owed["messageId"], owed["askerIsHere"]) == (question, False)
        document = shell.run("reply", question, "because", "--as", "worker", "--json").document
        assert (document["state"], document["question"]) == ("queued", question)
    finally:
        for running in (listener, asker):
            running.signal(signal.SIGCONT)
    assert asker.finish().document["answer"]["text"] == "because"
    assert shell.run("pending", "--as", "worker", "--json").document["questions"] == []
