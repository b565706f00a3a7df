"""Decide what features bring into a registration, and what becomes of it at a departure (design section 7).

Rule 1: whoever proves to own an address or a known session takes its place. Rule 2: what must outlive the connection is
committed before the client is told of it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from msgspec import UNSET, Struct
from msgspec.json import encode
from msgspec.structs import replace

from intercom.core import features
from intercom.core.addresses import Address, Addresses
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.features import Refused
from intercom.core.ledger import Ledger
from intercom.core.lifecycle import Known, Lifecycle, record_of
from intercom.core.mailboxes import Mailboxes
from intercom.core.mailing import Mailing
from intercom.core.policies import OWN_MEMBER, own_policy
from intercom.core.queueing import Queueing
from intercom.core.records import KnownSessionRecord, SessionState, StoreIdentity
from intercom.core.sessions import Entry, SentIds, Session, home_group_of, memberships_of
from intercom.wire.frames import Register
from intercom.wire.mail import AddressClaim, RequestFailed, SessionReattach


class Cause(Enum):
    """Say why a session has no connection any more."""

    LOST = "connection lost"
    UNREGISTERED = "unregister"
    REPLACED = "replaced"
    MOVED = "moved to another connection"
    FORCED = "closed by the operator"


class Arrival(Struct, frozen=True):
    """Hold what was decided about a registration."""

    entry: Entry | None = None
    """None: an older client."""
    known: Any = None
    """The ``Known`` session that it is again."""
    owner_token: str = ""
    address_token: str | None = None
    replaced: tuple[Any, ...] = ()
    """The connected sessions whose place it takes."""


class Arrivals:
    """Judge registrations with features, begin the sessions, and settle what they leave behind."""

    def __init__(
        self,
        addresses: Addresses,
        lifecycle: Lifecycle,
        boxes: Mailboxes,
        mailing: Mailing,
        queueing: Queueing,
        ledger: Ledger,
        ids: Callable[[], str],
        identity: StoreIdentity,
        sent_ids: int,
    ) -> None:
        self._addresses = addresses
        self._lifecycle = lifecycle
        self._boxes = boxes
        self._mailing = mailing
        self._queueing = queueing
        self._ledger = ledger
        self._ids = ids
        self._identity = identity
        self._sent_ids = sent_ids
        self.on_departed: list[Callable[[Session, Cause, Instant], None]] = []
        """Are told of each session that has left the table, before anything becomes of what it leaves."""
        self.on_restarted: Callable[[Known, Instant], None] = lambda known, now: None
        """Is told of each known session that another process is from now on."""
        self.on_not_recorded: Callable[[Session, str | None, Instant], None] = lambda session, request_id, now: None
        """Is told of each session whose coming could not be recorded, with the id of its reattach."""

    # --- register ---------------------------------------------------------------------------------------

    def judge(self, connection: Connection, frame: Register, now: Instant) -> Arrival | Refused:
        """Decide about a registration; nothing of it is changed but the address it creates."""
        granted = features.grant(frame, is_durable=not self._ledger.is_closed)
        if isinstance(granted, Refused):
            return granted
        if not granted:
            return Arrival()
        wrong = own_policy(frame.session) if features.POLICY in granted else None
        if isinstance(wrong, str):
            return Refused("bad_request", f"{OWN_MEMBER} breaks its rules: {wrong}")
        claim: AddressClaim | None = None
        if features.ADDRESS in granted:
            claimed = features.address_claim(frame)
            if isinstance(claimed, Refused):
                return claimed
            claim = claimed
        known = self._owned(frame) if features.LIFECYCLE in granted else None
        if known is not None and known.was_force_closed:
            return Refused("force_closed", "The operator closed this session; do not come back by yourself")
        replaced: list[Session] = []
        if known is not None and known.session is not None:
            replaced.append(known.session)
        address, address_token = None, None
        if claim is not None:
            new_token = self._secret()
            taken = self._addresses.claim(claim, home_group_of(frame), memberships_of(frame.session), new_token, now)
            if isinstance(taken, Refused):
                return taken
            address, is_new = taken
            address_token = new_token if is_new else None
            if claim.hold != "none" and address.holder is not None and address.holder not in replaced:
                replaced.append(address.holder)
        entry = Entry(
            granted,
            features.LIFECYCLE in granted,
            address,
            claim is not None and claim.hold != "none",
            None if known is None else known.id,
            None if known is None else known.record.return_hash,
        )
        # The token that was shown stays: an answer that gets lost on its way must lock nobody out.
        owner_token = self._secret() if known is None else str(frame.owner_token)
        return Arrival(entry, known, owner_token, address_token, tuple(replaced))

    def _owned(self, frame: Register) -> Known | None:
        """Return the known session this registration proves to be."""
        token, wish = frame.owner_token, frame.preferred_session_id
        if not isinstance(token, str) or wish is UNSET:
            return None
        known = self._lifecycle.get(wish)
        return known if known is not None and known.is_owned_by(token) else None

    def begin(self, session: Session, arrival: Arrival, frame: Register, now: Instant) -> tuple[dict[str, Any], int]:
        """Begin the life of a session; return what ``registered`` says of it, and the ticket on which that rests."""
        entry = arrival.entry
        if entry is None:
            return {}, 0
        session.features = entry.features
        self._set_work(session, frame)
        if entry.address is not None and entry.holds:
            self._free(entry.address, session, now)
        self._act(session, entry.holds, now)
        told: dict[str, Any] = {
            "features": sorted(entry.features),
            "broker_id": self._identity.broker_id,
            "journal_id": self._identity.journal_id,
            "epoch": self._identity.epoch,
        }
        if arrival.address_token is not None:
            told["address_token"] = arrival.address_token
        ticket = 0
        if entry.has_lifecycle:
            goes_on = self._goes_on(arrival.known, session)
            incarnation = goes_on.incarnation if goes_on is not None else self._ids().replace("-", "")
            number = self._lifecycle.next_number()
            record = record_of(
                session,
                number,
                incarnation,
                arrival.owner_token,
                now,
                address=None if entry.address is None else entry.address.number,
                holds_address=entry.holds,
                **_display_of(frame, entry.features),
            )
            if goes_on is not None:
                record = replace(record, generation=goes_on.generation + 1)
            self._close_ghost(session, now)
            known: Known | None = arrival.known
            if known is not None:
                if known.last is not None and session.sent_ids is not None:
                    session.sent_ids = known.last.sent_ids or session.sent_ids
                if (known.record.pid, known.record.started) != (record.pid, record.started):
                    self.on_restarted(known, now)
            self._lifecycle.enter(session, record, now)
            told["incarnation"], told["generation"] = incarnation, record.generation
            told["owner_token"] = arrival.owner_token
        if entry.has_lifecycle or entry.address is not None:
            ticket = self._ledger.last_ticket
            self._ledger.rest(ticket, self._begin_failed, (session, None))
        box = self._mailbox_of(session)
        if box is not None:
            told["mailbox_count"] = len(self._mailing.holder_came(session, box))
        return told, ticket

    def _act(self, session: Session, holds: bool, now: Instant) -> None:
        """Let a session act under its address, if it has one."""
        if session.address is None:
            return
        if holds:
            self._addresses.held(session.address, session, now)
        elif session.work_mode is not None:
            self._addresses.worked(session.address, session, now)

    def _set_work(self, session: Session, frame: Register) -> None:
        if features.WORK in session.features:
            session.work_mode = frame.work_mode
            session.is_headless = frame.execution_surface == "headless"
            session.sent_ids = SentIds(self._sent_ids)

    def _goes_on(self, known: Known | None, session: Session) -> KnownSessionRecord | None:
        """Return what a session was that registers only because this broker process has forgotten the rest of it.

        It was told to register again; when it is the same process it is no other incarnation.
        """
        peer = session.connection.peer
        if known is None or known.last is not None or peer is None or not known.record.needs_registration:
            return None
        record = known.record
        is_same = known.state is SessionState.RECONNECTING and (peer.pid, peer.started) == (record.pid, record.started)
        return record if is_same else None

    def _close_ghost(self, session: Session, now: Instant) -> None:
        """Close what an earlier broker began of this very client and could not tell it."""
        peer = session.connection.peer
        if peer is None or session.return_hash is None:
            return
        me = (session.return_hash, peer.pid, peer.started)
        for known in self._lifecycle.away():
            record = known.record
            if known.id != session.id and (record.return_hash, record.pid, record.started) == me:
                self._lifecycle.close(known, Cause.REPLACED.value, now)

    def _mailbox_of(self, session: Session) -> str | None:
        """Return the key of the mailbox whose mail the session receives."""
        if session.address is not None and session.holds_address:
            return session.address.key
        return None if session.known is None else session.target_identity

    def _begin_failed(self, subject: tuple[Session, str | None], now: Instant) -> None:
        session, request_id = subject
        self.on_not_recorded(session, request_id, now)

    def _free(self, address: Address, session: Session, now: Instant) -> None:
        """Close every session that held this address and is away."""
        for known in self._lifecycle.away():
            if known.mailbox_key == address.key and known.id != session.id:
                self._lifecycle.close(known, Cause.REPLACED.value, now)

    # --- reattach ---------------------------------------------------------------------------------------

    def judge_reattach(self, connection: Connection, frame: SessionReattach) -> Known | RequestFailed:
        """Decide whether the session may be on this connection from now on."""
        known = self._lifecycle.get(frame.session_id)
        if known is None:
            return _no(frame, "unknown_session", "No session with this id is known; register a new one")
        if not known.is_owned_by(frame.owner_token):
            return _no(frame, "not_owner", "The owner token is not that of the session; register a new one")
        record = known.record
        if known.state is SessionState.CLOSED:
            if record.closed_reason == Cause.REPLACED.value:
                return _no(
                    frame, "replaced", "Another session holds the place of this one; do not come back by yourself"
                )
            if known.was_force_closed:
                return _no(frame, "force_closed", "The operator closed this session; do not come back by yourself")
            return _no(
                frame, "session_not_active", f"The session was closed ({record.closed_reason}); register a new one"
            )
        peer = connection.peer
        if peer is not None and record.pid > 0 and peer.pid != record.pid:
            return _no(frame, "reattach_pid_mismatch", "The session belongs to another process; register a new one")
        if record.needs_registration and known.last is None:
            return _no(
                frame, "register_again", "Register with preferredSessionId and ownerToken: the broker was restarted"
            )
        return known

    def entry_of(self, known: Known) -> tuple[Register, Entry]:
        """Return what brings a known session back into the table as it was."""
        record = known.record
        info = {name: value for name, value in known.info.items() if name not in ("id", "peer")}
        frame = Register(info, registration_group=record.home_group, acknowledges_receipt=True)
        address = self._addresses.get(record.address)
        entry = Entry(
            frozenset(record.features), True, address, record.holds_address, record.session_id, record.return_hash
        )
        return frame, entry

    def reattached(self, known: Known, session: Session, request_id: str, now: Instant) -> int:
        """Bind a known session to its new connection; return the ticket on which the answer rests."""
        earlier = known.last
        if earlier is not None:
            session.supervisor_id, session.owner_token = earlier.supervisor_id, earlier.owner_token
        record = known.record
        if record.work_mode is not None:
            session.work_mode = record.work_mode
            session.is_headless = record.execution_surface == "headless"
            ids = None if earlier is None else earlier.sent_ids
            session.sent_ids = ids or SentIds(self._sent_ids)
        self._act(session, record.holds_address, now)
        self._lifecycle.reattached(known, session, now)
        ticket = self._ledger.last_ticket
        self._ledger.rest(ticket, self._begin_failed, (session, request_id))
        self._mailing.holder_came(session, known.mailbox_key)
        return ticket

    # --- changes and departures -------------------------------------------------------------------------

    def changed(self, session: Session, now: Instant) -> None:
        """Store what peers see of a session from now on."""
        if session.known is not None:
            self._lifecycle.changed(session.known, now)
        if session.holds_address:
            assert session.address is not None
            self._addresses.moved(session.address, session, now)

    def departed(self, session: Session, cause: Cause, now: Instant) -> None:
        """Settle what a session leaves behind that has left the table."""
        for tell in self.on_departed:
            tell(session, cause, now)
        self._queueing.take_over(session, now)
        self._mailing.holder_left(session, now)
        if session.address is not None:
            self._addresses.left(session.address, session, now)
        known = session.known
        if known is None or known.session is not session:
            return
        if cause is Cause.LOST:
            self._lifecycle.connection_lost(known, now)
        elif cause in (Cause.UNREGISTERED, Cause.REPLACED):
            self._lifecycle.close(known, cause.value, now)

    def _secret(self) -> str:
        return (self._ids() + self._ids()).replace("-", "")


def _display_of(frame: Register, granted: frozenset[str]) -> dict[str, Any]:
    members = {
        "kind": frame.kind,
        "runtime_session_id": frame.runtime_session_id,
        "tracking_ref": frame.tracking_ref,
    }
    shown = {name: value for name, value in members.items() if features.is_text(value)}
    if features.WORK in granted:
        shown["work_mode"] = frame.work_mode
        if frame.execution_surface is not UNSET:
            shown["execution_surface"] = frame.execution_surface
        workspace = features.workspace_of(frame)
        if isinstance(workspace, dict):
            shown["workspace"] = encode(workspace).decode()
    return shown


def _no(frame: SessionReattach, code: str, reason: str, *, retryable: bool = False) -> RequestFailed:
    return RequestFailed(frame.request_id, code, reason, retryable)
