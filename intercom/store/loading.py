"""Read what a new broker has to know out of the store, and find the rows that have had their time."""

from __future__ import annotations

import sqlite3
from typing import TypeVar

from msgspec import Struct

from intercom.core.records import (
    AddressRecord,
    AssignmentRecord,
    CommandRecord,
    DeliveryRecord,
    DiagnosisRecord,
    DispatchRecord,
    EventRecord,
    FlowRecord,
    HostedRecord,
    IdempotencyRecord,
    InboxRecord,
    InvocationRecord,
    KnownSessionRecord,
    LinkRecord,
    MailRecord,
    OutboxRecord,
    PeerRecord,
    PolicyRecord,
    Recovered,
)
from intercom.store.history import last_sequence, read_newest, read_records
from intercom.store.operations import load_operations
from intercom.store.rows import RETIRED_COLUMNS, retired_from_row

Told = TypeVar("Told", FlowRecord, DispatchRecord, HostedRecord)
_SENDERS = "SELECT number, sender FROM bodies WHERE sender IS NOT NULL AND number IN (SELECT number FROM invocations)"


class Loaded(Struct, frozen=True):
    """Hold the contents of a store at start."""

    recovered: Recovered
    stale: list[int]
    """Numbers of rows to delete: expired, or replaced by a later row of the same message id."""


def load(connection: sqlite3.Connection, now_ms: int, ttl_ms: int, *, whole: bool = False) -> Loaded:
    """Read what a start needs; nothing is written. The connection's ``text_factory`` is ``text_or_bytes``.

    Of many operations those that are settled are left for later unless ``whole``.
    A row expires ``ttl_ms`` after its reservation, except an accepted question nobody has answered and whose deadline
    is to come, and a message that waits as mail. Times in the future, as a clock that was set back leaves them, count
    as now.
    Raises ``StoreUnusable`` when a row does not tell which message id it is about.
    """
    operations = load_operations(connection, now_ms, ttl_ms, whole=whole)
    damaged, last_number = operations.damaged, operations.last_number
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
    diagnoses, deliveries, peers, outbox = [], [], [], []
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
    for row, letter in read_records(connection, OutboxRecord):
        last_number = max(last_number, row[0])
        if letter is not None:
            outbox.append(letter)
    hosted = _whole(connection, HostedRecord, "hosted")
    last_number = max(last_number, *(attempt.number for attempt in hosted), 0)
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
        operations=operations.records,
        left_until=operations.left_until,
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
        senders={number: sender for number, sender in connection.execute(_SENDERS) if type(sender) is bytes},
        diagnoses=diagnoses,
        deliveries=deliveries,
        peers=peers,
        outbox=outbox,
        hosted=hosted,
        lost_texts=frozenset(number for flow in flows for number in _lost(connection, flow)),
        last_sequence=last_sequence(connection),
    )
    return Loaded(recovered, operations.stale)


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


def text_or_bytes(content: bytes) -> str | bytes:
    """Decode a stored text; one that is not UTF-8 stays bytes, so that it spoils its own row only."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content
