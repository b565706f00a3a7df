"""Probe real adapters: `doctor --probe` with hooks beside it, all children of this process as of a host."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from intercom.client import adapters
from intercom.client.adapters import records
from intercom.paths import Paths
from tests.cli.test_hook import patience
from tests.support.adapters import RawHost
from tests.support.commands import Result, Shell, strict

__all__ = ["patience"]
pytestmark = pytest.mark.skipif(importlib.util.find_spec("mcp") is None, reason="the extra mcp is not installed")
EVENT = json.dumps({"session_id": "s-1", "cwd": "/src/web"}).encode()


@pytest.fixture
def host(shell: Shell, home: Path) -> Iterator[RawHost]:
    """Give a session of Gemini CLI whose adapter knows which session it is in."""
    shell.serve()
    made = RawHost(home, "--host", "gemini")
    try:
        made.shake_hands("gemini-cli-mcp-client")
        shell.wait_for(lambda: bool(records(Paths(home))))
        hook(shell, "SessionStart")
        shell.wait_for(lambda: any(seat.session == "s-1" for record in records(Paths(home)) for seat in record.seats))
        shell.wait_for_sessions(1)
        yield made
    finally:
        made.close()


@pytest.fixture(autouse=True)
def in_the_host(patience: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let hooks that run in this process be children of the host, which it is."""
    monkeypatch.setattr(adapters, "ancestors", lambda: iter([os.getpid()]))


def hook(shell: Shell, name: str) -> Result:
    done = shell.run("hook", "gemini", name, stdin=EVENT)
    assert (done.status, done.err) == (0, b"")
    return done


def probes(result: Result, state: str, status: int) -> list[dict[str, Any]]:
    document = strict(result.text)
    found: list[dict[str, Any]] = [each for each in document["checks"] if each["id"].startswith("probe:")]
    assert (result.status, [each["state"] for each in found]) == (status, [state]), document
    return found


def test_a_message_that_a_hook_shows_was_seen_to_arrive(shell: Shell, host: RawHost) -> None:
    """F81: the whole way, into what the host shows its model."""
    doctor = shell.start("doctor", "--probe", "gemini", "--json")
    shown = b""

    def is_shown() -> bool:
        nonlocal shown
        shown = hook(shell, "BeforeAgent").out
        return bool(shown)

    shell.wait_for(is_shown)
    [found] = probes(doctor.finish(), "ok", 0)
    mark = found["found"].split()[1]
    assert (
        f"Probe {mark}: `intercom doctor --probe gemini`"
        in strict(shown.decode())["hookSpecificOutput"]["additionalContext"]
    )
    assert found["id"].removeprefix("probe:") in shell.run("list", "--json").text
    assert "by a hook at its next step" in found["found"]


def test_a_message_that_nobody_shows_is_not_said_to_have_arrived(shell: Shell, host: RawHost) -> None:
    """F81."""
    result = shell.run("doctor", "--probe", "gemini", "--timeout", "0.3", "--json")
    [found] = probes(result, "unknown", 6)
    assert "was not shown within" in found["found"]
    assert "Prompt the session once" in found["hint"]
    assert host.process.poll() is None


def test_without_a_session_of_the_host_it_says_how_to_get_one(shell: Shell, host: RawHost) -> None:
    [found] = probes(shell.run("doctor", "--probe", "claude", "--json"), "bad", 1)
    assert "no session of claude with an adapter runs" in found["found"]
    assert "intercom install claude" in found["hint"]


def test_hooks_and_adapter_of_one_session_are_one_session_to_others(shell: Shell, host: RawHost) -> None:
    """A question that a hook showed is put forward when the model stops, at most twice, and answered by a tool."""
    [record] = records(Paths(shell.home))
    [seat] = record.seats
    address = seat.address or ""
    asker = shell.start("ask", address, "why?", "--as", "planner", "--json")
    shown = b""

    def is_shown() -> bool:
        nonlocal shown
        shown = hook(shell, "AfterTool").out
        return bool(shown)

    shell.wait_for(is_shown)
    assert b"why?" in shown
    stops = [hook(shell, "AfterAgent").out for _ in range(4)]
    assert [bool(out) for out in stops] == [True, True, False, False]
    assert strict(stops[0].decode())["decision"] == "deny"
    host.tool("reply", {"text": "because"})
    assert strict(asker.finish().text)["answer"]["text"] == "because"
    assert not hook(shell, "AfterAgent").out
