"""Take what owners and stages of workflow runs write (protocol 6.12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET

from intercom.core.barriers import Barriers
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.ground import Ground
from intercom.core.messages import Messages
from intercom.core.notifications import Notification, Notifications
from intercom.core.owners import Owners
from intercom.core.part import Handler, Part, Settler, session_of
from intercom.core.registry import Registry
from intercom.core.stages import Stages
from intercom.wire.frames import (
    PendingStageMessageResult,
    PendingStageNotificationResult,
    PendingStageRouteRegistered,
    RegisterLiveWorkflowStageRoute,
    RegisterPendingStageRoute,
    RegistrationFailed,
    SendPendingStageNotification,
)


class Staging(Part):
    """Hold the parts that deal with workflow runs."""

    def __init__(self, ground: Ground, registry: Registry, messages: Messages) -> None:
        limits, outbox = ground.limits, ground.outbox
        self._outbox = outbox
        self.stages = Stages(limits, outbox)
        self.owners = Owners(self.stages, ground.ids, ground.deadlines, limits, outbox)
        self.barriers = Barriers(self.stages, self.owners, outbox)
        self.notifications = Notifications(
            self.stages.routes, registry.sessions, messages.operations, ground.ids, ground.deadlines, limits, outbox
        )
        self.refuse_and_end: Callable[[Connection, RegistrationFailed, Instant], None]
        """Refuses what a connection asked to be, and ends it."""

    def handlers(self) -> Mapping[type, Handler]:
        """Return who takes what is written about runs and their stages."""
        return {
            RegisterPendingStageRoute: self._announce_route,
            RegisterLiveWorkflowStageRoute: self._go_live,
            PendingStageMessageResult: self._owner_answered,
            SendPendingStageNotification: self.notifications.send,
            PendingStageNotificationResult: self._notified,
        }

    def taken(self) -> Mapping[type, Settler]:
        """Return who goes on after a notification was taken."""
        return {Notification: self.notifications.frame_taken}

    def lost(self) -> Mapping[type, Settler]:
        """Return who goes on after a notification was lost."""
        return {Notification: self.notifications.frame_lost}

    def report(self) -> dict[str, Any]:
        """Return how many runs are known, and what is open about them."""
        return {
            "workflowRuns": len(self.stages.routes),
            "liveStageTargets": len(self.stages.aliases),
            "ownerRequests": len(self.owners),
            "waitingStages": len(self.barriers),
            "notifications": len(self.notifications),
        }

    def _announce_route(self, connection: Connection, frame: RegisterPendingStageRoute, now: Instant) -> None:
        refusal = self.stages.announce(session_of(connection), frame)
        if refusal is not None:
            self.refuse_and_end(connection, RegistrationFailed(refusal), now)
        elif frame.request_id is not UNSET:
            self._outbox.write(connection, PendingStageRouteRegistered(frame.request_id))

    def _go_live(self, connection: Connection, frame: RegisterLiveWorkflowStageRoute, now: Instant) -> None:
        refusal = self.barriers.go_live(session_of(connection), frame)
        if refusal is not None:
            self.refuse_and_end(connection, refusal, now)

    def _owner_answered(self, connection: Connection, frame: PendingStageMessageResult, now: Instant) -> None:
        self.owners.answered(session_of(connection), frame, now)

    def _notified(self, connection: Connection, frame: PendingStageNotificationResult, now: Instant) -> None:
        self.notifications.answered(session_of(connection), frame, now)
