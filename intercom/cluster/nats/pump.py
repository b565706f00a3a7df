"""Bring to the engine what is for other brokers, in order, and again until it says that it has stored it.

What was given to a connection that ended is given to the next one first: the engine tells copies by their id, and
so does the broker it is for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
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
from intercom.limits import CLUSTER_ANSWER_MS, CLUSTER_IN_FLIGHT, CLUSTER_LETTERS, CLUSTER_LETTERS_BYTES

if TYPE_CHECKING:
    from nats.aio.msg import Msg

_MESSAGE_ID = "Nats-Msg-Id"
_ANSWER_S = CLUSTER_ANSWER_MS / 1000


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

    async def run(self, engine: Engine) -> None:
        """Use this connection until something cannot be stored; raise ``NotStored`` then."""
        self._waiting = deque(self.waiting())
        self._in_flight.clear()
        self._unanswered.clear()
        self._refused = None
        inbox: str = engine.client.new_inbox()
        # One subscription takes all answers: a request for each would cost a task and a timer each.
        await engine.client.subscribe(f"{inbox}.*", cb=self._answered)
        watching = asyncio.get_running_loop().create_task(self._watch_answers())
        try:
            while self._refused is None:
                while self._waiting and len(self._in_flight) < CLUSTER_IN_FLIGHT:
                    posts = self._next()
                    number = posts[0].number
                    self._in_flight[number] = (posts, monotonic())
                    await self._publish(engine, posts, f"{inbox}.{number}")
                self._wake.clear()
                await self._wake.wait()
            raise NotStored(f"the engine did not store what was sent: {self._refused}")
        finally:
            watching.cancel()

    async def _watch_answers(self) -> None:
        """Let it end when what was given away first has no answer in time."""
        while True:
            oldest = next(iter(self._in_flight.values()), None)
            left = _ANSWER_S if oldest is None else oldest[1] + _ANSWER_S - monotonic()
            if left <= 0:
                break
            await asyncio.sleep(left)
        self._refused = "it does not answer"
        self._wake.set()

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
        first = posts[0]
        kind, delivery_id, body = first.kind, first.delivery_id, first.body
        ends = await _ends(engine, posts)
        if len(posts) > 1:
            kind, delivery_id = SEVERAL, ""
            body = enclose(
                Enclosed(post.kind, post.delivery_id, Raw(post.body), ends.get(post.number)) for post in posts
            )
        data = seal(
            self._key,
            kind,
            body,
            from_broker=self._own,
            epoch=self._epoch,
            to_broker=first.peer,
            delivery_id=delivery_id,
            until=ends.get(first.number) if len(posts) == 1 else None,
        )
        ids = "\n".join(f"{post.delivery_id}.{post.kind}.{post.attempt}" for post in posts)
        name = f"{self._own}.{ids if len(posts) == 1 else sha256(ids.encode()).hexdigest()}"
        parts = cut(data)
        self._unanswered[posts[0].number] = len(parts)
        for number, part in enumerate(parts):
            headers = {_MESSAGE_ID: name if len(parts) == 1 else f"{name}.{number}"}
            if len(parts) > 1:
                headers[HEADER] = header_of(number, len(parts), sha256(data).hexdigest())
            await engine.client.publish(engine.subject(first.peer), part, reply=reply, headers=headers)

    async def _answered(self, message: Msg) -> None:
        number = int(message.subject.rpartition(".")[2])
        if number not in self._in_flight:
            return  # of a connection before this one
        if message.headers and "Status" in message.headers:
            self._refused = "nobody stores it: the stream is gone"
        else:
            try:
                answer = decode(message.data, type=_Answer)
            except DecodeError as error:
                self._refused = f"its answer cannot be read: {error}"
            else:
                if answer.error is None:
                    self._unanswered[number] -= 1
                    if self._unanswered[number]:
                        return
                    del self._unanswered[number]
                    posts, _ = self._in_flight.pop(number)
                    for post in posts:
                        self._posted(post)
                    if self._waiting:
                        self._wake.set()
                    return
                self._refused = answer.error.description
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
