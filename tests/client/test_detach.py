"""The helper between a client and the broker it starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from intercom.client import detach
from tests.support.launching import has_text, is_alive, until
from tests.support.processes import in_child

Helper = subprocess.Popen[bytes]
Start = Callable[[str], Helper]

REPORT = "import os, sys; open({file!r}, 'w').write(f'{{os.getpid()}} {{os.getsid(0)}} {{os.getpgrp()}}\\n')"


@pytest.fixture
def start() -> Iterator[Start]:
    """Run Python code through the helper; stop waiting for all of it at the end."""
    helpers: list[Helper] = []

    def run(code: str, *, python: str = sys.executable) -> Helper:
        helper = subprocess.Popen(
            [sys.executable, "-I", "-S", detach.__file__, python, "-c", code],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        helpers.append(helper)
        return helper

    yield run
    for helper in helpers:
        with helper:
            assert helper.stdin is not None
            helper.stdin.close()


def test_the_status_of_the_command_is_handed_on(start: Start) -> None:
    """F1: exit 0 and exit 5 mean different things to a spawner."""
    assert start("raise SystemExit(5)").wait(10) == 5
    assert start("pass").wait(10) == 0


def test_a_signal_is_handed_on_as_a_status(start: Start) -> None:
    assert start("import os; os.kill(os.getpid(), 9)").wait(10) == 128 + 9


def test_a_command_that_cannot_run(start: Callable[..., Helper]) -> None:
    helper = start("pass", python="/nonexistent/python")
    assert helper.wait(10) == detach.CANNOT_RUN
    assert helper.stderr is not None
    assert b"/nonexistent/python cannot be run" in helper.stderr.read()


def test_the_command_lives_on_in_a_session_of_its_own(start: Start, short_path: Path) -> None:
    """F15: own session and process group; F14: standard input is not the starter's."""
    file = short_path / "report"
    code = REPORT.format(file=str(file)) + "; sys.stdin.read(); import signal; signal.pause()"
    helper = start(code)
    until(lambda: has_text(file))
    pid, session, group = map(int, file.read_text().split())
    try:
        assert session == group == pid != helper.pid
        assert helper.poll() is None
        assert helper.stdin is not None
        helper.stdin.close()
        assert helper.wait(10) == 0
        assert is_alive(pid)
        assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    finally:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid))


def test_signals_the_starter_blocks_reach_the_command(start: Start, short_path: Path) -> None:
    file = short_path / "report"
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        start(f"import signal; open({str(file)!r}, 'w').write(f'{{signal.pthread_sigmask(0, [])}}\\n')")
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    until(lambda: has_text(file))
    assert file.read_text() == "set()\n"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Give the two ends of a pipe."""
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


def helped(command: list[str], waiting: int) -> int:
    """Be the helper in a fork, for a starter that waits as long as the other end of a pipe is open."""

    def run() -> int:
        os.dup2(waiting, 0)
        return detach.main(command)

    return in_child(run)


@pytest.mark.parametrize(("code", "status"), [("raise SystemExit(5)", 5), ("import os; os.kill(os.getpid(), 9)", 137)])
def test_the_function_hands_on_how_the_command_ended(pipe: tuple[int, int], code: str, status: int) -> None:
    assert helped([sys.executable, "-S", "-c", code], pipe[0]) == status


def test_the_function_says_that_a_command_cannot_run(pipe: tuple[int, int]) -> None:
    assert helped(["/nonexistent/python"], pipe[0]) == detach.CANNOT_RUN


def test_the_function_ends_with_who_waits(pipe: tuple[int, int]) -> None:
    """F15: the command goes on."""
    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    os.close(pipe[1])
    try:
        code = f"import os; os.read({reading}, 1); raise SystemExit(5)"
        assert helped([sys.executable, "-S", "-c", code], pipe[0]) == 0
    finally:
        os.close(writing)
        os.close(reading)
