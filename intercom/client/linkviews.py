"""Show what the broker tells of links in the form a program works with; times are epoch milliseconds."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import UNSET, MsgspecError, Raw, Struct, UnsetType
from msgspec.json import decode

from intercom.client.views import Malformed
from intercom.wire import links
from intercom.wire.links import CommandState, LinkState

Value = TypeVar("Value")


class LinkView(Struct, frozen=True, kw_only=True):
    """Describe a link: whose it is, how it is, and what both sides have on disk."""

    id: str
    state: LinkState
    generation: int
    event_floor: int
    """Events of the worker's journal up to here are on the broker's disk."""
    open_commands: int
    """Commands that are pending or received."""
    waiting_frames: int
    waiting_bytes: int
    journal_id: str | None
    """The worker's journal the link belongs to."""
    session_id: str | None
    address: str | None
    group: str | None
    heartbeat_at: int | None
    refused: str | None
    """Code of the refusal that stands."""
    worker_state: dict[str, Any] | None
    other_journal_id: str | None
    """With which journal its worker came and was refused."""


class CommandView(Struct, frozen=True, kw_only=True):
    """Describe a command for the worker of a link."""

    id: str
    number: int
    """Its place among the commands of all links; it grows for ever."""
    link_id: str
    seq: int
    """Its place among the commands of the link."""
    state: CommandState
    created_at: int
    changed_at: int
    error_code: str | None
    detail: str | None
    body: dict[str, Any] | None
    """Where it was asked for, and is kept."""


class EventView(Struct, frozen=True, kw_only=True):
    """Describe a durable event of a worker."""

    seq: int
    """Its number in the worker's journal."""
    id: str
    occurred_at: int
    stored_at: int
    kind: str
    body: dict[str, Any] | None
    """While it is kept."""


def link_of(entry: links.LinkEntry) -> LinkView:
    """Return the view of a link."""
    return LinkView(
        id=entry.link_id,
        state=entry.state,
        generation=entry.generation,
        event_floor=entry.event_floor,
        open_commands=entry.open_commands,
        waiting_frames=entry.waiting_frames,
        waiting_bytes=entry.waiting_bytes,
        journal_id=_or_none(entry.journal_id),
        session_id=_or_none(entry.session_id),
        address=_or_none(entry.address),
        group=_or_none(entry.group),
        heartbeat_at=_or_none(entry.heartbeat_at),
        refused=_or_none(entry.refused),
        worker_state=_or_none(entry.worker_state),
        other_journal_id=_or_none(entry.other_journal_id),
    )


def command_of(entry: links.CommandEntry) -> CommandView:
    """Return the view of a command; raise ``Malformed`` when its body is none."""
    return CommandView(
        id=entry.command_id,
        number=entry.number,
        link_id=entry.link_id,
        seq=entry.command_seq,
        state=entry.state,
        created_at=entry.created_at,
        changed_at=entry.changed_at,
        error_code=_or_none(entry.error_code),
        detail=_or_none(entry.detail),
        body=None if entry.body is UNSET else body_of(entry.body),
    )


def event_of(entry: links.EventEntry) -> EventView:
    """Return the view of an event; raise ``Malformed`` when its body is none."""
    return EventView(
        seq=entry.seq,
        id=entry.event_id,
        occurred_at=entry.occurred_at,
        stored_at=entry.stored_at,
        kind=entry.kind,
        body=None if entry.body is UNSET else body_of(entry.body),
    )


def body_of(raw: Raw) -> dict[str, Any]:
    """Return the body of an event or a command."""
    try:
        return decode(raw, type=dict[str, Any])
    except MsgspecError as error:
        raise Malformed(f"a body that is no object: {error}") from error


def _or_none(value: Value | UnsetType) -> Value | None:
    return None if value is UNSET else value
