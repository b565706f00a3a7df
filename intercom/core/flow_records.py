"""Define what is stored of flows: one row a flow, one row a dispatch; their texts lie in bodies of their own."""

from __future__ import annotations

from msgspec import Struct


class TargetIdentity(Struct, frozen=True):
    """Name one incarnation of one session of one broker."""

    broker_id: str
    session_id: str
    incarnation: str
    runtime_session_id: str | None = None


class GatesRecord(Struct, frozen=True):
    """Describe what a step asks of the to-do item it is bound to."""

    label: str | None = None
    require_completed: bool = False
    conflict_check: bool = False


class StepRecord(Struct, frozen=True):
    """Describe one step of a flow."""

    step_id: str
    body: int
    """Number of the body that holds its prompt."""
    state: str = "pending"
    attempts: tuple[str, ...] = ()
    """Ids of its dispatches, the oldest first; one that was taken back before anything was sent does not count."""
    current: str | None = None
    """Id of the dispatch that is under way, or was the last one."""
    gates: GatesRecord | None = None
    report_timeout_ms: int | None = None


class FlowRecord(Struct, frozen=True, kw_only=True):
    """Describe one flow; steps keep their order for ever."""

    number: int
    """Key of the row: grows with every flow in the life of the journal, also when earlier ones are deleted."""
    flow_id: str
    revision: int
    """Grows by one with every event of its stream."""
    state: str
    target: str
    group: str
    created_by: str
    """Sender identity of whoever created it."""
    creator: str
    """What that one was called."""
    creator_session: str
    created_at: int
    updated_at: int
    """Epoch ms, both."""
    steps: tuple[StepRecord, ...]
    active_step: str | None = None
    identity: TargetIdentity | None = None
    """Of the target at the latest attempt."""
    reason: str | None = None
    admit_reason: str | None = None
    admit_at: int | None = None
    admit_attempts: int = 0
    over_at: int | None = None
    """When it came to an end, epoch ms."""

    @property
    def texts(self) -> tuple[int, ...]:
        """Return the numbers of its prompts."""
        return tuple(step.body for step in self.steps)

    @property
    def needed_texts(self) -> set[int]:
        """Return the numbers of the prompts it may still hand out: of what is not completed, while it may go on."""
        if self.state in ("completed", "cancelled"):
            return set()
        return {step.body for step in self.steps if step.state != "completed"}


class ReportRecord(Struct, frozen=True):
    """Describe what a worker reported; summary and resources lie in the body with this number."""

    outcome: str
    body: int
    digest: str
    """SHA-256 (hex) of outcome, summary and resources: tells a repeat from another report."""
    at: int
    todo_id: str | None = None
    todo_status: str | None = None
    prepared_at: int | None = None
    """When the worker wrote it down (epoch ms, by its clock), as it says."""
    attempts: int = 1
    """How often it was sent until it arrived, as the worker says."""


class EvidenceRecord(Struct, frozen=True):
    """Describe a sign that the work ended without a report; until the deadline one may come."""

    detail: str
    at: int
    deadline: int


class BindingRecord(Struct, frozen=True):
    """Describe the link between a dispatch and an item of the worker's to-do list."""

    state: str = "pending"
    todo_id: str | None = None
    todo_status: str | None = None
    reason: str | None = None


class DispatchRecord(Struct, frozen=True, kw_only=True):
    """Describe one attempt of one step: an intent that never changes, and what became of it."""

    number: int
    """Key of the row: grows with every dispatch in the life of the journal."""
    dispatch_id: str
    flow_id: str
    step_id: str
    group: str
    """Of its flow."""
    revision: int
    identity: TargetIdentity
    created_at: int
    negotiated: bool
    """The worker keeps a to-do list for us."""
    address: int | None = None
    """Number of the address under which the worker acts; whoever acts under it may bring its report."""
    transport: str = "prepared"
    outcome: str = "pending"
    correlation: str | None = None
    published_at: int | None = None
    accepted_at: int | None = None
    delivery_state: str | None = None
    report: ReportRecord | None = None
    evidence: EvidenceRecord | None = None
    binding: BindingRecord | None = None
    reason: str | None = None
    completed_at: int | None = None
    ignored_at: int | None = None

    @property
    def texts(self) -> tuple[int, ...]:
        """Return the number of the text of its report, if there is one."""
        return () if self.report is None else (self.report.body,)


class AnswerRecord(Struct, frozen=True):
    """Describe what the broker of a flow said to a report: the state of the step, or the code of its refusal."""

    step_state: str | None = None
    code: str | None = None
    reason: str = ""


class HostedRecord(Struct, frozen=True, kw_only=True):
    """Describe an attempt that a session here was handed, of a flow that is at another broker."""

    number: int
    """Key of the row."""
    dispatch_id: str
    peer: str
    """The broker of its flow."""
    flow_id: str
    step_id: str
    group: str
    identity: TargetIdentity
    stored_at: int
    """Epoch ms."""
    address: int | None = None
    """Number of the address under which the worker acts; whoever acts under it may bring its report."""
    transport: str = "prepared"
    offers: int = 0
    """How often its message was handed over."""
    report: ReportRecord | None = None
    answer: AnswerRecord | None = None
    """What the broker of the flow said to it."""
    end: str | None = None
    """``lost``: its message was given up; ``gone``: its session will not come back; ``over``: its flow says so;
    ``refused``: it was never handed over."""
    reason: str | None = None
    over_at: int | None = None
    """When the broker of the flow said that it is over, epoch ms."""
