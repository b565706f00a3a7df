"""Own a workflow run, and be live as one of its stages, with nothing but calls."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

from intercom.client import owning, staging
from intercom.client.blocking_engine import Engine
from intercom.client.composing import milliseconds
from intercom.client.notifying import notify
from intercom.client.owning import Announcement, RunShell
from intercom.client.queueing import StageQueue
from intercom.client.rosters import PossibleStage, RosterStage
from intercom.client.setup import now, wall
from intercom.client.staging import GoingLive
from intercom.client.views import Receipt
from intercom.errors import UsageError
from intercom.limits import REQUEST_MS


class Run(RunShell):
    """Own a workflow run for the length of a ``with`` block; made by ``Session.workflow``.

    The queue is asked during calls of the session that wait, and during ``serve``; between two calls messages wait,
    and the broker gives each of them up after 10 s. The run is announced again after a reconnect. Leaving the block
    takes its rows off the list; the broker forgets the run when the session ends.
    """

    def __init__(
        self,
        engine: Engine,
        run: owning.Run,
        queue: StageQueue,
        roster: Iterable[RosterStage],
        possible: Iterable[PossibleStage | str],
        timeout_ms: int,
    ) -> None:
        """Prepare; nothing happens before the block is entered."""
        self._engine = engine
        self._run = run
        self._queue = queue
        self._first = run.changed(tuple(roster), tuple(possible))
        self._timeout_ms = timeout_ms
        self._was_entered = False

    def __enter__(self) -> Run:
        """Announce the run; raises ``RunRefused`` or ``BrokerError``."""
        if self._was_entered:
            raise UsageError("a run can be entered once", hint="Call workflow again.")
        self._was_entered = True
        core = self._engine.core
        runs = core.commitments.runs
        self._engine.queues[self._run.id] = self._queue
        try:
            self._engine.wait(lambda: Announcement(runs, self._run, self._first, now() + self._timeout_ms))
        except BaseException:
            del self._engine.queues[self._run.id]
            runs.give_up(self._run, is_online=core.is_online)
            self._engine.flush()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the run; the exception of the block passes through unchanged."""
        if self._engine.is_foreign:
            return
        core = self._engine.core
        core.commitments.runs.end(self._run, is_online=core.is_online)
        self._engine.queues.pop(self._run.id, None)
        self._engine.flush()

    def serve(self, *, timeout: float | None = None) -> None:
        """Answer what comes for all runs of the session, for ``timeout`` seconds, or until this run is lost."""
        timeout_ms = None if timeout is None else milliseconds(timeout, "timeout")
        self._engine.serve(lambda: self._run.lost is not None, timeout_ms)

    def announce(
        self,
        *,
        roster: Iterable[RosterStage] | None = None,
        possible: Iterable[PossibleStage | str] | None = None,
        timeout: float = REQUEST_MS / 1000,
    ) -> None:
        """Replace the roster, or the possible stages, or both; what is ``None`` stays.

        Raises ``RunRefused``; then the run stays as it was. When this returns every later message goes by it.
        """
        changed = self._run.changed(roster, possible)
        runs = self._engine.core.commitments.runs
        timeout_ms = milliseconds(timeout, "timeout")
        self._engine.wait(lambda: Announcement(runs, self._run, changed, now() + timeout_ms))

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
    ) -> Receipt:
        """Tell the sender of a queued message what became of it.

        Args:
            session_id: the sender's id when it sent the message.
            text: what became of it.
            reply_to: id of the queued message.
            sender_name: the request's; finds the sender by name after it returned.
            return_address: the request's; finds it surely.
            message_id: id of this report; the same one arrives once, however often it is repeated.
            timeout: seconds for the outcome, 10 by default, at most 660.

        Raises ``SendError``: ``TargetNotFound`` while the sender is not there.
        """
        return self._engine.wait(
            lambda: notify(
                self._run,
                session_id,
                text,
                message_id=self._engine.core.new_id(message_id),
                now=now(),
                wall=wall(),
                reply_to=reply_to,
                sender_name=sender_name,
                return_address=return_address,
                timeout_ms=None if timeout is None else milliseconds(timeout, "timeout"),
            )
        )


class LiveStage:
    """Be live as a workflow stage for the length of a ``with`` block; made by ``Session.stage``."""

    def __init__(self, engine: Engine, stage: staging.LiveStage, timeout_ms: int) -> None:
        """Prepare; nothing happens before the block is entered."""
        self._engine = engine
        self._stage = stage
        self._timeout_ms = timeout_ms

    @property
    def lost(self) -> str | None:
        """Return why this session is not the stage any more, or ``None``."""
        return self._stage.lost

    def __enter__(self) -> LiveStage:
        """Go live; raises ``StageRefused``, ``RequestTimeout`` or another ``BrokerError``."""
        place = self._engine.core.commitments.stage
        place.check_free()
        try:
            self._engine.wait(lambda: GoingLive(place, self._stage, now() + self._timeout_ms))
        except BaseException:
            self._engine.core.leave_stage(self._stage)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Be the stage no longer: the session connects anew, under the same id."""
        if self._engine.is_foreign:
            return
        if self._engine.core.leave_stage(self._stage) and kind is None:
            self._engine.wait(lambda: self._engine.core.opening(now(), self._timeout_ms))
