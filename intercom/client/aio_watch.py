"""Be the part of a session that follows what happens and has sessions started, under anyio."""

from __future__ import annotations

from collections.abc import Iterable

from intercom.client.aio_engine import Engine
from intercom.client.ordering import spawn
from intercom.client.session import ClientSession
from intercom.client.setup import new_id, now
from intercom.client.watches import AddressName, Watch, Watched, after_of, subjects_of
from intercom.limits import SPAWN_WAIT_MS


class Watching:
    """Iterate over what a watch tells: a ``WatchSnapshot`` first, then a ``WatchEvent`` for all that happens."""

    def __init__(self, engine: Engine, watch: Watch) -> None:
        self._engine = engine
        self._watch = watch

    @property
    def position(self) -> str | None:
        """Return where a later watch can go on, behind what was taken; ``None`` while nothing was."""
        return self._watch.position

    def close(self) -> None:
        """End the watch; one that is dropped ends by itself."""
        self._engine.core.unwatch(self._watch)
        self._engine.flush()

    def __aiter__(self) -> Watching:
        """Return the iterator itself."""
        return self

    async def __anext__(self) -> Watched:
        """Wait for the next thing told."""
        return await self._engine.next_watched(self._watch)


class WatchCalls:
    """Hold the calls; a session gives the engine and the core."""

    _engine: Engine
    _core: ClientSession

    def watch(
        self,
        *,
        sessions: Iterable[str] = (),
        addresses: Iterable[AddressName] = (),
        groups: Iterable[str] = (),
        messages: Iterable[str] = (),
        assignments: Iterable[str] = (),
        flows: Iterable[str] = (),
        invocations: Iterable[str] = (),
        links: Iterable[str] = (),
        after: int | str | None = None,
    ) -> Watching:
        """Follow what happens, from now on or behind a position of an earlier watch.

        Args:
            sessions: ids of sessions.
            addresses: names of addresses, or pairs of name and home group.
            groups: groups this session is in.
            messages: ids of messages; also of such that are sent later.
            assignments: ids of assignments, likewise.
            flows: ids of flows, likewise.
            invocations: ids of invocations, likewise.
            links: ids of links, likewise.
            after: a ``position`` that an earlier watch has named; without it the first thing told is a snapshot.

        Without any of the first seven it follows everything this session may see: itself and its groups, for a control
        session all. It goes on over lost connections without gap or repetition. Iterating raises ``RequestRefused``
        when the broker does not let it follow these, and ``BrokerError`` when the broker cannot be reached without
        somebody's help (protocol 11.1).
        """
        subjects = subjects_of(
            sessions=[self._core.lifecycle.present(session) for session in sessions],
            addresses=addresses,
            groups=groups,
            messages=messages,
            assignments=assignments,
            flows=flows,
            invocations=invocations,
            links=links,
        )
        self._engine.check_caller()
        watch = self._core.watch(subjects, after_of(after))
        self._engine.flush()
        return Watching(self._engine, watch)

    async def spawn(
        self,
        kind: str,
        prompt: str = "",
        *,
        key: str | None = None,
        timeout: float = SPAWN_WAIT_MS / 1000,  # noqa: ASYNC109 - as in the other shell
    ) -> str:
        """Have a session started by a command that the settings name, and return its id once it has registered.

        Args:
            kind: which of the commands in ``intercom.toml``.
            prompt: what the command finds on its standard input.
            key: names the order, so that repeating it starts nothing again, whoever repeats it.
            timeout: seconds in all.

        For control sessions and coordinators. Raises ``RequestRefused``, with the code ``spawn_rate_limited`` for too
        many orders at once, ``spawn_timeout`` when no session came, and others of protocol 11.3.
        """
        return await self._engine.wait(spawn(kind, prompt, key=key or new_id(), timeout=timeout, now=now()))
