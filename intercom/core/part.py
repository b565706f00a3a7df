"""Say what a part is to the broker: a feature with its own objects, its requests, and its share of what goes on.

The broker knows its parts only by this. What a part must hear of another it asks that one for when it is built: it adds
itself to a list there (``on_...``) or sets what is there to be set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from intercom.core.clock import Instant
    from intercom.core.connections import Connection
    from intercom.core.records import Recovered
    from intercom.core.sessions import Session

Handler = Callable[["Connection", Any, "Instant"], None]
"""Takes a frame of a connection."""
Reader = Callable[[Any, tuple[int, ...], "dict[int, bytes] | None", "Instant"], None]
"""Goes on, for a token, after the bodies with these numbers were read; None: they could not be."""
Settler = Callable[[Any, "Instant"], None]
"""Goes on, for a token, after it is known what became of its frame."""


class Part:
    """Do nothing of all that a part may do; each does what concerns it."""

    def handlers(self) -> Mapping[type, Handler]:
        """Return who takes which frames."""
        return {}

    def readers(self) -> Mapping[type, Reader]:
        """Return who goes on after bodies were read, by the types of their tokens."""
        return {}

    def taken(self) -> Mapping[type, Settler]:
        """Return who goes on after the kernel took a frame, by the types of their tokens."""
        return {}

    def lost(self) -> Mapping[type, Settler]:
        """Return who goes on after a frame is known not to have left completely, by the types of their tokens."""
        return {}

    def recover(self, recovered: Recovered, now: Instant) -> None:
        """Enter what the store held, and go on with it; parts that were built earlier have done so."""

    def due_soon(self, now: Instant) -> int:
        """Return how much goes on by itself, or is due so soon that the broker stays for it."""
        return 0

    def tidy(self, now: Instant) -> None:
        """Delete what had its time."""

    begins: tuple[type, ...] = ()
    """Requests of this part that begin something; a broker that is drained refuses them."""

    def shut(self, within_ms: int) -> None:
        """Let nothing new begin: the broker leaves within that time, once nothing is in work."""

    def in_work(self, is_here: Callable[[str], bool]) -> dict[str, int]:
        """Return how much of what kind sessions are busy with for which ``is_here`` is true."""
        return {}

    def drain(self) -> None:
        """Say goodbye to those who must be told, while everything still works."""

    def stop(self, now: Instant) -> None:
        """Drop what is under way; nobody is told anything any more."""

    def report(self) -> dict[str, Any]:
        """Return what the status report says of this part."""
        return {}


def session_of(connection: Connection) -> Session:
    """Return the session of a connection that is known to have one: only such frames reach a handler."""
    session = connection.session
    assert session is not None, "only called for registered connections"
    return session
