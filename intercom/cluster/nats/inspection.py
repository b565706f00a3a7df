"""Look at a cluster from outside of any broker: is it there, is it set up as it must be, who is in it."""

from __future__ import annotations

import asyncio
import time
from typing import Literal, TypeAlias

from msgspec import DecodeError, Struct
from msgspec.json import decode

from intercom.cluster.envelope import Foreign, unseal
from intercom.cluster.nats.access import Access, Unusable, access_to
from intercom.cluster.nats.consumer import consumer_name
from intercom.cluster.nats.engine import Engine, connected, refusals
from intercom.cluster.nats.mirror import Lease
from intercom.config import ClusterSettings
from intercom.limits import CLUSTER_ANSWER_MS, CLUSTER_LEASE_MS

State: TypeAlias = Literal["ok", "bad", "unknown"]
_CHECK_KEY = "check"
"""Is written to see whether anything can be stored: nobody follows that bucket, and what lies there is forgotten."""
_CLOCK_MS = 2 * CLUSTER_LEASE_MS


class Checked(Struct, frozen=True):
    """Hold the result of one check."""

    id: str
    state: State
    found: str


class Seen(Struct, frozen=True):
    """Hold a broker that has a lease."""

    broker_id: str
    lease: Lease
    written_at: float
    """By the clock of the engine, epoch seconds."""


