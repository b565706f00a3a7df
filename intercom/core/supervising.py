"""Take what supervisors ask for: capabilities for their children, and places for those that are brought back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET

from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.ground import Ground
from intercom.core.holding import Held, Holding
from intercom.core.messages import Messages
from intercom.core.part import Handler, Part, session_of
from intercom.core.restoring import Restoring
from intercom.core.supervision import Capabilities
from intercom.limits import SUPERVISOR_CHARACTERS
from intercom.wire.capability import capability_for, is_made_with
from intercom.wire.frames import (
    AuthorizeSupervisor,
    ReleaseRestoringRecipient,
    ReserveRestoringRecipient,
    RestoringRecipientAck,
    SupervisorAuthorized,
    trim,
)


class Supervising(Part):
    """Hold capabilities, reservations, and the sends that wait for them."""

    def __init__(self, ground: Ground, messages: Messages) -> None:
        self._ids = ground.ids
        self._outbox = ground.outbox
        self.capabilities = Capabilities(ground.limits)
        self.restoring = Restoring(self.capabilities, ground.limits)
        self.holding = Holding(self.restoring, messages.operations, ground.deadlines, ground.limits, ground.outbox)
        self.violation: Callable[[Connection, str, Instant], None]
        """Destroys a connection whose peer breaks the protocol."""
        self.dispatch: Callable[[list[Held], Instant], None]
        """Decides again about sends that waited."""

    def handlers(self) -> Mapping[type, Handler]:
        """Return who takes what supervisors ask for."""
        return {
            AuthorizeSupervisor: self._authorize,
            ReserveRestoringRecipient: self._reserve,
            ReleaseRestoringRecipient: self._release,
        }

    def report(self) -> dict[str, Any]:
        """Return how many are expected back, and how much waits for them."""
        return {"restoringRecipients": len(self.restoring), "heldSends": len(self.holding)}

    def stop(self, now: Instant) -> None:
        """Drop what waits: its senders send it again."""
        self.holding.drop_all()

    def _authorize(self, connection: Connection, frame: AuthorizeSupervisor, now: Instant) -> None:
        session = session_of(connection)
        child_name = trim(frame.child_name)
        if session.owner_token is None:
            return self.violation(connection, "authorize_supervisor without an owner token", now)
        wished = None if frame.capability is UNSET else frame.capability
        if max(len(child_name), len(wished or "")) > SUPERVISOR_CHARACTERS:
            return self.violation(connection, "authorize_supervisor with a text that is too long", now)
        if wished is not None and not is_made_with(wished, session.owner_token, child_name):
            return self.violation(connection, "authorize_supervisor with a foreign capability", now)
        if not self.capabilities.has_room(session.id, wished):
            return self.violation(connection, "authorize_supervisor beyond the limit of capabilities", now)
        capability = wished or capability_for(session.owner_token, child_name, self._ids())
        if not self.capabilities.authorize(capability, session.id, child_name, session.owner_token):
            return self.violation(connection, "authorize_supervisor with a capability bound to another", now)
        answer = SupervisorAuthorized(frame.request_id, capability, session.id, child_name)
        self._outbox.write(connection, answer)
        return None

    def _reserve(self, connection: Connection, frame: ReserveRestoringRecipient, now: Instant) -> None:
        error = self.restoring.reserve(session_of(connection), frame)
        self._outbox.write(connection, RestoringRecipientAck(frame.request_id, UNSET if error is None else error))

    def _release(self, connection: Connection, frame: ReleaseRestoringRecipient, now: Instant) -> None:
        ended, text = self.restoring.release(session_of(connection), frame)
        self._outbox.write(connection, RestoringRecipientAck(frame.request_id))
        released = [] if ended is None else self.holding.take_waiting_for([ended])
        if text is None:
            return self.dispatch(released, now)
        for held in released:
            self.holding.fail(held, text)
        return None
