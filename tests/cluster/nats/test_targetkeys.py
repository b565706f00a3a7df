"""Test what is told of who held a target, where several brokers write that at one time (protocol D13)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from intercom.cluster.envelope import Envelope
from intercom.cluster.nats.targetkeys import TargetKeys
from intercom.core.records import HoldTargets, TargetHeld


class Contested:
    """Be an engine in which another broker is faster, this often."""

    def __init__(self, faster: int) -> None:
        self.faster = faster
        self.written: list[bytes] = []

    async def get(self, what: str, key: str) -> tuple[int, bytes | None]:
        """Return what another broker has written."""
        return 7, b'["other"]'

    async def put_if(self, what: str, key: str, value: bytes, revision: int) -> int | None:
        """Let the other one be faster, as often as that is to be."""
        if self.faster > 0:
            self.faster -= 1
            return None
        self.written.append(value)
        return revision + 1


@pytest.mark.parametrize(("faster", "is_written"), [(0, True), (2, True), (9, False)])
def test_whoever_asked_is_told_also_when_others_write_at_the_same_time(faster: int, is_written: bool) -> None:
    """cluster.md 3: messages wait for this, so it is always told; what was there last counts."""
    engine: Any = Contested(faster)
    told: list[Any] = []

    async def hold() -> None:
        heard = asyncio.Event()

        def tell(*facts: Any) -> None:
            told.extend(facts)
            heard.set()

        keys = TargetKeys(
            "own",
            tell,
            lambda kind, value: b"sealed",
            lambda data: Envelope(1, "target", "k", "other", "", 1, Raw(data)),
        )
        keys.submit(HoldTargets(("k",)))
        running = asyncio.get_running_loop().create_task(keys.run(engine))
        await asyncio.wait_for(heard.wait(), 10)
        running.cancel()

    asyncio.run(hold())
    assert told == [TargetHeld("k", ("own", "other"))]
    assert bool(engine.written) is is_written
