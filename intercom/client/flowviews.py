"""Show what the broker tells of flows in the form a program works with.

Times are epoch milliseconds. What is absent is ``None``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeVar

from msgspec import Struct, convert, to_builtins

from intercom.wire import flows
from intercom.wire.flows import (
    BindingState,
    FlowState,
    OutcomeState,
    ReportOutcome,
    StepState,
    TodoGates,
    TodoOutcome,
    TodoStatus,
    TransportState,
)

__all__ = [
    "CreatorAddress",
    "EndEvidence",
    "ExactIdentity",
    "Flow",
    "FlowDispatch",
    "FlowList",
    "FlowReported",
    "FlowSummary",
    "FlowTarget",
    "FlowWait",
    "Step",
    "StepReport",
    "TodoBinding",
    "TodoGates",
    "TodoOutcome",
    "TodoStatus",
]

Shown = TypeVar("Shown", bound=Struct)


class _View(Struct, frozen=True, kw_only=True, rename="camel"):
    """Read members as they are on the wire, and let absent ones be ``None``."""


class ExactIdentity(_View, frozen=True, kw_only=True):
    """Name one incarnation of one session of one broker."""

    broker_id: str
    session_id: str
    incarnation: str
    runtime_session_id: str | None = None


class StepReport(_View, frozen=True, kw_only=True):
    """Hold what a worker reported; its texts are kept for a day after the flow is over."""

    outcome: ReportOutcome
    reported_at: int
    summary: str | None = None
    resources: tuple[str, ...] | None = None
    todo_outcome: TodoOutcome | None = None
    prepared_at: int | None = None
    """When its worker wrote it down, by the clock of the worker."""
    attempts: int = 1
    """How often it was sent until it was recorded."""


class EndEvidence(_View, frozen=True, kw_only=True):
    """Say by what other sign the work ended, and until when a report may still come."""

    detail: str
    observed_at: int
    deadline: int


class TodoBinding(_View, frozen=True, kw_only=True):
    """Describe the link between an attempt and an item of the worker's to-do list."""

    negotiated: bool
    """False: the worker keeps no such list for the broker, and the gates ask for nothing."""
    state: BindingState | None = None
    todo_id: str | None = None
    todo_status: TodoStatus | None = None
    reason: str | None = None


class FlowDispatch(_View, frozen=True, kw_only=True):
    """Describe one attempt of one step."""

    dispatch_id: str
    step_id: str
    target_identity: ExactIdentity
    transport: TransportState
    outcome: OutcomeState
    created_at: int
    revision: int
    published_at: int | None = None
    accepted_at: int | None = None
    delivery_state: Literal["accepted", "replayed"] | None = None
    completed_at: int | None = None
    reason: str | None = None
    correlation: str | None = None
    report: StepReport | None = None
    evidence: EndEvidence | None = None
    binding: TodoBinding | None = None
    ignored_report_at: int | None = None
    waits_until: int | None = None
    """When it becomes ambiguous unless something comes first."""


class Step(_View, frozen=True, kw_only=True):
    """Describe one step."""

    step_id: str
    state: StepState
    attempts: tuple[str, ...]
    """Ids of its dispatches, the oldest first."""
    prompt: str | None = None
    current_dispatch_id: str | None = None
    result: StepReport | None = None
    todo_binding: TodoGates | None = None
    report_timeout_ms: int | None = None


class FlowWait(_View, frozen=True, kw_only=True):
    """Say what a flow waits for, and since when."""

    what: str
    since: int


class FlowTarget(_View, frozen=True, kw_only=True):
    """Say whether the target of a flow is here."""

    found: bool
    exact: bool
    """It is the very session of the latest attempt."""
    state: Literal["active", "reconnecting", "closed"] | None = None
    session_id: str | None = None
    reason: str | None = None


class CreatorAddress(_View, frozen=True, kw_only=True):
    """Name an address by its name and its home group."""

    name: str
    group: str


class Flow(_View, frozen=True, kw_only=True):
    """Describe one flow; ``dispatches`` and the prompts of its steps are told where its whole status was asked for."""

    flow_id: str
    target: str
    state: FlowState
    group: str
    created_by: str
    created_at: int
    updated_at: int
    revision: int
    steps: tuple[Step, ...]
    next_actions: tuple[str, ...]
    """What may be done with it now, such as ``start`` or ``retry STEP``."""
    target_identity: ExactIdentity | None = None
    active_step_id: str | None = None
    reason: str | None = None
    last_admit_reason: str | None = None
    last_admit_at: int | None = None
    admit_attempts: int = 0
    waiting: FlowWait | None = None
    is_yours: bool = False
    """Whether this session, or its address, has created it."""
    creator_address: CreatorAddress | None = None
    """The address under which it was created."""
    target_state: FlowTarget | None = None
    dispatch: FlowDispatch | None = None
    """The attempt under way, else the newest."""
    dispatches: tuple[FlowDispatch, ...] | None = None

    def step(self, step_id: str) -> Step:
        """Return the step with this id; raises ``KeyError``."""
        for step in self.steps:
            if step.step_id == step_id:
                return step
        raise KeyError(step_id)


class FlowSummary(_View, frozen=True, kw_only=True):
    """Describe one flow in a list."""

    flow_id: str
    target: str
    state: FlowState
    group: str
    created_by: str
    created_at: int
    updated_at: int
    steps_completed: int
    steps: int
    active_step_id: str | None = None
    waiting: FlowWait | None = None


class FlowList(_View, frozen=True, kw_only=True):
    """Hold the newest flows a session may control; ``total`` counts all."""

    flows: tuple[FlowSummary, ...]
    total: int

    def __iter__(self) -> Iterator[FlowSummary]:
        """Return the flows one by one, the newest first."""
        return iter(self.flows)


class FlowReported(_View, frozen=True, kw_only=True):
    """Say that a report is on disk at the broker, and what became of its step."""

    report_message_id: str
    step_state: StepState
    state: Literal["accepted", "stored"] = "accepted"
    """``stored``: the flow is at another broker, which has not said what became of the step; the report is brought
    there as soon as that can be, and need not be repeated."""


def flow_of(answer: flows.Flow) -> Flow:
    """Return the flow an answer tells of."""
    members: dict[str, Any] = to_builtins(answer)
    shown = {**members["flow"], "targetState": members["target"]}
    for name in ("dispatch", "dispatches"):
        if name in members:
            shown[name] = members[name]
    return convert(shown, Flow)


def shown(answer: Struct, kind: type[Shown]) -> Shown:
    """Return an answer in the form of ``kind``."""
    return convert(to_builtins(answer), kind)
