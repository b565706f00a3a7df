from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import intercom.server.listener as listener_module
from intercom.core.connections import PeerCredentials
from intercom.limits import ACCEPT_PAUSE_MS
from intercom.server.listener import Listener, peer_of
from intercom.server.processes import start_of
from tests.support.loops import HandLoop
from tests.support.processes import OTHER_USER, in_child, needs_root

PAUSE_S = ACCEPT_PAUSE_MS / 1000


class Lines:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def write(self, event: str, **members: Any) -> None:
        self.lines.append((event, members))


class Short:
    """Wrap a listening socket that fails as the kernel does when descriptors are short."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.errors: list[int] = []

    def accept(self) -> Any:
        if self.errors:
            raise OSError(self.errors[0], os.strerror(self.errors.pop(0)))
        return self.sock.accept()

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        self.sock.close()


class Stage:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.loop, self.log = HandLoop(), Lines()
        self.accepted: list[tuple[socket.socket, PeerCredentials]] = []
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(str(path))
        sock.listen(200)
        sock.setblocking(False)
        self.sock = Short(sock)
        self.clients: list[socket.socket] = []
        self.listener = Listener(
            cast(Any, self.sock),
            cast(Any, self.loop),
            cast(Any, self.log),
            lambda sock, peer: self.accepted.append((sock, peer)),
        )

    def connect(self, count: int = 1) -> socket.socket:
        for _ in range(count):
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(5)
            client.connect(str(self.path))
            self.clients.append(client)
        return self.clients[-1]

    def close(self) -> None:
        self.listener.close()
        for sock in [*self.clients, *(sock for sock, _ in self.accepted)]:
            sock.close()


@pytest.fixture
def stage(short_path: Path) -> Iterator[Stage]:
    stage = Stage(short_path / "s")
    yield stage
    stage.close()


def test_it_hands_on_each_connection_with_what_the_kernel_says(stage: Stage) -> None:
    stage.connect(3)
    stage.loop.settle()
    me = PeerCredentials(os.getpid(), os.getuid(), os.getgid(), start_of(os.getpid()))
    assert [peer for _, peer in stage.accepted] == [me] * 3


def test_more_connections_than_a_batch_are_all_accepted(stage: Stage) -> None:
    """F26."""
    stage.connect(150)
    stage.loop.settle()
    assert len(stage.accepted) == 150


def test_accepted_sockets_are_not_inherited(stage: Stage) -> None:
    """F29, F13."""
    stage.connect()
    stage.loop.settle()
    assert not stage.accepted[0][0].get_inheritable()


def test_another_user_is_turned_away_unread(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """F107; root is another user too."""
    for uid in (os.geteuid() + 1, 0 if os.geteuid() else 1):
        monkeypatch.setattr(listener_module, "peer_of", lambda sock, uid=uid: PeerCredentials(1, uid, 1))
        client = stage.connect()
        stage.loop.settle()
        assert client.recv(1) == b""
        assert stage.log.lines.pop()[1]["uid"] == uid
    assert stage.accepted == []


@needs_root
def test_the_kernel_tells_another_user_apart(stage: Stage) -> None:
    """F107."""
    os.chmod(stage.path.parent, 0o755)
    os.chmod(stage.path, 0o777)

    def connect() -> int:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(stage.path))
        return os.getpid()

    child = in_child(connect, user=OTHER_USER)
    sock, _ = stage.sock.sock.accept()
    assert peer_of(sock) == PeerCredentials(child, OTHER_USER, OTHER_USER)
    sock.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_out_of_descriptors_one_is_turned_away_and_the_others_wait(stage: Stage, number: int) -> None:
    """F114."""
    first, second = stage.connect(), stage.connect()
    stage.sock.errors = [number]
    stage.loop.settle()
    assert first.recv(1) == b"", "it is told at once"
    assert stage.accepted == [] and stage.loop.readers == {}, "no spinning"
    assert [event for event, _ in stage.log.lines] == ["accept_failed"]
    stage.loop.advance(PAUSE_S)
    stage.loop.settle()
    assert len(stage.accepted) == 1
    second.send(b"x")
    assert stage.accepted[0][0].recv(1) == b"x"


def test_a_shortage_that_lasts_is_tried_again_and_again(stage: Stage) -> None:
    """F114: it recovers alone."""
    stage.connect(2)
    for _ in range(10):
        stage.sock.errors = [errno.EMFILE, errno.EMFILE]
        stage.loop.settle()
        stage.loop.advance(PAUSE_S)
    stage.sock.errors = []
    stage.loop.settle()
    assert len(stage.accepted) == 2


def test_other_errors_pause_without_turning_anybody_away(stage: Stage) -> None:
    stage.connect()
    stage.sock.errors = [errno.EPERM]
    stage.loop.settle()
    assert stage.accepted == []
    stage.loop.advance(PAUSE_S)
    stage.loop.settle()
    assert len(stage.accepted) == 1


def test_a_connection_aborted_before_it_was_accepted_is_passed_over(stage: Stage) -> None:
    stage.connect()
    stage.sock.errors = [errno.ECONNABORTED]
    stage.loop.settle()
    assert len(stage.accepted) == 1 and stage.log.lines == []


def test_after_stop_and_close_nothing_is_left(stage: Stage) -> None:
    stage.listener.stop()
    stage.connect()
    stage.loop.settle()
    assert stage.accepted == []
    stage.listener.close()
    stage.listener.close()
    assert stage.loop.readers == {} and stage.loop.timers == []


def test_stop_during_a_pause_ends_the_pause(stage: Stage) -> None:
    stage.connect()
    stage.sock.errors = [errno.EMFILE]
    stage.loop.settle()
    stage.listener.stop()
    assert stage.loop.timers == [] and stage.loop.readers == {}
