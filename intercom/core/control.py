"""Answer whether the broker lives and how it is, and end it when a client asks for that (protocol 4.19 to 4.21)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.effects import Stop
from intercom.core.ground import Ground
from intercom.core.messages import Messages
from intercom.core.part import Handler, Part, Settler
from intercom.core.registry import Registry
from intercom.wire.frames import BrokerStatus, BrokerStatusRequest, Health, HealthRequest, Shutdown, ShutdownAck

MULTI_NODE_OFF = {"status": "off", "reason": "intercom.toml names no server under [cluster]"}


class Leaving(Struct, frozen=True):
    """Mark ``shutdown_ack``: the broker leaves once it is known what became of that frame."""


class Control(Part):
    """Speak for the broker itself.

    Args:
        instance_id: UUID of this process.
        pid: of this process.
        facts: further members of the report's ``broker`` object.
        parts: whose reports are members of it, too.
    """

    def __init__(
        self,
        ground: Ground,
        registry: Registry,
        messages: Messages,
        instance_id: str,
        pid: int,
        facts: dict[str, Any],
        parts: Iterable[Part],
    ) -> None:
        self._outbox = ground.outbox
        self._sessions = registry.sessions
        self._operations = messages.operations
        self._instance_id = instance_id
        self._pid = pid
        self._facts = facts
        self._parts = parts
        self.multi_node: Callable[[], Mapping[str, Any]] = lambda: MULTI_NODE_OFF
        """Tells how the way to other brokers is."""
        self._failure: dict[str, Any] | None = None
        """Of the store, until a later commit succeeded."""

    def handlers(self) -> Mapping[type, Handler]:
        """Return who takes what anybody may ask, registered or not."""
        return {HealthRequest: self._health, BrokerStatusRequest: self._status, Shutdown: self._shutdown}

    def taken(self) -> Mapping[type, Settler]:
        """Return who lets the broker leave."""
        return {Leaving: self._leave}

    def lost(self) -> Mapping[type, Settler]:
        """Return who lets the broker leave."""
        return {Leaving: self._leave}

    def commit_failed(self, reason: str, now: Instant) -> None:
        """Report that a commit failed, from now on."""
        self._failure = {"reason": reason, "at": now.wall}

    def committed(self) -> None:
        """Report no failure any more once what came after it is durable."""
        self._failure = None

    def _health(self, connection: Connection, frame: HealthRequest, now: Instant) -> None:
        self._outbox.write(connection, Health(frame.request_id, self._instance_id))

    def _status(self, connection: Connection, frame: BrokerStatusRequest, now: Instant) -> None:
        trouble = self._operations.trouble
        store: dict[str, Any] = {"usable": trouble is None, "operations": len(self._operations)}
        if trouble is not None:
            store["trouble"] = trouble
        if self._failure is not None:
            store["lastFailure"] = self._failure
        broker = {**self._facts, "instanceId": self._instance_id}
        for part in self._parts:
            broker.update(part.report())
        report = {
            "pid": self._pid,
            "sessions": len(self._sessions) - self._sessions.remote,
            "multiNode": self.multi_node(),
            "broker": {**broker, "store": store},
        }
        self._outbox.write(connection, BrokerStatus(frame.request_id, report))

    def _shutdown(self, connection: Connection, frame: Shutdown, now: Instant) -> None:
        self._outbox.note("shutdown_requested", byPid=None if connection.peer is None else connection.peer.pid)
        self._outbox.write(connection, ShutdownAck(frame.request_id), token=Leaving())

    def _leave(self, token: Leaving, now: Instant) -> None:
        self._outbox.add(Stop("a client asked for it"))
