"""Bring to the engine what is for other brokers, in order, and again until it says that it has stored it.

What was given to a connection that ended is given to the next one first: the engine tells copies by their id, and
so does the broker it is for. That is why what the engine does not answer, or cannot store just now, may be given to
that broker directly as well: whoever says first that it has it, has it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING

from msgspec import DecodeError, Raw, Struct
from msgspec.json import decode

from intercom.cluster.envelope import SEVERAL, Enclosed, enclose, seal
from intercom.cluster.nats.access import Unusable
from intercom.cluster.nats.direct import CAME, Bring, Direct, ends_here
from intercom.cluster.nats.engine import Engine
from intercom.cluster.parts import HEADER, cut, header_of
from intercom.core.records import Post
from intercom.limits import (
    CLUSTER_ANSWER_MS,
    CLUSTER_DIRECT_AGAIN_MS,
    CLUSTER_DIRECT_MS,
    CLUSTER_IN_FLIGHT,
    CLUSTER_LETTERS,
    CLUSTER_LETTERS_BYTES,
)

if TYPE_CHECKING:
    from nats.aio.msg import Msg

_MESSAGE_ID = "Nats-Msg-Id"
_ANSWER_S = CLUSTER_ANSWER_MS / 1000
_DIRECT_S = CLUSTER_DIRECT_MS / 1000
_DIRECT_AGAIN_S = CLUSTER_DIRECT_AGAIN_MS / 1000


class _Refusal(Struct):
    description: str = "for no reason that it gives"


class _Answer(Struct):
    error: _Refusal | None = None


class NotStored(Unusable):
    """Say that the engine did not store what it was given."""


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
        self._direct = Direct()
        self._wake = asyncio.Event()
        self._refused: str | None = None

    def __len__(self) -> int:
        return len(self._waiting) + sum(len(posts) for posts, _ in self._in_flight.values())

    def submit(self, post: Post) -> None:
        """Bring something away as soon as there is a connection."""
        self._waiting.append(post)
        self._wake.set()

    def call(self, peer: str) -> None:
        """Take note that a broker wants what is for it directly: the engine hands it out nothing just now."""
        self._direct.call(peer)

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
        self._direct.is_silent = not stores
        inbox: str = engine.client.new_inbox()
        bring = partial(self._give, engine, inbox)
        # One subscription takes all answers: a request for each would cost a task and a timer each.
        answers = await engine.client.subscribe(f"{inbox}.*", cb=self._answered)
        words = await engine.client.subscribe(f"{inbox}.direct.*.*", cb=partial(self._told, bring))
        await self._direct.give_all((), bring)
        watching = asyncio.get_running_loop().create_task(self._watch_answers(bring, stores=stores))
        watching.add_done_callback(lambda task: self._wake.set())
        try:
            while self._refused is None:
                if watching.done():
                    watching.result()
                while self._waiting and len(self._in_flight) < CLUSTER_IN_FLIGHT:
                    posts = self._next()
                    number = posts[0].number
                    self._in_flight[number] = (posts, monotonic())
                    if stores:
                        await self._publish(engine, posts, f"{inbox}.{number}")
                    if self._direct.goes_to(posts[0].peer):
                        await self._direct.give(posts, bring)
                self._wake.clear()
                await self._wake.wait()
            raise NotStored(f"the engine did not store what was sent: {self._refused}")
        finally:
            if not watching.cancel() and not watching.cancelled():
                watching.exception()  # why it ended this, or beside what else did
            for heard in (answers, words):
                with suppress(Exception):  # the connection may have ended
                    await heard.unsubscribe()

    async def _watch_answers(self, bring: Bring, *, stores: bool) -> None:
        """Give directly what has had no answer for a while; end it all when what was given first has none in time."""
        direct = self._direct
        while True:
            waited = self._waited()
            pause = _DIRECT_AGAIN_S if direct.is_needed() else _DIRECT_S - waited
            with suppress(TimeoutError):
                async with asyncio.timeout(min(pause, _ANSWER_S - waited) if stores else pause):
                    await direct.wanted.wait()
            direct.wanted.clear()
            waited = self._waited()
            if stores and waited >= _ANSWER_S:
                break
            direct.is_silent |= waited >= _DIRECT_S
            if direct.is_needed():
                await direct.give_all([posts for posts, _ in self._in_flight.values()], bring)
        self._refuse("it does not answer")

    def _waited(self) -> float:
        """Return since when what was given first has no answer (s)."""
        oldest = next(iter(self._in_flight.values()), None)
        return 0.0 if oldest is None else monotonic() - oldest[1]

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

    async def _give(self, engine: Engine, inbox: str, posts: list[Post]) -> None:
        peer = posts[0].peer
        reply = f"{inbox}.direct.{peer}.{posts[0].number}"
        await self._bring(engine, engine.direct_subject(peer), posts, self._sealed(posts, ends_here(posts)), reply)

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
        number = int(message.subject.rpartition(".")[2])
        if not (message.headers and "Status" in message.headers):
            self._take_answer(number, message.data)
        elif number in self._in_flight:
            self._refuse("nobody stores it: the stream is gone")

    async def _told(self, bring: Bring, message: Msg) -> None:
        """Take the word of a broker; the engine answers in its place when it is not there."""
        if not (message.headers and "Status" in message.headers):
            peer, number = message.subject.split(".")[-2:]
            if message.data != CAME:
                self._had(int(number))
            await self._direct.came(peer, int(number), bring)

    def _had(self, number: int) -> None:
        """Take note that the broker it is for has something."""
        self._direct.had(number)
        if number in self._in_flight:
            self._over(number)

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
        self._direct.is_silent = False
        if number in self._in_flight:
            self._unanswered[number] -= 1
            if not self._unanswered[number]:
                self._direct.stored(self._over(number))

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
