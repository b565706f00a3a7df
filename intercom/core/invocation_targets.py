"""Know who can be invoked, and where a task for somebody is put (protocol 13.2, 13.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct
from msgspec.json import decode, encode

from intercom.core import features
from intercom.core.arrivals import Cause
from intercom.core.invocation_records import DiagnosisRecord
from intercom.core.labels import Candidate, Found, label_of, resolve
from intercom.core.policies import sender_in
from intercom.core.records import SessionState
from intercom.wire.invocations import RouteCandidate, RouteDiagnosis

if TYPE_CHECKING:
    from intercom.core.addresses import Address, Addresses
    from intercom.core.clock import Instant
    from intercom.core.lifecycle import Known, Lifecycle
    from intercom.core.peers import Peers
    from intercom.core.policies import Policies
    from intercom.core.sessions import Session, SessionTable
    from intercom.limits import Limits
    from intercom.wire.attention import PolicyAction


ADDRESS_ID = "address-of-all:"
"""Begins the id by which every broker knows an address."""


def address_id(group: str, name: str) -> str:
    """Return the id by which every broker knows an address."""
    return ADDRESS_ID + sha256(encode([group, name.lower()])).hexdigest()[:40]


def key_of_address(target: str) -> str:
    """Return by which key the engine holds the address with this id."""
    return target.removeprefix(ADDRESS_ID)


def is_address_id(target: str) -> bool:
    """Tell whether every broker knows an address by this id."""
    return target.startswith(ADDRESS_ID)


class Place(Struct, frozen=True):
    """Say where somebody is."""

    session: Any
    """The connected ``Session``."""
    mailbox: str | None
    """Key of the mailbox that is opened for it, now or later."""
    address: int | None
    groups: tuple[str, ...]


class Targets:
    """Find whom a label means within the reach of a session.

    Args:
        node: what this machine is called in labels.
        broker_id: the authority for everybody here.
    """

    def __init__(
        self,
        sessions: SessionTable,
        addresses: Addresses,
        lifecycle: Lifecycle,
        broker_id: str,
        node: str,
        limits: Limits,
        policies: Policies,
        peers: Peers,
    ) -> None:
        self.addresses_elsewhere: Callable[[Iterable[str] | None], list[Candidate]] = lambda groups: []
        """Returns the addresses at home at other brokers that nobody holds, in one of these groups; None: all."""
        self._peers = peers
        self._policies = policies
        self._sessions = sessions
        self._addresses = addresses
        self._lifecycle = lifecycle
        self._broker_id = broker_id
        self._node = node
        self._limits = limits

    # --- whom a label means -----------------------------------------------------------------------------

    def candidates(self, asker: Session) -> list[Candidate]:
        """Return everybody a session may invoke: who is here, away, or has ended and is remembered."""
        sees_all = features.OPERATOR in asker.features
        reach = list(self._sessions) if sees_all else self._sessions.in_reach_of(asker.groups)
        found = [
            self._of_session(session)
            for session in reach
            if session.is_agent and not session.holds_address and not session.is_remote
        ]
        found += [
            self._of_address(address)
            for address in self._addresses.here
            if not address.is_of_broker and (sees_all or address.is_reachable_from(asker.groups))
        ]
        found += [
            self._of_known(known)
            for known in self._lifecycle
            if known.session is None and not known.record.holds_address and (sees_all or known.is_in(asker.groups))
        ]
        if self._peers:
            found += self._peers.candidates(None if sees_all else asker.groups)
        return found + self.addresses_elsewhere(None if sees_all else asker.groups)

    def find(self, target: str, asker: Session) -> Found:
        """Return whom a label or an id means."""
        session = self._sessions.get(target)
        if session is not None and self._stands_for_itself(session, asker):
            itself = self._of_session(session)
            if not itself.is_stale:
                return Found(itself, session=session)
        candidate = self._with_id(target, asker)
        if candidate is not None and not candidate.is_stale:
            return Found(candidate)
        return resolve(target, self.candidates(asker))

    def _stands_for_itself(self, session: Session, asker: Session) -> bool:
        """Tell whether a session is within reach, and what is for it is neither for an address nor for another broker.

        That is whom most are asked for: it needs no look at who else there is.
        """
        known = session.known
        return (
            session.address is None
            and session.is_agent
            and not session.is_remote
            and (known is None or known.state is not SessionState.CLOSED)
            and (session.shares_group_with(asker) or features.OPERATOR in asker.features)
        )

    def _with_id(self, target: str, asker: Session) -> Candidate | None:
        """Return who has exactly this id, without a look at everybody."""
        sees_all = features.OPERATOR in asker.features
        address = self._addresses.of_key(target)
        if address is not None and address.home is not None:
            return None
        session = self._sessions.get(target)
        if session is not None and not session.is_remote:
            if not session.is_agent or not (sees_all or session.shares_group_with(asker)):
                return None
            if not session.holds_address:
                return self._of_session(session)
            address = session.address
        if address is not None:
            is_within_reach = sees_all or address.is_reachable_from(asker.groups)
            return self._of_address(address) if is_within_reach and not address.is_of_broker else None
        if is_address_id(target):
            return self._with_key(target, None if sees_all else asker.groups)
        known = self._lifecycle.get(target)
        if known is None:
            return self._peers.with_id(target, None if sees_all else asker.groups)
        if known.session is not None or known.record.holds_address:
            return None
        return self._of_known(known) if sees_all or known.is_in(asker.groups) else None

    def _with_key(self, target: str, groups: Iterable[str] | None) -> Candidate | None:
        """Return the address that all brokers know by this id, wherever it is at home."""
        address = self.address_here(target)
        if address is not None:
            return self._of_address(address) if groups is None or address.is_reachable_from(groups) else None
        return next((each for each in self.addresses_elsewhere(groups) if each.target_id == target), None)

    def address_here(self, target: str) -> Address | None:
        """Return the address at home here that all brokers know by this id."""
        here = (address for address in self._addresses.here if not address.is_of_broker)
        return next((each for each in here if address_id(each.group, each.name) == target), None)

    def is_address_elsewhere(self, target: str) -> bool:
        """Tell whether this is the id of an address, and that is not at home here."""
        return is_address_id(target) and self.address_here(target) is None

    def _of_session(self, session: Session) -> Candidate:
        candidate = session.candidate
        if candidate is None:
            kind = None if session.known is None else session.known.record.kind
            can_take = not session.is_terminal and not session.cannot_be_told
            candidate = session.candidate = self._of_info(session.id, session.info, kind, "active", can_take)
        return candidate

    def _of_known(self, known: Known) -> Candidate:
        state = "closed" if known.state.value == "closed" else "reconnecting"
        return self._of_info(known.id, known.info, known.record.kind, state, True)

    def _of_info(self, target_id: str, info: dict[str, Any], kind: str | None, state: Any, can_take: bool) -> Candidate:
        name = info.get("name")
        return Candidate(
            target_id,
            name if isinstance(name, str) and name.strip() else target_id,
            state,
            can_take=can_take,
            workspace=_text(str(info.get("cwd", "")).rstrip("/").rpartition("/")[2]),
            branch=_text(info.get("gitBranch")),
            node=self._node,
            profile=_text(info.get("profile")),
            harness=kind,
            model=_text(info.get("model")),
        )

    def _of_address(self, address: Address) -> Candidate:
        session = address.holder
        if session is None:
            return Candidate(address.key, address.name, "away", is_address=True, node=self._node)
        held = self._of_session(session)
        return Candidate(
            address.key,
            address.name,
            "active",
            is_address=True,
            can_take=held.can_take,
            ids=(session.id,),
            workspace=held.workspace,
            branch=held.branch,
            node=held.node,
            profile=held.profile,
            harness=held.harness,
            model=held.model,
        )

    # --- diagnoses --------------------------------------------------------------------------------------

    def shown(self, candidate: Candidate, asker: Session) -> RouteCandidate:
        """Return a candidate as it is told to others, with a label that leads to it alone."""
        return self._shown(candidate, self.candidates(asker))

    def _shown(self, candidate: Candidate, among: list[Candidate]) -> RouteCandidate:
        return RouteCandidate(
            candidate.target_id,
            candidate.name,
            label_of(candidate, among),
            candidate.authority or self._broker_id,
            candidate.authority or self._broker_id,
            "local" if candidate.is_local else "mesh",
            candidate.state,
            candidate.workspace or UNSET,
            candidate.harness or UNSET,
            candidate.model or UNSET,
            candidate.node or UNSET,
        )

    def diagnosis(self, asked: str, found: Found, asker: Session, now: Instant) -> RouteDiagnosis:
        """Return why a label led to nobody, as it is told."""
        assert found.kind is not UNSET, "only of a label that led to nobody"
        among = self.candidates(asker) if found.candidates else []
        shown = [self._shown(candidate, among) for candidate in found.candidates[: self._limits.candidates_shown]]
        return RouteDiagnosis(found.kind, asked, found.detail, shown, now.wall, self._broker_id)

    def recorded(self, record: DiagnosisRecord) -> RouteDiagnosis:
        """Return a recorded diagnosis as it is told."""
        return RouteDiagnosis(
            record.kind,  # type: ignore[arg-type]  # one of the kinds
            record.asked,
            record.detail,
            decode(record.candidates, type=list[RouteCandidate]),
            record.at,
            self._broker_id,
            record.diagnosis_id,
            record.invocation_id,
        )

    # --- where it is ------------------------------------------------------------------------------------

    def place_of(self, session: Session) -> Place:
        """Return where a session is that is here."""
        number = None if session.address is None else session.address.number
        return Place(session, None if session.mailbox is None else session.mailbox.key, number, session.groups)

    def place(self, target: str) -> Place | None:
        """Return where somebody with this id is; None: it is gone."""
        address = self._addresses.of_key(target)
        if address is None:
            session = self._sessions.get(target)
            has_ended = session is not None and session.known is not None and session.known.state is SessionState.CLOSED
            if session is not None and not session.is_remote and not has_ended:
                return self.place_of(session)
            known = self._lifecycle.get(target)
            if known is not None and known.state.value != "closed":
                return Place(None, known.mailbox_key, known.record.address, known.groups)
            address = self._addresses.get(self._sessions.address_of_retired(target))
        if address is None:
            return None
        # What is for an address that is at home elsewhere goes there by its mailbox, whoever holds it.
        holder = address.holder if address.home is None else None
        return Place(holder, address.key, address.number, address.groups)

    def action_for(self, place: Place, requester_info: bytes) -> PolicyAction:
        """Return what the target, or the person, does with messages of whoever asked."""
        if place.session is not None:
            inbound = place.session.inbound
        elif self.is_elsewhere(place):
            return "accept"  # it is judged there
        else:
            inbound = self._policies.of_party(place.mailbox or "", None)
            for known in self._lifecycle.away():
                if known.mailbox_key == place.mailbox:
                    is_unnamed = known.record.address is None and known.record.return_hash is not None
                    party = f"return:{known.record.return_hash}" if is_unnamed else known.mailbox_key
                    info = known.info if features.POLICY in known.record.features else None
                    inbound = self._policies.of_party(party, info)
        return "accept" if inbound is None else inbound.action_for(sender_in(requester_info))

    def is_gone(self, target: str) -> bool:
        """Tell whether nobody with this id is here, or may come back."""
        return self.place(target) is None

    def is_here(self, target: str) -> bool:
        """Tell whether somebody with this id is connected."""
        place = self.place(target)
        return place is not None and place.session is not None

    def was_lost(self, session_id: str) -> bool:
        """Tell whether a session ended without having left: its process died, it did not come back, or was closed."""
        known = self._lifecycle.get(session_id)
        if known is None or known.state is not SessionState.CLOSED:
            return False
        return known.record.closed_reason not in _LEFT

    def is_elsewhere(self, place: Place) -> bool:
        """Tell whether what is put there goes on to another machine, where the address is at home."""
        address = None if place.session is not None else self._addresses.get(place.address)
        return address is not None and address.home is not None

    def has_ended(self, session_id: str) -> bool:
        """Tell whether the session with this id is not here and will not come back."""
        known = self._lifecycle.get(session_id)
        is_over = known is None or known.state is SessionState.CLOSED
        session = self._sessions.get(session_id)
        return is_over and (session is None or session.is_remote)

    def is_left_behind(self, target: str, worker: str) -> bool:
        """Tell whether the address of a task is at home elsewhere, and nobody here has what this worker had taken."""
        address = self._addresses.of_key(target)
        if address is None or address.home is None or not self.has_ended(worker):
            return False
        return not any(session.address is address and not session.is_remote for session in self._sessions)

    def is_target(self, session: Session, target: str) -> bool:
        """Tell whether a session is the target, or acts under its address."""
        return session.id == target or (session.address is not None and session.address.key == target)


_LEFT = frozenset({Cause.UNREGISTERED.value, Cause.REPLACED.value})
"""Why a session is closed that may have told somebody what it had: commands come and go under an address."""


def stored(candidates: list[RouteCandidate]) -> bytes:
    """Return candidates as they are stored."""
    return encode(candidates)


def _text(value: Any) -> str | None:
    """Return what a session says of itself, if it is a text with something in it."""
    return value if isinstance(value, str) and value.strip() else None
