"""Keep the frames whose recipients confirm receipts, until they are confirmed (protocol 6.10).

written -> unconfirmed --received--> (gone)
               |  ^
               |  +-- the recipient registers again, or the sender retries: written again
               +-- the operation leaves the table: dropped
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intercom.core.deadlines import Timeouts
from intercom.core.operation import Operation
from intercom.limits import Limits
from intercom.wire.frames import MessageFrame

if TYPE_CHECKING:
    from intercom.core.attempts import Attempt


class Unconfirmed:
    """Hold one frame that was written and not confirmed, and who waits for that."""

    __slots__ = ("bytes", "frame", "identity", "operation", "since", "timeouts", "waiter")

    def __init__(self, operation: Operation, frame: MessageFrame, waiter: Attempt) -> None:
        self.operation = operation
        self.identity = operation.target or ""
        self.frame = frame
        self.bytes = len(frame.message) + len(frame.sender)
        self.waiter = waiter
        """The newest attempt; it may have been answered meanwhile."""
        self.timeouts: Timeouts | None = None
        """Where it waits for its receipt."""
        self.since = 0
        """When that wait began, monotonic ms."""


class Receipts:
    """Find unconfirmed frames by recipient identity and message id, within the bounds."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_identity: dict[str, dict[str, Unconfirmed]] = {}
        self._bytes_of: dict[str, int] = {}
        self._frames = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._frames

    def has_room(self, identity: str, size: int) -> bool:
        """Tell whether one more frame of ``size`` bytes may wait for this recipient."""
        limits = self._limits
        return (
            len(self._by_identity.get(identity, ())) < limits.unconfirmed_frames
            and self._bytes_of.get(identity, 0) + size <= limits.unconfirmed_bytes
            and self._frames < limits.unconfirmed_total_frames
            and self._bytes + size <= limits.unconfirmed_total_bytes
        )

    def add(self, unconfirmed: Unconfirmed) -> None:
        """Enter a frame before it is written; it becomes the newest of its recipient."""
        self._by_identity.setdefault(unconfirmed.identity, {})[unconfirmed.operation.message_id] = unconfirmed
        self._bytes_of[unconfirmed.identity] = self._bytes_of.get(unconfirmed.identity, 0) + unconfirmed.bytes
        self._frames += 1
        self._bytes += unconfirmed.bytes
        unconfirmed.operation.unconfirmed = unconfirmed

    def renew(self, unconfirmed: Unconfirmed, frame: MessageFrame) -> None:
        """Replace a frame by one that shows its sender as it is now; it keeps its place."""
        grown = len(frame.message) + len(frame.sender) - unconfirmed.bytes
        unconfirmed.frame = frame
        unconfirmed.bytes += grown
        self._bytes_of[unconfirmed.identity] += grown
        self._bytes += grown

    def find(self, identity: str, message_id: str) -> Unconfirmed | None:
        """Return the frame of this message that this recipient has not confirmed."""
        waiting = self._by_identity.get(identity)
        return waiting.get(message_id) if waiting else None

    def remove(self, unconfirmed: Unconfirmed) -> None:
        """Take a frame out: confirmed, or never written; nobody waits for its receipt any more."""
        if unconfirmed.timeouts is not None:
            unconfirmed.timeouts.cancel(unconfirmed)
        waiting = self._by_identity[unconfirmed.identity]
        del waiting[unconfirmed.operation.message_id]
        self._frames -= 1
        self._bytes -= unconfirmed.bytes
        self._bytes_of[unconfirmed.identity] -= unconfirmed.bytes
        if not waiting:
            del self._by_identity[unconfirmed.identity]
            del self._bytes_of[unconfirmed.identity]
        unconfirmed.operation.unconfirmed = None

    def oldest_from(self, identity: str) -> Unconfirmed | None:
        """Return what this recipient has not confirmed for the longest time."""
        return next(iter(self._by_identity.get(identity, {}).values()), None)

    def awaited_from(self, identity: str) -> list[Unconfirmed]:
        """Return what this recipient has not confirmed, oldest first."""
        return list(self._by_identity.get(identity, {}).values())
