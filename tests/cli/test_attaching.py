from __future__ import annotations

import os
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from intercom.cli.attaching import attachments_of
from intercom.errors import AccessDenied, TooLarge, UsageError
from intercom.limits import ATTACHMENTS_BYTES
from tests.support.processes import OTHER_USER, in_child, needs_root
from tests.support.raw import PATIENCE_S


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


def test_a_device_never_ends_and_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="is neither a file nor a pipe"):
        attach("/dev/zero")


@contextmanager
def written(place: Path, parts: list[bytes]) -> Iterator[None]:
    """Let a thread open a pipe for writing, write the parts and leave; it is gone at the end."""

    def write() -> None:
        with suppress(BrokenPipeError), open(place, "wb", buffering=0) as pipe:
            for part in parts:
                pipe.write(part)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    yield
    writer.join(PATIENCE_S)
    assert not writer.is_alive()


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    """As process substitution makes one: a slow writer is waited for, also before it opened its end."""
    os.mkfifo(tmp_path / "pipe")
    with written(tmp_path / "pipe", [b"one ", b"x" * 100_000, b" two"]):
        assert attach(tmp_path / "pipe") == [("file", "pipe", "one " + "x" * 100_000 + " two")]


def test_a_pipe_whose_writer_has_gone(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    os.write(theirs, b"left behind")
    os.close(theirs)
    try:
        assert attach(f"/dev/fd/{ours}") == [("file", str(ours), "left behind")]
    finally:
        os.close(ours)


def test_a_pipe_that_brings_more_than_a_message_holds(tmp_path: Path) -> None:
    """F120: bounded; its writer is told by the system that nobody reads any more."""
    os.mkfifo(tmp_path / "pipe")
    with written(tmp_path / "pipe", [b"x" * ATTACHMENTS_BYTES, b"x"]), pytest.raises(TooLarge):
        attach(tmp_path / "pipe")


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
