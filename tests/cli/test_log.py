from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.support.commands import Shell


def write(path: Path, *entries: object) -> None:
    """Append lines to a log: objects as the broker writes them, text as it is."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with path.open("a") as file:
        for entry in entries:
            file.write((entry if isinstance(entry, str) else json.dumps(entry)) + "\n")


def line(number: int, **more: object) -> dict[str, object]:
    return {"time": "2026-01-02T03:04:05.678+00:00", "pid": 7, "event": f"e{number}", **more}


def test_the_last_lines_for_a_person(shell: Shell) -> None:
    write(shell.home / "intercom.log", *(line(number) for number in range(30)))
    write(shell.home / "intercom.log", line(30, level="error", reason="a\x1b[2J b", code=5))
    result = shell.run("log", env={"TZ": "UTC"})
    assert (result.status, result.errors) == (0, "")
    lines = result.text.splitlines()
    assert len(lines) == 20
    assert lines[0] == "2026-01-02 03:04:05 [7] e11"
    assert lines[-1] == "2026-01-02 03:04:05 [7] ERROR e30 reason=a\\x1b[2J b code=5"


def test_documents_hold_what_was_written(shell: Shell) -> None:
    write(shell.home / "intercom.log", line(1), "not json", "[1]", line(2, reason="é"))
    result = shell.run("log", "--json", "--lines", "3")
    assert result.documents == [
        {"ok": True, "text": "not json"},
        {"ok": True, "text": "[1]"},
        {"ok": True, "entry": line(2, reason="é")},
    ]


def test_lines_that_were_put_aside_are_shown_as_far_as_they_are_wanted(shell: Shell) -> None:
    write(shell.home / "intercom.log", line(5))
    write(shell.home / "intercom.log.1", line(3), line(4))
    write(shell.home / "intercom.log.2", line(1), line(2))
    for wanted, first in ((1, 5), (2, 4), (4, 2), (20, 1)):
        events = [
            document["entry"]["event"] for document in shell.run("log", "--json", "--lines", str(wanted)).documents
        ]
        assert events == [f"e{number}" for number in range(first, 6)]


def test_it_is_followed_into_the_next_file(shell: Shell) -> None:
    path = shell.home / "intercom.log"
    write(path, line(1))
    following = shell.start("log", "--follow", "--json")
    assert "e1" in following.line()
    write(path, line(2))
    assert "e2" in following.line()
    with path.open("a") as file:
        file.write('{"event": "ha')
    path.rename(path.with_name("intercom.log.1"))
    with path.with_name("intercom.log.1").open("a") as file:
        file.write('lf"}\n')
    write(path, line(3))
    assert "half" in following.line()
    assert "e3" in following.line()
    following.signal(signal.SIGINT)
    ended = following.finish()
    assert ended.status == 130
    assert json.loads(ended.out)["code"] == "interrupted"


def test_following_ends_with_its_time(shell: Shell) -> None:
    write(shell.home / "intercom.log", line(1))
    result = shell.run("log", "--follow", "--timeout", "0.3", "--json")
    assert (result.status, len(result.documents)) == (0, 1)


def test_a_real_log(shell: Shell) -> None:
    shell.serve()
    pid = shell.broker_pid()
    entries = [document["entry"] for document in shell.run("log", "--json").documents]
    assert (entries[-1]["event"], entries[-1]["pid"]) == ("started", pid)
    assert f"[{pid}] started version=" in shell.run("log").text


def test_there_is_none(shell: Shell) -> None:
    """F130: looking makes nothing."""
    result = shell.run("log", "--json")
    assert (result.status, result.document["code"]) == (3, "no_log")
    assert not shell.home.exists()


@pytest.mark.parametrize("wrong", ["0", "-1", "x", "1000000", ""])
def test_a_number_must_be_one(shell: Shell, wrong: str) -> None:
    result = shell.run("log", f"--lines={wrong}", "--json")
    assert (result.status, result.document["code"]) == (2, "usage")
