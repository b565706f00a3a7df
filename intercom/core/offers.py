"""Hand items over, and hear whether they arrived.

    offered --receipt; or the kernel took the frame, and the session confirms nothing--> received
       +--never written, the session left, no receipt in time--> missing

Rule 1: an item is offered under the same push id every time, so that its receiver recognises a copy. Rule 2: one of
``on_received`` and ``on_missing`` is called, once, for every offer that is not withdrawn.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, UnsetType

from intercom.core.clock import Instant
from intercom.core.deadlines import Deadlines, Timeouts
from intercom.core.outbox import Outbox

if TYPE_CHECKING:
    from intercom.core.sessions import Session
    from intercom.wire.unions import Answer


class Missing(Enum):
    """Say why an item may not have arrived."""

    NOT_WRITTEN = "push_failed"
    """It has provably not arrived."""
    NOT_CONFIRMED = "push_not_received"
    """It may have arrived."""


class Offered(Struct, eq=False):
    """Hold one item that is on its way; the token of its frame."""

    session: Session
    message_id: str
    push_id: str
    on_received: Callable[[Any, Instant], None]
    on_missing: Callable[[Any, Missing, Instant], None]
    subject: Any
    is_open: bool = True


class Offers:
    """Know what is on its way to whom.

    Args:
        wait_ms: how long an offer waits for its receipt, in ms.
    """

    def __init__(self, outbox: Outbox, deadlines: Deadlines, wait_ms: int) -> None:
        self._outbox = outbox
        self._timeouts = Timeouts(deadlines, wait_ms, self._overdue)
        self._by_session: dict[str, dict[str, Offered]] = {}

    def __len__(self) -> int:
        return sum(len(offers) for offers in self._by_session.values())

    def offer(
        self,
        session: Session,
        frame: Answer,
        message_id: str,
        push_id: str,
        now: Instant,
        *,
        after: int,
        on_received: Callable[[Any, Instant], None],
        on_missing: Callable[[Any, Missing, Instant], None],
        subject: Any,
    ) -> Offered:
        """Write a frame to a session behind the append with ticket ``after``, and wait for its arrival.

        The session confirms it by ``received`` with the message id, with or without the push id. An earlier offer of
        the same item to the same session is replaced and hears nothing more. When that append fails, its inverse calls
        ``withdraw``.
        """
        offered = Offered(session, message_id, push_id, on_received, on_missing, subject)
        waiting = self._by_session.setdefault(session.id, {})
        earlier = waiting.pop(push_id, None)
        if earlier is not None:
            self._timeouts.cancel(earlier)
            earlier.is_open = False
        waiting[push_id] = offered
        self._timeouts.add(offered, now)
        if not self._outbox.write(session.connection, frame, after, offered):
            self._missing(offered, Missing.NOT_WRITTEN, now)
        return offered

    def count(self, session: Session) -> int:
        """Return how much is on its way to a session."""
        return len(self._by_session.get(session.id, ()))

    def withdraw(self, offered: Offered) -> None:
        """Wait no longer; neither callback is called."""
        if offered.is_open:
            offered.is_open = False
            self._timeouts.cancel(offered)
            waiting = self._by_session[offered.session.id]
            del waiting[offered.push_id]
            if not waiting:
                del self._by_session[offered.session.id]

    def frame_taken(self, offered: Offered, now: Instant) -> None:
        """Go on after the kernel took the frame."""
        if offered.is_open and not offered.session.confirms_receipts:
            self._received(offered, now)

    def frame_lost(self, offered: Offered, now: Instant) -> None:
        """Go on after it became certain that the frame never left."""
        if offered.is_open:
            self._missing(offered, Missing.NOT_WRITTEN, now)

    def received(self, session: Session, message_id: str, push_id: str | UnsetType, now: Instant) -> bool:
        """Take a receipt; return whether it was for an offer to this session on its present connection."""
        waiting = self._by_session.get(session.id)
        if waiting is None:
            return False
        if push_id is UNSET:
            found = next((offered for offered in waiting.values() if offered.message_id == message_id), None)
        else:
            found = waiting.get(push_id)
        if found is None or found.session is not session or found.message_id != message_id:
            return False
        self._received(found, now)
        return True

    def session_left(self, session: Session, now: Instant) -> None:
        """End what is on its way to a session that has no connection any more (A1.16).

        What is still queued for it may arrive yet, so none of it provably has not.
        """
        for offered in list(self._by_session.get(session.id, {}).values()):
            if offered.session is session:
                self._missing(offered, Missing.NOT_CONFIRMED, now)

    def _overdue(self, offered: Offered, now: Instant) -> None:
        self._missing(offered, Missing.NOT_CONFIRMED, now)

    def _received(self, offered: Offered, now: Instant) -> None:
        self.withdraw(offered)
        offered.on_received(offered.subject, now)

    def _missing(self, offered: Offered, why: Missing, now: Instant) -> None:
        self.withdraw(offered)
        offered.on_missing(offered.subject, why, now)
