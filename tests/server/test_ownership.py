from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread

import pytest

from intercom.paths import Paths
from intercom.server import ownership
from intercom.server.ownership import (
    AnotherServes,
    HomeLock,
    Interrupted,
    LockHeld,
    Presence,
    StartRefused,
    Territory,
    bind,
    held,
    probe,
    read_pid,
    take_lock,
    write_pid,
)
from tests.support.processes import OTHER_USER, in_child, needs_root
from tests.support.raw import packed

SOON_MS = 50


@pytest.fixture
def paths(home: Path) -> Paths:
    home.mkdir(mode=0o700)
    return Paths(home)


@contextmanager
def server(path: Path, answer: bytes | None) -> Iterator[None]:
    """Listen at ``path`` and answer the first bytes of one connection after another; None closes without a word."""
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    sock.listen(5)

    def serve() -> None:
        while True:
            try:
                connection, _ = sock.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                if answer is not None and connection.recv(1000):
                    connection.sendall(answer)

    thread = Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        sock.shutdown(socket.SHUT_RDWR)
        sock.close()
        thread.join(5)
        path.unlink(missing_ok=True)


@contextmanager
def silent(path: Path, backlog: int = 5) -> Iterator[socket.socket]:
    """Listen at ``path`` without ever accepting."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen(backlog)
        yield sock


def leave_stale_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


HEALTHY = packed({"type": "health", "requestId": "probe", "instanceId": "i"})


# --- the probe


def test_a_broker_that_answers_health_answers(paths: Paths) -> None:
    """F6."""
    with server(paths.socket, HEALTHY):
        assert probe(paths.socket) is Presence.ANSWERS


def test_an_answer_in_pieces_is_an_answer(paths: Paths) -> None:
    with server(paths.socket, HEALTHY + b"\0\0"):
        assert probe(paths.socket) is Presence.ANSWERS


def test_no_socket_and_a_stale_one_are_absent(paths: Paths) -> None:
    """F26."""
    assert probe(paths.socket) is Presence.ABSENT
    leave_stale_socket(paths.socket)
    assert probe(paths.socket) is Presence.ABSENT
    assert probe(paths.home / "no" / "such") is Presence.ABSENT


def test_who_does_not_answer_in_time_is_busy(paths: Paths) -> None:
    """F6, F26."""
    with silent(paths.socket):
        assert probe(paths.socket, SOON_MS) is Presence.BUSY


def test_a_full_backlog_is_busy(paths: Paths) -> None:
    """F26."""
    with silent(paths.socket, backlog=0):
        waiting = []
        while True:
            client = socket.socket(socket.AF_UNIX)
            client.setblocking(False)
            waiting.append(client)
            try:
                client.connect(str(paths.socket))
            except BlockingIOError:
                break
        assert probe(paths.socket, SOON_MS) is Presence.BUSY
        for client in waiting:
            client.close()


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"HTTP/1.1 400 Bad Request\r\n",
        packed({"type": "x"}),
        packed([]),
        packed({"type": "error", "error": "x"}),
    ],
)
def test_who_answers_something_else_is_busy(paths: Paths, answer: bytes | None) -> None:
    with server(paths.socket, answer):
        assert probe(paths.socket, 200) is Presence.BUSY


class Meanwhile(socket.socket):
    """Connect, and have ``happening`` happen right after the first attempt."""

    happening: Callable[[], object] | None = None

    def connect(self, address: object) -> None:
        try:
            super().connect(address)  # type: ignore[arg-type]
        finally:
            happening, Meanwhile.happening = Meanwhile.happening, None
            if happening is not None:
                happening()


def test_a_broker_that_comes_during_the_look_is_no_sandbox(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F1, F27: the socket that could not be found a moment ago is there now."""
    monkeypatch.setattr(socket, "socket", Meanwhile)
    with ExitStack() as stack:
        monkeypatch.setattr(Meanwhile, "happening", lambda: stack.enter_context(server(paths.socket, HEALTHY)))
        assert probe(paths.socket) is Presence.ANSWERS


