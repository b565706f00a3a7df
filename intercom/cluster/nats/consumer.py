"""Fetch from the engine what other brokers sent this one, and let it go once it is settled."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING

from msgspec import UNSET

from intercom.cluster.envelope import Envelope, Foreign, enclosed, unseal
from intercom.cluster.nats.access import NotNow, Unusable
from intercom.cluster.nats.direct import CAME, ahead_of
from intercom.cluster.nats.engine import Engine
from intercom.cluster.parts import HEADER, Odd, Parts, Whole
from intercom.limits import (
    CLUSTER_BATCH,
    CLUSTER_REDELIVERY_MS,
    CLUSTER_UNSETTLED,
    CLUSTER_WISH_BEAT_MS,
    CLUSTER_WISH_MS,
)

if TYPE_CHECKING:
    from nats.aio.msg import Msg

_IS_KEPT = "100"
_BEATS = 2
"""Signs that a wish is kept, of which one must come."""
_HAD_ITS_TIME = ("404", "408")
_OTHER_LEADER = "Leadership Change"
_ACK = b"+ACK"


def consumer_name(broker_id: str) -> str:
    """Return the name of the consumer of a broker in the engine."""
    return f"broker_{broker_id}"


class _Fetched:
    """Count what is not settled of the letters that came in one envelope."""

    __slots__ = ("left", "replies")

    def __init__(self, replies: tuple[str, ...], left: int) -> None:
        self.replies = replies
        self.left = left


class Consumer:
    """Hold what was fetched and is not settled.

    Args:
        key: under which envelopes are made.
        own: id of this broker.
        arrived: takes the number under which something is settled, the envelope, and until when it is of use
            (monotonic ms; None: not limited, or not known).
        foreign: is told why something was dropped.
    """

    def __init__(
        self,
        key: bytes,
        own: str,
        arrived: Callable[[int, Envelope, int | None], None],
        foreign: Callable[[str], None],
    ) -> None:
        self._key = key
        self._own = own
        self._arrived = arrived
        self._foreign = foreign
        self._arrivals = 0
        self._unsettled: dict[int, _Fetched] = {}
        self._settled: deque[str] = deque()
        """Where it is told that something may be forgotten."""
        self._wake = asyncio.Event()

    @property
    def name(self) -> str:
        """Return the name of the consumer in the engine."""
        return consumer_name(self._own)

    def begin_anew(self) -> None:
        """Forget what came on an earlier connection: it comes again."""
        self._unsettled.clear()
        self._settled.clear()

    async def prepare(self, engine: Engine) -> None:
        """Find, or make, the consumer of this broker: from then on what is for it is handed out."""
        from nats.js import api

        config = api.ConsumerConfig(
            durable_name=self.name,
            filter_subject=engine.subject(self._own),
            deliver_policy=api.DeliverPolicy.ALL,
            ack_policy=api.AckPolicy.EXPLICIT,
            ack_wait=CLUSTER_REDELIVERY_MS / 1000,
            max_ack_pending=CLUSTER_UNSETTLED,
        )
        await engine.js.add_consumer(engine.stream, config)

    async def run(self, engine: Engine) -> None:
        """Fetch for the life of the connection; raise what makes that impossible."""
        client = engine.client
        parts = Parts()

        async def ahead(broker_id: str) -> int | None:
            return await _ahead(engine)

        inbox = client.new_inbox()
        ask = f"$JS.API.CONSUMER.MSG.NEXT.{engine.stream}.{self.name}"
        wish = json.dumps(
            {
                "batch": CLUSTER_BATCH,
                "expires": CLUSTER_WISH_MS * 1_000_000,
                "idle_heartbeat": CLUSTER_WISH_BEAT_MS * 1_000_000,
            }
        ).encode()
        wishes = 0
        is_over = asyncio.Event()
        """Of the last wish."""
        left = 0
        """What is to come of it."""
        heard = 0.0
        troubles: list[Exception] = []
        is_running = True

        async def came(message: Msg) -> None:
            nonlocal left, heard
            if not is_running:
                return
            heard = monotonic()
            try:
                if message.headers and "Status" in message.headers:
                    is_kept = _is_kept(message.headers)
                    if not is_kept and message.subject == f"{inbox}.{wishes}":  # not of one that was taken for lost
                        left = 0
                else:
                    left -= 1
                    await self._take(message, parts, ahead)
            except Exception as error:
                troubles.append(error)
            if left <= 0 or troubles:
                is_over.set()

        try:
            # Called for each: to wait for the next one would cost two tasks and a timer.
            await client.subscribe(f"{inbox}.*", cb=came)
            while not troubles:
                wishes += 1
                left = CLUSTER_BATCH
                is_over.clear()
                await client.publish(ask, wish, reply=f"{inbox}.{wishes}")
                heard = monotonic()
                while not is_over.is_set():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(CLUSTER_WISH_BEAT_MS / 1000):
                            await is_over.wait()
                    if monotonic() - heard >= _BEATS * CLUSTER_WISH_BEAT_MS / 1000:
                        raise NotNow("the engine hands out nothing more, and does not say why")
            raise troubles[0]
        finally:
            is_running = False

    async def listen(self, engine: Engine) -> None:
        """Take what other brokers give this one directly, for the life of the connection.

        Raises what makes that impossible. What is given so is answered when it has come, and as what was fetched is:
        once it is settled.
        """
        parts = Parts()

        async def ahead(broker_id: str) -> int | None:
            return await ahead_of(engine, self._key, broker_id)

        trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def came(message: Msg) -> None:
            try:
                if not trouble.done() and await self._take(message, parts, ahead, is_direct=True):
                    await engine.client.publish(message.reply, CAME)
            except Exception as error:
                if not trouble.done():
                    trouble.set_exception(error)

        listening = await engine.client.subscribe(engine.direct_subject(self._own), cb=came)
        try:
            await trouble
        finally:
            with suppress(Exception):  # the connection may have ended
                await listening.unsubscribe()

    async def _take(
        self,
        message: Msg,
        parts: Parts,
        ahead: Callable[[str], Awaitable[int | None]],
        *,
        is_direct: bool = False,
    ) -> bool:
        """Hand on what has come whole; tell whether it has.

        ``ahead`` tells by how much the clock is ahead by which the letters of a broker are of use for a time. What was
        given directly, and of which that cannot be told, comes again.
        """
        try:
            found = _whole(message, parts)
            if found is None:
                return False
            envelopes = enclosed(unseal(self._key, found.data, to_broker=self._own))
        except (Foreign, Odd) as why:
            self._foreign(str(why))
            self._forget(message.reply)
            return False
        is_limited = any(each.until is not UNSET for each in envelopes)
        ahead_ms = await ahead(envelopes[0].from_broker) if is_limited else None
        if is_limited and ahead_ms is None and is_direct:
            return False
        fetched = _Fetched(found.came_with, len(envelopes))
        for envelope in envelopes:
            self._arrivals += 1
            self._unsettled[self._arrivals] = fetched
            until = None if envelope.until is UNSET or ahead_ms is None else envelope.until - ahead_ms
            self._arrived(self._arrivals, envelope, until)
        return True

    def settle(self, arrival: int) -> None:
        """Let whoever brought something forget it; what came on an earlier connection comes again."""
        fetched = self._unsettled.pop(arrival, None)
        if fetched is not None:
            fetched.left -= 1
            if not fetched.left:
                self._forget(*fetched.replies)

    def _forget(self, *replies: str) -> None:
        self._settled.extend(replies)
        self._wake.set()

    async def tell_settled(self, engine: Engine) -> None:
        """Tell whoever brought it of what was settled, for the life of the connection."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._settled:
                await engine.client.publish(self._settled.popleft(), _ACK)


def _whole(message: Msg, parts: Parts) -> Whole | None:
    header = (message.headers or {}).get(HEADER)
    if header is None:
        return Whole(message.data, (message.reply,))
    return parts.add(header, message.data, message.reply)


async def _ahead(engine: Engine) -> int | None:
    """Return by how many milliseconds the engine's clock is ahead of the monotonic one, not too few; None: unknown.

    Asked anew every time: this machine, or only this process, may have stood still since anything was heard.
    """
    asked_ms = monotonic_ns() // 1_000_000
    engine_ms = await engine.time_ms()
    return None if engine_ms is None else engine_ms + 1 - asked_ms  # both were rounded down


def _is_kept(headers: dict[str, str]) -> bool:
    """Tell whether the engine only says that it keeps a wish; raise ``Unusable`` unless that just had its time."""
    if headers["Status"] == _IS_KEPT:
        return True
    said = headers.get("Description", "")
    if headers["Status"] not in _HAD_ITS_TIME and said != _OTHER_LEADER:
        raise Unusable(f"the engine hands out nothing more: {said or 'the stream or the consumer is gone'}")
    return False
