"""Test that any earlier version of the tables is brought to the present one, completely or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest
from msgspec.json import decode, encode
from msgspec.structs import asdict, replace

from intercom.core.records import Elsewhere, InvocationRecord, MailRecord, SaveOperation
from intercom.paths import Paths
from intercom.store import schema
from intercom.store.database import Store, StoreUnusable
from intercom.store.history import read_records, replay, write
from tests.support.records import event, letter, operation

RELEASED = schema.STEPS
ADDITION = ("CREATE TABLE notes (id TEXT PRIMARY KEY)", "INSERT INTO notes SELECT message_id FROM operations")


def test_new_store_has_the_present_version(open_store: Callable[..., Store], paths: Paths) -> None:
    open_store().close()
    with sqlite3.connect(paths.database) as connection:
        assert connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone() == (schema.version(),)
    connection.close()


def test_older_store_is_brought_forward(
    open_store: Callable[..., Store], paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Design section 5: a change that adds a table adds its migration."""
    store = open_store()
    store.commit([(1, (SaveOperation(operation(1, "kept")),))])
    before = (store.broker_id, store.journal_id, store.epoch + 1)
    store.close()
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, ADDITION))
    store = open_store()
    assert (store.broker_id, store.journal_id, store.epoch) == before
    assert [record.message_id for record in store.recovered.operations] == ["kept"]
    store.close()
    connection = sqlite3.connect(paths.database)
    assert connection.execute("SELECT id FROM notes").fetchall() == [("kept",)]
    assert connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone() == (len(RELEASED) + 1,)
    connection.close()
    open_store()


def test_store_made_with_all_steps_at_once_is_the_same(
    open_store: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, ADDITION))
    open_store().close()
    open_store()


