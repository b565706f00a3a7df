"""Know what brokers that have been away for long have left in the engine, so that whoever sees it can take it out.

Such a broker is one that holds no lease for ``CLUSTER_GONE_MS`` as this process sees it; no clock of another machine is
asked. Rule: a key is taken out as it was seen. What its broker has written anew is left alone, and a broker whose key
goes while it is there writes that again.
"""

from __future__ import annotations

from collections.abc import Container

from msgspec import Struct

from intercom.limits import CLUSTER_GONE_MS


class Left(Struct, frozen=True):
    """Name one key as it was seen last."""

    bucket: str
    key: str
    broker_id: str
    revision: int


class LeftBehind:
    """Hold the keys of other brokers; ``own`` is the id of this one."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._keys: dict[tuple[str, str], Left] = {}
        self._of: dict[str, dict[tuple[str, str], Left]] = {}
        """By broker."""
        self._away_since: dict[str, int] = {}
        """By broker, monotonic ms."""

    def seen(self, bucket: str, key: str, broker_id: str | None, revision: int) -> None:
        """Take note of a key, and who has written it; None: it is gone."""
        place = (bucket, key)
        before = self._keys.pop(place, None)
        if before is not None:
            mine = self._of[before.broker_id]
            del mine[place]
            if not mine:
                del self._of[before.broker_id]
                self._away_since.pop(before.broker_id, None)
        if broker_id is not None and broker_id != self._own:
            left = self._keys[place] = Left(bucket, key, broker_id, revision)
            self._of.setdefault(broker_id, {})[place] = left

    def begin_anew(self) -> None:
        """Expect all keys to be told anew."""
        self._keys.clear()
        self._of.clear()

    def due(self, there: Container[str], now: int) -> list[Left]:
        """Return what is to be taken out; ``there`` are the brokers that hold a lease, ``now`` is monotonic, ms."""
        due: list[Left] = []
        for broker_id, mine in self._of.items():
            if broker_id in there:
                self._away_since.pop(broker_id, None)
            elif now - self._away_since.setdefault(broker_id, now) >= CLUSTER_GONE_MS:
                due += mine.values()
        return due
