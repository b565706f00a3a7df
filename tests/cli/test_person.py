from __future__ import annotations

import os
import pty

import pytest

from intercom.cli.person import NotAPerson, require_person
from intercom.client import who


@pytest.fixture
def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let standard input be a terminal, and nothing say that an agent is at work."""
    for variable in (*who.HOST_MARKERS, "AGENT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "isatty", lambda descriptor: descriptor == 0)


def test_a_person_at_a_terminal(at_a_terminal: None) -> None:
    require_person("this")


@pytest.mark.parametrize("marker", [*who.HOST_MARKERS, "AGENT"])
def test_an_agent_with_a_terminal_is_none(at_a_terminal: None, monkeypatch: pytest.MonkeyPatch, marker: str) -> None:
    """Design section 7, Trust."""
    monkeypatch.setenv(marker, "1")
    with pytest.raises(NotAPerson, match=f"this is for the person, and {marker} says") as caught:
        require_person("this")
    assert (caught.value.exit_status, caught.value.retry) == (7, "never")


def test_a_pipe_is_none(at_a_terminal: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda descriptor: descriptor == 1)
    with pytest.raises(NotAPerson, match="standard input is not a terminal"):
        require_person("this")


def test_a_terminal_is_what_the_system_calls_one() -> None:
    leader, follower = pty.openpty()
    try:
        assert os.isatty(follower)
    finally:
        os.close(leader)
        os.close(follower)
