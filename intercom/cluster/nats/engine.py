"""Speak with the engine: make what the brokers of a cluster keep there, write it, and follow it.

Everything ends when the connection does: whoever uses this connects again and begins anew, so nothing is missed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from random import sample
from typing import TYPE_CHECKING, Any, get_args

from msgspec import DecodeError, Struct
from msgspec.json import decode

from intercom.cluster.nats.access import EXTRA, Access, NotNow, Unusable
from intercom.config import ClusterSettings
from intercom.core.records import Shelf
from intercom.limits import (
    CLUSTER_ANSWER_MS,
    CLUSTER_BEAT_MS,
    CLUSTER_CLOSE_MS,
    CLUSTER_CONNECT_MS,
    CLUSTER_DUPLICATES_MS,
    CLUSTER_LEASE_MS,
    CLUSTER_MAIL_MS,
    CLUSTER_NEXT_MS,
    CLUSTER_TARGET_MS,
)

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js.client import JetStreamContext
    from nats.js.kv import KeyValue

_ANSWER_S = CLUSTER_ANSWER_MS / 1000
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_BEATS = 3
"""Signs of life of a consumer, of which one must come."""
_EXPECTED = "Nats-Expected-Last-Subject-Sequence"
_WRONG_REVISION = frozenset({10071, 10164})
"""What the engine says no with where a key has another revision than the one that was named, or will have in a moment:
its servers are about to agree on another write of it."""
_BUCKETS = ("brokers", "sessions", "addresses", "targets", "restoring", "routes")
REPLICAS = 3
"""Copies where the engine is a cluster of so many servers."""


class _Info(Struct):
    ts: datetime | None = None


class Engine:
    """Hold one connection to the engine.

    Made by ``connected``; ``lost`` ends when the connection has ended.
    """

    def __init__(self, client: Client, settings: ClusterSettings) -> None:
        self.client = client
        self.prefix = settings.name
        self.lost = asyncio.Event()
        self.trouble: str | None = None
        """The last error the client library told."""
        self._replicas = settings.replicas
        self._named = len(settings.url)
        self.js: JetStreamContext = client.jetstream(timeout=_ANSWER_S)
        self.leases: KeyValue
        self.sessions: KeyValue
        self.shelves: dict[Shelf, KeyValue] = {}

    @property
    def stream(self) -> str:
        """Return the name of the stream with what brokers send each other."""
        return f"{self.prefix}_mail"

    def subject(self, broker_id: str) -> str:
        """Return where what is for a broker is published."""
        return f"{self.prefix}.mail.{broker_id}"

    @property
    def call_subject(self) -> str:
        """Return where brokers say that they want what is for them directly."""
        return f"{self.prefix}.direct"

    def direct_subject(self, broker_id: str) -> str:
        """Return where a broker takes what the engine cannot store just now."""
        return f"{self.prefix}.direct.{broker_id}"

    def clock_subject(self, broker_id: str) -> str:
        """Return where a broker is asked what time it is by its clock."""
        return f"{self.prefix}.clock.{broker_id}"

    def ping_subject(self, broker_id: str) -> str:
        """Return where a broker is asked for a sign of life."""
        return f"{self.prefix}.ping.{broker_id}"

    async def prepare(self) -> None:
        """Find, or make, the stream and the buckets; raise ``Unusable`` where the engine does not allow that."""
        from nats.js import api
        from nats.js.errors import BadRequestError, NotFoundError

        with refusals():
            replicas = self._replicas or self._replicas_to_have()
            config = api.StreamConfig(
                name=self.stream,
                subjects=[f"{self.prefix}.mail.*"],
                retention=api.RetentionPolicy.WORK_QUEUE,
                storage=api.StorageType.FILE,
                discard=api.DiscardPolicy.NEW,
                num_replicas=replicas,
                duplicate_window=CLUSTER_DUPLICATES_MS / 1000,
                max_age=CLUSTER_MAIL_MS / 1000,
            )
            try:
                await self.js.stream_info(self.stream)
            except NotFoundError:
                with suppress(BadRequestError):  # another broker made it this very moment
                    await self.js.add_stream(config)
                await self.js.stream_info(self.stream)
            self.leases = await self._bucket("brokers", replicas, CLUSTER_LEASE_MS / 1000)
            self.sessions = await self._bucket("sessions", replicas, None)
            await self._bucket("addresses", replicas, None)
            for shelf in get_args(Shelf):
                self.shelves[shelf] = await self._bucket(shelf, replicas, None)
            await self._bucket("targets", replicas, CLUSTER_TARGET_MS / 1000)

    async def find(self) -> list[str]:
        """Find the stream and the buckets, and make nothing; return the names of those that are not there."""
        from nats.js.errors import NotFoundError

        missing = []
        with refusals():
            try:
                await self.js.stream_info(self.stream)
            except NotFoundError:
                missing.append(self.stream)
            for what in _BUCKETS:
                try:
                    bucket = await self.js.key_value(f"{self.prefix}_{what}")
                except NotFoundError:
                    missing.append(f"{self.prefix}_{what}")
                else:
                    if what == "brokers":
                        self.leases = bucket
        return missing

    async def _bucket(self, what: str, replicas: int, ttl_s: float | None) -> KeyValue:
        from nats.js import api
        from nats.js.errors import BadRequestError, NotFoundError

        bucket = f"{self.prefix}_{what}"
        try:
            return await self.js.key_value(bucket)
        except NotFoundError:
            with suppress(BadRequestError):
                return await self.js.create_key_value(api.KeyValueConfig(bucket=bucket, replicas=replicas, ttl=ttl_s))
            return await self.js.key_value(bucket)

    def _replicas_to_have(self) -> int:
        """Return 3 where the engine is a cluster of so many servers, else 1."""
        others = {server.netloc for server in self.client.discovered_servers}
        return REPLICAS if max(self._named, 1 + len(others)) >= REPLICAS else 1

    async def time_ms(self) -> int | None:
        """Return what time it is where the stream is led, epoch ms; None: the engine does not say it.

        That clock is the only one by which two brokers can tell each other a time.
        """
        answer = await self.client.request(f"$JS.API.STREAM.INFO.{self.stream}", timeout=_ANSWER_S)
        try:
            told = decode(answer.data, type=_Info).ts
        except DecodeError:
            return None
        return None if told is None else int(told.timestamp() * 1000)

    async def put(self, what: str, key: str, value: bytes) -> None:
        """Write a key of a bucket."""
        await self.js.publish(f"$KV.{self.prefix}_{what}.{key}", value)

    async def put_if(self, what: str, key: str, value: bytes, revision: int) -> int | None:
        """Write a key of a bucket if this is its revision, 0: there is none; return the new one, None: it was not.

        A key that was deleted has the revision of that.
        """
        from nats.js.errors import APIError

        subject = f"$KV.{self.prefix}_{what}.{key}"
        try:
            stored = await self.js.publish(subject, value, headers={_EXPECTED: str(revision)})
        except APIError as error:
            if error.err_code in _WRONG_REVISION:
                return None
            raise
        return stored.seq

    async def delete_if(self, what: str, key: str, revision: int) -> None:
        """Delete a key of a bucket if this is its revision."""
        from nats.js.errors import APIError

        headers = {_EXPECTED: str(revision), "KV-Operation": "DEL"}
        try:
            await self.js.publish(f"$KV.{self.prefix}_{what}.{key}", headers=headers)
        except APIError as error:
            if error.err_code not in _WRONG_REVISION:
                raise

    async def get(self, what: str, key: str) -> tuple[int, bytes | None]:
        """Return the revision of a key of a bucket, 0: there is none, and its value, None: it was deleted."""
        from nats.js.errors import NotFoundError

        bucket = f"{self.prefix}_{what}"
        try:
            found = await self.js.get_last_msg(f"KV_{bucket}", f"$KV.{bucket}.{key}")
        except NotFoundError:
            return 0, None
        is_gone = "KV-Operation" in (found.headers or {})
        return found.seq or 0, None if is_gone else found.data

    async def watch(self, what: str, told: Callable[[str, bytes | None, int], None], whole: Callable[[], None]) -> None:
        """Tell every key of a bucket with value and revision; no value: it is gone.

        ``whole`` is called once all that was there was told.

        Goes on until the connection ends; raises ``Unusable`` when something was missed, or may have been.
        """
        from nats.js import api

        bucket = f"{self.prefix}_{what}"
        inbox = self.client.new_inbox()
        messages = await self.client.subscribe(inbox)
        config = api.ConsumerConfig(
            deliver_subject=inbox,
            filter_subject=f"$KV.{bucket}.>",
            deliver_policy=api.DeliverPolicy.LAST_PER_SUBJECT,
            ack_policy=api.AckPolicy.NONE,
            idle_heartbeat=CLUSTER_BEAT_MS / 1000,
            mem_storage=True,
            num_replicas=1,
        )
        consumer = await self.js.add_consumer(f"KV_{bucket}", config)
        is_whole = not consumer.num_pending
        if is_whole:
            whole()
        number = 0
        while True:
            try:
                message = await messages.next_msg(timeout=_BEATS * CLUSTER_BEAT_MS / 1000)
            except TimeoutError:
                raise Unusable(f"the engine tells nothing more of {bucket}") from None
            headers = message.headers or {}
            if "Status" in headers:
                continue
            number += 1
            place = message.metadata
            if place.sequence.consumer != number:
                raise Unusable(f"something of {bucket} was missed")
            key = message.subject.removeprefix(f"$KV.{bucket}.")
            is_gone = "KV-Operation" in headers or "Nats-Marker-Reason" in headers
            told(key, None if is_gone else message.data, place.sequence.stream)
            if not is_whole and not place.num_pending:
                is_whole = True
                whole()

    async def close(self) -> None:
        """End the connection."""
        await _closed(self.client)


def passed_ms() -> int:
    """Return a time in ms that goes on while the machine sleeps: on Linux the monotonic clock does not."""
    return time.clock_gettime_ns(_CLOCK) // 1_000_000


async def _closed(client: Client) -> None:
    """Close a client, within a bound: it waits for ever for the end of a handshake that has failed."""
    closing = asyncio.get_running_loop().create_task(client.close())
    done, _ = await asyncio.wait({closing}, timeout=CLUSTER_CLOSE_MS / 1000)
    if not done:
        closing.cancel()
        done, _ = await asyncio.wait({closing}, timeout=CLUSTER_CLOSE_MS / 1000)
    if done and not closing.cancelled():
        closing.exception()  # whatever it is, the connection is over


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what the engine says no with into ``Unusable``, in words for a person."""
    from nats.errors import Error
    from nats.js.errors import APIError, NoStreamResponseError, ServiceUnavailableError

    try:
        yield
    except (ServiceUnavailableError, NoStreamResponseError) as error:
        raise NotNow(f"the engine cannot store anything now: {getattr(error, 'description', None) or error}") from None
    except APIError as error:
        raise Unusable(f"the engine refuses what is needed: {error.description or error}") from None
    except (Error, OSError, TimeoutError) as error:
        raise NotNow(f"the engine does not answer: {str(error) or type(error).__name__}") from None


