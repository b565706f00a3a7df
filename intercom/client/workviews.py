"""Show what the broker tells of the inbox and of assignments in the form a program works with.

Times are epoch milliseconds.
"""

from __future__ import annotations

from typing import Literal, TypeVar

from msgspec import UNSET, Struct, UnsetType

from intercom.client.views import Attachment, IncomingMessage, SessionView, message_of, view_of
from intercom.wire import work
from intercom.wire.frames import MessageFrame
from intercom.wire.work import ClaimPolicy, ParkReason, ProcessingState

__all__ = ["AssignmentView", "Dispatched", "InboxPage", "InboxPresence", "ParkedMessage", "ProcessingState"]

Value = TypeVar("Value")


class ParkedMessage(Struct, frozen=True, kw_only=True):
    """Describe a message in the inbox, which waits for somebody to take it as work."""

    id: str
    """What orders and claims name it by."""
    place: int
    """Its place in the order of the inbox; it grows for ever."""
    sender: SessionView
    target: str
    """The target as its sender named it."""
    reason: ParkReason
    claim_policy: ClaimPolicy
    """Who may claim it. What is ``operator_select``, or ``session_unavailable`` because its target is gone, nobody may:
    a coordinator or a control session hands it out."""
    parked_at: int
    preview: str
    """The beginning of the text."""
    size: int
    """Bytes of the whole message."""
    groups: tuple[str, ...]
    """The groups whose coordinators may hand it out."""
    target_session_id: str | None
    target_address: str | None
    assignment_id: str | None
    """The assignment it is part of now."""
    expires_at: int | None
    returns: int
    """How often it was given back."""
    return_reason: str | None
    """Why it was given back last."""
    text: str | None = None
    """The whole text, where it was asked for."""
    attachments: tuple[Attachment, ...] = ()


class InboxPage(Struct, frozen=True, kw_only=True):
    """Hold some of the messages in the inbox, oldest first; the numbers speak of the whole inbox."""

    items: tuple[ParkedMessage, ...]
    count: int
    capacity: int
    under_pressure: bool


class InboxPresence(Struct, frozen=True, kw_only=True):
    """Say how much work waits for a session."""

    bound: int
    """Parked messages that only it may claim."""
    claimable: int
    """Parked messages it may claim, those included."""
    assigned: int
    """Its open assignments."""
    under_pressure: bool


class Dispatched(Struct, frozen=True, kw_only=True):
    """Say where work went: the worker has it, finds it in its mailbox, or comes for it."""

    assignment_id: str
    handed_to: Literal["session", "mailbox", "staging"]


class AssignmentView(Struct, frozen=True, kw_only=True):
    """Describe an assignment: a message of the inbox that was handed to one worker."""

    id: str
    source_message_id: str
    """Id of the message, as its sender sent it."""
    inbox_id: str
    mode: Literal["pushed", "staged"]
    assigned_at: int
    state: ProcessingState
    sequence: int
    """Number of the last state."""
    accepted: bool
    session_id: str
    """Of the worker it was handed to."""
    address: str | None
    """The address that session acted under; whoever acts under it may go on with the work."""
    attempts: int
    """How often it was handed over."""
    accept_deadline: int | None
    """When it goes back to the inbox unless it is accepted before."""


def parked_of(entry: work.InboxEntry, message: IncomingMessage | None = None) -> ParkedMessage:
    """Return a message of the inbox; raise ``Malformed`` when its sender breaks the protocol."""
    return ParkedMessage(
        id=entry.inbox_id,
        place=entry.number,
        sender=view_of(entry.sender, is_partial=True),
        target=entry.target,
        reason=entry.reason,
        claim_policy=entry.claim_policy,
        parked_at=entry.parked_at,
        preview=entry.content_preview,
        size=entry.size,
        groups=tuple(entry.groups),
        target_session_id=_known(entry.original_target_session_id),
        target_address=_known(entry.original_target_address),
        assignment_id=_known(entry.assignment_id),
        expires_at=_known(entry.expires_at),
        returns=_known(entry.returns) or 0,
        return_reason=_known(entry.return_reason),
        text=None if message is None else message.text,
        attachments=() if message is None else message.attachments,
    )


def item_of(answer: work.InboxItem) -> ParkedMessage:
    """Return a message of the inbox with its text."""
    return parked_of(answer.item, message_of(MessageFrame(answer.item.sender, answer.message)))


def page_of(answer: work.InboxItems) -> InboxPage:
    """Return a page of the inbox."""
    return InboxPage(
        items=tuple(parked_of(entry) for entry in answer.items),
        count=answer.count,
        capacity=answer.capacity,
        under_pressure=answer.under_pressure,
    )


def presence_of(answer: work.InboxPresenceReport) -> InboxPresence:
    """Return how much waits."""
    return InboxPresence(
        bound=answer.bound_count,
        claimable=answer.claimable_count,
        assigned=answer.assigned_count,
        under_pressure=answer.under_pressure,
    )


def dispatched_of(answer: work.InboxDispatched) -> Dispatched:
    """Return where work went."""
    return Dispatched(assignment_id=answer.assignment_id, handed_to=answer.handed_to)


def assignment_of(info: work.AssignmentInfo) -> AssignmentView:
    """Return an assignment."""
    return AssignmentView(
        id=info.assignment_id,
        source_message_id=info.source_message_id,
        inbox_id=info.inbox_id,
        mode=info.mode,
        assigned_at=info.assigned_at,
        state=info.state,
        sequence=info.state_sequence,
        accepted=info.accepted,
        session_id=info.target_session_id,
        address=_known(info.target_address),
        attempts=info.delivery_attempts,
        accept_deadline=_known(info.accept_deadline),
    )


def _known(value: Value | UnsetType) -> Value | None:
    return None if value is UNSET else value
