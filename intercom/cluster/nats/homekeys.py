"""Keep in the engine where each address is at home, and let one of two claims win.

The engine compares the revision that a claim names with the one it holds; so of two claims made at once one is refused,
and is told what the other wrote. What was written under another key says nothing here: it gives way, unless a broker
with that key is there, whose address it is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from msgspec import DecodeError
from msgspec.json import decode
from msgspec.structs import replace

from intercom.cluster.envelope import Envelope, writer_of
from intercom.cluster.nats.access import Unusable
from intercom.cluster.nats.engine import Engine
from intercom.core.records import (
    AddressClaimed,
    AddressesKnown,
    AddressHome,
    AddressSeen,
    ClaimAddress,
    DropAddress,
    PeerFact,
)

_BUCKET = "addresses"


class Tell(Protocol):
    """Tell the core of facts."""

    def __call__(self, *facts: PeerFact) -> None:
        """Tell them, in their order."""


class HomeKeys:
    """Hold what is to be written, and tell what is written.

    Args:
        tell: tells the core.
        sealed: puts something of a kind into an envelope.
        opened: returns the envelope in what somebody wrote, None where it is no broker's of this cluster.
        is_foreign: tells whether the broker with this id is there under another key.
    """

    def __init__(
        self,
        tell: Tell,
        sealed: Callable[[str, Any], bytes],
        opened: Callable[[bytes], Envelope | None],
        is_foreign: Callable[[str], bool],
    ) -> None:
        self._tell = tell
        self._sealed = sealed
        self._opened = opened
        self._is_foreign = is_foreign
        self._work: deque[ClaimAddress | DropAddress] = deque()
        self._wake = asyncio.Event()
        self._filling: set[str] | None = set()
        """The keys that were told until all were."""

    def submit(self, work: ClaimAddress | DropAddress) -> None:
        """Write something as soon as there is a connection."""
        self._work.append(work)
        self._wake.set()

    def begin_anew(self) -> None:
        """Forget what was to be written: the core begins anew with every connection, once it knows all homes."""
        self._work.clear()
        self._filling = set()

    def told(self, key: str, data: bytes | None, revision: int) -> None:
        """Take what the engine holds."""
        home = None if data is None else self._read(data, key, revision)
        if home is not None and self._filling is not None:
            self._filling.add(key)
        if home is not None or data is None:
            self._tell(AddressSeen(key, home))

    def is_whole(self) -> None:
        """Take notice that all that was there was told."""
        keys, self._filling = self._filling or set(), None
        self._tell(AddressesKnown(frozenset(keys)))

    def _read(self, data: bytes, key: str, revision: int) -> AddressHome | None:
        envelope = self._opened(data)
        if envelope is not None:
            with suppress(DecodeError):
                home = decode(envelope.body, type=AddressHome)
                if home.key == key:
                    return replace(home, revision=revision)
        return None

    async def run(self, engine: Engine) -> None:
        """Write what is to be written, for the life of the connection."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._work:
                work = self._work[0]
                if isinstance(work, ClaimAddress):
                    await self._claim(engine, work)
                else:
                    await engine.delete_if(_BUCKET, work.address.key, work.address.revision)
                if self._work and self._work[0] is work:
                    self._work.popleft()

    async def _claim(self, engine: Engine, work: ClaimAddress) -> None:
        known = work.address.revision
        wanted = replace(work.address, revision=0, after=known)
        value = self._sealed("address", wanted)
        revision = await engine.put_if(_BUCKET, wanted.key, value, known)
        if revision is None:
            found, data = await engine.get(_BUCKET, wanted.key)
            home = None if data is None else self._read(data, wanted.key, found)
            if home is not None or (data is not None and self._is_foreign(writer_of(data))):
                self._tell(AddressClaimed(work.number, False, home))
                return
            # It was deleted, or says nothing under this key: that is a revision too, and nobody holds it.
            revision = await engine.put_if(_BUCKET, wanted.key, value, found)
            if revision is None:
                raise Unusable(f"the home of an address changed more than once while it was claimed ({wanted.key})")
        self._tell(AddressClaimed(work.number, True, replace(wanted, revision=revision)))
