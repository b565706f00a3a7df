from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from intercom.limits import LOG_FILES, LOG_REPEAT_MS, LOG_REPEATS_KEPT, LOG_TEXT_BYTES
from intercom.server.log import Log

START = 1_700_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "intercom.log"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_is_a_json_document_with_time_process_and_event(path: Path) -> None:
    Log(path, wall=Clock()).write("started", version="1", reason="é\x1b\n")
    assert lines(path) == [
        {
            "time": "2023-11-14T22:13:20.000+00:00",
            "pid": os.getpid(),
            "event": "started",
            "version": "1",
            "reason": "é\x1b\n",
        }
    ]
    assert "\x1b" not in path.read_text()


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_file_is_private_whatever_the_umask(path: Path, umask: int) -> None:
    """F108."""
    before = os.umask(umask)
    try:
        Log(path).write("x")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_lines_below_the_level_are_not_written(path: Path) -> None:
    log = Log(path, level="warning")
    log.write("a", level="debug")
    log.write("b")
    log.write("c", level="warning")
    log.write("d", level="error")
    assert [(line["event"], line["level"]) for line in lines(path)] == [("c", "warning"), ("d", "error")]


def test_repeats_are_counted_and_told_with_the_next_line(path: Path) -> None:
    """F115; design, Log."""
    clock = Clock()
    log = Log(path, wall=clock)
    for number in range(1_000):
        log.write("refused", reason="r", number=number)
    log.write("refused", reason="other")
    clock.now += LOG_REPEAT_MS / 1000
    log.write("refused", reason="r", number="last")
    told = [(line["reason"], line.get("number"), line.get("repeated")) for line in lines(path)]
    assert told == [("r", 0, None), ("other", None, None), ("r", "last", 999)]


def test_the_last_line_about_something_that_changes_is_how_it_is(path: Path) -> None:
    """That it was so shortly before is no reason to leave out that it is so again."""
    log = Log(path)
    for status, reason in (("on", ""), ("off", "lost"), ("on", ""), ("on", ""), ("off", "lost")):
        log.write("cluster", status=status, reason=reason)
    assert [line["status"] for line in lines(path)] == ["on", "off", "on", "off"]
    log.close()


def test_counts_that_are_owed_are_told_at_the_end(path: Path) -> None:
    log = Log(path, wall=Clock())
    for event in ("a", "a", "b", "a"):
        log.write(event)
    log.close()
    assert [(line["event"], line.get("repeated")) for line in lines(path)] == [("a", None), ("b", None), ("a", 2)]


def test_a_clock_that_was_set_back_silences_nothing(path: Path) -> None:
    """F106."""
    clock = Clock()
    log = Log(path, wall=clock)
    log.write("a")
    clock.now -= 3_600
    log.write("a")
    assert len(lines(path)) == 2


def test_only_so_many_different_lines_are_watched(path: Path) -> None:
    log = Log(path, wall=Clock())
    for number in range(LOG_REPEATS_KEPT + 5):
        log.write("x", reason=str(number))
        log.write("x", reason=str(number))
    told = [line["reason"] for line in lines(path) if "repeated" in line]
    assert told == [str(number) for number in range(5)]


def test_the_log_is_bounded(path: Path) -> None:
    """F115; design, Log: so many files of so many bytes, and no more."""
    log = Log(path, limit_bytes=2_000)
    for number in range(500):
        log.write("x", reason=str(number))
    files = sorted(path.parent.iterdir())
    assert files == [path, *(path.with_name(f"intercom.log.{number}") for number in range(1, LOG_FILES))]
    assert all(file.stat().st_size <= 2_000 and stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert lines(path)[-1]["reason"] == "499"
    assert int(lines(files[1])[-1]["reason"]) == int(lines(path)[0]["reason"]) - 1


def test_a_file_found_full_is_rotated(path: Path) -> None:
    path.write_text("x" * 3_000)
    Log(path, limit_bytes=2_000).write("x")
    assert len(lines(path)) == 1


def test_a_long_text_is_cut(path: Path) -> None:
    Log(path).write("x", reason="y" * 1_000_000)
    assert len(lines(path)[0]["reason"]) == LOG_TEXT_BYTES


def test_a_log_that_is_deleted_is_made_again(path: Path) -> None:
    """F115."""
    log = Log(path)
    log.write("a")
    path.unlink()
    log.write("b")
    assert [line["event"] for line in lines(path)] == ["b"]


@pytest.mark.parametrize("obstacle", ["directory", "link", "missing parent", "fifo"])
def test_a_log_that_cannot_be_written_is_silent(path: Path, tmp_path: Path, obstacle: str) -> None:
    """F115: a failing log never stops anything."""
    if obstacle == "directory":
        path.mkdir()
    elif obstacle == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif obstacle == "fifo":
        os.mkfifo(path)
    else:
        path = tmp_path / "no" / "such" / "log"
    log = Log(path)
    log.write("a")
    log.close()
    assert not (tmp_path / "elsewhere").exists()


def test_a_failing_write_is_silent(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(path)
    log.write("a")

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        log.write("b")
    log.write("c")
    assert [line["event"] for line in lines(path)] == ["a", "c"]


def test_closing_twice_and_writing_nothing_is_fine(path: Path) -> None:
    log = Log(path)
    log.close()
    log.close()
    assert not path.exists()
