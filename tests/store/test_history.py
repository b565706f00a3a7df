"""Test the journal, the rows its events carry, and that a replay gives the same rows (FE 5.2 P2, A5.5)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from errno import ENOSPC
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from intercom.core.records import (
    AddressRecord,
    DropBodies,
    DropBody,
    DropHistory,
    DropOperation,
    Happened,
    KnownSessionRecord,
    MailRecord,
    OperationState,
    ReleaseBody,
    Row,
    SaveBody,
    SaveOperation,
    SessionState,
)
from intercom.paths import Paths
from intercom.store import history, schema
from intercom.store.database import CommitFailed, Store
from tests.support import records
from tests.support.records import NOW, event, letter


@pytest.fixture(scope="module")
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.advance(connection, 0)
    yield connection
    connection.close()


def rows(connection: sqlite3.Connection) -> dict[str, list[Any]]:
    return {table.name: connection.execute(table.select).fetchall() for table in history.TABLES.values()}


@given(row=records.rows)
def test_a_record_comes_back_as_it_was(connection: sqlite3.Connection, row: Row) -> None:
    history.project(connection, row, is_gone=False)
    found = [record for _, record in history.read_records(connection, type(row))]
    assert found == [row]
    history.project(connection, row, is_gone=True)
    assert list(history.read_records(connection, type(row))) == []


@pytest.mark.parametrize(
    ("kind", "row", "column", "value"),
    [
        (MailRecord, letter(1), "size", "many"),
        (MailRecord, letter(1), "is_ask", 2),
        (MailRecord, letter(1), "sender_info", "text"),
        (MailRecord, letter(1), "message_id", None),
        (MailRecord, letter(1), "elsewhere", "no json"),
        (MailRecord, letter(1), "elsewhere", '{"posted_to":"b"}'),
        (AddressRecord, AddressRecord(1, "n", "g", None, (), 1, 1), "groups", "no json"),
        (AddressRecord, AddressRecord(1, "n", "g", None, (), 1, 1), "groups", "[1]"),
        (AddressRecord, AddressRecord(1, "n", "g", None, (), 1, 1), "name", b"\xff"),
    ],
)
def test_a_damaged_row_is_no_record(
    connection: sqlite3.Connection, kind: type[Row], row: Row, column: str, value: Any
) -> None:
    """FE 1.2: a damaged entry is skipped, not fatal."""
    history.project(connection, row, is_gone=False)
    connection.execute(f"UPDATE {history.TABLES[kind].name} SET {column} = ?", (value,))
    assert [record for _, record in history.read_records(connection, kind)] == [None]
    connection.execute(f"DELETE FROM {history.TABLES[kind].name}")


@st.composite
def lives(draw: st.DrawFn) -> list[Happened]:
    """Draw a journal in which rows come, change and go."""
    drawn = draw(st.lists(records.rows, max_size=12))
    return [event(seq, row, is_gone=draw(st.booleans())) for seq, row in enumerate(drawn, 1)]


@given(events=lives())
def test_a_replayed_journal_equals_the_live_rows(connection: sqlite3.Connection, events: list[Happened]) -> None:
    """A5.5."""
    for table in ("journal", *(table.name for table in history.TABLES.values())):
        connection.execute(f"DELETE FROM {table}")
    assert history.write(connection, events, 1) == len(events)
    live = rows(connection)
    history.replay(connection)
    assert rows(connection) == live


@given(events=lives(), times=st.lists(st.integers(-5, 5), min_size=12, max_size=12), before=st.integers(-6, 6))
def test_dropping_history_changes_no_row(
    connection: sqlite3.Connection, events: list[Happened], times: list[int], before: int
) -> None:
    """A5.3, A5.5: whatever the clock did between the events."""
    for table in ("journal", *(table.name for table in history.TABLES.values())):
        connection.execute(f"DELETE FROM {table}")
    moved = [replace(event, at=NOW + at) for event, at in zip(events, times, strict=False)]
    history.write(connection, moved, 1)
    live = rows(connection)
    history.write(connection, [DropHistory(NOW + before)], 1)
    assert history.last_sequence(connection) == len(events)
    history.replay(connection)
    assert rows(connection) == live


def test_a_number_whose_history_is_kept_is_not_used_again(open_store: Callable[..., Store]) -> None:
    """Ids of events hold the numbers of mail: the second one's events would be taken for those of the first."""
    store = open_store()
    store.commit([(1, (replace(event(1, letter(7)), event_id="mail:7:queued"),))])
    store.commit([(2, (replace(event(2, letter(7), is_gone=True), event_id="mail:7:delivered"),))])
    store.close()
    assert open_store().recovered.last_number == 7


def test_the_sequence_goes_on_after_the_newest_events_were_dropped(open_store: Callable[..., Store]) -> None:
    """A5.7: else the store would be taken for an older copy of itself."""
    store = open_store()
    store.commit([(1, (event(1, letter(1)), event(2, letter(1), is_gone=True), DropHistory(NOW + 1)))])
    journal_id = store.journal_id
    store.close()
    again = open_store()
    assert (again.recovered.last_sequence, again.journal_id, again.was_restored) == (2, journal_id, False)


