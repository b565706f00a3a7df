"""Write the journal and the rows its events carry, and read both back (design section 5).

One table a record: its columns are the members of the record. What is in a row is judged when it is read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from enum import Enum
from itertools import compress
from operator import attrgetter
from types import NoneType
from typing import Any, NamedTuple, TypeAlias, TypeVar

from msgspec import MsgspecError, Struct, ValidationError, convert
from msgspec.json import Encoder, decode
from msgspec.structs import astuple

from intercom.core.records import (
    AddressRecord,
    AssignmentRecord,
    CommandRecord,
    DeliveryRecord,
    DiagnosisRecord,
    DispatchRecord,
    DropBodies,
    DropBody,
    DropHistory,
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
    OutboxRecord,
    PeerRecord,
    PolicyRecord,
    ReleaseBody,
    Row,
    SaveBody,
)
from intercom.store.inserting import Insert, runs, spans
from intercom.store.telling import Partly, Telling

AnyRecord = TypeVar(
    "AnyRecord",
    AddressRecord,
    KnownSessionRecord,
    MailRecord,
    InboxRecord,
    AssignmentRecord,
    IdempotencyRecord,
    FlowRecord,
    DispatchRecord,
    PolicyRecord,
    LinkRecord,
    CommandRecord,
    EventRecord,
    InvocationRecord,
    DiagnosisRecord,
    DeliveryRecord,
    OutboxRecord,
    PeerRecord,
    HostedRecord,
)
HistoryChange: TypeAlias = Happened | SaveBody | ReleaseBody | DropBody | DropBodies | DropHistory


class Table(Struct, frozen=True):
    """Name the table of a kind of record."""

    name: str
    key: str
    columns: tuple[str, ...]

    def save(self, columns: Sequence[str]) -> Insert:
        """Return the statement that inserts or replaces rows with these columns; the others become NULL."""
        marks = ", ".join("?" * len(columns))
        return Insert(f"INSERT OR REPLACE INTO {self.name} ({_listed(columns)}) VALUES ", f"({marks})")

    def change(self, columns: Sequence[str], there: Sequence[bool]) -> str:
        """Return the statement that sets these columns of rows with successive keys; those not ``there`` to NULL."""
        marks = zip(columns, there, strict=True)
        values = ", ".join(f'"{column}" = {"?" if is_there else "NULL"}' for column, is_there in marks)
        return f"UPDATE {self.name} SET {values} WHERE {self.key} BETWEEN ? AND ?"

    @property
    def drop(self) -> str:
        """Return the statement that deletes rows with successive keys."""
        return f"DELETE FROM {self.name} WHERE {self.key} BETWEEN ? AND ?"

    @property
    def select(self) -> str:
        """Return the statement that reads all rows in their order."""
        return f"SELECT {_listed(self.columns)} FROM {self.name} ORDER BY number"


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


TABLES: dict[type[Row], Table] = {
    AddressRecord: Table("addresses", "number", AddressRecord.__struct_fields__),
    KnownSessionRecord: Table("sessions", "session_id", KnownSessionRecord.__struct_fields__),
    MailRecord: Table("mail", "number", MailRecord.__struct_fields__),
    PolicyRecord: Table("policies", "number", PolicyRecord.__struct_fields__),
    InboxRecord: Table("inbox", "number", InboxRecord.__struct_fields__),
    AssignmentRecord: Table("assignments", "assignment_id", AssignmentRecord.__struct_fields__),
    IdempotencyRecord: Table("idempotency", "number", IdempotencyRecord.__struct_fields__),
    FlowRecord: Table("flows", "number", FlowRecord.__struct_fields__),
    DispatchRecord: Table("dispatches", "number", DispatchRecord.__struct_fields__),
    LinkRecord: Table("links", "link_id", LinkRecord.__struct_fields__),
    CommandRecord: Table("commands", "number", CommandRecord.__struct_fields__),
    EventRecord: Table("events", "number", EventRecord.__struct_fields__),
    InvocationRecord: Table("invocations", "number", InvocationRecord.__struct_fields__),
    DiagnosisRecord: Table("diagnoses", "number", DiagnosisRecord.__struct_fields__),
    DeliveryRecord: Table("deliveries", "number", DeliveryRecord.__struct_fields__),
    PeerRecord: Table("peers", "number", PeerRecord.__struct_fields__),
    OutboxRecord: Table("outbox", "number", OutboxRecord.__struct_fields__),
    HostedRecord: Table("hosted", "number", HostedRecord.__struct_fields__),
}
_KIND_OF_EVENT: dict[str, type[Row]] = {"inbox": InboxRecord, "assignment": AssignmentRecord}
"""Whose row an event carries, by the beginning of its kind: a message has one stream, wherever it is."""
_KIND_OF_STREAM: dict[str, type[Row]] = {
    "address": AddressRecord,
    "session": KnownSessionRecord,
    "mail": MailRecord,
    "idempotency": IdempotencyRecord,
    "flow": FlowRecord,
    "dispatch": DispatchRecord,
    "policy": PolicyRecord,
    "link": LinkRecord,
    "command": CommandRecord,
    "event": EventRecord,
    "invocation": InvocationRecord,
    "route": DiagnosisRecord,
    "delivery": DeliveryRecord,
    "peer": PeerRecord,
    "outbox": OutboxRecord,
    "hosted": HostedRecord,
}
"""Whose row all other events carry, by the beginning of their stream."""

_KEYS = {kind: attrgetter(table.key) for kind, table in TABLES.items()}
_PARTLY_TOLD: dict[type[Row], Partly] = {
    InvocationRecord: Partly("invocation_id", None),
    MailRecord: Partly("message_id", "number"),
}
"""Rows of which events may hold nothing but what changed: the journal keeps all that is told of one, or nothing."""
_encode = Encoder().encode


class _Binding(NamedTuple):
    """Say which values of some columns are bound, and as what: the same for all values of the same classes."""

    there: tuple[bool, ...]
    """Which of the values are bound; the others are None."""
    conversions: tuple[tuple[int, Callable[[Any], Any]], ...]
    """What is done to those that are bound, by their places."""

    def bound(self, values: Sequence[Any]) -> list[Any]:
        """Return the values to bind."""
        bound = list(compress(values, self.there))
        for place, converted in self.conversions:
            bound[place] = converted(bound[place])
        return bound


_saving: dict[tuple[type[Row], tuple[type, ...]], tuple[Insert, _Binding]] = {}
"""How whole rows are saved, by their kind and the classes of their values: rows of one kind have the same few."""
_changing: dict[tuple[type[Row], tuple[str, ...], tuple[type, ...]], tuple[str, _Binding]] = {}
"""Likewise how some columns of rows are changed."""
_named: dict[tuple[type[Row], tuple[str, ...]], Callable[[Row], tuple[Any, ...]]] = {}
"""Getters of some members of a row."""
_ADD_EVENT = Insert(
    "INSERT OR IGNORE INTO journal (seq, at, stream, kind, event_id, epoch, row, is_gone, detail) VALUES ",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?)",
)
_ADD_PLAIN_EVENT = Insert(
    "INSERT OR IGNORE INTO journal (seq, at, stream, kind, epoch, row, is_gone, detail) VALUES ",
    "(?, ?, ?, ?, ?, ?, 0, ?)",
)
"""Add one that has no id of its own, of a row that is there: binding None takes long."""
_SAVE_BODY = Insert("INSERT OR REPLACE INTO bodies (number, message) VALUES ", "(?, ?)")
_SAVE_TASK = Insert("INSERT OR REPLACE INTO bodies (number, message, sender) VALUES ", "(?, ?, ?)")
_RELEASE_BODIES = "UPDATE bodies SET until = ? WHERE number BETWEEN ? AND ?"
_DROP_BODY = "DELETE FROM bodies WHERE number BETWEEN ? AND ?"
_DROP_BODIES = "DELETE FROM bodies WHERE until <= ?"
_KEEP_SEQUENCE = "INSERT OR REPLACE INTO meta SELECT 'sequence', MAX(seq) FROM journal WHERE seq > 0"
_SUPERSEDED = """
    at < ? AND seq < (
        SELECT MAX(seq) FROM journal AS newer WHERE newer.stream = journal.stream
    ) AND stream IN (
        SELECT 'address:' || number FROM addresses UNION ALL SELECT 'session:' || session_id FROM sessions
        UNION ALL SELECT 'flow:' || number FROM flows UNION ALL SELECT 'dispatch:' || dispatch_id FROM dispatches
        UNION ALL SELECT 'policy:' || number FROM policies
        UNION ALL SELECT 'link:' || link_id FROM links
        UNION ALL SELECT 'peer:' || broker_id FROM peers
    )
