"""Own a workflow run, and be live as one of its stages, under anyio."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import isawaitable
from types import TracebackType

import anyio

from intercom.client import owning, staging
from intercom.client.aio_engine import Engine
from intercom.client.composing import milliseconds
from intercom.client.notifying import notify
from intercom.client.owning import Announcement, RunShell
from intercom.client.queueing import HOST_FAILED, Asked, AsyncStageQueue, Reached, StageQueue
from intercom.client.rosters import PossibleStage, RosterStage
from intercom.client.setup import now, wall
from intercom.client.staging import GoingLive
from intercom.client.views import Receipt
from intercom.errors import UsageError
from intercom.limits import REQUEST_MS


class Run(RunShell):
    """Own a workflow run for the length of an ``async with`` block; made by ``Session.workflow``.

    The queue is asked for one message after the other. The run is announced again after a reconnect. Leaving the block
    takes its rows off the list; the broker forgets the run when the session ends.
    """

    def __init__(
        self,
        engine: Engine,
        run: owning.Run,
        queue: StageQueue | AsyncStageQueue,
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
        self._failure: Exception | None = None
        self._was_entered = False

    async def __aenter__(self) -> Run:
        """Announce the run; raises ``RunRefused`` or ``BrokerError``."""
        if self._was_entered:
            raise UsageError("a run can be entered once", hint="Call workflow again.")
        self._was_entered = True
        core = self._engine.core
        runs = core.commitments.runs
        try:
            await self._engine.wait(Announcement(runs, self._run, self._first, now() + self._timeout_ms))
        except BaseException:
            runs.give_up(self._run, is_online=core.is_online)
            self._engine.flush()
            raise
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._ask_host)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """End the run; raises what the queue raised, else lets the exception of the block pass through unchanged."""
        if self._engine.is_foreign:
            return None
        core = self._engine.core
        core.commitments.runs.end(self._run, is_online=core.is_online)
        self._engine.flush()
        self._tasks.cancel_scope.cancel()
        if kind is not None and issubclass(kind, anyio.get_cancelled_exc_class()):
            swallowed = await self._tasks.__aexit__(kind, error, trace)
        else:
            await self._tasks.__aexit__(None, None, None)
            swallowed = None
        if self._failure is not None and (kind is None or swallowed):
            raise self._failure
        return swallowed

    async def announce(
        self,
        *,
        roster: Iterable[RosterStage] | None = None,
        possible: Iterable[PossibleStage | str] | None = None,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> None:
        """Replace the roster, or the possible stages, or both; what is ``None`` stays.

        Raises ``RunRefused``; then the run stays as it was. When this returns every later message goes by it.
        """
        changed = self._run.changed(roster, possible)
        runs = self._engine.core.commitments.runs
        until = now() + milliseconds(timeout, "timeout")
        await self._engine.wait(Announcement(runs, self._run, changed, until))

    async def notify(
        self,
        session_id: str,
        text: str,
        *,
        reply_to: str | None = None,
        sender_name: str | None = None,
        return_address: str | None = None,
        message_id: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - it decides what the outcome is called
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
        return await self._engine.wait(
            notify(
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

    async def _ask_host(self) -> None:
        try:
            while True:
                item = await self._engine.next_asked(self._run)
                if isinstance(item, Reached):
                    told = self._queue.reached(item.message_id, item.target, item.stages)
                    if isawaitable(told):
                        await told
                else:
                    await self._answer(item)
        except Exception as error:
            self._failure = error
            self._tasks.cancel_scope.cancel()

    async def _answer(self, item: Asked) -> None:
        runs = self._engine.core.commitments.runs
        try:
            answer = self._queue.admit(item.request)
            runs.answer(item, await answer if isawaitable(answer) else answer)
        except Exception:
            runs.answer(item, HOST_FAILED)
            raise
        finally:
            self._engine.flush()


class LiveStage:
    """Be live as a workflow stage for the length of an ``async with`` block; made by ``Session.stage``."""

    def __init__(self, engine: Engine, stage: staging.LiveStage, timeout_ms: int) -> None:
        """Prepare; nothing happens before the block is entered."""
        self._engine = engine
        self._stage = stage
        self._timeout_ms = timeout_ms

    @property
    def lost(self) -> str | None:
        """Return why this session is not the stage any more, or ``None``."""
        return self._stage.lost

    async def __aenter__(self) -> LiveStage:
        """Go live; raises ``StageRefused``, ``RequestTimeout`` or another ``BrokerError``."""
        place = self._engine.core.commitments.stage
        place.check_free()
        try:
            await self._engine.wait(GoingLive(place, self._stage, now() + self._timeout_ms))
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Be the stage no longer: the session connects anew, under the same id."""
        if self._engine.is_foreign:
            return
        if self._leave() and kind is None:
            await self._engine.wait(self._engine.core.opening(now(), self._timeout_ms))

    def _leave(self) -> bool:
        is_cut = self._engine.core.leave_stage(self._stage)
        self._engine.flush()
        return is_cut
