"""Test which failures pass and which do not."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from intercom.store.failures import commit_failure, no_space_left, opening_failure


def sqlite_error(code: int, name: str = "SQLITE_NAME") -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("text")
    error.sqlite_errorcode = code
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize(("out_of_space", "final"), [(True, False), (False, True)])
def test_failed_write_is_a_full_disk_when_nothing_else_can_be_written(out_of_space: bool, final: bool) -> None:
    """SQLite reports an exhausted quota as an I/O error."""
    failure = commit_failure(sqlite_error(sqlite3.SQLITE_IOERR_WRITE), lambda: out_of_space)
    assert failure.final is final


def test_failed_sync_is_final_whatever_the_disk_says() -> None:
    """Design section 3.6."""
    failure = commit_failure(sqlite_error(sqlite3.SQLITE_IOERR_FSYNC, "SQLITE_IOERR_FSYNC"), lambda: True)
    assert (failure.reason, failure.final) == ("the disk failed (SQLITE_IOERR_FSYNC)", True)


def test_error_of_the_module_itself_passes() -> None:
    failure = commit_failure(sqlite3.ProgrammingError("Error binding parameter 1"), lambda: False)
    assert not failure.final
    assert "Error binding parameter 1" in failure.reason


@pytest.mark.parametrize(
    ("number", "final", "reason"),
    [
        (errno.ENOSPC, False, "the disk is full"),
        (errno.EDQUOT, False, "the disk quota is used up"),
        (errno.EROFS, False, "the file system is read-only"),
        (errno.EIO, True, "the disk failed (text)"),
    ],
)
def test_errors_of_the_system(number: int, final: bool, reason: str) -> None:
    failure = commit_failure(OSError(number, "text"), lambda: False)
    assert (failure.reason, failure.final) == (reason, final)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (sqlite_error(sqlite3.SQLITE_CORRUPT), "corrupt"),
        (sqlite_error(sqlite3.SQLITE_NOTADB), "corrupt"),
        (sqlite_error(sqlite3.SQLITE_FULL), "unwritable"),
        (sqlite_error(sqlite3.SQLITE_READONLY), "unwritable"),
        (sqlite_error(sqlite3.SQLITE_CANTOPEN), "unreadable"),
        (sqlite_error(sqlite3.SQLITE_IOERR_READ), "unreadable"),
        (OSError(errno.ENOSPC, "text"), "unwritable"),
        (OSError(errno.EACCES, "text"), "unreadable"),
    ],
)
def test_reasons_for_not_opening(error: Exception, code: str) -> None:
    failure = opening_failure(error, Path("/h/intercom.db"))
    assert failure.code == code
    assert "/h/intercom.db" in failure.reason


def test_room_is_found_by_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = str(tmp_path / "intercom.db")
    assert not no_space_left(database)
    for number, expected in ((errno.EDQUOT, True), (errno.ENOSPC, True), (errno.EIO, False)):

        def fail(descriptor: int, number: int = number) -> None:
            raise OSError(number, "text")

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            assert no_space_left(database) is expected
    assert os.listdir(tmp_path) == []


def test_what_fits_only_in_part_is_a_lack_of_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = [8_192]

    def write(descriptor: int, data: bytes) -> int:
        if not left:
            raise OSError(errno.ENOSPC, "text")
        return left.pop()

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        assert no_space_left(str(tmp_path / "intercom.db"))
    assert os.listdir(tmp_path) == []


def test_no_room_for_the_index_of_the_log_is_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "intercom.db"
    error = sqlite_error(sqlite3.SQLITE_IOERR_SHMSIZE, "SQLITE_IOERR_SHMSIZE")
    assert opening_failure(error, database).code == "unreadable"

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "text")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        failure = opening_failure(error, database)
    assert (failure.code, failure.reason) == ("unwritable", f"{database} cannot be written: the disk is full")


def test_missing_directory_is_no_lack_of_room(tmp_path: Path) -> None:
    assert not no_space_left(str(tmp_path / "missing" / "intercom.db"))
