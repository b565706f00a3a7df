"""Test that events which hold only what changed tell whole rows (FE 5.2 P2, A5.5)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from intercom.core.invocation_records import InvocationRecord
from intercom.core.journal import stream_of
from intercom.core.records import DropHistory, Elsewhere, Happened, MailRecord
from intercom.store import history, schema
from intercom.store.telling import Partly, Telling
from tests.support.records import NOW, event, letter

FIRST = InvocationRecord(7, "inv", "run", "address:1", "t", "w", "f" * 64, 9, NOW, acted_as="s", asked_as="@w")
STREAM = stream_of(FIRST)
THERE = Elsewhere(("b",), ("c",))


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.advance(connection, 0)
    yield connection
    connection.close()


def changed(seq: int, before: InvocationRecord, **members: Any) -> Happened:
    row = replace(before, **members)
    return replace(event(seq, row, "run.updated"), changed=tuple(members), event_id=None)


def of_mail(seq: int, row: MailRecord, kind: str, members: tuple[str, ...], *, is_gone: bool = False) -> Happened:
    return replace(event(seq, row, kind), event_id=f"{kind}:{seq}", changed=members, is_gone=is_gone)


def rows(connection: sqlite3.Connection) -> list[InvocationRecord | None]:
    return [record for _, record in history.read_records(connection, InvocationRecord)]


MEMBERS: dict[str, st.SearchStrategy[Any]] = {
    "state": st.sampled_from(["queued", "running", "failed"]),
    "take_until": st.none() | st.integers(0, 9),
    "held_by": st.none() | st.text(max_size=3),
    "reconciled": st.booleans(),
    "wishes": st.none() | st.binary(max_size=3),
    "attempts": st.integers(0, 9),
}


@given(
    steps=st.lists(st.fixed_dictionaries({}, optional=MEMBERS).filter(bool), max_size=6),
    cuts=st.lists(st.booleans(), min_size=7, max_size=7),
    after=st.integers(0, 7),
)
def test_what_changed_tells_the_row(steps: list[dict[str, Any]], cuts: list[bool], after: int) -> None:
    """A5.5: written in one commit or in many, replayed, and read from any sequence on."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.advance(connection, 0)
    events = [event(1, FIRST)]
    for step in steps:
        last = events[-1].row
        assert isinstance(last, InvocationRecord)
        events.append(changed(len(events) + 1, last, **step))
    batch: list[Happened] = []
    for each, cut in zip(events, [*cuts, True], strict=False):
        batch.append(each)
        if cut:
            history.write(connection, batch, 1)
            batch = []
    history.write(connection, batch, 1)
    assert rows(connection) == [events[-1].row]
    history.replay(connection)
    assert rows(connection) == [events[-1].row]
    assert [one.row for one in history.read_page(connection, after, 9).events] == [one.row for one in events[after:]]
    shown = [one.row for one in history.read_history(connection, STREAM)]
    assert [each.get("attempts", 0) for each in shown] == [asdict(one.row)["attempts"] for one in events]
    assert all(each["invocation_id"] == "inv" for each in shown)
    connection.close()


