"""Test that database and key come into being together, and that half a pair is never completed by guess."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from intercom.paths import Paths
from intercom.store import pair
from intercom.store.database import Store, StoreUnusable
from intercom.store.pair import obtain_pair
from tests.support.processes import OTHER_USER, in_child, needs_root, was_killed
from tests.support.records import NOW

CALLS = ("open", "write", "fsync", "rename", "fchmod", "chmod", "unlink", "close")
ONE_OF = 10


@pytest.fixture
def users_paths() -> Iterator[Paths]:
    """Give a home of the other user."""
    with tempfile.TemporaryDirectory() as directory:
        os.chown(directory, OTHER_USER, OTHER_USER)
        yield Paths(Path(directory))


def contents(paths: Paths) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(paths.home.iterdir()) if path.is_file()}


def refusal(paths: Paths) -> StoreUnusable:
    with pytest.raises(StoreUnusable) as caught:
        Store.open(paths, NOW)
    return caught.value


# --- the first start ------------------------------------------------------------------------------------


def test_first_start_makes_both(paths: Paths) -> None:
    """Protocol 6.9.4."""
    key = obtain_pair(paths)
    assert paths.key.read_bytes() == key
    assert len(key) == 32
    assert sorted(os.listdir(paths.home)) == ["intercom.db", "intercom.key"]
    assert obtain_pair(paths) == key


def test_two_homes_have_two_keys(tmp_path: Path) -> None:
    keys = set()
    for name in "ab":
        (tmp_path / name).mkdir()
        keys.add(obtain_pair(Paths(tmp_path / name)))
    assert len(keys) == 2


@needs_root
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_files_are_private_whatever_the_umask(users_paths: Paths, umask: int) -> None:
    """Protocol 2.2, F108: also the files SQLite makes."""

    def modes_while_open() -> dict[str, int]:
        store = Store.open(users_paths, NOW)
        modes = {name: stat.S_IMODE(os.stat(users_paths.home / name).st_mode) for name in os.listdir(users_paths.home)}
        store.close()
        return modes

    assert in_child(modes_while_open, user=OTHER_USER, umask=umask) == {
        "intercom.db": 0o600,
        "intercom.db-wal": 0o600,
        "intercom.key": 0o600,
    }


def test_modes_are_set_again(paths: Paths) -> None:
    """Protocol 2.2: kept at 0600."""
    obtain_pair(paths)
    for path in (paths.database, paths.key):
        path.chmod(0o666)
    obtain_pair(paths)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (paths.database, paths.key)] == [0o600, 0o600]


def test_everything_is_on_disk_before_a_name_is_given(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F100: write, sync the file, rename, sync the directory."""
    names: dict[int, str] = {}
    events: list[str] = []
    real_open, real_fsync, real_rename = os.open, os.fsync, os.rename

    def note_open(path: Any, *rest: Any) -> int:
        descriptor = real_open(path, *rest)
        names[descriptor] = os.path.basename(path)
        return descriptor

    def note_fsync(descriptor: int) -> None:
        events.append(f"sync {names[descriptor]}")
        real_fsync(descriptor)

    def note_rename(source: Any, target: Any) -> None:
        events.append(f"name {os.path.basename(target)}")
        real_rename(source, target)

    monkeypatch.setattr(os, "open", note_open)
    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "rename", note_rename)
    obtain_pair(paths)
    home = f"sync {paths.home.name}"
    assert events == [
        "sync intercom.key.new",
        "sync intercom.db.new",
        home,
        "name intercom.key",
        home,
        "name intercom.db",
        home,
    ]


def test_start_killed_anywhere_does_not_spoil_the_home(tmp_path: Path) -> None:
    """Design section 5: kill -9 at any point of the first start leaves a home that the next start can use."""
    survived = False
    point = 0
    states = set()
    while not survived:
        point += 1
        paths = Paths(tmp_path / str(point))
        paths.home.mkdir()

        def first_start(paths: Paths = paths, point: int = point) -> None:
            die_at(point)
            Store.open(paths, NOW).close()

        survived = not was_killed(first_start)
        states.add(tuple(sorted(os.listdir(paths.home))))
        for epoch in (1, 2):
            store = Store.open(paths, NOW)
            assert store.epoch - epoch in (0, 1)
            store.close()
        assert sorted(os.listdir(paths.home)) == ["intercom.db", "intercom.key"]
    assert point > 30
    assert {(), ("intercom.db.new", "intercom.key"), ("intercom.db.new", "intercom.key.new")} <= states


def die_at(point: int) -> None:
    """Make this process kill itself before the call with this number that touches a file or the database.

    Of the statements within a transaction only some count: whichever it dies at, none of them has been.
    """
    calls = inside = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **keywords: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == point:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **keywords)

        return call

    execute = counted(sqlite3.Connection.execute)

    class Connection(sqlite3.Connection):
        def execute(self, *args: Any) -> Any:
            nonlocal inside
            inside += self.in_transaction
            is_one_of_many = self.in_transaction and args[0] != "COMMIT" and inside % ONE_OF
            return super().execute(*args) if is_one_of_many else execute(self, *args)

        executemany = counted(sqlite3.Connection.executemany)
        close = counted(sqlite3.Connection.close)

    connect = sqlite3.connect
    patch = pytest.MonkeyPatch()  # never undone: this process ends here
    for name in CALLS:
        patch.setattr(os, name, counted(getattr(os, name)))
    patch.setattr(sqlite3, "connect", lambda *args, **keywords: connect(*args, factory=Connection, **keywords))


