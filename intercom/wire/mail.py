"""Define the frames of addresses, session lifecycle, mailboxes, trace and purge.

None of them is ever written to a connection that was not granted the feature it belongs to, and none of their members
is put into a frame of such a connection (protocol 9, 5.30).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from intercom.wire.shapes import FeatureAnswer, FeatureRequest, NonEmpty, OptionalText

Hold: TypeAlias = Literal["take", "free", "none"]
"""Hold the address and replace its holder; hold it unless somebody does; act under it without receiving its mail."""

SessionState: TypeAlias = Literal["active", "reconnecting", "closed"]


class AddressClaim(Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Ask for an address in ``register``; its group is the home group."""

    name: NonEmpty
    token: OptionalText = UNSET
    hold: Hold = "take"


class MailboxOf(Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Name a mailbox by an address, or by the session that has no address."""

    address: OptionalText = UNSET
    group: OptionalText = UNSET
    """Of the address; may be left out while only one address has the name."""
    session_id: OptionalText = UNSET


# --- client to broker -----------------------------------------------------------------------------------


class SessionReattach(FeatureRequest, tag="session_reattach"):
    """Be the session again whose connection was lost; takes the place of ``register`` (protocol 4.25)."""

    session_id: str
    owner_token: str


class TaskHint(FeatureRequest, tag="task_hint"):
    """Say in a few words what a session works on; an empty text takes it back (protocol 4.26)."""

    task_hint: str
    session_id: OptionalText = UNSET
    """Whose; left out: the requester's own. Another one must act under the same address."""


class SessionRecordsRequest(FeatureRequest, tag="session_records"):
    """Ask for the known sessions, also those that are away (protocol 4.27)."""


class SessionForceClose(FeatureRequest, tag="session_force_close"):
    """Close a session for good; for the operator (protocol 4.28)."""

    session_id: str
    reason: OptionalText = UNSET


class AddressesRequest(FeatureRequest, tag="addresses"):
    """Ask for the addresses (protocol 4.29)."""


class MailboxRequest(FeatureRequest, tag="mailbox"):
    """Ask what waits in a mailbox, without the bodies (protocol 4.30)."""

    of: MailboxOf | UnsetType = UNSET
    """Left out: the requester's own."""
    after: int = 0
    """Entries behind this one only."""
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class PendingRequest(FeatureRequest, tag="pending"):
    """Ask which open questions this session, or its address, owes an answer (protocol 4.31)."""


class TraceRequest(FeatureRequest, tag="trace"):
    """Ask what became of a message (protocol 4.32)."""

    message_id: NonEmpty


class PurgeRequest(FeatureRequest, tag="purge"):
    """Delete bodies and history, and the mail of a mailbox that is named; for the operator (protocol 4.33)."""

    older_than_ms: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    of: MailboxOf | UnsetType = UNSET


class MailPeek(FeatureRequest, tag="mail_peek"):
    """Read what waits in the own mailbox without taking it out (protocol 4.130)."""

    after: int = 0
    """Entries behind this one only."""
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class MailSettle(FeatureRequest, tag="mail_settle"):
    """Say that a message of the own mailbox was read: it counts as delivered (protocol 4.131)."""

    message_id: NonEmpty


MailRequest: TypeAlias = (
    SessionReattach
    | TaskHint
    | SessionRecordsRequest
    | SessionForceClose
    | AddressesRequest
    | MailboxRequest
    | PendingRequest
    | TraceRequest
    | PurgeRequest
    | MailPeek
    | MailSettle
)


class MailInfo(Struct, rename="camel", omit_defaults=True):
    """Say in a ``message`` frame that it comes out of a mailbox."""

    entry: int
    queued_at: int
    age_ms: int
    offers: int
    sends: int | UnsetType = UNSET
    """How many messages it stands for: its sender wrote it more than once, word for word (protocol 15.3.2)."""
    last_queued_at: int | UnsetType = UNSET
    """When the last of those came, epoch ms."""


class Notice(Struct, rename="camel", omit_defaults=True):
    """Say in a ``message`` frame that the broker itself writes, and about which message."""

    kind: Literal["undeliverable", "expired"]
    message_id: str
    target: str
    reason: str


# --- broker to client -----------------------------------------------------------------------------------


class RequestFailed(FeatureAnswer, tag="request_failed"):
    """Refuse any request of a feature (protocol 5.31)."""

    code: str
    reason: str
    retryable: bool
    outcome_unknown: bool | UnsetType = UNSET
    category: OptionalText = UNSET
    """Which part of the life of an assignment the refusal speaks of."""
    retry_after_ms: int | UnsetType = UNSET


class SessionReattached(FeatureAnswer, tag="session_reattached"):
    """Answer ``session_reattach``; the mail follows (protocol 5.32)."""

    session_id: str
    incarnation: str
    generation: int
    features: list[str]
    mailbox_count: int


class TaskHintStored(FeatureAnswer, tag="task_hint_stored"):
    """Answer ``task_hint`` (protocol 5.33)."""

    task_hint: str


class SessionRecordEntry(Struct, rename="camel", omit_defaults=True):
    """Describe one known session."""

    session_id: str
    state: SessionState
    state_since: int
    incarnation: str
    generation: int
    pid: int
    groups: list[str]
    display_label: str
    mailbox_count: int
    name: OptionalText = UNSET
    kind: OptionalText = UNSET
    runtime_session_id: OptionalText = UNSET
    grace_deadline: int | UnsetType = UNSET
    closed_reason: OptionalText = UNSET
    address: OptionalText = UNSET
    tracking_ref: OptionalText = UNSET
    task_hint: OptionalText = UNSET
    work_mode: OptionalText = UNSET
    """How it takes assignments; absent: it takes none."""
    execution_surface: OptionalText = UNSET
    workspace: Raw | UnsetType = UNSET


class SessionRecords(FeatureAnswer, tag="session_records"):
    """Answer ``session_records`` (protocol 5.34)."""

    sessions: list[SessionRecordEntry]


class SessionForceClosed(FeatureAnswer, tag="session_force_closed"):
    """Answer ``session_force_close``; closing what is not known is done already (protocol 5.35)."""

    session_id: str
    was_known: bool


class AddressEntry(Struct, rename="camel", omit_defaults=True):
    """Describe one address."""

    name: str
    group: str
    groups: list[str]
    created_at: int
    last_held_at: int
    mailbox_count: int
    mailbox_bytes: int
    holder: OptionalText = UNSET
    """Session id of who receives its mail now, also while that session is reconnecting."""
    holder_state: SessionState | UnsetType = UNSET
    oldest_at: int | UnsetType = UNSET


class Addresses(FeatureAnswer, tag="addresses"):
    """Answer ``addresses`` (protocol 5.36)."""

    addresses: list[AddressEntry]


class MailEntry(Struct, rename="camel", omit_defaults=True):
    """Describe one entry of a mailbox."""

    entry: int
    message_id: str
    position: int
    sender: Raw
    queued_at: int
    expires_at: int
    size: int
    offers: int
    state: Literal["queued", "offered"]
    valid_until: int | UnsetType = UNSET
    expects_reply: bool | UnsetType = UNSET
    notice: OptionalText = UNSET
    kept: Literal["quiet", "hold"] | UnsetType = UNSET
    """A policy keeps it (feature ``policy``)."""


class UnconfirmedEntry(Struct, rename="camel", omit_defaults=True):
    """Describe a message that is no mail: written to who receives, not confirmed, kept in the broker's memory."""

    message_id: str
    sender: Raw
    sent_at: int
    size: int
    expects_reply: bool | UnsetType = UNSET


class MailboxEntries(FeatureAnswer, tag="mailbox"):
    """Answer ``mailbox``; ``count`` and ``bytes`` are of the whole mailbox (protocol 5.37)."""

    owner: str
    count: int
    bytes: int
    entries: list[MailEntry]
    unconfirmed: list[UnconfirmedEntry] | UnsetType = UNSET
    """What comes again, before the mail, to who receives next; it ends with the broker."""
    kept: int | UnsetType = UNSET
    """How many of all a policy keeps (feature ``policy``)."""


class PendingAsk(Struct, rename="camel", omit_defaults=True):
    """Describe one question that waits for an answer."""

    message_id: str
    asker_id: str
    asked_at: int
    deadline: int
    asker_name: OptionalText = UNSET
    asker_here: bool = True


class Pending(FeatureAnswer, tag="pending"):
    """Answer ``pending``, oldest first (protocol 5.38)."""

    asks: list[PendingAsk]


class TraceEvent(Struct, rename="camel", omit_defaults=True):
    """Describe one thing that happened to a message."""

    at: int
    state: str
    detail: dict[str, Any] | UnsetType = UNSET
    seq: int | UnsetType = UNSET


class Trace(FeatureAnswer, tag="trace"):
    """Answer ``trace``: every state with its time, and where the message is now (protocol 5.39)."""

    message_id: str
    state: str
    where: str
    events: list[TraceEvent]
    sender: OptionalText = UNSET
    recipient: OptionalText = UNSET


class Purged(FeatureAnswer, tag="purged"):
    """Answer ``purge`` with how much mail was given up; bodies and history are deleted by now (protocol 5.40)."""

    mail: int


class PeekedMail(Struct, rename="camel", omit_defaults=True):
    """Be one message that waits, as it would be handed over; ``mail.offers`` says how often it was."""

    sender: Raw = field(name="from")
    message: Raw
    mail: MailInfo
    valid_until: int | UnsetType = UNSET
    notice: Notice | UnsetType = UNSET


class MailPeeked(FeatureAnswer, tag="mail_peeked"):
    """Answer ``mail_peek``, oldest first; ``left`` are those behind the last one (protocol 5.130)."""

    messages: list[PeekedMail]
    left: int


class MailSettled(FeatureAnswer, tag="mail_settled"):
    """Answer ``mail_settle`` once that is recorded (protocol 5.131)."""

    message_id: str


class Replaced(Struct, tag_field="type", rename="camel", omit_defaults=True, tag="replaced"):
    """Tell a session that another one holds its place now; FIN follows, it must not come back (protocol 5.41)."""

    by: Literal["connection", "address"]
    session_id: str
    """Of the one that took the place."""


class QuestionWithdrawn(Struct, tag_field="type", rename="camel", omit_defaults=True, tag="question_withdrawn"):
    """Tell who was asked that nobody waits for the answer any more (protocol 5.42)."""

    message_id: str
    session_id: str
    """Of who asked."""


class QuestionReopened(Struct, tag_field="type", rename="camel", omit_defaults=True, tag="question_reopened"):
    """Tell who has a question that its answer is waited for again, after it was not (protocol 5.43)."""

    message_id: str
    session_id: str
    """Of who asks."""


MailAnswer: TypeAlias = (
    RequestFailed
    | SessionReattached
    | TaskHintStored
    | SessionRecords
    | SessionForceClosed
    | Addresses
    | MailboxEntries
    | Pending
    | Trace
    | Purged
    | MailPeeked
    | MailSettled
    | Replaced
    | QuestionWithdrawn
    | QuestionReopened
)