@given(
    changes=st.lists(
        st.tuples(st.integers(1, 9), st.fixed_dictionaries({}, optional=MEMBERS).filter(bool)), min_size=1, max_size=20
    )
)
def test_what_changed_in_many_rows_at_once_tells_each_of_them(changes: list[tuple[int, dict[str, Any]]]) -> None:
    """A5.5: the same change of rows that follow each other is one statement, which reaches none between them."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.advance(connection, 0)
    expected = {number: replace(FIRST, number=number, invocation_id=f"i{number}") for number in range(1, 10)}
    history.write(connection, [event(number, row) for number, row in expected.items()], 1)
    batch = []
    for number, members in changes:
        batch.append(changed(10 + len(batch), expected[number], **members))
        expected[number] = replace(expected[number], **members)
    history.write(connection, batch, 1)
    assert rows(connection) == list(expected.values())
    history.replay(connection)
    assert rows(connection) == list(expected.values())
    connection.close()


def test_the_journal_holds_only_what_changed(connection: sqlite3.Connection) -> None:
    history.write(connection, [event(1, FIRST), changed(2, FIRST, state="running", held_by="s2")], 1)
    (told,) = connection.execute("SELECT row FROM journal WHERE seq = 2").fetchone()
    assert told == '{"state":"running","held_by":"s2"}'


def test_what_rests_on_a_damaged_event_is_not_told(connection: sqlite3.Connection) -> None:
    """FE 3.2: a line that does not parse is skipped; nothing is made up in its place."""
    second = changed(2, FIRST, state="running")
    assert isinstance(second.row, InvocationRecord)
    third = changed(3, second.row, attempts=2)
    whole = event(4, replace(FIRST, state="failed", attempts=3))
    history.write(connection, [event(1, FIRST), second, third, whole], 1)
    for damaged, left in ((1, [4]), (2, [1, 4]), (3, [1, 2, 4])):
        (row,) = connection.execute("SELECT row FROM journal WHERE seq = ?", (damaged,)).fetchone()
        connection.execute("UPDATE journal SET row = '{\"a' WHERE seq = ?", (damaged,))
        assert [one.seq for one in history.read_page(connection, 0, 9).events] == left
        assert [one.seq for one in history.read_history(connection, STREAM)] == left
        for after in range(4):
            told = [one.seq for one in history.read_page(connection, after, 9).events]
            assert told == [seq for seq in left if seq > after]
        connection.execute("UPDATE journal SET row = ? WHERE seq = ?", (row, damaged))
    assert [one.seq for one in history.read_page(connection, 2, 9).events] == [3, 4]


def test_what_is_told_by_changes_is_deleted_as_a_whole(connection: sqlite3.Connection) -> None:
    """Of a row that is there no event is deleted, however old: a later one may rest on it."""
    history.write(connection, [event(1, FIRST), changed(2, FIRST, state="running")], 1)
    history.write(connection, [DropHistory(NOW + 1_000_000)], 1)
    assert connection.execute("SELECT COUNT(*) FROM journal").fetchone() == (2,)
    gone = event(3, replace(FIRST, state="running"), "invocation.forgotten", is_gone=True)
    history.write(connection, [gone, DropHistory(NOW + 1_000_000)], 1)
    assert connection.execute("SELECT COUNT(*) FROM journal").fetchone() == (0,)


def test_rows_of_other_kinds_pass_as_they_are() -> None:
    telling = Telling({InvocationRecord: Partly("invocation_id", None)})
    assert telling.whole("mail:m", MailRecord, "no json") == "no json"
    with pytest.raises(KeyError):
        telling.whole("invocation:1", InvocationRecord, "{}")


def test_what_becomes_of_one_message_in_two_mailboxes_is_told_apart(connection: sqlite3.Connection) -> None:
    """protocol 11: one stream tells it, of rows of several kinds; a change names the row that it is about."""
    first, second = letter(7, message_id="m"), letter(9, message_id="m", target="other")
    events = [
        event(1, first, "mail.queued"),
        event(2, second, "mail.queued"),
        of_mail(3, replace(first, offers=1), "mail.offered", ("offers",)),
        of_mail(4, replace(second, offers=1), "mail.offered", ("offers",)),
        of_mail(5, replace(second, offers=2, elsewhere=THERE), "mail.offered", ("offers", "elsewhere")),
        of_mail(6, replace(first, offers=1), "mail.delivered", (), is_gone=True),
    ]
    history.write(connection, events[:4], 1)
    history.write(connection, events[4:], 1)
    (told,) = connection.execute("SELECT row FROM journal WHERE seq = 5").fetchone()
    assert told == '{"number":9,"offers":2,"elsewhere":{"posted_to":["b"],"left_for":["c"]}}'
    (told,) = connection.execute("SELECT row FROM journal WHERE seq = 6").fetchone()
    assert told == '{"number":7}'
    for after in range(6):
        page = history.read_page(connection, after, 9).events
        assert [each.row for each in page] == [each.row for each in events[after:]]
    assert [each.row["offers"] for each in history.read_history(connection, "mail:m")] == [0, 0, 1, 1, 2, 1]
    history.replay(connection)
    assert [record for _, record in history.read_records(connection, MailRecord)] == [events[4].row]
