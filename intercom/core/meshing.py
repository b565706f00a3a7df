"""Tell other brokers who is here, and say how the way to them is.

Without a cluster this part does nothing: nobody asks it, and it follows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from intercom.core.clock import Instant
from intercom.core.control import MULTI_NODE_OFF
from intercom.core.part import Part
from intercom.core.peer_records import Announce, ClusterState, PeerFact, RemoteName

if TYPE_CHECKING:
    from intercom.core.company import Company
    from intercom.core.deadlines import Deadline
    from intercom.core.ground import Ground
    from intercom.core.peers import Peers
    from intercom.core.registry import Registry
    from intercom.core.sessions import Session


class Meshing(Part):
    """Know how the cluster is; ``state`` None: this broker is in none."""

    def __init__(
        self, ground: Ground, registry: Registry, company: Company, peers: Peers, state: ClusterState | None
    ) -> None:
        self._state = state
        self._outbox = ground.outbox
        self._deadlines = ground.deadlines
        self._limits = ground.limits
        self._own = ground.identity.broker_id
        self._sessions = registry.sessions
        self._peers = peers
        self._announced: dict[str, bytes] = {}
        """What was said last of each session that is here."""
        self._not_before = 0
        self._next: Deadline | None = None
        self._is_marked = False
        if state is not None and state.status != "off":
            registry.sessions.on_change.append(self._mark)
            company.on_change.append(self._mark)
            self._mark()

    # --- who is here ------------------------------------------------------------------------------------

    def _mark(self) -> None:
        """Announce in a moment what has changed."""
        if not self._is_marked:
            self._is_marked = True
            self._deadlines.cancel(self._next)
            self._next = self._deadlines.add(self._not_before, self._announce)

    def _announce(self, subject: None, now: Instant) -> None:
        self._is_marked = False
        self._not_before = now.mono + self._limits.announce_ms
        here = {session.id: session for session in self._sessions if session.is_agent}
        changed: dict[str, RemoteName | None] = {}
        for session_id, session in here.items():
            shown = bytes(session.encoded())
            if self._announced.get(session_id) != shown:
                self._announced[session_id] = shown
                changed[session_id] = self._name_of(session, shown)
        for session_id in self._announced.keys() - here.keys():
            del self._announced[session_id]
            changed[session_id] = None
        if changed:
            self._outbox.add(Announce(changed))
        if here:
            self._next = self._deadlines.add(now.mono + self._limits.announce_again_ms, self._announce)

    def _name_of(self, session: Session, shown: bytes) -> RemoteName:
        info = session.info
        return RemoteName(
            session.id,
            session.name or session.id,
            session.groups,
            "active",
            self._own,
            session.holds_address,
            workspace=_text(str(info.get("cwd", "")).rstrip("/").rpartition("/")[2]),
            branch=_text(info.get("gitBranch")),
            profile=_text(info.get("profile")),
            harness=None if session.known is None else session.known.record.kind,
            model=_text(info.get("model")),
            session=shown,
            home_group=session.home_group,
            return_hash=session.return_hash,
            features=tuple(sorted(session.features)),
        )

    # --- how the way is ---------------------------------------------------------------------------------

    def peer_told(self, fact: PeerFact, now: Instant) -> None:
        """Take note of how the way to other brokers is."""
        if isinstance(fact, ClusterState):
            self._state = fact

    def multi_node(self) -> Mapping[str, Any]:
        """Return what the status report says of other machines (protocol 6.14)."""
        state = self._state
        if state is None:
            return MULTI_NODE_OFF
        told: dict[str, Any] = {"status": state.status}
        if state.reason:
            told["reason"] = state.reason
        if state.adapter:
            told["adapter"], told["prefix"] = state.adapter, state.prefix
        if state.foreign:
            told["foreign"] = state.foreign
        if state.status == "on":
            told["peers"] = [
                {"brokerId": peer.broker_id, "node": peer.name, "names": self._peers.name_count(peer.broker_id)}
                for peer in self._peers.there()
            ]
        return told


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None
