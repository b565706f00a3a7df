"""Define the frames of links: connections that carry durable events to the broker and commands to a worker.

None of them is ever written to a connection that was not granted the feature it belongs to (protocol 14, 5.30).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from intercom.limits import (
    LINK_DETAIL_CHARACTERS,
    LINK_EVENTS_PAGE,
    LINK_NAME_CHARACTERS,
    LINK_PAGE_CEILING,
    WHOLE_NUMBER_MAX,
)
from intercom.wire.mail import MailboxOf
from intercom.wire.shapes import FeatureAnswer, FeatureRequest, NonEmpty, OptionalText

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=LINK_NAME_CHARACTERS)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=WHOLE_NUMBER_MAX)]
Place: TypeAlias = Annotated[int, Meta(ge=1, le=WHOLE_NUMBER_MAX)]
Page: TypeAlias = Annotated[int, Meta(ge=1, le=LINK_PAGE_CEILING)]
EventPage: TypeAlias = Annotated[int, Meta(ge=1, le=LINK_EVENTS_PAGE)]
Detail: TypeAlias = Annotated[str, Meta(max_length=LINK_DETAIL_CHARACTERS)]

OUTCOME_KINDS = ("command_applied", "command_failed")
"""Kinds of durable events that say what became of a command."""
HEARTBEAT_KIND = "heartbeat"
DRAINING_KIND = "draining"
"""Kind of the ephemeral event that answers ``link_drain``."""

LinkState: TypeAlias = Literal["away", "connecting", "ready", "refused"]
CommandState: TypeAlias = Literal["pending", "received", "rejected", "applied", "failed", "ambiguous"]
RefusalCode: TypeAlias = Literal[
    "authority_lost",
    "bootstrap_invalid",
    "bootstrap_rejected",
    "capacity",
    "command_ack_timeout",
    "dial_timeout",
    "event_conflict",
    "event_rejected",
    "exhausted",
    "generation_stale",
    "inbox_overflow",
    "journal_identity_changed",
    "journal_identity_missing",
    "not_recorded",
    "protocol_error",
]
"""Why the broker ends a link."""


class LinkFrame(Struct, tag_field="type", rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Give the frames of a worker that are not requests their tag and naming; a wrong one is a protocol error."""


# --- client to broker -----------------------------------------------------------------------------------


class LinkReady(FeatureRequest, tag="link_ready"):
    """Say that the worker is ready for its link, and which journal it keeps (protocol 4.85)."""

    link_id: NonEmpty
    generation: Place
    last_received_command_seq: Count
    journal_id: Name | UnsetType = UNSET
    worker_state: dict[str, Any] | UnsetType = UNSET


class LinkRejected(FeatureRequest, tag="link_rejected"):
    """Say that the worker does not take its link (protocol 4.86)."""

    link_id: NonEmpty
    generation: Place
    error_code: Name
    detail: Detail | UnsetType = UNSET


class DurableEvent(LinkFrame, tag="durable_event"):
    """Report what the worker wrote down; it is repeated until it is acknowledged (protocol 4.87)."""

    link_id: NonEmpty
    seq: Place
    event_id: Name
    occurred_at: Count
    body: Raw


class EphemeralEvent(LinkFrame, tag="ephemeral_event"):
    """Report what is not stored and not acknowledged (protocol 4.88)."""

    occurred_at: Count
    body: dict[str, Any]


class CommandReceived(LinkFrame, tag="command_received"):
    """Say that the worker wrote a command down (protocol 4.89)."""

    command_id: Name
    command_seq: Place


class CommandRejected(LinkFrame, tag="command_rejected"):
    """Say that the worker does not take a command (protocol 4.102)."""

    command_id: Name
    command_seq: Place
    error_code: Name
    detail: Detail | UnsetType = UNSET


class LinksRequest(FeatureRequest, tag="links"):
    """Ask for the links the requester may see (protocol 4.97)."""

    link_id: NonEmpty | UnsetType = UNSET
    """Only this one."""


class LinkRepin(FeatureRequest, tag="link_repin"):
    """Let a link go on with another journal of its worker; for the operator (protocol 4.98)."""

    link_id: NonEmpty
    journal_id: Name


class CommandSend(FeatureRequest, tag="command_send"):
    """Store a command for the worker of a link (protocol 4.99)."""

    command_id: Name
    body: Raw
    link_id: NonEmpty | UnsetType = UNSET
    of: MailboxOf | UnsetType = UNSET
    """The link of this address or session; exactly one of both is given."""


class CommandsRequest(FeatureRequest, tag="commands"):
    """Ask for the commands of the links the requester may see (protocol 4.100)."""

    link_id: NonEmpty | UnsetType = UNSET
    command_id: NonEmpty | UnsetType = UNSET
    after: Count = 0
    """Numbers behind this one only."""
    limit: Page = 100


