"""Give brokers directly what the engine does not store, or does not hand out, just now.

Nobody keeps what goes directly: it reaches its broker at once or not at all, and is given again until that says that it
has it. A broker tells copies, so what the engine stores or hands out as well does no harm. What is for one broker goes
one by one, each when the one before has come: so nothing passes what did not come.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from time import monotonic
from typing import TypeAlias

from intercom.core.records import Post
from intercom.limits import CLUSTER_CALLED_MS, CLUSTER_JUST_STORED_BYTES, CLUSTER_JUST_STORED_MS

CAME = b"+CAME"
"""Says that something given directly has come; that its broker has it for good is said by anything else."""
Bring: TypeAlias = Callable[[list[Post]], Awaitable[None]]
"""Brings posts to the broker they are for."""


class _Way:
    """Hold what goes to one broker in this turn, in order."""

    __slots__ = ("awaited", "left")

    def __init__(self) -> None:
        self.left: deque[list[Post]] = deque()
        self.awaited: int | None = None
        """What has gone and is not known to have come, by the number of the first."""


class Direct:
    """Know what has to go directly, and to whom."""

    def __init__(self) -> None:
        self.is_silent = False
        """The engine does not answer, or stores nothing: whatever is for anybody goes directly as well."""
        self.wanted = asyncio.Event()
        """Set when a broker has called that was not heard before."""
        self._called: dict[str, float] = {}
        """Until when each broker wants what is for it directly: the engine hands it out nothing."""
        self._stored: dict[int, tuple[float, list[Post]]] = {}
        """What the engine stored last, within bounds, and may not be able to hand out; by the number of the first."""
        self._bytes = 0
        self._ways: dict[str, _Way] = {}
        self._had: set[int] = set()
        """What a broker said in this turn that it has."""

    def call(self, peer: str) -> None:
        """Take note that a broker wants what is for it directly."""
        if not self.goes_to(peer):
            self.wanted.set()
        self._called[peer] = monotonic() + CLUSTER_CALLED_MS / 1000

    def goes_to(self, peer: str) -> bool:
        """Tell whether what is for a broker goes directly."""
        return self.is_silent or self._called.get(peer, 0.0) > monotonic()

    def is_needed(self) -> bool:
        """Tell whether that is so for any broker."""
        now = monotonic()
        self._called = {peer: until for peer, until in self._called.items() if until > now}
        return self.is_silent or bool(self._called)

    def stored(self, posts: list[Post]) -> None:
        """Keep for a while what the engine has stored."""
        self._stored[posts[0].number] = (monotonic(), posts)
        self._bytes += _size(posts)
        self._bound()

    def _bound(self) -> None:
        since = monotonic() - CLUSTER_JUST_STORED_MS / 1000
        while self._stored:
            number = next(iter(self._stored))
            if self._stored[number][0] >= since and self._bytes <= CLUSTER_JUST_STORED_BYTES:
                break
            self._forget(number)

    def _forget(self, number: int) -> None:
        _, posts = self._stored.pop(number, (0.0, []))
        self._bytes -= _size(posts)

    async def give_all(self, in_flight: Iterable[list[Post]], bring: Bring) -> None:
        """Begin a turn: give brokers what they are not known to have of what is stored or in flight."""
        self._bound()
        self._ways.clear()
        self._had.clear()
        for posts in [*(posts for _, posts in self._stored.values()), *in_flight]:
            if self.goes_to(posts[0].peer):
                self._way(posts[0].peer).left.append(posts)
        for way in list(self._ways.values()):
            await self._go_on(way, bring)

    async def give(self, posts: list[Post], bring: Bring) -> None:
        """Give something that was just given to the engine, behind all that was before."""
        way = self._way(posts[0].peer)
        way.left.append(posts)
        if way.awaited is None:
            await self._go_on(way, bring)

    async def came(self, peer: str, number: int, bring: Bring) -> None:
        """Take note that something has come where it is for: what is behind it may go."""
        way = self._way(peer)
        if way.awaited == number:
            await self._go_on(way, bring)

    def had(self, number: int) -> None:
        """Take note that its broker has something for good."""
        self._forget(number)
        self._had.add(number)

    def _way(self, peer: str) -> _Way:
        return self._ways.setdefault(peer, _Way())

    async def _go_on(self, way: _Way, bring: Bring) -> None:
        """Give what is next, unless that has to wait, and all behind it.

        That is what is of use only for a time: how long is said by the clock of the engine, which cannot be asked.
        """
        way.awaited = None
        while way.left and way.left[0][0].number in self._had:
            way.left.popleft()
        if way.left and all(post.valid_until is None for post in way.left[0]):
            posts = way.left.popleft()
            way.awaited = posts[0].number
            await bring(posts)


def _size(posts: list[Post]) -> int:
    return sum(len(post.body) for post in posts)
