"""Asking a broker about itself: three ways not to get an answer, and nothing is ever started."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from intercom.client import control
from intercom.errors import (
    AccessDenied,
    BrokerBusy,
    ConnectionLost,
    IntercomError,
    NoBroker,
    ProtocolViolation,
    UsageError,
)
from intercom.limits import CONTROL_TALKS
from intercom.paths import Paths
from tests.support.brokers import BrokerProcess
from tests.support.fake_broker import FakeBroker, FakeLink
from tests.support.raw import packed

CALLS: list[Callable[[Paths], object]] = [
    lambda paths: control.health(paths, timeout=0.3),
    lambda paths: control.broker_status(paths, timeout=0.3),
    lambda paths: control.shutdown(paths, timeout=0.3),
]
every_call = pytest.mark.parametrize("call", CALLS, ids=["health", "status", "shutdown"])


def test_a_real_broker(broker: BrokerProcess) -> None:
    """Protocol 8.10."""
    paths = Paths(broker.home)
    assert control.health(paths) == control.health(paths)
    report = control.broker_status(paths)
    assert (report["pid"], report["sessions"]) == (broker.pid, 0)
    control.shutdown(paths)
    assert broker.wait() == 0
    with pytest.raises(NoBroker):
        control.health(paths)


@every_call
def test_no_broker(paths: Paths, call: Callable[[Paths], object]) -> None:
    """F130: looking starts nothing and creates nothing."""
    with pytest.raises(NoBroker):
        call(paths)
    assert not paths.home.exists()


@every_call
def test_a_stopped_broker_is_busy(broker: BrokerProcess, call: Callable[[Paths], object]) -> None:
    """F6: SIGSTOP: not responding, with its pid, within the deadline; SIGCONT: the next call works."""
    broker.signal(signal.SIGSTOP)
    started = time.monotonic()
    try:
        with pytest.raises(BrokerBusy, match=f"pid {broker.pid}"):
            call(Paths(broker.home))
    finally:
        broker.signal(signal.SIGCONT)
    assert time.monotonic() - started < 5
    assert broker.process.poll() is None


@every_call
def test_a_full_backlog_is_busy(paths: Paths, call: Callable[[Paths], object]) -> None:
    """F26."""
    paths.home.mkdir(mode=0o700)
    waiting = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(paths.socket))
        listener.listen(0)
        try:
            while True:
                link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                waiting.append(link)
                link.setblocking(False)
                link.connect(str(paths.socket))
        except BlockingIOError:
            with pytest.raises(BrokerBusy):
                call(paths)
        finally:
            for link in waiting:
                link.close()


def test_denied(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F27."""

    def refuse(*arguments: object) -> socket.socket:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", refuse)
    with pytest.raises(AccessDenied):
        control.health(paths)


def test_writing_may_be_forbidden(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """F136: a filter on system calls."""
    with FakeBroker(paths.socket, lambda link, number: None):

        def refuse(descriptor: int, data: bytes) -> int:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "write", refuse)
        with pytest.raises(AccessDenied):
            control.health(paths)


def nothing(link: FakeLink, number: int) -> None:
    link.receive()


def garbage(link: FakeLink, number: int) -> None:
    link.receive()
    link.send_bytes(b"HTTP/1.1 400 Bad Request\r\n")


def wrong_kind(link: FakeLink, number: int) -> None:
    link.receive()
    link.send({"type": "surprise"})


@pytest.mark.parametrize(
    ("script", "kind", "connections"),
    [(nothing, ConnectionLost, CONTROL_TALKS), (garbage, ProtocolViolation, 1), (wrong_kind, ProtocolViolation, 1)],
)
def test_odd_brokers(
    paths: Paths, script: Callable[[FakeLink, int], None], kind: type[IntercomError], connections: int
) -> None:
    with FakeBroker(paths.socket, script, connections=connections), pytest.raises(kind):
        control.health(paths)


@pytest.mark.parametrize("call", CALLS[:2], ids=["health", "status"])
def test_a_broker_that_leaves_at_this_moment_is_no_broker(paths: Paths, call: Callable[[Paths], object]) -> None:
    """F130: its last connection ends without an answer; that says nothing to a user, the next look does."""

    def leave(link: FakeLink, number: int) -> None:
        link.receive()
        paths.socket.unlink()

    with FakeBroker(paths.socket, leave), pytest.raises(NoBroker):
        call(paths)


def test_other_frames_are_passed_over_and_pieces_are_joined(paths: Paths) -> None:
    """F40."""

    def script(link: FakeLink, number: int) -> None:
        request = link.receive()
        answer = packed({"type": "health", "requestId": request["requestId"], "instanceId": "ü"})
        link.send({"type": "health", "requestId": "other", "instanceId": "x"})
        for place in range(len(answer)):
            link.send_bytes(answer[place : place + 1])

    with FakeBroker(paths.socket, script):
        assert control.health(paths) == "ü"


def test_a_shutdown_that_was_acknowledged_is_done_however_the_connection_ends(paths: Paths) -> None:
    def script(link: FakeLink, number: int) -> None:
        request = link.receive()
        assert request["type"] == "shutdown"
        link.send({"type": "shutdown_ack", "requestId": request["requestId"]})
        link.wait_for_end()

    with FakeBroker(paths.socket, script):
        control.shutdown(paths, timeout=0.3)


def test_a_wrong_timeout(short_path: Path) -> None:
    with pytest.raises(UsageError):
        control.health(Paths(short_path), timeout=0)
