"""Test that a commit is all or nothing, that it survives a crash, and what a failed one leaves behind."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intercom.core.records import (
    Change,
    DropOperation,
    DropRetiredId,
    OperationRecord,
    OperationState,
    Recovered,
    RetiredIdRecord,
    SaveOperation,
    SaveRetiredId,
)
from intercom.paths import Paths
from intercom.store import database
from intercom.store.database import CommitFailed, Store, StoreUnusable
from tests.support import records
from tests.support.processes import needs_root, was_killed
from tests.support.records import NOW, operation

Open = Callable[..., Store]


def ids(store: Store) -> list[str]:
    return [record.message_id for record in store.recovered.operations]


def save(*numbers: int) -> tuple[Change, ...]:
    return tuple(SaveOperation(operation(number)) for number in numbers)


# --- what is stored -------------------------------------------------------------------------------------


def test_settings_of_the_file(open_store: Open) -> None:
    """Design section 5: WAL, synchronous=FULL, secure_delete on."""
    connection = open_store()._connection
    values = {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")}
    assert values == {"journal_mode": "wal", "synchronous": 2}
    assert connection.execute("PRAGMA secure_delete").fetchone() == (1,)


def test_later_change_of_a_row_wins(open_store: Open) -> None:
    store = open_store()
    accepted = operation(2, state=OperationState.ACCEPTED, accepted_at=NOW)
    store.commit(
        [
            (1, save(1, 2, 3)),
            (2, (DropOperation(1), SaveOperation(accepted), DropOperation(4))),
            (5, (DropOperation(3), *save(3))),
        ]
    )
    store.close()
    assert open_store().recovered.operations == [accepted, operation(3)]


def test_row_is_written_once_in_a_batch(open_store: Open) -> None:
    store = open_store()
    accepted = SaveOperation(operation(1, state=OperationState.ACCEPTED, accepted_at=NOW))
    before = store._connection.total_changes
    store.commit([(1, save(1)), (2, (accepted,))])
    assert store._connection.total_changes - before == 1


def test_nothing_to_write_is_no_transaction(open_store: Open) -> None:
    asked: list[None] = []
    store = open_store(before_commit=lambda: asked.append(None))
    assert store.commit([]) == 0
    assert store.commit([(1, ())]) == 0
    assert asked == []
    store.commit([(2, save(1))])
    assert asked == [None]


def test_the_first_commit_says_nothing_of_the_disk(open_store: Open) -> None:
    """It also puts on disk what the start wrote; a writer that took its time for the disk's would leave the loop."""
    store = open_store()
    assert store.commit([(1, save(1))]) == 0
    assert store.commit([(2, save(2))]) > 0
    assert store.commit([]) == 0


changes = st.one_of(
    st.builds(SaveOperation, records.operations),
    st.builds(DropOperation, st.integers(0, 5)),
    st.builds(SaveRetiredId, st.builds(RetiredIdRecord, st.sampled_from("abc"), st.none(), st.integers(0, 5))),
    st.builds(DropRetiredId, st.sampled_from("abc")),
)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.lists(
            st.one_of(
                st.builds(
                    lambda number, text: SaveOperation(operation(number, text)), st.integers(0, 5), records.texts
                ),
                changes,
            ),
            max_size=5,
        ).map(tuple),
        max_size=5,
    )
)
def test_batch_leaves_what_its_changes_leave_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, batch: Sequence[tuple[Change, ...]]
) -> None:
    def outcome(parts: Sequence[Sequence[tuple[int, tuple[Change, ...]]]]) -> list[tuple[Any, ...]]:
        paths = Paths(tmp_path_factory.mktemp("home"))
        store = Store.open(paths, NOW)
        for part in parts:
            store.commit(part)
        tables = ("operations", "retired_ids")
        found = [row for table in tables for row in store._connection.execute(f"SELECT * FROM {table} ORDER BY 1")]
        store.close()
        shutil.rmtree(paths.home)
        return found

    together = [[(ticket, appended) for ticket, appended in enumerate(batch)]]
    one_by_one = [[(0, (change,))] for appended in batch for change in appended]
    assert outcome(together) == outcome(one_by_one)


# --- crashes --------------------------------------------------------------------------------------------


