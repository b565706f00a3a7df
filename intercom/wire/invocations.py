"""Define the frames of invocations: work that is accepted at once and done when its target can (protocol 13).

An *invocation* is what is asked for, its *run* how far it is, a *diagnosis* why a label led to nobody.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from intercom.limits import IDEMPOTENCY_KEY_CHARACTERS, LONGEST_VALIDITY_MS, WORK_PAGE_CEILING
from intercom.wire.shapes import FeatureAnswer, FeatureRequest, NonEmpty, OptionalText

InvocationId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=IDEMPOTENCY_KEY_CHARACTERS)]
Action: TypeAlias = Literal["consult", "execute", "summarize", "status", "wake"]
RunState: TypeAlias = Literal["queued", "waking", "running", "waiting", "completed", "failed", "cancelled"]
ReportedState: TypeAlias = Literal["running", "waiting", "completed", "failed", "cancelled"]
DiagnosisKind: TypeAlias = Literal["ambiguous", "unknown", "unparseable", "unavailable"]
Placement: TypeAlias = Literal["session", "mailbox", "inbox", "outbox", "moved"]

DeliveryStatus: TypeAlias = Literal["accepted", "deferred", "peer_acked", "running", "completed", "failed", "cancelled"]

ExecutionSession: TypeAlias = Literal["new", "reuse", "existing", "fork"]

RUN_PREFIX = "run:"
"""Begins the id of the message that brings a task; the id of its run follows."""
CANCEL_PREFIX = "cancel:"
"""Begins the id of the message that says that a task is not wanted any more; the id of its run follows."""


CONTEXT = "context"
"""Type and name of the attachment of that message that holds the context."""
METADATA = "metadata"
"""The member of that message that holds the metadata."""


class Execution(Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Say how the target is wished to do a task; the broker hands it on and does nothing by it."""

    kind: NonEmpty | UnsetType = UNSET
    model: NonEmpty | UnsetType = UNSET
    session: ExecutionSession | UnsetType = UNSET
    """In which session of the target's host."""
    target_session_id: NonEmpty | UnsetType = UNSET
    """Which one that is."""


class Wishes(Struct, rename="camel", omit_defaults=True, frozen=True):
    """Hold what is said of a task beside its texts, as it is stored."""

    execution: Execution | UnsetType = UNSET
    labels: list[str] | UnsetType = UNSET
    stream: bool = False
    message_id: OptionalText = UNSET


# --- client to broker -----------------------------------------------------------------------------------


class Invoke(FeatureRequest, tag="invoke"):
    """Ask that somebody does something, now or when they can (protocol 4.75)."""

    invocation_id: InvocationId
    task: str
    target: str | UnsetType = UNSET
    """A label."""
    target_id: NonEmpty | UnsetType = UNSET
    """As candidates and answers give it; it goes before ``target``."""
    action: Action = "execute"
    ensure_awake: bool = False
    timeout_ms: Annotated[int, Meta(ge=1, le=LONGEST_VALIDITY_MS)] | UnsetType = UNSET
    """How long the target may take until it has the task."""
    context: str | UnsetType = UNSET
    """What the target should know for it."""
    execution: Execution | UnsetType = UNSET
    labels: list[NonEmpty] | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    """The requester's own, handed on as it is."""
    stream: bool = False
    """Reports are wished while it goes on."""
    message_id: NonEmpty | UnsetType = UNSET
    """The message out of which it came."""


class InvocationGet(FeatureRequest, tag="invocation_get"):
    """Ask how an invocation is (protocol 4.76)."""

    invocation_id: InvocationId


class InvocationList(FeatureRequest, tag="invocation_list"):
    """Ask which invocations there are that the requester may see (protocol 4.77)."""

    before: int | UnsetType = UNSET
    """Numbers below this one only."""
    limit: Annotated[int, Meta(ge=1, le=WORK_PAGE_CEILING)] = 50
    open_only: bool = False
    as_target: bool = False
    """Only those that are the requester's to do."""
    labels: list[NonEmpty] | UnsetType = UNSET
    """Only those that were given all of these."""


class InvocationCancel(FeatureRequest, tag="invocation_cancel"):
    """Ask that an invocation is not carried out (protocol 4.78)."""

    invocation_id: InvocationId
    reason: str | UnsetType = UNSET


class RunUpdate(FeatureRequest, tag="run_update"):
    """Say as its target how far a run is (protocol 4.79)."""

    invocation_id: InvocationId
    update_id: InvocationId
    state: ReportedState
    summary: str | UnsetType = UNSET
    output: str | UnsetType = UNSET
    error: str | UnsetType = UNSET


class RouteResolve(FeatureRequest, tag="route_resolve"):
    """Ask whom a label means, without asking anything of them (protocol 4.80)."""

    target: str


InvocationRequest: TypeAlias = Invoke | InvocationGet | InvocationList | InvocationCancel | RunUpdate | RouteResolve


# --- broker to client -----------------------------------------------------------------------------------


class InvokedInfo(Struct, rename="camel", omit_defaults=True):
    """Tell the recipient of a task, or of the wish to cancel it, to which invocation it belongs."""

    invocation_id: str
    run_id: str
    action: Action
    cancelled: bool = False
    """The requester does not want it any more."""
    execution: Execution | UnsetType = UNSET
    labels: list[str] | UnsetType = UNSET
    stream: bool = False
    message_id: OptionalText = UNSET


