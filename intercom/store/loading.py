"""Read what a new broker has to know out of the store, and find the rows that have had their time."""

from __future__ import annotations

import sqlite3
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from intercom.core.records import (
    AddressRecord,
    AssignmentRecord,
    CommandRecord,
    DeliveryRecord,
    DiagnosisRecord,
    DispatchRecord,
    EventRecord,
    FlowRecord,
    IdempotencyRecord,
    InboxRecord,
    InvocationRecord,
    KnownSessionRecord,
    LinkRecord,
    MailRecord,
    OperationRecord,
    OperationState,
    PeerRecord,
    PolicyRecord,
    Recovered,
)
from intercom.store.failures import StoreUnusable
from intercom.store.history import last_sequence, read_newest, read_records
from intercom.store.rows import (
    OPERATION_COLUMNS,
    RETIRED_COLUMNS,
    operation_from_row,
    retired_from_row,
)

Told = TypeVar("Told", FlowRecord, DispatchRecord)


class Loaded(Struct, frozen=True):
    """Hold the contents of a store at start."""

    recovered: Recovered
    stale: list[int]
    """Numbers of rows to delete: expired, or replaced by a later row of the same message id."""


def load(connection: sqlite3.Connection, now_ms: int, ttl_ms: int) -> Loaded:
    """Read all rows; nothing is written. The connection's ``text_factory`` is ``text_or_bytes``.

    A row expires ``ttl_ms`` after its reservation, except an accepted question nobody has answered and whose deadline
    is to come, and a message that waits as mail. Times in the future, as a clock that was set back leaves them, count
    as now.
    Raises ``StoreUnusable`` when a row does not tell which message id it is about.
    """
    newest = _newest(connection)
    operations: list[OperationRecord] = []
    damaged: set[str] = set()
    stale: list[int] = []
    last_number = 0
    for row in connection.execute(f"SELECT {OPERATION_COLUMNS} FROM operations ORDER BY number"):
        number, message_id, reserved_at = row[0], row[1], row[8]
        last_number = max(last_number, number)
        if newest.get(message_id) != number:
            stale.append(number)
            continue
        record = operation_from_row(row)
        if type(reserved_at) is int and reserved_at + ttl_ms < now_ms and not _outlives(record, now_ms):
            stale.append(number)
        elif record is None:
            damaged.add(message_id)
        else:
            operations.append(_not_later_than(record, now_ms))
    mail = []
    for row, found in read_records(connection, MailRecord):
        last_number = max(last_number, row[0])
        if found is not None:
            mail.append(found)
        elif type(row[2]) is str:
            damaged.add(row[2])
    inbox = []
    for row, parked in read_records(connection, InboxRecord):
        last_number = max(last_number, row[0])
        if parked is not None:
            inbox.append(parked)
        elif type(row[1]) is str:
            damaged.add(row[1])
    commands, events = [], []
    for row, command in read_records(connection, CommandRecord):
        last_number = max(last_number, row[1])
        if command is not None:
            commands.append(command)
    for row, event in read_records(connection, EventRecord):
        last_number = max(last_number, row[0])
        if event is not None:
            events.append(event)
    diagnoses, deliveries, peers = [], [], []
    for row, diagnosis in read_records(connection, DiagnosisRecord):
        last_number = max(last_number, row[0])
        if diagnosis is not None:
            diagnoses.append(diagnosis)
    for row, delivery in read_records(connection, DeliveryRecord):
        last_number = max(last_number, row[0])
        if delivery is not None:
            deliveries.append(delivery)
    for row, peer in read_records(connection, PeerRecord):
        last_number = max(last_number, row[0])
        if peer is not None:
            peers.append(peer)
    invocations = []
    for row, invocation in read_records(connection, InvocationRecord):
        last_number = max(last_number, row[0])
        if invocation is not None:
            invocations.append(invocation)
            last_number = max(last_number, invocation.result or 0)
    # Ids of events hold the numbers of mail: one whose history is kept is not used again.
    (last_event,) = connection.execute(
        "SELECT COALESCE(MAX(CAST(SUBSTR(event_id, 6) AS INTEGER)), 0) FROM journal "
        "WHERE event_id >= 'mail:' AND event_id < 'mail;'"
    ).fetchone()
    (last_body,) = connection.execute("SELECT COALESCE(MAX(number), 0) FROM bodies").fetchone()
    flows = _whole(connection, FlowRecord, "flow")
    dispatches = _whole(connection, DispatchRecord, "dispatch")
    # A text that is lost keeps its number, or another one would be taken for it.
    texts = [number for flow in flows for number in flow.texts]
    texts += [number for dispatch in dispatches for number in dispatch.texts]
    retired = map(retired_from_row, connection.execute(f"SELECT {RETIRED_COLUMNS} FROM retired_ids ORDER BY number"))
    recovered = Recovered(
        operations=operations,
        retired_ids=[record for record in retired if record is not None],
        damaged=frozenset(damaged),
        last_number=max(last_number, last_event, last_body, *texts),
        addresses=[found for _, found in read_records(connection, AddressRecord) if found is not None],
        known_sessions=[found for _, found in read_records(connection, KnownSessionRecord) if found is not None],
        mail=mail,
        policies=[found for _, found in read_records(connection, PolicyRecord) if found is not None],
        inbox=inbox,
        assignments=[found for _, found in read_records(connection, AssignmentRecord) if found is not None],
        idempotency=[found for _, found in read_records(connection, IdempotencyRecord) if found is not None],
        flows=flows,
        dispatches=dispatches,
        links=[found for _, found in read_records(connection, LinkRecord) if found is not None],
        commands=commands,
        events=events,
        invocations=invocations,
        diagnoses=diagnoses,
        deliveries=deliveries,
        peers=peers,
        lost_texts=frozenset(number for flow in flows for number in _lost(connection, flow)),
        last_sequence=last_sequence(connection),
    )
    return Loaded(recovered, stale)


