"""Test how the process behind a lost connection is judged (A1.4)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from intercom.server.processes import Processes, start_of

BOUND_S = 10
SLEEPER = (sys.executable, "-c", "input()")


class Court:
    """Collect judgements."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.heard: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
        self.processes = Processes(self.loop, lambda ref, is_alive: self.heard.put_nowait((ref, is_alive)))

    def next(self) -> tuple[str, bool]:
        return self.loop.run_until_complete(asyncio.wait_for(self.heard.get(), BOUND_S))


@pytest.fixture
def court() -> Iterator[Court]:
    court = Court()
    yield court
    court.processes.close()
    court.loop.close()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEPER, stdin=subprocess.PIPE) as process:
        yield process


def end(process: subprocess.Popen[bytes]) -> None:
    process.communicate(b"\n", timeout=BOUND_S)


def test_a_living_process_lives_until_it_ends(court: Court, child: subprocess.Popen[bytes]) -> None:
    court.processes.watch("a", child.pid, start_of(child.pid))
    assert court.next() == ("a", True)
    end(child)
    assert court.next() == ("a", False)
    assert court.heard.empty()


def test_a_process_that_ends_at_once_is_never_taken_to_live(court: Court, child: subprocess.Popen[bytes]) -> None:
    court.processes.watch("a", child.pid, start_of(child.pid))
    end(child)
    assert court.next() == ("a", False)


def test_a_process_that_has_ended(court: Court, child: subprocess.Popen[bytes]) -> None:
    end(child)
    court.processes.watch("a", child.pid, None)
    assert court.next() == ("a", False)


def test_another_process_of_the_same_number_is_not_it(court: Court, child: subprocess.Popen[bytes]) -> None:
    started = start_of(child.pid)
    assert started is not None
    court.processes.watch("a", child.pid, started + 1)
    assert court.next() == ("a", False)


def test_one_of_which_only_the_number_is_known(court: Court) -> None:
    court.processes.watch("a", os.getpid(), None)
    assert court.next() == ("a", True)


def test_what_is_forgotten_is_not_judged(court: Court, child: subprocess.Popen[bytes]) -> None:
    court.processes.watch("a", child.pid, None)
    court.processes.forget("a")
    court.processes.forget("a")
    court.processes.watch("b", child.pid, None)
    assert court.next() == ("b", True)
    assert court.heard.empty()


def test_a_start_is_told_for_living_processes_only(child: subprocess.Popen[bytes]) -> None:
    assert start_of(child.pid) == start_of(child.pid) is not None
    assert start_of(2**22 + 1) is None


def held() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_all_sessions_of_one_process_share_a_descriptor(court: Court, child: subprocess.Popen[bytes]) -> None:
    """FE A1.4: who opens and drops connections for ever takes no descriptor from anybody else."""
    started, before = start_of(child.pid), held()
    refs = [f"s{number}" for number in range(50)]
    for ref in refs:
        court.processes.watch(ref, child.pid, started)
    assert held() <= before + 1
    assert sorted(court.next() for _ in refs) == sorted((ref, True) for ref in refs)
    court.processes.forget("s0")
    end(child)
    assert sorted(court.next() for _ in refs[1:]) == sorted((ref, False) for ref in refs[1:])
    assert held() == before - 1  # the input of the child was closed as well
    assert court.heard.empty()


def test_the_last_one_forgotten_gives_the_descriptor_back(court: Court, child: subprocess.Popen[bytes]) -> None:
    before = held()
    for ref in ("a", "b"):
        court.processes.watch(ref, child.pid, None)
    court.processes.forget("a")
    assert held() == before + 1
    court.processes.forget("b")
    assert held() == before