def test_an_event_is_written_once(connection: sqlite3.Connection) -> None:
    """FE 5.2 P2: an equal event id is a no-op."""
    connection.execute("DELETE FROM journal")
    row = AddressRecord(1, "n", "g", None, (), 1, 1)
    once = Happened(1, NOW, "address:1", "address.created", "same", row)
    history.write(connection, [once, Happened(2, NOW, "address:1", "address.created", "same", row)], 1)
    assert [found.seq for found in history.read_history(connection, "address:1")] == [1]
    connection.execute("DELETE FROM addresses")


def test_history_is_read_by_stream(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM journal")
    history.write(connection, [event(1, letter(1), "mail.queued"), event(2, letter(2), "mail.queued")], 1)
    history.write(connection, [event(3, letter(1), "mail.delivered", is_gone=True, session="s")], 1)
    first, last = history.read_history(connection, "mail:message-1")
    assert (first.kind, first.row["mailbox"], last.kind, last.detail) == (
        "mail.queued",
        "address:1",
        "mail.delivered",
        {"session": "s"},
    )
    connection.execute("UPDATE journal SET row = 'x' WHERE seq = 1")
    assert [found.seq for found in history.read_history(connection, "mail:message-1")] == [3]
    connection.execute("DELETE FROM mail")


def test_the_journal_is_read_page_by_page(connection: sqlite3.Connection) -> None:
    """FE 5.2 P2: watchable from a sequence; a page is of one moment and says whether anything was behind it."""
    connection.execute("DELETE FROM journal")
    connection.execute("DELETE FROM meta WHERE key IN ('sequence', 'compacted')")
    told = [event(seq, letter(seq), "mail.queued", session="s") for seq in range(1, 4)]
    history.write(connection, told, 1)
    first = history.read_page(connection, 0, 2)
    assert (first.events, first.last, first.is_whole, first.compacted) == (told[:2], 2, False, 0)
    last = history.read_page(connection, 2, 2)
    assert (last.events, last.last, last.is_whole) == (told[2:], 3, True)
    assert history.read_page(connection, 3, 2).events == []
    for column, value in (("row", "x"), ("detail", "[]"), ("stream", "odd:1"), ("at", "soon")):
        (before,) = connection.execute(f"SELECT {column} FROM journal WHERE seq = 2").fetchone()
        connection.execute(f"UPDATE journal SET {column} = ? WHERE seq = 2", (value,))
        page = history.read_page(connection, 0, 2)
        assert ([each.seq for each in page.events], page.last, page.is_whole) == ([1], 2, False), column
        connection.execute(f"UPDATE journal SET {column} = ? WHERE seq = 2", (before,))
    connection.execute("DELETE FROM mail")


def test_it_is_known_up_to_where_history_was_deleted(connection: sqlite3.Connection) -> None:
    """protocol 11.1.4, compacted"""
    connection.execute("DELETE FROM journal")
    connection.execute("DELETE FROM meta WHERE key IN ('sequence', 'compacted')")
    address = AddressRecord(1, "n", "g", None, (), 1, 1)
    history.write(connection, [event(1, address), event(2, letter(1)), event(3, letter(2)), event(4, address)], 1)
    history.write(connection, [event(5, letter(2), is_gone=True), DropHistory(NOW)], 1)
    assert history.read_page(connection, 0, 9).compacted == 0, "nothing was deleted"
    history.write(connection, [DropHistory(NOW + 1)], 1)
    page = history.read_page(connection, 0, 9)
    assert ([each.seq for each in page.events], page.compacted, page.last) == ([2, 4], 5, 5)
    history.write(connection, [event(6, address), DropHistory(NOW + 1)], 1)
    page = history.read_page(connection, 0, 9)
    assert ([each.seq for each in page.events], page.compacted) == ([2, 6], 5)
    connection.execute("DELETE FROM mail")
    connection.execute("DELETE FROM addresses")


def test_bodies_stay_until_their_time(connection: sqlite3.Connection) -> None:
    """Design section 5, Privacy: while open and 24 h after."""
    history.write(connection, [SaveBody(1, b"one"), SaveBody(2, b"two"), ReleaseBody(1, 100), ReleaseBody(9, 1)], 1)
    assert history.read_bodies(connection, (1, 2, 3)) == {1: b"one", 2: b"two"}
    history.write(connection, [DropBodies(99)], 1)
    assert history.read_bodies(connection, (1, 2)) == {1: b"one", 2: b"two"}
    history.write(connection, [DropBodies(100)], 1)
    assert history.read_bodies(connection, (1, 2)) == {2: b"two"}
    history.write(connection, [SaveBody(3, b"three"), DropBody(3), DropBody(2), DropBody(9)], 1)
    assert history.read_bodies(connection, (2, 3)) == {}


def test_only_history_of_what_is_over_goes(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM journal")
    gone, kept = letter(1), letter(2)
    history.write(
        connection, [event(1, gone), event(2, gone, is_gone=True), event(3, kept), event(4, letter(3), "late")], 1
    )
    connection.execute("UPDATE journal SET at = at + 10 WHERE seq = 4")
    connection.execute("DELETE FROM mail WHERE number = 3")
    history.write(connection, [DropHistory(NOW + 1)], 1)
    assert connection.execute("SELECT seq FROM journal ORDER BY seq").fetchall() == [(3,), (4,)]
    history.replay(connection)
    assert [record for _, record in history.read_records(connection, MailRecord)] == [letter(2), letter(3)]


def test_everything_of_one_append_is_committed_or_nothing(open_store: Callable[..., Store], paths: Paths) -> None:
    """FE 5.1: one transaction {journal entry + row change}."""
    store = open_store()
    known = KnownSessionRecord("s", 1, SessionState.ACTIVE, 1, "i", 1, "t", None, 1, None, "g", (), b"{}", False)
    store.commit([(1, (event(1, letter(5)), SaveBody(5, b"text")))])
    store.before_commit = lambda: (_ for _ in ()).throw(OSError(5, "broken"))  # type: ignore[assignment]
    with pytest.raises(Exception, match="broken"):
        store.commit([(2, (event(2, known), event(3, letter(5), is_gone=True)))])
    store.close()
    again = open_store().recovered
    assert (again.mail, again.known_sessions, again.last_sequence) == ([letter(5)], [], 1)
    assert again.last_number == 5


def test_only_operations_may_be_kept_in_memory(open_store: Callable[..., Store]) -> None:
    """Design section 5: `durability = "memory"` concerns `operations` only; mail always syncs."""
    store = open_store(durability="memory")
    queued = records.operation(1, state=OperationState.QUEUED, position=1)
    store.commit([(1, (SaveOperation(queued), SaveBody(1, b"x"), event(1, letter(1))))])
    store.commit([(2, (SaveOperation(records.operation(2)),))])
    store.close()
    again = open_store(durability="memory")
    assert [record.number for record in again.recovered.operations] == [1]
    assert [record.number for record in again.recovered.mail] == [1]
    again.commit([(1, (SaveOperation(records.operation(1, state=OperationState.ACCEPTED)), DropOperation(2)))])
    again.close()
    assert open_store(durability="memory").recovered.operations == []


def test_what_waits_is_deleted_although_the_first_attempt_failed(open_store: Callable[..., Store]) -> None:
    """Design section 5: a commit that fails changes nothing, not what is known of the disk either; found by the
    simulator: the row stayed for ever, and answered `queued` for mail that was gone."""
    store = open_store(durability="memory")
    queued = records.operation(1, state=OperationState.QUEUED, position=1)
    store.commit([(1, (SaveOperation(queued), SaveBody(1, b"x"), event(1, letter(1))))])

    def full() -> None:
        raise OSError(ENOSPC, "No space left on device")

    store.before_commit = full
    with pytest.raises(CommitFailed):
        store.commit([(2, (DropOperation(1),))])
    store.before_commit = None
    store.commit([(3, (DropOperation(1),))])
    store.close()
    assert open_store(durability="memory").recovered.operations == []


def test_one_commit_writes_a_row_once_and_the_journal_whole(connection: sqlite3.Connection) -> None:
    """A5.5: the newest of several events of a row is what the row says, a member that is gone is NULL again."""
    connection.execute("DELETE FROM mail")
    before = replace(letter(7), reply_to="m0", kept="hold")
    after = replace(before, reply_to=None, kept=None, offers=2)
    gone = letter(8)
    events = [
        event(901, before, "mail.queued"),
        event(902, gone, "mail.queued"),
        event(903, after, "mail.offered"),
        event(904, gone, "mail.delivered", is_gone=True),
    ]
    assert history.write(connection, events, 1) == 904
    assert [record for _, record in history.read_records(connection, MailRecord)] == [after]
    assert connection.execute("SELECT COUNT(*) FROM journal WHERE seq > 900").fetchone() == (4,)
    assert history.write(connection, [event(905, after, "mail.delivered", is_gone=True)], 1) == 905
    connection.execute("DELETE FROM journal WHERE seq > 900")


def test_bodies_are_written_in_the_order_of_their_changes(connection: sqlite3.Connection) -> None:
    """Of what is said of one body the last counts, whatever stands between."""
    history.write(connection, [SaveBody(71, b"a"), ReleaseBody(71, NOW), SaveBody(71, b"b"), SaveBody(72, b"c")], 1)
    history.write(connection, [ReleaseBody(72, NOW), DropBodies(NOW)], 1)
    assert history.read_bodies(connection, [71, 72]) == {71: b"b"}
    connection.execute("DELETE FROM bodies WHERE number = 71")
