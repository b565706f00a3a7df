from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

import pytest

from intercom.cli.attaching import attachments_of
from intercom.errors import AccessDenied, TooLarge, UsageError
from intercom.limits import ATTACHMENTS_BYTES
from tests.support.processes import OTHER_USER, in_child, needs_root


def attach(*files: object) -> list[tuple[str, str, str]]:
    found = attachments_of(Namespace(files=[str(file) for file in files] or None))
    return [(each.type, each.name, each.content) for each in found]


def test_files_go_under_the_last_part_of_their_path(tmp_path: Path) -> None:
    """F120: a name is never a path."""
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c").write_bytes("é\0".encode())
    assert attach() == []
    assert attach(tmp_path / "a.txt", tmp_path / "b" / "c") == [("file", "a.txt", "one\n"), ("file", "c", "é\0")]


def test_what_may_never_end_is_refused_at_once(tmp_path: Path) -> None:
    """A pipe without a writer would be waited for."""
    os.mkfifo(tmp_path / "pipe")
    for place in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(UsageError, match="is not a regular file"):
            attach(place)


def test_what_cannot_be_attached_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    for name, words in (("missing", "No such file"), (".", "is a directory"), ("binary", "is not text in UTF-8")):
        with pytest.raises(UsageError, match=words):
            attach(tmp_path / name)
    with pytest.raises(UsageError, match="cannot be attached"):
        attach("nul\0")


def test_no_more_is_read_than_a_message_holds(tmp_path: Path) -> None:
    (tmp_path / "half").write_bytes(b"x" * (ATTACHMENTS_BYTES // 2 + 1))
    assert len(attach(tmp_path / "half")) == 1
    with pytest.raises(TooLarge):
        attach(tmp_path / "half", tmp_path / "half")


@needs_root
def test_a_file_that_may_not_be_read(short_path: Path) -> None:
    def look() -> None:
        with pytest.raises(AccessDenied) as caught:
            attach(short_path / "x")
        assert caught.value.exit_status == 7

    in_child(look, user=OTHER_USER)
