"""Make the requests about addresses, sessions, mailboxes and messages; time-outs are in seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

from msgspec import UNSET, UnsetType

from intercom.client.composing import clean_id, clean_text, milliseconds
from intercom.client.lifecycle import Lifecycle
from intercom.client.mailviews import (
    AddressView,
    Mailbox,
    OutboxPage,
    Peeked,
    PendingAsk,
    Purged,
    SessionRecord,
    Trace,
    address_of,
    mailbox_of,
    outbox_of,
    peeked_of,
    pending_of,
    purged_of,
    record_of,
    trace_of,
)
from intercom.client.operations import RequestOperation, Result
from intercom.errors import UsageError
from intercom.limits import MAILBOX_PAGE_CEILING
from intercom.wire import mail

if TYPE_CHECKING:
    from intercom.wire import outbox
    from intercom.wire.unions import Request


class MailRequests:
    """Make them for one session; ``now`` tells the time in monotonic milliseconds."""

    def __init__(self, lifecycle: Lifecycle, now: Callable[[], int]) -> None:
        self._lifecycle = lifecycle
        self._now = now

    def session_records(self, timeout: float) -> RequestOperation[list[SessionRecord]]:
        """Ask for the known sessions."""

        def read(answer: mail.SessionRecords) -> list[SessionRecord]:
            return [record_of(entry) for entry in answer.sessions]

        return self._request(mail.SessionRecordsRequest, mail.SessionRecords, read, timeout)

    def force_close(self, session_id: str, reason: str | None, timeout: float) -> RequestOperation[bool]:
        """Close a session for good; the result tells whether it was known."""
        wanted = _named(self._lifecycle.present(session_id), "session_id")
        because = UNSET if reason is None else clean_text(reason, "reason")

        def read(answer: mail.SessionForceClosed) -> bool:
            return answer.was_known

        return self._request(
            lambda request_id: mail.SessionForceClose(request_id, wanted, because),
            mail.SessionForceClosed,
            read,
            timeout,
        )

    def task_hint(self, text: str, session_id: str | None, timeout: float) -> RequestOperation[str]:
        """Say what this session works on, or one under its address; the result is what the broker kept of it."""
        wanted = clean_text(text, "task_hint")
        whose: str | UnsetType = UNSET if session_id is None else clean_text(session_id, "session_id")

        def read(answer: mail.TaskHintStored) -> str:
            return answer.task_hint

        return self._request(
            lambda request_id: mail.TaskHint(request_id, wanted, whose), mail.TaskHintStored, read, timeout
        )

    def addresses(self, timeout: float) -> RequestOperation[list[AddressView]]:
        """Ask for the addresses."""

        def read(answer: mail.Addresses) -> list[AddressView]:
            return [address_of(entry) for entry in answer.addresses]

        return self._request(mail.AddressesRequest, mail.Addresses, read, timeout)

    def mailbox(
        self,
        address: str | None,
        group: str | None,
        session_id: str | None,
        after: int,
        limit: int,
        timeout: float,
    ) -> RequestOperation[Mailbox]:
        """Ask what waits in a mailbox, the session's own unless another is named."""
        of = self._mailbox(address, group, session_id)
        if not 0 < limit <= MAILBOX_PAGE_CEILING:
            raise UsageError(f"limit must be a number from 1 to {MAILBOX_PAGE_CEILING}, not {limit!r}")
        return self._request(
            lambda request_id: mail.MailboxRequest(request_id, of, after, limit),
            mail.MailboxEntries,
            mailbox_of,
            timeout,
        )

    def peek(self, after: int, limit: int, timeout: float) -> RequestOperation[Peeked]:
        """Read what waits in the session's own mailbox, and leave it there."""
        if not 0 < limit <= MAILBOX_PAGE_CEILING:
            raise UsageError(f"limit must be a number from 1 to {MAILBOX_PAGE_CEILING}, not {limit!r}")
        return self._request(
            lambda request_id: mail.MailPeek(request_id, after, limit), mail.MailPeeked, peeked_of, timeout
        )

    def settle(self, message_id: str, timeout: float) -> RequestOperation[str]:
        """Say that a message of the session's own mailbox was read."""
        wanted = clean_id(message_id)

        def read(answer: mail.MailSettled) -> str:
            return answer.message_id

        return self._request(lambda request_id: mail.MailSettle(request_id, wanted), mail.MailSettled, read, timeout)

    def pending(self, timeout: float) -> RequestOperation[list[PendingAsk]]:
        """Ask which questions wait for an answer, oldest first."""

        def read(answer: mail.Pending) -> list[PendingAsk]:
            return [pending_of(ask) for ask in answer.asks]

        return self._request(mail.PendingRequest, mail.Pending, read, timeout)

    def trace(self, message_id: str, timeout: float) -> RequestOperation[Trace]:
        """Ask what became of a message."""
        wanted = clean_id(message_id)
        return self._request(lambda request_id: mail.TraceRequest(request_id, wanted), mail.Trace, trace_of, timeout)

    def purge(
        self,
        older_than: float | None,
        address: str | None,
        group: str | None,
        session_id: str | None,
        timeout: float,
    ) -> RequestOperation[Purged]:
        """Delete texts and history; mail that still waits only of the mailbox that is named."""
        of = self._mailbox(address, group, session_id)
        age = UNSET if older_than is None else milliseconds(older_than, "older_than")
        return self._request(lambda request_id: mail.PurgeRequest(request_id, age, of), mail.Purged, purged_of, timeout)

    def outbox(
        self, peer: str | None, status: str | None, delivery_id: str | None, after: int, limit: int, timeout: float
    ) -> RequestOperation[OutboxPage]:
        """Ask what is on its way to other brokers, or waits for them."""
        from intercom.wire import outbox

        if not 0 < limit <= MAILBOX_PAGE_CEILING:
            raise UsageError(f"limit must be a number from 1 to {MAILBOX_PAGE_CEILING}, not {limit!r}")
        if status not in (None, *get_args(outbox.OutboxStatus)):
            raise UsageError(f"status must be one of {', '.join(get_args(outbox.OutboxStatus))}, not {status!r}")
        whose = UNSET if peer is None else _named(peer, "peer")
        which = UNSET if delivery_id is None else clean_id(delivery_id)
        how: Any = UNSET if status is None else status
        return self._request(
            lambda request_id: outbox.OutboxList(request_id, whose, how, which, after, limit),
            outbox.OutboxEntries,
            outbox_of,
            timeout,
        )

    def outbox_retry(self, delivery_id: str, timeout: float) -> RequestOperation[str]:
        """Bring an entry of the outbox away now."""
        from intercom.wire import outbox

        wanted = clean_id(delivery_id)
        return self._request(
            lambda request_id: outbox.OutboxRetry(request_id, wanted), outbox.OutboxChanged, _delivery_id, timeout
        )

    def outbox_cancel(self, delivery_id: str, timeout: float) -> RequestOperation[str]:
        """Give up a message that is in the outbox."""
        from intercom.wire import outbox

        wanted = clean_id(delivery_id)
        return self._request(
            lambda request_id: outbox.OutboxCancel(request_id, wanted), outbox.OutboxChanged, _delivery_id, timeout
        )

    def _request(
        self, make: Callable[[str], Request], answers: type[Any], read: Callable[[Any], Result], timeout: float
    ) -> RequestOperation[Result]:
        deadline = self._now() + milliseconds(timeout, "timeout")
        return RequestOperation(make, answers, read, deadline, needs_features=True)

    def _mailbox(self, address: str | None, group: str | None, session_id: str | None) -> mail.MailboxOf | UnsetType:
        return _mailbox(address, group, None if session_id is None else self._lifecycle.present(session_id))


def _mailbox(address: str | None, group: str | None, session_id: str | None) -> mail.MailboxOf | UnsetType:
    if address is None and session_id is None:
        if group is not None:
            raise UsageError("a group names no mailbox", hint="Name an address in it.")
        return UNSET
    if address is not None and session_id is not None:
        raise UsageError("a mailbox is named by an address or by a session, not by both")
    if session_id is not None:
        return mail.MailboxOf(session_id=_named(session_id, "session_id"))
    return mail.MailboxOf(
        address=_named(address, "address"), group=UNSET if group is None else clean_text(group, "group")
    )


def _delivery_id(answer: outbox.OutboxChanged) -> str:
    return answer.delivery_id


def _named(value: object, what: str) -> str:
    cleaned = clean_text(value, what)
    if not cleaned.strip():
        raise UsageError(f"{what} is empty")
    return cleaned
