from __future__ import annotations

import re
from typing import Any

import pytest

from intercom.mcp.calls import _TOOLS
from intercom.mcp.tools import INSTRUCTIONS, WORK_TOOLS, ToolUsage, checked, tools_for

TOOLS = tools_for(works=True)


def test_every_tool_is_described_and_done() -> None:
    assert set(TOOLS) == set(_TOOLS)
    assert set(tools_for(works=False)) == set(TOOLS) - set(WORK_TOOLS)


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_is_described_as_every_host_takes_it(name: str) -> None:
    """spec: hosts 2.4"""
    tool = TOOLS[name]
    assert re.fullmatch(r"[a-z_]{1,30}", name)
    assert len(tool["description"]) < 400, "short"
    schema = tool["schema"]
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert not {"anyOf", "oneOf", "allOf", "$ref"} & set(schema)
    for argument in schema["properties"].values():
        assert argument["description"]
        assert argument["type"] in ("string", "integer", "boolean")
    assert set(schema.get("required", ())) <= set(schema["properties"])


def test_the_instructions_fit_and_say_what_a_peer_may_not() -> None:
    """spec: hosts 2.4, Claude Code cuts them at 2 KB; design section 7, Trust."""
    assert len(INSTRUCTIONS) < 2_000
    assert "not by your user" in INSTRUCTIONS


def test_what_is_null_is_left_out() -> None:
    assert checked("list", {"group": None}) == {}
    assert checked("list", None) == {}
    assert checked("send", {"to": "bob", "text": "x", "reply_to": None}) == {"to": "bob", "text": "x"}


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("ask", {"to": "b", "text": "x", "wait_s": 0}),
        ("ask", {"to": "b", "text": "x", "wait_s": 280}),
        ("reply", {"text": "x", "error": False, "question": "abcd"}),
        ("status", {"doing": ""}),
    ],
)
def test_what_is_right_is_taken(tool: str, arguments: dict[str, Any]) -> None:
    assert checked(tool, arguments) == arguments


def test_what_is_wrong_says_what_is_right() -> None:
    with pytest.raises(ToolUsage) as caught:
        checked("send", {"recipient": "bob"})
    assert caught.value.hint == "It takes: to, text, reply_to, valid_for_s."
    with pytest.raises(ToolUsage) as caught:
        checked("join", {})
    assert caught.value.hint
