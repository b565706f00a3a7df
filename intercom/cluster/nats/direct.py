"""Give brokers directly what the engine does not store, or does not hand out, just now.

Nobody keeps what goes directly: it reaches its broker at once or not at all, and is given again until that says that it
has it. A broker tells copies, so what the engine stores or hands out as well does no harm. What is for one broker goes
one by one, each when the one before has come: so nothing passes what did not come. What is of use only for a time says
until when by the clock of who gives it, which is asked for the time when it has come: the engine's cannot be asked.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from time import monotonic, monotonic_ns
from typing import TypeAlias

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode

from intercom.cluster.envelope import Foreign, seal, unseal
from intercom.cluster.nats.engine import Engine, passed_ms
from intercom.core.records import Post
from intercom.limits import (
    CLUSTER_ANSWER_MS,
    CLUSTER_CALLED_MS,
    CLUSTER_JUST_STORED_BYTES,
    CLUSTER_JUST_STORED_MS,
)

_ANSWER_S = CLUSTER_ANSWER_MS / 1000
_ASKED_CHARACTERS = 32
"""Of what the time is asked for with, that are said again."""
CAME = b"+CAME"
"""Says that something given directly has come; that its broker has it for good is said by anything else."""
Bring: TypeAlias = Callable[[list[Post]], Awaitable[None]]
"""Brings posts to the broker they are for."""


class _Time(Struct):
    asked: str
    """What it was asked for with: so no earlier answer is taken for this one."""
    ms: int


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
        way.awaited = None
        while way.left and way.left[0][0].number in self._had:
            way.left.popleft()
        if way.left:
            posts = way.left.popleft()
            way.awaited = posts[0].number
            await bring(posts)


def ends_here(posts: list[Post]) -> dict[int, int]:
    """Return until when posts are of use that are not for ever, by number, as this broker tells the time."""
    ahead_ms = passed_ms() - monotonic_ns() // 1_000_000 - 1
    return {post.number: post.valid_until + ahead_ms for post in posts if post.valid_until is not None}


def time_told(key: bytes, own: str, asked: bytes) -> bytes:
    """Return what a broker that asks for the time is told; ``asked`` is what it asked with."""
    said = encode(_Time(asked.decode("ascii", "replace")[:_ASKED_CHARACTERS], passed_ms()))
    return seal(key, "clock", said, from_broker=own, epoch=0)


async def ahead_of(engine: Engine, key: bytes, broker_id: str) -> int | None:
    """Return by how many ms the clock of a broker is ahead of the monotonic one here, not too few; None: unknown.

    It is read there after it was asked for here: what was on its way for long may have lain where nobody sees.
    """
    from nats.errors import Error

    asked_ms = monotonic_ns() // 1_000_000
    asked = str(asked_ms)
    try:
        answer = await engine.client.request(engine.clock_subject(broker_id), asked.encode(), timeout=_ANSWER_S)
        envelope = unseal(key, answer.data)
        told = decode(envelope.body, type=_Time)
    except (Error, TimeoutError, Foreign, DecodeError):
        return None
    if envelope.kind != "clock" or envelope.from_broker != broker_id or told.asked != asked:
        return None
    return told.ms + 1 - asked_ms


def _size(posts: list[Post]) -> int:
    return sum(len(post.body) for post in posts)
