"""Be the part of a session that looks after links and sends commands, with nothing but calls."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from intercom.client.blocking_engine import Engine
from intercom.client.composing import milliseconds
from intercom.client.session import ClientSession
from intercom.client.setup import new_id, now
from intercom.limits import LINK_EVENTS_PAGE, LINK_PAGE, REQUEST_MS, WORK_REQUEST_MS

if TYPE_CHECKING:  # most sessions have nothing to do with links, so they do not pay for them
    from intercom.client.blocking_commands import Commands
    from intercom.client.linkrequests import LinkRequests
    from intercom.client.linkviews import CommandView, EventView, LinkView

LinkViews: TypeAlias = "builtins.list[LinkView]"
CommandViews: TypeAlias = "builtins.list[CommandView]"
EventViews: TypeAlias = "builtins.list[EventView]"
Names: TypeAlias = builtins.list[str]


class LinkCalls:
    """Hold the calls; a session gives the engine and the core."""

    _engine: Engine
    _core: ClientSession

    @property
    def _link_requests(self) -> LinkRequests:
        from intercom.client.linkrequests import LinkRequests

        return LinkRequests(self._core.lifecycle, now, new_id)

    def links(
        self,
        link_id: str | None = None,
        *,
        timeout: float = REQUEST_MS / 1000,
    ) -> LinkViews:
        """Return the links this session may see, or the one with an id; the oldest first."""
        return self._engine.wait(lambda: self._link_requests.links(link_id, timeout))

    def repin_link(
        self,
        link_id: str,
        journal_id: str,
        *,
        timeout: float = REQUEST_MS / 1000,
    ) -> Names:
        """Let a link go on with another journal of its worker, from its first event; for control sessions.

        Returns the ids of the commands the worker had received, of which nobody knows any more whether they were
        carried out.
        """
        return self._engine.wait(lambda: self._link_requests.repin(link_id, journal_id, timeout))

    def send_command(
        self,
        body: Mapping[str, Any],
        *,
        address: str | None = None,
        group: str | None = None,
        session_id: str | None = None,
        link_id: str | None = None,
        command_id: str | None = None,
        timeout: float = WORK_REQUEST_MS / 1000,
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
        return self._engine.wait(
            lambda: self._link_requests.send(body, address, group, session_id, link_id, command_id, timeout)
        )

    def command_list(
        self,
        link_id: str | None = None,
        *,
        after: int = 0,
        limit: int = LINK_PAGE,
        timeout: float = REQUEST_MS / 1000,
    ) -> CommandViews:
        """Return commands, the oldest first: ``limit`` of those whose ``number`` is greater than ``after``."""
        return self._engine.wait(lambda: self._link_requests.commands(link_id, after, limit, timeout))

    def command(
        self,
        command_id: str,
        *,
        timeout: float = REQUEST_MS / 1000,
    ) -> CommandView:
        """Return one command with its body."""
        return self._engine.wait(lambda: self._link_requests.command(command_id, timeout))

    def link_events(
        self,
        link_id: str,
        *,
        after: int = 0,
        limit: int = LINK_EVENTS_PAGE,
        timeout: float = REQUEST_MS / 1000,
    ) -> EventViews:
        """Return durable events of a worker, the oldest first: ``limit`` of those behind the ``seq`` ``after``.

        The broker keeps the last 1,000 of a link, and their bodies for 24 hours.
        """
        return self._engine.wait(lambda: self._link_requests.events(link_id, after, limit, timeout))

    def report_event(self, kind: str, body: Mapping[str, Any] | None = None) -> int:
        """Write down that something happened, and return its number in the journal of this durable session.

        It is never lost once this has returned: it reaches the broker in its order, now or after restarts of either.

        Args:
            kind: what it is, in words of the program's own.
            body: what more is to be said of it; at most 256 KiB as JSON, finite numbers only.

        Raises ``UsageError`` unless the session was opened with ``durable=True``, and ``HomeError`` or ``AccessDenied``
        when the journal cannot be written.
        """
        return self._engine.act(lambda: self._core.durable.report(kind, body or {}))

    def drain(
        self,
        *,
        timeout: float | None = None,
    ) -> None:
        """Wait until what this session has said has arrived: events on the broker's disk, held messages settled.

        Raises what went wrong, an ``ExceptionGroup`` when that was several things, and ``RequestTimeout`` after
        ``timeout`` seconds. Nothing is lost by that: what a durable session has reported is brought on later.
        """
        within = None if timeout is None else milliseconds(timeout, "timeout")
        self._engine.wait(lambda: self._core.draining(within))

    @property
    def unstored_events(self) -> int:
        """Return how many events this durable session has reported that the broker does not have on its disk yet."""
        return self._core.durable.unstored

    def commands(self, *, timeout: float | None = None) -> Commands:
        """Iterate over the commands for this durable session in their order, for ever or ``timeout`` seconds for each.

        A command counts as begun when it is given out, and is never given out again: when this process ends before it
        said what became of it, the next durable session of the address reports it as failed, ``interrupted``. Asking
        for the next one says nothing about the one before. Raises ``RequestRefused`` with the code
        ``journal_identity_changed`` when the broker knows this worker by another journal.
        """
        from intercom.client.blocking_commands import Commands

        return Commands(self, None if timeout is None else milliseconds(timeout, "timeout"))
