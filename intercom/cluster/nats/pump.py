"""Bring to the engine what is for other brokers, in order, and again until it says that it has stored it.

What was given to a connection that ended is given to the next one first: the engine tells copies by their id, and
so does the broker it is for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from intercom.cluster.envelope import seal
from intercom.cluster.nats.access import Unusable
from intercom.cluster.nats.engine import Engine
from intercom.core.records import Post
from intercom.limits import CLUSTER_ANSWER_MS, CLUSTER_IN_FLIGHT

_MESSAGE_ID = "Nats-Msg-Id"


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
        self._in_flight: dict[int, Post] = {}
        self._wake = asyncio.Event()
        self._failed: Exception | None = None

    def __len__(self) -> int:
        return len(self._waiting) + len(self._in_flight)

    def submit(self, post: Post) -> None:
        """Bring something away as soon as there is a connection."""
        self._waiting.append(post)
        self._wake.set()

    def waiting(self) -> list[Post]:
        """Return what the engine is not known to have stored, in order."""
        return [*self._in_flight.values(), *self._waiting]

    async def run(self, engine: Engine) -> None:
        """Use this connection until something cannot be stored; raise ``Unusable`` then."""
        self._waiting.extendleft(reversed(self._in_flight.values()))
        self._in_flight.clear()
        self._failed = None
        tasks: set[asyncio.Task[None]] = set()
        try:
            while True:
                while self._waiting and len(self._in_flight) < CLUSTER_IN_FLIGHT:
                    post = self._waiting.popleft()
                    self._in_flight[post.number] = post
                    task = asyncio.get_running_loop().create_task(self._publish(engine, post))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                self._wake.clear()
                await self._wake.wait()
                if self._failed is not None:
                    raise Unusable(f"the engine did not store what was sent: {self._failed}")
        finally:
            for task in tasks:
                task.cancel()

    async def _publish(self, engine: Engine, post: Post) -> None:
        from nats.errors import Error

        data = seal(
            self._key,
            post.kind,
            post.body,
            from_broker=self._own,
            epoch=self._epoch,
            to_broker=post.peer,
            delivery_id=post.delivery_id,
        )
        headers = {_MESSAGE_ID: f"{self._own}.{post.delivery_id}.{post.kind}.{post.attempt}"}
        try:
            await engine.js.publish(engine.subject(post.peer), data, timeout=CLUSTER_ANSWER_MS / 1000, headers=headers)
        except (Error, OSError) as error:
            self._failed = error if str(error) else type(error)(type(error).__name__)
        else:
            self._in_flight.pop(post.number, None)
            self._posted(post)
        self._wake.set()
