"""Give brokers directly what the engine does not store, or does not hand out, just now.

Nobody keeps what goes directly: it reaches its broker at once or not at all, and is given again until that says that it
has it. A broker tells copies, so what the engine stores or hands out as well does no harm.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from time import monotonic
from typing import TypeAlias

from intercom.core.records import Post
from intercom.limits import (
    CLUSTER_CALLED_MS,
    CLUSTER_DIRECT_BYTES,
    CLUSTER_JUST_STORED_BYTES,
    CLUSTER_JUST_STORED_MS,
)

Bring: TypeAlias = Callable[[list[Post]], Awaitable[None]]
"""Brings posts to the broker they are for."""


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
        self._held: set[str] = set()
        """To which brokers nothing more goes in this turn."""
        self._turn = asyncio.Lock()
        """So that nothing passes what was given to the engine before it."""

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

    def had(self, number: int) -> None:
        """Take note that its broker has something of that."""
        _, posts = self._stored.pop(number, (0.0, []))
        self._bytes -= _size(posts)

    def _bound(self) -> None:
        since = monotonic() - CLUSTER_JUST_STORED_MS / 1000
        while self._stored:
            number = next(iter(self._stored))
            if self._stored[number][0] >= since and self._bytes <= CLUSTER_JUST_STORED_BYTES:
                break
            self.had(number)

    async def give(self, posts: list[Post], bring: Bring) -> None:
        """Give something that was just given to the engine, behind all that was before."""
        async with self._turn:
            await self._give(posts, bring)

    async def give_all(self, in_flight: Iterable[list[Post]], bring: Bring) -> None:
        """Give brokers what they are not known to have of what is stored or in flight: a bounded part of it."""
        async with self._turn:
            self._bound()
            self._held.clear()
            given: Counter[str] = Counter()
            for posts in [*(posts for _, posts in self._stored.values()), *in_flight]:
                peer = posts[0].peer
                if self.goes_to(peer):
                    if given[peer] > CLUSTER_DIRECT_BYTES:
                        self._held.add(peer)
                    given[peer] += _size(posts)
                    await self._give(posts, bring)

    async def _give(self, posts: list[Post], bring: Bring) -> None:
        """Give something, unless it would pass what has to wait.

        That is what is of use only for a time: how long is said by the clock of the engine, which cannot be asked.
        """
        if any(post.valid_until is not None for post in posts):
            self._held.add(posts[0].peer)
        if posts[0].peer not in self._held:
            await bring(posts)


def _size(posts: list[Post]) -> int:
    return sum(len(post.body) for post in posts)
