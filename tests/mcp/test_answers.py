"""Answers that outlive the process that had them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec import Raw
from msgspec.json import encode

from intercom.client.aio import IncomingMessage
from intercom.client.views import message_of
from intercom.limits import ANSWER_KEPT_MS
from intercom.mcp.answers import AnswerFiles
from intercom.paths import Paths
from intercom.wire.frames import MessageFrame
from tests.support.client import PEER


def answer(message_id: str, text: str = "because") -> IncomingMessage:
    message = {"id": message_id, "timestamp": 5, "replyTo": "q1", "content": {"text": text}}
    made = message_of(MessageFrame(Raw(encode(PEER)), Raw(encode(message))), IncomingMessage)
    assert isinstance(made, IncomingMessage)
    return made


@pytest.fixture
def files(tmp_path: Path) -> AnswerFiles:
    return AnswerFiles(Paths(tmp_path / "home"), "host-1", "")


def place(tmp_path: Path) -> Path:
    return tmp_path / "home" / "identities" / "answers"


def test_what_was_written_down_is_read_as_it_was(files: AnswerFiles, tmp_path: Path) -> None:
    assert files.load() == []
    assert not files.has("a1")
    assert files.save(answer("a1", "x\x1b"))
    assert files.has("a1")
    [kept] = AnswerFiles(Paths(tmp_path / "home"), "HOST-1", "").load()
    assert (kept.id, kept.text, kept.reply_to, kept.sender.name) == ("a1", "x\x1b", "q1", PEER["name"])
    kept.confirm()
    assert [path.stat().st_mode & 0o777 for path in place(tmp_path).iterdir()] == [0o600]
    files.drop("a1")
    files.drop("a1")
    assert files.load() == []


def test_another_session_has_none_of_it(files: AnswerFiles, tmp_path: Path) -> None:
    files.save(answer("a1"))
    assert AnswerFiles(Paths(tmp_path / "home"), "host-2", "").load() == []
    assert AnswerFiles(Paths(tmp_path / "home"), "host-1", "team").load() == []


def test_what_is_damaged_is_left_out(files: AnswerFiles, tmp_path: Path) -> None:
    files.save(answer("a1"))
    [path] = place(tmp_path).iterdir()
    for content in (b"", b"{}", b'{"at": 1, "sender": {}, "message": {}}', b"\xff"):
        path.write_bytes(content)
        assert files.load() == []


def test_what_nobody_came_for_is_dropped(files: AnswerFiles, tmp_path: Path) -> None:
    files.save(answer("a1"))
    [path] = place(tmp_path).iterdir()
    long_ago = path.stat().st_mtime - ANSWER_KEPT_MS / 1000
    os.utime(path, (long_ago, long_ago))
    files.save(answer("a2"))
    assert [kept.id for kept in files.load()] == ["a2"]


def test_where_nothing_can_be_written_that_is_said(files: AnswerFiles, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "identities").write_text("a file")
    assert not files.save(answer("a1"))
    assert files.load() == []
