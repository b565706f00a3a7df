"""Let sessions depart and connections end, in the order of protocol 6.15."""

from __future__ import annotations

from collections.abc import Callable

from intercom.core import groups
from intercom.core.arrivals import Arrivals, Cause
from intercom.core.asking import Asking
from intercom.core.barriers import Barriers
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.deciding import Deciding
from intercom.core.effects import Destroy
from intercom.core.holding import Holding
from intercom.core.notifications import Notifications
from intercom.core.operations import Operations
from intercom.core.outbox import Outbox
from intercom.core.owners import Owners
from intercom.core.restoring import Restoring
from intercom.core.sessions import Session, SessionTable
from intercom.core.stages import Stages
from intercom.wire.frames import RegistrationFailed


class Departing:
    """Tell every part of the core that a session is gone, and end connections.

    ``connections`` are those the core knows, by their numbers; a connection that ends is taken out.
    """

    def __init__(
        self,
        connections: dict[int, Connection],
        sessions: SessionTable,
        asking: Asking,
        operations: Operations,
        holding: Holding,
        restoring: Restoring,
        stages: Stages,
        owners: Owners,
        notifications: Notifications,
        barriers: Barriers,
        deciding: Deciding,
        arrivals: Arrivals,
        outbox: Outbox,
    ) -> None:
        self._connections = connections
        self._sessions = sessions
        self._asking = asking
        self._operations = operations
        self._holding = holding
        self._restoring = restoring
        self._stages = stages
        self._owners = owners
        self._notifications = notifications
        self._barriers = barriers
        self._deciding = deciding
        self._arrivals = arrivals
        self._outbox = outbox
        self.on_retiring: list[Callable[[Session], None]] = []
        """Are told of each session that departs, while it is still here."""
        self.on_left: list[Callable[[Connection, bool], None]] = []
        """Are told of each session with features that departs: its connection, and whether that stays."""

    def retire(self, connection: Connection, now: Instant, cause: Cause = Cause.LOST) -> None:
        """Let a session depart, in the order of protocol 6.15."""
        session = connection.session
        if session is None:
            return
        self._holding.sender_left(session)
        for retiring in self.on_retiring:
            retiring(session)
        kept_aside = self._holding.take_waiting_for(self._restoring.owner_left(session))
        if session.known is not None and cause in (Cause.LOST, Cause.MOVED):
            self._asking.asker_away(session)
            self._sessions.reserve_id(session.id)
        elif self._asking.returns_by(session.id) is not None:
            self._asking.asker_away(session)
        else:
            self._asking.asker_left(session.id)
        if session.holds_address and (cause is Cause.REPLACED or session.keeps_questions):
            for ask in self._asking.owed_by_mailbox(session, session.target_identity):
                self._operations.note_recipient(ask)
        if cause is not Cause.MOVED:
            self._asking.target_left(session)
        self._stages.owner_left(session)
        self._owners.owner_left(session)
        self._notifications.session_left(session, now)
        self._stages.stage_left(session)
        self._barriers.session_left(session)
        self._sessions.leave(session)
        if session.features:
            for tell in self.on_left:
                tell(connection, cause is Cause.UNREGISTERED)
            self._arrivals.departed(session, cause, now)
        groups.announce_departure(session, self._sessions, self._outbox)
        self._deciding.dispatch(kept_aside, now)

    def force_close(self, session: Session, reason: str, now: Instant) -> None:
        """End a session and its connection because the operator wants it."""
        connection = session.connection
        self.retire(connection, now, Cause.FORCED)
        self.end(connection)

    def end(self, connection: Connection) -> None:
        """End a connection after what is queued for it."""
        self._connections.pop(connection.number, None)
        self._outbox.finish(connection)

    def hang_up(self, connection: Connection, now: Instant) -> None:
        """End a connection after what is queued for it; its session may come back."""
        self.end(connection)
        self.retire(connection, now)

    def refuse_and_end(self, connection: Connection, refusal: RegistrationFailed, now: Instant) -> None:
        """Refuse what a connection asked to be, and end it."""
        self._outbox.write(connection, refusal)
        self._outbox.note("registration_refused", reason=refusal.reason)
        self.end(connection)
        self.retire(connection, now)

    def violation(self, connection: Connection, reason: str, now: Instant) -> None:
        """Destroy a connection whose peer breaks the protocol."""
        self._connections.pop(connection.number, None)
        connection.open = False
        self._outbox.add(Destroy(connection.number, reason))
        self.retire(connection, now)
