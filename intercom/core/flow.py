"""Hold one flow and one attempt of its steps: what is recorded of them, and what only this process knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from intercom.core import flow_tables as tables
from intercom.core.flow_records import DispatchRecord, FlowRecord, StepRecord
from intercom.core.mailboxes import Mail


class Dispatch:
    """Hold one attempt, and what only this process knows of it."""

    __slots__ = ("accepted_since", "evidence_since", "mail", "record", "report_since", "ticket")

    def __init__(self, record: DispatchRecord) -> None:
        self.record = record
        self.ticket = 0
        """Of its intent; once that is committed the target may have been handed the message."""
        self.mail: Mail | None = None
        """The message that carries it, as long as it is not confirmed."""
        self.accepted_since = 0
        self.report_since = 0
        self.evidence_since = 0
        """Since when the worker has it, its report waits for evidence, and evidence for a report (monotonic ms)."""

    @property
    def id(self) -> str:
        """Return its id."""
        return self.record.dispatch_id

    @property
    def is_open(self) -> bool:
        """Tell whether nothing has decided about it."""
        return self.record.outcome == tables.OUTCOME.begins


class Flow:
    """Hold one flow, and what only this process knows of it."""

    __slots__ = ("deferred_at", "is_read", "lost_texts", "record", "refused_at", "ticket", "turn")

    def __init__(self, record: FlowRecord) -> None:
        self.record = record
        self.ticket = 0
        """Of its last change."""
        self.deferred_at: int | None = None
        """When it was last counted that its target cannot be reached (monotonic ms)."""
        self.refused_at: int | None = None
        """When the broker of its target refused a step (monotonic ms)."""
        self.is_read = False
        """The text of its next step is being read."""
        self.turn = 0
        """Grows with every step that is handed out: flows with a smaller one come before it."""
        self.lost_texts: frozenset[int] = frozenset()
        """Numbers of prompts that are known not to be there."""

    @property
    def id(self) -> str:
        """Return its id."""
        return self.record.flow_id

    @property
    def is_live(self) -> bool:
        """Tell whether it is not over."""
        return self.record.state in tables.LIVE

    @property
    def next_step(self) -> StepRecord | None:
        """Return the first step that is not completed."""
        return next((step for step in self.record.steps if step.state != "completed"), None)

    @property
    def textless(self) -> StepRecord | None:
        """Return the first step that can never be handed out, because its text is lost."""
        if not self.lost_texts & self.record.needed_texts:
            return None
        return next(step for step in self.record.steps if step.state != "completed" and step.body in self.lost_texts)

    def read(self, numbers: Iterable[int], bodies: Mapping[int, bytes]) -> None:
        """Take notice of which of its texts are there."""
        self.lost_texts = (self.lost_texts - frozenset(bodies)) | (frozenset(numbers) - frozenset(bodies))

    def step(self, step_id: str) -> StepRecord | None:
        """Return the step with this id."""
        return next((step for step in self.record.steps if step.step_id == step_id), None)
