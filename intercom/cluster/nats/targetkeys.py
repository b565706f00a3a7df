"""Keep in the engine which brokers held each target last: where an earlier acceptance is looked for (protocol D13)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any

from msgspec import DecodeError
from msgspec.json import decode

from intercom.cluster.envelope import Envelope
from intercom.cluster.nats.engine import Engine
from intercom.cluster.nats.homekeys import Tell
from intercom.core.records import HoldTargets, TargetHeld
from intercom.limits import CLUSTER_TARGET_BROKERS, CLUSTER_TARGETS_AT_ONCE

_BUCKET = "targets"
_TRIES = 3
"""How often a key is written anew that another broker wrote meanwhile; what was there last is told all the same."""


class TargetKeys:
    """Hold which keys are to be written, and tell what was there.

    Args:
        own: id of this broker.
        tell: tells the core.
        sealed: puts something of a kind into an envelope.
        opened: returns the envelope in what somebody wrote, None where it is no broker's of this cluster.
    """

    def __init__(
        self,
        own: str,
        tell: Tell,
        sealed: Callable[[str, Any], bytes],
        opened: Callable[[bytes], Envelope | None],
    ) -> None:
        self._own = own
        self._tell = tell
        self._sealed = sealed
        self._opened = opened
        self._keys: dict[str, None] = {}
        """In the order in which they came."""
        self._wake = asyncio.Event()

    def submit(self, work: HoldTargets) -> None:
        """Write keys as soon as there is a connection."""
        self._keys.update(dict.fromkeys(work.keys))
        self._wake.set()

    async def run(self, engine: Engine) -> None:
        """Write what is to be written, for the life of the connection."""
        while True:
            while self._keys:
                at_once = list(islice(self._keys, CLUSTER_TARGETS_AT_ONCE))
                await asyncio.gather(*(self._take(engine, key) for key in at_once))
            self._wake.clear()
            await self._wake.wait()

    async def _take(self, engine: Engine, key: str) -> None:
        del self._keys[key]  # at once: who asks again after it was told is told again
        try:
            await self._hold(engine, key)
        except BaseException:
            self._keys[key] = None
            raise

    async def _hold(self, engine: Engine, key: str) -> None:
        brokers: list[str] = []
        for _ in range(_TRIES):
            revision, data = await engine.get(_BUCKET, key)
            held = [] if data is None else self._read(data)
            others = [broker for broker in held if broker != self._own]
            brokers = [self._own, *others][:CLUSTER_TARGET_BROKERS]
            if await engine.put_if(_BUCKET, key, self._sealed("target", brokers), revision) is not None:
                break
        self._tell(TargetHeld(key, tuple(brokers)))

    def _read(self, data: bytes) -> list[str]:
        envelope = self._opened(data)
        if envelope is not None:
            with suppress(DecodeError):
                return decode(envelope.body, type=list[str])
        return []