def test_killed_between_commits_loses_none(paths: Paths) -> None:
    """Protocol 6.9.2: written durably."""

    def commit_two() -> None:
        store = Store.open(paths, NOW)
        store.commit([(1, save(1))])
        store.commit([(2, save(2))])
        os.kill(os.getpid(), signal.SIGKILL)

    assert was_killed(commit_two)
    store = Store.open(paths, NOW)
    assert ids(store) == ["message-1", "message-2"]
    assert store.epoch == 2
    store.close()


def test_killed_within_a_commit_leaves_nothing_of_it(paths: Paths) -> None:
    def commit_half() -> None:
        store = Store.open(paths, NOW)
        store.commit([(1, save(1))])
        store.before_commit = lambda: os.kill(os.getpid(), signal.SIGKILL)
        store.commit([(2, (*save(2, 3), DropOperation(1)))])

    assert was_killed(commit_half)
    store = Store.open(paths, NOW)
    assert ids(store) == ["message-1"]
    store.close()


def test_killed_at_any_moment_keeps_every_reported_commit(paths: Paths) -> None:
    reported, report = os.pipe()

    def commit_until_killed() -> None:
        store = Store.open(paths, NOW)
        for number in range(1, 100_000):
            store.commit([(number, save(number))])
            os.write(report, b".")

    for round_, enough in enumerate((1, 30, 150), 1):
        shutil.rmtree(paths.home)
        paths.home.mkdir()
        child = os.fork()
        if child == 0:
            try:
                commit_until_killed()
            finally:
                os._exit(1)
        seen = 0
        while seen < enough:
            seen += len(os.read(reported, 4_096))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), round_
        os.set_blocking(reported, False)
        with contextlib.suppress(BlockingIOError):
            seen += len(os.read(reported, 65_536))
        os.set_blocking(reported, True)
        store = Store.open(paths, NOW)
        found = [record.number for record in store.recovered.operations]
        assert found == list(range(1, len(found) + 1))
        assert seen <= len(found) <= seen + 1
        store.close()
    os.close(reported)
    os.close(report)


@pytest.mark.parametrize("size", [0, 1_000_000])
def test_torn_log_ends_at_a_commit(tmp_path: Path, size: int) -> None:
    """Features A3.14 as corrected in design section 7: a torn write-ahead log is SQLite's.

    What follows the tear is nothing, or what the log was extended with.
    """
    whole, torn = Paths(tmp_path / "whole"), Paths(tmp_path / "torn")
    whole.home.mkdir()
    store = Store.open(whole, NOW)
    for ticket in range(1, 6):
        store.commit([(ticket, save(2 * ticket - 1, 2 * ticket))])
    log = whole.home.joinpath("intercom.db-wal").read_bytes()
    written = len(log.rstrip(b"\0"))
    counts = []
    for length in [*range(0, written, 512), written, len(log)]:
        torn.home.mkdir()
        for path in (whole.database, whole.key):
            shutil.copy(path, torn.home)
        torn.home.joinpath("intercom.db-wal").write_bytes(log[:length].ljust(size, b"\0"))
        reopened = Store.open(torn, NOW)
        counts.append(len(ids(reopened)))
        reopened.close()
        shutil.rmtree(torn.home)
    store.close()
    assert counts == sorted(counts)
    assert set(counts) == {0, 2, 4, 6, 8, 10}


# --- failing commits ------------------------------------------------------------------------------------


def sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("injected")
    error.sqlite_errorcode = code
    error.sqlite_errorname = "SQLITE_INJECTED"
    return error


PASSING = [
    sqlite_error(sqlite3.SQLITE_FULL),
    sqlite_error(sqlite3.SQLITE_READONLY),
    sqlite_error(sqlite3.SQLITE_BUSY),
    OSError(errno.ENOSPC, "injected"),
    OSError(errno.EDQUOT, "injected"),
    OSError(errno.EROFS, "injected"),
]
FINAL = [
    sqlite_error(sqlite3.SQLITE_IOERR_FSYNC),
    sqlite_error(sqlite3.SQLITE_IOERR_WRITE),
    sqlite_error(sqlite3.SQLITE_IOERR),
    sqlite_error(sqlite3.SQLITE_CORRUPT),
    sqlite_error(sqlite3.SQLITE_NOTADB),
    OSError(errno.EIO, "injected"),
]


