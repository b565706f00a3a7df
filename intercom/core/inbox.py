"""Hold the messages that are parked until somebody takes them: a bounded list in which everything keeps its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intercom.core.deadlines import Deadline
from intercom.core.records import InboxRecord
from intercom.limits import Limits

if TYPE_CHECKING:
    from intercom.core.operation import Operation
    from intercom.core.sessions import Session


class Parked:
    """Hold one message of the inbox, and what only this process knows of it; its body is on disk."""

    __slots__ = ("deadline", "due", "operation", "preview", "record", "ticket")

    def __init__(self, record: InboxRecord, operation: Operation | None) -> None:
        self.record = record
        self.operation = operation
        """The row of its message id."""
        self.ticket = 0
        """Of its newest change."""
        self.preview: str | None = None
        """The beginning of its text, once it was read: only the body is on disk."""
        self.deadline: Deadline | None = None
        self.due = 0
        """When its time is over by the monotonic clock, ms."""

    @property
    def id(self) -> str:
        """Return its inbox id: the id of the message."""
        return self.record.inbox_id

    @property
    def is_free(self) -> bool:
        """Tell whether nobody has it."""
        return self.record.assignment is None

    def is_in(self, groups: tuple[str, ...]) -> bool:
        """Tell whether somebody in these groups may deal with it."""
        return any(group in self.record.groups for group in groups)

    def is_for(self, session: Session) -> bool:
        """Tell whether it was sent to this session, or to the address under which it acts."""
        return is_same_worker(session, self.record.target_session, self.record.target_address)


def is_same_worker(session: Session, session_id: str | None, address: int | None) -> bool:
    """Tell whether a session is the one with this id, or acts under the address with this number."""
    return session.id == session_id or (
        address is not None and session.address is not None and session.address.number == address
    )


class Inbox:
    """Find parked messages; a message that was handed to a worker keeps its place until it is done."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_number: dict[int, Parked] = {}
        self._by_id: dict[str, Parked] = {}
        self._in_order = True
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._by_number)

    @property
    def capacity(self) -> int:
        """Return how many messages it takes."""
        return self._limits.inbox_entries

    @property
    def is_under_pressure(self) -> bool:
        """Tell whether it is nearly full."""
        return bool(self._by_number) and len(self) >= self.capacity * self._limits.inbox_pressure // 100

    def has_room(self, size: int) -> bool:
        """Tell whether one more message of ``size`` bytes may be parked."""
        return len(self) < self.capacity and self._bytes + size <= self._limits.inbox_bytes

    def get(self, inbox_id: str) -> Parked | None:
        """Return the message with this id."""
        return self._by_id.get(inbox_id)

    def in_order(self) -> list[Parked]:
        """Return all messages, the oldest first."""
        if not self._in_order:
            self._by_number = dict(sorted(self._by_number.items()))
            self._in_order = True
        return list(self._by_number.values())

    def enter(self, parked: Parked) -> None:
        """Take a message in, at the place of its number."""
        number = parked.record.number
        if self._by_number and next(reversed(self._by_number)) > number:
            self._in_order = False
        self._by_number[number] = parked
        self._by_id[parked.id] = parked
        self._bytes += parked.record.size

    def leave(self, parked: Parked) -> None:
        """Let a message out."""
        del self._by_number[parked.record.number]
        del self._by_id[parked.id]
        self._bytes -= parked.record.size

    def replace(self, parked: Parked, record: InboxRecord) -> None:
        """Change what a message is in its place."""
        self._bytes += record.size - parked.record.size
        parked.record = record
