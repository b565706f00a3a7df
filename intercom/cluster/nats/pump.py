"""Bring to the engine what is for other brokers, in order, and again until it says that it has stored it.

What was given to a connection that ended is given to the next one first: the engine tells copies by their id, and
so does the broker it is for. That is why what the engine does not answer, or cannot store just now, may be given to
that broker directly as well: whoever says first that it has it, has it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING

from msgspec import DecodeError, Raw, Struct
from msgspec.json import decode

from intercom.cluster.envelope import SEVERAL, Enclosed, enclose, seal
from intercom.cluster.nats.access import Unusable
from intercom.cluster.nats.engine import Engine
from intercom.cluster.parts import HEADER, cut, header_of
from intercom.core.records import Post
from intercom.limits import (
    CLUSTER_ANSWER_MS,
    CLUSTER_DIRECT,
    CLUSTER_DIRECT_AGAIN_MS,
    CLUSTER_DIRECT_MS,
    CLUSTER_IN_FLIGHT,
    CLUSTER_JUST_STORED_BYTES,
    CLUSTER_JUST_STORED_MS,
    CLUSTER_LETTERS,
    CLUSTER_LETTERS_BYTES,
)

if TYPE_CHECKING:
    from nats.aio.msg import Msg

_MESSAGE_ID = "Nats-Msg-Id"
_ANSWER_S = CLUSTER_ANSWER_MS / 1000
_DIRECT_S = CLUSTER_DIRECT_MS / 1000
_DIRECT_AGAIN_S = CLUSTER_DIRECT_AGAIN_MS / 1000
_DIRECT = "d"
"""Begins where a broker answers what it was given directly."""


class _Refusal(Struct):
    description: str = "for no reason that it gives"


class _Answer(Struct):
    error: _Refusal | None = None


class NotStored(Unusable):
    """Say that the engine did not store what it was given."""


class _JustStored:
    """Keep what the engine has stored last, within bounds of time and size: it may not be able to hand it out."""

    def __init__(self) -> None:
        self._kept: deque[tuple[float, int, list[Post]]] = deque()
        self._bytes = 0

    def add(self, posts: list[Post]) -> None:
        """Keep what was stored together."""
        size = sum(len(post.body) for post in posts)
        self._kept.append((monotonic(), size, posts))
        self._bytes += size
        self._bound()

    def all(self) -> list[list[Post]]:
        """Return what is kept, the oldest first."""
        self._bound()
        return [posts for _, _, posts in self._kept]

    def _bound(self) -> None:
        since = monotonic() - CLUSTER_JUST_STORED_MS / 1000
        while self._kept and (self._kept[0][0] < since or self._bytes > CLUSTER_JUST_STORED_BYTES):
            self._bytes -= self._kept.popleft()[1]


class Pump:
    """Hold what is on its way to the engine.

    Args:
        key: under which envelopes are made.
        own: id of this broker.
        epoch: of this process.
        posted: is told of everything that the engine has stored.
    """

    def __init__(self, key: bytes, own: str, epoch: int, posted: Callable[[Post], None]) -> None:
        self._key = key
        self._own = own
        self._epoch = epoch
        self._posted = posted
        self._waiting: deque[Post] = deque()
        self._in_flight: dict[int, tuple[list[Post], float]] = {}
        """What was given away together, with when, in order; by the number of the first."""
        self._unanswered: dict[int, int] = {}
        """How many parts of what is in flight the engine is not known to have stored."""
        self._just_stored = _JustStored()
        self._again: dict[int, list[Post]] = {}
        """What the engine had stored just before it fell silent, and its broker is not known to have; by number."""
        self._is_silent = False
        """The engine does not answer: what it is given goes directly as well."""
        self._held: set[str] = set()
        """To which brokers nothing more goes directly in this turn."""
        self._giving = asyncio.Lock()
        """So that nothing passes what was given to the engine before it."""
        self._wake = asyncio.Event()
        self._refused: str | None = None

    def __len__(self) -> int:
        return len(self._waiting) + sum(len(posts) for posts, _ in self._in_flight.values())

    def submit(self, post: Post) -> None:
        """Bring something away as soon as there is a connection."""
        self._waiting.append(post)
        self._wake.set()

    def waiting(self) -> list[Post]:
        """Return what the engine is not known to have stored, in order."""
        return [*(post for posts, _ in self._in_flight.values() for post in posts), *self._waiting]

    async def run(self, engine: Engine, *, stores: bool = True) -> None:
        """Use this connection until something cannot be stored; raise ``NotStored`` then.

        Where the engine ``stores`` nothing just now, all goes directly.
        """
        self._waiting = deque(self.waiting())
        self._in_flight.clear()
        self._unanswered.clear()
        self._refused = None
        self._is_silent = False
        inbox: str = engine.client.new_inbox()
        # One subscription takes all answers: a request for each would cost a task and a timer each.
        answers = await engine.client.subscribe(f"{inbox}.*", cb=self._answered)
        if not stores:
            self._falls_silent()
            await self._give_all(engine, inbox)
        watching = asyncio.get_running_loop().create_task(self._watch_answers(engine, inbox, stores=stores))
        try:
            while self._refused is None:
                while self._waiting and len(self._in_flight) < CLUSTER_IN_FLIGHT:
                    posts = self._next()
                    number = posts[0].number
                    self._in_flight[number] = (posts, monotonic())
                    if stores:
                        await self._publish(engine, posts, f"{inbox}.{number}")
                    if self._is_silent:
                        async with self._giving:
                            await self._give(engine, posts, inbox)
                self._wake.clear()
                await self._wake.wait()
            raise NotStored(f"the engine did not store what was sent: {self._refused}")
        finally:
            watching.cancel()
            with suppress(Exception):  # the connection may have ended
                await answers.unsubscribe()

    async def _watch_answers(self, engine: Engine, inbox: str, *, stores: bool) -> None:
        """Give directly what has had no answer for a while; end it all when what was given first has none in time."""
        while True:
            oldest = next(iter(self._in_flight.values()), None)
            waited = 0.0 if oldest is None else monotonic() - oldest[1]
            if stores and waited >= _ANSWER_S:
                break
            if waited >= _DIRECT_S and not self._is_silent:
                self._falls_silent()
            pause = _ANSWER_S - waited if stores else _DIRECT_AGAIN_S
            if self._is_silent:
                await self._give_all(engine, inbox)
                await asyncio.sleep(min(pause, _DIRECT_AGAIN_S))
            else:
                await asyncio.sleep(_DIRECT_S - waited)
        self._refused = "it does not answer"
        self._wake.set()

    # --- directly ---------------------------------------------------------------------------------------

    def _falls_silent(self) -> None:
        self._is_silent = True
        self._again = {posts[0].number: posts for posts in self._just_stored.all()}

    async def _give_all(self, engine: Engine, inbox: str) -> None:
        """Give brokers what they are not known to have of what the engine was given: to each so much of it."""
        async with self._giving:
            self._held.clear()
            given: Counter[str] = Counter()
            for posts in [*self._again.values(), *(posts for posts, _ in self._in_flight.values())]:
                peer = posts[0].peer
                given[peer] += 1
                if given[peer] > CLUSTER_DIRECT:
                    self._held.add(peer)
                await self._give(engine, posts, inbox)

    async def _give(self, engine: Engine, posts: list[Post], inbox: str) -> None:
        """Give a broker something directly, unless it would pass what has to wait.

        That is what is of use only for a time: how long is said by the clock of the engine, which cannot be asked.
        """
        peer, number = posts[0].peer, posts[0].number
        if any(post.valid_until is not None for post in posts):
            self._held.add(peer)
        if peer not in self._held:
            data = self._sealed(posts, {})
            await self._bring(engine, engine.direct_subject(peer), posts, data, f"{inbox}.{_DIRECT}{number}")

    # --- away -------------------------------------------------------------------------------------------

    def _next(self) -> list[Post]:
        """Return what goes away next: all that waits for one broker, as far as it goes into one envelope."""
        first = self._waiting.popleft()
        posts, size = [first], len(first.body)
        others: list[Post] = []
        while self._waiting and len(posts) < CLUSTER_LETTERS and len(others) < CLUSTER_LETTERS:
            post = self._waiting.popleft()
            if post.peer != first.peer:
                others.append(post)
            elif size + len(post.body) > CLUSTER_LETTERS_BYTES:
                self._waiting.appendleft(post)
                break
            else:
                posts.append(post)
                size += len(post.body)
        self._waiting.extendleft(reversed(others))
        return posts

    async def _publish(self, engine: Engine, posts: list[Post], reply: str) -> None:
        data = self._sealed(posts, await _ends(engine, posts))
        self._unanswered[posts[0].number] = len(cut(data))
        await self._bring(engine, engine.subject(posts[0].peer), posts, data, reply)

    def _sealed(self, posts: list[Post], ends: dict[int, int]) -> bytes:
        first = posts[0]
        kind, delivery_id, body = first.kind, first.delivery_id, first.body
        if len(posts) > 1:
            kind, delivery_id = SEVERAL, ""
            body = enclose(
                Enclosed(post.kind, post.delivery_id, Raw(post.body), ends.get(post.number)) for post in posts
            )
        return seal(
            self._key,
            kind,
            body,
            from_broker=self._own,
            epoch=self._epoch,
            to_broker=first.peer,
            delivery_id=delivery_id,
            until=ends.get(first.number) if len(posts) == 1 else None,
        )

    async def _bring(self, engine: Engine, subject: str, posts: list[Post], data: bytes, reply: str) -> None:
        ids = "\n".join(f"{post.delivery_id}.{post.kind}.{post.attempt}" for post in posts)
        name = f"{self._own}.{ids if len(posts) == 1 else sha256(ids.encode()).hexdigest()}"
        parts = cut(data)
        for number, part in enumerate(parts):
            headers = {_MESSAGE_ID: name if len(parts) == 1 else f"{name}.{number}"}
            if len(parts) > 1:
                headers[HEADER] = header_of(number, len(parts), sha256(data).hexdigest())
            await engine.client.publish(subject, part, reply=reply, headers=headers)

    # --- answers ----------------------------------------------------------------------------------------

    async def _answered(self, message: Msg) -> None:
        given = message.subject.rpartition(".")[2]
        is_said = not (message.headers and "Status" in message.headers)
        if given.startswith(_DIRECT):
            if is_said:  # else that broker is not there
                self._given(int(given.removeprefix(_DIRECT)))
        elif is_said:
            self._take_answer(int(given), message.data)
        elif int(given) in self._in_flight:
            self._refuse("nobody stores it: the stream is gone")

    def _given(self, number: int) -> None:
        """Take note that the broker it is for has something."""
        if number in self._in_flight:
            self._over(number)
        else:
            self._again.pop(number, None)

    def _take_answer(self, number: int, data: bytes) -> None:
        try:
            answer = decode(data, type=_Answer)
        except DecodeError as error:
            self._refuse(f"its answer cannot be read: {error}")
            return
        if answer.error is not None:
            if number in self._in_flight:  # what its broker has does not need the engine any more
                self._refuse(answer.error.description)
            return
        self._is_silent = False
        self._again.clear()
        if number in self._in_flight:
            self._unanswered[number] -= 1
            if not self._unanswered[number]:
                self._just_stored.add(self._over(number))

    def _over(self, number: int) -> list[Post]:
        self._unanswered.pop(number, None)
        posts, _ = self._in_flight.pop(number)
        for post in posts:
            self._posted(post)
        if self._waiting:
            self._wake.set()
        return posts

    def _refuse(self, why: str) -> None:
        self._refused = why
        self._wake.set()


async def _ends(engine: Engine, posts: list[Post]) -> dict[int, int]:
    """Return until when posts are of use that are not for ever, by number; epoch ms of the engine, not too late."""
    limited = {post.number: post.valid_until for post in posts if post.valid_until is not None}
    if not limited:
        return {}
    engine_ms = await engine.time_ms()
    if engine_ms is None:
        return {}
    now_ms = monotonic_ns() // 1_000_000 + 1
    return {number: engine_ms + until - now_ms for number, until in limited.items()}