"""
# A stream goes as a whole, whatever the clock did between its events: what is left of one must not bring a row back.
_OVER = """
    stream IN (
        SELECT stream FROM journal GROUP BY stream
        HAVING MAX(at) < ?
    ) AND stream NOT IN (
        SELECT 'address:' || number FROM addresses
        UNION ALL SELECT 'session:' || session_id FROM sessions
        UNION ALL SELECT 'mail:' || message_id FROM mail
        UNION ALL SELECT 'policy:' || number FROM policies
        UNION ALL SELECT 'mail:' || inbox_id FROM inbox
        UNION ALL SELECT 'mail:' || message_id FROM assignments
        UNION ALL SELECT 'idempotency:' || number FROM idempotency
        UNION ALL SELECT 'flow:' || number FROM flows
        UNION ALL SELECT 'dispatch:' || dispatch_id FROM dispatches
        UNION ALL SELECT 'link:' || link_id FROM links
        UNION ALL SELECT 'command:' || number FROM commands
        UNION ALL SELECT 'event:' || number FROM events
        UNION ALL SELECT 'invocation:' || number FROM invocations
        UNION ALL SELECT 'route:' || diagnosis_id FROM diagnoses
        UNION ALL SELECT 'delivery:' || delivery_id FROM deliveries
        UNION ALL SELECT 'peer:' || broker_id FROM peers
        UNION ALL SELECT 'outbox:' || number FROM outbox
        UNION ALL SELECT 'hosted:' || dispatch_id FROM hosted
    )
