"""Be a worker: take one piece of work at a time, and say what came of it.

Work comes from the inbox, where it is accepted when a model takes it, and as steps of flows, which are messages like
any. Both stay the same until they are finished, so a result that the host threw away is shown again. Under the address
of the session they outlive this process too, of which then only the text is not known.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import anyio

from intercom.client import peertext
from intercom.client.choosing import chosen
from intercom.client.texts import visible
from intercom.errors import AccessDenied, BrokerError, IntercomError, RequestRefused
from intercom.limits import INCOMING_MESSAGES, TOLD_CHARACTERS, WORK_LEAST_WAIT_MS

if TYPE_CHECKING:
    from intercom.client.aio import Session
    from intercom.client.aio_work import Assignment
    from intercom.client.views import IncomingMessage
    from intercom.client.workviews import AssignmentView

OVER = frozenset({"dispatch_unknown", "not_flow_target", "dispatch_closed", "report_conflict"})
"""Refusals after which a step is none of ours any more."""


class Mine(NamedTuple):
    """Be something a model has in hand: a piece of work or a step of a flow, by the id it is called by."""

    id: str
    view: AssignmentView | None


class Workplace:
    """Hold the work that a model is at."""

    def __init__(self) -> None:
        self.now: Assignment | None = None
        self.steps: dict[str, IncomingMessage] = {}
        """Steps of flows that were shown and are not reported, by the id of their dispatch."""
        self.taken_back: set[str] = set()
        """Runs of tasks of which the model was told that they are not wanted any more."""
        self._body = ""
        self._begin = 0
        self._begun: str | None = None
        """Id of the message of which parts were shown."""

    def was_shown(self, message: IncomingMessage) -> None:
        """Take notice that the model knows of a message; a step is in its hand from now on."""
        if message.invoked is not None and message.invoked.is_cancelled:
            self.taken_back.add(message.invoked.run_id)
        if message.flow is None:
            return
        self.steps[message.flow.dispatch_id] = message
        if len(self.steps) > INCOMING_MESSAGES:
            del self.steps[next(iter(self.steps))]

    def at_hand(self) -> str | None:
        """Return the work that is not finished yet, or the next part of one that is long; ``None``: there is none."""
        if self.now is not None and not self.now.is_over:
            name = peertext.short(self.now.id)
            how = "when it is done, call finish" if self.now.message.invoked is None else "end it with reply"
            return self._told(self.now.message, f"This is work {name}, and it is yours now: {how}.")
        for dispatch_id, message in self.steps.items():
            named = visible(dispatch_id)
            return self._told(message, f"This step is yours, and not reported yet: call finish with work {named}.")
        return None

    def task_ended(self, run_id: str) -> None:
        """Take notice that a task is ended, and with it the work it was taken as."""
        self.taken_back.discard(run_id)
        if self.now is not None and self.now.message.invoked is not None and self.now.message.invoked.run_id == run_id:
            self.now = None

    async def take(self, session: Session, seconds: float, step_came: Callable[[], Awaitable[object]]) -> str | None:
        """Return the next piece of work that comes in time; ``None``: there is none, or a step came before it."""
        work: Assignment | None = None
        trouble: IntercomError | None = None
        async with anyio.create_task_group() as tasks:

            async def leave_for_a_step() -> None:
                await step_came()
                tasks.cancel_scope.cancel()

            tasks.start_soon(leave_for_a_step)
            try:
                work = await session.wait_for_assignment(claim=True, timeout=max(seconds, WORK_LEAST_WAIT_MS / 1000))
            except IntercomError as error:
                trouble = error
            tasks.cancel_scope.cancel()
        if trouble is not None:
            raise trouble
        if work is None:
            return None
        await work.accept()
        self.now = work
        return self.at_hand()

    def _told(self, message: IncomingMessage, what: str) -> str:
        if self._begun != message.id:
            self._begun, self._body, self._begin = message.id, peertext.body_of(message), 0
        told = peertext.told(message, self._body, self._begin, TOLD_CHARACTERS)
        self._begin = 0 if told.is_all else told.until
        more = "" if told.is_all else " Call work for the rest of it first."
        return f"{told.text}\n\n{what}{more}"

    async def finish(
        self,
        session: Session,
        wanted: str | None,
        text: str,
        *,
        is_failed: bool,
        resources: Sequence[str] = (),
        todo: tuple[str, str] | None = None,
    ) -> str:
        """End a piece of work by its answer, or report a step, or say that it will not be done; say what that led to.

        A whole id that is not known here is reported as a step: an earlier process of this session may have shown it.
        """
        views = [view for view in await session.open_assignments() if view.accepted]
        mine = [Mine(view.id, view) for view in views] + [Mine(dispatch_id, None) for dispatch_id in self.steps]
        if wanted is not None and _is_whole(wanted) and wanted.strip().lower() not in [one.id for one in mine]:
            return await self._report(session, wanted.strip().lower(), text, resources, todo, is_failed=is_failed)
        one = _meant(mine, wanted)
        if one.view is None:
            return await self._report(session, one.id, text, resources, todo, is_failed=is_failed)
        if is_failed:
            await session.report(one.view, "failed", text)
        else:
            await session.reply_to(one.view, text)
        if self.now is not None and self.now.id == one.id:
            self.now = None
        return f"work {peertext.short(one.id)} {'was given up' if is_failed else 'is done'}"

    async def _report(
        self,
        session: Session,
        dispatch_id: str,
        text: str,
        resources: Sequence[str],
        todo: tuple[str, str] | None,
        *,
        is_failed: bool,
    ) -> str:
        outcome = "failed" if is_failed else "completed"
        named = f"step {self._called(dispatch_id)}"
        try:
            reported = await session.flows.report(dispatch_id, outcome, text, resources, todo=todo)
        except RequestRefused as error:
            if error.code in OVER:
                self.steps.pop(dispatch_id, None)
            raise
        except AccessDenied:
            raise  # it could not be written down
        except BrokerError:
            self.steps.pop(dispatch_id, None)
            return f"{named}: the report is written down, and is sent when the broker answers. Do not repeat it."
        self.steps.pop(dispatch_id, None)
        if reported.state == "stored":
            return f"{named}: the report is stored, and brought to the machine of its flow. Do not repeat it."
        waits = ", and waits for its to-do item" if reported.step_state == "awaiting_result" else ""
        return f"{named} was reported as {outcome}{waits}"

    def _called(self, dispatch_id: str) -> str:
        message = self.steps.get(dispatch_id)
        return peertext.short(dispatch_id) if message is None or message.flow is None else visible(message.flow.step_id)


def _is_whole(wanted: str) -> bool:
    try:
        return str(uuid.UUID(wanted.strip())) == wanted.strip().lower()
    except ValueError:
        return False


def _meant(mine: list[Mine], wanted: str | None) -> Mine:
    if wanted is None and len(mine) == 1:
        return mine[0]
    if wanted is None:
        code = "unknown_work" if not mine else "ambiguous_work"
        raise RequestRefused(
            f"{len(mine)} pieces of work are yours", code=code, hint="pending shows them; work takes a new one."
        )
    return chosen(
        mine,
        lambda one: one.id,
        wanted,
        none=lambda: RequestRefused(
            f"No work of yours has the id {wanted}", code="unknown_work", hint="pending shows what is yours."
        ),
        many=lambda count: RequestRefused(
            f"{count} pieces of work have ids that begin with {wanted}", code="ambiguous_work", hint="Give more of it."
        ),
    )
