"""Take up again, at each registration, what a session has promised: places of children, runs it owns, its stage.

The broker forgets all of it with the connection. What it refuses to take again is dropped by itself and said as an
event; everything else of the session goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from intercom.client.contact import Contact
from intercom.client.feeds import Feeds, SessionEvent
from intercom.client.notices import HostAsked, News
from intercom.client.outcomes import again
from intercom.client.pursuing import Handlers, Pursuit
from intercom.client.restoring import Places
from intercom.client.staging import LiveStage, StagePlace
from intercom.errors import IntercomError, RunRefused, StageRefused
from intercom.wire.frames import (
    LiveWorkflowStageRouteRegistered,
    PendingStageMessage,
    PendingStageRouteRegistered,
    PendingStageRouteRevoked,
    StickyLiveDelivered,
)

if TYPE_CHECKING:
    from intercom.client.owning import Runs
    from intercom.wire.unions import Request


class Ended(Struct, frozen=True):
    """Say what follows from the end of a connection that ended for the sake of a commitment."""

    pause_ms: int = 0
    """Before the next attempt to connect."""
    event: SessionEvent | None = None
    """What is lost although nobody asked just now."""


class Commitments:
    """Hold what a session has promised."""

    def __init__(self, contact: Contact, pursuit: Pursuit, feeds: Feeds, news: News, ids: Callable[[], str]) -> None:
        self.places = Places()
        self.stage = StagePlace(self._write, ids)
        self._contact = contact
        self._pursuit = pursuit
        self._feeds = feeds
        self._news = news
        self._ids = ids
        self._is_leaving = False
        self._runs: Runs | None = None
        self.handlers: Handlers = {
            PendingStageRouteRegistered: self._on_route_registered,
            PendingStageRouteRevoked: self._on_route_revoked,
            PendingStageMessage: self._on_stage_message,
            StickyLiveDelivered: self._on_broadcast,
            LiveWorkflowStageRouteRegistered: self._on_stage_registered,
        }

    @property
    def runs(self) -> Runs:
        """Return the runs of the session; what they need is loaded for the first one, since most sessions own none."""
        if self._runs is None:
            from intercom.client.owning import Runs

            self._runs = Runs(self._write, self._ids)
        return self._runs

    def registered(self) -> None:
        """Write everything again; the session's capabilities have been written before."""
        for frame in self.places.frames(self._ids):
            self._write(frame)
        if self._runs is not None:
            self._runs.registered()
        self.stage.registered()

    def leave(self, stage: LiveStage, *, is_online: bool) -> bool:
        """Forget a stage; tell whether the connection has to end, which alone makes the broker forget it too."""
        self._is_leaving = self.stage.leave(stage) and is_online
        return self._is_leaving

    def ended(self, cause: IntercomError | None, now: int) -> Ended | None:
        """Take notice that a good connection ended; ``None`` when that had nothing to do with a commitment."""
        is_leaving, self._is_leaving = self._is_leaving, False
        ended = Ended() if is_leaving and cause is None else None
        if isinstance(cause, StageRefused):
            pause, given_up = self.stage.refused(cause, now)
            ended = Ended(pause, event=None if given_up is None else _stage_lost(given_up))
        elif isinstance(cause, RunRefused) and (refused := self.runs.refused(cause)) is not None:
            run, operation = refused
            if operation is None:
                ended = Ended(event=SessionEvent(kind="run_lost", run_id=run.id, reason=cause.reason))
            else:
                if not operation.done:
                    operation.fail(again(cause))
                ended = Ended()
        if self._runs is not None:
            self._runs.disconnected()
        return ended

    def _on_route_registered(self, answer: PendingStageRouteRegistered, now: int) -> None:
        self.runs.answered(answer.request_id)
        self._pursuit.answered(answer, now)

    def _on_route_revoked(self, answer: PendingStageRouteRevoked, now: int) -> None:
        reason = "another session has taken the run over"
        if self.runs.lose(answer.run_id, reason):
            self._feeds.put(SessionEvent(kind="run_lost", run_id=answer.run_id, reason=reason))

    def _on_stage_registered(self, answer: LiveWorkflowStageRouteRegistered, now: int) -> None:
        self.stage.settled()
        self._pursuit.answered(answer, now)

    def _on_stage_message(self, frame: PendingStageMessage, now: int) -> None:
        if self.runs.asked(frame):
            self._news.add(HostAsked())

    def _on_broadcast(self, frame: StickyLiveDelivered, now: int) -> None:
        if self.runs.reached(frame):
            self._news.add(HostAsked())

    def _write(self, frame: Request) -> None:
        """Write a frame that means nothing on another connection than the present one."""
        if self._contact.is_online:
            self._contact.write(frame)


def _stage_lost(stage: LiveStage) -> SessionEvent:
    return SessionEvent(kind="stage_lost", run_id=stage.run_id, reason=stage.lost)