def failing(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_passing_failure_undoes_the_batch_and_goes_on(open_store: Open, error: Exception) -> None:
    """F102, design section 3.6: a full disk is tried again with the next append."""
    store = open_store()
    store.commit([(1, save(1))])
    store.before_commit = failing(error)
    for _ in range(2):
        with pytest.raises(CommitFailed) as caught:
            store.commit([(2, (*save(2), DropOperation(1)))])
        assert not caught.value.final
    store.before_commit = None
    store.commit([(3, save(3))])
    store.close()
    assert ids(open_store()) == ["message-1", "message-3"]


@pytest.mark.parametrize("error", FINAL, ids=repr)
def test_final_failure_closes_the_store_for_good(open_store: Open, error: Exception) -> None:
    """Design section 3.6: a failed sync or a damaged file."""
    store = open_store()
    store.commit([(1, save(1))])
    store.before_commit = failing(error)
    with pytest.raises(CommitFailed) as caught:
        store.commit([(2, save(2))])
    assert caught.value.final
    store.before_commit = None
    with pytest.raises(CommitFailed) as again:
        store.commit([(3, save(3))])
    assert (again.value.reason, again.value.final) == (caught.value.reason, True)
    store.close()
    assert ids(open_store()) == ["message-1"]


@pytest.mark.parametrize("value", ["\ud800", 2**63, object()])
def test_value_that_cannot_be_stored_fails_its_batch_only(open_store: Open, value: Any) -> None:
    store = open_store()
    broken = OperationRecord(1, "a", OperationState.RESERVED, bytes(32), "s", value, "s", None, NOW)
    with pytest.raises(CommitFailed, match="a value could not be stored") as caught:
        store.commit([(1, save(5)), (2, (SaveOperation(broken),))])
    assert not caught.value.final
    store.commit([(3, save(2))])
    store.close()
    assert ids(open_store()) == ["message-2"]


def test_interrupt_leaves_no_transaction_open(open_store: Open) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    store = open_store(before_commit=interrupt)
    with pytest.raises(KeyboardInterrupt):
        store.commit([(1, save(1))])
    store.before_commit = None
    store.commit([(2, save(2))])
    store.close()
    assert ids(open_store()) == ["message-2"]


def test_transaction_that_cannot_be_undone_is_final(open_store: Open) -> None:
    store = open_store()

    def lose_the_connection() -> None:
        store._connection.close()
        raise sqlite_error(sqlite3.SQLITE_FULL)

    store.before_commit = lose_the_connection
    with pytest.raises(CommitFailed) as caught:
        store.commit([(1, save(1))])
    assert caught.value.final


def test_database_that_reached_its_size_is_full_until_it_shrinks(open_store: Open) -> None:
    """F102, with SQLite's own error."""
    store = open_store()
    (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(CommitFailed) as caught:
        store.commit([(1, save(*range(1, 200)))])
    assert (caught.value.reason, caught.value.final) == ("the disk is full", False)
    store._connection.execute("PRAGMA max_page_count = 100000")
    store.commit([(2, save(1))])
    store.close()
    assert ids(open_store()) == ["message-1"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a file system of 1 MiB."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(tmp_path)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("this system does not let the tests mount a file system")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


@needs_root
def test_full_disk_passes_when_there_is_room_again(small_disk: Path) -> None:
    """F102: refused while full, recovers without a restart, what was committed is intact."""
    paths = Paths(small_disk)
    store = Store.open(paths, NOW)
    store.commit([(1, save(1))])
    ballast = small_disk / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        try:
            while file.write(bytes(1_024)):
                pass
        except OSError as error:
            assert error.errno == errno.ENOSPC
    number = 1
    with pytest.raises(CommitFailed) as caught:
        for number in range(2, 1_000):
            store.commit([(number, save(number))])
    assert (caught.value.reason, caught.value.final) == ("the disk is full", False)
    ballast.unlink()
    store.commit([(1_000, save(1_000))])
    store.close()
    store = Store.open(paths, NOW)
    assert [record.number for record in store.recovered.operations] == [*range(1, number), 1_000]
    store.close()


def test_store_whose_file_nobody_may_look_at_for_a_while(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """F27, F102: refused meanwhile and nothing concluded from it."""
    store = open_store()

    def refuse(*arguments: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as closed:
        closed.setattr(os, "stat", refuse)
        with pytest.raises(CommitFailed, match="cannot be reached") as caught:
            store.commit([(1, save(1))])
    assert not caught.value.final
    store.commit([(2, save(2))])


@pytest.mark.parametrize("fate", ["moved", "replaced", "deleted"])
def test_store_whose_file_is_gone_is_final(open_store: Open, paths: Paths, fate: str) -> None:
    """F17: nothing is called durable that the next start will not find."""
    store = open_store()
    aside = paths.home / "aside"
    paths.database.rename(aside)
    if fate == "replaced":
        shutil.copy(aside, paths.database)
    elif fate == "deleted":
        aside.unlink()
    with pytest.raises(CommitFailed, match="was moved, replaced or deleted") as caught:
        store.commit([(1, save(1))])
    assert caught.value.final


def test_database_held_by_another_program_is_not_called_damaged(
    open_store: Open, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It passes, so nobody may begin to refuse for as long as he lives."""
    open_store().close()
    monkeypatch.setattr(database, "OPEN_BUSY_MS", 1)
    other = sqlite3.connect(paths.database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnusable) as caught:
        open_store()
    assert (caught.value.code, caught.value.reason) == ("held", f"{paths.database} is held by another program")
    other.close()
    open_store()


def test_database_held_by_another_program_passes(
    open_store: Open, paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    store._connection.execute("PRAGMA busy_timeout = 1")
    other = sqlite3.connect(paths.database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(CommitFailed) as caught:
        store.commit([(1, save(1))])
    assert (caught.value.reason, caught.value.final) == ("another program holds the database", False)
    other.close()
    store.commit([(2, save(2))])


def test_closed_store_takes_nothing(open_store: Open) -> None:
    store = open_store()
    store.close()
    store.close()
    with pytest.raises(CommitFailed, match="closed"):
        store.commit([(1, save(1))])


def test_file_system_without_write_ahead_log_is_refused(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
            return super().execute("SELECT 'delete'" if "journal_mode = WAL" in sql else sql, *rest)

    monkeypatch.setattr(sqlite3, "connect", lambda *args, **keywords: connect(*args, factory=Connection, **keywords))
    with pytest.raises(StoreUnusable, match="cannot hold a write-ahead log"):
        Store.open(paths, NOW)


def test_descriptors_are_not_inherited(open_store: Open, paths: Paths) -> None:
    """F13."""
    open_store()
    held = {
        int(name): os.readlink(f"/proc/self/fd/{name}")
        for name in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{name}")
    }
    ours = [descriptor for descriptor, path in held.items() if path.startswith(str(paths.database))]
    assert ours
    assert not any(os.get_inheritable(descriptor) for descriptor in ours)


def test_failed_open_leaves_no_descriptor(paths: Paths) -> None:
    Store.open(paths, NOW).close()
    paths.key.write_bytes(bytes(32))
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(StoreUnusable):
            Store.open(paths, NOW)
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_everything_comes_back(open_store: Open) -> None:
    store = open_store()
    stored = [
        operation(1, question=records.question()),
        operation(2, state=OperationState.ACCEPTED, accepted_at=NOW, recipient_session=None, target=None),
        operation(3, state=OperationState.QUEUED, position=7),
    ]
    retired = [RetiredIdRecord("x", "h" * 64, 1)]
    store.commit([(1, (*map(SaveOperation, stored), *map(SaveRetiredId, retired)))])
    store.close()
    assert open_store().recovered == Recovered(operations=stored, retired_ids=retired, last_number=3)


def test_readers_share_the_store_within_the_process_only(paths: Paths) -> None:
    """Design section 5, memory and disk: a second, read-only connection; everybody else asks the broker."""
    store = Store.open(paths, NOW)
    store.commit([(1, save(1))])
    reader = sqlite3.connect(f"{paths.database.as_uri()}?mode=ro&vfs=unix-excl", uri=True, isolation_level=None)
    try:
        count = "SELECT count(*) FROM operations"
        reader.execute("BEGIN")
        assert reader.execute(count).fetchone() == (1,)
        store.commit([(2, save(2))])
        assert reader.execute(count).fetchone() == (1,), "a page of a history stays as it was"
        reader.execute("COMMIT")
        assert reader.execute(count).fetchone() == (2,)
        program = f"import sqlite3; sqlite3.connect({str(paths.database)!r}, timeout=0).execute({count!r})"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        assert "database is locked" in done.stderr
        store.commit([(3, save(3))])
    finally:
        reader.close()
        store.close()
