"""Own a home: at most one broker process holds its lock, its socket and its store (design, "Locks").

The kernel's lock is the only truth about who serves; files that name a process are for people, and nobody is ever
signalled on their evidence. A socket is unlinked only by who holds the lock, only when it is a socket of this user,
and only when it refuses connections.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from time import monotonic, sleep
from typing import TypeAlias

from intercom.limits import LISTEN_ATTEMPTS, LISTEN_BACKLOG, LOCK_POLL_MAX_MS, LOCK_POLL_MS, LOCK_WAIT_MS, PROBE_MS
from intercom.locks import FileLock
from intercom.paths import PRIVATE_FILE, Paths
from intercom.wire.codec import ProtocolError, decode_answer, encode
from intercom.wire.frames import Health, HealthRequest
from intercom.wire.framing import FrameReader, FramingError

_BUSY_POLL_S = 0.01
_LONGEST_ANSWER_BYTES = 4096
_LONGEST_PID_FILE_BYTES = 64
_MOST_PIDS = 2**31
_Identity: TypeAlias = tuple[int, int]


class StartRefused(Exception):
    """Say in one sentence why this process does not become the broker, and with which status it ends."""

    exit_status = 1


class AnotherServes(StartRefused):
    """Say that a broker answers on the socket already; that is a success."""

    exit_status = 0


class LockHeld(StartRefused):
    """Say that another process holds the home, or its store, and does not answer."""

    exit_status = 5


class Interrupted(StartRefused):
    """Say that this process was told to stop before it had begun."""

    exit_status = 0


class Presence(Enum):
    """Name what a probe found at a socket path."""

    ANSWERS = "answers"
    ABSENT = "absent"
    """Nobody listens: there is no socket, or it refuses connections."""
    BUSY = "busy"
    """Somebody listens and does not answer in time, or not in our language."""
    DENIED = "denied"
    """This process may not connect there."""


def probe(path: Path, timeout_ms: int = PROBE_MS) -> Presence:
    """Find out whether a broker answers ``health`` at ``path`` within ``timeout_ms``; never raises."""
    deadline = monotonic() + timeout_ms / 1000
    while (found := _look(path, deadline)) is None:
        if monotonic() >= deadline:
            return Presence.BUSY
        sleep(_BUSY_POLL_S)
    return found


def _look(path: Path, deadline: float) -> Presence | None:
    """Make one connection; None when what it met is passing: a full backlog, a broker that comes or goes."""
    seen = _identity(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        # With a time-out the connect would wait in the kernel while the backlog is full, and not answer EAGAIN.
        sock.setblocking(False)
        try:
            sock.connect(os.fspath(path))
        except OSError as error:
            return _presence_after(error, path, seen)
        try:
            sock.settimeout(max(deadline - monotonic(), _BUSY_POLL_S))
            sock.sendall(encode(HealthRequest("probe")))
            return _await_health(sock, deadline)
        except TimeoutError:
            return Presence.BUSY
        except OSError:
            return None


def _presence_after(error: OSError, path: Path, seen: _Identity | None) -> Presence | None:
    if error.errno in (errno.EACCES, errno.EPERM):
        return Presence.DENIED
    if error.errno == errno.ECONNREFUSED:
        return Presence.ABSENT
    if error.errno == errno.EAGAIN:
        return None
    if error.errno == errno.ENOENT:
        # A sandbox may hide what is there, and a dangling symbolic link is there too. What was not there before the
        # attempt proves nothing: another broker has just begun to listen.
        there = _identity(path)
        return Presence.ABSENT if there is None else Presence.DENIED if there == seen else None
    return Presence.BUSY


def _await_health(sock: socket.socket, deadline: float) -> Presence | None:
    reader = FrameReader(_LONGEST_ANSWER_BYTES)
    try:
        while (remaining := deadline - monotonic()) > 0:
            sock.settimeout(remaining)
            data = sock.recv(_LONGEST_ANSWER_BYTES)
            if not data:
                return None
            reader.feed(data)
            payload = reader.next_frame()
            if payload is not None:
                return Presence.ANSWERS if isinstance(decode_answer(payload), Health) else Presence.BUSY
    except (FramingError, ProtocolError):
        pass
    return Presence.BUSY


class HomeLock:
    """Hold the one lock of a home.

    Raises ``StartRefused`` when the file cannot be locked at all.
    """

    def __init__(self, path: Path) -> None:
        self._lock = FileLock(path)

    def try_acquire(self) -> bool:
        """Take the lock if it is free; return whether this process has it now."""
        try:
            return self._lock.try_acquire()
        except OSError as error:
            raise StartRefused(f"{self._lock.path} cannot be locked: {error.strerror or error}") from error

    @property
    def identity(self) -> _Identity | None:
        """Return what the kernel knows the locked file by, whatever lies at its path by now; None without the lock."""
        return self._lock.identity

    def release(self) -> None:
        """Give the lock back."""
        self._lock.release()


def take_lock(paths: Paths, *, wait_ms: int = LOCK_WAIT_MS, gave_up: Callable[[], bool] = lambda: False) -> HomeLock:
    """Become the one process that may serve this home, unless a broker answers there.

    While another process holds the lock this looks, for at most ``wait_ms``, whether it begins to answer.
    ``gave_up`` is asked meanwhile whether to stop waiting. Raises ``StartRefused`` or one of its subclasses.
    """
    lock = HomeLock(paths.lock)
    deadline = monotonic() + wait_ms / 1000
    pause_ms = LOCK_POLL_MS
    while True:
        found = probe(paths.socket)
        if found is Presence.ANSWERS:
            raise AnotherServes(f"a broker answers on {paths.socket}")
        if found is Presence.DENIED:
            raise StartRefused(
                f"this process may not use {paths.socket}: a sandbox or its permissions forbid it, or it is no socket"
            )
        if lock.try_acquire():
            return lock
        if gave_up():
            raise Interrupted("told to stop while it waited for the lock")
        if monotonic() >= deadline:
            holder = read_pid(paths.pid)
            named = "an unknown process" if holder is None else f"process {holder}"
            raise LockHeld(f"{paths.lock} is held by {named}, and nobody answers on {paths.socket}")
        sleep(pause_ms / 1000)
        pause_ms = min(pause_ms * 2, LOCK_POLL_MAX_MS)


def bind(path: Path) -> socket.socket:
    """Listen on ``path``; only who holds the lock may call this.

    The socket has mode 0600 from the moment of its binding. A stale socket of ours is unlinked before. Raises
    ``StartRefused`` when anything else is there, ``AnotherServes`` when a broker answers after all.
    """
    for _ in range(LISTEN_ATTEMPTS):
        _clear(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            mask = os.umask(0o777 & ~PRIVATE_FILE)
            try:
                sock.bind(os.fspath(path))
            finally:
                os.umask(mask)
            sock.listen(LISTEN_BACKLOG)
            sock.setblocking(False)
        except OSError as error:
            sock.close()
            if error.errno != errno.EADDRINUSE:
                raise StartRefused(f"cannot listen on {path}: {error.strerror or error}") from error
        else:
            return sock
    raise StartRefused(f"cannot listen on {path}: other processes keep taking it")


def _clear(path: Path) -> None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StartRefused(f"{path} cannot be examined: {error.strerror}") from error
    if not stat.S_ISSOCK(status.st_mode):
        raise StartRefused(f"{path} exists and is not a socket; it was left as it is")
    if status.st_uid != os.geteuid():
        raise StartRefused(f"{path} is a socket of user {status.st_uid}; it was left as it is")
    found = probe(path)
    if found is Presence.ANSWERS:
        raise AnotherServes(f"a broker answers on {path}")
    if found is not Presence.ABSENT:
        raise StartRefused(f"{path} is held by a process that does not answer; it was left as it is")
    with suppress(FileNotFoundError):
        path.unlink()


def read_pid(path: Path) -> int | None:
    """Return the process id a pid file names, or None when it names none; for people only."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        text = os.read(descriptor, _LONGEST_PID_FILE_BYTES)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    text = text.strip()
    number = int(text) if text.isdigit() else 0
    return number if 0 < number < _MOST_PIDS else None


