"""Be the part of a session that follows what happens and has sessions started, with nothing but calls."""

from __future__ import annotations

from collections.abc import Iterable

from intercom.client.blocking_engine import Engine
from intercom.client.composing import milliseconds
from intercom.client.ordering import spawn
from intercom.client.session import ClientSession
from intercom.client.setup import new_id, now
from intercom.client.watches import AddressName, Watch, Watched, after_of, subjects_of
from intercom.limits import SPAWN_WAIT_MS


class Watching:
    """Iterate over what a watch tells: a ``WatchSnapshot`` first, then a ``WatchEvent`` for all that happens."""

    def __init__(self, engine: Engine, watch: Watch, timeout_ms: int | None) -> None:
        self._engine = engine
        self._watch = watch
        self._timeout_ms = timeout_ms

    @property
    def position(self) -> str | None:
        """Return where a later watch can go on, behind what was taken; ``None`` while nothing was."""
        return self._watch.position

    def close(self) -> None:
        """End the watch; one that is dropped ends by itself."""
        self._engine.core.unwatch(self._watch)
        self._engine.flush()

    def __iter__(self) -> Watching:
        """Return the iterator itself."""
        return self

    def __next__(self) -> Watched:
        """Wait for the next thing told; end when none came in time."""
        told = self._engine.next_watched(self._watch, self._timeout_ms)
        if told is None:
            raise StopIteration
        return told


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
        timeout: float | None = None,
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
            timeout: seconds to wait for each thing; the iterator ends when none came, and may be gone on with.

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
        watch = self._core.watch(subjects, after_of(after))
        self._engine.flush()
        return Watching(self._engine, watch, None if timeout is None else milliseconds(timeout, "timeout"))

    def spawn(
        self,
        kind: str,
        prompt: str = "",
        *,
        key: str | None = None,
        timeout: float = SPAWN_WAIT_MS / 1000,
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
        return self._engine.wait(lambda: spawn(kind, prompt, key=key or new_id(), timeout=timeout, now=now()))
