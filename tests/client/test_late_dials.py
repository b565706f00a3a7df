"""Both engines, when a connection comes after its time or after nobody wants it any more (FE 4.3)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from intercom.client import aio, aio_engine, blocking, blocking_engine, setup
from intercom.client.launch import Steps
from intercom.errors import BrokerBusy
from intercom.limits import STARTING_MS
from intercom.paths import Paths
from tests.support.client import GRANTED
from tests.support.fake_broker import FakeBroker, FakeLink
from tests.support.raw import PATIENCE_S


@pytest.fixture(params=[("asyncio", {"debug": True}), ("trio", {})], ids=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


class SlowDials:
    """Let the first dial of an engine take longer than it may; the clock jumps, nobody waits."""

    def __init__(self, paths: Paths, monkeypatch: pytest.MonkeyPatch, engine: Any) -> None:
        self._ahead = 0
        self.paths = paths
        self.late: list[socket.socket] = []
        """The ends of the others, of connections that came too late."""
        self.dials = 0
        monkeypatch.setattr(engine, "now", self.now)
        monkeypatch.setattr(setup.Setup, "launch", lambda _: self)
        self.standing = BrokerBusy("it takes its time")

    def now(self) -> int:
        return setup.now() + self._ahead

    def steps(self) -> Steps:
        self.dials += 1
        yield 0.0
        if self.dials == 1:
            self._ahead += STARTING_MS
            ours, theirs = socket.socketpair()
            theirs.setblocking(False)
            self.late.append(theirs)
            return ours
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.connect(str(self.paths.socket))
        link.setblocking(False)
        return link

    def close(self) -> None:
        for late in self.late:
            late.close()

    def check(self) -> None:
        """Nothing was said on the late one, and it is closed."""
        [late] = self.late
        assert late.recv(1) == b"", "closed within the turn in which it came, without a word"
        assert self.dials == 2


@pytest.fixture
def slow(paths: Paths, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[SlowDials]:
    dials = SlowDials(paths, monkeypatch, request.param)
    yield dials
    dials.close()


def serves(link: FakeLink, number: int) -> None:
    link.take_registration(**GRANTED)
    link.wait_for_end()


@pytest.mark.parametrize("slow", [blocking_engine], indirect=True)
def test_a_dial_that_connects_after_its_deadline(slow: SlowDials) -> None:
    """A4.6: closed, nothing said, no error; the next attempt counts."""
    with (
        FakeBroker(slow.paths.socket, serves),
        blocking.connect("ada", home=slow.paths.home, start=False, timeout=3 * STARTING_MS / 1000),
    ):
        slow.check()


@pytest.mark.anyio
@pytest.mark.parametrize("slow", [aio_engine], indirect=True)
async def test_a_dial_under_anyio_that_connects_after_its_deadline(slow: SlowDials) -> None:
    """A4.6"""
    with FakeBroker(slow.paths.socket, serves), anyio.fail_after(PATIENCE_S):
        async with aio.connect("ada", home=slow.paths.home, start=False, timeout=3 * STARTING_MS / 1000):
            slow.check()


@pytest.mark.anyio
async def test_a_dial_that_is_cancelled(paths: Paths, anyio_backend: Any) -> None:
    """A4.6: the same for a cancel: what was connected and not answered yet is given up with a goodbye, and closed."""
    asked = anyio.Event()
    said: list[dict[str, Any]] = []

    def silent(link: FakeLink, number: int) -> None:
        said.append(link.receive())
        anyio.from_thread.run_sync(asked.set, token=token)
        said.extend(link.wait_for_end())

    token = anyio.lowlevel.current_token()
    with FakeBroker(paths.socket, silent), anyio.fail_after(PATIENCE_S):  # leaving it waits for the end
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_connect_for_ever, paths)
            await asked.wait()
            tasks.cancel_scope.cancel()
    assert [frame["type"] for frame in said] == ["register", "unregister"]


async def _connect_for_ever(paths: Paths) -> None:
    async with aio.connect("ada", home=paths.home, start=False, timeout=PATIENCE_S):
        await anyio.sleep_forever()
