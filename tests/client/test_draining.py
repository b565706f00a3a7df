"""Test that a session can wait until what it has said has arrived (FE 4.4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import Raw

from intercom.client import aio, aio_engine, blocking, blocking_engine
from intercom.client.journalfile import JournalFile
from intercom.client.operations import Operation
from intercom.client.sending import SendOperation
from intercom.client.session import Settled
from intercom.client.views import Receipt
from intercom.errors import HomeError, RequestRefused, RequestTimeout, SendError
from tests.client.test_durable import LinkRig, refuse
from tests.support.brokers import BrokerProcess
from tests.support.orders import interleavings
from tests.support.raw import PATIENCE_S


@pytest.fixture(params=[("asyncio", {"debug": True}), ("trio", {})], ids=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


class Drained(LinkRig):
    """Hold a durable session with two events under way and a send that the broker holds."""

    def __init__(self) -> None:
        super().__init__()
        self.online()
        ready = self.begin()
        self.confirm(ready)
        self.written()
        self.durable.report("one", {})
        self.durable.report("two", {})
        body = Raw(b'{"id":"m1","timestamp":1,"content":{"text":"x"}}')
        self.sending: SendOperation[Receipt] = SendOperation("m1", "child", body, deadline=self.now + 600_000)
        self.core.begin(self.sending, self.now)
        [sent] = [frame for frame in self.written() if frame["type"] == "send"]
        self.sent = {"messageId": sent["message"]["id"], "attemptId": sent["attemptId"]}
        self.feed({"type": "send_held", **self.sent, "timeoutMs": 60_000})
        self.core.held.keep(self.sending)

    def drain(self, timeout_ms: int | None = None) -> Operation[None]:
        operation = self.core.draining(timeout_ms)
        self.core.begin(operation, self.now)
        return operation

    def apply(self, event: str) -> None:
        acts = {
            "ack one": lambda: self.ack(1),
            "ack two": lambda: self.ack(2),
            "delivered": lambda: self.feed({"type": "delivered", **self.sent}),
            "failed": lambda: self.feed({"type": "delivery_failed", **self.sent, "reason": "Invalid message format"}),
            "refused": lambda: refuse(self, None),
        }
        acts[event]()


@pytest.mark.parametrize("last", ["delivered", "failed"])
@pytest.mark.parametrize("link", [("ack one", "ack two"), ("ack one", "refused"), ("refused",)])
def test_every_order_in_which_the_parts_end(link: tuple[str, ...], last: str) -> None:
    """A4.13: everything is awaited; none went wrong, one did, or both are told together."""
    for order in interleavings(link, (last,), ("drain",)):
        rig = Drained()
        operation: Operation[None] | None = None
        wrong = [event for event in order if event in ("failed", "refused")]
        for place, event in enumerate(order):
            if event == "drain":
                operation = rig.drain()
            else:
                rig.apply(event)
            if operation is not None:
                assert operation.done is (set(order) - set(order[: place + 1]) <= {"ack one"} - {*link[-1:]}), order
        assert operation is not None
        before = order[: order.index("drain")]
        told = [event for event in wrong if event != "failed" or "failed" not in before]
        if not told:
            assert operation.error is None
        elif len(told) == 2:
            assert isinstance(operation.error, ExceptionGroup)
            assert [type(error) for error in operation.error.exceptions] == [type(rig.sending.error), RequestRefused]
        else:
            assert isinstance(operation.error, SendError if told == ["failed"] else RequestRefused)
        assert any(isinstance(event, Settled) and event.operation is operation for event in rig.core.events())


def test_when_the_time_is_up_it_is_said_what_is_left() -> None:
    rig = Drained()
    operation = rig.drain(5_000)
    rig.apply("ack one")
    rig.now += 5_000
    rig.core.tick(rig.now)
    assert isinstance(operation.error, RequestTimeout)
    assert "events not on the broker's disk: 1, messages the broker holds: 1" in operation.error.reason
    rig.apply("ack two")
    rig.apply("delivered")
    assert isinstance(operation.error, RequestTimeout), "it has ended"


def test_a_journal_that_cannot_be_written_ends_the_wait() -> None:
    rig = Drained()
    rig.apply("delivered")
    operation = rig.drain()
    rig.journal.is_full = True
    rig.command()
    assert isinstance(operation.error, HomeError)


def test_a_caller_that_has_gone_is_told_nothing() -> None:
    rig = Drained()
    operation = rig.drain()
    rig.core.withdraw(operation, rig.now)
    rig.apply("ack two")
    rig.apply("delivered")
    assert operation.done


def stored(home: Path) -> int:
    with blocking.connect(purpose="control", home=home, start=False) as person:
        [link] = person.links()
        return link.event_floor


def test_with_nothing_but_calls(broker: BrokerProcess) -> None:
    with blocking.connect("w", address=True, durable=True, home=broker.home, start=False) as worker:
        worker.drain()
        for number in range(200):
            worker.report_event("x", {"n": number})
        worker.drain(timeout=PATIENCE_S)
        assert (worker.unstored_events, stored(broker.home)) == (0, 200)
    with blocking.connect("p", home=broker.home, start=False) as plain:
        plain.drain(timeout=PATIENCE_S)


@pytest.mark.anyio
async def test_under_anyio(broker: BrokerProcess, anyio_backend: Any) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with aio.connect("w", address=True, durable=True, home=broker.home, start=False) as worker:
            await worker.report_event("x")
            await worker.drain()
            assert worker.unstored_events == 0


def test_over_a_broker_that_dies(broker: BrokerProcess) -> None:
    """It goes on with the next broker; here nobody starts one, and what is left is said."""
    with blocking.connect("w", address=True, durable=True, home=broker.home, start=False) as worker:
        broker.kill()
        worker.report_event("x")
        with pytest.raises(RequestTimeout, match="broker's disk: 1,"):
            worker.drain(timeout=0.3)
        assert worker.unstored_events == 1


# --- the end of a session -------------------------------------------------------------------------------


def test_the_journal_is_let_go_of_last(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """A4.13: ownership is released when everything has ended, the goodbye too."""
    log: list[str] = []
    say_goodbye, close = blocking_engine.Engine._say_goodbye, JournalFile.close

    def said(engine: blocking_engine.Engine, *arguments: Any) -> None:
        say_goodbye(engine, *arguments)
        log.append("goodbye")

    def closed(journal: JournalFile) -> None:
        close(journal)
        log.append("journal")

    monkeypatch.setattr(blocking_engine.Engine, "_say_goodbye", said)
    monkeypatch.setattr(JournalFile, "close", closed)
    with blocking.connect("w", address=True, durable=True, home=broker.home, start=False):
        assert log == []
    assert log == ["goodbye", "journal"]
    with blocking.connect("w", address=True, durable=True, home=broker.home, start=False):
        pass


@pytest.mark.anyio
@pytest.mark.parametrize("fails", [("closing",), ("running",), ("closing", "running")])
async def test_everything_that_goes_wrong_at_the_end_is_told(
    broker: BrokerProcess, anyio_backend: Any, monkeypatch: pytest.MonkeyPatch, fails: tuple[str, ...]
) -> None:
    """A4.13: one error, or both combined; the session has ended all the same."""
    close, run = aio_engine.Engine.close, aio_engine.Engine.run

    async def closing(engine: aio_engine.Engine, *, finished: bool) -> None:
        await close(engine, finished=finished)
        if "closing" in fails:
            raise ValueError("closing")

    async def running(engine: aio_engine.Engine) -> None:
        await run(engine)
        if "running" in fails:
            raise KeyError("running")

    monkeypatch.setattr(aio_engine.Engine, "close", closing)
    monkeypatch.setattr(aio_engine.Engine, "run", running)
    with anyio.fail_after(PATIENCE_S), pytest.raises((ValueError, ExceptionGroup)) as caught:
        async with aio.connect("w", address=True, durable=True, home=broker.home, start=False):
            pass
    told = repr(caught.value.exceptions if isinstance(caught.value, ExceptionGroup) else caught.value)
    assert ["closing" in told, "running" in told] == ["closing" in fails, "running" in fails]
    monkeypatch.undo()
    async with aio.connect("w", address=True, durable=True, home=broker.home, start=False):
        pass
