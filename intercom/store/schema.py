"""Define the tables as a list of steps, and bring a database from any earlier version to the present one.

Version *n* is what the first *n* steps make. A change of the tables is a new step at the end; steps that have been
released never change.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from hashlib import sha256
from typing import Any, TypeAlias

Step: TypeAlias = tuple[str, ...]
"""Statements that lead from one version to the next."""

APPLICATION_ID = 0x49434F4D
"""Marks the file as ours in SQLite's header ("ICOM")."""

# The columns carry no constraints: what is in a row is judged by rows.py when it is read, so that one damaged row
# costs its own message id and not the whole database.
STEPS: tuple[Step, ...] = (
    (
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID",
        """
        CREATE TABLE operations (
            number INTEGER PRIMARY KEY, message_id TEXT, state TEXT, signature BLOB, sender TEXT, target TEXT,
            sender_session TEXT, recipient_session TEXT, reserved_at INTEGER, accepted_at INTEGER, position INTEGER,
            question_asker TEXT, question_return TEXT, question_target TEXT, question_groups TEXT,
            question_deadline INTEGER, question_answered INTEGER
        )
        """,
        "CREATE TABLE retired_ids (session_id TEXT PRIMARY KEY, return_hash TEXT, number INTEGER) WITHOUT ROWID",
    ),
    (
        "ALTER TABLE retired_ids ADD COLUMN address INTEGER",
        """
        CREATE TABLE addresses (
            number INTEGER PRIMARY KEY, name TEXT, "group" TEXT, token_hash TEXT, groups TEXT, created_at INTEGER,
            last_held_at INTEGER
        )
        """,
        """
        CREATE TABLE sessions (
            session_id TEXT PRIMARY KEY, number INTEGER, state TEXT, state_since INTEGER, incarnation TEXT,
            generation INTEGER, token_hash TEXT, return_hash TEXT, pid INTEGER, started INTEGER, home_group TEXT,
            features TEXT, info BLOB, needs_registration INTEGER, grace_deadline INTEGER, closed_reason TEXT,
            address INTEGER, holds_address INTEGER, kind TEXT, runtime_session_id TEXT, tracking_ref TEXT,
            task_hint TEXT
        )
        """,
        """
        CREATE TABLE mail (
            number INTEGER PRIMARY KEY, mailbox TEXT, message_id TEXT, sender_info BLOB, sender_mailbox TEXT,
            sender_session TEXT, target TEXT, size INTEGER, queued_at INTEGER, expires_at INTEGER, valid_until INTEGER,
            is_ask INTEGER, reply_to TEXT, offers INTEGER, notice BLOB
        )
        """,
        "CREATE TABLE bodies (number INTEGER PRIMARY KEY, message BLOB, until INTEGER)",
        "CREATE INDEX bodies_until ON bodies (until) WHERE until IS NOT NULL",
        """
        CREATE TABLE journal (
            seq INTEGER PRIMARY KEY, at INTEGER, stream TEXT, kind TEXT, event_id TEXT UNIQUE, epoch INTEGER,
            row TEXT, is_gone INTEGER, detail TEXT
        )
        """,
        "CREATE INDEX journal_stream ON journal (stream, seq)",
    ),
    (
        "ALTER TABLE sessions ADD COLUMN work_mode TEXT",
        "ALTER TABLE sessions ADD COLUMN execution_surface TEXT",
        "ALTER TABLE sessions ADD COLUMN workspace TEXT",
        "ALTER TABLE mail ADD COLUMN assignment TEXT",
        "ALTER TABLE mail ADD COLUMN body INTEGER",
        """
        CREATE TABLE inbox (
            number INTEGER PRIMARY KEY, inbox_id TEXT, sender_info BLOB, sender_mailbox TEXT, sender_session TEXT,
            target TEXT, size INTEGER, parked_at INTEGER, expires_at INTEGER, reason TEXT, claim TEXT, groups TEXT,
            valid_until INTEGER, target_session TEXT, target_address INTEGER, reply_to TEXT,
            assignment TEXT, returns INTEGER, return_reason TEXT
        )
        """,
        """
        CREATE TABLE assignments (
            assignment_id TEXT PRIMARY KEY, number INTEGER, inbox INTEGER, message_id TEXT, session_id TEXT,
            incarnation TEXT, address INTEGER, mode TEXT, assigned_at INTEGER, accept_deadline INTEGER, state TEXT,
            sequence INTEGER, accepted INTEGER, attempts INTEGER, push_id TEXT, order_key TEXT
        )
        """,
        """
        CREATE TABLE idempotency (
            number INTEGER PRIMARY KEY, scope TEXT, key TEXT, fingerprint TEXT, state TEXT, result BLOB,
            expires_at INTEGER
        )
        """,
    ),
    (
        "ALTER TABLE mail ADD COLUMN kept TEXT",
        "CREATE TABLE policies (number INTEGER PRIMARY KEY, party TEXT, policy BLOB, set_at INTEGER)",
    ),
    (
        """
        CREATE TABLE flows (
            number INTEGER PRIMARY KEY, flow_id TEXT, revision INTEGER, state TEXT, target TEXT, "group" TEXT,
            created_by TEXT, creator TEXT, creator_session TEXT, created_at INTEGER, updated_at INTEGER, steps TEXT,
            active_step TEXT, identity TEXT, reason TEXT, admit_reason TEXT, admit_at INTEGER, admit_attempts INTEGER,
            over_at INTEGER
        )
        """,
        """
        CREATE TABLE dispatches (
            number INTEGER PRIMARY KEY, dispatch_id TEXT, flow_id TEXT, step_id TEXT, "group" TEXT,
            revision INTEGER, identity TEXT, created_at INTEGER, negotiated INTEGER, address INTEGER, transport TEXT,
            outcome TEXT, correlation TEXT, published_at INTEGER, accepted_at INTEGER, delivery_state TEXT, report TEXT,
            evidence TEXT, binding TEXT, reason TEXT, completed_at INTEGER, ignored_at INTEGER
        )
        """,
    ),
    (
        """
        CREATE TABLE links (
            link_id TEXT PRIMARY KEY, number INTEGER, mailbox TEXT, generation INTEGER, journal_id TEXT, floor INTEGER,
            last_command INTEGER, created_at INTEGER, refused TEXT
        )
        """,
        """
        CREATE TABLE commands (
            command_id TEXT, number INTEGER PRIMARY KEY, link_id TEXT, seq INTEGER, state TEXT, fingerprint TEXT,
            size INTEGER, created_at INTEGER, changed_at INTEGER, error_code TEXT, detail TEXT
        )
        """,
        """
        CREATE TABLE events (
            number INTEGER PRIMARY KEY, link_id TEXT, journal_id TEXT, seq INTEGER, event_id TEXT, kind TEXT,
            fingerprint TEXT, occurred_at INTEGER, stored_at INTEGER
        )
        """,
    ),
    (
        """
        CREATE TABLE invocations (
            number INTEGER PRIMARY KEY, invocation_id TEXT, run_id TEXT, requester TEXT, requester_session TEXT,
            requester_mailbox TEXT, requester_info BLOB, asked TEXT, target TEXT, target_name TEXT, action TEXT,
            ensure_awake INTEGER, fingerprint TEXT, size INTEGER, created_at INTEGER, state TEXT, take_until INTEGER,
            result INTEGER, result_hash TEXT, started_at INTEGER, completed_at INTEGER, job TEXT, attempts INTEGER,
            lease_epoch INTEGER, lease_until INTEGER, last_error TEXT, placement TEXT, worker TEXT,
            cancel_asked_at INTEGER, reconciled INTEGER
        )
        """,
        """
        CREATE TABLE diagnoses (
            number INTEGER PRIMARY KEY, diagnosis_id TEXT, invocation_id TEXT, requester TEXT, requester_session TEXT,
            kind TEXT, asked TEXT, detail TEXT, candidates BLOB, at INTEGER
        )
        """,
    ),
    ("ALTER TABLE addresses ADD COLUMN takes_work INTEGER DEFAULT 0",),
    (
        "ALTER TABLE invocations ADD COLUMN authority TEXT",
        """
        CREATE TABLE deliveries (
            number INTEGER PRIMARY KEY, delivery_id TEXT, invocation_id TEXT, requester TEXT, requester_session TEXT,
            target TEXT, peer TEXT, status TEXT, first_queued_at INTEGER, attempts INTEGER, next_attempt_at INTEGER,
            lease_epoch INTEGER, lease_until INTEGER, failure TEXT, detail TEXT, acked_at INTEGER, peer_run TEXT,
            mirrored INTEGER
        )
        """,
        """
        CREATE TABLE peers (
            number INTEGER PRIMARY KEY, broker_id TEXT, name TEXT, journal_id TEXT, first_seen_at INTEGER
        )
        """,
    ),
    ("ALTER TABLE invocations ADD COLUMN wishes BLOB",),
    (
        # Most events have no id of their own: an index of all ids costs each of them a place. No page is left free.
        "DROP INDEX journal_stream",
        """
        CREATE TABLE told (
            seq INTEGER PRIMARY KEY, at INTEGER, stream TEXT, kind TEXT, event_id TEXT, epoch INTEGER,
            row TEXT, is_gone INTEGER, detail TEXT
        )
        """,
        """
        INSERT INTO told SELECT seq, at, stream, kind, nullif(event_id, kind || ':' || seq), epoch, row, is_gone, detail
        FROM journal
        """,
        "DROP TABLE journal",
        "ALTER TABLE told RENAME TO journal",
        "CREATE UNIQUE INDEX journal_event ON journal (event_id) WHERE event_id IS NOT NULL",
        "CREATE INDEX journal_stream ON journal (stream, seq)",
    ),
    (
        """
        CREATE TABLE outbox (
            number INTEGER PRIMARY KEY, delivery_id TEXT, message_id TEXT, peer TEXT, mark TEXT, target TEXT,
            sender_session TEXT, sender_mailbox TEXT, size INTEGER, queued_at INTEGER, valid_until INTEGER,
            is_ask INTEGER
        )
        """,
        "ALTER TABLE addresses ADD COLUMN home TEXT",
    ),
    (
        # Who asked is told once, beside the task, and what other columns tell is not told again.
        "ALTER TABLE bodies ADD COLUMN sender BLOB",
        """
        UPDATE bodies SET sender = (SELECT requester_info FROM invocations WHERE invocations.number = bodies.number)
        WHERE number IN (SELECT number FROM invocations)
        """,
        """
        CREATE TEMP TABLE asked AS SELECT number, invocation_id, run_id, requester, target, target_name, action,
            ensure_awake, fingerprint, size, created_at, state, take_until, result, result_hash, started_at,
            completed_at, job, attempts, lease_epoch, lease_until, last_error, placement, worker, cancel_asked_at,
            reconciled, authority, wishes, nullif(requester_session, substr(requester, 9)),
            requester_mailbox IS NOT NULL, nullif(asked, target)
        FROM invocations
        """,
        "DROP TABLE invocations",  # before there is another one, which takes its place: no page is left free
        """
        CREATE TABLE invocations (
            number INTEGER PRIMARY KEY, invocation_id TEXT, run_id TEXT, requester TEXT, target TEXT, target_name TEXT,
            action TEXT, ensure_awake INTEGER, fingerprint TEXT, size INTEGER, created_at INTEGER, state TEXT,
            take_until INTEGER, result INTEGER, result_hash TEXT, started_at INTEGER, completed_at INTEGER, job TEXT,
            attempts INTEGER, lease_epoch INTEGER, lease_until INTEGER, last_error TEXT, placement TEXT, held_by TEXT,
            cancel_asked_at INTEGER, reconciled INTEGER, authority TEXT, wishes BLOB, acted_as TEXT,
            has_mailbox INTEGER, asked_as TEXT
        )
        """,
        "INSERT INTO invocations SELECT * FROM asked",
        "DROP TABLE asked",
        """
        UPDATE journal SET row = json_patch(row, json_object(
            'acted_as', nullif(json_extract(row, '$.requester_session'), substr(json_extract(row, '$.requester'), 9)),
            'has_mailbox', json(iif(json_extract(row, '$.requester_mailbox') IS NULL, 'null', 'true')),
            'asked_as', nullif(json_extract(row, '$.asked'), json_extract(row, '$.target')),
            'requester_session', NULL, 'requester_mailbox', NULL, 'requester_info', NULL, 'asked', NULL
        ))
        WHERE stream >= 'invocation:' AND stream < 'invocation;'
            AND iif(json_valid(row), json_extract(row, '$.requester_session'), NULL) IS NOT NULL
        """,
        """
        UPDATE journal SET row = json_patch(row, json_object('held_by', json_extract(row, '$.worker'), 'worker', NULL))
        WHERE stream >= 'invocation:' AND stream < 'invocation;'
            AND iif(json_valid(row), json_extract(row, '$.worker'), NULL) IS NOT NULL
        """,
    ),
    (
        """
        CREATE TABLE hosted (
            number INTEGER PRIMARY KEY, dispatch_id TEXT, peer TEXT, flow_id TEXT, step_id TEXT, "group" TEXT,
            identity TEXT, stored_at INTEGER, address INTEGER, transport TEXT, offers INTEGER, report TEXT, answer TEXT,
            "end" TEXT, reason TEXT, over_at INTEGER
        )
        """,
    ),
    ("ALTER TABLE invocations ADD COLUMN turn INTEGER DEFAULT 0",),
    ("ALTER TABLE mail ADD COLUMN elsewhere TEXT",),
)


