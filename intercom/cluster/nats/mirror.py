"""Know which brokers hold a lease, and for whom each of them says that it answers.

A lease is judged by when this process saw it last, never by a time that another machine wrote: clocks may differ.
What a broker says of its sessions counts while the lease of that broker, with that epoch, lives.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from intercom.core.records import PeerLost, PeerSeen, RemoteName, RemoteReservation, RemoteRoute, Shelf
from intercom.limits import CLUSTER_LEASE_MS

Shared: TypeAlias = RemoteReservation | RemoteRoute


class Lease(Struct, frozen=True):
    """Say that a broker is there."""

    node: str
    journal_id: str
    epoch: int
    host: str
    pid: int
    version: str
    started_at: int
    """Epoch ms, by the clock of that machine."""


class _Peer:
    def __init__(self, lease: Lease, now: int) -> None:
        self.lease = lease
        self.seen = now
        self.told: Any = None


class Mirror:
    """Hold what the engine says of other brokers; ``own`` is the id of this one."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._peers: dict[str, _Peer] = {}
        self._names: dict[str, dict[str, tuple[int, RemoteName]]] = {}
        self._filling: dict[str, dict[str, tuple[int, RemoteName]]] | None = None
        self._shared: dict[tuple[Shelf, str], tuple[str, int, Shared]] = {}
        """Broker, epoch and what it says, by where that lies."""
        self._shared_before: dict[tuple[Shelf, str], tuple[str, int, Shared]] = {}
        """What was known on the connection before, until all is told anew."""
        self._changed: set[str] = set()
        self._ended: list[PeerLost] = []

    def __len__(self) -> int:
        return len(self._peers)

    def __contains__(self, broker_id: object) -> bool:
        return broker_id in self._peers

    def lease_seen(self, broker_id: str, lease: Lease, now: int) -> None:
        """Take note of a lease that was written; ``now`` is monotonic, ms."""
        if broker_id == self._own:
            return
        peer = self._peers.get(broker_id)
        if peer is None or peer.lease.epoch != lease.epoch:
            self._peers[broker_id] = _Peer(lease, now)
            self._changed.add(broker_id)
        else:
            peer.lease, peer.seen = lease, now

    def is_there(self, broker_id: str, now: int) -> None:
        """Take note of another sign of life of a broker that holds a lease; ``now`` is monotonic, ms."""
        if broker_id in self._peers:
            self._peers[broker_id].seen = now

    def lease_ended(self, broker_id: str, *, said_goodbye: bool = True) -> None:
        """Take note that a broker gave its lease back, or that it did not renew that for too long."""
        if self._peers.pop(broker_id, None) is not None:
            self._changed.discard(broker_id)
            self._ended.append(PeerLost(broker_id, said_goodbye))

    def name_seen(self, broker_id: str, name_id: str, epoch: int, name: RemoteName | None) -> None:
        """Take note of what a broker says of somebody; None: it answers for it no more."""
        if broker_id == self._own:
            return
        names = (self._names if self._filling is None else self._filling).setdefault(broker_id, {})
        if names.get(name_id) != (epoch, name):
            names.pop(name_id, None)  # who is told of last comes last
        if name is not None:
            names[name_id] = (epoch, name)
        if broker_id in self._peers:
            self._changed.add(broker_id)

    def shared_seen(self, shelf: Shelf, key: str, broker_id: str | None, epoch: int, shared: Shared | None) -> None:
        """Take note of what a broker says of a reservation or a run; None: nobody says anything of it any more."""
        place = (shelf, key)
        before = self._shared.pop(place, None) or self._shared_before.pop(place, None)
        if before is not None:
            self._changed.update({before[0]} & self._peers.keys())
        if broker_id is not None and shared is not None:
            self._shared[place] = (broker_id, epoch, shared)
            self._changed.update({broker_id} & self._peers.keys())

    def shelf_is_whole(self, shelf: Shelf) -> None:
        """Take note that all on a shelf was told: other things are gone."""
        for place in [place for place in self._shared_before if place[0] == shelf]:
            self._changed.update({self._shared_before.pop(place)[0]} & self._peers.keys())

    def begin_anew(self) -> None:
        """Expect everything to be told anew; until ``is_whole`` what is known counts."""
        self._filling = {}
        self._shared_before |= self._shared
        self._shared = {}

    def is_whole(self) -> None:
        """Take note that all names were told: others are gone."""
        if self._filling is not None:
            self._names, self._filling = self._filling, None
            self._changed.update(self._peers)

    def facts(self, now: int) -> list[PeerSeen | PeerLost]:
        """Return what has changed since the last call, leases included that have ended by now."""
        for broker_id, peer in list(self._peers.items()):
            if now - peer.seen >= CLUSTER_LEASE_MS:
                self.lease_ended(broker_id, said_goodbye=False)
        facts: list[PeerSeen | PeerLost] = [*self._ended]
        self._ended.clear()
        changed, self._changed = self._changed, set()
        for broker_id in sorted(changed):
            peer = self._peers[broker_id]
            names = self._names.get(broker_id, {}).values()
            told = tuple(name for epoch, name in names if epoch == peer.lease.epoch)
            known = (self._shared_before | self._shared).values()
            shared = tuple(each for by, epoch, each in known if (by, epoch) == (broker_id, peer.lease.epoch))
            if (told, shared) != peer.told:
                peer.told = (told, shared)
                lease = peer.lease
                facts.append(PeerSeen(broker_id, lease.node, lease.journal_id, told, lease.epoch, shared))
        return facts