async def connected(settings: ClusterSettings, access: Access, *, name: str) -> Engine:
    """Return a connection to the engine; raise ``Unusable`` with the reason when there is none to be had.

    Every server is tried once, in any order; the next one also while one does not answer, as it may stand still.
    """
    why: object = "no server is named"
    left = sample(settings.url, len(settings.url))
    trying: set[asyncio.Task[Engine | Exception]] = set()
    try:
        while left or trying:
            if left:
                trying.add(asyncio.get_running_loop().create_task(_connected_to(left.pop(), settings, access, name)))
            next_s = CLUSTER_NEXT_MS / 1000 if left else None
            done, trying = await asyncio.wait(trying, timeout=next_s, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                found = task.result()
                if isinstance(found, Engine):
                    trying |= done - {task}
                    return found
                why = found
    finally:
        await _all_given_up(trying)
    told = str(why) or type(why).__name__
    if "authorization" in told.lower():
        told = f"{told}: {_shown(settings)}"
    raise Unusable(f"no server of {', '.join(settings.url)} can be used: {told}")


async def _all_given_up(trying: set[asyncio.Task[Engine | Exception]]) -> None:
    """End what is not needed any more, also what has come about meanwhile."""
    for task in trying:
        task.cancel()
    for found in await asyncio.gather(*trying, return_exceptions=True):
        if isinstance(found, Engine):
            await found.close()


def _shown(settings: ClusterSettings) -> str:
    """Return which setting the engine was not content with."""
    for name in ("token_file", "credentials"):
        if path := getattr(settings, name):
            return f"it does not take what is in {name} {path}"
    return "it wants token_file or credentials, and neither is set"


async def _connected_to(url: str, settings: ClusterSettings, access: Access, name: str) -> Engine | Exception:
    """Return a connection to one server, or why there is none."""
    try:
        from nats.aio.client import Client
        from nats.errors import Error
    except ImportError:
        raise Unusable(EXTRA) from None
    client = Client()
    engine: Engine | None = None
    errors: list[Exception] = []

    async def closed() -> None:
        if engine is not None:
            engine.lost.set()

    async def failed(error: Exception) -> None:
        errors[:] = [error]
        if engine is not None:
            engine.trouble = str(error) or type(error).__name__

    callbacks: dict[str, Any] = {"closed_cb": closed, "disconnected_cb": closed, "error_cb": failed}
    try:
        async with asyncio.timeout(2 * CLUSTER_CONNECT_MS / 1000):
            await client.connect(servers=[url], name=name, **access.options, **callbacks)
    except (TimeoutError, OSError, Error, ValueError) as error:
        await _closed(client)
        why = errors[0] if errors else error
        # its word for no is lost where the server ends the connection before that was read
        is_no = isinstance(why, ConnectionError) and client._server_info.get("auth_required", False)
        return PermissionError(f"authorization ended with {why}") if is_no else why
    except asyncio.CancelledError:
        await _closed(client)
        raise
    engine = Engine(client, settings)
    if client.is_closed:
        engine.lost.set()
    return engine
