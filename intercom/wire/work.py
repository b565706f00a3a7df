"""Define the frames of the inbox, of assignments and of replies to them (protocol 10).

A *worker* is a session that takes assignments, a *coordinator* one that hands them out in its groups.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from intercom.limits import IDEMPOTENCY_KEY_CHARACTERS, INBOX_WAIT_MAX_MS, WORK_DETAIL_CHARACTERS, WORK_PAGE_CEILING
from intercom.wire.invocations import InvokedInfo
from intercom.wire.shapes import Content, FeatureAnswer, FeatureRequest, NonEmpty, OptionalText

Key: TypeAlias = Annotated[str, Meta(min_length=1, max_length=IDEMPOTENCY_KEY_CHARACTERS)]
Detail: TypeAlias = Annotated[str, Meta(max_length=WORK_DETAIL_CHARACTERS)]
Page: TypeAlias = Annotated[int, Meta(ge=1, le=WORK_PAGE_CEILING)]

WorkMode: TypeAlias = Literal["resident", "managed_turn"]
"""Work is pushed to the session; or it waits until the session, whose host gives it turns, comes for it."""
ExecutionSurface: TypeAlias = Literal["owner_attached", "headless"]
"""Somebody sits in front of the session; or nobody does."""

ClaimPolicy: TypeAlias = Literal[
    "operator_select", "bound_session", "any_session", "session_unavailable", "assigned", "none"
]
ParkReason: TypeAlias = Literal["unaddressed", "closed_session_continuation", "correlated_continuation", "invocation"]
ProcessingState: TypeAlias = Literal[
    "assigned",
    "delivery_attempted",
    "accepted",
    "started",
    "waiting_for_capability",
    "reply_requested",
    "reply_emitted",
    "failed",
    "expired",
    "target_lost",
    "interrupted",
]
Category: TypeAlias = Literal[
    "assignment_in_progress",
    "target_unavailable_before_acceptance",
    "acceptance_rejected",
    "processing_failed_or_expired",
    "reply_handle_stale",
]


# --- client to broker -----------------------------------------------------------------------------------


class InboxList(FeatureRequest, tag="inbox_list"):
    """Ask what is parked that the requester may see (protocol 4.40)."""

    after: int = 0
    """Places behind this one only."""
    limit: Page = 50


class InboxShow(FeatureRequest, tag="inbox_show"):
    """Ask for one parked message with its text (protocol 4.41)."""

    inbox_id: NonEmpty


class InboxPresence(FeatureRequest, tag="inbox_presence"):
    """Ask how much waits for this session, without reading it (protocol 4.42)."""


class InboxDispatch(FeatureRequest, tag="inbox_dispatch"):
    """Hand a parked message to a worker; a control order (protocol 4.43)."""

    inbox_id: NonEmpty
    target_session_id: NonEmpty
    idempotency_key: Key | UnsetType = UNSET
    source_message_id: NonEmpty | UnsetType = UNSET
    accept_within_ms: int | UnsetType = UNSET
    """How long the worker may take to accept; 0 and less: as long as it likes."""


class InboxClaim(FeatureRequest, tag="inbox_claim"):
    """Take a parked message as this session's work (protocol 4.44)."""

    inbox_id: NonEmpty


class InboxAwait(FeatureRequest, tag="inbox_await"):
    """Wait for work that is handed to this session, and be given it (protocol 4.45)."""

    timeout_ms: Annotated[int, Meta(ge=0, le=INBOX_WAIT_MAX_MS)]
    mark_attempt: bool = True
    claim: bool = False
    """Also claim what is parked and this session may claim."""


class InboxSettle(FeatureRequest, tag="inbox_settle"):
    """Say that a parked message needs nobody any more (protocol 4.46)."""

    inbox_id: NonEmpty


class AssignmentReport(FeatureRequest, tag="assignment_report"):
    """Say how far an assignment is (protocol 4.47)."""

    source_message_id: NonEmpty
    assignment_id: NonEmpty
    state_event_id: Key
    state: ProcessingState
    state_sequence: int | UnsetType = UNSET
    """Left out: the next one."""
    retryable: bool | UnsetType = UNSET
    reason_code: Detail | UnsetType = UNSET
    detail: Detail | UnsetType = UNSET


class AssignmentReply(FeatureRequest, tag="assignment_reply"):
    """Answer the sender of the message that was assigned, once (protocol 4.48)."""

    source_message_id: NonEmpty
    assignment_id: NonEmpty
    reply_request_id: Key
    content: Content


class AssignmentList(FeatureRequest, tag="assignment_list"):
    """Ask which assignments are open that the requester may see (protocol 4.49)."""

    after: int = 0
    limit: Page = 50


