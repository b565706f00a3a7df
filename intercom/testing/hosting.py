"""Own a workflow run, and be live as one of its stages, in memory."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING

from intercom.client import owning, staging
from intercom.client.composing import milliseconds
from intercom.client.notifying import notify
from intercom.client.owning import Announcement, RunShell
from intercom.client.queueing import StageQueue
from intercom.client.rosters import PossibleStage, Rostered, RosterStage
from intercom.client.staging import GoingLive
from intercom.client.views import Receipt
from intercom.errors import UsageError
from intercom.limits import REQUEST_MS, STAGE_RETRY_MS

if TYPE_CHECKING:
    from intercom.testing.pending import Pending
    from intercom.testing.session import MemorySession


class Run(RunShell):
    """Own a workflow run for the length of a ``with`` block; made by ``MemorySession.workflow``."""

    def __init__(
        self,
        session: MemorySession,
        run: owning.Run,
        queue: StageQueue,
        roster: Iterable[RosterStage],
        possible: Iterable[PossibleStage | str],
        timeout_ms: int,
    ) -> None:
        """Prepare; nothing happens before the block is entered."""
        self._session = session
        self._run = run
        self._queue = queue
        self._first = run.changed(tuple(roster), tuple(possible))
        self._timeout_ms = timeout_ms
        self._was_entered = False

    def __enter__(self) -> Run:
        """Announce the run; raises ``RunRefused``."""
        if self._was_entered:
            raise UsageError("a run can be entered once", hint="Call workflow again.")
        self._was_entered = True
        self._session._queues[self._run.id] = self._queue
        try:
            self._announce(self._first, self._timeout_ms)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the run; the exception of the block passes through unchanged."""
        self._leave()

    def serve(self, *, timeout: float | None = None) -> None:
        """Let time pass; the queue is asked at any time, so that this is never needed."""
        if timeout is not None:
            self._session._broker.advance(milliseconds(timeout, "timeout"))

    def announce(
        self,
        *,
        roster: Iterable[RosterStage] | None = None,
        possible: Iterable[PossibleStage | str] | None = None,
        timeout: float = REQUEST_MS / 1000,
    ) -> None:
        """Replace the roster, or the possible stages, or both; what is ``None`` stays. Raises ``RunRefused``."""
        self._announce(self._run.changed(roster, possible), milliseconds(timeout, "timeout"))

    def notify(
        self,
        session_id: str,
        text: str,
        *,
        reply_to: str | None = None,
        sender_name: str | None = None,
        return_address: str | None = None,
        message_id: str | None = None,
        timeout: float | None = None,
    ) -> Pending[Receipt]:
        """Tell the sender of a queued message what became of it; settled when its reader has finished with it."""
        session = self._session
        return session._begin(
            notify(
                self._run,
                session_id,
                text,
                message_id=session._core.new_id(message_id),
                now=session._broker.now.mono,
                wall=session._broker.now.wall,
                reply_to=reply_to,
                sender_name=sender_name,
                return_address=return_address,
                timeout_ms=None if timeout is None else milliseconds(timeout, "timeout"),
            )
        )

    def _announce(self, announced: Rostered, timeout_ms: int) -> None:
        session = self._session
        runs = session._core.commitments.runs
        session._now(Announcement(runs, self._run, announced, session._broker.now.mono + timeout_ms))

    def _leave(self) -> None:
        session = self._session
        session._core.commitments.runs.give_up(self._run, is_online=session.online)
        session._broker._turn()
        session._queues.pop(self._run.id, None)


class LiveStage:
    """Be live as a workflow stage for the length of a ``with`` block; made by ``MemorySession.stage``."""

    def __init__(self, session: MemorySession, stage: staging.LiveStage, timeout_ms: int) -> None:
        """Prepare; nothing happens before the block is entered."""
        self._session = session
        self._stage = stage
        self._timeout_ms = timeout_ms

    @property
    def lost(self) -> str | None:
        """Return why this session is not the stage any more, or ``None``."""
        return self._stage.lost

    def __enter__(self) -> LiveStage:
        """Go live; raises ``StageRefused`` or ``RequestTimeout``."""
        session = self._session
        place = session._core.commitments.stage
        place.check_free()
        end = session._broker.now.mono + self._timeout_ms
        going = session._begin(GoingLive(place, self._stage, end))
        try:
            while not going.done:
                session._broker.advance(min(STAGE_RETRY_MS, end - session._broker.now.mono))
            going.result()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Be the stage no longer: the session connects anew, under the same id."""
        self._leave()

    def _leave(self) -> None:
        self._session._core.leave_stage(self._stage)
        self._session._broker._turn()
