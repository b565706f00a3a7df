from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from intercom.mcp.hosts import (
    HOSTS,
    Caller,
    caller_of,
    claude_session,
    directory_of,
    environment_of,
    host_of,
    kind_of,
    told_by_plugin,
)


@pytest.mark.parametrize(
    ("client", "host"),
    [
        ("claude-code", "claude"),
        ("codex-mcp-client", "codex"),
        ("opencode", "opencode"),
        ("gemini-cli-mcp-client", "gemini"),
        ("Cursor", "generic"),
        ("", "generic"),
        (None, "generic"),
    ],
)
def test_hosts_are_known_by_their_clients(client: str | None, host: str) -> None:
    """spec: hosts 3.1, 4.1, 5.1, 6.1"""
    assert host_of(client) == host
    assert host in HOSTS
    assert kind_of(host)


def test_who_calls() -> None:
    """spec: hosts 1.2, the column of tools/call"""
    codex = {"threadId": "t", "sessionId": "s", "callId": "c", "progressToken": 1}
    assert caller_of("codex", codex) == Caller("t", "c")
    assert caller_of("claude", {"claudecode/toolUseId": "toolu_1"}) == Caller(None, "toolu_1")
    assert caller_of("claude", {"threadId": "t"}) == Caller()
    assert caller_of("codex", {"threadId": 7}) == Caller()


def test_what_claude_keeps_of_its_process(tmp_path: Path) -> None:
    """spec: hosts 3.3, 3.4"""
    environ = {"HOME": str(tmp_path), "CLAUDE_CODE_SESSION_ID": "old"}
    assert claude_session(environ, 5) is None
    for place in (tmp_path / ".claude", tmp_path / "moved"):
        (place / "sessions").mkdir(parents=True)
        (place / "sessions" / "5.json").write_text(f'{{"sessionId": "in {place.name}"}}')
    assert claude_session(environ, 5) == "in .claude"
    assert claude_session({**environ, "CLAUDE_CONFIG_DIR": str(tmp_path / "moved")}, 5) == "in moved"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"sessionId": 7}', '{"sessionId": ""}'])
def test_a_file_of_another_form_is_passed_over(tmp_path: Path, content: str) -> None:
    (tmp_path / ".claude" / "sessions").mkdir(parents=True)
    (tmp_path / ".claude" / "sessions" / "5.json").write_text(content)
    assert claude_session({"HOME": str(tmp_path)}, 5) is None


def test_where_a_session_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert directory_of("claude", {"CLAUDE_PROJECT_DIR": "/src/web"}) == "/src/web"
    monkeypatch.chdir(tmp_path)
    assert directory_of("codex", {"CLAUDE_PROJECT_DIR": "/src/web"}) == str(tmp_path)


def test_what_a_process_was_started_with() -> None:
    assert environment_of(os.getpid()).get("PATH") is not None
    assert environment_of(2**22 + 1) == {}


@pytest.mark.parametrize(
    ("host", "arguments", "expected"),
    [
        ("opencode", {"to": "a", "_subagent": "ses_1"}, ({"to": "a"}, "ses_1")),
        ("opencode", {"_subagent": 7}, ({}, None)),
        ("opencode", {"to": "a"}, ({"to": "a"}, None)),
        ("opencode", None, (None, None)),
        ("claude", {"_subagent": "ses_1"}, ({"_subagent": "ses_1"}, None)),
    ],
)
def test_the_plugin_of_opencode_says_who_calls(host: str, arguments: Any, expected: Any) -> None:
    """Its MCP calls name no session; the plugin adds an argument that no tool has."""
    assert told_by_plugin(host, arguments) == expected
