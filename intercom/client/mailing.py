"""Make requests about addresses, sessions, mailboxes and messages; ``now`` is monotonic, in milliseconds."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from intercom.client.composing import clean_id, clean_text
from intercom.client.mailviews import (
    AddressView,
    Mailbox,
    PendingAsk,
    Purged,
    SessionRecord,
    Trace,
    address_of,
    mailbox_of,
    pending_of,
    purged_of,
    record_of,
    trace_of,
)
from intercom.client.operations import RequestOperation
from intercom.errors import UsageError
from intercom.limits import MAILBOX_PAGE, MAILBOX_PAGE_CEILING, REQUEST_MS
from intercom.wire import mail


def session_records(*, now: int, timeout_ms: int = REQUEST_MS) -> RequestOperation[list[SessionRecord]]:
    """Ask for the known sessions."""

    def read(answer: mail.SessionRecords) -> list[SessionRecord]:
        return [record_of(entry) for entry in answer.sessions]

    return RequestOperation(
        mail.SessionRecordsRequest, mail.SessionRecords, read, now + timeout_ms, needs_features=True
    )


def force_close(
    session_id: str, reason: str | None, *, now: int, timeout_ms: int = REQUEST_MS
) -> RequestOperation[bool]:
    """Close a session for good; the result tells whether it was known."""
    wanted = _named(session_id, "session_id")
    because = UNSET if reason is None else clean_text(reason, "reason")

    def read(answer: mail.SessionForceClosed) -> bool:
        return answer.was_known

    return RequestOperation(
        lambda request_id: mail.SessionForceClose(request_id, wanted, because),
        mail.SessionForceClosed,
        read,
        now + timeout_ms,
        needs_features=True,
    )


def task_hint(
    text: str, session_id: str | None = None, *, now: int, timeout_ms: int = REQUEST_MS
) -> RequestOperation[str]:
    """Say what this session works on, or one under its address; the result is what the broker kept of it."""
    wanted = clean_text(text, "task_hint")
    whose: str | UnsetType = UNSET if session_id is None else clean_text(session_id, "session_id")

    def read(answer: mail.TaskHintStored) -> str:
        return answer.task_hint

    return RequestOperation(
        lambda request_id: mail.TaskHint(request_id, wanted, whose),
        mail.TaskHintStored,
        read,
        now + timeout_ms,
        needs_features=True,
    )


def addresses(*, now: int, timeout_ms: int = REQUEST_MS) -> RequestOperation[list[AddressView]]:
    """Ask for the addresses."""

    def read(answer: mail.Addresses) -> list[AddressView]:
        return [address_of(entry) for entry in answer.addresses]

    return RequestOperation(mail.AddressesRequest, mail.Addresses, read, now + timeout_ms, needs_features=True)


def mailbox(
    *,
    now: int,
    address: str | None = None,
    group: str | None = None,
    session_id: str | None = None,
    after: int = 0,
    limit: int = MAILBOX_PAGE,
    timeout_ms: int = REQUEST_MS,
) -> RequestOperation[Mailbox]:
    """Ask what waits in a mailbox, the session's own unless another is named."""
    of = _mailbox(address, group, session_id)
    if not 0 < limit <= MAILBOX_PAGE_CEILING:
        raise UsageError(f"limit must be a number from 1 to {MAILBOX_PAGE_CEILING}, not {limit!r}")
    return RequestOperation(
        lambda request_id: mail.MailboxRequest(request_id, of, after, limit),
        mail.MailboxEntries,
        mailbox_of,
        now + timeout_ms,
        needs_features=True,
    )


def pending(*, now: int, timeout_ms: int = REQUEST_MS) -> RequestOperation[list[PendingAsk]]:
    """Ask which questions wait for an answer, oldest first."""

    def read(answer: mail.Pending) -> list[PendingAsk]:
        return [pending_of(ask) for ask in answer.asks]

    return RequestOperation(mail.PendingRequest, mail.Pending, read, now + timeout_ms, needs_features=True)


def trace(message_id: str, *, now: int, timeout_ms: int = REQUEST_MS) -> RequestOperation[Trace]:
    """Ask what became of a message."""
    wanted = clean_id(message_id)
    return RequestOperation(
        lambda request_id: mail.TraceRequest(request_id, wanted),
        mail.Trace,
        trace_of,
        now + timeout_ms,
        needs_features=True,
    )


def purge(
    *,
    now: int,
    older_than_ms: int | None = None,
    address: str | None = None,
    group: str | None = None,
    session_id: str | None = None,
    timeout_ms: int = REQUEST_MS,
) -> RequestOperation[Purged]:
    """Delete texts and history; mail that still waits only of the mailbox that is named."""
    of = _mailbox(address, group, session_id)
    age = UNSET if older_than_ms is None else older_than_ms
    return RequestOperation(
        lambda request_id: mail.PurgeRequest(request_id, age, of),
        mail.Purged,
        purged_of,
        now + timeout_ms,
        needs_features=True,
    )


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


def _named(value: object, what: str) -> str:
    cleaned = clean_text(value, what)
    if not cleaned.strip():
        raise UsageError(f"{what} is empty")
    return cleaned
