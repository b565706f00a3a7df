from __future__ import annotations

import io
import json
import sys

import pytest

from intercom.cli.render import Output


def test_documents_are_one_ascii_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """F117: JSON output is pure ASCII, whatever the stream can encode."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    output = Output(as_json=True)
    output.document({"name": "日本\n🙂\x1b"})
    output.line("not for programs")
    written = stream.buffer.getvalue()  # type: ignore[attr-defined]
    assert written == b'{"name":"\\u65e5\\u672c\\n\\ud83d\\ude42\\u001b"}\n'
    assert json.loads(written) == {"name": "日本\n🙂\x1b"}


def test_a_stream_that_cannot_encode_a_character_spells_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """F117."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", stream)
    output = Output(as_json=False)
    output.line("é 日")
    output.document({"not": "for people"})
    assert stream.buffer.getvalue() == b"\xe9 \\u65e5\n"  # type: ignore[attr-defined]


def test_a_pipe_is_never_fancy(monkeypatch: pytest.MonkeyPatch) -> None:
    """F117: no colours but on a terminal that wants them."""

    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    assert not Output(as_json=False).fancy()
    monkeypatch.setattr(sys, "stdout", Terminal(io.BytesIO(), encoding="utf-8"))
    assert Output(as_json=False).fancy()
    assert not Output(as_json=True).fancy()
    monkeypatch.setenv("TERM", "dumb")
    assert not Output(as_json=False).fancy()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Output(as_json=False).fancy()
