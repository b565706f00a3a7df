"""Be live as a workflow stage over reconnects (protocol 4.15, 6.12.5).

The broker refuses by ending the connection. Two refusals may pass by themselves: the run has no owner yet, which is
back later than the stage, and the place is taken by a session that is on its way out. Those are tried again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from intercom.client.composing import clean_text
from intercom.client.operations import RequestOperation
from intercom.client.outcomes import again
from intercom.client.profile import Profile
from intercom.errors import IntercomError, StageRefused, UsageError
from intercom.limits import STAGE_RETRY_MS, STAGE_RETURN_MS
from intercom.wire.frames import LiveWorkflowStageRouteRegistered, RegisterLiveWorkflowStageRoute

if TYPE_CHECKING:
    from intercom.wire.unions import Request

RETRIED = frozenset({"owner_missing", "duplicate_live_owner"})
"""Refusals that may pass by themselves (protocol 5.29)."""


class LiveStage(Struct, kw_only=True, eq=False):
    """Hold the stage this session is."""

    run_id: str
    keys: tuple[str, ...]
    capability: str
    lost: str | None = None
    """Why this session is not the stage any more."""


class GoingLive(RequestOperation[None]):
    """Wait until messages to a stage reach this session; the broker first settles what it holds for the stage."""

    def __init__(self, place: StagePlace, stage: LiveStage, deadline: int) -> None:
        super().__init__(
            lambda request_id: frame_of(stage, request_id),
            LiveWorkflowStageRouteRegistered,
            lambda answer: place.take(stage),
            deadline,
        )
        self._place = place
        self._stage = stage
        self._refusal: StageRefused | None = None

    def attempt(self, request_id: str) -> Request:
        """Return the frame of the next attempt."""
        self._place.operation = self
        return super().attempt(request_id)

    def refused(self, error: StageRefused) -> bool:
        """Take a refusal; tell whether it may pass by itself, else it settles this."""
        self._refusal = error
        if error.code in RETRIED:
            return True
        self._stage.lost = error.reason
        self.fail(again(error))
        return False

    def _at_deadline(self, trouble: IntercomError | None) -> IntercomError:
        return super()._at_deadline(trouble) if self._refusal is None else again(self._refusal)


class StagePlace:
    """Hold the one stage a session may be, and how it is taken up again; times are monotonic milliseconds."""

    def __init__(self, write: Callable[[Request], None], ids: Callable[[], str]) -> None:
        self.stage: LiveStage | None = None
        self.operation: GoingLive | None = None
        """The attempt under way that somebody waits for."""
        self._until: int | None = None
        self._write = write
        self._ids = ids

    def check_free(self) -> None:
        """Raise ``UsageError`` where this session is a stage already."""
        if self.stage is not None or (self.operation is not None and not self.operation.done):
            raise UsageError("this session is a workflow stage already", hint="Open a session for each stage.")

    def take(self, stage: LiveStage) -> None:
        """Take notice that this session is live as a stage."""
        self.stage = stage
        self.operation = self._until = None

    def registered(self) -> None:
        """Go live again."""
        if self.stage is not None:
            self._write(frame_of(self.stage, self._ids()))

    def settled(self) -> None:
        """Take notice that the broker confirmed the stage."""
        self._until = None

    def refused(self, error: StageRefused, now: int) -> tuple[int, LiveStage | None]:
        """Take notice of a refusal; return the pause before the next attempt and the stage that was given up."""
        operation, self.operation = self.operation, None
        if operation is not None and not operation.done:
            return STAGE_RETRY_MS if operation.refused(error) else 0, None
        if self._until is None:
            self._until = now + STAGE_RETURN_MS
        if error.code in RETRIED and now < self._until:
            return STAGE_RETRY_MS, None
        stage, self.stage, self._until = self.stage, None, None
        if stage is not None:
            stage.lost = error.reason
        return 0, stage

    def leave(self, stage: LiveStage) -> bool:
        """Forget a stage; tell whether the broker may still know it."""
        if self.stage is stage:
            self.stage = None
            return True
        return stage.lost is None


def frame_of(stage: LiveStage, request_id: str) -> RegisterLiveWorkflowStageRoute:
    """Return the frame by which a session goes live."""
    return RegisterLiveWorkflowStageRoute(request_id, stage.run_id, list(stage.keys), stage.capability)


def new_stage(
    profile: Profile, place: StagePlace, run_id: str, stage_id: str, name: str | None, capability: str
) -> LiveStage:
    """Return the stage this session may go live as; raise ``UsageError`` where it may not."""
    from intercom.client.rosters import checked_key, checked_run  # most sessions are none

    if profile.purpose != "agent":
        raise UsageError("a control session gets no messages, so it cannot be a stage")
    place.check_free()
    first = checked_key(stage_id, "stage id")
    second = () if name is None or name == stage_id else (checked_key(name, "stage name"),)
    shown = clean_text(capability, "capability")
    if not shown:
        raise UsageError("capability is empty", hint="Use the one of the run.")
    return LiveStage(run_id=checked_run(run_id), keys=(first, *second), capability=shown)