class InvocationInfo(Struct, rename="camel", omit_defaults=True):
    """Describe what was asked for."""

    invocation_id: str
    number: int
    """Grows from invocation to invocation."""
    run_id: str
    requester_id: str
    """The session that asked."""
    target: str
    """What it called the target."""
    target_id: str
    target_name: str
    action: Action
    ensure_awake: bool
    created_at: int
    state: RunState
    task: OptionalText = UNSET
    """Left out of lists, and once it is deleted."""
    take_until: int | UnsetType = UNSET
    completed_at: int | UnsetType = UNSET
    context: OptionalText = UNSET
    """Like ``task``."""
    metadata: dict[str, Any] | UnsetType = UNSET
    """Like ``task``."""
    execution: Execution | UnsetType = UNSET
    labels: list[str] | UnsetType = UNSET
    stream: bool = False
    message_id: OptionalText = UNSET


class RunInfo(Struct, rename="camel", omit_defaults=True):
    """Describe how far an invocation is."""

    run_id: str
    invocation_id: str
    requester_id: str
    target_id: str
    state: RunState
    attempts: int
    """How often its hand-over was tried."""
    placement: Placement | UnsetType = UNSET
    """Where its task was put."""
    summary: OptionalText = UNSET
    output: OptionalText = UNSET
    error: OptionalText = UNSET
    started_at: int | UnsetType = UNSET
    completed_at: int | UnsetType = UNSET
    cancel_asked_at: int | UnsetType = UNSET
    reconciled: bool = False
    """The broker found it failed: its target was gone. What the target reports after all still counts."""


class RouteCandidate(Struct, rename="camel", omit_defaults=True):
    """Describe somebody a label may have meant."""

    target_id: str
    display_name: str
    label: str
    """Leads to this one alone."""
    authority_broker_id: str
    home_broker_id: str
    scope: Literal["local", "mesh"]
    """Whether it is on this machine."""
    session_state: Literal["active", "reconnecting", "away", "closed"]
    workspace: OptionalText = UNSET
    harness: OptionalText = UNSET
    model: OptionalText = UNSET
    node: OptionalText = UNSET


class RouteDiagnosis(Struct, rename="camel", omit_defaults=True):
    """Say why a label led to nobody."""

    kind: DiagnosisKind
    asked_label: str
    detail: str
    candidates: list[RouteCandidate]
    at: int
    broker_id: str
    diagnosis_id: OptionalText = UNSET
    """Of one that is recorded."""
    invocation_id: OptionalText = UNSET


class DeliveryInfo(Struct, rename="camel", omit_defaults=True):
    """Describe how an invocation gets to the broker of another machine."""

    delivery_id: str
    target_broker_id: str
    """The broker that answers for the target."""
    status: DeliveryStatus
    attempts: int
    first_queued_at: int
    next_attempt_at: int | UnsetType = UNSET
    peer_acked_at: int | UnsetType = UNSET
    peer_run_id: OptionalText = UNSET
    failure_reason: OptionalText = UNSET
    """Why it failed, or why the last attempt did."""
    failure_detail: OptionalText = UNSET


class InvocationAccepted(FeatureAnswer, tag="invocation_accepted"):
    """Answer ``invoke``: it is recorded, or the diagnosis of its target is (protocol 5.80)."""

    invocation_id: str
    run_id: OptionalText = UNSET
    target_id: OptionalText = UNSET
    state: RunState | UnsetType = UNSET
    run: RunInfo | UnsetType = UNSET
    detail: OptionalText = UNSET
    diagnosis: RouteDiagnosis | UnsetType = UNSET


class InvocationSnapshot(FeatureAnswer, tag="invocation_snapshot"):
    """Answer ``invocation_get`` (protocol 5.81)."""

    invocation_id: str
    known: bool
    journal_id: str
    seq: int
    """Everything up to here is in it; a ``watch`` with this ``afterSeq`` tells the rest."""
    diagnoses: list[RouteDiagnosis]
    invocation: InvocationInfo | UnsetType = UNSET
    run: RunInfo | UnsetType = UNSET
    deliveries: list[DeliveryInfo] | UnsetType = UNSET
    """How it gets to another machine; left out when its target is on this one."""


class Invocations(FeatureAnswer, tag="invocations"):
    """Answer ``invocation_list``, newest first (protocol 5.82)."""

    invocations: list[InvocationInfo]


class InvocationCancelled(FeatureAnswer, tag="invocation_cancelled"):
    """Answer ``invocation_cancel`` (protocol 5.83)."""

    invocation_id: str
    state: RunState
    """*cancelled*: nobody had it. Else its target was asked to stop, and the run goes on until it reports."""


class RunRecorded(FeatureAnswer, tag="run_recorded"):
    """Answer ``run_update`` (protocol 5.84)."""

    invocation_id: str
    state: RunState
    """Of the run now."""
    changed: bool
    """False: the update said nothing new, or the run has ended."""


class RouteResolved(FeatureAnswer, tag="route_resolved"):
    """Answer ``route_resolve`` (protocol 5.85)."""

    target: RouteCandidate | UnsetType = UNSET
    diagnosis: RouteDiagnosis | UnsetType = UNSET


InvocationAnswer: TypeAlias = (
    InvocationAccepted | InvocationSnapshot | Invocations | InvocationCancelled | RunRecorded | RouteResolved
)
