"""Let a session in memory follow what happens, and order sessions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from intercom.client.composing import milliseconds
from intercom.client.operations import Operation
from intercom.client.ordering import spawn
from intercom.client.session import ClientSession
from intercom.client.setup import new_id
from intercom.client.watches import AddressName, Watch, Watched, after_of, subjects_of
from intercom.limits import SPAWN_WAIT_MS
from intercom.testing.pending import Pending

if TYPE_CHECKING:
    from intercom.testing.broker import MemoryBroker

Result = TypeVar("Result")


class Watching:
    """Iterate over what a watch told; it ends when nothing is there, and may be gone on with later."""

    def __init__(self, session: Following, watch: Watch, timeout_ms: int) -> None:
        self._session = session
        self._watch = watch
        self._timeout_ms = timeout_ms

    @property
    def position(self) -> str | None:
        """Return where a later watch can go on, behind what was taken; ``None`` while nothing was."""
        return self._watch.position

    def close(self) -> None:
        """End the watch."""
        self._session._core.unwatch(self._watch)
        self._session._broker._turn()

    def __iter__(self) -> Watching:
        """Return the iterator itself."""
        return self

    def __next__(self) -> Watched:
        """Return the next thing told; time passes for as long as the iterator may wait for it."""
        session = self._session
        session._broker._advance(self._timeout_ms, lambda: self._watch.has_news)
        if session._core.was_ended:
            raise session._core.over()
        told = session._core.take_watched(self._watch)
        session._broker._turn()
        if told is None:
            raise StopIteration
        return told


class Following:
    """Hold the calls; a session gives the broker and the core."""

    _broker: MemoryBroker
    _core: ClientSession

    def _begin(self, operation: Operation[Result]) -> Pending[Result]:
        raise NotImplementedError

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
        """Follow what happens; with a timeout, time passes until it comes. Else as in the library."""
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
        self._broker._turn()
        return Watching(self, watch, 0 if timeout is None else milliseconds(timeout, "timeout"))

    def spawn(
        self,
        kind: str,
        prompt: str = "",
        *,
        key: str | None = None,
        timeout: float = SPAWN_WAIT_MS / 1000,
    ) -> Pending[str]:
        """Order a session; a broker in memory starts none, and refuses with ``spawn_unavailable``."""
        return self._begin(spawn(kind, prompt, key=key or new_id(), timeout=timeout, now=self._broker.now.mono))
