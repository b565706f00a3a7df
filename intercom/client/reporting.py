"""Write reports down before they are sent, so that no crash between the two loses one (protocol 12.6).

    prepared --sent--> published --the broker has it--> accepted
        |                 |
        +-----------------+--the broker will never take it--> (none)

A record never goes back, and what it says never changes, except that evidence about a to-do item may be added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from intercom.limits import REPORTS_KEPT
from intercom.wire.flows import REPORT_PREFIX, ReportOutcome, StepState, TodoOutcome, TodoStatus

ReportState: TypeAlias = Literal["prepared", "published", "accepted"]

ReportMove: TypeAlias = Literal["prepared", "published", "accepted", "refused"]
"""What becomes of a report."""

MOVES: dict[tuple[ReportState, str], ReportState] = {
    ("prepared", "sent"): "published",
    ("published", "sent"): "published",
    ("published", "taken"): "accepted",
    ("accepted", "taken"): "accepted",
}
"""The next state by (state, event)."""


class ReportRecord(Struct, rename="camel", omit_defaults=True):
    """Hold one report."""

    dispatch_id: str
    outcome: ReportOutcome
    summary: str
    resources: list[str]
    state: ReportState = "prepared"
    attempts: int = 0
    todo_id: str | None = None
    todo_status: TodoStatus | None = None
    step_state: StepState | None = None
    """What became of its step, once the broker has it."""
    is_stored: bool = False
    """Of a flow at another broker, whose word was not heard by then."""
    written_at: int = 0
    """Grows with every record of its place: they are sent in this order."""
    prepared_at: int = 0
    published_at: int | None = None
    accepted_at: int | None = None
    """When it was written down, first sent, and known to have arrived; epoch ms."""
    last_error: str | None = None
    """Code of the refusal after which it is kept."""

    @property
    def message_id(self) -> str:
        """Return the id of the report."""
        return REPORT_PREFIX + self.dispatch_id

    @property
    def content(self) -> tuple[Any, ...]:
        """Return what never changes."""
        return self.outcome, self.summary, self.resources


class Place(Protocol):
    """Keep the records beyond the process."""

    def load(self) -> list[ReportRecord]:
        """Return what is kept, in the order in which it was written; what cannot be read is left out."""

    def save(self, record: ReportRecord) -> None:
        """Keep a record, durably; raise ``HomeError`` or ``AccessDenied`` where that cannot be."""

    def drop(self, dispatch_id: str) -> None:
        """Keep it no longer."""


class Nowhere:
    """Keep nothing: a session without an address has nobody who could bring its report."""

    def load(self) -> list[ReportRecord]:
        """Return nothing."""
        return []

    def save(self, record: ReportRecord) -> None:
        """Do nothing."""

    def drop(self, dispatch_id: str) -> None:
        """Do nothing."""


class Outbox:
    """Hold the reports of one address, or of one session without one."""

    def __init__(
        self,
        place: Place,
        wall: Callable[[], int] = lambda: 0,
        moved: Callable[[ReportRecord, ReportMove], None] = lambda record, move: None,
    ) -> None:
        """Keep them at a place; ``wall`` tells the time of day, ``moved`` is told what became of each."""
        self._place = place
        self._wall = wall
        self._moved = moved
        self._records: dict[str, ReportRecord] = {}
        self._in_flight: set[str] = set()

    def prepare(
        self, dispatch_id: str, outcome: Any, summary: str, resources: list[str], todo: TodoOutcome | None
    ) -> ReportRecord | None:
        """Write a report down, unless it is; return its record, or ``None`` when another one was made."""
        self._refresh()
        record = self._records.get(dispatch_id)
        if record is None:
            newest = max((one.written_at for one in self._records.values()), default=0)
            record = ReportRecord(
                dispatch_id, outcome, summary, resources, written_at=newest + 1, prepared_at=self._wall()
            )
        elif record.content != (outcome, summary, resources):
            return None
        elif todo is None or (todo.todo_id, todo.todo_status) == (record.todo_id, record.todo_status):
            return record
        else:
            state: ReportState = "prepared" if record.state == "prepared" else "published"
            record = replace(record, step_state=None, is_stored=False, state=state)
        if todo is not None:
            record.todo_id, record.todo_status = todo.todo_id, todo.todo_status
        self._keep(record)
        self._moved(record, "prepared")
        return record

    def unsent(self) -> list[ReportRecord]:
        """Return what is not known to have arrived and is not being sent, in the order in which it was written."""
        self._refresh()
        waiting = [one for one in self._records.values() if one.state != "accepted"]
        return [one for one in sorted(waiting, key=_place_of) if one.dispatch_id not in self._in_flight]

    @property
    def has_unsent(self) -> bool:
        """Tell whether something is known to be written down and not to have arrived."""
        return any(record.state != "accepted" for record in self._records.values())

    def sent(self, record: ReportRecord) -> None:
        """Take notice that a report is being written to the broker."""
        self._in_flight.add(record.dispatch_id)
        record.state = MOVES[record.state, "sent"] if record.state != "accepted" else record.state
        record.attempts += 1
        record.published_at = record.published_at or self._wall()
        self._keep(record)
        self._moved(record, "published")

    def accepted(self, record: ReportRecord, step_state: StepState, *, is_stored: bool = False) -> None:
        """Take notice that the broker has it; ``is_stored``: it brings it to another one, which has not answered."""
        self._in_flight.discard(record.dispatch_id)
        record.state = MOVES[record.state, "taken"]
        record.step_state = step_state
        record.is_stored = is_stored
        record.accepted_at = self._wall()
        record.last_error = None
        self._keep(record)
        self._moved(record, "accepted")
        settled = sorted((one for one in self._records.values() if one.state == "accepted"), key=_place_of)
        for old in settled[:-REPORTS_KEPT]:
            self._forget(old.dispatch_id)

    def left(self, record: ReportRecord) -> None:
        """Take notice that nobody sends it any more."""
        self._in_flight.discard(record.dispatch_id)

    def refused(self, record: ReportRecord, code: str) -> None:
        """Take notice that the broker will not take it; only where that can change it is kept."""
        record.last_error = code
        if code not in KEPT_AFTER:
            self._forget(record.dispatch_id)
        elif record.dispatch_id in self._records:
            self._keep(record)
        self._moved(record, "refused")

    def _keep(self, record: ReportRecord) -> None:
        self._records[record.dispatch_id] = record
        self._place.save(record)

    def _forget(self, dispatch_id: str) -> None:
        self._records.pop(dispatch_id, None)
        self._place.drop(dispatch_id)

    def _refresh(self) -> None:
        """Look at what other processes of the address have written down."""
        for record in self._place.load():
            if record.dispatch_id not in self._in_flight:
                self._records[record.dispatch_id] = record


KEPT_AFTER = frozenset({"feature_not_granted", "store_unusable"})
"""Refusals that say nothing of the report."""


def _place_of(record: ReportRecord) -> int:
    return record.written_at
