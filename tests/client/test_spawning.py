"""The process that is started, and what is said when it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from intercom.client import spawning
from intercom.client.spawning import PACKAGE_ROOT, Starting, command, environment, tail
from intercom.errors import HomeError, StartFailed
from intercom.limits import LOG_TAIL_BYTES, LOG_TAIL_LINES
from intercom.paths import Paths, prepare_home
from tests.support.launching import has_text, is_alive, until

REPORT = """
import os, signal
numbers = sorted(map(int, os.listdir("/proc/self/fd")))[:-1]  # the last one was the listing itself
places = [os.readlink(f"/proc/self/fd/{number}") for number in numbers]
with open(file, "w") as report:
    print(os.getpid(), os.getsid(0), os.getcwd(), *places, file=report)
signal.pause()
"""


def runs(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let every broker that is started be this code."""
    monkeypatch.setattr(spawning, "command", lambda paths: [sys.executable, "-c", code])


@pytest.fixture
def prepared(paths: Paths) -> Paths:
    prepare_home(paths)
    return paths


def test_the_command_line(paths: Paths) -> None:
    assert command(paths) == [sys.executable, "-P", "-m", "intercom", "serve", "--home", str(paths.home)]


def test_the_package_is_found_from_a_checkout(tmp_path: Path) -> None:
    """F17: the broker works in another directory than its starter."""
    env = environment({"PATH": os.environ["PATH"]})
    assert env["PYTHONPATH"] == str(PACKAGE_ROOT)
    found = subprocess.run(
        [sys.executable, "-P", "-c", "import intercom; print(intercom.__file__)"],
        cwd="/",
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == str(PACKAGE_ROOT / "intercom" / "__init__.py")


def test_relative_entries_of_the_path_are_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    entries = environment({"PYTHONPATH": os.pathsep.join(["lib", "", "/abs"])})["PYTHONPATH"].split(os.pathsep)
    assert entries == [str(PACKAGE_ROOT), str(tmp_path / "lib"), "/abs"]


def test_the_package_is_not_named_twice() -> None:
    assert environment({"PYTHONPATH": str(PACKAGE_ROOT)})["PYTHONPATH"] == str(PACKAGE_ROOT)


def test_an_installed_package_needs_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put first, the directory of all packages would hide standard modules."""
    import sysconfig

    monkeypatch.setattr(spawning, "PACKAGE_ROOT", Path(os.path.realpath(sysconfig.get_paths()["purelib"])))
    assert "PYTHONPATH" not in environment({})


def test_an_isolated_interpreter_starts_an_isolated_one() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from intercom.client.spawning import environment; "
        "print(sorted(environment({'PYTHONPATH': '/evil', 'PYTHONHOME': '/evil', 'LANG': 'C'}).items()))"
    )
    isolated = subprocess.run(
        [sys.executable, "-E", "-c", code, str(PACKAGE_ROOT)], capture_output=True, text=True, check=True
    )
    assert isolated.stdout.strip() == str([("LANG", "C"), ("PYTHONPATH", str(PACKAGE_ROOT))])


def test_a_broker_has_nothing_of_its_starter(
    prepared: Paths, monkeypatch: pytest.MonkeyPatch, short_path: Path
) -> None:
    """F14, F15, F17: descriptors, session, directory; and the client is left without a child."""
    file = short_path / "report"
    runs(monkeypatch, f"file = {str(file)!r}\n{REPORT}")
    read, write = os.pipe()
    os.set_inheritable(write, True)
    starting = Starting(prepared, os.environ)
    try:
        until(lambda: has_text(file))
    finally:
        os.close(read)
        os.close(write)
    pid, session, directory, *descriptors = file.read_text().split()
    try:
        assert starting.ended() is None
        starting.let_go()
        assert is_alive(int(pid))
        assert session == pid
        assert os.getsid(0) != int(session)
        assert directory == "/"
        assert descriptors == ["/dev/null", "/dev/null", str(prepared.stderr_log)]
        with pytest.raises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
    finally:
        os.kill(int(pid), signal.SIGKILL)


def test_the_log_is_emptied_and_private(prepared: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 2.2: the spawner truncates broker.log and hands it over as standard error."""
    prepared.stderr_log.write_text("old\n")
    prepared.stderr_log.chmod(0o644)
    runs(monkeypatch, "import sys; sys.stderr.write('new\\n'); raise SystemExit(3)")
    starting = Starting(prepared, os.environ)
    until(lambda: starting.ended() is not None)
    starting.let_go()
    assert prepared.stderr_log.read_text() == "new\n"
    assert prepared.stderr_log.stat().st_mode & 0o777 == 0o600
    error = starting.failure(3)
    assert isinstance(error, StartFailed)
    assert "status 3" in error.reason
    assert error.reason.endswith("new")


def test_a_silent_death_is_told_too(prepared: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    runs(monkeypatch, "raise SystemExit(1)")
    starting = Starting(prepared, os.environ)
    until(lambda: starting.ended() is not None)
    starting.let_go()
    assert starting.failure(1).reason.endswith("without a word")


def test_a_disk_that_is_full_ends_a_broker_mute(prepared: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it wants to say lies on the same disk."""
    runs(monkeypatch, "raise SystemExit(1)")
    starting = Starting(prepared, os.environ)
    until(lambda: starting.ended() is not None)
    starting.let_go()
    real = os.statvfs(prepared.home)
    for field in (4, 7):  # free blocks, free files, of an ordinary user
        full = os.statvfs_result([0 if place == field else value for place, value in enumerate(real)])
        monkeypatch.setattr(os, "statvfs", lambda _path, full=full: full)
        error = starting.failure(1)
        assert error.reason.endswith(f"the disk of {prepared.home} is full")
        assert "Make room" in error.hint


@pytest.mark.parametrize("is_read", [False, True])
def test_a_pipe_in_place_of_the_log_is_no_reason_to_wait(prepared: Paths, is_read: bool) -> None:
    os.mkfifo(prepared.stderr_log)
    reader = os.open(prepared.stderr_log, os.O_RDONLY | os.O_NONBLOCK) if is_read else -1
    try:
        with pytest.raises(HomeError, match=r"broker\.log cannot be written: it is not an ordinary file"):
            Starting(prepared, os.environ)
    finally:
        if is_read:
            os.close(reader)


def test_a_home_that_cannot_be_written(prepared: Paths) -> None:
    prepared.stderr_log.mkdir()
    with pytest.raises(HomeError, match=r"broker\.log"):
        Starting(prepared, os.environ)


def test_no_interpreter(prepared: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(StartFailed):
        Starting(prepared, os.environ)
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(StartFailed, match="No such file"):
        Starting(prepared, os.environ)


def test_the_tail_is_short(tmp_path: Path) -> None:
    """Protocol 7: 8 192 bytes of the log are quoted."""
    log = tmp_path / "broker.log"
    assert tail(log) == ""
    log.write_text("".join(f"line {number}\n\n" for number in range(1000)))
    lines = tail(log).splitlines()
    assert lines == [f"line {number}" for number in range(1000 - LOG_TAIL_LINES, 1000)]
    log.write_bytes(b"\xff" * (2 * LOG_TAIL_BYTES))
    assert tail(log) == "\ufffd" * LOG_TAIL_BYTES
