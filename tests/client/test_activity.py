"""Idle and busy: what is announced, that nobody is waited for, and that the time survives."""

from __future__ import annotations

import os
import signal
import time

import anyio
import pytest

from intercom.client import aio, blocking
from intercom.client.activity import Activity
from intercom.errors import UsageError
from tests.support.brokers import BrokerProcess
from tests.support.processes import in_child
from tests.support.raw import PATIENCE_S


@pytest.fixture(params=[("asyncio", {"debug": True}), ("trio", {})], ids=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


def test_what_began_last_counts_and_the_end_is_idle() -> None:
    said: list[str] = []
    activity = Activity(said.append)
    with activity.busy(""):
        with activity.busy("reviewing"):
            pass
        with pytest.raises(ZeroDivisionError), activity.busy("reviewing"):
            raise ZeroDivisionError
    assert said == ["busy", "busy: reviewing", "busy", "busy: reviewing", "busy", "idle"]


def test_blocks_that_overlap() -> None:
    said: list[str] = []
    activity = Activity(said.append)
    first, second = activity.busy("a"), activity.busy("b")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert said == ["busy: a", "busy: b"], "the end of what is not shown changes nothing"
    second.__exit__(None, None, None)
    assert said[2:] == ["idle"]


def test_what_cannot_be_said_leaves_nothing_behind() -> None:
    """A text that is none is refused before, and a session that may not speak is not busy."""
    said: list[str] = []

    def tell(status: str) -> None:
        if status != "idle":
            raise UsageError("not now")
        said.append(status)

    activity = Activity(tell)
    with pytest.raises(UsageError), activity.busy("a"):
        raise AssertionError
    with pytest.raises(UsageError), activity.busy(3):  # type: ignore[arg-type]
        raise AssertionError
    assert said == ["idle"]


# --- with a broker


def seen(watcher: blocking.Session, name: str) -> tuple[str | None, float]:
    """Return status and ``lastActivity`` of a session as somebody else sees it."""
    [found] = [view for view in watcher.list() if view.name == name]
    return found.status, found.last_activity


def until(watcher: blocking.Session, name: str, status: str) -> float:
    """Return since when the session has that status, once it has."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            found, since = seen(watcher, name)
        except ValueError:  # it is not back yet
            found, since = None, 0
        if found == status:
            return since
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_busy_for_the_length_of_a_block(broker: BrokerProcess) -> None:
    with blocking.connect("worker", home=broker.home) as worker, blocking.connect(home=broker.home) as watcher:
        with worker.busy("reviewing"):
            assert worker.status == "busy: reviewing"
            until(watcher, "worker", "busy: reviewing")
        until(watcher, "worker", "idle")
        in_child(lambda: leave_in_child(worker))
        assert worker.status == "idle"
        block = worker.busy()
        block.__enter__()
    block.__exit__(None, None, None)


def leave_in_child(session: blocking.Session) -> None:
    """A forked child may not speak for its parent."""
    with pytest.raises(UsageError), session.busy():
        raise AssertionError


def test_since_when_outlives_the_broker(broker: BrokerProcess) -> None:
    """A session that is busy while brokers come and go is busy since it began."""
    with blocking.connect("worker", home=broker.home) as worker, blocking.connect(home=broker.home) as watcher:
        worker.announce("busy")
        since = until(watcher, "worker", "busy")
        os.kill(broker.pid, signal.SIGKILL)
        broker.wait()
        began = time.monotonic()
        worker.announce("still busy")
        assert time.monotonic() - began < PATIENCE_S / 2, "a broker that is gone is not waited for"
        worker.list()
        again = until(watcher, "worker", "still busy")
        assert again >= since
        with blocking.connect("late", home=broker.home) as late:
            assert until(late, "worker", "still busy") == again


@pytest.mark.anyio
async def test_it_is_the_same_under_an_event_loop(broker: BrokerProcess) -> None:
    async with aio.connect("worker", home=broker.home) as worker, aio.connect(home=broker.home) as watcher:
        with anyio.fail_after(PATIENCE_S):
            events = watcher.events()
            with worker.busy("reading"):
                assert (await events.__anext__()).session.status == "busy: reading"  # type: ignore[union-attr]
            assert (await events.__anext__()).session.status == "idle"  # type: ignore[union-attr]
        with pytest.raises(UsageError):
            worker.announce(3)  # type: ignore[arg-type]
        with pytest.raises(UsageError), worker.busy("x" * 4_096):
            raise AssertionError
        assert worker.status == "idle"
