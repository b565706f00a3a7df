"""Arguments of connect, clocks and durations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from intercom.client.assignment import Assignment
from intercom.client.composing import milliseconds
from intercom.client.setup import Setup, chance, prepare
from intercom.client.views import IncomingMessage
from intercom.errors import HomeError, UsageError

DEFAULTS: dict[str, Any] = {
    "group": None,
    "groups": None,
    "home": None,
    "model": "",
    "status": None,
    "purpose": "agent",
    "start": True,
    "timeout": 10.0,
    "return_address": None,
    "session_id": None,
    "cwd": None,
    "message_kind": IncomingMessage,
    "assignment_kind": Assignment,
}


def prepared(**arguments: Any) -> Setup:
    return prepare("ada", **{**DEFAULTS, **arguments})


def test_nothing_is_created(tmp_path: Path) -> None:
    setup = prepared(home=tmp_path / "home", timeout=2.5)
    assert (setup.paths.home, setup.timeout_ms, setup.start) == (Path(os.path.realpath(tmp_path)) / "home", 2_500, True)
    assert not (tmp_path / "home").exists()


def test_the_home_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Design section 7, Home."""
    monkeypatch.setenv("INTERCOM_HOME", str(tmp_path))
    assert prepared().paths.home == Path(os.path.realpath(tmp_path))
    with pytest.raises(HomeError):
        prepared(home="")


def test_the_first_session_of_a_process_has_its_spawn_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """protocol 11.2.2: once, and nothing this process starts finds it."""
    monkeypatch.setenv("INTERCOM_SPAWN_TOKEN", "secret")
    assert prepared(home=tmp_path, purpose="control").core.profile.spawn_token is None
    assert prepared(home=tmp_path).core.profile.spawn_token == "secret"
    assert "INTERCOM_SPAWN_TOKEN" not in os.environ
    assert prepared(home=tmp_path).core.profile.spawn_token is None


@pytest.mark.parametrize(("seconds", "expected"), [(1, 1_000), (0.0001, 1), (0.25, 250)])
def test_durations(seconds: float, expected: int) -> None:
    assert milliseconds(seconds, "timeout") == expected


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), True, "5", None])
def test_impossible_durations(seconds: Any) -> None:
    with pytest.raises(UsageError, match="timeout"):
        milliseconds(seconds, "timeout")


def test_chance_is_a_part_of_one() -> None:
    assert all(0 <= chance() <= 1 for _ in range(100))


def test_a_session_that_lost_hope_does_not_start_brokers() -> None:
    setup = prepared()
    assert setup.launch()._start
    setup.core.recovery.lost(0, UsageError("hopeless"))
    assert not setup.launch()._start


def test_a_home_that_became_a_link_is_followed(tmp_path: Path) -> None:
    """Design 7, Home: a foreign directory that sessions use becomes a link to the home."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    setup = prepared(home=old)
    assert setup.paths.home == old
    old.rmdir()
    old.symlink_to(new)
    assert setup.paths.home == new