"""
_KEEP_COMPACTED = """
    INSERT OR REPLACE INTO meta
    SELECT 'compacted', MAX(deleted, COALESCE((SELECT value FROM meta WHERE key = 'compacted'), 0))
    FROM (SELECT MAX(seq) AS deleted FROM journal WHERE {}) WHERE deleted IS NOT NULL
"""
_READ_BEFORE = "SELECT kind, row FROM journal WHERE stream = ? AND seq <= ? ORDER BY seq"
_READ_PAGE = """
    SELECT seq, at, stream, kind, event_id, row, is_gone, detail FROM journal WHERE seq > ? ORDER BY seq LIMIT ?
"""


def write(connection: sqlite3.Connection, changes: Sequence[HistoryChange], epoch: int) -> int:
    """Apply changes in their order within the transaction of the caller; return the greatest sequence number."""
    last = 0
    written = _Written(epoch)
    bodies = _Bodies()
    happened, save = written.add, bodies.save
    change: Any  # its class tells what it is
    for change in changes:
        kind = change.__class__
        if kind is Happened:
            last = change.seq
            happened(change)
        elif kind is SaveBody:
            save(change)
        elif kind is ReleaseBody:
            bodies.released[change.number] = change.until
        elif kind is DropBody:
            bodies.drop(change.number)
        elif kind is DropBodies:
            bodies.write(connection)
            connection.execute(_DROP_BODIES, (change.before,))
        elif kind is DropHistory:
            written.write(connection)
            connection.execute(_KEEP_SEQUENCE)
            for deleted in (_SUPERSEDED, _OVER):
                connection.execute(_KEEP_COMPACTED.format(deleted), (change.before,))
                connection.execute(f"DELETE FROM journal WHERE {deleted}", (change.before,))
    written.write(connection)
    bodies.write(connection)
    return last


_Change: TypeAlias = tuple[type[Row], tuple[str, ...], tuple[Any, ...]]
"""A kind of row, columns of it, and what they are set to."""


class _Written:
    """Collect events, and what they come to: of what happened to one row only the last is written to it."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._begin()

    def _begin(self) -> None:
        self._events: list[tuple[Any, ...]] = []
        self._plain: list[tuple[Any, ...]] = []
        self._newest: dict[tuple[type[Row], Any], tuple[Happened, _Change | None]] = {}
        """With what to write of it; None: all."""
        self._texts: dict[_Change, str] = {}
        """What the journal holds of changes: one and the same thing happens to many rows at once."""

    def add(self, event: Happened) -> None:
        """Take one event."""
        row, changed, epoch = event.row, event.changed, self._epoch
        kind = row.__class__
        change: _Change | None = None
        if changed is None:
            text = _encode(row).decode()
        else:
            change = _change_of(row, changed)
            text = self._texts.get(change) or self._told(change)
            key = _PARTLY_TOLD[kind].key
            if key is not None:
                text = f'{{"{key}":{getattr(row, key)}{"," if changed else ""}{text[1:]}'
        detail = _encode(event.detail).decode() if event.detail else "{}"
        if event.event_id is None and not event.is_gone:
            self._plain.append((event.seq, event.at, event.stream, event.kind, epoch, text, detail))
        else:
            about = (event.seq, event.at, event.stream, event.kind, event.event_id)
            self._events.append((*about, epoch, text, int(event.is_gone), detail))
        place, newest = (kind, _KEYS[kind](row)), self._newest
        if change is not None and place in newest:
            before = newest[place][1]
            change = None if before is None else _change_of(row, tuple(dict.fromkeys((*before[1], *change[1]))))
        newest[place] = event, change

    def _told(self, change: _Change) -> str:
        _, columns, values = change
        text = self._texts[change] = _encode(dict(zip(columns, values, strict=True))).decode()
        return text

    def write(self, connection: sqlite3.Connection) -> None:
        """Write what was collected, and begin anew."""
        _ADD_PLAIN_EVENT.run(connection, self._plain)
        _ADD_EVENT.run(connection, self._events)
        rows: dict[Insert, list[Sequence[Any]]] = {}
        gone: dict[type[Row], list[Any]] = {}
        changes: dict[_Change, list[int]] = {}
        for (kind, key), (event, change) in self._newest.items():
            if event.is_gone:
                gone.setdefault(kind, []).append(key)
            elif change is None:
                statement, values = _projection(event.row)
                rows.setdefault(statement, []).append(values)
            else:
                changes.setdefault(change, []).append(key)
        for kind, keys in gone.items():
            connection.executemany(TABLES[kind].drop, runs(keys))
        for statement, many in rows.items():
            statement.run(connection, many)
        for change, numbers in changes.items():
            update, bound = _update(*change)
            connection.executemany(update, [(*bound, *run) for run in runs(numbers)])
        self._begin()