def test_a_broker_that_goes_during_the_look_is_absent(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F1, F26: what is killed loses its lock before its socket; who has the lock must not take it for busy."""
    leaving = socket.socket(socket.AF_UNIX)
    leaving.bind(str(paths.socket))
    leaving.listen(5)
    monkeypatch.setattr(socket, "socket", Meanwhile)
    monkeypatch.setattr(Meanwhile, "happening", leaving.close)
    assert probe(paths.socket) is Presence.ABSENT


def test_what_cannot_be_seen_although_it_is_there_is_denied(paths: Paths) -> None:
    """F26: ENOENT for a path that is there."""
    paths.socket.symlink_to(paths.home / "nowhere")
    assert probe(paths.socket) is Presence.DENIED


@needs_root
def test_what_may_not_be_used_is_denied(paths: Paths) -> None:
    """F27."""
    with silent(paths.socket):
        os.chmod(paths.home.parent, 0o755)
        os.chmod(paths.home, 0o755)
        os.chmod(paths.socket, 0o600)
        assert in_child(lambda: probe(paths.socket).value, user=OTHER_USER) == "denied"


# --- the lock


def test_a_free_lock_is_taken_with_a_private_file(paths: Paths) -> None:
    """Design section 7, Locks; F108."""
    before = os.umask(0)
    try:
        lock = take_lock(paths)
    finally:
        os.umask(before)
    assert stat.S_IMODE(paths.lock.stat().st_mode) == 0o600
    assert not HomeLock(paths.lock).try_acquire()
    lock.release()
    assert HomeLock(paths.lock).try_acquire()
    assert paths.lock.exists(), "all who wait, wait for the same file"


def test_nothing_is_touched_when_a_broker_answers(paths: Paths) -> None:
    """Protocol 3.1; F4."""
    with server(paths.socket, HEALTHY), pytest.raises(AnotherServes) as refusal:
        take_lock(paths)
    assert refusal.value.exit_status == 0
    assert list(paths.home.iterdir()) == []


def test_a_lock_held_elsewhere_is_waited_for_and_its_holder_named(paths: Paths) -> None:
    """Design section 7, Locks: exit 5 naming holder and socket."""
    write_pid(paths.pid)
    held = HomeLock(paths.lock)
    assert held.try_acquire()
    with pytest.raises(LockHeld) as refusal:
        take_lock(paths, wait_ms=SOON_MS)
    assert refusal.value.exit_status == 5
    assert str(os.getpid()) in str(refusal.value) and str(paths.socket) in str(refusal.value)
    paths.pid.unlink()
    with pytest.raises(LockHeld, match="unknown process"):
        take_lock(paths, wait_ms=0)
    held.release()


def test_a_winner_that_begins_to_answer_ends_the_wait(paths: Paths) -> None:
    """F1."""
    held = HomeLock(paths.lock)
    assert held.try_acquire()
    asked = 0

    def begin_to_serve() -> bool:
        nonlocal asked
        asked += 1
        if asked == 2:
            serving.__enter__()
        return False

    serving = server(paths.socket, HEALTHY)
    with pytest.raises(AnotherServes):
        take_lock(paths, gave_up=begin_to_serve)
    serving.__exit__(None, None, None)
    held.release()


def test_a_lock_that_becomes_free_is_taken(paths: Paths) -> None:
    held = HomeLock(paths.lock)
    assert held.try_acquire()

    def let_go() -> bool:
        held.release()
        return False

    take_lock(paths, gave_up=let_go).release()


def test_the_wait_ends_when_the_process_is_told_to_stop(paths: Paths) -> None:
    held = HomeLock(paths.lock)
    assert held.try_acquire()
    with pytest.raises(Interrupted) as refusal:
        take_lock(paths, gave_up=lambda: True)
    assert refusal.value.exit_status == 0
    held.release()


def test_the_kernel_gives_back_the_lock_of_a_dead_process(paths: Paths) -> None:
    """F10: the pid file names somebody else who lives."""
    code = (
        "import os, sys; from pathlib import Path; from intercom.server.ownership import HomeLock\n"
        "assert HomeLock(Path(sys.argv[1])).try_acquire(); os.kill(os.getpid(), 9)"
    )
    child = subprocess.run([sys.executable, "-c", code, str(paths.lock)], cwd=Path(__file__).parents[2], check=False)
    assert child.returncode == -9
    paths.pid.write_text(str(os.getppid()))
    take_lock(paths, wait_ms=SOON_MS).release()


def make_directory(path: Path) -> None:
    path.mkdir()


def make_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


@pytest.mark.parametrize("obstacle", [make_directory, make_dangling_link])
def test_what_cannot_be_a_lock_file_is_named(paths: Paths, obstacle: Callable[[Path], None]) -> None:
    """F11."""
    obstacle(paths.lock)
    with pytest.raises(StartRefused, match=str(paths.lock)) as refusal:
        take_lock(paths, wait_ms=SOON_MS)
    assert refusal.value.exit_status == 1


@pytest.mark.parametrize("content", [b"", b"abc", b"-1", b"\0\0", b"x" * (1 << 20)])
def test_the_content_of_the_lock_file_means_nothing(paths: Paths, content: bytes) -> None:
    """F11."""
    paths.lock.write_bytes(content)
    take_lock(paths, wait_ms=SOON_MS).release()


# --- the socket


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_the_socket_is_private_from_the_moment_of_its_binding(
    paths: Paths, umask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F108: no window in which it has another mode, and no chmod."""
    monkeypatch.setattr(os, "chmod", lambda *arguments: pytest.fail("a chmod leaves a window"))
    modes = []

    class Watched(socket.socket):
        def listen(self, backlog: int = 0, /) -> None:
            modes.append(stat.S_IMODE(paths.socket.stat().st_mode))
            super().listen(backlog)

    monkeypatch.setattr(socket, "socket", Watched)
    before = os.umask(umask)
    try:
        sock = bind(paths.socket)
        assert os.umask(umask) == umask, "the umask is put back"
    finally:
        os.umask(before)
    assert modes == [0o600]
    assert not sock.get_inheritable() and not sock.getblocking()
    sock.close()


def test_a_stale_socket_of_ours_is_replaced(paths: Paths) -> None:
    """Design section 7, Locks."""
    leave_stale_socket(paths.socket)
    sock = bind(paths.socket)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(paths.socket))
    sock.close()


