"""Test that appends are committed in groups and in order, in whose thread, and what a failure does to the rest."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from intercom.core.records import Change, SaveOperation
from intercom.limits import APPEND_US, INLINE_SYNC_US, LONG_SYNC_SAMPLES, LONG_SYNC_US, SYNC_SAMPLES
from intercom.store.database import Store
from intercom.store.failures import CommitFailed
from intercom.store.writer import Committed, Failed, Writer
from tests.support.records import operation

Batch: TypeAlias = list[tuple[int, tuple[Change, ...]]]

PATIENCE_S = 20.0
"""Bound of every wait; never reached when the code is right."""
SLOW_US = INLINE_SYNC_US + 100 * APPEND_US
"""Slow whatever a handful of appends adds."""
FAST_US = INLINE_SYNC_US - 1


class Disk:
    """Stand in for the store: note batches and threads, answer with a duration or a failure, wait when told to."""

    def __init__(self) -> None:
        self.sync_us = FAST_US
        self.batches: list[list[int]] = []
        self.threads: list[threading.Thread] = []
        self.failure: CommitFailed | None = None
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()

    def commit(self, batch: Batch) -> int:
        self.batches.append([ticket for ticket, _ in batch])
        self.threads.append(threading.current_thread())
        self.entered.release()
        assert self.gate.wait(PATIENCE_S)
        if self.failure is not None:
            raise self.failure
        return self.sync_us

    def wait_entered(self) -> None:
        assert self.entered.acquire(timeout=PATIENCE_S)


class Notices:
    """Count the calls of ``notify``."""

    def __init__(self) -> None:
        self.semaphore = threading.Semaphore(0)

    def __call__(self) -> None:
        self.semaphore.release()

    def wait(self) -> None:
        assert self.semaphore.acquire(timeout=PATIENCE_S)

    def none_left(self) -> bool:
        return not self.semaphore.acquire(blocking=False)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def notices() -> Notices:
    return Notices()


@pytest.fixture
def writer(disk: Disk, notices: Notices) -> Iterator[Writer]:
    writer = Writer(disk, notices)  # type: ignore[arg-type]
    yield writer
    disk.gate.set()
    assert writer.close(PATIENCE_S)


def submit(writer: Writer, *tickets: int) -> None:
    for ticket in tickets:
        writer.submit(ticket, (SaveOperation(operation(ticket)),))


def make_slow(writer: Writer, disk: Disk) -> None:
    """Let the writer see one slow sync, so that it goes over to its worker."""
    disk.sync_us = SLOW_US
    submit(writer, 1)
    writer.kick()
    assert writer.outcomes() == [Committed(1)]
    disk.wait_entered()


# --- a fast disk ----------------------------------------------------------------------------------------


def test_all_that_is_queued_is_one_commit(writer: Writer, disk: Disk, notices: Notices) -> None:
    """Design section 5: group commit."""
    submit(writer, 1, 2, 5)
    assert disk.batches == []
    writer.kick()
    assert disk.batches == [[1, 2, 5]]
    assert disk.threads == [threading.current_thread()]
    assert writer.outcomes() == [Committed(5)]
    assert writer.outcomes() == []
    assert notices.none_left()


def test_nothing_queued_is_no_commit(writer: Writer, disk: Disk) -> None:
    writer.kick()
    assert disk.batches == []
    assert writer.outcomes() == []


def test_outcomes_wait_until_they_are_taken(writer: Writer) -> None:
    for ticket in (1, 2):
        submit(writer, ticket)
        writer.kick()
    assert writer.outcomes() == [Committed(1), Committed(2)]


def test_median_decides_whose_thread_commits(writer: Writer, disk: Disk, notices: Notices) -> None:
    """Design section 5: the loop itself while the median of the last 64 syncs is under 0.3 ms."""
    ticket = 0

    def commit(sync_us: int) -> threading.Thread:
        nonlocal ticket
        ticket += 1
        disk.sync_us = sync_us
        submit(writer, ticket)
        writer.kick()
        disk.wait_entered()
        if disk.threads[-1] is not here:
            notices.wait()
        assert writer.outcomes() == [Committed(ticket)]
        return disk.threads[-1]

    here = threading.current_thread()
    for _ in range(SYNC_SAMPLES):
        assert commit(FAST_US) is here
    for _ in range(SYNC_SAMPLES // 2):
        assert commit(SLOW_US) is here
    for _ in range(SYNC_SAMPLES // 2 + 1):
        assert commit(FAST_US if ticket % 2 else SLOW_US) is not here
    worker = commit(SLOW_US)
    assert worker is not here
    assert worker.daemon
    while commit(FAST_US) is not here:
        assert ticket < 4 * SYNC_SAMPLES


# --- a slow disk ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("opening_us", "is_waited_for"), [(LONG_SYNC_US - 1, True), (LONG_SYNC_US, False)])
def test_the_opening_tells_of_the_disk_before_the_first_commit(
    disk: Disk, notices: Notices, opening_us: int, is_waited_for: bool
) -> None:
    writer = Writer(disk, notices, opening_us)  # type: ignore[arg-type]
    submit(writer, 1)
    writer.kick()
    disk.wait_entered()
    assert (disk.threads == [threading.current_thread()]) == is_waited_for
    if not is_waited_for:
        notices.wait()
    assert writer.outcomes() == [Committed(1)]
    assert writer.close(PATIENCE_S)


def test_a_disk_that_becomes_slow_holds_the_caller_up_twice_at_most(
    writer: Writer, disk: Disk, notices: Notices
) -> None:
    """One long sync is a checkpoint; the second of a few is the last that is waited for."""
    here = threading.current_thread()
    times = [FAST_US] * SYNC_SAMPLES
    times += [LONG_SYNC_US, *[FAST_US] * (LONG_SYNC_SAMPLES - 1), LONG_SYNC_US, FAST_US, LONG_SYNC_US]
    for ticket, disk.sync_us in enumerate(times):
        submit(writer, ticket)
        writer.kick()
    assert set(disk.threads) == {here}
    disk.sync_us = FAST_US
    for _ in range(SYNC_SAMPLES // 2 + 1):
        submit(writer, len(disk.batches))
        writer.kick()
        notices.wait()
        assert disk.threads[-1] is not here
    submit(writer, len(disk.batches))
    writer.kick()
    assert disk.threads[-1] is here


def test_slow_disk_does_not_hold_up_the_caller(writer: Writer, disk: Disk, notices: Notices) -> None:
    make_slow(writer, disk)
    disk.gate.clear()
    submit(writer, 2)
    writer.kick()
    disk.wait_entered()
    submit(writer, 3, 4)
    writer.kick()
    submit(writer, 5)
    writer.kick()
    assert disk.batches[1:] == [[2]]
    assert writer.outcomes() == []
    disk.gate.set()
    notices.wait()
    notices.wait()
    assert disk.batches[1:] == [[2], [3, 4, 5]]
    assert writer.outcomes() == [Committed(2), Committed(5)]
    assert len(set(disk.threads[1:])) == 1


def test_worker_waits_for_the_kick(writer: Writer, disk: Disk, notices: Notices) -> None:
    make_slow(writer, disk)
    submit(writer, 2)
    writer.kick()
    notices.wait()
    submit(writer, 3)
    assert disk.batches == [[1], [2]]
    writer.kick()
    notices.wait()
    assert disk.batches == [[1], [2], [3]]


def test_commit_without_a_sync_says_nothing_of_the_disk(writer: Writer, disk: Disk, notices: Notices) -> None:
    make_slow(writer, disk)
    disk.sync_us = 0
    for ticket in (2, 3):
        submit(writer, ticket)
        writer.kick()
        notices.wait()
        assert disk.threads[-1] is not threading.current_thread()


# --- failures -------------------------------------------------------------------------------------------


def test_failure_drops_everything_until_resumed(writer: Writer, disk: Disk, notices: Notices) -> None:
    """Design section 3.6: the writer stops and commits nothing queued behind the failed commit."""
    make_slow(writer, disk)
    disk.failure = CommitFailed("full", final=False)
    disk.gate.clear()
    submit(writer, 2, 3)
    writer.kick()
    disk.wait_entered()
    submit(writer, 4)
    writer.kick()
    disk.gate.set()
    notices.wait()
    submit(writer, 5)
    writer.kick()
    assert writer.outcomes() == [Failed(2, "full", False)]
    disk.failure = None
    writer.resume()
    submit(writer, 6)
    writer.kick()
    notices.wait()
    assert writer.outcomes() == [Committed(6)]
    assert disk.batches == [[1], [2, 3], [6]]


def test_failure_on_a_fast_disk_is_known_at_once(writer: Writer, disk: Disk, notices: Notices) -> None:
    disk.failure = CommitFailed("gone", final=True)
    submit(writer, 1, 2)
    writer.kick()
    submit(writer, 3)
    writer.kick()
    assert writer.outcomes() == [Failed(1, "gone", True)]
    assert disk.batches == [[1, 2]]


def test_commits_after_a_failure_are_the_workers(writer: Writer, disk: Disk, notices: Notices) -> None:
    disk.failure = CommitFailed("full", final=False)
    submit(writer, 1)
    writer.kick()
    assert writer.outcomes() == [Failed(1, "full", False)]
    writer.resume()
    disk.failure = None
    submit(writer, 2)
    writer.kick()
    notices.wait()
    assert writer.outcomes() == [Committed(2)]
    assert disk.threads[1] is not threading.current_thread()


# --- the end --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", [False, True])
def test_close_commits_what_is_queued(writer: Writer, disk: Disk, slow: bool) -> None:
    """Design section 5, stop: let the writer finish what it has."""
    if slow:
        make_slow(writer, disk)
    submit(writer, 2, 3)
    assert writer.close(PATIENCE_S)
    assert writer.outcomes() == [Committed(3)]
    with pytest.raises(RuntimeError, match="closed"):
        submit(writer, 4)
    assert writer.close(PATIENCE_S)


def test_close_finishes_what_queued_behind_a_running_commit(writer: Writer, disk: Disk, notices: Notices) -> None:
    make_slow(writer, disk)
    disk.gate.clear()
    submit(writer, 2)
    writer.kick()
    disk.wait_entered()
    submit(writer, 3)
    disk.gate.set()
    assert writer.close(PATIENCE_S)
    assert writer.outcomes() == [Committed(2), Committed(3)]


def test_close_of_an_idle_writer_starts_no_thread(writer: Writer) -> None:
    before = threading.active_count()
    assert writer.close(0)
    assert threading.active_count() == before


@pytest.mark.parametrize("slow", [False, True])
def test_close_does_not_wait_for_a_disk_that_hangs(writer: Writer, disk: Disk, notices: Notices, slow: bool) -> None:
    if slow:
        make_slow(writer, disk)
    disk.gate.clear()
    submit(writer, 2)
    assert not writer.close(0.01)
    assert writer.outcomes() == []
    disk.gate.set()
    assert writer.close(PATIENCE_S)
    assert writer.outcomes() == [Committed(2)]
    assert notices.none_left()


def test_close_after_a_failure_commits_nothing(writer: Writer, disk: Disk) -> None:
    disk.failure = CommitFailed("gone", final=True)
    submit(writer, 1)
    writer.kick()
    submit(writer, 2)
    assert writer.close(PATIENCE_S)
    assert writer.outcomes() == [Failed(1, "gone", True)]


# --- with a real store ----------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", [False, True])
def test_committed_appends_are_found_by_the_next_start(
    open_store: Callable[..., Store], notices: Notices, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if slow:
        monkeypatch.setattr("intercom.store.writer.INLINE_SYNC_US", 0)
    store = open_store()
    writer = Writer(store, notices)
    last = 0
    while last < 50:
        submit(writer, last + 1, last + 2)
        writer.kick()
        outcomes = writer.outcomes()
        while not outcomes:
            notices.wait()
            outcomes = writer.outcomes()
        last += 2
        assert outcomes == [Committed(last)]
    assert writer.close(PATIENCE_S)
    store.close()
    assert [record.number for record in open_store().recovered.operations] == list(range(1, last + 1))