def write_pid(path: Path) -> None:
    """Write this process's id, replacing whatever file was there; only who holds the lock may call this.

    Raises ``StartRefused`` when it cannot be written.
    """
    temporary = path.with_name(f"{path.name}.new")  # one name, so that what a killed process leaves is used up
    try:
        with suppress(FileNotFoundError):
            temporary.unlink()
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            os.fchmod(descriptor, PRIVATE_FILE)
            os.write(descriptor, str(os.getpid()).encode())
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise StartRefused(f"{path} cannot be written: {error.strerror or error}") from error


class Territory:
    """Remember the inodes of socket and lock of a serving broker, and give them back at its end.

    A process may stand still between any two steps of its start, and find that somebody deleted its lock and let
    another broker begin. So the lock is known by what this process has open, not by what lies at its path; and who has
    lost it gives nothing back, because what lies there is another's.
    """

    def __init__(self, paths: Paths, lock: HomeLock) -> None:
        self._paths = paths
        self._own = {paths.lock: lock.identity, paths.socket: _identity(paths.socket)}

    def lost(self) -> Path | None:
        """Return the path that is missing or belongs to another inode now, or None while all is well."""
        for path, own in self._own.items():
            if own is None or _identity(path) != own:
                return path
        return None

    def give_back(self) -> None:
        """Remove the pid file if it names us and, only then, the socket if it is still ours (protocol 3.8).

        Doing it again does nothing.
        """
        if read_pid(self._paths.pid) != os.getpid():
            return
        if _identity(self._paths.lock) not in (None, self._own[self._paths.lock]):
            return
        own = self._own[self._paths.socket]
        if own is not None and _identity(self._paths.socket) == own:
            with suppress(OSError):
                self._paths.socket.unlink()
        with suppress(OSError):
            self._paths.pid.unlink()


@contextmanager
def held(paths: Paths, *, gave_up: Callable[[], bool]) -> Iterator[tuple[socket.socket, Territory]]:
    """Own a prepared home for the length of the block: yield the listening socket and what to watch.

    ``gave_up`` is asked while it waits for the lock. Raises ``StartRefused`` or one of its subclasses.
    """
    lock = take_lock(paths, gave_up=gave_up)
    try:
        sock = bind(paths.socket)
        # From here on clients can connect; they wait for what is loaded now.
        territory = Territory(paths, lock)
        try:
            _claim(paths, territory)
            yield sock, territory
        finally:
            territory.give_back()
            sock.close()
    finally:
        lock.release()


def _claim(paths: Paths, territory: Territory) -> None:
    if (lost := territory.lost()) is not None:
        raise StartRefused(f"{lost} was removed or belongs to another broker")
    try:
        write_pid(paths.pid)
    except StartRefused:
        # The path is only ever given back on the word of the pid file; this one was bound a moment ago, under the lock.
        paths.socket.unlink()
        raise


def _identity(path: Path) -> _Identity | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
