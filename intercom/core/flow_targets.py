"""Decide whom a flow means, and whether that session can be handed a step now (protocol 12.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from intercom.core import features
from intercom.core.flow_records import TargetIdentity
from intercom.core.resolving import holders_of
from intercom.wire.flows import SESSION_PREFIX
from intercom.wire.frames import trim

if TYPE_CHECKING:
    from intercom.core.addresses import Addresses
    from intercom.core.lifecycle import Known, Lifecycle
    from intercom.core.records import StoreIdentity
    from intercom.core.sessions import Session, SessionTable


class Unreachable(Struct, frozen=True):
    """Say in a sentence why no step can be handed out."""

    reason: str


class FlowTargets:
    """Find targets, and tell one incarnation of a session from another."""

    def __init__(
        self, sessions: SessionTable, addresses: Addresses, lifecycle: Lifecycle, identity: StoreIdentity
    ) -> None:
        self._sessions = sessions
        self._addresses = addresses
        self._lifecycle = lifecycle
        self._broker_id = identity.broker_id

    def find(self, target: str, group: str) -> Session | Unreachable:
        """Return the one session that may take a step of a flow of this group now."""
        target = trim(target)
        if target.startswith(SESSION_PREFIX):
            session_id = target.removeprefix(SESSION_PREFIX)
            session = self._sessions.get(session_id)
            if session is None or group not in session.groups:
                known = self._lifecycle.get(session_id)
                state = "is not here" if known is None else f"is {known.state.value}"
                return Unreachable(f"session {session_id} {state}")
        else:
            named = [peer for peer in self._sessions.named(target) if peer.is_agent and group in peer.groups]
            if len(named) > 1:
                named = holders_of(named, target) or named
            if not named:
                named = [
                    address.holder
                    for address in self._addresses.named(target)
                    if address.holder is not None and group in address.holder.groups
                ]
            if not named:
                return Unreachable(f"nobody in group {group} is called {target}")
            if len(named) > 1:
                return Unreachable(f"several sessions in group {group} are called {target}; name one by its id")
            session = named[0]
        return self._fitness(session) or session

    def _fitness(self, session: Session) -> Unreachable | None:
        label = session.name or session.id
        if session.is_remote:
            return Unreachable(f"{label} is on another machine, and takes no steps from here")
        if not session.is_agent:
            return Unreachable(f"{label} is an internal connection")
        if session.is_terminal:
            return Unreachable(f"{label} has finished and takes nothing more")
        if session.known is None or session.known.session is not session or session.mailbox is None:
            return Unreachable(f"{label} cannot be told from its next start: it did not ask for {features.LIFECYCLE}")
        if features.FLOW_REPORT not in session.features:
            return Unreachable(f"{label} cannot report: it did not ask for {features.FLOW_REPORT}")
        return None

    def identity_of(self, session: Session) -> TargetIdentity:
        """Return the exact identity of a session that was found."""
        assert session.known is not None
        record = session.known.record
        return TargetIdentity(self._broker_id, record.session_id, record.incarnation, record.runtime_session_id)

    def known_as(self, identity: TargetIdentity) -> Known | None:
        """Return the session of exactly this identity, also one that may still come back; None: it is gone for good."""
        known = self._lifecycle.get(identity.session_id)
        if known is None or known.state.value == "closed" or identity.broker_id != self._broker_id:
            return None
        record = known.record
        is_same = (record.incarnation, record.runtime_session_id) == (identity.incarnation, identity.runtime_session_id)
        return known if is_same else None

    def may_report(self, session: Session, identity: TargetIdentity, address: int | None) -> bool:
        """Tell whether a report may come from here: the very session, or whoever acts under the address it acts under.

        A command is a process of its own, and what a process wrote down before it died is brought by the next one.
        """
        if session.address is not None and session.address.number == address:
            return True
        return self.is_exactly(session, identity)

    def is_exactly(self, session: Session, identity: TargetIdentity) -> bool:
        """Tell whether this connected session is the one of this identity."""
        return session.known is not None and self.known_as(identity) is session.known
