"""Be the part of a session that takes work and hands it out, under anyio."""

from __future__ import annotations

import builtins
from contextlib import suppress
from types import TracebackType
from typing import TypeAlias

import anyio

from intercom.client.aio_engine import Engine
from intercom.client.aio_invoke import Task
from intercom.client.assignment import Assignment as _Assignment
from intercom.client.session import ClientSession
from intercom.client.views import Receipt
from intercom.client.working import AnyAssignment, Attachments, ended_by, ended_without_word
from intercom.client.workviews import AssignmentView, Dispatched, InboxPage, InboxPresence, ParkedMessage
from intercom.errors import AssignmentLost, IntercomError
from intercom.limits import DISCONNECT_MS, REQUEST_MS, WORK_PAGE, WORK_REQUEST_MS

AssignmentViews: TypeAlias = builtins.list[AssignmentView]


class Assignment(_Assignment):
    """Hold a piece of work this session was handed, say how far it is, and answer it.

    As an ``async with`` block it is accepted at the beginning, and ends with the block at the latest: a block that is
    left without a reply or another last word reports ``failed``, with the exception that ended it where there is one;
    one that is cancelled reports ``interrupted``.
    """

    __slots__ = ("_session",)

    _session: WorkCalls

    @property
    def invocation(self) -> Task | None:
        """Return the task it brings, to say how far that is; ``None`` unless it is of an invocation.

        What ends the task ends the assignment.
        """
        return None if self.message.invoked is None else self._session._task(self)

    async def accept(
        self,
        *,
        timeout: float = WORK_REQUEST_MS / 1000,  # noqa: ASYNC109 - it decides what the outcome is called
    ) -> None:
        """Take the responsibility; once it has returned nobody else gets this work.

        Raises ``AssignmentLost`` when it was too late. Accepting again changes nothing.
        """
        if not self.accepted:
            await self.report("accepted", timeout=timeout)

    async def started(
        self,
        *,
        timeout: float = WORK_REQUEST_MS / 1000,  # noqa: ASYNC109 - as above
    ) -> None:
        """Say that the work has begun, which accepts it."""
        await self.accept(timeout=timeout)
        await self.report("started", timeout=timeout)

    async def waiting(
        self,
        detail: str | None = None,
        *,
        code: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,  # noqa: ASYNC109 - as above
    ) -> None:
        """Say that it cannot go on now; work that is not accepted yet is given back."""
        await self.report("waiting_for_capability", detail, code=code, timeout=timeout)

    async def fail(
        self,
        detail: str | None = None,
        *,
        retryable: bool = False,
        code: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,  # noqa: ASYNC109 - as above
    ) -> None:
        """Say that it will not be done; with ``retryable``, work that is not accepted yet is given back."""
        await self.report("failed", detail, retryable=retryable, code=code, timeout=timeout)

    async def reply(
        self,
        text: str,
        *,
        attachments: Attachments = (),
        reply_id: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,  # noqa: ASYNC109 - as above
    ) -> Receipt:
        """Answer who sent the message, which accepts the work and ends it; see ``Session.reply_to``."""
        await self.accept(timeout=timeout)
        return await self._session.reply_to(self, text, attachments=attachments, reply_id=reply_id, timeout=timeout)

    async def report(
        self,
        state: str,
        detail: str | None = None,
        *,
        code: str | None = None,
        retryable: bool = False,
        event_id: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,  # noqa: ASYNC109 - as above
    ) -> int:
        """Say how far it is; see ``Session.report``."""
        return await self._session.report(
            self, state, detail, code=code, retryable=retryable, event_id=event_id, timeout=timeout
        )

    async def __aenter__(self) -> Assignment:
        """Accept."""
        await self.accept()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Say the last word, unless it was said."""
        if self.is_over:
            return
        if error is None:
            with suppress(AssignmentLost):  # then there is nobody left to tell
                await self.report(**ended_without_word())
            return
        # Whoever cancels the block waits for no more than a moment, and the exception of the block goes on.
        with anyio.CancelScope(shield=True), anyio.move_on_after(DISCONNECT_MS / 1000), suppress(IntercomError):
            await self.report(**ended_by(error))


class Assignments:
    """Iterate over the work a session is handed; asking for the next one says nothing about the one before."""

    def __init__(self, session: WorkCalls, *, accept: bool, claim: bool) -> None:
        self._session = session
        self._accept = accept
        self._claim = claim

    def __aiter__(self) -> Assignments:
        """Return the iterator itself."""
        return self

    async def __anext__(self) -> Assignment:
        """Wait for the next assignment; what was lost before it could be accepted is passed over."""
        session = self._session
        while True:
            work = session._our_work(await session._engine.next_work(claims=self._claim))
            if not self._accept or work.accepted:
                return work
            try:
                await session._engine.wait(session._core.work.accept(work))
            except AssignmentLost:
                continue
            return work


class WorkCalls:
    """Hold the calls; a session gives the engine and the core."""

    _engine: Engine
    _core: ClientSession

    def _task(self, work: Assignment) -> Task:
        raise NotImplementedError

    def assignments(self, *, accept: bool = False, claim: bool = False) -> Assignments:
        """Iterate over the work this session is handed, for ever.

        Args:
            accept: accept each before it is given out, and pass over what somebody else has by then.
            claim: claim also what is parked in the inbox and this session may claim.

        Work that is not accepted within its time, 30 seconds unless a coordinator says otherwise, goes back to the
        inbox; so does, at the end of the session, what is not accepted then, while what is accepted counts as
        interrupted. Any number of assignments may be in hand. Raises ``UsageError`` unless the session was opened with
        a ``work_mode``, and ``RequestRefused`` where the broker gives it no work.
        """
        return Assignments(self, accept=accept, claim=claim)

    async def wait_for_assignment(
        self,
        *,
        claim: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 - as in the other shell
    ) -> Assignment | None:
        """Ask the broker for one assignment, for at most ``timeout`` seconds; ``None`` when none came.

        Also one that ``assignments`` gave out and that is not accepted yet. It outlives the session where that acts
        under an address: any session of the address may report on it and answer it.
        """
        work = await self._engine.wait(self._core.work.wait(timeout, claims=claim))
        return None if work is None else self._our_work(work)

    async def claim(
        self,
        inbox_id: str,
        *,
        timeout: float = WORK_REQUEST_MS / 1000,  # noqa: ASYNC109 - it decides what the outcome is called
    ) -> Assignment:
        """Take a message of the inbox as work of this session, or of its address; it is still to be accepted.

        Claiming again what this session has not accepted gives the same work. Raises ``RequestRefused`` with the code
        ``inbox_unknown`` or ``assignment_in_progress``.
        """
        return self._our_work(await self._engine.wait(self._core.work.claim(inbox_id, timeout)))

    async def report(
        self,
        assignment: AnyAssignment,
        state: str,
        detail: str | None = None,
        *,
        code: str | None = None,
        retryable: bool = False,
        event_id: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,  # noqa: ASYNC109 - it decides what the outcome is called
    ) -> int:
        """Say how far an assignment of this session, or of its address, is; return the number of the state.

        Args:
            assignment: the work, or its description.
            state: ``accepted``, ``started``, ``waiting_for_capability``, ``interrupted``, ``failed`` or ``expired``.
            detail: why, for people, up to 1,000 characters.
            code: why, for programs.
            retryable: of what failed: it may be tried again. Work that is not accepted yet is given back then.
            event_id: id of an earlier report that is to be repeated, else a new one; what can be said once needs none.
            timeout: seconds for the answer; a broker that dies meanwhile is told again.

        Raises ``AssignmentLost`` when it is not this session's any more, and ``RequestRefused``.
        """
        return await self._engine.wait(
            self._core.work.report(assignment, state, detail, code, retryable, event_id, timeout)
        )

    async def reply_to(
        self,
        assignment: AnyAssignment,
        text: str,
        *,
        attachments: Attachments = (),
        reply_id: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,  # noqa: ASYNC109 - it decides what the outcome is called
    ) -> Receipt:
        """Answer who sent the message of an accepted assignment, which ends it.

        Args:
            assignment: the work, or its description.
            text: the answer.
            attachments: files, snippets or contexts beside the text.
            reply_id: tells one answer from another; as there is one, it may be left out. Repeating an answer under its
                id sends nothing twice.
            timeout: seconds for the outcome; a broker that dies meanwhile is told again.

        Returns a receipt: delivered, or queued for a sender who is away. Raises ``AssignmentLost`` when it is not this
        session's any more, ``RequestRefused``, with the code ``send_outcome_unknown`` when the answer may have arrived,
        and ``TooLarge``.
        """
        return await self._engine.wait(self._core.work.reply(assignment, text, attachments, reply_id, timeout))

    async def open_assignments(
        self,
        *,
        after: int = 0,
        limit: int = WORK_PAGE,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> AssignmentViews:
        """Return the open assignments of this session and its address, oldest first.

        A coordinator sees those of its groups, a control session all. ``limit`` is up to 1,000.
        """
        return await self._engine.wait(self._core.work.open_assignments(after, limit, timeout))

    async def assignment(
        self,
        assignment_id: str,
        *,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> AssignmentView:
        """Return an open assignment; raises ``AssignmentLost`` for one that ended or was never there."""
        return await self._engine.wait(self._core.work.assignment(assignment_id, timeout))

    async def inbox(
        self,
        *,
        after: int = 0,
        limit: int = WORK_PAGE,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> InboxPage:
        """Return what is parked in the inbox and this session may see, behind the place ``after``, oldest first."""
        return await self._engine.wait(self._core.work.inbox(after, limit, timeout))

    async def inbox_message(
        self,
        inbox_id: str,
        *,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> ParkedMessage:
        """Return one message of the inbox with its text."""
        return await self._engine.wait(self._core.work.inbox_message(inbox_id, timeout))

    async def inbox_presence(
        self,
        *,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> InboxPresence:
        """Return how much work waits for this session, without reading it."""
        return await self._engine.wait(self._core.work.inbox_presence(timeout))

    async def dispatch(
        self,
        inbox_id: str,
        session_id: str,
        *,
        key: str | None = None,
        source_message_id: str | None = None,
        accept_within: float | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,  # noqa: ASYNC109 - it decides what the outcome is called
    ) -> Dispatched:
        """Hand a message of the inbox to a worker; for coordinators, in their groups, and control sessions.

        Args:
            inbox_id: the message.
            session_id: the worker.
            key: names the order, so that repeating it hands the message over once; else a new one.
            source_message_id: refuse the order unless the message has this id.
            accept_within: seconds for accepting it, 30 by default; 0 for no limit.
            timeout: seconds for the answer; a broker that dies meanwhile is told again, under the same key.

        Raises ``RequestRefused``; the message stays in the inbox then.
        """
        return await self._engine.wait(
            self._core.work.dispatch(inbox_id, session_id, key, source_message_id, accept_within, timeout)
        )

    async def settle(
        self,
        inbox_id: str,
        *,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> None:
        """Take a message out of the inbox that needs nobody any more."""
        await self._engine.wait(self._core.work.settle(inbox_id, timeout))

    def _our_work(self, work: _Assignment) -> Assignment:
        assert isinstance(work, Assignment), "prepare was told the kind"
        work._session = self
        return work
