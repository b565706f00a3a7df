"""Let a session in memory take work and hand it out."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from intercom.client.assignment import Assignment as _Assignment
from intercom.client.composing import milliseconds
from intercom.client.operations import Operation
from intercom.client.session import ClientSession
from intercom.client.views import Receipt
from intercom.client.working import AnyAssignment, Attachments, ended_by, ended_without_word
from intercom.client.workviews import AssignmentView, Dispatched, InboxPage, InboxPresence, ParkedMessage
from intercom.errors import AssignmentLost, IntercomError
from intercom.limits import REQUEST_MS, WORK_PAGE, WORK_REQUEST_MS
from intercom.testing.invoking import Task
from intercom.testing.pending import Pending

if TYPE_CHECKING:
    from intercom.testing.broker import MemoryBroker

AssignmentViews: TypeAlias = builtins.list[AssignmentView]
Result = TypeVar("Result")


class Assignment(_Assignment):
    """Hold a piece of work this session was handed, say how far it is, and answer it.

    As a ``with`` block it is accepted at the beginning, and ends with the block at the latest: a block that is
    left without a reply or another last word reports ``failed``, with the exception that ended it where there is one;
    one that is broken off reports ``interrupted``.
    """

    __slots__ = ("_session",)

    _session: Work

    @property
    def invocation(self) -> Task | None:
        """Return the task it brings, to say how far that is; ``None`` unless it is of an invocation.

        What ends the task ends the assignment.
        """
        return None if self.message.invoked is None else self._session._task(self)

    def accept(self, *, timeout: float = WORK_REQUEST_MS / 1000) -> None:
        """Take the responsibility; once it has returned nobody else gets this work.

        Raises ``AssignmentLost`` when it was too late. Accepting again changes nothing.
        """
        if not self.accepted:
            self.report("accepted", timeout=timeout)

    def started(self, *, timeout: float = WORK_REQUEST_MS / 1000) -> None:
        """Say that the work has begun, which accepts it."""
        self.accept(timeout=timeout)
        self.report("started", timeout=timeout)

    def waiting(
        self, detail: str | None = None, *, code: str | None = None, timeout: float = WORK_REQUEST_MS / 1000
    ) -> None:
        """Say that it cannot go on now; work that is not accepted yet is given back."""
        self.report("waiting_for_capability", detail, code=code, timeout=timeout)

    def fail(
        self,
        detail: str | None = None,
        *,
        retryable: bool = False,
        code: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> None:
        """Say that it will not be done; with ``retryable``, work that is not accepted yet is given back."""
        self.report("failed", detail, retryable=retryable, code=code, timeout=timeout)

    def reply(
        self,
        text: str,
        *,
        attachments: Attachments = (),
        reply_id: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> Pending[Receipt]:
        """Answer who sent the message, which accepts the work and ends it; see ``Session.reply_to``."""
        self.accept(timeout=timeout)
        return self._session.reply_to(self, text, attachments=attachments, reply_id=reply_id, timeout=timeout)

    def report(
        self,
        state: str,
        detail: str | None = None,
        *,
        code: str | None = None,
        retryable: bool = False,
        event_id: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> int:
        """Say how far it is; see ``Session.report``."""
        return self._session.report(
            self, state, detail, code=code, retryable=retryable, event_id=event_id, timeout=timeout
        )

    def __enter__(self) -> Assignment:
        """Accept."""
        self.accept()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Say the last word, unless it was said."""
        if self.is_over:
            return
        if error is None:
            with suppress(AssignmentLost):  # then there is nobody left to tell
                self.report(**ended_without_word())
            return
        with suppress(IntercomError):
            self.report(**ended_by(error))


