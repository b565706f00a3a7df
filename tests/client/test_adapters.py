"""Hooks find the adapter of their host (spec: hosts 1.6.6)."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from intercom.client import adapters
from intercom.client.adapters import AdapterFiles, SeatRecord, ancestors, ask_adapter, nearest_adapter, note_session
from intercom.limits import SESSION_NOTE_AGE_MS
from intercom.paths import Paths


@pytest.fixture
def sockets() -> Iterator[list[socket.socket]]:
    opened: list[socket.socket] = []
    yield opened
    for each in opened:
        each.close()


def written(
    paths: Paths, sockets: list[socket.socket], *, host: str = "claude", host_pid: int = 0, pid: int = 0, seats: int = 1
) -> AdapterFiles:
    """Write the file of an adapter that listens."""
    files = AdapterFiles(paths, host, host_pid or os.getppid(), pid or os.getpid())
    files.prepare()
    listener = socket.socket(socket.AF_UNIX)
    sockets.append(listener)
    listener.bind(os.fspath(files.socket))
    listener.listen()
    files.listens = True
    files.write("/x", [SeatRecord(f"s{number}", f"host-{number}", f"n{number}") for number in range(seats)])
    return files


def test_nobody_is_there(paths: Paths) -> None:
    assert adapters.records(paths) == []
    assert nearest_adapter(paths) is None
    assert not paths.home.exists()


def test_an_adapter_is_found_by_the_process_above(paths: Paths, sockets: list[socket.socket]) -> None:
    files = written(paths, sockets)
    found = nearest_adapter(paths, "claude")
    assert found is not None
    assert (found.pid, found.host_pid, found.seats) == (os.getpid(), os.getppid(), (SeatRecord("s0", "host-0", "n0"),))
    assert nearest_adapter(paths, "codex") is None
    files.remove()
    assert nearest_adapter(paths) is None
    assert not files.socket.exists()


def test_the_file_is_for_the_user_alone(paths: Paths, sockets: list[socket.socket]) -> None:
    """F108."""
    written(paths, sockets)
    [file] = (paths.home / "adapters").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_an_adapter_that_does_not_listen_yet_is_no_leftover(paths: Paths) -> None:
    files = AdapterFiles(paths, "claude", os.getppid(), os.getpid())
    files.prepare()
    files.write("/x", [])
    assert list((paths.home / "adapters").iterdir()) == []


def test_of_several_the_one_that_holds_the_session_counts(
    paths: Paths, sockets: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """spec: hosts 4.1: one process of Codex has an adapter for each thread."""
    written(paths, sockets, host="codex", pid=os.getpid(), seats=1)
    free = written(paths, sockets, host="codex", pid=os.getppid(), seats=0)
    monkeypatch.setattr(adapters, "_working_directory", lambda: "/x")
    found = nearest_adapter(paths, "codex", "s0")
    assert found is not None
    assert found.pid == os.getpid()
    found = nearest_adapter(paths, "codex", "new")
    assert found is not None
    assert found.pid == os.getppid()
    free.remove()
    assert nearest_adapter(paths, "codex", "new") is not None


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b'{"host": "claude"}'])
def test_what_is_no_record_is_removed(paths: Paths, content: bytes) -> None:
    (paths.home / "adapters").mkdir(parents=True)
    file = paths.home / "adapters" / "claude-1-2.json"
    file.write_bytes(content)
    assert adapters.records(paths) == []
    assert not file.exists()


def test_the_files_of_an_adapter_that_was_killed_are_removed(paths: Paths, sockets: list[socket.socket]) -> None:
    with subprocess.Popen((sys.executable, "-c", "")) as gone:
        gone.wait()
    files = written(paths, sockets, pid=gone.pid)
    assert adapters.records(paths) == []
    assert not files.socket.exists()


def test_a_question_and_its_answer(paths: Paths, sockets: list[socket.socket]) -> None:
    written(paths, sockets)
    record = nearest_adapter(paths)
    assert record is not None
    [listener] = sockets

    def answer() -> None:
        peer, _ = listener.accept()
        with peer:
            assert json.loads(peer.makefile().readline()) == {"op": "hello"}
            peer.sendall(b'{"ok": ')
            peer.sendall(b'true}\n{"more": 1}\n')

    thread = threading.Thread(target=answer)
    thread.start()
    assert ask_adapter(record, {"op": "hello"}, 5) == {"ok": True}
    thread.join(5)


@pytest.mark.parametrize("answer", [b"", b"nonsense\n", b"[1]\n"])
def test_a_bad_answer_is_an_error_a_hook_can_pass_over(
    paths: Paths, sockets: list[socket.socket], answer: bytes
) -> None:
    written(paths, sockets)
    record = nearest_adapter(paths)
    assert record is not None
    [listener] = sockets

    def say() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(100)
            peer.sendall(answer)

    thread = threading.Thread(target=say)
    thread.start()
    with pytest.raises((OSError, ValueError)):
        ask_adapter(record, {"op": "hello"}, 5)
    thread.join(5)


def test_silence_is_bounded(paths: Paths, sockets: list[socket.socket]) -> None:
    """F133."""
    written(paths, sockets)
    record = nearest_adapter(paths)
    assert record is not None
    with pytest.raises(TimeoutError):
        ask_adapter(record, {"op": "hello"}, 0.05)


def test_a_note_waits_for_an_adapter_that_starts(paths: Paths) -> None:
    """spec: hosts 3.2: the MCP process starts before SessionStart, and listens after it."""
    files = AdapterFiles(paths, "claude", os.getppid(), os.getpid())
    assert files.note() is None
    note_session(paths, "claude", os.getppid(), "s-1", "startup")
    note_session(paths, "claude", os.getppid(), "s-2", "clear")
    assert files.note() == ("s-2", "clear")
    assert AdapterFiles(paths, "claude", os.getpid(), 1).note() is None
    assert stat.S_IMODE(files.note_file.stat().st_mode) == 0o600


def test_a_note_of_an_earlier_process_of_that_number_means_nothing(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F10."""
    note_session(paths, "claude", os.getppid(), "s-1", "startup")
    monkeypatch.setattr(adapters, "start_of", lambda pid: "later")
    assert AdapterFiles(paths, "claude", os.getppid(), 1).note() is None


def test_old_notes_are_forgotten(paths: Paths) -> None:
    with subprocess.Popen((sys.executable, "-c", "")) as gone:
        gone.wait()
    note_session(paths, "claude", gone.pid, "s-1", "startup")
    old: Path = AdapterFiles(paths, "claude", gone.pid, 1).note_file
    before = old.stat().st_mtime - SESSION_NOTE_AGE_MS / 1000 - 1
    os.utime(old, (before, before))
    note_session(paths, "claude", os.getppid(), "s-2", "startup")
    assert not old.exists()
    assert AdapterFiles(paths, "claude", os.getppid(), 1).note_file.exists()


def test_ancestors_begin_with_the_parent() -> None:
    above = list(ancestors())
    assert above[0] == os.getppid()
    assert len(above) == len(set(above))