class UnknownPeer(Exception):
    """Say that no broker, or more than one, is meant; holds the names there are."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


async def check(settings: ClusterSettings) -> list[Checked]:
    """Return what each check found, in order; after one that is bad the others are left out."""
    found: list[Checked] = []
    try:
        access = access_to(settings)
        found.append(Checked("files", "ok", "key and credentials can be read by this user alone"))
        began = time.monotonic()
        engine = await connected(settings, access, name="intercom cluster check")
    except Unusable as error:
        found.append(Checked("engine" if found else "files", "bad", str(error)))
        return found
    try:
        took_ms = (time.monotonic() - began) * 1000
        version = engine.client.connected_server_version
        plain = f"{version.major}.{version.minor}.{version.patch}"
        found.append(Checked("engine", "ok", f"nats-server {plain} answers, connected in {took_ms:.0f} ms"))
        missing = await engine.find()
        found.append(_missing(missing) if missing else await _stream(engine))
        brokers, foreign = await _leases(engine, access)
        found.append(_key(brokers, foreign))
        found.append(_clock(brokers))
        found.append(await _lag(engine, brokers))
    except Unusable as error:
        found.append(Checked("stream", "bad", str(error)))
    finally:
        await engine.close()
    return found


async def ping(settings: ClusterSettings, peer: str) -> tuple[str, str, float]:
    """Return id, node and round trip (ms) of a broker, found by its node or by how its id begins.

    Raises ``Unusable``, ``UnknownPeer``, and ``TimeoutError`` when it does not answer.
    """
    from nats.errors import NoRespondersError

    access = access_to(settings)
    engine = await connected(settings, access, name="intercom peer ping")
    try:
        await engine.find()
        brokers, _ = await _leases(engine, access)
        meant = [each for each in brokers if peer in (each.lease.node, each.broker_id)]
        meant = meant or [each for each in brokers if len(peer) >= 8 and each.broker_id.startswith(peer)]
        if len(meant) != 1:
            raise UnknownPeer(sorted(f"{each.lease.node} ({each.broker_id})" for each in brokers))
        broker_id = meant[0].broker_id
        began = time.monotonic()
        try:
            answer = await engine.client.request(engine.ping_subject(broker_id), b"", timeout=CLUSTER_ANSWER_MS / 1000)
        except NoRespondersError:
            raise TimeoutError from None
        took_ms = (time.monotonic() - began) * 1000
        unseal(access.key, answer.data)
        return broker_id, meant[0].lease.node, took_ms
    finally:
        await engine.close()


def _missing(names: list[str]) -> Checked:
    return Checked("stream", "unknown", f"not there yet: {', '.join(names)}; a broker with these settings makes them")


async def _stream(engine: Engine) -> Checked:
    info = await engine.js.stream_info(engine.stream)
    config = info.config
    wrong = []
    if str(getattr(config.retention, "value", config.retention)) != "workqueue":
        wrong.append(f"its retention is {config.retention}, not workqueue")
    if str(getattr(config.discard, "value", config.discard)) != "new":
        wrong.append("it discards old messages when it is full")
    if config.subjects != [f"{engine.prefix}.mail.*"]:
        wrong.append(f"its subjects are {config.subjects}")
    if wrong:
        return Checked("stream", "bad", f"{engine.stream} was changed: {'; '.join(wrong)}")
    try:
        with refusals():
            await engine.put("targets", _CHECK_KEY, b"")
    except Unusable as error:
        return Checked("stream", "bad", str(error))
    copies = f"{config.num_replicas} {'copy' if config.num_replicas == 1 else 'copies'}"
    return Checked("stream", "ok", f"{engine.stream} holds {info.state.messages} messages in {copies}")


async def _leases(engine: Engine, access: Access) -> tuple[list[Seen], int]:
    """Return the brokers with a lease under this key, and how many there are under others."""
    from nats.js.errors import NotFoundError

    seen: dict[str, Seen] = {}
    foreign: set[str] = set()
    for key in await _keys(engine):
        try:
            entry = await engine.leases.get(key)
            envelope = unseal(access.key, entry.value or b"")
            lease = decode(envelope.body, type=Lease)
        except NotFoundError:
            continue
        except (Foreign, DecodeError):
            foreign.add(key)
        else:
            written = await engine.js.get_last_msg(f"KV_{engine.prefix}_brokers", f"$KV.{engine.prefix}_brokers.{key}")
            seen[key] = Seen(key, lease, written.time.timestamp() if written.time is not None else time.time())
    return sorted(seen.values(), key=lambda each: each.lease.node), len(foreign)


async def _keys(engine: Engine) -> list[str]:
    """Return the brokers that hold a lease, whatever key it was made under."""
    from nats.js.errors import NotFoundError

    subject = f"$KV.{engine.prefix}_brokers."
    try:
        info = await engine.js.stream_info(f"KV_{engine.prefix}_brokers", subjects_filter=f"{subject}>")
    except NotFoundError:
        return []
    return [each.removeprefix(subject) for each in info.state.subjects or ()]


def _key(brokers: list[Seen], foreign: int) -> Checked:
    there = ", ".join(each.lease.node for each in brokers) or "no broker"
    if foreign:
        return Checked("key", "bad", f"{foreign} brokers under this prefix have another key; under this one: {there}")
    return Checked("key", "ok", f"under this key: {there}")


def _clock(brokers: list[Seen]) -> Checked:
    if not brokers:
        return Checked("clock", "unknown", "there is no lease to compare the clock with")
    newest = max(each.written_at for each in brokers)
    off_ms = abs(time.time() - newest) * 1000
    if off_ms > _CLOCK_MS:
        return Checked(
            "clock", "ok", f"it is about {off_ms / 1000:.0f} s apart from the engine's; nothing depends on that"
        )
    return Checked("clock", "ok", "it agrees with the engine's")


async def _lag(engine: Engine, brokers: list[Seen]) -> Checked:
    from nats.js.errors import NotFoundError

    waiting: dict[str, int] = {}
    for each in brokers:
        try:
            info = await engine.js.consumer_info(engine.stream, consumer_name(each.broker_id))
        except NotFoundError:
            continue
        waiting[each.lease.node] = (info.num_pending or 0) + (info.num_ack_pending or 0)
    behind = {node: count for node, count in waiting.items() if count}
    if not behind:
        return Checked("lag", "ok", "nothing waits to be fetched by a broker that is there")
    return Checked("lag", "ok", "; ".join(f"{count} wait for {node}" for node, count in behind.items()))


def run_check(settings: ClusterSettings, timeout_s: float) -> list[Checked]:
    """Do ``check`` in an event loop of its own; raise ``TimeoutError`` when it takes longer."""
    return asyncio.run(asyncio.wait_for(check(settings), timeout_s))


def run_ping(settings: ClusterSettings, peer: str, timeout_s: float) -> tuple[str, str, float]:
    """Do ``ping`` in an event loop of its own."""
    return asyncio.run(asyncio.wait_for(ping(settings, peer), timeout_s))
