"""Save what can be read of a store that no broker may use into a new one (design section 5, fail closed).

For tools that hold the home's lock. The old files are kept in a directory of their own. At every moment the home holds
what a broker refuses, or the finished new pair: a rebuilding that is cut off can be done again and loses nothing.
Tables whose rows the journal tells are made anew out of it where they are damaged and the journal is whole.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import MsgspecError, Struct

from intercom.limits import KEY_BYTES
from intercom.paths import Paths, make_private_directory
from intercom.store import schema
from intercom.store.failures import StoreUnusable
from intercom.store.history import TABLES, record_from, replay
from intercom.store.identity import create_identity, key_check
from intercom.store.loading import text_or_bytes
from intercom.store.pair import SIDECARS, beside, drafts_of, judge_beginning, read_key, read_only, sync, write_new
from intercom.store.rows import Row

MENDED = frozenset({"half_pair", "bad_key", "wrong_key", "corrupt", "foreign"})
"""Troubles that a new store cures; with any other one the files themselves may be in order."""
_KEYED = "signature"
"""Column whose values tell nothing without the key they were made with."""
_SUBJECT = {"operations": "message_id", "retired_ids": "session_id"}
"""Columns without whose text a row does not tell what it is about."""


class Table(Struct):
    """Hold the rows of one table that could be read, in the order of ``columns``."""

    columns: tuple[str, ...]
    rows: list[Row]
    is_whole: bool
    """Whether that is all of them, as far as the database tells."""


class Rescued(Struct):
    """Hold what could be read of a store."""

    tables: dict[str, Table]
    key: bytes | None
    """Its key; ``None`` when that is lost, so that nobody can tell any more what an id was used for."""
    broker_id: str | None
    version: int
    """Version of the tables it was made with, as far as that can be read."""

    @property
    def is_whole(self) -> bool:
        """Tell whether nothing is lost."""
        return self.key is not None and all(table.is_whole for table in self.tables.values())

    def count(self, table: str) -> int:
        """Return how many rows of a table there are."""
        return len(self.tables[table].rows) if table in self.tables else 0


def rescue(paths: Paths) -> Rescued:
    """Read whatever can be read, and write nothing."""
    database, key_file = _sources(paths)
    try:
        key: bytes | None = read_key(key_file)
    except (OSError, StoreUnusable):
        key = None
    rescued = Rescued({}, key, None, schema.version())
    try:
        judge_beginning(database)
        with closing(read_only(database)) as connection:
            connection.text_factory = text_or_bytes
            _read_identity(connection, rescued)
            expected = schema.tables(rescued.version)
            for name, key_columns in schema.tables().items():
                rescued.tables[name] = _read_table(connection, name, key_columns, is_expected=name in expected)
            _make_anew(rescued.tables)
    except (sqlite3.Error, StoreUnusable, OSError):  # it is no database, or not there
        rescued.key = None
    return rescued


def rebuild(paths: Paths, name: str) -> tuple[Path, Rescued]:
    """Put a new store with what could be rescued in place of the old one; return where that is now, and what it was.

    The old files go into a new directory called ``name`` in the home. The caller holds the lock, and ``inspect`` told
    a trouble among ``MENDED``. Raises ``OSError`` or ``sqlite3.Error`` when files cannot be written or moved.
    """
    rescued = rescue(paths)
    place = paths.home / name
    os.mkdir(place)
    make_private_directory(place)
    database, key = drafts_of(paths)
    _write_drafts(database, key, rescued)
    _sync(paths.home)
    had_database = os.path.lexists(paths.database)
    if had_database:
        os.link(paths.database, place / paths.database.name)
    if os.path.lexists(paths.key):
        os.link(paths.key, place / paths.key.name)
        if had_database:
            # Half a pair is refused: nobody may use the old database once it has lost the log beside it.
            os.unlink(paths.key)
            _sync(place, paths.home)
    for sidecar in (beside(paths.database, suffix) for suffix in SIDECARS):
        if os.path.lexists(sidecar):
            os.rename(sidecar, place / sidecar.name)
    _sync(place, paths.home)
    os.replace(database, paths.database)
    _sync(paths.home)
    os.replace(key, paths.key)
    _sync(paths.home)
    return place, rescued


def _sources(paths: Paths) -> tuple[Path, Path]:
    """Return the database and the key to read: those of a rebuilding that was cut off, once the old key was gone."""
    database, key = drafts_of(paths)
    if os.path.lexists(paths.key) or not os.path.lexists(key):
        return paths.database, paths.key
    return (database if os.path.lexists(database) else paths.database), key


def _read_identity(connection: sqlite3.Connection, rescued: Rescued) -> None:
    """Read whose store it is; a key that is known not to be its own is as good as lost."""
    try:
        meta = dict(connection.execute("SELECT key, value FROM meta").fetchall())
    except (sqlite3.Error, ValueError):
        return
    broker_id, check, version = meta.get("brokerId"), meta.get("keyCheck"), meta.get("schema")
    if isinstance(version, int) and 0 < version < schema.version():
        rescued.version = version
    if isinstance(broker_id, str) and broker_id:
        rescued.broker_id = broker_id
        if rescued.key is not None and check != key_check(rescued.key, broker_id):
            rescued.key = None


def _read_table(
    connection: sqlite3.Connection, name: str, key_columns: tuple[str, ...], *, is_expected: bool = True
) -> Table:
    """Read a table from its beginning to the first page that is damaged, and from its end back to the last one."""
    try:
        present = [column for (column,) in connection.execute("SELECT name FROM pragma_table_info(?)", (name,))]
    except sqlite3.Error:
        return Table((), [], is_whole=False)
    if not present and not is_expected:
        return Table((), [], is_whole=True)
    columns = tuple(column for column in schema.columns(name) if column in present)
    if not set(key_columns) <= set(columns):
        return Table((), [], is_whole=False)
    found: dict[Row, Row] = {}
    is_whole = True
    for direction in ("ASC", "DESC"):
        order = ", ".join(f'"{column}" {direction}' for column in key_columns)
        places = [columns.index(column) for column in key_columns]
        try:
            for row in connection.execute(f"SELECT {_quoted(columns)} FROM {name} ORDER BY {order}"):
                found[tuple(row[place] for place in places)] = row
            break
        except sqlite3.Error:
            is_whole = False
    subject = columns.index(_SUBJECT[name]) if name in _SUBJECT else None
    rows = [row for row in found.values() if subject is None or (type(row[subject]) is str and row[subject])]
    return Table(columns, rows, is_whole and len(rows) == len(found))


def _make_anew(tables: dict[str, Table]) -> None:
    """Put what the journal tells in the place of tables that are damaged, if the journal is whole."""
    damaged = [table.name for kind, table in TABLES.items() if not _is_sound(tables[table.name], kind, table.columns)]
    journal = tables["journal"]
    if not damaged or not journal.rows or not journal.is_whole:
        return
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as model:
        schema.advance(model, 0)
        _insert(model, "journal", journal.columns, journal.rows)
        try:
            replay(model)
        except (MsgspecError, KeyError, TypeError, AttributeError, RecursionError):
            return  # an event does not say what happened
        for name in damaged:
            tables[name] = _read_table(model, name, schema.tables()[name])


def _is_sound(table: Table, kind: type[Any], columns: tuple[str, ...]) -> bool:
    """Tell whether all rows are there and say what they should."""
    if not table.rows:
        return table.is_whole
    places = [table.columns.index(column) for column in columns if column in table.columns]
    if not table.is_whole or len(places) < len(columns):
        return False
    return all(record_from(kind, [row[place] for place in places]) is not None for row in table.rows)


def _quoted(columns: tuple[str, ...]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


def _insert(connection: sqlite3.Connection, name: str, columns: tuple[str, ...], rows: list[Row]) -> None:
    marks = ", ".join("?" * len(columns))
    connection.executemany(f"INSERT OR IGNORE INTO {name} ({_quoted(columns)}) VALUES ({marks})", rows)


def _write_drafts(database: Path, key: Path, rescued: Rescued) -> None:
    """Write the new pair beside the old one, whole and on disk before it gets the names it is looked for under."""
    secret = rescued.key or os.urandom(KEY_BYTES)
    unfinished = beside(database, ".new")
    unfinished_key = beside(key, ".new")
    for leftover in (unfinished, unfinished_key, *(beside(unfinished, suffix) for suffix in SIDECARS)):
        leftover.unlink(missing_ok=True)
    write_new(unfinished, b"")
    with closing(sqlite3.connect(f"{unfinished.as_uri()}?mode=rw", uri=True, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        create_identity(connection, secret, rescued.broker_id)
        connection.execute("BEGIN IMMEDIATE")
        for name, table in rescued.tables.items():
            columns, rows = table.columns, table.rows
            if rescued.key is None and _KEYED in columns:
                place = columns.index(_KEYED)
                rows = [(*row[:place], None, *row[place + 1 :]) for row in rows]
            if rows:
                _insert(connection, name, columns, rows)
        connection.execute("COMMIT")
    sync(unfinished, os.O_RDWR)
    write_new(unfinished_key, secret)
    os.replace(unfinished, database)
    os.replace(unfinished_key, key)


def _sync(*directories: Path) -> None:
    for directory in directories:
        sync(directory, os.O_RDONLY | os.O_DIRECTORY)
