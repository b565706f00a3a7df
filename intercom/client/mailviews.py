"""Show what the broker tells of addresses, sessions, mailboxes and messages in the form a program works with.

Times are epoch milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Struct, UnsetType

from intercom.client.views import IncomingMessage, SessionView, message_of, view_of
from intercom.wire import mail

if TYPE_CHECKING:
    from intercom.wire import outbox
from intercom.wire.frames import MessageFrame

__all__ = [
    "AddressView",
    "Mailbox",
    "MailboxEntry",
    "OutboxItem",
    "OutboxPage",
    "PendingAsk",
    "Purged",
    "SessionRecord",
    "SessionState",
    "Trace",
    "TraceEvent",
    "UnconfirmedMessage",
]

SessionState: TypeAlias = Literal["active", "reconnecting", "closed"]

Value = TypeVar("Value")


class SessionRecord(Struct, frozen=True, kw_only=True):
    """Describe a session that is here, may come back until ``grace_deadline``, or was closed."""

    id: str
    name: str | None
    state: SessionState
    since: int
    """When it came into that state."""
    groups: tuple[str, ...]
    pid: int
    kind: str | None
    address: str | None
    """The address it receives for."""
    mailbox_count: int
    task_hint: str | None
    grace_deadline: int | None
    closed_reason: str | None
    generation: int
    """How many connections it has had."""
    incarnation: str
    label: str
    """A few words for people."""
    work_mode: str | None = None
    """How it takes work; ``None`` for one that takes none."""


class AddressView(Struct, frozen=True, kw_only=True):
    """Describe an address: a name in a home group, with one mailbox and at most one holder."""

    name: str
    group: str
    """Its home group; empty for the address of the person."""
    groups: tuple[str, ...]
    """The groups from which it can be reached."""
    created_at: int
    last_held_at: int
    holder: str | None
    """Id of the session that receives its mail."""
    holder_state: SessionState | None
    mailbox_count: int
    mailbox_bytes: int
    oldest_at: int | None


class MailboxEntry(Struct, frozen=True, kw_only=True):
    """Describe a message that waits; ``offered`` ones were handed over and are not confirmed yet."""

    entry: int
    position: int
    message_id: str
    sender: SessionView
    queued_at: int
    expires_at: int
    """When its sender is told that it is undeliverable."""
    valid_until: int | None
    """When it expires because its sender said so."""
    size: int
    offers: int
    state: Literal["queued", "offered"]
    expects_reply: bool
    notice: str | None
    kept: Literal["quiet", "hold"] | None = None
    """A policy keeps it from being handed over."""


class UnconfirmedMessage(Struct, frozen=True, kw_only=True):
    """Describe a message that is no mail: written to who receives, and not confirmed.

    It comes again to who receives next; the broker keeps it in memory only.
    """

    message_id: str
    sender: SessionView
    sent_at: int
    size: int
    expects_reply: bool


class Mailbox(Struct, frozen=True, kw_only=True):
    """Describe a mailbox: ``count`` and ``bytes`` of all that waits, and some of its entries, oldest first."""

    owner: str
    count: int
    bytes: int
    entries: tuple[MailboxEntry, ...]
    kept: int = 0
    """How many of ``count`` a policy keeps from being handed over."""
    unconfirmed: tuple[UnconfirmedMessage, ...] = ()


class Peeked(Struct, frozen=True):
    """Hold messages that wait in a mailbox and were not taken out, oldest first; ``left`` wait behind them."""

    messages: tuple[IncomingMessage, ...]
    left: int


class PendingAsk(Struct, frozen=True, kw_only=True):
    """Describe a question that waits for an answer of this session, or of whoever acts under its address."""

    message_id: str
    asker_id: str
    asker_name: str | None
    asker_is_here: bool
    asked_at: int
    deadline: int


class TraceEvent(Struct, frozen=True, kw_only=True):
    """Say what happened to a message, and when."""

    at: int
    state: str
    detail: dict[str, Any]


class Trace(Struct, frozen=True, kw_only=True):
    """Say what became of a message: ``state`` and ``where`` it is now, and every state it was in before."""

    message_id: str
    state: str
    where: str
    sender: str | None
    recipient: str | None
    events: tuple[TraceEvent, ...]


class OutboxItem(Struct, frozen=True, kw_only=True):
    """Show what is on its way to another machine, or waits for it."""

    number: int
    """The order in which they were stored."""
    delivery_id: str
    kind: str
    """``message``, ``task``, or ``step`` or ``report`` of a flow."""
    status: str
    """``accepted`` stored here, ``posted`` on its way, ``deferred`` waits here; of a task also how far it is there."""
    peer: str
    """Id of the broker it is for."""
    node: str
    """What its machine is called."""
    target: str
    attempts: int
    queued_at: int
    """Epoch ms."""
    message_id: str | None
    invocation_id: str | None
    next_attempt_at: int | None
    size: int | None
    detail: str | None
    """Why the last attempt failed."""


class OutboxPage(Struct, frozen=True, kw_only=True):
    """Hold entries of the outbox, the oldest first, and how many are behind them."""

    entries: tuple[OutboxItem, ...]
    left: int


class Purged(Struct, frozen=True, kw_only=True):
    """Say how many waiting messages were given up; kept texts and history are deleted."""

    mail: int


def record_of(entry: mail.SessionRecordEntry) -> SessionRecord:
    """Return a session record."""
    return SessionRecord(
        id=entry.session_id,
        name=_known(entry.name),
        state=entry.state,
        since=entry.state_since,
        groups=tuple(entry.groups),
        pid=entry.pid,
        kind=_known(entry.kind),
        address=_known(entry.address),
        mailbox_count=entry.mailbox_count,
        task_hint=_known(entry.task_hint),
        grace_deadline=_known(entry.grace_deadline),
        closed_reason=_known(entry.closed_reason),
        generation=entry.generation,
        incarnation=entry.incarnation,
        label=entry.display_label,
        work_mode=_known(entry.work_mode),
    )


def address_of(entry: mail.AddressEntry) -> AddressView:
    """Return an address."""
    return AddressView(
        name=entry.name,
        group=entry.group,
        groups=tuple(entry.groups),
        created_at=entry.created_at,
        last_held_at=entry.last_held_at,
        holder=_known(entry.holder),
        holder_state=_known(entry.holder_state),
        mailbox_count=entry.mailbox_count,
        mailbox_bytes=entry.mailbox_bytes,
        oldest_at=_known(entry.oldest_at),
    )


def peeked_of(answer: mail.MailPeeked) -> Peeked:
    """Return what was read; raise ``Malformed`` for what breaks the protocol."""
    frames = (
        MessageFrame(each.sender, each.message, mail=each.mail, valid_until=each.valid_until, notice=each.notice)
        for each in answer.messages
    )
    return Peeked(tuple(message_of(frame) for frame in frames), answer.left)


def mailbox_of(answer: mail.MailboxEntries) -> Mailbox:
    """Return a mailbox; raise ``Malformed`` when a sender breaks the protocol."""
    return Mailbox(
        owner=answer.owner,
        count=answer.count,
        bytes=answer.bytes,
        kept=_known(answer.kept) or 0,
        entries=tuple(
            MailboxEntry(
                entry=entry.entry,
                position=entry.position,
                message_id=entry.message_id,
                sender=view_of(entry.sender, is_partial=True),
                queued_at=entry.queued_at,
                expires_at=entry.expires_at,
                valid_until=_known(entry.valid_until),
                size=entry.size,
                offers=entry.offers,
                state=entry.state,
                expects_reply=entry.expects_reply is True,
                notice=_known(entry.notice),
                kept=_known(entry.kept),
            )
            for entry in answer.entries
        ),
        unconfirmed=tuple(
            UnconfirmedMessage(
                message_id=entry.message_id,
                sender=view_of(entry.sender, is_partial=True),
                sent_at=entry.sent_at,
                size=entry.size,
                expects_reply=entry.expects_reply is True,
            )
            for entry in ([] if answer.unconfirmed is UNSET else answer.unconfirmed)
        ),
    )


def pending_of(ask: mail.PendingAsk) -> PendingAsk:
    """Return a question that waits for an answer."""
    return PendingAsk(
        message_id=ask.message_id,
        asker_id=ask.asker_id,
        asker_name=_known(ask.asker_name),
        asker_is_here=ask.asker_here,
        asked_at=ask.asked_at,
        deadline=ask.deadline,
    )


def trace_of(answer: mail.Trace) -> Trace:
    """Return what became of a message."""
    return Trace(
        message_id=answer.message_id,
        state=answer.state,
        where=answer.where,
        sender=_known(answer.sender),
        recipient=_known(answer.recipient),
        events=tuple(
            TraceEvent(at=event.at, state=event.state, detail={} if event.detail is UNSET else event.detail)
            for event in answer.events
        ),
    )


def outbox_of(answer: outbox.OutboxEntries) -> OutboxPage:
    """Return entries of the outbox."""
    return OutboxPage(
        entries=tuple(
            OutboxItem(
                number=entry.entry,
                delivery_id=entry.delivery_id,
                kind=entry.kind,
                status=entry.status,
                peer=entry.peer,
                node=entry.node,
                target=entry.target,
                attempts=entry.attempts,
                queued_at=entry.queued_at,
                message_id=_known(entry.message_id),
                invocation_id=_known(entry.invocation_id),
                next_attempt_at=_known(entry.next_attempt_at),
                size=_known(entry.size),
                detail=_known(entry.detail),
            )
            for entry in answer.entries
        ),
        left=answer.left,
    )


def purged_of(answer: mail.Purged) -> Purged:
    """Return what was deleted."""
    return Purged(mail=answer.mail)


def _known(value: Value | UnsetType) -> Value | None:
    return None if value is UNSET else value
