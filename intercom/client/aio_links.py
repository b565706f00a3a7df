"""Be the part of a session that looks after links and sends commands, under anyio."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any, TypeAlias

from intercom.client.aio_engine import Engine
from intercom.client.linkrequests import LinkRequests
from intercom.client.linkviews import CommandView, EventView, LinkView
from intercom.limits import LINK_EVENTS_PAGE, LINK_PAGE, REQUEST_MS, WORK_REQUEST_MS

LinkViews: TypeAlias = builtins.list[LinkView]
CommandViews: TypeAlias = builtins.list[CommandView]
EventViews: TypeAlias = builtins.list[EventView]
Names: TypeAlias = builtins.list[str]


class LinkCalls:
    """Hold the calls; a session gives the engine."""

    _engine: Engine
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
