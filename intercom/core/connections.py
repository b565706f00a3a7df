"""Name the accepted sockets the rules speak of, and who is at their other end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from intercom.core.sessions import Session


class PeerCredentials(Struct, frozen=True):
    """Hold what the kernel says of the process at the other end."""

    pid: int
    uid: int
    gid: int
    started: int | None = None
    """When the process started, in ticks since boot, where the kernel tells."""


class Connection:
    """Stand for one accepted socket; ``open`` says whether it can still be written (protocol 1.4)."""

    __slots__ = ("number", "open", "peer", "session", "speaks_pi")

    def __init__(self, number: int, peer: PeerCredentials | None) -> None:
        self.number = number
        self.peer = peer
        self.open = True
        self.session: Session | None = None
        self.speaks_pi = False
        """Its peer has shown to be a pi-intercom client."""

    def carry(self, frame: Any, after: int, token: object | None) -> bool:
        """Take a frame although it cannot be written; return whether that was done. Only those of others can."""
        return False
