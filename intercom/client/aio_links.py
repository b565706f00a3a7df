"""Be the part of a session that looks after links and sends commands, under anyio."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from types import TracebackType
from typing import Any, TypeAlias

from intercom.client.aio_engine import Engine
from intercom.client.composing import milliseconds
from intercom.client.durable import Command as _Command
from intercom.client.linkrequests import LinkRequests
from intercom.client.linkviews import CommandView, EventView, LinkView
from intercom.client.session import ClientSession
from intercom.client.workerjournal import INTERRUPTED
from intercom.limits import LINK_DETAIL_CHARACTERS, LINK_EVENTS_PAGE, LINK_PAGE, REQUEST_MS, WORK_REQUEST_MS

LinkViews: TypeAlias = builtins.list[LinkView]
CommandViews: TypeAlias = builtins.list[CommandView]
EventViews: TypeAlias = builtins.list[EventView]
Names: TypeAlias = builtins.list[str]


class Command(_Command):
    """Hold a command for this durable session, which is being carried out, and say what became of it.

    As an ``async with`` block it is done with the block, or failed when an exception ends that. What became of it is on
    disk here when a call returns, and reaches its sender when the broker can be reached.
    """

    __slots__ = ("_session",)

    _session: LinkCalls

    async def done(self, detail: str | None = None) -> None:
        """Say that it was carried out; ``detail`` is for people, up to 1,000 characters."""
        self._session._engine.act(lambda: self._settle("command_applied", detail, None))

    async def fail(self, detail: str | None = None, *, code: str | None = None) -> None:
        """Say that it was tried and failed; ``code`` is why, for programs."""
        self._session._engine.act(lambda: self._settle("command_failed", detail, code))

    async def __aenter__(self) -> Command:
        """Return the command."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Say what became of it, unless it was said."""
        if self.is_over:
            return
        if error is None:
            await self.done()
        elif isinstance(error, Exception):
            await self.fail(f"{type(error).__name__}: {error}"[:LINK_DETAIL_CHARACTERS], code="exception")
        else:
            await self.fail(code=INTERRUPTED)


class Commands:
    """Iterate over the commands for a durable session; each is given out once."""

    def __init__(self, session: LinkCalls) -> None:
        self._session = session

    def __aiter__(self) -> Commands:
        """Return the iterator itself."""
        return self

    async def __anext__(self) -> Command:
        """Wait for the next command."""
        command = await self._session._engine.next_command(Command)
        command._session = self._session
        return command


class LinkCalls:
    """Hold the calls; a session gives the engine and the core."""

    _engine: Engine
    _core: ClientSession
    _link_requests: LinkRequests

    async def links(
        self,
        link_id: str | None = None,
        *,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> LinkViews:
        """Return the links this session may see, or the one with an id; the oldest first."""
        return await self._engine.wait(self._link_requests.links(link_id, timeout))

    async def repin_link(
        self,
        link_id: str,
        journal_id: str,
        *,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as above
    ) -> Names:
        """Let a link go on with another journal of its worker, from its first event; for control sessions.

        Returns the ids of the commands the worker had received, of which nobody knows any more whether they were
        carried out.
        """
        return await self._engine.wait(self._link_requests.repin(link_id, journal_id, timeout))

    async def send_command(
        self,
        body: Mapping[str, Any],
        *,
        address: str | None = None,
        group: str | None = None,
        session_id: str | None = None,
        link_id: str | None = None,
        command_id: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,  # noqa: ASYNC109 - as above
    ) -> CommandView:
        """Store a command for a worker; it is carried out once, also when the worker or the broker restarts.

        Args:
            body: what is to be done, as the worker understands it; at most 256 KiB as JSON.
            address: the address of the worker; or one of the next two.
            group: the home group of that address, where several have its name.
            session_id: the session of a worker without an address.
            link_id: its link.
            command_id: names the command, so that repeating it stores it once; else a new id.
            timeout: seconds for the answer; a broker that dies meanwhile is told again, under the same id.

        For control sessions, and for coordinators in their groups. Raises ``RequestRefused`` with the code
        ``unknown_link`` when no such worker has ever connected.
        """
        return await self._engine.wait(
            self._link_requests.send(body, address, group, session_id, link_id, command_id, timeout)
        )

    async def command_list(
        self,
        link_id: str | None = None,
        *,
        after: int = 0,
        limit: int = LINK_PAGE,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as above
    ) -> CommandViews:
        """Return commands, the oldest first: ``limit`` of those whose ``number`` is greater than ``after``."""
        return await self._engine.wait(self._link_requests.commands(link_id, after, limit, timeout))

    async def command(
        self,
        command_id: str,
        *,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as above
    ) -> CommandView:
        """Return one command with its body."""
        return await self._engine.wait(self._link_requests.command(command_id, timeout))

    async def link_events(
        self,
        link_id: str,
        *,
        after: int = 0,
        limit: int = LINK_EVENTS_PAGE,
        timeout: float = REQUEST_MS / 1000,  # noqa: ASYNC109 - as above
    ) -> EventViews:
        """Return durable events of a worker, the oldest first: ``limit`` of those behind the ``seq`` ``after``.

        The broker keeps the last 1,000 of a link, and their bodies for 24 hours.
        """
        return await self._engine.wait(self._link_requests.events(link_id, after, limit, timeout))

    async def report_event(self, kind: str, body: Mapping[str, Any] | None = None) -> int:
        """Write down that something happened, and return its number in the journal of this durable session.

        It is never lost once this has returned: it reaches the broker in its order, now or after restarts of either.

        Args:
            kind: what it is, in words of the program's own.
            body: what more is to be said of it; at most 256 KiB as JSON, finite numbers only.

        Raises ``UsageError`` unless the session was opened with ``durable=True``, and ``HomeError`` or ``AccessDenied``
        when the journal cannot be written.
        """
        return self._engine.act(lambda: self._core.durable.report(kind, body or {}))

    async def drain(
        self,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - it decides what the outcome is called
    ) -> None:
        """Wait until what this session has said has arrived: events on the broker's disk, held messages settled.

        Raises what went wrong, an ``ExceptionGroup`` when that was several things, and ``RequestTimeout`` after
        ``timeout`` seconds. Nothing is lost by that: what a durable session has reported is brought on later.
        """
        within = None if timeout is None else milliseconds(timeout, "timeout")
        await self._engine.wait(self._core.draining(within))

    @property
    def unstored_events(self) -> int:
        """Return how many events this durable session has reported that the broker does not have on its disk yet."""
        return self._core.durable.unstored

    def commands(self) -> Commands:
        """Iterate over the commands for this durable session, in their order, for ever.

        A command counts as begun when it is given out, and is never given out again: when this process ends before it
        said what became of it, the next durable session of the address reports it as failed, ``interrupted``. Asking
        for the next one says nothing about the one before. Raises ``RequestRefused`` with the code
        ``journal_identity_changed`` when the broker knows this worker by another journal.
        """
        return Commands(self)
