"""Absent, busy, denied: which is which (F26, F27)."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from intercom.client.dialing import dial, not_answering, told
from intercom.errors import AccessDenied, BrokerBusy, HomeError, IntercomError, NoBroker
from intercom.paths import Paths


@pytest.fixture
def paths(short_path: Path) -> Paths:
    return Paths(short_path)


@pytest.fixture
def listener(paths: Paths) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(paths.socket))
        listening.listen(0)
        yield listening


class Refusing(socket.socket):
    """Fail to connect with ``error``."""

    error = 0

    def connect(self, address: object) -> None:
        raise OSError(self.error, os.strerror(self.error))


def test_a_connection_does_not_block_and_is_closed_on_exec(paths: Paths, listener: socket.socket) -> None:
    """F14, F29: no descriptor of ours reaches a process we start."""
    with dial(paths) as link:
        assert not link.getblocking()
        assert not link.get_inheritable()


def test_a_missing_socket_means_that_nobody_is_there(paths: Paths) -> None:
    with pytest.raises(NoBroker, match=r"broker\.sock"):
        dial(paths)


def test_a_missing_home_means_that_nobody_is_there(short_path: Path) -> None:
    with pytest.raises(NoBroker):
        dial(Paths(short_path / "missing"))


def test_a_socket_nobody_listens_on_is_stale(paths: Paths, listener: socket.socket) -> None:
    listener.close()
    with pytest.raises(NoBroker):
        dial(paths)


def test_a_full_backlog_is_busy(paths: Paths, listener: socket.socket) -> None:
    """F26: EAGAIN means alive."""
    waiting: list[socket.socket] = []
    try:
        with pytest.raises(BrokerBusy):
            waiting.extend(dial(paths) for _ in range(10))
    finally:
        for link in waiting:
            link.close()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_denial_is_a_denial(
    paths: Paths, listener: socket.socket, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """F27: the path is printed; nothing else is concluded."""
    monkeypatch.setattr(Refusing, "error", number)
    monkeypatch.setattr(socket, "socket", Refusing)
    with pytest.raises(AccessDenied, match=str(paths.socket)):
        dial(paths)


def test_a_socket_that_is_there_and_is_called_missing_is_denied(
    paths: Paths, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F26: ENOENT for a path that lstat sees is a denial."""
    monkeypatch.setattr(Refusing, "error", errno.ENOENT)
    monkeypatch.setattr(socket, "socket", Refusing)
    with pytest.raises(AccessDenied):
        dial(paths)


def test_no_sockets_at_all_is_denied(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F136: a sandbox may forbid the call itself."""

    def refuse(*arguments: object) -> socket.socket:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", refuse)
    with pytest.raises(AccessDenied):
        dial(paths)


def test_a_home_others_can_write_to_is_not_trusted(paths: Paths, listener: socket.socket) -> None:
    paths.home.chmod(0o777)
    with pytest.raises(HomeError):
        dial(paths)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOENT, NoBroker),
        (errno.ECONNREFUSED, NoBroker),
        (errno.EAGAIN, BrokerBusy),
        (errno.ETIMEDOUT, BrokerBusy),
        (errno.EPERM, AccessDenied),
        (errno.EACCES, AccessDenied),
        (errno.ENAMETOOLONG, HomeError),
        (errno.EPROTOTYPE, HomeError),
    ],
)
def test_every_error_has_its_meaning(paths: Paths, number: int, kind: type[IntercomError]) -> None:
    error = told(OSError(number, os.strerror(number)), paths)
    assert type(error) is kind
    assert str(paths.socket) in error.reason


@pytest.mark.parametrize(("record", "named"), [("4242", "pid 4242"), ("garbage", ""), ("", ""), (None, "")])
def test_a_silent_broker_is_named_by_its_process(paths: Paths, record: str | None, named: str) -> None:
    """F6: "broker pid N is not responding"; F11: a record that is none says nothing."""
    if record is not None:
        paths.pid.write_text(record)
    reason = not_answering(paths).reason
    assert named in reason
    assert ("pid" in reason) == bool(named)
