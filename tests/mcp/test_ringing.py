"""Which way a bell takes, and how often."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from msgspec import Raw
from msgspec.json import encode

from intercom.client.profile import Push
from intercom.client.views import IncomingMessage, view_of
from intercom.limits import BELL_CHARACTERS
from intercom.mcp import ringing
from intercom.mcp.ringing import Ringer, bell_for
from intercom.mcp.tray import Item, Tray
from tests.support.client import PEER
from tests.support.raw import PATIENCE_S

pytestmark = pytest.mark.anyio


def item(name: str = "worker", **members: Any) -> Item:
    sender = view_of(Raw(encode({**PEER, "name": name})))
    return Item(IncomingMessage(id="m1", text="secret text", sender=sender, **members), "")  # type: ignore[arg-type]


class FakeSeat:
    """Be what a ringer needs of a seat."""

    def __init__(self) -> None:
        self.takers = 0
        self.ringer: Ringer | None = None
        self.tray = Tray(self._news, lambda item: None)
        self.pushes: list[tuple[Push, str]] = []
        self.told = anyio.Event()

    def _news(self) -> None:
        if self.ringer is not None:
            self.ringer.wake()

    async def set_push(self, push: Push, way: str) -> None:
        if self.pushes[-1:] != [(push, way)]:
            self.pushes.append((push, way))
            self.told.set()


class FakeWay:
    """Be a way that is open or not, and takes bells or loses them."""

    def __init__(self, name: str, push: Push | None, *, takes: bool = True) -> None:
        self.name = name
        self.push = push
        self.takes = takes
        self.bells: list[str] = []
        self.rang = anyio.Event()

    def level(self, seat: Any) -> Push | None:
        return self.push

    async def ring(self, seat: Any, text: str) -> bool:
        self.bells.append(text)
        self.rang.set()
        return self.takes


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ringing, "BELL_PAUSE_MS", 1)


def ringer_of(*ways: FakeWay) -> tuple[FakeSeat, Ringer]:
    seat = FakeSeat()
    ringer = seat.ringer = Ringer(seat, ways, lambda: "tools")  # type: ignore[arg-type]
    return seat, ringer


async def test_the_first_way_that_is_open_counts() -> None:
    """issue: falls back in a stated order, and says which one is in use."""
    first, second = FakeWay("monitor", None), FakeWay("rewake", "idle")
    _, ringer = ringer_of(first, second)
    assert ringer.best == ("idle", "rewake")
    first.push = "now"
    assert ringer.best == ("now", "monitor")
    first.push = second.push = None
    assert ringer.best == ("pull", "tools")


async def test_a_way_that_fails_is_followed_by_the_next() -> None:
    lost, kept = FakeWay("monitor", "now", takes=False), FakeWay("inbox", "now")
    seat, ringer = ringer_of(lost, kept)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ringer.run)
            seat.tray.put(item())
            await kept.rang.wait()
            tasks.cancel_scope.cancel()
    assert len(lost.bells) == len(kept.bells) == 1


async def test_a_way_that_lost_a_bell_is_not_told_as_the_one_in_use_until_it_takes_one() -> None:
    """Issue: it says which way is in use when it falls back; protocol 15.5."""
    monitor, queue = FakeWay("monitor", "now"), FakeWay("queue", "idle")
    seat, ringer = ringer_of(monitor, queue)

    async def told_after(taken: FakeWay) -> tuple[Push, str]:
        taken.rang, seat.told = anyio.Event(), anyio.Event()
        seat.tray.put(item())
        await taken.rang.wait()
        await seat.told.wait()
        return seat.pushes[-1]

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ringer.run)
            ringer.wake()
            await seat.told.wait()
            monitor.takes = False
            assert await told_after(queue) == ("idle", "queue")
            monitor.takes = True
            assert await told_after(monitor) == ("now", "monitor")
            monitor.takes = queue.takes = False
            assert await told_after(queue) == ("pull", "tools")
            monitor.push = queue.push = None
            ringer.wake()
            await anyio.wait_all_tasks_blocked()
            monitor.takes, monitor.push, seat.told = True, "now", anyio.Event()
            ringer.wake()
            await seat.told.wait()
            assert seat.pushes[-1] == ("now", "monitor"), "one that was closed begins anew"
            tasks.cancel_scope.cancel()


async def test_an_item_is_rung_for_once_and_what_came_together_in_one_bell() -> None:
    way = FakeWay("monitor", "now")
    seat, ringer = ringer_of(way)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            seat.tray.put(item("ada"))
            seat.tray.put(item("bob"))
            tasks.start_soon(ringer.run)
            await way.rang.wait()
            way.rang = anyio.Event()
            seat.tray.put(item("cleo"))
            await way.rang.wait()
            tasks.cancel_scope.cancel()
    assert [text.split(" ")[1] for text in way.bells] == ["2", "3"]


async def test_while_nothing_is_open_nothing_is_rung_and_then_it_is() -> None:
    way = FakeWay("rewake", None)
    seat, ringer = ringer_of(way)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ringer.run)
            seat.tray.put(item())
            while seat.pushes != [("pull", "tools")]:
                await anyio.lowlevel.checkpoint()
            assert way.bells == []
            way.push = "idle"
            ringer.wake()
            await way.rang.wait()
            assert seat.pushes == [("pull", "tools"), ("idle", "rewake")]
            tasks.cancel_scope.cancel()


async def test_a_tool_that_waits_needs_no_bell() -> None:
    way = FakeWay("monitor", "now")
    seat, ringer = ringer_of(way)
    seat.takers = 1
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ringer.run)
            seat.tray.put(item())
            while not seat.pushes:
                await anyio.lowlevel.checkpoint()
            assert way.bells == []
            seat.takers = 0
            ringer.wake()
            await way.rang.wait()
            tasks.cancel_scope.cancel()


def test_a_bell_says_who_and_never_what() -> None:
    text = bell_for([item("ada"), item("bob", expects_reply=True)])
    assert text.startswith(
        "intercom: 2 messages from other agent sessions (ada (b1111111), bob (b1111111)), a question"
    )
    assert "receive" in text
    assert "secret" not in text
    assert "your user did not write this" in text


def test_a_bell_is_one_short_line_whatever_names_there_are() -> None:
    """spec: hosts 3.3: cut at 500 characters; F110."""
    text = bell_for([item("\x1b[2J" * 20 + str(number)) for number in range(9)])
    assert len(text) <= BELL_CHARACTERS
    assert text.isprintable()
    assert bell_for([Item(None, "x")]).startswith("intercom: 1 message from other agent sessions (intercom)")


def test_notices_are_of_intercom_itself() -> None:
    notice: Any = SimpleNamespace(kind="expired")
    assert "(intercom)" in bell_for([item(notice=notice)])