def test_unfinished_files_of_an_earlier_start_are_made_anew(paths: Paths) -> None:
    for name in ("intercom.key.new", "intercom.db.new", "intercom.db.new-journal", "intercom.db.new-wal"):
        (paths.home / name).write_bytes(b"torn")
    obtain_pair(paths)
    assert sorted(os.listdir(paths.home)) == ["intercom.db", "intercom.key"]


def test_failed_first_start_can_be_repeated(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F102: a full disk at the first start."""

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert refusal(paths).code == "unwritable"
    assert not paths.key.exists()
    Store.open(paths, NOW).close()


def test_short_write_is_no_key(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda descriptor, content: 0)
        assert refusal(paths).code == "unwritable"
    Store.open(paths, NOW).close()


# --- half a pair ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["intercom.db", "intercom.key"])
def test_missing_half_is_not_made_anew(paths: Paths, missing: str) -> None:
    """Protocol 6.9.4."""
    Store.open(paths, NOW).close()
    (paths.home / missing).unlink()
    before = contents(paths)
    for _ in range(2):
        failure = refusal(paths)
        assert failure.code == "half_pair"
        assert f"{paths.home / missing} is missing" in failure.reason
    assert contents(paths) == before


def unfinished(paths: Paths) -> Path:
    """Leave the home as a start does that ended between its two renames; return the unfinished database."""
    obtain_pair(paths)
    name = paths.home / "intercom.db.new"
    os.rename(paths.database, name)
    return name


def test_start_that_ended_between_the_names_is_finished(paths: Paths) -> None:
    unfinished(paths)
    key = paths.key.read_bytes()
    store = Store.open(paths, NOW)
    assert (store.key, store.epoch) == (key, 1)
    store.close()


@pytest.mark.parametrize("flaw", ["opened", "other key", "torn", "empty", "foreign", "directory"])
def test_unfinished_database_that_is_not_this_keys_first_is_no_half(paths: Paths, flaw: str) -> None:
    name = unfinished(paths)
    if flaw == "opened":
        os.rename(name, paths.database)
        Store.open(paths, NOW).close()
        os.rename(paths.database, name)
    elif flaw == "other key":
        paths.key.write_bytes(bytes(32))
    elif flaw == "torn":
        os.truncate(name, 5_000)
    elif flaw == "empty":
        os.truncate(name, 0)
    elif flaw == "foreign":
        name.unlink()
        sqlite3.connect(name).close()
    before = contents(paths)
    if flaw == "directory":
        name.unlink()
        name.mkdir()
        assert refusal(paths).code == "not_ours"
        return
    assert refusal(paths).code == "half_pair"
    assert contents(paths) == before


# --- files that are not what they should be -------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", bytes(31), bytes(33), bytes(4_096)])
def test_key_of_another_size_is_refused(paths: Paths, content: bytes) -> None:
    """Protocol 6.9.4."""
    Store.open(paths, NOW).close()
    paths.key.write_bytes(content)
    before = contents(paths)
    assert refusal(paths).code == "bad_key"
    assert contents(paths) == before


@pytest.mark.parametrize("name", ["intercom.db", "intercom.key", "intercom.db-wal", "intercom.db-shm"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "directory", "pipe"])
def test_what_is_no_regular_file_is_refused(paths: Paths, name: str, kind: str) -> None:
    """Protocol 2.2, F24: untouched, and without waiting for a pipe."""
    Store.open(paths, NOW).close()
    path, aside = paths.home / name, paths.home / "aside"
    if path.exists():
        shutil.move(path, aside)
    else:
        aside.touch()
    if kind == "link":
        path.symlink_to("aside")
    elif kind == "dangling link":
        path.symlink_to("nowhere")
    elif kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    before = aside.read_bytes()
    failure = refusal(paths)
    assert (failure.code, failure.reason) == ("not_ours", f"{path} is not a regular file")
    assert aside.read_bytes() == before
    assert not (paths.home / "nowhere").exists()


@needs_root
@pytest.mark.parametrize("name", ["intercom.db", "intercom.key", "intercom.db-wal"])
def test_file_of_another_user_is_refused(paths: Paths, name: str) -> None:
    Store.open(paths, NOW).close()
    path = paths.home / name
    path.touch()
    os.chown(path, OTHER_USER, OTHER_USER)
    path.chmod(0o644)
    failure = refusal(paths)
    assert (failure.code, failure.reason) == ("not_ours", f"{path} belongs to user {OTHER_USER}, not to user 0")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@needs_root
def test_home_that_cannot_be_written_is_said_so(users_paths: Paths) -> None:
    users_paths.home.chmod(0o500)

    def attempt() -> tuple[str, str]:
        failure = refusal(users_paths)
        return failure.code, failure.reason

    code, reason = in_child(attempt, user=OTHER_USER)
    assert code == "unreadable"
    assert reason == f"{users_paths.home}/intercom.key.new cannot be used: Permission denied"


def test_missing_home_is_refused(tmp_path: Path) -> None:
    assert refusal(Paths(tmp_path / "missing")).code == "unreadable"


def test_reading_leaves_no_files_behind(paths: Paths) -> None:
    Store.open(paths, NOW).close()
    connection = pair.read_only(paths.database)
    assert connection.execute("SELECT count(*) FROM operations").fetchone() == (0,)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM operations")
    connection.close()
    assert sorted(os.listdir(paths.home)) == ["intercom.db", "intercom.key"]
