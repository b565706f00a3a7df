"""Test what one session of a host holds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from intercom.mcp import door
from intercom.mcp.seat import Place, Seat
from intercom.mcp.tray import Item
from intercom.paths import Paths

pytestmark = pytest.mark.anyio


def question(message_id: str) -> Any:
    sender = SimpleNamespace(id="s", name="ada")
    return SimpleNamespace(id=message_id, expects_reply=True, reply_to=None, notice=None, sender=sender)


class Broker:
    """Say which questions are open, and let another one come meanwhile."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self.open = ["open"]

    async def pending(self) -> list[Any]:
        answer = [SimpleNamespace(message_id=message_id) for message_id in self.open]
        receive(self._seat, "late")
        return answer


def receive(seat: Seat, message_id: str) -> None:
    seat.questions[message_id] = question(message_id)
    seat.tray.put(Item(question(message_id), ""))


@pytest.fixture
def seat(tmp_path: Path) -> Seat:
    tasks: Any = None
    seat = Seat(Place(None, "bob", "mcp", (), Paths(tmp_path), "/w"), tasks, lambda seat: None)
    session: Any = Broker(seat)
    seat._session = session
    return seat


async def test_a_question_that_comes_while_the_broker_is_asked_is_not_lost(seat: Seat) -> None:
    """Hosts: what was received is shown, though the broker's list of open questions was written before it came."""
    receive(seat, "open")
    receive(seat, "over")
    await seat.drop_closed(seat._session)  # type: ignore[arg-type]
    assert list(seat.questions) == ["open", "late"]
    assert [item.message.id for item in seat.tray if item.message is not None] == ["open", "late"]


async def test_nobody_is_reminded_of_a_question_before_it_was_shown(seat: Seat) -> None:
    seat.questions["open"] = question("open")
    assert await door.owed_by(seat) == ["open"]
    assert "late" in seat.questions