def test_failing_step_leaves_the_store_as_it_was(
    open_store: Callable[..., Store], paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    store.close()
    with monkeypatch.context() as patch:
        patch.setattr(schema, "STEPS", (*schema.STEPS, (ADDITION[0], "no statement")))
        with pytest.raises(StoreUnusable, match="syntax error"):
            open_store()
    assert open_store().epoch == store.epoch + 1


def test_newer_store_is_refused_untouched(
    open_store: Callable[..., Store], paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Design section 5, fail closed."""
    with monkeypatch.context() as patch:
        patch.setattr(schema, "STEPS", (*schema.STEPS, ADDITION))
        open_store().close()
    before = paths.database.read_bytes()
    with pytest.raises(StoreUnusable) as caught:
        open_store()
    assert caught.value.code == "newer"
    assert (
        caught.value.reason
        == f"{paths.database} is of version {len(RELEASED) + 1}; this intercom knows {len(RELEASED)}"
    )
    assert paths.database.read_bytes() == before


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE operations",
        "DROP TABLE retired_ids",
        "ALTER TABLE operations ADD COLUMN extra",
        "ALTER TABLE operations RENAME COLUMN state TO fate",
    ],
)
def test_other_tables_than_the_version_has_are_refused(
    open_store: Callable[..., Store], paths: Paths, statement: str
) -> None:
    """Design section 5: a foreign schema."""
    open_store().close()
    connection = sqlite3.connect(paths.database)
    connection.execute(statement)
    connection.commit()
    connection.close()
    before = paths.database.read_bytes()
    with pytest.raises(StoreUnusable) as caught:
        open_store()
    assert caught.value.code == "foreign"
    assert paths.database.read_bytes() == before


def test_tables_that_nobody_changed_are_not_looked_at_one_by_one(
    open_store: Callable[..., Store], paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fail closed, but quickly: to make all tables once more takes as long as to open the store."""
    open_store().close()
    looked: list[int] = []

    def note(connection: sqlite3.Connection, present: int) -> list[str]:
        looked.append(present)
        return []

    monkeypatch.setattr(schema, "differences", note)
    open_store().close()
    assert looked == []
    connection = sqlite3.connect(paths.database)
    connection.execute("ALTER TABLE mail ADD COLUMN another")
    connection.close()
    open_store()
    assert looked == [schema.version()]


def test_further_tables_are_nobodys_concern(open_store: Callable[..., Store], paths: Paths) -> None:
    open_store().close()
    connection = sqlite3.connect(paths.database)
    connection.execute("ANALYZE")
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    open_store()


def test_a_store_of_the_first_version_keeps_its_rows(
    open_store: Callable[..., Store], paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Version 2 brought mail; what version 1 recorded counts as before."""
    with monkeypatch.context() as patch:
        patch.setattr(schema, "STEPS", RELEASED[:1])
        connection = sqlite3.connect(":memory:", isolation_level=None)
        schema.advance(connection, 0)
        connection.execute("INSERT INTO retired_ids VALUES ('id', 'hash', 3)")
    schema.advance(connection, 1)
    assert connection.execute("SELECT session_id, return_hash, number, address FROM retired_ids").fetchall() == [
        ("id", "hash", 3, None)
    ]
    assert schema.differences(connection, schema.version()) == []
    connection.close()


def test_a_store_of_the_second_version_keeps_its_mail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 3 brought the inbox; sessions and mail of before belong to no assignment."""
    with monkeypatch.context() as patch:
        patch.setattr(schema, "STEPS", RELEASED[:2])
        connection = sqlite3.connect(":memory:", isolation_level=None)
        schema.advance(connection, 0)
        mail = letter(1)
        later = ("assignment", "body", "kept", "elsewhere")
        names = [name for name in MailRecord.__struct_fields__ if name not in later]
        values = [getattr(mail, name) for name in names]
        marks = ", ".join("?" * len(names))
        connection.execute(f"INSERT INTO mail ({', '.join(names)}) VALUES ({marks})", values)
    schema.advance(connection, 2)
    assert schema.differences(connection, schema.version()) == []
    assert [record for _, record in read_records(connection, MailRecord)] == [mail]
    connection.close()


def test_of_the_mail_of_an_older_store_nobody_elsewhere_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 16 stores which other machines may have it (protocol 6.13); the journal of before tells no more."""
    version = next(
        place for place, step in enumerate(schema.STEPS) if any("ADD COLUMN elsewhere" in one for one in step)
    )
    connection = sqlite3.connect(":memory:", isolation_level=None)
    with monkeypatch.context() as patch:
        patch.setattr(schema, "STEPS", schema.STEPS[:version])
        schema.advance(connection, 0)
    mail = letter(1, offers=1)
    members = {name: value for name, value in asdict(mail).items() if name != "elsewhere"}
    marks = ", ".join("?" * len(members))
    connection.execute(f"INSERT INTO mail ({', '.join(members)}) VALUES ({marks})", list(members.values()))
    told = encode({**members, "sender_info": mail.sender_info}).decode()
    add = "INSERT INTO journal VALUES (1, 5, 'mail:message-1', 'mail.queued', 'mail:1:queued', 1, ?, 0, '{}')"
    connection.execute(add, (told,))
    schema.advance(connection, version)
    assert schema.differences(connection, schema.version()) == []
    assert [record for _, record in read_records(connection, MailRecord)] == [mail]
    offered = replace(mail, offers=2, elsewhere=Elsewhere(("b",)))
    write(connection, [replace(event(2, offered, "mail.offered"), changed=("offers", "elsewhere"))], 1)
    for again in (False, True):
        if again:
            replay(connection)
        assert [record for _, record in read_records(connection, MailRecord)] == [offered]
    connection.close()


def test_the_journal_of_an_older_store_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """FE 5.2 P2: an equal event id is a no-op; what was stored with ids that only repeat its number needs none."""
    version = next(place for place, step in enumerate(schema.STEPS) if any("CREATE TABLE told" in one for one in step))
    connection = sqlite3.connect(":memory:", isolation_level=None)
    monkeypatch.setattr(schema, "STEPS", schema.STEPS[:version])
    schema.advance(connection, 0)
    monkeypatch.undo()
    add = "INSERT INTO journal VALUES (?, 5, 'mail:m', 'mail.queued', ?, 1, '{}', 0, '{}')"
    connection.executemany(add, [(1, "mail:7:queued"), (2, "mail.queued:2"), (3, "mail:7:offered")])
    schema.advance(connection, version)
    found = connection.execute("SELECT seq, at, stream, kind, event_id FROM journal").fetchall()
    assert [row[:4] for row in found] == [(seq, 5, "mail:m", "mail.queued") for seq in (1, 2, 3)]
    assert [row[4] for row in found] == ["mail:7:queued", None, "mail:7:offered"]
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        connection.execute(add, (4, "mail:7:queued"))
    connection.close()


OLD_COLUMNS = """
    number, invocation_id, run_id, requester, requester_session, requester_mailbox, requester_info, asked, target,
    target_name, action, ensure_awake, fingerprint, size, created_at, state, job, attempts, reconciled
"""
OLD_ROWS = (
    (1, "i1", "r1", "session:a", "a", "session:a", b'{"id":"a"}', "b", "b"),
    (2, "i2", "r2", "session:a", "a", None, b'{"id":"a"}', "@b", "b"),
    (3, "i3", "r3", "address:4", "s", "address:4", b'{"id":"s"}', "b", "b"),
)


def test_an_older_store_keeps_who_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """protocol 13.3: who asked, under which name, and where it is told; in the rows as in the journal."""
    version = next(place for place, step in enumerate(schema.STEPS) if any("bodies ADD" in one for one in step))
    connection = sqlite3.connect(":memory:", isolation_level=None)
    with monkeypatch.context() as patch:
        patch.setattr(schema, "STEPS", schema.STEPS[:version])
        schema.advance(connection, 0)
    names = [name.strip() for name in OLD_COLUMNS.split(",")]
    for row in OLD_ROWS:
        values = [*row, "b", "execute", 0, "f", 2, 5, "queued", "pending", 0, 0]
        connection.execute(f"INSERT INTO invocations ({OLD_COLUMNS}) VALUES ({', '.join('?' * len(names))})", values)
        told = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        flags = {"ensure_awake": False, "reconciled": False}
        text = encode({**told, **flags}).decode()
        add = "INSERT INTO journal VALUES (?, 5, ?, 'invocation.requested', NULL, 1, ?, 0, '{}')"
        connection.execute(add, (row[0], f"invocation:{row[0]}", text))
        connection.execute("INSERT INTO bodies VALUES (?, '{}', NULL)", (row[0],))
    changed, damaged = """{"state":"running","worker":"w"}""", '{"state'
    connection.execute(add, (4, "invocation:1", changed))
    connection.execute(add, (5, "invocation:6", damaged))
    schema.advance(connection, version)
    assert schema.differences(connection, schema.version()) == []
    [(free,)] = connection.execute("PRAGMA freelist_count")
    assert free == 0
    found = [record for _, record in read_records(connection, InvocationRecord)]
    assert [
        (each.number, each.requester_session, each.requester_mailbox, each.asked) for each in found if each is not None
    ] == [(number, session, mailbox, asked) for number, _, _, _, session, mailbox, _, asked, _ in OLD_ROWS]
    told = [row for (row,) in connection.execute("SELECT row FROM journal ORDER BY seq")]
    assert [decode(row, type=InvocationRecord) for row in told[:3]] == found
    assert decode(told[3]) == {"state": "running", "held_by": "w"}
    assert told[4] == damaged
    senders = connection.execute("SELECT sender FROM bodies ORDER BY number").fetchall()
    assert senders == [(row[6],) for row in OLD_ROWS]
    connection.close()
