"""Events and the heartbeat, with the real broker and with one that falls silent."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from intercom.client import aio, blocking, control, feeds, heartbeat, recovery
from intercom.client.feeds import SessionEvent
from intercom.errors import AskTimeout, UsageError
from intercom.paths import Paths
from tests.support.brokers import BrokerProcess
from tests.support.fake_broker import FakeBroker, FakeLink
from tests.support.raw import PATIENCE_S


@pytest.fixture(params=[("asyncio", {"debug": True}), ("trio", {})], ids=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def told(event: SessionEvent) -> tuple[str, str | None]:
    """Return the kind and the name an event is about."""
    return event.kind, None if event.session is None else event.session.name


def test_others_come_change_and_go(broker: BrokerProcess) -> None:
    """Protocol 6.3: joined, presence and left as groups come to be shared and cease to be."""
    with blocking.connect("ada", home=broker.home, group="g") as ada:
        events = ada.events(timeout=PATIENCE_S)
        with blocking.connect("bob", home=broker.home, group="h", model="m") as bob:
            bob.join("g")
            assert told(next(events)) == ("joined", "bob")
            bob.set_presence(status="busy", name="rob", model="m2")
            assert (bob.status, bob.name, bob.model) == ("busy", "rob", "m2")
            changed = next(events)
            assert changed.session is not None
            assert (changed.kind, changed.session.status, changed.session.name) == ("presence", "busy", "rob")
            bob.leave("g")
            assert next(events) == SessionEvent(kind="left", session_id=bob.id)
            bob.join("g")
            assert told(next(events)) == ("joined", "rob")
            bob_id = bob.id
        assert next(events) == SessionEvent(kind="left", session_id=bob_id)
        assert list(ada.events(timeout=0.001)) == [], "a new listener begins with what happens from now on"
    with pytest.raises(UsageError, match="closed"):
        next(events)


def test_events_do_not_delay_messages(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that nobody takes are dropped and counted, and messages come all the same."""
    monkeypatch.setattr(feeds, "EVENTS_KEPT", 2)
    with blocking.connect("ada", home=broker.home) as ada:
        events = ada.events(timeout=PATIENCE_S)
        for _ in range(3):
            with blocking.connect("bob", home=broker.home):
                pass
        with blocking.connect("carl", home=broker.home) as carl, pytest.raises(AskTimeout):
            carl.ask("ada", "?", timeout=0.3)
        found = ada.receive(timeout=PATIENCE_S)
        assert found is not None
        assert found.text == "?"
        missed = next(events)
        assert missed.kind == "missed"
        assert missed.count >= 5


@pytest.mark.anyio
async def test_a_broker_that_dies_is_an_event(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "RECONNECT_DELAYS_MS", (20,))
    with anyio.fail_after(4 * PATIENCE_S):
        async with aio.connect("ada", home=paths.home) as ada:
            events = ada.events()
            async with aio.connect("bob", home=paths.home):
                assert told(await anext(events)) == ("joined", "bob")
            left = await anext(events)
            assert left.kind == "left"
            os.kill(control.broker_status(paths)["pid"], signal.SIGKILL)
            lost = await anext(events)
            assert (lost.kind, lost.reason) == ("disconnected", "The connection to the broker ended")
            assert await anext(events) == SessionEvent(kind="reconnected", session_id=ada.id)
            with anyio.move_on_after(0.01) as waited:
                await anext(events)
            assert waited.cancelled_caught
            await ada.set_presence(status="here", model="m")
            assert (ada.status, ada.model) == ("here", "m")
            async with aio.connect("carl", home=paths.home):
                assert told(await anext(events)) == ("joined", "carl")
        with pytest.raises(UsageError, match="closed"):
            await anext(events)


def falls_silent(link: FakeLink, number: int) -> None:
    """Answer the first question for health and no other; the second connection is a good one."""
    link.take_registration(brokerStatus=True)
    if number == 0:
        asked = link.expect("health")
        link.send({"type": "health", "requestId": asked["requestId"], "instanceId": "fake"})
        link.expect("health")
    link.wait_for_end()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ask soon and wait two seconds for the answer, however late the looks come."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_MS", 100)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_LOOK_MS", 400)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_LATE_MS", 60_000)
    yield


@pytest.mark.anyio
@pytest.mark.usefixtures("impatient")
async def test_a_broker_that_falls_silent_is_left(paths: Paths) -> None:
    """Protocol 4.20: a broker that does not answer is a broken connection."""
    with FakeBroker(paths.socket, falls_silent, connections=2), anyio.fail_after(2 * PATIENCE_S):
        async with aio.connect("ada", home=paths.home, start=False) as ada:
            events = ada.events()
            lost = await anext(events)
            assert lost.kind == "disconnected"
            assert lost.reason is not None
            assert "does not answer" in lost.reason
            assert (await anext(events)).kind == "reconnected"


@pytest.mark.usefixtures("impatient")
def test_a_blocking_session_leaves_it_too(paths: Paths) -> None:
    silent = FakeBroker(paths.socket, falls_silent, connections=2)
    with silent, blocking.connect("ada", home=paths.home, start=False) as ada:
        events = ada.events(timeout=PATIENCE_S)
        assert [next(events).kind, next(events).kind] == ["disconnected", "reconnected"]


def test_a_broker_that_answers_is_kept(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real broker understands the question on a registered connection."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_MS", 100)
    with blocking.connect("ada", home=broker.home) as ada:
        assert list(ada.events(timeout=1)) == []
        assert [view.name for view in ada.list()] == ["ada"]