class LinkEventsRequest(FeatureRequest, tag="link_events"):
    """Ask for the durable events of a link that are kept (protocol 4.101)."""

    link_id: NonEmpty
    after: Count = 0
    limit: EventPage = LINK_EVENTS_PAGE


LinkRequest: TypeAlias = (
    LinkReady | LinkRejected | LinksRequest | LinkRepin | CommandSend | CommandsRequest | LinkEventsRequest
)
LinkReport: TypeAlias = DurableEvent | EphemeralEvent | CommandReceived | CommandRejected

# --- broker to client -----------------------------------------------------------------------------------


class LinkFrameOfBroker(Struct, tag_field="type", rename="camel", omit_defaults=True):
    """Give the frames of the broker that answer no request their tag and naming."""


class LinkBootstrap(LinkFrameOfBroker, tag="link_bootstrap"):
    """Give a worker the right to its link, with where both left off (protocol 5.90)."""

    link_id: str
    generation: int
    connection_id: str
    command_mode: Literal["individual"]
    broker_journal_id: str
    event_floor: int
    body: dict[str, Any]


class LinkConfirmed(FeatureAnswer, tag="link_confirmed"):
    """Answer ``link_ready``: events are stored and commands offered from now on (protocol 5.91)."""

    link_id: str
    generation: int


class LinkRefused(LinkFrameOfBroker, tag="link_refused"):
    """Say that a link is not, or no longer, this connection's (protocol 5.92)."""

    link_id: str
    code: RefusalCode
    reason: str
    retryable: bool
    request_id: OptionalText = UNSET


class Command(LinkFrameOfBroker, tag="command"):
    """Offer a command; it comes again until it is received or rejected (protocol 5.93)."""

    command_id: str
    command_seq: int
    body: Raw


class EventAck(LinkFrameOfBroker, tag="event_ack"):
    """Say that all events up to here are on disk (protocol 5.94)."""

    link_id: str
    high_water: int


class LinkDrain(LinkFrameOfBroker, tag="link_drain"):
    """Say that the broker is about to end a link; no command is offered any more (protocol 5.100)."""

    deadline_ms: int
    reason: Literal["broker_shutdown"]


class LinkEntry(Struct, rename="camel", omit_defaults=True):
    """Describe one link."""

    link_id: str
    state: LinkState
    generation: int
    event_floor: int
    open_commands: int
    """Those that are pending or received."""
    waiting_frames: int
    waiting_bytes: int
    journal_id: OptionalText = UNSET
    """The pinned journal of the worker."""
    session_id: OptionalText = UNSET
    """Whose it is, when it has no address."""
    address: OptionalText = UNSET
    group: OptionalText = UNSET
    heartbeat_at: int | UnsetType = UNSET
    refused: OptionalText = UNSET
    """Why it was refused last."""
    worker_state: dict[str, Any] | UnsetType = UNSET
    other_journal_id: OptionalText = UNSET
    """With which journal its worker came and was refused."""


class Links(FeatureAnswer, tag="links"):
    """Answer ``links``, the oldest first (protocol 5.101)."""

    links: list[LinkEntry]


class LinkRepinned(FeatureAnswer, tag="link_repinned"):
    """Answer ``link_repin`` (protocol 5.102)."""

    link_id: str
    journal_id: str
    ambiguous: list[str]
    """Ids of the commands of which nobody knows any more whether they were carried out."""


class CommandEntry(Struct, rename="camel", omit_defaults=True):
    """Describe one command."""

    command_id: str
    number: int
    link_id: str
    command_seq: int
    state: CommandState
    created_at: int
    changed_at: int
    error_code: OptionalText = UNSET
    detail: OptionalText = UNSET
    body: Raw | UnsetType = UNSET
    """Only of one that was asked for by its id, while it is kept."""


class CommandStored(FeatureAnswer, tag="command_stored"):
    """Answer ``command_send``: it is on disk and is offered until it has a receipt (protocol 5.103)."""

    command: CommandEntry


class Commands(FeatureAnswer, tag="commands"):
    """Answer ``commands``, the oldest first (protocol 5.104)."""

    commands: list[CommandEntry]


class EventEntry(Struct, rename="camel", omit_defaults=True):
    """Describe one durable event."""

    seq: int
    event_id: str
    occurred_at: int
    stored_at: int
    kind: str
    body: Raw | UnsetType = UNSET
    """While it is kept."""


class LinkEvents(FeatureAnswer, tag="link_events"):
    """Answer ``link_events``, the oldest first (protocol 5.105)."""

    link_id: str
    events: list[EventEntry]


LinkAnswer: TypeAlias = (
    LinkBootstrap
    | LinkConfirmed
    | LinkRefused
    | Command
    | EventAck
    | LinkDrain
    | Links
    | LinkRepinned
    | CommandStored
    | Commands
    | LinkEvents
)
