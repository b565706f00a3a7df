"""Decide whom a flow means, and whether that session can be handed a step now (protocol 12.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from intercom.core import features
from intercom.core.flow_records import TargetIdentity
from intercom.core.labels import NODE_SIGN
from intercom.core.resolving import holders_of, node_of
from intercom.wire.flows import SESSION_PREFIX
from intercom.wire.frames import trim

if TYPE_CHECKING:
    from intercom.core.addresses import Addresses
    from intercom.core.clock import Instant
    from intercom.core.flow import Dispatch
    from intercom.core.lifecycle import Known, Lifecycle
    from intercom.core.records import StoreIdentity
    from intercom.core.sessions import Session, SessionTable


class Unreachable(Struct, frozen=True):
    """Say in a sentence why no step can be handed out."""

    reason: str


class Elsewhere(Protocol):
    """Know the sessions of other brokers, and bring them steps; a broker that is in no cluster has nothing like it."""

    here: str
    """What this machine is called."""

    def is_there(self, node: str) -> bool:
        """Tell whether another machine that is called so can be reached."""

    def unfit(self, session: Session) -> str | None:
        """Return why a session elsewhere cannot be handed a step now."""

    def identity_of(self, session: Session) -> TargetIdentity:
        """Return the exact identity of a session elsewhere."""

    def granted(self, session: Session) -> frozenset[str]:
        """Return the features that its broker granted a session elsewhere."""

    def begun(self, dispatch: Dispatch, now: Instant) -> None:
        """Bring an attempt to its session, once it is recorded."""

    def look_at(self, dispatch: Dispatch, now: Instant) -> None:
        """Go on with an open attempt of which nothing is decided."""

    def ended(self, dispatch: Dispatch, ticket: int) -> None:
        """Let the broker of its session know that an attempt is over, once that is recorded."""


class FlowTargets:
    """Find targets, and tell one incarnation of a session from another."""

    def __init__(
        self, sessions: SessionTable, addresses: Addresses, lifecycle: Lifecycle, identity: StoreIdentity
    ) -> None:
        self._sessions = sessions
        self._addresses = addresses
        self._lifecycle = lifecycle
        self._broker_id = identity.broker_id
        self.elsewhere: Elsewhere | None = None
        """Knows the sessions of other brokers; None: there are none."""

    def find(self, target: str, group: str) -> Session | Unreachable:
        """Return the one session that may take a step of a flow of this group now."""
        target = trim(target)
        if target.startswith(SESSION_PREFIX):
            session_id = target.removeprefix(SESSION_PREFIX)
            session = self._sessions.get(session_id)
            if session is None or group not in session.groups:
                known = self._lifecycle.get(session_id)
                state = "is not here" if known is None else f"is {known.state.value}"
                if session is not None:
                    state = f"is not in group {group}"
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
                named = self._on_node(target, group)
            if not named:
                return Unreachable(self._nobody(target, group))
            if len(named) > 1:
                return Unreachable(self._several(named, target, group))
            session = named[0]
        return self._fitness(session) or session

    def _on_node(self, target: str, group: str) -> list[Session]:
        """Return whom ``name@node`` means on one machine."""
        if self.elsewhere is None:
            return []
        name, _, node = target.rpartition(NODE_SIGN)
        here = self.elsewhere.here
        named = [
            peer
            for peer in self._sessions.named(name)
            if peer.is_agent and group in peer.groups and node_of(peer, here).lower() == node.lower()
        ]
        return (holders_of(named, name) or named) if len(named) > 1 else named

    def _several(self, named: list[Session], target: str, group: str) -> str:
        """Say that a name does not tell who is meant, and what would."""
        said = f"several sessions in group {group} are called {target}; name one by its id"
        if self.elsewhere is None or len({node_of(peer, self.elsewhere.here) for peer in named}) < len(named):
            return said
        return f"{said}, or by its machine: {target}{NODE_SIGN}MACHINE"

    def _nobody(self, target: str, group: str) -> str:
        """Say that nobody has this name, and of ``name@node`` whether there is such a machine at all."""
        nobody = f"nobody in group {group} is called {target}"
        name, sign, node = target.rpartition(NODE_SIGN)
        if not sign or not name or not node:
            return nobody
        if self.elsewhere is None:
            return f"{nobody}, and this broker knows no other machines"
        if node.lower() == self.elsewhere.here.lower():
            return f"{nobody}, nor {name} on this machine"
        if self.elsewhere.is_there(node):
            return f"{nobody}, nor {name} on machine {node}"
        return f"{nobody}, and no machine called {node} can be reached"

    def _fitness(self, session: Session) -> Unreachable | None:
        label = session.name or session.id
        if session.is_remote:
            assert self.elsewhere is not None, "who knows no other brokers knows nobody there"
            unfit = self.elsewhere.unfit(session)
            return None if unfit is None else Unreachable(f"{label} {unfit}")
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
        if session.is_remote:
            assert self.elsewhere is not None, "who knows no other brokers knows nobody there"
            return self.elsewhere.identity_of(session)
        assert session.known is not None
        record = session.known.record
        return TargetIdentity(self._broker_id, record.session_id, record.incarnation, record.runtime_session_id)

    def features_of(self, session: Session) -> frozenset[str]:
        """Return the features that the broker of a session granted it."""
        if session.is_remote:
            assert self.elsewhere is not None, "who knows no other brokers knows nobody there"
            return self.elsewhere.granted(session)
        return session.features

    def is_here(self, identity: TargetIdentity) -> bool:
        """Tell whether this broker answers for the session of this identity."""
        return identity.broker_id == self._broker_id

    def session_of(self, identity: TargetIdentity) -> Session | None:
        """Return the session of exactly this identity, if it is connected."""
        session = self._sessions.get(identity.session_id)
        return session if session is not None and self.is_exactly(session, identity) else None

    def known_as(self, identity: TargetIdentity) -> Known | None:
        """Return the session of exactly this identity here, also one that may come back; None: it is gone for good."""
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
        if session.is_remote:
            return self.elsewhere is not None and self.elsewhere.identity_of(session) == identity
        return session.known is not None and self.known_as(identity) is session.known
