"""Know who is here, who may come back, under which addresses, and what everybody lets in."""

from __future__ import annotations

from intercom.core.addresses import Addresses
from intercom.core.clock import Instant
from intercom.core.ground import Ground
from intercom.core.lifecycle import Known, Lifecycle
from intercom.core.part import Part
from intercom.core.policies import Policies
from intercom.core.records import Recovered, SessionState
from intercom.core.sessions import SessionTable


class Registry(Part):
    """Hold the tables of sessions, addresses and policies."""

    def __init__(self, ground: Ground, recovered: Recovered) -> None:
        limits, ledger, journal, keeping = ground.limits, ground.ledger, ground.journal, ground.keeping
        self.sessions = SessionTable(ground.ids, ledger, recovered.retired_ids, limits.retired_ids)
        self.addresses = Addresses(
            ledger, journal, keeping, recovered.addresses, limits.addresses, limits.address_idle_ms
        )
        self.policies = Policies(ledger, journal, recovered.policies, limits.policies)
        self.lifecycle = Lifecycle(ground.deadlines, ledger, journal, keeping, ground.outbox, limits)
        self.lifecycle.on_undone = self.sessions.release_id
        self.lifecycle.on_ending.append(self._ending)

    def recover(self, recovered: Recovered, now: Instant) -> None:
        """Enter the known sessions; nobody else gets the id of one that may come back."""
        for record in recovered.known_sessions:
            known = self.lifecycle.recover(record, now)
            if known.state is SessionState.RECONNECTING:
                self.sessions.reserve_id(known.id)

    def is_known_here(self, session_id: str) -> bool:
        """Tell whether this broker answers for the session with this id."""
        session = self.sessions.get(session_id)
        return (session is not None and not session.is_remote) or self.lifecycle.get(session_id) is not None

    def _ending(self, known: Known, now: Instant) -> None:
        self.sessions.release_id(known.id)