class AssignmentShow(FeatureRequest, tag="assignment_show"):
    """Ask for one open assignment (protocol 4.50)."""

    assignment_id: NonEmpty


WorkRequest: TypeAlias = (
    InboxList
    | InboxShow
    | InboxPresence
    | InboxDispatch
    | InboxClaim
    | InboxAwait
    | InboxSettle
    | AssignmentReport
    | AssignmentReply
    | AssignmentList
    | AssignmentShow
)


# --- broker to client -----------------------------------------------------------------------------------


class InboxEntry(Struct, rename="camel", omit_defaults=True):
    """Describe one message in the inbox."""

    inbox_id: str
    number: int
    """Its place: grows from message to message."""
    reason: ParkReason
    claim_policy: ClaimPolicy
    parked_at: int
    sender: Raw
    target: str
    """What its sender called the target."""
    content_preview: str
    size: int
    groups: list[str]
    original_target_session_id: OptionalText = UNSET
    original_target_address: OptionalText = UNSET
    assignment_id: OptionalText = UNSET
    expires_at: int | UnsetType = UNSET
    returns: int | UnsetType = UNSET
    """How often it was given back."""
    return_reason: OptionalText = UNSET
    """Why it was given back last."""


class InboxItems(FeatureAnswer, tag="inbox_items"):
    """Answer ``inbox_list``, oldest first; the numbers speak of the whole inbox (protocol 5.50)."""

    items: list[InboxEntry]
    under_pressure: bool
    count: int
    capacity: int


class InboxItem(FeatureAnswer, tag="inbox_item"):
    """Answer ``inbox_show`` (protocol 5.51)."""

    item: InboxEntry
    message: Raw


class InboxPresenceReport(FeatureAnswer, tag="inbox_presence_report"):
    """Answer ``inbox_presence`` (protocol 5.52)."""

    bound_count: int
    """Parked messages that only this session may claim."""
    claimable_count: int
    """Parked messages it may claim, those included."""
    assigned_count: int
    """Its open assignments."""
    under_pressure: bool


class InboxDispatched(FeatureAnswer, tag="inbox_dispatched"):
    """Answer ``inbox_dispatch``: the worker has it, or will find it (protocol 5.53)."""

    assignment_id: str
    handed_to: Literal["session", "mailbox", "staging"]


class AssignmentInfo(Struct, rename="camel", omit_defaults=True):
    """Describe an assignment to its worker: what it must name in reports and replies."""

    assignment_id: str
    source_message_id: str
    inbox_id: str
    delivery_intent: Literal["handoff"]
    mode: Literal["pushed", "staged"]
    assigned_at: int
    state: ProcessingState
    state_sequence: int
    accepted: bool
    target_session_id: str
    delivery_attempts: int
    accept_deadline: int | UnsetType = UNSET
    target_incarnation: OptionalText = UNSET
    target_address: OptionalText = UNSET


class AssignmentGranted(FeatureAnswer, tag="assignment_granted"):
    """Give a worker its work: the answer to ``inbox_claim`` and ``inbox_await`` (protocol 5.54)."""

    assignment: AssignmentInfo
    sender: Raw = field(name="from")
    message: Raw
    invocation: InvokedInfo | UnsetType = UNSET


class InboxNothing(FeatureAnswer, tag="inbox_nothing"):
    """Answer ``inbox_await`` when nothing came in time (protocol 5.55)."""


class InboxSettled(FeatureAnswer, tag="inbox_settled"):
    """Answer ``inbox_settle`` (protocol 5.56)."""

    remove_reason: Literal["handled_no_reply"]


class AssignmentRecorded(FeatureAnswer, tag="assignment_recorded"):
    """Answer ``assignment_report`` (protocol 5.57)."""

    state_sequence: int


class AssignmentReplied(FeatureAnswer, tag="assignment_replied"):
    """Answer ``assignment_reply``; the assignment has ended (protocol 5.58)."""

    message_id: str
    status: Literal["sent", "queued"]
    """Its recipient has it; or it waits durably as mail."""


class Assignments(FeatureAnswer, tag="assignments"):
    """Answer ``assignment_list``, oldest first (protocol 5.59)."""

    assignments: list[AssignmentInfo]


class AssignmentShown(FeatureAnswer, tag="assignment"):
    """Answer ``assignment_show`` (protocol 5.60)."""

    assignment: AssignmentInfo


WorkAnswer: TypeAlias = (
    InboxItems
    | InboxItem
    | InboxPresenceReport
    | InboxDispatched
    | AssignmentGranted
    | InboxNothing
    | InboxSettled
    | AssignmentRecorded
    | AssignmentReplied
    | Assignments
    | AssignmentShown
)
