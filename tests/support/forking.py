"""Start brokers and adapters as forks of the test process: an interpreter of their own takes ten times as long.

A fork has a session of its own, its own standard streams and environment, and no other descriptor of the test.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from pathlib import Path
from typing import IO, Any

from intercom import __main__, limits
from intercom.cli import main  # noqa: F401 - what a fork needs is to be there before it
from intercom.paths import Paths, open_private_file, prepare_home
from intercom.server import app, serving  # noqa: F401 - as above

_DEFAULT = (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
MEASURED = ("COVERAGE_PROCESS_START", "COVERAGE_FILE")
"""Variables that are set where what is run is counted."""
LAST_WORDS_S = 3.0
"""How long a process may take to write down what it ran, where that is counted."""


class Child:
    """Hold a fork, with what is used of ``subprocess.Popen``.

    Args:
        pid: its process id; it is a child of this process that nobody else waits for.
        stdin: what it reads, if that is ours.
        stdout: what it writes, if that is read.
        stderr: what it writes to standard error.
    """

    def __init__(self, pid: int, *, stdin: int | None = None, stdout: int | None = None, stderr: int) -> None:
        self.pid = pid
        self.stdin: IO[bytes] | None = None if stdin is None else open(stdin, "wb", buffering=0)  # noqa: SIM115
        self.stdout: IO[bytes] | None = None if stdout is None else open(stdout, "rb", buffering=0)  # noqa: SIM115
        self.stderr: IO[bytes] | None = open(stderr, "rb")  # noqa: SIM115 - whoever has the child closes them
        self.returncode: int | None = None
        self._handle = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return the exit status if it has ended."""
        if self.returncode is None and select.select([self._handle], [], [], 0)[0]:
            self._reap()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status once it has ended."""
        if self.returncode is None:
            if not select.select([self._handle], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a fork", timeout or 0)
            self._reap()
        assert self.returncode is not None
        return self.returncode

    def _reap(self) -> None:
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._handle)

    def send_signal(self, number: int) -> None:
        """Send it a signal unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to stop."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Let go of its streams."""
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()


def end(process: subprocess.Popen[bytes] | Child) -> None:
    """End a process that a test has done with, if it still runs.

    One that is killed takes with it what it ran: where that is counted it is asked first.
    """
    if process.poll() is None:
        if MEASURED[0] in os.environ:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(LAST_WORDS_S)
        process.kill()
        process.wait()


def serving_child(home: Path, environ: Mapping[str, str], fault: str = "") -> Child:
    """Start a broker.

    ``fault`` is Python code that is run in it before it serves; it finds ``os``, ``sys``, ``time``, ``Path`` and
    ``limits``, and everything that a broker imports at its start is imported already.
    """
    reading, writing = os.pipe()
    nothing = os.open(os.devnull, os.O_RDWR)
    pid = _fork(lambda: _serve(home, fault), environ, (nothing, nothing, writing))
    for ours in (nothing, writing):
        os.close(ours)
    return Child(pid, stderr=reading)


def command_child(arguments: Sequence[str], environ: Mapping[str, str], cwd: Path, fault: str = "") -> Child:
    """Start a command whose standard streams are pipes; ``fault`` is run in it before, as in a broker."""
    pipes = [os.pipe() for _ in range(3)]
    theirs = (pipes[0][0], pipes[1][1], pipes[2][1])

    def run() -> int:
        os.chdir(cwd)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["intercom", *arguments]
        _execute(fault)
        __main__.run()

    pid = _fork(run, environ, theirs)
    for each in theirs:
        os.close(each)
    return Child(pid, stdin=pipes[0][1], stdout=pipes[1][0], stderr=pipes[2][0])


def forked_broker(home: Path, environ: Mapping[str, str]) -> int:
    """Start a broker as a client would: its standard error goes to the log of its home; return its process id."""
    paths = Paths(home.resolve())
    prepare_home(paths)
    nothing = os.open(os.devnull, os.O_RDWR)
    log = open_private_file(paths.stderr_log, os.O_WRONLY | os.O_TRUNC | os.O_APPEND)
    try:
        return _fork(lambda: _serve(home, ""), environ, (nothing, nothing, log))
    finally:
        os.close(log)
        os.close(nothing)


def _serve(home: Path, fault: str) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _execute(fault)
    return app.main(Paths(home.resolve()).home)


def _execute(fault: str) -> None:
    names: dict[str, Any] = {"os": os, "sys": sys, "time": time, "Path": Path, "limits": limits}
    exec(compile(fault, "fault", "exec"), names)


def _fork(work: Callable[[], int], environ: Mapping[str, str], streams: tuple[int, int, int]) -> int:
    """Do work in a fork and let it end with the status that is returned."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.setsid()
        logging.getLogger().handlers.clear()  # they write to descriptors that are somebody else's soon
        for number, stream in enumerate([os.dup(stream) for stream in streams]):
            os.dup2(stream, number)
        os.closerange(3, max(map(int, os.listdir("/proc/self/fd"))) + 1)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
        signal.set_wakeup_fd(-1)
        for number in _DEFAULT:
            signal.signal(number, signal.SIG_DFL)
        os.environ.clear()
        os.environ.update(environ)
        sniffio = sys.modules.get("sniffio")
        if sniffio is not None:
            sniffio.thread_local.name = None  # the fork of a task is none
        status = Context().run(work)
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)