def version() -> int:
    """Return the version of the tables this program works with."""
    return len(STEPS)


def advance(connection: sqlite3.Connection, present: int) -> None:
    """Run the steps after version ``present``; the caller holds the transaction."""
    for step in STEPS[present:]:
        for statement in step:
            connection.execute(statement)
    connection.executemany(
        "INSERT OR REPLACE INTO meta VALUES (?, ?)", (("schema", version()), ("tables", fingerprint(connection)))
    )


def fingerprint(connection: sqlite3.Connection) -> str:
    """Return a digest of everything that defines tables and indexes; ``advance`` leaves it in the database.

    While it is the same, nobody has changed the tables since, and there is no need to look for ``differences``.
    """
    definitions = connection.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
    return sha256(repr(definitions).encode()).hexdigest()


def tables(present: int | None = None) -> dict[str, tuple[str, ...]]:
    """Return the tables of a version, by default of this program's, that hold records, with their primary keys."""
    made = _made(STEPS if present is None else STEPS[:present])
    return {
        name: tuple(str(column) for column, _, place in columns if place)
        for name, columns in made.items()
        if name != "meta"
    }


def columns(table: str) -> tuple[str, ...]:
    """Return the columns of a table of the present version, in their order."""
    return tuple(str(column) for column, _, _ in _made(STEPS)[table])


def differences(connection: sqlite3.Connection, present: int) -> list[str]:
    """Return the tables of version ``present`` that are missing or have other columns; further tables are ignored."""
    made = _made(STEPS[:present])
    return [name for name, columns in made.items() if columns != _columns(connection, name)]


@cache
def _made(steps: tuple[Step, ...]) -> dict[str, Sequence[tuple[Any, ...]]]:
    """Return the tables that steps make, with their columns: name, type, and place in the primary key."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as model:
        for step in steps:
            for statement in step:
                model.execute(statement)
        names = [name for (name,) in model.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: _columns(model, name) for name in names}


def _columns(connection: sqlite3.Connection, table: str) -> Sequence[tuple[Any, ...]]:
    return connection.execute("SELECT name, type, pk FROM pragma_table_info(?)", (table,)).fetchall()
