"""Be the part of a session that has things done by others, and does them, with nothing but calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from intercom.client.assignment import Assignment
from intercom.client.blocking_engine import Engine
from intercom.client.blocking_watch import Watching
from intercom.client.composing import milliseconds
from intercom.client.invoking import (
    Accepted,
    Asked,
    Brought,
    Following,
    InvocationView,
    Route,
    clear,
    known_view,
    state_of_work,
)
from intercom.client.session import ClientSession
from intercom.client.setup import now
from intercom.client.views import Execution, Invoked
from intercom.client.watches import WatchEvent
from intercom.limits import REQUEST_MS, WORK_PAGE, WORK_REQUEST_MS
from intercom.wire.invocations import RunState

InvocationViews: TypeAlias = list[InvocationView]


class Invocation(Following):
    """Hold an invocation of this session: how far it is, what comes of it.

    ``for event in invocation`` tells each change of its run until it has ended. Dropping it changes nothing: the
    work goes on, and any session of the address, or ``intercom invocation show``, finds it by its ``id``.
    """

    def __init__(self, session: InvocationCalls, accepted: Accepted) -> None:
        super().__init__(accepted)
        self._session = session
        self._events: Watching | None = None

    def result(self, timeout: float | None = None) -> InvocationView:
        """Wait until the run has ended, for at most ``timeout`` seconds, and return it with its output.

        Raises ``RunFailed`` for a run that failed or was cancelled, and ``RunUnfinished`` when the wait ends first: the
        work goes on.
        """
        until = None if timeout is None else now() + milliseconds(timeout, "timeout")
        watching = self._session._watching(self.id)
        try:
            while not self.is_over and (until is None or now() < until):
                watching._timeout_ms = None if until is None else until - now()
                told = next(watching, None)
                if told is not None:
                    self.told(told)
        finally:
            watching.close()
        if not self.is_over:
            raise self.unfinished()
        return self.outcome(self.view())

    def view(
        self,
        *,
        timeout: float = REQUEST_MS / 1000,
    ) -> InvocationView:
        """Ask how it is now."""
        view = self._session.invocation(self.id, timeout=timeout)
        self.state = view.state
        return view

    def cancel(
        self,
        reason: str | None = None,
        *,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> RunState:
        """Ask that it is not carried out; see ``Session.cancel_invocation``."""
        self.state = self._session.cancel_invocation(self.id, reason, timeout=timeout)
        return self.state

    def __iter__(self) -> Invocation:
        """Return the iterator itself."""
        return self

    def __next__(self) -> WatchEvent:
        """Wait for the next change of the run."""
        if self._events is None:
            self._events = self._session._watching(self.id)
        while not self.is_over:
            told = next(self._events)
            if self.told(told):
                assert isinstance(told, WatchEvent), "a snapshot is no event"
                return told
        self._events.close()
        raise StopIteration


class Task(Brought):
    """Hold the task a message or an assignment brings, and say how far it is."""

    def __init__(self, session: InvocationCalls, invoked: Invoked, work: Assignment | None = None) -> None:
        super().__init__(invoked)
        self._session = session
        self._work = work

    def update(
        self,
        state: str,
        *,
        summary: str | None = None,
        output: str | None = None,
        error: str | None = None,
        update_id: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> RunState:
        """Say how far it is; see ``Session.update_run``."""
        now = self._session.update_run(
            self.id, state, summary=summary, output=output, error=error, update_id=update_id, timeout=timeout
        )
        if self._work is not None:
            self._work.noted(state_of_work(state))
        return now

    def complete(
        self,
        output: str | None = None,
        *,
        summary: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> RunState:
        """Say that it is done, and what came of it."""
        return self.update("completed", summary=summary, output=output, update_id="end", timeout=timeout)

    def fail(
        self,
        error: str,
        *,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> RunState:
        """Say that it will not be done, and why."""
        return self.update("failed", error=error, update_id="end", timeout=timeout)


class InvocationCalls:
    """Hold the calls; a session gives the engine and the core."""

    _engine: Engine
    _core: ClientSession

    def invoke(
        self,
        target: str,
        task: str,
        *,
        action: str = "execute",
        ensure_awake: bool = False,
        take_within: float | None = None,
        invocation_id: str | None = None,
        context: str | None = None,
        execution: Execution | None = None,
        labels: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        stream: bool = False,
        about: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> Invocation:
        """Have something done by somebody, now or when they can; return once the broker has it.

        Args:
            target: a label such as ``@builder.main`` or ``@builder#claude``, or an id (protocol 13.2).
            task: what is to be done.
            action: ``consult``, ``execute``, ``summarize``, ``status`` or ``wake``; a ``consult`` needs an output.
            ensure_awake: the run is called ``waking`` while nobody is there, for whoever may start somebody.
            take_within: seconds within which the target must have the task; later it is not handed over.
            invocation_id: names it, so that repeating it begins nothing twice; else a new id.
            context: what the target should know for it.
            execution: how the target is wished to do it; it need not follow that.
            labels: words by which you tell invocations apart.
            metadata: a JSON object of your own, handed on as it is.
            stream: whether reports are wished while it goes on.
            about: id of the message out of which it came.
            timeout: seconds for the answer; a broker that dies meanwhile is asked again, under the same id.

        Raises ``RouteUnclear``, whose ``labels`` lead to one each, when the target leads to nobody, and
        ``RequestRefused`` (protocol 13.6).
        """
        asked = Asked(
            context=context, execution=execution, labels=labels, metadata=metadata, stream=stream, about=about
        )
        requests = self._core.invoking
        accepted = self._engine.wait(
            lambda: requests.invoke(target, task, action, ensure_awake, take_within, invocation_id, asked, timeout)
        )
        return Invocation(self, clear(accepted))

    def invocation(
        self,
        invocation_id: str,
        *,
        timeout: float = REQUEST_MS / 1000,
    ) -> InvocationView:
        """Return how an invocation is that this session, or its address, made or was given; a control session any.

        Raises ``RequestRefused`` with the code ``invocation_unknown`` for one that is not known, ``RouteUnclear`` for
        one that led to nobody.
        """
        found = self._engine.wait(lambda: self._core.invoking.invocation(invocation_id, timeout))
        return known_view(found, invocation_id)

    def invocations(
        self,
        *,
        before: int | None = None,
        limit: int = WORK_PAGE,
        open_only: bool = False,
        as_target: bool = False,
        labels: Sequence[str] = (),
        timeout: float = REQUEST_MS / 1000,
    ) -> InvocationViews:
        """Return the same of all, the newest first and without texts; ``before`` is a number, for the next page.

        ``as_target`` leaves out what is not this session's to do, ``labels`` what was not given all of these.
        """
        return self._engine.wait(
            lambda: self._core.invoking.invocations(before, limit, open_only, as_target, labels, timeout)
        )

    def cancel_invocation(
        self,
        invocation_id: str,
        reason: str | None = None,
        *,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> RunState:
        """Ask that an invocation is not carried out; return the state of its run.

        ``cancelled`` when nobody had it; else its target was asked to stop, and the run goes on until it reports.
        """
        return self._engine.wait(lambda: self._core.invoking.cancel(invocation_id, reason, timeout))

    def update_run(
        self,
        invocation_id: str,
        state: str,
        *,
        summary: str | None = None,
        output: str | None = None,
        error: str | None = None,
        update_id: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
    ) -> RunState:
        """Say as its target how far a run is; return its state, which is another one when it has ended before.

        Args:
            invocation_id: as the message told it.
            state: ``running``, ``waiting``, ``completed``, ``failed`` or ``cancelled``.
            summary: in short, up to 1,000 characters.
            output: the result.
            error: why it failed, up to 1,000 characters.
            update_id: id of an earlier update that is to be repeated, else a new one.
            timeout: seconds for the answer; a broker that dies meanwhile is told again.

        The first end counts: raises ``RequestRefused`` with the code ``run_terminal`` for another one.
        """
        requests = self._core.invoking
        return self._engine.wait(
            lambda: requests.update(invocation_id, state, summary, output, error, update_id, timeout)
        )

    def resolve(
        self,
        target: str,
        *,
        timeout: float = REQUEST_MS / 1000,
    ) -> Route:
        """Return whom a label means, without asking anything of them; raises ``RouteUnclear``."""
        return clear(self._engine.wait(lambda: self._core.invoking.resolve(target, timeout)))

    def _watching(self, invocation_id: str) -> Watching:
        raise NotImplementedError
