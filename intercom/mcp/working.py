"""Be a worker: take one piece of work at a time from the inbox, and say what came of it.

Work is accepted when a model takes it. It stays the same until it is finished, so a result that the host threw away is
shown again; under the address of the session it outlives this process too, of which then only the text is not known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intercom.client import peertext
from intercom.client.choosing import chosen
from intercom.errors import RequestRefused
from intercom.limits import TOLD_CHARACTERS, WORK_LEAST_WAIT_MS

if TYPE_CHECKING:
    from intercom.client.aio import Session
    from intercom.client.aio_work import Assignment
    from intercom.client.workviews import AssignmentView


class Workplace:
    """Hold the work that a model is at."""

    def __init__(self) -> None:
        self.now: Assignment | None = None
        self._body = ""
        self._begin = 0

    async def take(self, session: Session, seconds: float) -> str | None:
        """Return the work at hand, or the next that comes in time, or the next part of one that is long."""
        if self.now is None or self.now.is_over:
            work = await session.wait_for_assignment(claim=True, timeout=max(seconds, WORK_LEAST_WAIT_MS / 1000))
            if work is None:
                return None
            await work.accept()
            self.now, self._begin = work, 0
            self._body = peertext.body_of(work.message)
        return self._told(self.now)

    def _told(self, work: Assignment) -> str:
        told = peertext.told(work.message, self._body, self._begin, TOLD_CHARACTERS)
        self._begin = 0 if told.is_all else told.until
        more = "" if told.is_all else " Call work for the rest of it first."
        name = peertext.short(work.id)
        return f"{told.text}\n\nThis is work {name}, and it is yours now: when it is done, call finish.{more}"

    async def finish(self, session: Session, wanted: str | None, text: str, *, is_failed: bool) -> str:
        """End a piece of work by its answer, or by saying that it will not be done; return its id."""
        view = _meant(await session.open_assignments(), wanted)
        if is_failed:
            await session.report(view, "failed", text)
        else:
            await session.reply_to(view, text)
        if self.now is not None and self.now.id == view.id:
            self.now = None
        return view.id


def _meant(views: list[AssignmentView], wanted: str | None) -> AssignmentView:
    mine = [view for view in views if view.accepted]
    if wanted is None and len(mine) == 1:
        return mine[0]
    if wanted is None:
        code = "unknown_work" if not mine else "ambiguous_work"
        raise RequestRefused(
            f"{len(mine)} pieces of work are yours", code=code, hint="pending shows them; work takes a new one."
        )
    return chosen(
        mine,
        lambda view: view.id,
        wanted,
        none=lambda: RequestRefused(
            f"No work of yours has the id {wanted}", code="unknown_work", hint="pending shows what is yours."
        ),
        many=lambda count: RequestRefused(
            f"{count} pieces of work have ids that begin with {wanted}", code="ambiguous_work", hint="Give more of it."
        ),
    )
