"""Let a host know that something waits, by the best way it has.

A bell says who sent something, not what: the model reads it with a tool, or a hook puts it before the model. So a bell
that gets lost on its way through a host loses nothing. Ways are tried in a fixed order; the best one that can be used
now is what others are told of this session (``push`` and ``pushWay``). A way that lost a bell does not count until it
takes one again.

    host          ways, best first
    Claude Code   monitor (now), rewake hook while it waits (idle), the host's inbox socket (now)
    Codex CLI     the queue of its daemon (idle)
    OpenCode      its plugin (now)
    every host    hooks (pull), tools (pull)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import anyio

from intercom.client.profile import Push
from intercom.client.texts import clipped, visible, who
from intercom.limits import BELL_CHARACTERS, BELL_NAMES, BELL_PAUSE_MS
from intercom.mcp.seat import Seat
from intercom.mcp.tray import Item


class Way(Protocol):
    """Be one way to reach a host."""

    name: str

    def level(self, seat: Seat) -> Push | None:
        """Return how well the host of this seat can be reached by it now; ``None`` for not at all."""

    async def ring(self, seat: Seat, text: str) -> bool:
        """Hand a bell over; tell whether the host took it."""


class Ringer:
    """Ring for one seat, in a task of its own: not too often, and for each item once."""

    def __init__(self, seat: Seat, ways: Sequence[Way], unrung: Callable[[], str]) -> None:
        """Begin with ``ways``, best first; ``unrung`` names by what the model sees messages when none of them works."""
        self._seat = seat
        self._ways = ways
        self._unrung = unrung
        self._woken = anyio.Event()
        self._lost: set[Way] = set()
        """Ways that are open, and lost the last bell."""

    @property
    def best(self) -> tuple[Push, str]:
        """Return how the host can be reached now, and by what."""
        open_ways = ((way, level) for way in self._ways if (level := way.level(self._seat)) is not None)
        return next(((level, way.name) for way, level in open_ways if way not in self._lost), ("pull", self._unrung()))

    def wake(self) -> None:
        """Look again: something came, or a way opened or closed."""
        self._woken.set()

    async def run(self) -> None:
        """Ring for ever."""
        while True:
            await self._woken.wait()
            self._woken = anyio.Event()
            self._lost = {way for way in self._lost if way.level(self._seat) is not None}
            await self._seat.set_push(*self.best)
            items = self._due()
            if not items:
                continue
            was_taken = await self._ring(items)
            await self._seat.set_push(*self.best)
            if was_taken:
                await anyio.sleep(BELL_PAUSE_MS / 1000)
                self._woken.set()

    def _due(self) -> list[Item]:
        if self._seat.takers:
            return []
        return [item for item in self._seat.tray if item.bells == 0]

    async def _ring(self, items: list[Item]) -> bool:
        text = bell_for(list(self._seat.tray))
        for way in self._ways:
            if way.level(self._seat) is None:
                continue
            if not await way.ring(self._seat, text):
                self._lost.add(way)
                continue
            self._lost.discard(way)
            for item in items:
                item.bells += 1
            return True
        return False


def bell_for(items: Sequence[Item]) -> str:
    """Return what a host is told: how much waits, of whom, and what to do."""
    names = list(dict.fromkeys(_sender(item) for item in items))
    shown = ", ".join(names[:BELL_NAMES]) + (f" and {len(names) - BELL_NAMES} more" if len(names) > BELL_NAMES else "")
    questions = sum(item.is_question for item in items)
    much = f"{len(items)} message{'s' if len(items) > 1 else ''}"
    asked = ""
    if questions:
        asked = ", a question among them" if len(items) > 1 else ", a question: the sender waits for your answer"
    end = "Read with the intercom tool receive. (Automatic notice; your user did not write this.)"
    text = f"intercom: {much} from other agent sessions ({shown}){asked}. {end}"
    return text if len(text) <= BELL_CHARACTERS else f"intercom: {much} waiting. {end}"


def _sender(item: Item) -> str:
    if item.message is None or item.message.notice is not None:
        return "intercom"
    return clipped(visible(who(item.message.sender.name, item.message.sender.id)), 60)
