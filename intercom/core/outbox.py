"""Collect the effects of one call, in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from intercom.core.effects import Broadcast, Discard, Effect, Finish, Note, Write
from intercom.core.pi_dialect import dressed

if TYPE_CHECKING:
    from intercom.core.connections import Connection
    from intercom.wire.unions import Answer


class Outbox:
    """Take what the rules decide and hand it out as one list."""

    __slots__ = ("effects", "muted")

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.muted = False
        """While the broker stops nobody is told anything any more (protocol 3.8)."""

    def add(self, effect: Effect) -> None:
        """Append any effect."""
        self.effects.append(effect)

    def take(self) -> list[Effect]:
        """Return what was collected and begin anew."""
        effects = self.effects
        self.effects = []
        return effects

    def write(self, to: Connection, frame: Answer, after: int = 0, token: object | None = None) -> bool:
        """Write a frame if the connection can still be written; return whether it can (protocol 1.4)."""
        if not to.open or self.muted:
            return not self.muted and to.carry(frame, after, token)
        if to.speaks_pi:
            frame = dressed(frame)
        self.effects.append(Write(to.number, frame, after, token))
        return True

    def broadcast(self, to: Iterable[Connection], frame: Answer) -> None:
        """Write one frame to every connection that can still be written."""
        numbers = tuple(connection.number for connection in to if connection.open)
        if numbers and not self.muted:
            self.effects.append(Broadcast(numbers, frame))

    def discard(self, connection: Connection) -> None:
        """Take back what was written to a connection and did not leave, be it one that ends already."""
        self.effects.append(Discard(connection.number))

    def finish(self, connection: Connection) -> None:
        """Let the connection end after what is queued for it; nothing more is written to it."""
        if connection.open:
            connection.open = False
            self.effects.append(Finish(connection.number))

    def note(self, event: str, **fields: Any) -> None:
        """Write a line to the log."""
        self.effects.append(Note(event, fields))
