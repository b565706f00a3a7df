"""Give a store its identity, and make sure that a database and a key belong together."""

from __future__ import annotations

import hmac
import sqlite3
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from msgspec import Struct

from intercom.store import schema
from intercom.store.failures import StoreUnusable


class Identity(Struct, frozen=True):
    """Say whose store this is and how often it was opened."""

    broker_id: str
    """UUID, for the life of the store."""
    journal_id: str
    """UUID of the journal; a new one when the journal is lost or replaced."""
    epoch: int
    """Times the store was opened; 0 until the first broker opened it."""
    version: int
    """Version of the tables."""
    was_restored: bool = False
    """The database is an older copy of one that got further."""


def create_identity(connection: sqlite3.Connection, key: bytes, broker_id: str | None = None) -> None:
    """Make the tables of a new store and give it an identity bound to ``key``.

    ``broker_id`` is that of the store it takes the place of; the journal is a new one in any case.
    """
    broker_id = broker_id or str(uuid4())
    connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    connection.execute("BEGIN IMMEDIATE")
    schema.advance(connection, 0)
    connection.executemany(
        "INSERT INTO meta VALUES (?, ?)",
        (
            ("brokerId", broker_id),
            ("journalId", str(uuid4())),
            ("epoch", 0),
            ("keyCheck", key_check(key, broker_id)),
        ),
    )
    connection.execute("COMMIT")


def read_identity(connection: sqlite3.Connection, database: Path, key: bytes) -> Identity:
    """Return the identity of an opened database; nothing is written.

    Raises ``StoreUnusable`` when the database is not an intercom store, is of a newer version, or belongs to another
    key; SQLite's own errors pass through.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != schema.APPLICATION_ID:
        raise StoreUnusable("foreign", f"{database} is not a database of intercom")
    has_meta = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").fetchone()
    meta = dict(connection.execute("SELECT key, value FROM meta").fetchall() if has_meta else ())
    version = meta.get("schema")
    if isinstance(version, int) and version > schema.version():
        raise StoreUnusable("newer", f"{database} is of version {version}; this intercom knows {schema.version()}")
    broker_id, journal_id, epoch, check = (meta.get(name) for name in ("brokerId", "journalId", "epoch", "keyCheck"))
    if not (
        isinstance(version, int)
        and version > 0
        and isinstance(broker_id, str)
        and broker_id
        and isinstance(journal_id, str)
        and journal_id
        and isinstance(epoch, int)
        and epoch >= 0
        and isinstance(check, str)
    ):
        raise StoreUnusable("corrupt", f"{database} does not say whose it is")
    if not hmac.compare_digest(check, key_check(key, broker_id)):
        raise StoreUnusable("wrong_key", f"{database} belongs to another key than the one beside it")
    different = [] if meta.get("tables") == schema.fingerprint(connection) else schema.differences(connection, version)
    if different:
        raise StoreUnusable("foreign", f"{database} has other tables than version {version}: {', '.join(different)}")
    return Identity(broker_id, journal_id, epoch, version)


def key_check(key: bytes, broker_id: str) -> str:
    """Return the value that binds a database to its key, in hex."""
    return hmac.new(key, broker_id.encode(), sha256).hexdigest()
