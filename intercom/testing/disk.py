"""Keep in memory what a broker would keep on disk, and give ids that are the same every time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from intercom.core.effects import Append
from intercom.core.records import (
    AcceptOperation,
    AnswerQuestion,
    DropOperation,
    DropRetiredId,
    OperationRecord,
    OperationState,
    Recovered,
    RetiredIdRecord,
    SaveOperation,
    SaveRetiredId,
    accepted,
    answered,
)
from intercom.limits import Limits


@dataclass
class MemoryDisk:
    """Hold what was committed, by the rules the store follows."""

    operations: dict[int, OperationRecord] = field(default_factory=dict)
    retired: dict[str, RetiredIdRecord] = field(default_factory=dict)

    def commit(self, append: Append) -> None:
        """Make the changes of one append."""
        for change in append.changes:
            if isinstance(change, SaveOperation):
                self.operations[change.record.number] = change.record
            elif isinstance(change, AcceptOperation):
                if (record := self.operations.get(change.number)) is not None:
                    self.operations[change.number] = accepted(record, change)
            elif isinstance(change, AnswerQuestion):
                if (record := self.operations.get(change.number)) is not None:
                    self.operations[change.number] = answered(record)
            elif isinstance(change, DropOperation):
                self.operations.pop(change.number, None)
            elif isinstance(change, SaveRetiredId):
                self.retired[change.record.session_id] = change.record
            elif isinstance(change, DropRetiredId):
                self.retired.pop(change.session_id, None)

    def recovered(self, wall: int, limits: Limits) -> Recovered:
        """Read everything at a start; what had its time is deleted."""
        newest = {record.message_id: number for number, record in sorted(self.operations.items())}
        for number, record in list(self.operations.items()):
            question = record.question
            is_open = question is not None and not question.answered and question.deadline > wall
            is_kept = is_open and record.state is OperationState.ACCEPTED
            is_over = record.reserved_at + limits.operation_ttl_ms < wall
            if newest[record.message_id] != number or (is_over and not is_kept):
                del self.operations[number]
        return Recovered(
            operations=[self.operations[number] for number in sorted(self.operations)],
            retired_ids=sorted(self.retired.values(), key=lambda row: row.number),
            last_number=max(self.operations, default=0),
        )


def counted_ids() -> Callable[[], str]:
    """Give UUIDs that count up and differ in their first eight digits."""
    count = 0

    def next_id() -> str:
        nonlocal count
        count += 1
        return f"{count:08x}-0000-4000-8000-{count:012x}"

    return next_id
