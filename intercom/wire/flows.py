"""Define the frames of flows: durable step lists that move on only when the worker reported (protocol 12).

None of them is ever written to a connection that was not granted ``flow.control``, ``flow.report`` or ``operator``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from intercom.limits import IDEMPOTENCY_KEY_CHARACTERS, WHOLE_NUMBER_MAX
from intercom.wire.shapes import FeatureAnswer, FeatureRequest, NonEmpty, OptionalText

Identifier: TypeAlias = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(?!\n)$")]
RequestKey: TypeAlias = Annotated[str, Meta(min_length=1, max_length=IDEMPOTENCY_KEY_CHARACTERS)]
EpochMs: TypeAlias = Annotated[int, Meta(ge=0, le=WHOLE_NUMBER_MAX)]
Milliseconds: TypeAlias = Annotated[int, Meta(ge=1, le=WHOLE_NUMBER_MAX)]

FlowState: TypeAlias = Literal["draft", "active", "paused", "completed", "failed", "cancelled"]
StepState: TypeAlias = Literal[
    "pending", "dispatching", "awaiting_result", "completed", "failed", "ambiguous", "cancelled"
]
TransportState: TypeAlias = Literal["prepared", "published", "accepted", "rejected"]
OutcomeState: TypeAlias = Literal["pending", "completed", "failed", "ambiguous", "retired"]
BindingState: TypeAlias = Literal["pending", "bound", "completed", "failed", "ambiguous"]
ReportOutcome: TypeAlias = Literal["completed", "failed"]
TodoStatus: TypeAlias = Literal["pending", "in_progress", "completed", "blocked", "failed"]

DISPATCH_PREFIX = "flow-dispatch/"
"""How the id of a message begins that carries a dispatch; the id of the dispatch follows."""
REPORT_PREFIX = "flow-report/"
"""How the id of its report begins."""
SESSION_PREFIX = "session:"
"""How a target begins that names a session by its id; any other text is a name."""

# --- what requests hold ---------------------------------------------------------------------------------


class TodoGates(Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Ask that a step is bound to an item of the worker's own to-do list."""

    label: OptionalText = UNSET
    require_completed: bool = False
    """The step completes only once that item is completed."""
    conflict_check: bool = False
    """A step reported as completed whose item is not is ambiguous at once."""


