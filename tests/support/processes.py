"""Run a piece of a test in a process of its own: as another user, or to be killed."""

from __future__ import annotations

import os
import pickle
import posix
import re
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.raw import PATIENCE_S

Result = TypeVar("Result")

OTHER_USER = 65_534
POLL_S = 0.002

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def in_child(function: Callable[[], Result], *, user: int | None = None, umask: int | None = None) -> Result:
    """Return what ``function`` returns in a forked process; its exception becomes an AssertionError."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(receive)
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            if umask is not None:
                os.umask(umask)
            try:
                outcome: tuple[bool, object] = (True, function())
            except BaseException:
                outcome = (False, traceback.format_exc())
            with os.fdopen(send, "wb") as pipe:
                pickle.dump(outcome, pipe)
            status = 0
        finally:
            os._exit(status)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    assert content, "the child ended without a result"
    passed, result = pickle.loads(content)
    assert passed, result
    return result  # type: ignore[no-any-return]


def complaints(written: str | bytes) -> str:
    """Return what was written to standard error, without what says nothing but that the machine is busy.

    That is what asyncio in its debug mode says of each step of a loop that takes long.
    """
    text = written if isinstance(written, str) else written.decode(errors="replace")
    return re.sub(r"^Executing <.*> took \d+\.\d+ seconds\n", "", text, flags=re.MULTILINE)


def was_killed(function: Callable[[], object]) -> bool:
    """Run ``function`` in a forked process; tell whether SIGKILL ended it, and fail when it raised."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            function()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            # Where what is run is counted, os._exit writes it down, by the very calls that the function may have bent.
            posix._exit(status)
    _, waited = os.waitpid(child, 0)
    if os.WIFSIGNALED(waited):
        assert os.WTERMSIG(waited) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(waited) == 0
    return False


def stop(pid: int) -> None:
    """Stop a process that ends or goes on only by another signal; return once none of its threads does anything."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + PATIENCE_S
    while not all(_is_stopped(thread) for thread in Path(f"/proc/{pid}/task").glob("*")):
        assert time.monotonic() < deadline, "it is told to stop and does not"
        time.sleep(POLL_S)


def _is_stopped(thread: Path) -> bool:
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] in "TZX"
    except OSError:  # it has ended
        return True