class _Bodies:
    """Collect what becomes of texts."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._saved: dict[int, SaveBody] = {}
        self.released: dict[int, int | None] = {}
        """Until when each is kept."""
        self._gone: dict[int, None] = {}

    def save(self, body: SaveBody) -> None:
        """Keep a text, whatever became of one with this number before."""
        self._saved[body.number] = body
        self.released.pop(body.number, None)

    def drop(self, number: int) -> None:
        """Delete a text."""
        self._saved.pop(number, None)
        self.released.pop(number, None)
        self._gone[number] = None

    def write(self, connection: sqlite3.Connection) -> None:
        """Write what was collected, and begin anew."""
        if self._gone:
            connection.executemany(_DROP_BODY, runs(self._gone))
        plain: list[Sequence[Any]] = []
        signed: list[Sequence[Any]] = []
        for number, body in self._saved.items():  # about bytes a registry of adapters is asked
            if body.sender is None:
                plain.append((number, bytearray(body.message)))
            else:
                signed.append((number, bytearray(body.message), bytearray(body.sender)))
        _SAVE_BODY.run(connection, plain)
        _SAVE_TASK.run(connection, signed)
        if self.released:
            connection.executemany(_RELEASE_BODIES, spans(self.released))
        self._begin()


def project(connection: sqlite3.Connection, row: Row, *, is_gone: bool) -> None:
    """Bring the row of an event to what the event says; a replay of the journal does the same."""
    if is_gone:
        kind = row.__class__
        connection.executemany(TABLES[kind].drop, runs([_KEYS[kind](row)]))
    else:
        statement, values = _projection(row)
        statement.run(connection, [values])


def _projection(row: Row) -> tuple[Insert, Sequence[Any]]:
    """Return the statement that brings a whole row to what an event says, with its values."""
    # This runs for every change: what is the same for all rows whose values are of the same classes is found once.
    kind = row.__class__
    values = astuple(row)
    classes = tuple(map(type, values))
    saving = _saving.get((kind, classes))
    if saving is None:
        table, binding = TABLES[kind], _binding(classes)
        saving = _saving[kind, classes] = table.save(list(compress(table.columns, binding.there))), binding
    statement, binding = saving
    return statement, binding.bound(values)


def _update(kind: type[Row], columns: tuple[str, ...], values: tuple[Any, ...]) -> tuple[str, Sequence[Any]]:
    """Return the statement that sets these columns of successive rows, with its values."""
    classes = tuple(map(type, values))
    changing = _changing.get((kind, columns, classes))
    if changing is None:
        binding = _binding(classes)
        changing = _changing[kind, columns, classes] = TABLES[kind].change(columns, binding.there), binding
    statement, binding = changing
    return statement, binding.bound(values)


def _change_of(row: Row, columns: tuple[str, ...]) -> _Change:
    kind = row.__class__
    getter = _named.get((kind, columns))
    if getter is None:
        getter = _named[kind, columns] = _getter(columns)
    return kind, columns, getter(row)


def _getter(columns: tuple[str, ...]) -> Callable[[Row], tuple[Any, ...]]:
    if len(columns) > 1:
        return attrgetter(*columns)
    return lambda row: tuple([getattr(row, column) for column in columns])


def _binding(classes: tuple[type, ...]) -> _Binding:
    there = tuple(each is not NoneType for each in classes)
    bound = enumerate(compress(classes, there))
    return _Binding(there, tuple((place, _stored_as(each)) for place, each in bound if each not in _AS_THEY_ARE))


def _stored_as(kind: type) -> Callable[[Any], Any]:
    """Return what makes of a value of this class one that Python's module binds at once.

    About others, bytes and bool among them, it asks a registry of adapters first.
    """
    if kind is bytes:
        return bytearray
    if kind is bool:
        return int
    return attrgetter("value") if issubclass(kind, Enum) else _as_text


_AS_THEY_ARE = frozenset({int, str})


def _as_text(value: Any) -> str:
    return _encode(value).decode()


def replay(connection: sqlite3.Connection) -> None:
    """Make the rows anew out of the journal, within the transaction of the caller."""
    for table in TABLES.values():
        connection.execute(f"DELETE FROM {table.name}")
    events = connection.execute("SELECT stream, kind, row, is_gone FROM journal ORDER BY seq").fetchall()
    telling = Telling(_PARTLY_TOLD)
    for stream, kind, told, is_gone in events:
        row = record_kind(stream, kind)
        project(connection, decode(telling.whole(stream, row, told), type=row), is_gone=bool(is_gone))


def record_kind(stream: str, kind: str) -> type[Row]:
    """Return the kind of row that an event of this kind in this stream carries; raises ``KeyError`` for an unknown."""
    return _KIND_OF_EVENT.get(kind.partition(".")[0]) or _KIND_OF_STREAM[stream.partition(":")[0]]


def record_from(kind: type[AnyRecord], row: Sequence[Any]) -> AnyRecord | None:
    """Return the record of a row in the order of its columns, or None when the row is damaged."""
    members = dict(zip(kind.__struct_fields__, row, strict=True))
    try:
        for name in _NESTED & members.keys():
            if members[name] is not None:
                members[name] = decode(members[name])
        for name in _FLAGS & members.keys():
            if members[name] not in (0, 1):
                return None
            members[name] = bool(members[name])
        return convert(members, kind, builtin_types=(bytes,))
    except (ValidationError, ValueError, TypeError, RecursionError):
        return None


def read_records(connection: sqlite3.Connection, kind: type[AnyRecord]) -> Iterable[tuple[Any, AnyRecord | None]]:
    """Return every row of a table as its values and its record."""
    for row in connection.execute(TABLES[kind].select):
        yield row, record_from(kind, row)


def read_newest(connection: sqlite3.Connection, kind: type[AnyRecord], stream: str) -> list[AnyRecord]:
    """Return the rows that the newest events of all streams of this name tell, without those that are gone.

    An event that is damaged tells nothing.
    """
    events = connection.execute(
        "SELECT row FROM journal JOIN (SELECT stream, MAX(seq) AS seq FROM journal WHERE stream >= ? AND stream < ? "
        "GROUP BY stream) USING (stream, seq) WHERE NOT is_gone",
        (f"{stream}:", f"{stream};"),
    )
    found = []
    for (row,) in events:
        with suppress(MsgspecError, TypeError, RecursionError):
            found.append(decode(row, type=kind))
    return found


def read_bodies(connection: sqlite3.Connection, numbers: Sequence[int]) -> dict[int, bytes]:
    """Return the bodies with these numbers, as far as they are there."""
    found: dict[int, bytes] = {}
    for number in numbers:
        row = connection.execute("SELECT message FROM bodies WHERE number = ?", (number,)).fetchone()
        if row is not None and type(row[0]) is bytes:
            found[number] = row[0]
    return found


def read_history(connection: sqlite3.Connection, stream: str) -> list[HistoryEvent]:
    """Return the events of a stream, oldest first; an event that is damaged is left out."""
    events = []
    telling = Telling(_PARTLY_TOLD)
    for seq, at, kind, told, detail in connection.execute(
        "SELECT seq, at, kind, row, detail FROM journal WHERE stream = ? ORDER BY seq", (stream,)
    ):
        try:
            row = decode(telling.whole(stream, record_kind(stream, kind), told))
            members = {"seq": seq, "at": at, "kind": kind, "row": row, "detail": decode(detail)}
            events.append(convert(members, HistoryEvent))
        except (ValidationError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue
    return events


def read_page(connection: sqlite3.Connection, after: int, limit: int) -> JournalPage:
    """Return at most ``limit`` events behind a sequence, all of one moment; one that is damaged is left out."""

    def before(stream: str) -> Iterable[tuple[type[Row], Any]]:
        return [(record_kind(stream, kind), told) for kind, told in connection.execute(_READ_BEFORE, (stream, after))]

    telling = Telling(_PARTLY_TOLD, before)
    connection.execute("BEGIN")
    try:
        last = last_sequence(connection)
        compacted = connection.execute("SELECT value FROM meta WHERE key = 'compacted'").fetchone()
        rows = connection.execute(_READ_PAGE, (after, limit)).fetchall()
        events = [event for row in rows if (event := _event_from(telling, *row)) is not None]
    finally:
        connection.execute("COMMIT")
    is_whole = len(rows) < limit
    end = last if is_whole else rows[-1][0]
    return JournalPage(events, end, is_whole, compacted[0] if compacted and isinstance(compacted[0], int) else 0)


def _event_from(
    telling: Telling, seq: Any, at: Any, stream: Any, kind: Any, event_id: Any, told: Any, is_gone: Any, detail: Any
) -> Happened | None:
    try:
        row = record_kind(stream, kind)
        record = decode(telling.whole(stream, row, told), type=row)
        event = Happened(seq, at, stream, kind, event_id, record, bool(is_gone), decode(detail))
        return event if isinstance(at, int) and isinstance(kind, str) and isinstance(event.detail, dict) else None
    except (ValidationError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def last_sequence(connection: sqlite3.Connection) -> int:
    """Return the greatest sequence number the journal ever had."""
    (last,) = connection.execute("SELECT COALESCE(MAX(seq), 0) FROM journal").fetchone()
    kept = connection.execute("SELECT value FROM meta WHERE key = 'sequence'").fetchone()
    return max(number for number in (last, *(kept or ()), 0) if isinstance(number, int))


_NESTED = frozenset({"answer", "elsewhere", "groups", "features", "steps", "identity", "report", "evidence", "binding"})
"""Columns that hold JSON."""
_FLAGS = frozenset(
    {
        *("needs_registration", "holds_address", "is_ask", "accepted", "negotiated", "ensure_awake", "reconciled"),
        *("takes_work", "has_mailbox"),
    }
)
"""Columns that hold 0 or 1."""
