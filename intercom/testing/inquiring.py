"""Ask a broker in memory about mail, addresses and known sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

from intercom.client.mailing import MailRequests
from intercom.client.mailviews import AddressView, Mailbox, OutboxPage, Peeked, PendingAsk, Purged, SessionRecord, Trace
from intercom.client.operations import Operation
from intercom.client.session import ClientSession
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
    _mail: MailRequests

    def _now(self, operation: Operation[Result]) -> Result:
        """Return what an operation comes to."""
        raise NotImplementedError

    def pending(self, *, timeout: float = REQUEST_MS / 1000) -> PendingAsks:
        """Return the questions this session, or anybody under its address, owes an answer, oldest first."""
        return self._now(self._mail.pending(timeout))

    def trace(self, message_id: str, *, timeout: float = REQUEST_MS / 1000) -> Trace:
        """Return what became of a message this session or its address sent or got, and where it is now."""
        return self._now(self._mail.trace(message_id, timeout))

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
        return self._now(self._mail.mailbox(address, group, session_id, after, limit, timeout))

    def peek(self, *, after: int = 0, limit: int = MAILBOX_PAGE, timeout: float = REQUEST_MS / 1000) -> Peeked:
        """Return what waits in the mailbox of this session, with the texts; nothing is taken out."""
        return self._now(self._mail.peek(after, limit, timeout))

    def settle_mail(self, message_id: str, *, timeout: float = REQUEST_MS / 1000) -> str:
        """Say that a message ``peek`` showed was read: it counts as delivered."""
        return self._now(self._mail.settle(message_id, timeout))

    def addresses(self, *, timeout: float = REQUEST_MS / 1000) -> AddressViews:
        """Return the addresses: who holds each, and how much waits there."""
        return self._now(self._mail.addresses(timeout))

    def outbox(
        self,
        *,
        peer: str | None = None,
        status: str | None = None,
        delivery_id: str | None = None,
        after: int = 0,
        limit: int = 100,
        timeout: float = REQUEST_MS / 1000,
    ) -> OutboxPage:
        """Return what is on its way to other machines; a broker in memory knows none."""
        return self._now(self._mail.outbox(peer, status, delivery_id, after, limit, timeout))

    def retry_outbox(self, delivery_id: str, *, timeout: float = REQUEST_MS / 1000) -> str:
        """Bring an entry of the outbox away now."""
        return self._now(self._mail.outbox_retry(delivery_id, timeout))

    def cancel_outbox(self, delivery_id: str, *, timeout: float = REQUEST_MS / 1000) -> str:
        """Give up a message in the outbox."""
        return self._now(self._mail.outbox_cancel(delivery_id, timeout))

    def session_records(self, *, timeout: float = REQUEST_MS / 1000) -> SessionRecords:
        """Return the sessions that are known: here, away with time to return, or closed; for control sessions."""
        return self._now(self._mail.session_records(timeout))

    def force_close(self, session_id: str, reason: str | None = None, *, timeout: float = REQUEST_MS / 1000) -> bool:
        """Close a session for good and return whether it was known; for control sessions."""
        return self._now(self._mail.force_close(session_id, reason, timeout))

    def task_hint(self, text: str, *, session_id: str | None = None, timeout: float = REQUEST_MS / 1000) -> str:
        """Say in a few words what this session works on, and return what was kept; an empty text takes it back."""
        return self._now(self._mail.task_hint(text, session_id, timeout))

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
        return self._now(self._mail.purge(older_than, address, group, session_id, timeout))
