from __future__ import annotations

import errno
import os

import pytest

from intercom.client.failed_start import mark_of, note, noted
from intercom.errors import StartFailed
from intercom.paths import Paths, prepare_home


@pytest.fixture
def prepared(paths: Paths) -> Paths:
    prepare_home(paths)
    return paths


def test_a_note_is_news_for_who_began_before_it(prepared: Paths) -> None:
    """F7"""
    before = mark_of(prepared)
    assert before is None and noted(prepared, before) is None
    note(prepared, StartFailed("it ended", hint="make room"))
    failure = noted(prepared, before)
    assert failure is not None and (failure.reason, failure.hint) == ("it ended", "make room")
    assert noted(prepared, mark_of(prepared)) is None, "it is an old one for who comes now"
    assert prepared.start_failure.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in prepared.home.iterdir()] == ["broker.failed"]


def test_on_a_full_disk_nothing_stays_behind(prepared: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "text")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        note(prepared, StartFailed("it ended"))
    assert list(prepared.home.iterdir()) == []


@pytest.mark.parametrize("content", ["", "{", "[]", '{"reason": "x"}'])
def test_a_torn_note_says_nothing(prepared: Paths, content: str) -> None:
    prepared.start_failure.write_text(content)
    assert noted(prepared, None) is None


def test_what_cannot_be_noted_is_not(prepared: Paths) -> None:
    prepared.start_failure.mkdir()
    note(prepared, StartFailed("it ended"))
    assert noted(prepared, None) is None
    assert [path.name for path in prepared.home.iterdir()] == ["broker.failed"]
