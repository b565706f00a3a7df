"""Hold the kernel's lock on a file."""

from __future__ import annotations

import fcntl
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from intercom.locks import FileLock


def test_a_free_lock_is_taken_with_a_private_file_that_stays(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    assert lock.try_acquire()
    assert stat.S_IMODE(lock.path.stat().st_mode) == 0o600
    lock.release()
    assert lock.path.exists()


def test_one_holds_it_until_it_gives_it_back(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert first.try_acquire()
    assert not second.try_acquire()
    second.release()
    assert not second.try_acquire()
    first.release()
    first.release()
    assert second.try_acquire()
    second.release()


def test_it_is_lost_with_its_process(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from intercom.locks import FileLock; l = FileLock(Path(sys.argv[1]))"
    )
    code += "; lock = FileLock(Path(sys.argv[1])); print(lock.try_acquire(), flush=True); sys.stdin.read(); os._exit(1)"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        lock = FileLock(tmp_path / "lock")
        assert not lock.try_acquire()
        holder.communicate("")
    assert lock.try_acquire()
    lock.release()


def test_no_process_that_is_started_inherits_it(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    assert lock.try_acquire()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False) as child:
        lock.release()
        assert lock.try_acquire()
        lock.release()
        child.communicate(b"")


def replaced(path: Path) -> None:
    path.unlink()
    path.touch()


@pytest.mark.parametrize("interfere", [Path.unlink, replaced])
def test_the_lock_of_a_file_that_was_removed_is_worth_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interfere: Callable[[Path], None]
) -> None:
    """Between opening and locking somebody removes the file: others would lock another one."""
    lock, flock = FileLock(tmp_path / "lock"), fcntl.flock

    def late(descriptor: int, operation: int) -> None:
        interfere(lock.path)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    assert not lock.try_acquire()
    monkeypatch.undo()
    assert lock.try_acquire()
    lock.release()


def test_what_cannot_be_a_lock_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        FileLock(tmp_path).try_acquire()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):
        FileLock(tmp_path / "link").try_acquire()
    assert not (tmp_path / "elsewhere").exists()
