"""Let the broker finish what is open before it leaves, and take nothing new meanwhile (protocol 3.10).

    serving --broker_drain--> working --nothing is in work, twice--> emptying links --nothing is in work still--> stop
                               |   ^---------- something is again ---------+
                               +-- the time is up, whatever is open ----------------------------------------------> stop

Rule 1: what was begun may end: answers, reports, receipts and plain messages are taken as ever. Rule 2: what is neither
begun nor needs somebody who is here does not hold the broker up: it is on disk, and the next broker goes on with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.effects import Stop
from intercom.core.ground import Ground
from intercom.core.links import Links
from intercom.core.part import Handler, Part
from intercom.core.registry import Registry
from intercom.drains import Outcome
from intercom.wire.frames import BrokerDrain, BrokerDrained
from intercom.wire.mail import RequestFailed

REFUSED = "The broker stops soon and takes nothing new; ask again in a moment"
REASON = "it was drained"
"""Why the broker stops."""


class Draining(Part):
    """Watch what is in work until nothing is, or until the time is up."""

    def __init__(self, ground: Ground, registry: Registry, links: Links, parts: Iterable[Part]) -> None:
        self._sessions = registry.sessions
        self._links = links
        self._parts = parts
        self._deadlines = ground.deadlines
        self._outbox = ground.outbox
        self._look_ms = ground.limits.drain_look_ms
        self._handlers: dict[type, Handler] = {}
        self._askers: list[tuple[Connection, str]] = []
        self._since: Instant | None = None
        self._until = 0
        """Monotonic ms."""
        self._was_idle = False
        self._is_emptying = False
        """The links are asked to say when their inboxes are empty."""
        self._failed: list[str] = []
        self._is_over = False

    def handlers(self) -> Mapping[type, Handler]:
        """Return who takes the request to drain."""
        return {BrokerDrain: self._begin}

    def refuses_in(self, handlers: dict[type, Handler]) -> None:
        """Take the table in which requests that begin something are refused, once the broker drains."""
        self._handlers = handlers

    def report(self) -> dict[str, Any]:
        """Return how far it is, if the broker drains."""
        if self._since is None:
            return {}
        until = self._since.wall + self._until - self._since.mono
        return {"draining": {"since": self._since.wall, "until": until, "open": self._open()}}

    def _begin(self, connection: Connection, frame: BrokerDrain, now: Instant) -> None:
        """Begin, or wait for the end of what another one began; the newest one says how long it may take."""
        self._askers.append((connection, frame.request_id))
        self._until = now.mono + frame.timeout_ms
        if self._since is None:
            self._since = now
            self._outbox.note("draining", timeout_ms=frame.timeout_ms)
            for part in self._parts:
                part.shut(frame.timeout_ms)
                self._handlers.update(dict.fromkeys(part.begins, self._refuse))
        self._look(None, now)

    def _refuse(self, connection: Connection, frame: Any, now: Instant) -> None:
        self._outbox.write(connection, RequestFailed(frame.request_id, "broker_draining", REFUSED, True))

    def _open(self) -> dict[str, int]:
        """Return how much of each kind those who are here are busy with, kinds of which there is something."""
        counts: dict[str, int] = {}
        for part in self._parts:
            counts |= part.in_work(self._is_here)
        return {kind: count for kind, count in counts.items() if count}

    def _is_here(self, session_id: str) -> bool:
        return self._sessions.get(session_id) is not None

    def _look(self, _: None, now: Instant) -> None:
        """Look whether it is over; it is looked again soon, because the end of one thing may begin another."""
        if self._is_over:
            return
        is_idle = not self._open()
        if now.mono >= self._until:
            self._end()
        elif is_idle and self._was_idle and not self._is_emptying:
            self._is_emptying = True
            self._links.drain(self._emptied)
        self._was_idle = is_idle
        if not self._is_over:
            self._deadlines.add(min(now.mono + self._look_ms, self._until), self._look)

    def _emptied(self, outcome: Outcome) -> None:
        self._is_emptying = False
        self._failed += [str(error) for error in _parts(outcome)]
        if not self._open():
            self._end()

    def _end(self) -> None:
        """Tell everybody who asked how it ended, and stop."""
        if self._is_over:
            return
        self._is_over = True
        left, failed = self._open(), self._failed
        self._outbox.note("drained", open=left, failed=failed)
        for connection, request_id in self._askers:
            self._outbox.write(connection, BrokerDrained(request_id, not left and not failed, left, failed))
        self._outbox.add(Stop(REASON))


def _parts(outcome: Outcome) -> list[Exception]:
    if outcome is None:
        return []
    return list(outcome.exceptions) if isinstance(outcome, ExceptionGroup) else [outcome]