class NewStep(Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Describe one step of a flow."""

    step_id: Identifier
    prompt: str
    todo_binding: TodoGates | UnsetType = UNSET
    report_timeout_ms: Milliseconds | UnsetType = UNSET
    """Without a report this long after the worker has the step, it is ambiguous; left out: it may take for ever."""


class TodoOutcome(Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """Say what became of the item a step is bound to."""

    todo_id: Identifier
    todo_status: TodoStatus


# --- client to broker -----------------------------------------------------------------------------------


class FlowCreate(FeatureRequest, tag="flow_create"):
    """Write down a flow; nothing is sent before it is started (protocol 4.60)."""

    flow_id: Identifier
    target: NonEmpty
    steps: list[NewStep]
    request_key: RequestKey | UnsetType = UNSET
    group: OptionalText = UNSET
    """Of the creator's groups the one whose coordinators control the flow; left out: its home group."""


class FlowStart(FeatureRequest, tag="flow_start"):
    """Begin a draft (protocol 4.61)."""

    flow_id: Identifier
    request_key: RequestKey | UnsetType = UNSET


class FlowPause(FeatureRequest, tag="flow_pause"):
    """Begin no further step; one that is under way goes on (protocol 4.62)."""

    flow_id: Identifier
    request_key: RequestKey | UnsetType = UNSET


class FlowResume(FeatureRequest, tag="flow_resume"):
    """Go on, perhaps with another target (protocol 4.63)."""

    flow_id: Identifier
    target: NonEmpty | UnsetType = UNSET
    request_key: RequestKey | UnsetType = UNSET


class FlowAppend(FeatureRequest, tag="flow_append"):
    """Insert steps behind one (protocol 4.64)."""

    flow_id: Identifier
    after_step_id: Identifier
    steps: list[NewStep]
    request_key: RequestKey | UnsetType = UNSET


class FlowRetry(FeatureRequest, tag="flow_retry"):
    """Let a step that failed or is ambiguous be tried again (protocol 4.65)."""

    flow_id: Identifier
    step_id: Identifier
    reason: str
    request_key: RequestKey | UnsetType = UNSET


class FlowCancel(FeatureRequest, tag="flow_cancel"):
    """End a flow for good (protocol 4.66)."""

    flow_id: Identifier
    reason: str
    request_key: RequestKey | UnsetType = UNSET


class FlowList(FeatureRequest, tag="flow_list"):
    """Ask for the flows the requester may control, the newest first (protocol 4.67)."""


class FlowStatus(FeatureRequest, tag="flow_status"):
    """Ask for everything that is known of one flow (protocol 4.68)."""

    flow_id: Identifier


class FlowReport(FeatureRequest, tag="flow_report"):
    """State the outcome of a dispatch; only its worker may (protocol 4.69)."""

    dispatch_id: str
    outcome: ReportOutcome
    summary: str
    resources: list[str] = field(default_factory=list)
    todo_outcome: TodoOutcome | UnsetType = UNSET
    prepared_at: EpochMs | UnsetType = UNSET
    """When the worker wrote it down."""
    attempt: Annotated[int, Meta(ge=1, le=WHOLE_NUMBER_MAX)] = 1
    """How often it was sent, this time included."""


class FlowCollect(FeatureRequest, tag="flow_collect"):
    """Delete flows that have been over for long (protocol 4.70)."""

    dry_run: bool = False
    """Only tell which."""


FlowRequest: TypeAlias = (
    FlowCreate
    | FlowStart
    | FlowPause
    | FlowResume
    | FlowAppend
    | FlowRetry
    | FlowCancel
    | FlowList
    | FlowStatus
    | FlowReport
    | FlowCollect
)

# --- what answers hold ----------------------------------------------------------------------------------


class ExactIdentity(Struct, rename="camel", omit_defaults=True):
    """Name one incarnation of one session of one broker."""

    broker_id: str
    session_id: str
    incarnation: str
    runtime_session_id: OptionalText = UNSET


class StepReport(Struct, rename="camel", omit_defaults=True):
    """Show what a worker reported."""

    outcome: ReportOutcome
    reported_at: int
    summary: OptionalText = UNSET
    """Left out once its text had its time."""
    resources: list[str] | UnsetType = UNSET
    todo_outcome: TodoOutcome | UnsetType = UNSET
    prepared_at: int | UnsetType = UNSET
    """When the worker wrote it down, by its clock."""
    attempts: int = 1
    """How often it was sent until it was recorded."""


class EndEvidence(Struct, rename="camel", omit_defaults=True):
    """Show that the worker's work ended by other signs than its report."""

    detail: str
    observed_at: int
    deadline: int
    """Until then a report may come; then the attempt is ambiguous."""


class TodoBinding(Struct, rename="camel", omit_defaults=True):
    """Show the link between a dispatch and an item of the worker's to-do list."""

    negotiated: bool
    """False: the worker keeps no such list for us, so nothing of it is asked for."""
    state: BindingState | UnsetType = UNSET
    todo_id: OptionalText = UNSET
    todo_status: TodoStatus | UnsetType = UNSET
    reason: OptionalText = UNSET


class DispatchView(Struct, rename="camel", omit_defaults=True):
    """Show one attempt of one step: how it travelled, what became of it, and what was reported."""

    dispatch_id: str
    step_id: str
    target_identity: ExactIdentity
    transport: TransportState
    outcome: OutcomeState
    created_at: int
    revision: int
    published_at: int | UnsetType = UNSET
    accepted_at: int | UnsetType = UNSET
    delivery_state: Literal["accepted", "replayed"] | UnsetType = UNSET
    completed_at: int | UnsetType = UNSET
    reason: OptionalText = UNSET
    correlation: OptionalText = UNSET
    """Id of the one question between creator and worker that was open when the step was handed out."""
    report: StepReport | UnsetType = UNSET
    evidence: EndEvidence | UnsetType = UNSET
    binding: TodoBinding | UnsetType = UNSET
    ignored_report_at: int | UnsetType = UNSET
    """When a report came after the attempt was over."""
    waits_until: int | UnsetType = UNSET
    """When it becomes ambiguous unless something comes first."""


class StepView(Struct, rename="camel", omit_defaults=True):
    """Show one step."""

    step_id: str
    state: StepState
    attempts: list[str]
    prompt: OptionalText = UNSET
    """In the answer to ``flow_status``, as long as the text is kept."""
    current_dispatch_id: OptionalText = UNSET
    result: StepReport | UnsetType = UNSET
    todo_binding: TodoGates | UnsetType = UNSET
    report_timeout_ms: int | UnsetType = UNSET


class Waiting(Struct, rename="camel", omit_defaults=True):
    """Say in a sentence what a flow waits for, and since when."""

    what: str
    since: int


class CreatorAddress(Struct, rename="camel", omit_defaults=True):
    """Name an address by its name and its home group."""

    name: str
    group: str


class FlowView(Struct, rename="camel", omit_defaults=True):
    """Show one flow."""

    flow_id: str
    target: str
    state: FlowState
    group: str
    created_by: str
    created_at: int
    updated_at: int
    revision: int
    steps: list[StepView]
    next_actions: list[str]
    """What a person may do with it now."""
    target_identity: ExactIdentity | UnsetType = UNSET
    active_step_id: OptionalText = UNSET
    reason: OptionalText = UNSET
    last_admit_reason: OptionalText = UNSET
    last_admit_at: int | UnsetType = UNSET
    admit_attempts: int = 0
    waiting: Waiting | UnsetType = UNSET
    is_yours: bool = False
    """The requester has created it."""
    creator_address: CreatorAddress | UnsetType = UNSET
    """Under which it was created: whoever acts under it may do what its creator may."""


class FlowSummary(Struct, rename="camel", omit_defaults=True):
    """Show one flow in a list."""

    flow_id: str
    target: str
    state: FlowState
    group: str
    created_by: str
    created_at: int
    updated_at: int
    steps_completed: int
    steps: int
    active_step_id: OptionalText = UNSET
    waiting: Waiting | UnsetType = UNSET


class TargetView(Struct, rename="camel", omit_defaults=True):
    """Say whether the target of a flow is here, and whether it is the one of the latest attempt."""

    found: bool
    exact: bool
    state: Literal["active", "reconnecting", "closed"] | UnsetType = UNSET
    session_id: OptionalText = UNSET
    reason: OptionalText = UNSET
    """Why no step can be handed to it now."""


# --- broker to client -----------------------------------------------------------------------------------


class Flow(FeatureAnswer, tag="flow"):
    """Answer everything that concerns one flow (protocol 5.70)."""

    flow: FlowView
    target: TargetView
    dispatch: DispatchView | UnsetType = UNSET
    """The one under way, else the newest."""
    dispatches: list[DispatchView] | UnsetType = UNSET
    """All of them, the oldest first, in the answer to ``flow_status``."""


class Flows(FeatureAnswer, tag="flows"):
    """Answer ``flow_list`` (protocol 5.71)."""

    flows: list[FlowSummary]
    total: int
    """How many there are; a list holds the newest ones only."""


class FlowReportRecorded(FeatureAnswer, tag="flow_report_recorded"):
    """Answer ``flow_report``: the report is on disk (protocol 5.72)."""

    report_message_id: str
    state: Literal["accepted", "stored"]
    """``stored``: on the disk of the worker's broker, which brings it to that of the flow; no outcome is known yet."""
    step_state: StepState


class FlowsCollected(FeatureAnswer, tag="flows_collected"):
    """Answer ``flow_collect`` with the flows that were, or would be, deleted (protocol 5.73)."""

    flow_ids: list[str]


FlowAnswer: TypeAlias = Flow | Flows | FlowReportRecorded | FlowsCollected

# --- inside a message -----------------------------------------------------------------------------------


class FlowDispatch(Struct, rename="camel", omit_defaults=True):
    """Say in a message that it is a step of a flow, and how its outcome is reported (protocol 12.4)."""

    flow_id: str
    step_id: str
    dispatch_id: str
    attempt: int
    """1 for the first one."""
    instruction: str
    """How to report, in a sentence for whoever does the step."""
    report: dict[str, Any]
    """The members of the ``flow_report`` that are known by now."""
    todo_binding: TodoGates | UnsetType = UNSET
    """Only when the worker keeps a to-do list for us."""