class Work:
    """Give a session in memory the calls about work; all but an answer have their result at once."""

    _broker: MemoryBroker
    _core: ClientSession

    def _task(self, work: Assignment) -> Task:
        raise NotImplementedError

    def _now(self, operation: Operation[Result]) -> Result:
        """Return what an operation comes to."""
        raise NotImplementedError

    def _begin(self, operation: Operation[Result]) -> Pending[Result]:
        """Begin an operation."""
        raise NotImplementedError

    def assignments(
        self, *, accept: bool = False, claim: bool = False, timeout: float | None = None
    ) -> Iterator[Assignment]:
        """Iterate over the work that is there now; with a timeout, time passes until the next one is there."""
        while (work := self._next_work(timeout, claims=claim)) is not None:
            if accept:
                try:
                    work.accept()
                except AssignmentLost:
                    continue
            yield work

    def wait_for_assignment(self, *, claim: bool = False, timeout: float | None = None) -> Assignment | None:
        """Ask the broker for one assignment, for at most ``timeout`` seconds; ``None`` when none came."""
        search = self._core.work.wait(timeout, claims=claim)
        found = self._begin(search)
        if timeout is not None and not found.done:
            self._broker._advance(milliseconds(timeout, "timeout"), lambda: found.done)
        if not found.done:
            found.withdraw()
            return None
        work = found.result()
        return None if work is None else self._our_work(work)

    def claim(self, inbox_id: str, *, timeout: float = WORK_REQUEST_MS / 1000) -> Assignment:
        """Take a message of the inbox as work of this session, or of its address; it is still to be accepted."""
        return self._our_work(self._now(self._core.work.claim(inbox_id, timeout)))

    def report(
        self,
        assignment: AnyAssignment,
        state: str,
        detail: str | None = None,
        *,
        code: str | None = None,
        retryable: bool = False,
        event_id: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> int:
        """Say how far an assignment of this session, or of its address, is; return the number of the state."""
        return self._now(self._core.work.report(assignment, state, detail, code, retryable, event_id, timeout))

    def reply_to(
        self,
        assignment: AnyAssignment,
        text: str,
        *,
        attachments: Attachments = (),
        reply_id: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> Pending[Receipt]:
        """Answer who sent the message of an accepted assignment, which ends it."""
        return self._begin(self._core.work.reply(assignment, text, attachments, reply_id, timeout))

    def open_assignments(
        self, *, after: int = 0, limit: int = WORK_PAGE, timeout: float = REQUEST_MS / 1000
    ) -> AssignmentViews:
        """Return the open assignments of this session and its address, oldest first."""
        return self._now(self._core.work.open_assignments(after, limit, timeout))

    def assignment(self, assignment_id: str, *, timeout: float = REQUEST_MS / 1000) -> AssignmentView:
        """Return an open assignment; raises ``AssignmentLost`` for one that ended or was never there."""
        return self._now(self._core.work.assignment(assignment_id, timeout))

    def inbox(self, *, after: int = 0, limit: int = WORK_PAGE, timeout: float = REQUEST_MS / 1000) -> InboxPage:
        """Return what is parked in the inbox and this session may see, behind the place ``after``, oldest first."""
        return self._now(self._core.work.inbox(after, limit, timeout))

    def inbox_message(self, inbox_id: str, *, timeout: float = REQUEST_MS / 1000) -> ParkedMessage:
        """Return one message of the inbox with its text."""
        return self._now(self._core.work.inbox_message(inbox_id, timeout))

    def inbox_presence(self, *, timeout: float = REQUEST_MS / 1000) -> InboxPresence:
        """Return how much work waits for this session, without reading it."""
        return self._now(self._core.work.inbox_presence(timeout))

    def dispatch(
        self,
        inbox_id: str,
        session_id: str,
        *,
        key: str | None = None,
        source_message_id: str | None = None,
        accept_within: float | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> Dispatched:
        """Hand a message of the inbox to a worker; for coordinators, in their groups, and control sessions."""
        return self._now(self._core.work.dispatch(inbox_id, session_id, key, source_message_id, accept_within, timeout))

    def settle(self, inbox_id: str, *, timeout: float = REQUEST_MS / 1000) -> None:
        """Take a message out of the inbox that needs nobody any more."""
        self._now(self._core.work.settle(inbox_id, timeout))

    def _our_work(self, work: _Assignment) -> Assignment:
        assert isinstance(work, Assignment), "prepare was told the kind"
        work._session = self
        return work

    def _next_work(self, timeout: float | None, *, claims: bool) -> Assignment | None:
        if self._core.was_ended:
            raise self._core.over()
        wall = self._broker.now.wall
        work = self._core.take_work(wall, None, claims=claims)
        self._broker._turn()
        if work is None:
            ms = 0 if timeout is None else milliseconds(timeout, "timeout")
            self._broker._advance(ms, lambda: self._core.has_work(self._broker.now.wall, claims=False))
            work = self._core.take_work(self._broker.now.wall, None, claims=claims)
            self._broker._turn()
        return None if work is None else self._our_work(work)
