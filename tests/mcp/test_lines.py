"""What a host writes reaches the adapter, or is answered."""

from __future__ import annotations

import io
import json

import mcp_types
import pytest
from pydantic import ValidationError

from intercom.mcp.lines import Lines, mended, refusal


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        ("half \\ud83d", "half \ufffd"),
        ("\\uDE00 other half", "\ufffd other half"),
        ("whole \\ud83d\\ude00", "whole \U0001f600"),
        ("\\ude00\\ud83d", "\ufffd\ufffd"),
        ("no escape \\\\ud83d", "no escape \\ud83d"),
        ("plain", "plain"),
    ],
)
def test_halves_of_surrogate_pairs_become_the_replacement_character(escaped: str, text: str) -> None:
    """As on the wire: one half in a text costs neither the message nor the answer."""
    line = mended(f'{{"{escaped}":["{escaped}",1]}}\n')
    assert json.loads(line) == {text: [text, 1]}
    assert line.endswith("\n")
    line.encode()


def test_what_is_no_json_stays() -> None:
    assert mended("\\ud83d\n") == "\\ud83d\n"
    assert mended("") == ""
    deep = "[" * 100_000 + "\\ud83d"
    assert mended(deep) == deep


def test_lines_are_read_to_the_end() -> None:
    lines = Lines(io.BytesIO(b'{"a":"\\ud83d"}\n\xff\nend'))
    assert [lines.readline() for _ in range(4)] == ['{"a": "\ufffd"}\n', "\ufffd\n", "end", ""]


@pytest.mark.parametrize(
    ("line", "code"),
    [("{", -32700), ("\n", None), ("[]", -32600), ("7", -32600), ('{"jsonrpc":"1.0","id":1}', -32600)],
)
def test_what_cannot_be_read_is_answered_with_the_code_of_json_rpc(line: str, code: int | None) -> None:
    with pytest.raises(ValidationError) as raised:
        mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    answer = refusal(raised.value)
    assert (None if answer is None else answer.error.code) == code
    assert answer is None or answer.id is None


def test_another_fault_is_not_blamed_on_the_host() -> None:
    assert refusal(OSError("gone")) is None
