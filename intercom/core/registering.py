"""Let sessions come, and come back (protocol 4.1, 4.25, 9.4).

register ---> judged, entered, told behind its commit
session_reattach ---> judged --(what waits is read)--> judged again, entered, told, and the mail follows
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from intercom.core import groups
from intercom.core.arrivals import Arrivals, Cause
from intercom.core.asking import Asking
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.deciding import Deciding
from intercom.core.delivery import Delivery
from intercom.core.departing import Departing
from intercom.core.features import Refused
from intercom.core.holding import Holding
from intercom.core.mailboxes import Mailboxes
from intercom.core.mailing import Mailing, Offer
from intercom.core.outbox import Outbox
from intercom.core.pi_dialect import shows_itself
from intercom.core.policies import Policies
from intercom.core.records import ReadBodies, SessionState
from intercom.core.restoring import Restoring
from intercom.core.sessions import Session, SessionTable
from intercom.core.supervision import Capabilities
from intercom.limits import Limits
from intercom.wire import reasons
from intercom.wire.frames import Register, Registered, RegistrationFailed, trim
from intercom.wire.mail import Replaced, RequestFailed, SessionReattach, SessionReattached


class ToldOf(Struct, frozen=True):
    """Mark the answer that tells a client of its session: one that never reached it leaves nobody who could return."""

    known: Any


class Reattaching(Struct, frozen=True):
    """Remember who comes back while what waits for it is read."""

    connection: Any
    frame: SessionReattach
    known: Any


class Registering:
    """Give connections their sessions; ``on_features`` is told of each registration that got features."""

    def __init__(
        self,
        connections: dict[int, Connection],
        sessions: SessionTable,
        capabilities: Capabilities,
        arrivals: Arrivals,
        departing: Departing,
        boxes: Mailboxes,
        mailing: Mailing,
        delivery: Delivery,
        deciding: Deciding,
        asking: Asking,
        holding: Holding,
        restoring: Restoring,
        policies: Policies,
        outbox: Outbox,
        limits: Limits,
        on_features: Callable[[Instant], None],
    ) -> None:
        self._connections = connections
        self._sessions = sessions
        self._capabilities = capabilities
        self._arrivals = arrivals
        self._departing = departing
        self._boxes = boxes
        self._mailing = mailing
        self._delivery = delivery
        self._deciding = deciding
        self._asking = asking
        self._holding = holding
        self._restoring = restoring
        self._policies = policies
        self._outbox = outbox
        self._limits = limits
        self._on_features = on_features
        self.on_arrival: list[Callable[[Session, Instant], None]] = []
        """Are told of each session that is here, before its mail is offered."""
        self.on_spawned: Callable[[Session, Any, Instant], None] = lambda session, token, now: None
        """Is told of each registration that says it was started on somebody's behalf, with what it shows."""
        self.hold: Callable[[Connection, Register, Instant], bool] = lambda connection, frame, now: False
        """Holds a registration that something has to be heard for first; tells whether it does."""
        self.on_arrived: list[Callable[[Session, Instant], None]] = []
        """Are told of each session that has come or come back, after it was answered."""

    def register(self, connection: Connection, frame: Register, now: Instant) -> None:
        """Enter a session, or refuse it and end the connection (protocol 4.1)."""
        if connection.session is not None:
            return self._departing.violation(connection, "register on a registered connection", now)
        if len(frame.session.get("groups", ())) > self._limits.groups:
            return self._departing.violation(connection, f"register with more than {self._limits.groups} groups", now)
        if self.hold(connection, frame, now):
            return None
        supervisor_id: str | UnsetType = UNSET
        if frame.supervisor is not UNSET:
            claimed = self._supervisor_of(frame)
            if claimed is None:
                return self._departing.refuse_and_end(connection, RegistrationFailed(reasons.INVALID_SUPERVISOR), now)
            supervisor_id = claimed
        arrival = self._arrivals.judge(connection, frame, now)  # last: it may create an address
        if isinstance(arrival, Refused):
            return self._departing.refuse_and_end(connection, RegistrationFailed(arrival.reason, arrival.code), now)
        if supervisor_id is not UNSET:
            self._capabilities.bind(frame.supervisor["capability"], trim(frame.session["name"]))
        displaced = [session.connection for session in arrival.replaced]
        moved = None if arrival.known is None or arrival.known.session is None else arrival.known.session.connection
        for older in displaced:
            self._departing.retire(older, now, Cause.MOVED if older is moved else Cause.REPLACED)
        connection.speaks_pi = connection.speaks_pi or shows_itself(frame)
        session = self._sessions.enter(connection, frame, arrival.entry)
        self._policies.attach(session)
        for older in displaced:
            self._outbox.write(older, Replaced("connection" if older is moved else "address", session.id))
            self._departing.end(older)
        if supervisor_id is not UNSET:
            session.supervisor_id = supervisor_id
        told, ticket = self._arrivals.begin(session, arrival, frame, now)
        if frame.spawn_token is not UNSET and arrival.entry is not None:
            self.on_spawned(session, frame.spawn_token, now)
        if arrival.entry is not None:
            self._on_features(now)
        registered = Registered(
            session.id,
            supervisor_id,
            True if session.confirms_receipts else UNSET,
            acknowledges_pending_stage_routes=True,
            broker_status=True,
            **told,
        )
        known = session.known
        token = ToldOf(known) if known is not None and arrival.known is None else None
        self._outbox.write(connection, registered, ticket, token)
        self._arrived(session, now, is_proven=arrival.known is not None)
        if supervisor_id is not UNSET:
            ended = self._restoring.returned(session, frame.supervisor["capability"], supervisor_id)
            self._deciding.dispatch(self._holding.take_waiting_for(ended), now)
        return None

    def _arrived(self, session: Session, now: Instant, *, is_proven: bool) -> None:
        for tell in self.on_arrival:
            tell(session, now)
        groups.announce(session, self._sessions, self._outbox)
        self._delivery.resend_unconfirmed(session, now)
        self._asking.session_returned(session, now, is_proven=is_proven)
        if session.mailbox is not None:
            self._mailing.offer(session.mailbox, now)
        for tell in self.on_arrived:
            tell(session, now)

    def arrival_not_recorded(self, session: Session, request_id: str | None, now: Instant) -> None:
        """Let a session that was told nothing be away again, or as if it had never come; its client tries again."""
        connection = session.connection
        self._outbox.discard(connection)  # what followed the answer that does not come
        if connection.session is not session:
            return None
        self._departing.retire(connection, now)
        if request_id is None:
            return self._departing.refuse_and_end(
                connection, RegistrationFailed(reasons.NOT_STORED, "not_recorded"), now
            )
        self._outbox.write(connection, RequestFailed(request_id, "not_recorded", reasons.NOT_STORED, True))
        self._departing.end(connection)
        return None

    def reattach(self, connection: Connection, frame: SessionReattach, now: Instant) -> None:
        """Let a known session be on this connection; what waits for it is read first."""
        if connection.session is not None:
            return self._refuse_reattach(connection, frame)
        known = self._arrivals.judge_reattach(connection, frame)
        if isinstance(known, RequestFailed):
            self._outbox.write(connection, known)
            return None
        box = self._boxes.get(known.mailbox_key)
        chosen = () if box is None else tuple(mail.record.body_number for mail in self._mailing.next_to_offer(box))
        token = Reattaching(connection, frame, known)
        if chosen and known.state is SessionState.RECONNECTING:
            self._outbox.add(ReadBodies(token, chosen))
        else:
            self.finish_reattach(token, (), {}, now)
        return None

    def _refuse_reattach(self, connection: Connection, frame: SessionReattach) -> None:
        no = RequestFailed(frame.request_id, "session_not_reconnecting", "This session is here already", False)
        self._outbox.write(connection, no)

    def finish_reattach(
        self, token: Reattaching, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant
    ) -> None:
        """Go on after what waits for a session was read; ``bodies`` is None when it could not be."""
        connection, frame = token.connection, token.frame
        if connection.number not in self._connections:
            return None
        if connection.session is not None:
            return self._refuse_reattach(connection, frame)
        known = self._arrivals.judge_reattach(connection, frame)
        if isinstance(known, RequestFailed):
            self._outbox.write(connection, known)
            return None
        if bodies is None:
            reason = "The mail could not be read; reattach again"
            self._outbox.write(connection, RequestFailed(frame.request_id, "mailbox_drain_failed", reason, True))
            return None
        older = None if known.session is None else known.session.connection
        if older is not None:
            self._departing.retire(older, now, Cause.MOVED)
            self._outbox.write(older, Replaced("connection", known.id))
            self._departing.end(older)
        registration, entry = self._arrivals.entry_of(known)
        session = self._sessions.enter(connection, registration, entry)
        self._policies.attach(session)
        ticket = self._arrivals.reattached(known, session, frame.request_id, now)
        self._sessions.release_id(known.id)
        for tell in self.on_arrival:
            tell(session, now)
        assert session.mailbox is not None
        answer = SessionReattached(
            frame.request_id,
            session.id,
            known.record.incarnation,
            known.record.generation,
            sorted(session.features),
            len(session.mailbox),
        )
        self._outbox.write(connection, answer, ticket)
        if bodies:
            self._mailing.bodies_read(Offer(session.mailbox, session), bodies, numbers, now)
        self._arrived(session, now, is_proven=True)
        return None

    def _supervisor_of(self, frame: Register) -> str | None:
        """Return the connected supervisor this registration may claim; None: not authorised."""
        child_name = trim(frame.session.get("name", ""))
        claim = frame.supervisor
        if not child_name or not isinstance(claim, dict):
            return None
        capability, supervisor_id = claim.get("capability"), claim.get("supervisorSessionId")
        if not isinstance(capability, str) or not isinstance(supervisor_id, str):
            return None
        current = self._capabilities.claim(capability, child_name)
        if current is None or self._sessions.get(current) is None:
            return None
        return current
