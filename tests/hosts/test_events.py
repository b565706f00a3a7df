"""Read what hosts tell their hooks, in the documented shapes and in worse ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.hosts.events import HookEvent, read_event

CLAUDE = {
    "session_id": "abc",
    "transcript_path": "/t.jsonl",
    "cwd": "/work",
    "hook_event_name": "SessionStart",
    "source": "resume",
    "permission_mode": "default",
    "effort": {"level": "high"},
}
CODEX = {
    "session_id": "root",
    "agent_id": "thread",
    "agent_type": "worker",
    "turn_id": "7",
    "model": "m",
    "prompt": "x",
}
GEMINI = {"session_id": "g", "timestamp": "2026-01-01T00:00:00Z", "stop_hook_active": True, "prompt_response": "y"}


def encoded(document: Any) -> bytes:
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("document", "event"),
    [
        (CLAUDE, HookEvent(session="abc", cwd="/work", source="resume")),
        (CODEX, HookEvent(session="root", agent="thread", agent_type="worker")),
        (GEMINI, HookEvent(session="g", goes_on=True)),
        (
            {**CLAUDE, "tool_use_id": "t1", "reason": "clear"},
            HookEvent("abc", "", "", "/work", "resume", "clear", "t1"),
        ),
        ({**CLAUDE, "added": {"later": [1, None]}}, HookEvent(session="abc", cwd="/work", source="resume")),
        ({}, HookEvent()),
    ],
)
def test_documented_shapes(document: dict[str, Any], event: HookEvent) -> None:
    """Unknown members are passed over, missing ones count as not told."""
    assert read_event(encoded(document)) == event


@pytest.mark.parametrize("wrong", [None, 7, True, [], {"a": 1}, 1.5])
@pytest.mark.parametrize("member", ["session_id", "agent_id", "cwd", "source", "tool_use_id", "stop_hook_active"])
def test_a_member_of_another_type_does_not_spoil_the_others(member: str, wrong: Any) -> None:
    event = read_event(encoded({**CLAUDE, "agent_id": "a", "tool_use_id": "t", member: wrong}))
    if member == "stop_hook_active":
        assert event.goes_on is (wrong is True)
    else:
        told = {"session_id": "session", "agent_id": "agent", "tool_use_id": "tool_use"}.get(member, member)
        assert getattr(event, told) == ""
    assert member == "session_id" or event.session == "abc"


@pytest.mark.parametrize(
    "document",
    [b"", b" ", b"{", b"[]", b"7", b'"x"', b"null", b"\xff\xfe", b"\x00", b"[" * 100_000, b'{"a":' * 100_000],
)
def test_what_is_no_event_says_nothing(document: bytes) -> None:
    assert read_event(document) == HookEvent()


@pytest.mark.parametrize(
    "document",
    [
        b'{"session_id": "abc", "prompt": "\\ud83d"}',
        b'{"session_id": "abc", "prompt": "\xff"}',
        b'\xef\xbb\xbf{"session_id": "abc"}',
    ],
    ids=["half an emoji", "no UTF-8", "byte order mark"],
)
def test_what_only_a_lenient_reader_takes(document: bytes) -> None:
    assert read_event(document).session == "abc"


@given(st.binary(max_size=64) | st.dictionaries(st.text(max_size=12), st.integers() | st.text(max_size=4)).map(encoded))
def test_nothing_makes_it_fail(document: bytes) -> None:
    assert isinstance(read_event(document), HookEvent)
