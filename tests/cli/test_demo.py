from __future__ import annotations

import errno
import subprocess
import tempfile
from pathlib import Path

import pytest

from intercom.cli.demo import FILES, LARGEST, LINES, count
from tests.cli.test_conditions import as_other_user
from tests.support.commands import Shell
from tests.support.processes import needs_root


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Give a directory with awkward names and things that do not count."""
    place = tmp_path / "a directory"
    place.mkdir()
    (place / "two\nlines").write_text("one\ntwo\n")
    (place / "-n").write_text("no line break")
    (place / "sub").mkdir()
    (place / "sub" / "caf\udce9").write_bytes(b"x\n" * 500)
    (place / "sub" / ".hidden").write_text("1\n2\n")
    (place / "sub" / "link").symlink_to(place / "-n")
    (place / "__pycache__").mkdir()
    (place / "__pycache__" / "x.pyc").write_bytes(b"\n" * 5_000)
    return place


def test_every_question_is_answered_once_although_the_broker_is_killed(shell: Shell, directory: Path) -> None:
    """The main job, from outside: two real processes, real commands, a real SIGKILL."""
    result = shell.run("demo", "--", bytes(directory))
    assert (result.status, result.errors) == (0, "")
    lines = result.text.splitlines()
    assert [line.removeprefix("worker: answers: ") for line in lines if line.startswith("worker: answers")] == [
        "3",
        "502",
        "1000",
    ]
    assert sum(line.startswith("--- broker ") for line in lines) == 2
    assert lines[-1].startswith("checked: 3 questions, each handled once by the worker and answered once")


def test_the_document(shell: Shell, directory: Path) -> None:
    result = shell.run("demo", str(directory), "--json")
    document = result.document
    assert (result.status, document["ok"]) == (0, True)
    assert document["answers"] == {FILES: "3", LINES: "502", LARGEST: "1000"}
    assert document["killedBroker"] != document["newBroker"]


def test_the_independent_count(directory: Path) -> None:
    assert count(directory) == {FILES: 3, LINES: 502, LARGEST: 1_000}


def test_it_leaves_nothing_behind(shell: Shell, directory: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "t"
    temporary.mkdir()
    result = shell.run("demo", str(directory), env={"TMPDIR": str(temporary)})
    assert result.status == 0
    assert list(temporary.iterdir()) == []
    assert not shell.home.exists()
    found = subprocess.run(["ps", "-A", "-o", "args="], capture_output=True, text=True, check=True)
    assert str(temporary) not in found.stdout


def test_a_directory_that_is_none(shell: Shell) -> None:
    result = shell.run("demo", "/dev/null", "--json")
    assert (result.status, result.document["code"]) == (2, "usage")


@needs_root
def test_without_permission(shell: Shell, short_path: Path) -> None:
    """F27: 7 with the reason, and nothing was started; the system says no, and the command says what to change."""
    short_path.chmod(0o755)
    (short_path / "closed").mkdir(mode=0o700)
    (short_path / "listed").mkdir(mode=0o754)
    for name in ("closed", "closed/below", "listed"):
        result = as_other_user(shell, "demo", str(short_path / name), "--json")
        assert (result.status, result.document["code"]) == (7, "denied"), name
        assert "may not look into" in result.document["reason"]


def test_no_place_for_its_files(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*arguments: object, **options: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "mkdtemp", none)
    result = shell.run("demo", str(shell.cwd), "--json")
    assert (result.status, result.document["code"]) == (7, "denied")
    assert "TMPDIR" in result.document["hint"]
