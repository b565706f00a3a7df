"""The inbox socket of Claude Code and the queue of Codex, with stand-ins of the shape that was seen."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import anyio
import pytest

from intercom.client.who import host_identity
from intercom.mcp import ways
from intercom.mcp.seat import Place
from intercom.mcp.ways import ClaudeInbox, CodexQueue
from intercom.paths import Paths

pytestmark = pytest.mark.anyio


class FakeSeat:
    def __init__(self, host: str = "claude", session: str | None = "s-1", *, is_subagent: bool = False) -> None:
        identity = None if is_subagent else host_identity(host, "s-1")
        self.place = Place(identity, "n", host, (), Paths(Path("/x")), "/x", session)


async def test_the_inbox_takes_a_line_after_the_token(short_path: Path) -> None:
    """spec: hosts 3.3"""
    place = short_path / "1.sock"
    inbox = ClaudeInbox({ways.SOCKET_VARIABLE: str(place), ways.TOKEN_VARIABLE: "secret"})
    seat: Any = FakeSeat()
    assert inbox.level(seat) is None, "nobody listens"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(place))
        listener.listen()
        assert inbox.level(seat) == "now"
        assert inbox.level(FakeSeat(is_subagent=True)) is None  # type: ignore[arg-type]
        assert await inbox.ring(seat, 'say "x"\n')
        peer, _ = listener.accept()
        with peer:
            lines = [json.loads(line) for line in peer.makefile().read().splitlines()]
    assert lines == [
        {"type": "auth", "token": "secret"},
        {"type": "user", "message": {"role": "user", "content": 'say "x"\n'}, "from": "intercom"},
    ]
    assert not await inbox.ring(seat, "x"), "the listener is gone"


def test_without_the_variable_there_is_no_inbox() -> None:
    assert ClaudeInbox({}).level(FakeSeat()) is None  # type: ignore[arg-type]


async def test_the_queue_is_a_command_of_the_daemon(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """spec: hosts 4.3"""
    said = short_path / "said"
    program = short_path / "codex"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" "$CODEX_HOME" > {said}\nexit ${{FAILS:-0}}\n')
    program.chmod(0o755)
    monkeypatch.setattr(ways, "_program_of", lambda pid: str(program))
    monkeypatch.setattr(ways, "environment_of", lambda pid: {"PATH": os.environ["PATH"], "CODEX_HOME": "/c"})
    monkeypatch.setattr(ways, "_words_of", lambda pid: ["codex", "app-server", "--listen", "unix://"])
    seat: Any = FakeSeat("codex", "t-1")
    queue = CodexQueue(1)
    assert queue.level(seat) == "idle"
    assert queue.level(FakeSeat("codex", None)) is None  # type: ignore[arg-type]
    assert await queue.ring(seat, "--resume $(x)")
    assert await anyio.Path(said).read_text() == "queue\n--thread\nt-1\n--message\n--resume $(x)\n/c\n"
    monkeypatch.setattr(ways, "environment_of", lambda pid: {"PATH": os.environ["PATH"], "FAILS": "1"})
    assert not await CodexQueue(1).ring(seat, "x")
    program.unlink()
    assert not await queue.ring(seat, "x")


def test_without_a_daemon_there_is_no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "_program_of", lambda pid: "/x/codex")
    monkeypatch.setattr(ways, "_words_of", lambda pid: ["codex", "exec", "hello"])
    assert CodexQueue(1).level(FakeSeat("codex")) is None  # type: ignore[arg-type]


def test_a_process_that_is_gone_has_neither_program_nor_words() -> None:
    assert ways._program_of(2**22 + 1) is None
    assert ways._words_of(2**22 + 1) == []