def _whole(connection: sqlite3.Connection, kind: type[Told], stream: str) -> list[Told]:
    """Return the rows of a kind; those that are damaged, and all if none is there, as the journal tells them."""
    found = [record for _, record in read_records(connection, kind)]
    rows = {record.number: record for record in found if record is not None}
    if len(rows) < len(found) or not found:
        rows = {record.number: record for record in read_newest(connection, kind, stream)} | rows
    return [rows[number] for number in sorted(rows)]


def _lost(connection: sqlite3.Connection, flow: FlowRecord) -> set[int]:
    """Return the numbers of the prompts a flow may still need and that are not there."""
    needed = flow.needed_texts
    marks = ", ".join("?" * len(needed))
    there = connection.execute(f"SELECT number FROM bodies WHERE number IN ({marks})", tuple(needed))
    return needed - {number for (number,) in there}


def _newest(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the number of the latest row of each message id."""
    newest: dict[str, int] = {}
    for number, message_id in connection.execute("SELECT number, message_id FROM operations ORDER BY number"):
        if type(message_id) is not str:
            # Any message might be the one this row is about, so none could be sent safely.
            raise StoreUnusable("corrupt", f"row {number} of the operations does not hold its message id")
        newest[message_id] = number
    return newest


def _outlives(record: OperationRecord | None, now_ms: int) -> bool:
    if record is None:
        return False
    if record.state is OperationState.QUEUED:
        return True
    question = record.question
    return (
        record.state is OperationState.ACCEPTED
        and question is not None
        and not question.answered
        and question.deadline > now_ms
    )


def _not_later_than(record: OperationRecord, now_ms: int) -> OperationRecord:
    accepted_at = record.accepted_at
    if record.reserved_at <= now_ms and (accepted_at is None or accepted_at <= now_ms):
        return record
    return replace(
        record,
        reserved_at=min(record.reserved_at, now_ms),
        accepted_at=None if accepted_at is None else min(accepted_at, now_ms),
    )


def text_or_bytes(content: bytes) -> str | bytes:
    """Decode a stored text; one that is not UTF-8 stays bytes, so that it spoils its own row only."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content
