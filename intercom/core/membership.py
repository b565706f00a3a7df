"""Let sessions come, come back and go, and end connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from intercom.core.arrivals import Arrivals, Cause
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.departing import Departing
from intercom.core.ground import Ground
from intercom.core.messages import Messages
from intercom.core.part import Handler, Part, Reader, Settler, session_of
from intercom.core.post import Post
from intercom.core.registering import Reattaching, Registering, ToldOf
from intercom.core.registry import Registry
from intercom.core.sending import Sending
from intercom.core.staging import Staging
from intercom.core.supervising import Supervising
from intercom.wire.frames import Register, Unregister
from intercom.wire.mail import SessionReattach


class Membership(Part):
    """Hold what gives connections their sessions and takes them away; ``on_features`` is told of who got features."""

    def __init__(
        self,
        ground: Ground,
        registry: Registry,
        messages: Messages,
        supervising: Supervising,
        staging: Staging,
        post: Post,
        sending: Sending,
        on_features: Callable[[Instant], None],
    ) -> None:
        self._lifecycle = registry.lifecycle
        self.arrivals = Arrivals(
            registry.addresses,
            registry.lifecycle,
            post.boxes,
            post.mailing,
            post.queueing,
            ground.ledger,
            ground.ids,
            ground.identity,
            ground.limits.sent_ids,
        )
        self.departing = Departing(
            ground.connections,
            registry.sessions,
            messages.asking,
            messages.operations,
            supervising.holding,
            supervising.restoring,
            staging.stages,
            staging.owners,
            staging.notifications,
            staging.barriers,
            sending.deciding,
            self.arrivals,
            ground.outbox,
        )
        self.registering = Registering(
            ground.connections,
            registry.sessions,
            supervising.capabilities,
            self.arrivals,
            self.departing,
            post.boxes,
            post.mailing,
            sending.delivery,
            sending.deciding,
            messages.asking,
            supervising.holding,
            supervising.restoring,
            registry.policies,
            ground.outbox,
            ground.limits,
            on_features,
        )
        self.arrivals.on_not_recorded = self.registering.arrival_not_recorded
        supervising.violation = self.departing.violation
        staging.refuse_and_end = self.departing.refuse_and_end

    def handlers(self) -> Mapping[type, Handler]:
        """Return who takes registrations and their ends."""
        return {
            Register: self.registering.register,
            SessionReattach: self.registering.reattach,
            Unregister: self._unregister,
        }

    def readers(self) -> Mapping[type, Reader]:
        """Return who goes on with a session that comes back."""
        return {Reattaching: self.registering.finish_reattach}

    def lost(self) -> Mapping[type, Settler]:
        """Return who closes a session that never heard that it is one."""
        return {ToldOf: self._never_told}

    def _unregister(self, connection: Connection, frame: Unregister, now: Instant) -> None:
        session_of(connection).keeps_questions = frame.keeps_questions is True
        self.departing.retire(connection, now, Cause.UNREGISTERED)

    def _never_told(self, token: ToldOf, now: Instant) -> None:
        self._lifecycle.close(token.known, "never_told", now)
