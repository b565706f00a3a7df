"""Be the part of a session that takes work and hands it out, with nothing but calls."""

from __future__ import annotations

import builtins
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TypeAlias

from intercom.client.assignment import Assignment as _Assignment
from intercom.client.blocking_engine import Engine
from intercom.client.blocking_invoke import Task
from intercom.client.composing import milliseconds
from intercom.client.session import ClientSession
from intercom.client.views import Receipt
from intercom.client.working import AnyAssignment, Attachments, ended_by, ended_without_word
from intercom.client.workviews import AssignmentView, Dispatched, InboxPage, InboxPresence, ParkedMessage
from intercom.errors import AssignmentLost, IntercomError
from intercom.limits import DISCONNECT_MS, REQUEST_MS, WORK_PAGE, WORK_REQUEST_MS

AssignmentViews: TypeAlias = builtins.list[AssignmentView]


class Assignment(_Assignment):
    """Hold a piece of work this session was handed, say how far it is, and answer it.

    As a ``with`` block it is accepted at the beginning, and ends with the block at the latest: a block that is
    left without a reply or another last word reports ``failed``, with the exception that ended it where there is one;
    one that is broken off reports ``interrupted``.
    """

    __slots__ = ("_session",)

    _session: WorkCalls

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
    ) -> Receipt:
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
        # Whoever breaks the block off waits for no more than a moment, and the exception of the block goes on.
        with suppress(IntercomError):
            self.report(**ended_by(error), timeout=DISCONNECT_MS / 1000)


class Assignments:
    """Iterate over the work a session is handed; asking for the next one says nothing about the one before."""

    def __init__(self, session: WorkCalls, timeout_ms: int | None, *, accept: bool, claim: bool) -> None:
        self._session = session
        self._timeout_ms = timeout_ms
        self._accept = accept
        self._claim = claim

    def __iter__(self) -> Assignments:
        """Return the iterator itself."""
        return self

    def __next__(self) -> Assignment:
        """Wait for the next assignment, and end when none came in time.

        What was lost before it could be accepted is passed over.
        """
        session = self._session
        while True:
            found = session._engine.next_work(self._timeout_ms, claims=self._claim)
            if found is None:
                raise StopIteration
            work = session._our_work(found)
            if not self._accept or work.accepted:
                return work
            try:
                session._engine.wait(partial(session._core.work.accept, work))
            except AssignmentLost:
                continue
            return work


class WorkCalls:
    """Hold the calls; a session gives the engine and the core."""

    _engine: Engine
    _core: ClientSession

    def _task(self, work: Assignment) -> Task:
        raise NotImplementedError

    def assignments(self, *, accept: bool = False, claim: bool = False, timeout: float | None = None) -> Assignments:
        """Iterate over the work this session is handed, for ever, or until nothing came for ``timeout`` seconds.

        Args:
            accept: accept each before it is given out, and pass over what somebody else has by then.
            claim: claim also what is parked in the inbox and this session may claim.
            timeout: seconds to wait for each.

        Nothing is confirmed between two calls: work that is pushed to a session which is busy elsewhere for 2 seconds
        goes back to the inbox. So does, by default after 30 seconds, what is not accepted, and at the end of the
        session what is not accepted then, while what is accepted counts as interrupted. Any number of assignments may
        be in hand. Raises ``UsageError`` unless the session was opened with a ``work_mode``, and ``RequestRefused``
        where the broker gives it no work.
        """
        timeout_ms = None if timeout is None else milliseconds(timeout, "timeout")
        return Assignments(self, timeout_ms, accept=accept, claim=claim)

    def wait_for_assignment(self, *, claim: bool = False, timeout: float | None = None) -> Assignment | None:
        """Ask the broker for one assignment, for at most ``timeout`` seconds; ``None`` when none came.

        Also one that ``assignments`` gave out and that is not accepted yet. It outlives the session where that acts
        under an address: any session of the address may report on it and answer it.
        """
        work = self._engine.wait(lambda: self._core.work.wait(timeout, claims=claim))
        return None if work is None else self._our_work(work)

    def claim(self, inbox_id: str, *, timeout: float = WORK_REQUEST_MS / 1000) -> Assignment:
        """Take a message of the inbox as work of this session, or of its address; it is still to be accepted.

        Claiming again what this session has not accepted gives the same work. Raises ``RequestRefused`` with the code
        ``inbox_unknown`` or ``assignment_in_progress``.
        """
        return self._our_work(self._engine.wait(lambda: self._core.work.claim(inbox_id, timeout)))

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
        return self._engine.wait(
            lambda: self._core.work.report(assignment, state, detail, code, retryable, event_id, timeout)
        )

    def reply_to(
        self,
        assignment: AnyAssignment,
        text: str,
        *,
        attachments: Attachments = (),
        reply_id: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
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
        return self._engine.wait(lambda: self._core.work.reply(assignment, text, attachments, reply_id, timeout))

    def open_assignments(
        self, *, after: int = 0, limit: int = WORK_PAGE, timeout: float = REQUEST_MS / 1000
    ) -> AssignmentViews:
        """Return the open assignments of this session and its address, oldest first.

        A coordinator sees those of its groups, a control session all. ``limit`` is up to 1,000.
        """
        return self._engine.wait(lambda: self._core.work.open_assignments(after, limit, timeout))

    def assignment(self, assignment_id: str, *, timeout: float = REQUEST_MS / 1000) -> AssignmentView:
        """Return an open assignment; raises ``AssignmentLost`` for one that ended or was never there."""
        return self._engine.wait(lambda: self._core.work.assignment(assignment_id, timeout))

    def inbox(self, *, after: int = 0, limit: int = WORK_PAGE, timeout: float = REQUEST_MS / 1000) -> InboxPage:
        """Return what is parked in the inbox and this session may see, behind the place ``after``, oldest first."""
        return self._engine.wait(lambda: self._core.work.inbox(after, limit, timeout))

    def inbox_message(self, inbox_id: str, *, timeout: float = REQUEST_MS / 1000) -> ParkedMessage:
        """Return one message of the inbox with its text."""
        return self._engine.wait(lambda: self._core.work.inbox_message(inbox_id, timeout))

    def inbox_presence(self, *, timeout: float = REQUEST_MS / 1000) -> InboxPresence:
        """Return how much work waits for this session, without reading it."""
        return self._engine.wait(lambda: self._core.work.inbox_presence(timeout))

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
        return self._engine.wait(
            lambda: self._core.work.dispatch(inbox_id, session_id, key, source_message_id, accept_within, timeout)
        )

    def settle(self, inbox_id: str, *, timeout: float = REQUEST_MS / 1000) -> None:
        """Take a message out of the inbox that needs nobody any more."""
        self._engine.wait(lambda: self._core.work.settle(inbox_id, timeout))

    def _our_work(self, work: _Assignment) -> Assignment:
        assert isinstance(work, Assignment), "prepare was told the kind"
        work._session = self
        return work
