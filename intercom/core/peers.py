"""Know which other brokers are there, and whom each of them answers for (FE 3.4, Peer discovery).

Rule 1: each name has one authority; a name that lives here, or that its peer is not the home of, is not taken from a
peer. Rule 2: what is told again and says nothing new is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from intercom.core.clock import Instant
from intercom.core.invocation_targets import address_id
from intercom.core.labels import Candidate
from intercom.core.peer_records import PeerLost, PeerRecord, PeerSeen, RemoteName

if TYPE_CHECKING:
    from intercom.core.journal import Journal
    from intercom.core.ledger import Ledger


class Peers:
    """Hold the peers.

    Args:
        own: id of this broker.
        is_known_here: tells whether somebody with this id lives here.
    """

    def __init__(
        self,
        own: str,
        journal: Journal,
        ledger: Ledger,
        next_number: Callable[[], int],
        is_known_here: Callable[[str], bool],
    ) -> None:
        self._own = own
        self._journal = journal
        self._ledger = ledger
        self._next_number = next_number
        self._is_known_here = is_known_here
        self._known: dict[str, PeerRecord] = {}
        self._names: dict[str, dict[str, RemoteName]] = {}
        """Of the peers that are there."""

    def __len__(self) -> int:
        return len(self._names)

    def is_there(self, broker_id: str) -> bool:
        """Tell whether a peer can be reached."""
        return broker_id in self._names

    def name_of(self, broker_id: str) -> str:
        """Return what the machine of a peer is called."""
        record = self._known.get(broker_id)
        return broker_id if record is None else record.name

    def there(self) -> list[PeerRecord]:
        """Return the peers that can be reached, by the names of their machines."""
        return sorted(
            (self._known[broker_id] for broker_id in self._names), key=lambda record: (record.name, record.broker_id)
        )

    def name_count(self, broker_id: str) -> int:
        """Return for how many a peer answers."""
        return len(self._names.get(broker_id, ()))

    def recover(self, records: Iterable[PeerRecord]) -> None:
        """Enter peers read from the store; none of them is there yet."""
        self._known.update((record.broker_id, record) for record in records)

    def seen(self, fact: PeerSeen, now: Instant) -> bool:
        """Take note of a peer and its names; return whether it was not there before."""
        if fact.broker_id == self._own:
            return False
        is_new = fact.broker_id not in self._names
        self._names[fact.broker_id] = {
            target_id: name for target_id, name in fact.present.items() if not self._is_known_here(target_id)
        }
        before = self._known.get(fact.broker_id)
        if before is None:
            record = PeerRecord(self._next_number(), fact.broker_id, fact.name, fact.journal_id, now.wall)
        else:
            record = replace(before, name=fact.name, journal_id=fact.journal_id)
        if record != before:
            self._known[fact.broker_id] = record
            event = self._journal.event("peer.seen", record, now)
            self._ledger.append((event,), self._forget, (fact.broker_id, before))
        return is_new

    def _forget(self, subject: tuple[str, PeerRecord | None], now: Instant) -> None:
        broker_id, before = subject
        if before is None:
            self._known.pop(broker_id, None)
        else:
            self._known[broker_id] = before

    def lost(self, fact: PeerLost) -> None:
        """Take note that a peer is not there any more, and with it those it answers for."""
        self._names.pop(fact.broker_id, None)

    def candidates(self, groups: Iterable[str] | None) -> list[Candidate]:
        """Return whom peers answer for, as far as they are in one of these groups; None: all."""
        within = None if groups is None else frozenset(groups)
        return [
            self._candidate(broker_id, name)
            for broker_id, names in self._names.items()
            for name in names.values()
            if within is None or within & frozenset(name.groups)
        ]

    def held_addresses(self) -> set[tuple[str, str]]:
        """Return group and name of the addresses that sessions hold for which peers answer."""
        return {name.address for names in self._names.values() for name in names.values() if name.address is not None}

    def with_id(self, target_id: str, groups: Iterable[str] | None) -> Candidate | None:
        """Return who has exactly this id, as far as it is in one of these groups."""
        for broker_id, names in self._names.items():
            name = names.get(target_id)
            if name is not None and (groups is None or frozenset(groups) & frozenset(name.groups)):
                return self._candidate(broker_id, name)
        return None

    def _candidate(self, broker_id: str, name: RemoteName) -> Candidate:
        # A session that holds an address may be gone when the task comes there: the address is the target then, too.
        is_known_as = name.target_id if name.address is None else address_id(*name.address)
        return Candidate(
            is_known_as,
            name.name,
            name.state,
            is_address=name.is_address,
            ids=() if name.address is None else (name.target_id,),
            is_local=False,
            authority=broker_id,
            workspace=name.workspace,
            branch=name.branch,
            node=self.name_of(broker_id),
            profile=name.profile,
            harness=name.harness,
            model=name.model,
        )
