"""Ask a broker in memory about mail, addresses and known sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

from intercom.client import mailing
from intercom.client.mailviews import AddressView, Mailbox, PendingAsk, Purged, SessionRecord, Trace
from intercom.client.operations import Operation
from intercom.client.session import ClientSession
from intercom.client.setup import milliseconds
from intercom.limits import MAILBOX_PAGE, REQUEST_MS

if TYPE_CHECKING:
    from intercom.testing.broker import MemoryBroker

Result = TypeVar("Result")
PendingAsks: TypeAlias = list[PendingAsk]
AddressViews: TypeAlias = list[AddressView]
SessionRecords: TypeAlias = list[SessionRecord]


class Inquiries:
    """Give a session in memory the calls that look after mail; each has its result at once."""

    _broker: MemoryBroker
    _core: ClientSession

    def _now(self, operation: Operation[Result]) -> Result:
        """Return what an operation comes to."""
        raise NotImplementedError

    def pending(self, *, timeout: float = REQUEST_MS / 1000) -> PendingAsks:
        """Return the questions this session, or anybody under its address, owes an answer, oldest first."""
        now, timeout_ms = self._broker.now.mono, milliseconds(timeout, "timeout")
        return self._now(mailing.pending(now=now, timeout_ms=timeout_ms))

    def trace(self, message_id: str, *, timeout: float = REQUEST_MS / 1000) -> Trace:
        """Return what became of a message this session or its address sent or got, and where it is now."""
        now, timeout_ms = self._broker.now.mono, milliseconds(timeout, "timeout")
        return self._now(mailing.trace(message_id, now=now, timeout_ms=timeout_ms))

    def mailbox(
        self,
        address: str | None = None,
        *,
        group: str | None = None,
        session_id: str | None = None,
        after: int = 0,
        limit: int = MAILBOX_PAGE,
        timeout: float = REQUEST_MS / 1000,
    ) -> Mailbox:
        """Return what waits in a mailbox, without the texts; nothing is taken out."""
        now, timeout_ms = self._broker.now.mono, milliseconds(timeout, "timeout")
        whose = None if session_id is None else self._core.lifecycle.present(session_id)
        return self._now(
            mailing.mailbox(
                address=address,
                group=group,
                session_id=whose,
                after=after,
                limit=limit,
                now=now,
                timeout_ms=timeout_ms,
            )
        )

    def addresses(self, *, timeout: float = REQUEST_MS / 1000) -> AddressViews:
        """Return the addresses: who holds each, and how much waits there."""
        now, timeout_ms = self._broker.now.mono, milliseconds(timeout, "timeout")
        return self._now(mailing.addresses(now=now, timeout_ms=timeout_ms))

    def session_records(self, *, timeout: float = REQUEST_MS / 1000) -> SessionRecords:
        """Return the sessions that are known: here, away with time to return, or closed; for control sessions."""
        now, timeout_ms = self._broker.now.mono, milliseconds(timeout, "timeout")
        return self._now(mailing.session_records(now=now, timeout_ms=timeout_ms))

    def force_close(self, session_id: str, reason: str | None = None, *, timeout: float = REQUEST_MS / 1000) -> bool:
        """Close a session for good and return whether it was known; for control sessions."""
        now, timeout_ms = self._broker.now.mono, milliseconds(timeout, "timeout")
        whose = self._core.lifecycle.present(session_id)
        return self._now(mailing.force_close(whose, reason, now=now, timeout_ms=timeout_ms))

    def task_hint(self, text: str, *, session_id: str | None = None, timeout: float = REQUEST_MS / 1000) -> str:
        """Say in a few words what this session works on, and return what was kept; an empty text takes it back."""
        now, timeout_ms = self._broker.now.mono, milliseconds(timeout, "timeout")
        return self._now(mailing.task_hint(text, session_id, now=now, timeout_ms=timeout_ms))

    def purge(
        self,
        *,
        older_than: float | None = None,
        address: str | None = None,
        group: str | None = None,
        session_id: str | None = None,
        timeout: float = REQUEST_MS / 1000,
    ) -> Purged:
        """Delete kept texts and history; for control sessions."""
        now, timeout_ms = self._broker.now.mono, milliseconds(timeout, "timeout")
        age_ms = None if older_than is None else milliseconds(older_than, "older_than")
        return self._now(
            mailing.purge(
                older_than_ms=age_ms,
                address=address,
                group=group,
                session_id=session_id,
                now=now,
                timeout_ms=timeout_ms,
            )
        )