def make_file(path: Path) -> None:
    path.write_text("precious")


def make_empty_file(path: Path) -> None:
    path.touch()


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


def make_link_to_file(path: Path) -> None:
    path.with_name("file").write_text("precious")
    path.symlink_to(path.with_name("file"))


def make_link_to_stale_socket(path: Path) -> None:
    leave_stale_socket(path.with_name("other"))
    path.symlink_to(path.with_name("other"))


@pytest.mark.parametrize(
    "obstacle",
    [
        make_file,
        make_empty_file,
        make_directory,
        make_fifo,
        make_link_to_file,
        make_link_to_stale_socket,
        make_dangling_link,
    ],
)
def test_what_is_no_socket_stays_as_it_is(paths: Paths, obstacle: Callable[[Path], None]) -> None:
    """F24."""
    obstacle(paths.socket)
    before = {path.name: (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in paths.home.iterdir()}
    with pytest.raises(StartRefused, match="is not a socket") as refusal:
        bind(paths.socket)
    assert str(paths.socket) in str(refusal.value) and refusal.value.exit_status == 1
    assert {path.name: (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in paths.home.iterdir()} == before


@needs_root
def test_a_socket_of_another_user_stays_as_it_is(paths: Paths) -> None:
    """F24, design: only a socket of ours is ever unlinked."""
    leave_stale_socket(paths.socket)
    os.chown(paths.socket, OTHER_USER, OTHER_USER)
    with pytest.raises(StartRefused, match=f"user {OTHER_USER}"):
        bind(paths.socket)
    assert paths.socket.exists()


def test_a_live_socket_is_never_stolen(paths: Paths) -> None:
    """F23: two brokers, past the lock."""
    with server(paths.socket, HEALTHY):
        with pytest.raises(AnotherServes):
            bind(paths.socket)
        assert probe(paths.socket) is Presence.ANSWERS
    with server(paths.socket, None):
        with pytest.raises(StartRefused, match="does not answer"):
            bind(paths.socket)
        assert paths.socket.exists()


def test_a_path_that_others_keep_taking_is_given_up(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 3.3: so many attempts."""
    import intercom.server.ownership as module

    attempts = []

    def occupied(path: Path) -> None:
        attempts.append(path)
        path.unlink(missing_ok=True)
        leave_stale_socket(path)

    monkeypatch.setattr(module, "_clear", occupied)
    with pytest.raises(StartRefused, match="keep taking"):
        bind(paths.socket)
    assert len(attempts) == 5


def test_a_place_where_nothing_can_be_bound_is_named(paths: Paths) -> None:
    """F33."""
    missing = paths.home / "missing" / "broker.sock"
    with pytest.raises(StartRefused, match=str(missing)):
        bind(missing)


# --- the pid file


def test_the_pid_file_holds_the_decimal_pid_and_no_newline(paths: Paths) -> None:
    """Protocol 2.2; F108."""
    before = os.umask(0)
    try:
        write_pid(paths.pid)
    finally:
        os.umask(before)
    assert paths.pid.read_bytes() == str(os.getpid()).encode()
    assert stat.S_IMODE(paths.pid.stat().st_mode) == 0o600
    assert list(paths.home.iterdir()) == [paths.pid]


@pytest.mark.parametrize("obstacle", [make_file, make_fifo, make_link_to_file, make_dangling_link])
def test_whatever_is_no_directory_is_replaced(paths: Paths, obstacle: Callable[[Path], None]) -> None:
    """F11; what a link points to is left alone."""
    obstacle(paths.pid)
    write_pid(paths.pid)
    assert read_pid(paths.pid) == os.getpid()
    other = paths.home / "file"
    assert not other.exists() or other.read_text() == "precious"


def test_a_directory_in_its_place_is_named(paths: Paths) -> None:
    """F11."""
    paths.pid.mkdir()
    with pytest.raises(StartRefused, match=str(paths.pid)):
        write_pid(paths.pid)
    assert list(paths.home.iterdir()) == [paths.pid]


@pytest.mark.parametrize(
    "content", [b"", b"abc", b"-1", b"0", b"\0\0\0", b"12 34", "١".encode(), b"9" * (1 << 20), b"\xff\xfe"]
)
def test_a_torn_pid_file_names_nobody(paths: Paths, content: bytes) -> None:
    """F11."""
    paths.pid.write_bytes(content)
    assert read_pid(paths.pid) is None


@pytest.mark.parametrize("obstacle", [make_directory, make_fifo, make_link_to_file, make_dangling_link])
def test_reading_a_pid_never_hangs_or_follows(paths: Paths, obstacle: Callable[[Path], None]) -> None:
    obstacle(paths.pid)
    assert read_pid(paths.pid) is None


# --- the territory


@pytest.fixture
def lock(paths: Paths) -> Iterator[HomeLock]:
    lock = take_lock(paths)
    yield lock
    lock.release()


@pytest.fixture
def owned(paths: Paths, lock: HomeLock) -> Iterator[Paths]:
    sock = bind(paths.socket)
    write_pid(paths.pid)
    yield paths
    sock.close()


def replace_file(path: Path) -> None:
    other = path.with_name("other")
    other.touch()
    other.replace(path)


def test_nothing_is_lost_while_both_inodes_are_ours(owned: Paths, lock: HomeLock) -> None:
    """Protocol 3.4."""
    assert Territory(owned, lock).lost() is None


@pytest.mark.parametrize("which", ["socket", "lock"])
@pytest.mark.parametrize("loss", [Path.unlink, replace_file])
def test_a_missing_or_replaced_file_is_lost(
    owned: Paths, lock: HomeLock, which: str, loss: Callable[[Path], None]
) -> None:
    """Protocol 3.4; design: the watch also watches the lock file."""
    territory = Territory(owned, lock)
    path: Path = getattr(owned, which)
    loss(path)
    assert territory.lost() == path


def test_a_home_that_was_removed_is_lost(owned: Paths, lock: HomeLock) -> None:
    territory = Territory(owned, lock)
    owned.home.rename(owned.home.with_name("moved"))
    assert territory.lost() == owned.lock


def test_giving_back_removes_socket_and_pid_file(owned: Paths, lock: HomeLock) -> None:
    """Protocol 3.8."""
    territory = Territory(owned, lock)
    territory.give_back()
    territory.give_back()
    assert not owned.socket.exists() and not owned.pid.exists()
    assert owned.lock.exists()


@pytest.mark.parametrize("pid", ["1", "", "garbage"])
def test_a_pid_file_of_somebody_else_keeps_both(owned: Paths, lock: HomeLock, pid: str) -> None:
    """Protocol 3.8: a successor may own the path."""
    territory = Territory(owned, lock)
    owned.pid.write_text(pid)
    territory.give_back()
    assert owned.socket.exists() and owned.pid.read_text() == pid


def test_a_socket_of_somebody_else_is_kept(owned: Paths, lock: HomeLock) -> None:
    """Protocol 3.8."""
    territory = Territory(owned, lock)
    replace_file(owned.socket)
    territory.give_back()
    assert owned.socket.exists() and not owned.pid.exists()


def test_a_lock_that_was_replaced_before_the_watch_began_is_lost(owned: Paths, lock: HomeLock) -> None:
    """Protocol 3.4, F5: known by what this process has open; what lies there belongs to who holds the other one."""
    replace_file(owned.lock)
    territory = Territory(owned, lock)
    assert territory.lost() == owned.lock
    territory.give_back()
    assert owned.socket.exists() and owned.pid.exists()


def test_who_stood_still_while_another_took_its_place_claims_nothing(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F4, F5: between any two steps of a start somebody may delete the lock and start another broker."""

    def overtaken(path: Path) -> socket.socket:
        sock = bind(path)
        replace_file(paths.lock)
        paths.pid.write_text("1")
        return sock

    monkeypatch.setattr(ownership, "bind", overtaken)
    with pytest.raises(StartRefused, match="was removed or belongs to another broker"), held(paths, gave_up=bool):
        raise AssertionError("it begins to serve")
    assert paths.pid.read_text() == "1" and paths.socket.exists()
