"""Keep in memory what a broker would keep on disk, and give ids that are the same every time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import asdict, replace

from intercom.core.effects import Append
from intercom.core.journal import stream_of
from intercom.core.records import (
    AcceptOperation,
    AddressRecord,
    AnswerQuestion,
    AssignmentRecord,
    CommandRecord,
    DeliveryRecord,
    DiagnosisRecord,
    DispatchRecord,
    DropBodies,
    DropBody,
    DropOperation,
    DropRetiredId,
    EventRecord,
    FlowRecord,
    Happened,
    HistoryEvent,
    HostedRecord,
    IdempotencyRecord,
    InboxRecord,
    InvocationRecord,
    JournalPage,
    KnownSessionRecord,
    LinkRecord,
    MailRecord,
    OperationRecord,
    OperationState,
    OutboxRecord,
    PeerRecord,
    PolicyRecord,
    Recovered,
    ReleaseBody,
    RetiredIdRecord,
    Row,
    SaveBody,
    SaveOperation,
    SaveRetiredId,
    accepted,
    answered,
)
from intercom.limits import Limits


@dataclass
class Body:
    """Hold one message, and until when it is kept once its mail is over (epoch ms)."""

    message: bytes
    until: int | None = None


@dataclass
class MemoryDisk:
    """Hold what was committed, by the rules the store follows."""

    operations: dict[int, OperationRecord] = field(default_factory=dict)
    retired: dict[str, RetiredIdRecord] = field(default_factory=dict)
    addresses: dict[int, AddressRecord] = field(default_factory=dict)
    known_sessions: dict[str, KnownSessionRecord] = field(default_factory=dict)
    mail: dict[int, MailRecord] = field(default_factory=dict)
    policies: dict[int, PolicyRecord] = field(default_factory=dict)
    inbox: dict[int, InboxRecord] = field(default_factory=dict)
    assignments: dict[str, AssignmentRecord] = field(default_factory=dict)
    idempotency: dict[int, IdempotencyRecord] = field(default_factory=dict)
    flows: dict[int, FlowRecord] = field(default_factory=dict)
    dispatches: dict[int, DispatchRecord] = field(default_factory=dict)
    links: dict[str, LinkRecord] = field(default_factory=dict)
    commands: dict[int, CommandRecord] = field(default_factory=dict)
    events: dict[int, EventRecord] = field(default_factory=dict)
    invocations: dict[int, InvocationRecord] = field(default_factory=dict)
    diagnoses: dict[int, DiagnosisRecord] = field(default_factory=dict)
    deliveries: dict[int, DeliveryRecord] = field(default_factory=dict)
    peers: dict[int, PeerRecord] = field(default_factory=dict)
    outbox: dict[int, OutboxRecord] = field(default_factory=dict)
    hosted: dict[int, HostedRecord] = field(default_factory=dict)
    bodies: dict[int, Body] = field(default_factory=dict)
    journal: list[Happened] = field(default_factory=list)
    sequence: int = 0
    """Greatest number an event ever had."""
    compacted: int = 0
    """Greatest number of an event that was deleted."""

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
            elif isinstance(change, Happened):
                self.journal.append(change)
                self.sequence = change.seq
                self._project(change)
            elif isinstance(change, SaveBody):
                self.bodies[change.number] = Body(change.message)
            elif isinstance(change, ReleaseBody):
                if change.number in self.bodies:
                    self.bodies[change.number].until = change.until
            elif isinstance(change, DropBody):
                self.bodies.pop(change.number, None)
            elif isinstance(change, DropBodies):
                self._drop_bodies(change.before)
            else:
                self._drop_history(change.before)

    def _project(self, event: Happened) -> None:
        rows, key = self._place_of(event.row)
        if event.is_gone:
            rows.pop(key, None)
        elif event.changed is None:
            rows[key] = event.row
        elif key in rows:
            rows[key] = replace(rows[key], **{name: getattr(event.row, name) for name in event.changed})

    def _place_of(self, row: Row) -> tuple[dict[Any, Any], Any]:
        if isinstance(row, AddressRecord):
            return self.addresses, row.number
        if isinstance(row, KnownSessionRecord):
            return self.known_sessions, row.session_id
        if isinstance(row, PolicyRecord):
            return self.policies, row.number
        if isinstance(row, InboxRecord):
            return self.inbox, row.number
        if isinstance(row, AssignmentRecord):
            return self.assignments, row.assignment_id
        if isinstance(row, IdempotencyRecord):
            return self.idempotency, row.number
        if isinstance(row, FlowRecord):
            return self.flows, row.number
        if isinstance(row, DispatchRecord):
            return self.dispatches, row.number
        if isinstance(row, LinkRecord):
            return self.links, row.link_id
        if isinstance(row, CommandRecord):
            return self.commands, row.number
        if isinstance(row, EventRecord):
            return self.events, row.number
        if isinstance(row, InvocationRecord):
            return self.invocations, row.number
        if isinstance(row, DiagnosisRecord):
            return self.diagnoses, row.number
        if isinstance(row, DeliveryRecord):
            return self.deliveries, row.number
        if isinstance(row, PeerRecord):
            return self.peers, row.number
        if isinstance(row, OutboxRecord):
            return self.outbox, row.number
        if isinstance(row, HostedRecord):
            return self.hosted, row.number
        return self.mail, row.number

    def _drop_bodies(self, before: int) -> None:
        for number, body in list(self.bodies.items()):
            if body.until is not None and body.until <= before:
                del self.bodies[number]

    def _drop_history(self, before: int) -> None:
        rows: list[Row] = [
            *self.addresses.values(),
            *self.known_sessions.values(),
            *self.mail.values(),
            *self.policies.values(),
            *self.inbox.values(),
            *self.assignments.values(),
            *self.idempotency.values(),
            *self.flows.values(),
            *self.dispatches.values(),
            *self.links.values(),
            *self.commands.values(),
            *self.events.values(),
            *self.invocations.values(),
            *self.diagnoses.values(),
            *self.deliveries.values(),
            *self.peers.values(),
            *self.outbox.values(),
            *self.hosted.values(),
        ]
        there = {stream_of(row) for row in rows}
        newest = {event.stream: event.seq for event in self.journal}
        last_at: dict[str, int] = {}
        for event in self.journal:
            last_at[event.stream] = max(event.at, last_at.get(event.stream, 0))

        def is_kept(event: Happened) -> bool:
            stream = event.stream
            if stream not in there:
                return last_at[stream] >= before
            tells_all = isinstance(
                event.row, AddressRecord | KnownSessionRecord | FlowRecord | DispatchRecord | LinkRecord | PeerRecord
            )
            is_superseded = tells_all and newest[stream] != event.seq
            return event.at >= before or not is_superseded

        kept = [event for event in self.journal if is_kept(event)]
        dropped = [event.seq for event in self.journal if not is_kept(event)]
        self.compacted = max([self.compacted, *dropped])
        self.journal = kept

    def _numbers(self) -> list[int]:
        rows = (
            *(self.operations, self.mail, self.inbox, self.bodies, self.commands, self.events, self.invocations),
            *(self.diagnoses, self.deliveries, self.peers, self.outbox, self.hosted),
        )
        results = (row.result or 0 for row in self.invocations.values())
        texts = (number for each in (self.flows, self.dispatches) for row in each.values() for number in row.texts)
        return [*(number for each in rows for number in each), *results, *texts, *self._numbers_in_history()]

    def _numbers_in_history(self) -> list[int]:
        return [event.row.number for event in self.journal if isinstance(event.row, MailRecord)]

    def read_bodies(self, numbers: tuple[int, ...]) -> dict[int, bytes]:
        """Return the bodies with these numbers, as far as they are there."""
        return {number: self.bodies[number].message for number in numbers if number in self.bodies}

    def read_history(self, stream: str) -> list[HistoryEvent]:
        """Return the events of a stream, oldest first."""
        return [
            HistoryEvent(
                event.seq,
                event.at,
                event.kind,
                {name: value for name, value in asdict(event.row).items() if not isinstance(value, bytes)},
                event.detail,
            )
            for event in self.journal
            if event.stream == stream
        ]

    def read_page(self, after: int, limit: int) -> JournalPage:
        """Return at most ``limit`` events behind a sequence."""
        events = [event for event in self.journal if event.seq > after][:limit]
        is_whole = len(events) < limit
        return JournalPage(events, self.sequence if is_whole else events[-1].seq, is_whole, self.compacted)

    def recovered(self, wall: int, limits: Limits) -> Recovered:
        """Read everything at a start; what had its time is deleted."""
        newest = {record.message_id: number for number, record in sorted(self.operations.items())}
        for number, record in list(self.operations.items()):
            question = record.question
            is_open = question is not None and not question.answered and question.deadline > wall
            is_kept = (is_open and record.state is OperationState.ACCEPTED) or record.state is OperationState.QUEUED
            is_over = record.reserved_at + limits.operation_ttl_ms < wall
            if newest[record.message_id] != number or (is_over and not is_kept):
                del self.operations[number]
        return Recovered(
            operations=[self.operations[number] for number in sorted(self.operations)],
            retired_ids=sorted(self.retired.values(), key=lambda row: row.number),
            last_number=max([0, *self._numbers()]),
            addresses=[self.addresses[number] for number in sorted(self.addresses)],
            known_sessions=sorted(self.known_sessions.values(), key=lambda row: row.number),
            mail=[self.mail[number] for number in sorted(self.mail)],
            policies=[self.policies[number] for number in sorted(self.policies)],
            inbox=[self.inbox[number] for number in sorted(self.inbox)],
            assignments=sorted(self.assignments.values(), key=lambda row: row.number),
            idempotency=[self.idempotency[number] for number in sorted(self.idempotency)],
            flows=[self.flows[number] for number in sorted(self.flows)],
            dispatches=[self.dispatches[number] for number in sorted(self.dispatches)],
            links=sorted(self.links.values(), key=lambda row: row.number),
            commands=[self.commands[number] for number in sorted(self.commands)],
            events=[self.events[number] for number in sorted(self.events)],
            invocations=[self.invocations[number] for number in sorted(self.invocations)],
            diagnoses=[self.diagnoses[number] for number in sorted(self.diagnoses)],
            deliveries=[self.deliveries[number] for number in sorted(self.deliveries)],
            peers=[self.peers[number] for number in sorted(self.peers)],
            outbox=[self.outbox[number] for number in sorted(self.outbox)],
            hosted=[self.hosted[number] for number in sorted(self.hosted)],
            lost_texts=frozenset(
                number for flow in self.flows.values() for number in flow.needed_texts if number not in self.bodies
            ),
            last_sequence=self.sequence,
        )


def counted_ids() -> Callable[[], str]:
    """Give UUIDs that count up and differ in their first eight digits."""
    count = 0

    def next_id() -> str:
        nonlocal count
        count += 1
        return f"{count:08x}-0000-4000-8000-{count:012x}"

    return next_id
