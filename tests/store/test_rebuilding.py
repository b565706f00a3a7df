"""Rebuild damaged stores: what is saved, what is said to be lost, and what a rebuilding that is cut off leaves."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from intercom.core.flow_records import HostedRecord, ReportRecord, StepRecord, TargetIdentity
from intercom.core.records import (
    AddressRecord,
    AssignmentRecord,
    DiagnosisRecord,
    DispatchRecord,
    FlowRecord,
    Happened,
    IdempotencyRecord,
    IdempotencyState,
    InboxRecord,
    InvocationRecord,
    KnownSessionRecord,
    MailRecord,
    OperationState,
    ReleaseBody,
    RetiredIdRecord,
    Row,
    SaveBody,
    SaveOperation,
    SaveRetiredId,
    SessionState,
)
from intercom.paths import Paths
from intercom.store import rebuilding
from intercom.store.database import Store, StoreUnusable
from intercom.store.inspection import files_of, inspect, move_aside
from intercom.store.rebuilding import MENDED, rebuild, rescue
from tests.support.records import NOW, event, letter, operation, question

MANY = 2_000
"""Rows of a database that has many pages."""


def filled(paths: Paths, rows: int = 3) -> tuple[str, str]:
    """Make a store with some rows, one of them an open question; return broker and journal id."""
    store = Store.open(paths, NOW)
    asked = operation(rows, state=OperationState.ACCEPTED, question=question())
    saved = [SaveOperation(operation(number)) for number in range(1, rows)]
    store.commit([(1, (*saved, SaveOperation(asked), SaveRetiredId(RetiredIdRecord("s1", "hash", 1))))])
    store.close()
    return store.broker_id, store.journal_id


def lose_key(paths: Paths) -> None:
    paths.key.unlink()


def take_another_key(paths: Paths) -> None:
    paths.key.write_bytes(bytes(32))


def cut_key(paths: Paths) -> None:
    paths.key.write_bytes(b"short")


def lose_database(paths: Paths) -> None:
    paths.database.unlink()


def spoil_all(paths: Paths) -> None:
    paths.database.write_bytes(bytes(paths.database.stat().st_size))


def spoil_middle(paths: Paths) -> None:
    """Overwrite a page in the middle of the rows."""
    connection = sqlite3.connect(paths.database)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.close()
    with open(paths.database, "r+b") as file:
        file.seek(size * (pages // 2))
        file.write(b"\xff" * size)


def forget_identity(paths: Paths) -> None:
    connection = sqlite3.connect(paths.database)
    connection.execute("DELETE FROM meta WHERE key IN ('epoch', 'brokerId')")
    connection.commit()
    connection.close()


def leave_out_a_column(paths: Paths) -> None:
    connection = sqlite3.connect(paths.database)
    connection.execute("ALTER TABLE operations DROP COLUMN position")
    connection.commit()
    connection.close()


def test_a_lost_key_costs_what_the_ids_were_used_for(paths: Paths, open_store: Callable[..., Store]) -> None:
    """Protocol 6.9.4: a row that cannot be compared costs its own id, and lets nothing arrive twice."""
    before = filled(paths)
    lose_key(paths)
    place, saved = rebuild(paths, "aside")
    assert (saved.key, saved.count("operations"), saved.count("retired_ids")) == (None, 3, 1)
    assert not saved.is_whole
    store = open_store()
    assert store.broker_id == before[0] and store.journal_id != before[1]
    assert store.recovered.damaged == {"message-1", "message-2", "message-3"}
    assert [record.session_id for record in store.recovered.retired_ids] == ["s1"]
    assert sorted(path.name for path in place.iterdir()) == ["intercom.db"]


@pytest.mark.parametrize("spoil", [take_another_key, cut_key])
def test_a_key_that_is_not_its_own_is_lost(
    paths: Paths, open_store: Callable[..., Store], spoil: Callable[[Paths], None]
) -> None:
    filled(paths)
    spoil(paths)
    old = paths.key.read_bytes()
    place, saved = rebuild(paths, "aside")
    assert saved.key is None
    assert (place / "intercom.key").read_bytes() == old
    assert len(open_store().recovered.damaged) == 3


def test_a_lost_database_is_begun_anew(paths: Paths, open_store: Callable[..., Store]) -> None:
    filled(paths)
    lose_database(paths)
    place, saved = rebuild(paths, "aside")
    assert (saved.tables, saved.is_whole) == ({}, False)
    assert open_store().recovered.operations == []
    assert [path.name for path in place.iterdir()] == ["intercom.key"]


def test_a_database_of_which_nothing_is_left(paths: Paths, open_store: Callable[..., Store]) -> None:
    filled(paths)
    spoil_all(paths)
    spoilt = paths.database.read_bytes()
    place, saved = rebuild(paths, "aside")
    assert saved.count("operations") == 0 and not saved.is_whole
    assert (place / "intercom.db").read_bytes() == spoilt
    assert open_store().recovered.operations == []


def test_what_lies_around_a_damaged_page_is_saved(paths: Paths, open_store: Callable[..., Store]) -> None:
    filled(paths, MANY)
    spoil_middle(paths)
    found = inspect(paths)
    assert found.trouble is not None and found.trouble.code == "corrupt"
    _, saved = rebuild(paths, "aside")
    kept = saved.count("operations")
    assert saved.key is not None and not saved.tables["operations"].is_whole
    assert MANY // 2 < kept < MANY
    recovered = open_store().recovered
    numbers = {record.number for record in recovered.operations}
    assert {1, MANY} <= numbers and len(numbers) + len(recovered.damaged) == kept
    [asked] = [record for record in recovered.operations if record.question is not None]
    assert asked.number == MANY, "its question is still open"


def test_an_identity_that_is_lost_costs_no_row(paths: Paths, open_store: Callable[..., Store]) -> None:
    broker_id, _ = filled(paths)
    forget_identity(paths)
    _, saved = rebuild(paths, "aside")
    assert saved.is_whole
    store = open_store()
    assert len(store.recovered.operations) == 3 and store.broker_id != broker_id


def test_other_columns_than_ours_are_left_empty(paths: Paths, open_store: Callable[..., Store]) -> None:
    filled(paths)
    leave_out_a_column(paths)
    found = inspect(paths)
    assert found.trouble is not None and found.trouble.code == "foreign"
    rebuild(paths, "aside")
    assert len(open_store().recovered.operations) == 3


def test_a_row_that_does_not_say_what_it_is_about_is_lost(paths: Paths, open_store: Callable[..., Store]) -> None:
    """Such a row closes the whole store, because any message might be the one."""
    filled(paths)
    connection = sqlite3.connect(paths.database)
    connection.execute("UPDATE operations SET message_id = NULL WHERE number = 1")
    connection.commit()
    connection.close()
    paths.key.unlink()
    _, saved = rebuild(paths, "aside")
    assert saved.count("operations") == 2 and not saved.tables["operations"].is_whole
    assert len(open_store().recovered.damaged) == 2


def test_what_only_the_log_holds_is_saved_too(paths: Paths, tmp_path: Path) -> None:
    """A dead broker's last commits are in the write-ahead log, which goes aside with the database."""
    filled(paths)
    store = Store.open(paths, NOW)
    store.commit([(1, (SaveOperation(operation(9)),))])
    kept = {path.name: path.read_bytes() for path in files_of(paths)}
    store.close()
    for name, content in kept.items():
        (paths.home / name).write_bytes(content)
    paths.key.unlink()
    place, saved = rebuild(paths, "aside")
    assert saved.count("operations") == 4
    assert (place / "intercom.db-wal").read_bytes() == kept["intercom.db-wal"]
    assert not (paths.home / "intercom.db-wal").exists()


# --- mail, and what is told of it

DESK = AddressRecord(1, "desk", "default", "hash", ("default",), NOW, NOW)
AWAY = KnownSessionRecord(
    "s2", 2, SessionState.RECONNECTING, NOW, "i", 1, "hash", None, 7, None, "default", ("queue",), b"{}", False
)


def with_mail(paths: Paths, letters: int = 3) -> tuple[list[MailRecord], int]:
    """Make a store with an address, a session that is away, and mail of which the first was taken; return what is left.

    The second number is that of the last event.
    """
    waiting = [letter(number) for number in range(1, letters + 1)]
    changes: list[object] = [Happened(1, NOW, "address:1", "address.created", "a", DESK, False, {})]
    changes.append(event(2, AWAY, "session.reconnecting"))
    for seq, mail in enumerate(waiting, 3):
        changes += [event(seq, mail, "mail.queued"), SaveBody(mail.number, b"{}" * 200)]
        changes.append(SaveOperation(operation(mail.number, state=OperationState.QUEUED)))
    last = letters + 3
    changes += [event(last, waiting[0], "mail.taken", is_gone=True), ReleaseBody(1, NOW + 1)]
    store = Store.open(paths, NOW)
    store.commit([(1, tuple(changes))])  # type: ignore[arg-type]
    store.close()
    return waiting[1:], last


def spoil_table(paths: Paths, name: str) -> None:
    """Overwrite the first page of a table."""
    connection = sqlite3.connect(paths.database)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).fetchone()
    connection.close()
    with open(paths.database, "r+b") as file:
        file.seek(size * (page - 1))
        file.write(b"\xff" * size)


def as_it_was(store: Store, mail: list[MailRecord], last: int) -> bool:
    found = store.recovered
    assert (found.addresses, found.known_sessions, found.mail) == ([DESK], [AWAY], mail)
    return found.last_sequence == last


def test_mail_and_its_history_come_through(paths: Paths, open_store: Callable[..., Store]) -> None:
    """Design section 5: a lost key costs what ids were used for, nothing that waits."""
    waiting, last = with_mail(paths)
    paths.key.unlink()
    _, saved = rebuild(paths, "aside")
    assert all(table.is_whole for table in saved.tables.values())
    assert {name: saved.count(name) for name in ("addresses", "sessions", "mail", "bodies", "journal")} == {
        "addresses": 1,
        "sessions": 1,
        "mail": 2,
        "bodies": 3,
        "journal": last,
    }
    assert as_it_was(open_store(), waiting, last)
    connection = sqlite3.connect(paths.database)
    assert connection.execute("SELECT number, length(message), until FROM bodies").fetchall() == [
        (1, 400, NOW + 1),
        (2, 400, None),
        (3, 400, None),
    ]
    connection.close()
    found = inspect(paths)
    assert (found.addresses, found.mail, found.trouble) == (1, 2, None)


@pytest.mark.parametrize("name", ["addresses", "sessions", "mail"])
def test_a_damaged_table_is_made_anew_out_of_the_journal(
    paths: Paths, open_store: Callable[..., Store], name: str
) -> None:
    """FE 5.2 P2: whoever replays the journal gets the rows; what was taken does not come back."""
    waiting, last = with_mail(paths, 40)
    spoil_table(paths, name)
    _, saved = rebuild(paths, "aside")
    assert saved.is_whole, "nothing is lost"
    assert as_it_was(open_store(), waiting, last)


def with_work(paths: Paths) -> tuple[list[Row], int]:
    """Make a store in which one message is parked, one is assigned and one is done; return the rows that are left."""
    rows: list[Row] = [
        InboxRecord(1, "m1", b"{}", None, "a", "w", 2, NOW, NOW + 9, "unaddressed", "bound_session", ("g",)),
        InboxRecord(
            2, "m2", b"{}", None, "a", "w", 2, NOW, NOW + 9, "unaddressed", "any_session", ("g",), assignment="x"
        ),
        AssignmentRecord("x", 3, 2, "m2", "s2", "i", None, "pushed", NOW, NOW + 9, "assigned", 1, push_id="p"),
        IdempotencyRecord(1, "order", "k", "f", IdempotencyState.DONE, b"{}", NOW + 9),
    ]
    over = InboxRecord(4, "m4", b"{}", None, "a", "w", 2, NOW, NOW + 9, "unaddressed", "any_session", ("g",))
    events: list[object] = [event(seq, row) for seq, row in enumerate([*rows, over], 1)]
    events.append(event(6, over, "inbox.settled", is_gone=True))
    store = Store.open(paths, NOW)
    store.commit([(1, tuple(events))])  # type: ignore[arg-type]
    store.close()
    return rows, 6


@pytest.mark.parametrize("name", ["inbox", "assignments", "idempotency"])
def test_work_is_made_anew_out_of_the_journal(paths: Paths, open_store: Callable[..., Store], name: str) -> None:
    """A5.5: nobody has a message twice, and what is done does not come back."""
    rows, last = with_work(paths)
    spoil_table(paths, name)
    _, saved = rebuild(paths, "aside")
    assert saved.is_whole
    found = open_store().recovered
    assert [*found.inbox, *found.assignments, *found.idempotency] == rows
    assert (found.last_sequence, found.last_number) == (last, 2)


@pytest.mark.parametrize("name", ["invocations", "diagnoses"])
def test_invocations_are_made_anew_out_of_the_journal(
    paths: Paths, open_store: Callable[..., Store], name: str
) -> None:
    """A5.5, A3.2: what was accepted is there, at its newest; a number that names texts is not used again."""
    asked = InvocationRecord(5, "i", "r", "session:a", "b", "b", "f", 2, NOW, asked_as="@b")
    done = replace(asked, state="completed", job="completed", result=8, completed_at=NOW)
    told = DiagnosisRecord(6, "d", "i2", "session:a", "a", "unknown", "@c", "nobody", b"[]", NOW)
    events = [
        event(1, asked, "invocation.requested"),
        event(2, done, "run.updated"),
        event(3, told, "route.diagnosed"),
        event(4, replace(told, number=7, diagnosis_id="d7"), "route.diagnosed"),
        event(5, replace(told, number=7, diagnosis_id="d7"), "route.forgotten", is_gone=True),
    ]
    store = Store.open(paths, NOW)
    store.commit([(1, tuple(events))])  # type: ignore[arg-type]
    store.close()
    spoil_table(paths, name)
    _, saved = rebuild(paths, "aside")
    assert saved.is_whole
    found = open_store().recovered
    assert (found.invocations, found.diagnoses) == ([done], [told])
    assert (found.last_sequence, found.last_number) == (5, 8)


def with_flows(paths: Paths) -> tuple[FlowRecord, DispatchRecord]:
    """Make a store with a flow whose first step was reported, and the texts of both; return its rows."""
    done = StepRecord("one", 3, "completed", ("d",), "d")
    flow = FlowRecord(
        number=1, flow_id="f", revision=2, state="active", target="w", group="g", created_by="address:1", creator="b",
        creator_session="s", created_at=NOW, updated_at=NOW + 2, steps=(done, StepRecord("two", 4)),
    )  # fmt: skip
    dispatch = DispatchRecord(
        number=1, dispatch_id="d", flow_id="f", step_id="one", group="g", revision=1,
        identity=TargetIdentity("b", "s", "i"), created_at=NOW, negotiated=False, outcome="completed",
        report=ReportRecord("completed", 9, "x", NOW),
    )  # fmt: skip
    store = Store.open(paths, NOW)
    changes: list[object] = [
        event(1, replace(flow, revision=1, updated_at=NOW), "flow.created"),
        event(2, dispatch, "dispatch.prepared"),
        event(3, flow, "flow.dispatch_completed"),
        *(SaveBody(number, b"text") for number in (3, 4, 9)),
    ]
    store.commit([(1, tuple(changes))])  # type: ignore[arg-type]
    store.close()
    return flow, dispatch


@pytest.mark.parametrize("names", [("flows",), ("dispatches",), ("flows", "dispatches")], ids="+".join)
def test_flows_are_made_anew_out_of_the_journal(
    paths: Paths, open_store: Callable[..., Store], names: tuple[str, ...]
) -> None:
    """A2.15: equal in ids, times and states."""
    flow, dispatch = with_flows(paths)
    for name in names:
        spoil_table(paths, name)
    _, saved = rebuild(paths, "aside")
    assert saved.is_whole
    found = open_store().recovered
    assert (found.flows, found.dispatches) == ([flow], [dispatch])
    assert (found.last_sequence, found.last_number, found.lost_texts) == (3, 9, frozenset())


@pytest.mark.parametrize(
    "change", ["DELETE FROM {}", "UPDATE {} SET revision = 'many'", "UPDATE {} SET identity = '{{'"]
)
@pytest.mark.parametrize("names", [("flows",), ("dispatches",), ("flows", "dispatches")], ids="+".join)
def test_flows_whose_rows_are_gone_or_damaged_come_back_at_the_next_start(
    paths: Paths, open_store: Callable[..., Store], names: tuple[str, ...], change: str
) -> None:
    """A2.15, FE 2.6: nobody has to rebuild anything; the journal tells the rows."""
    flow, dispatch = with_flows(paths)
    connection = sqlite3.connect(paths.database)
    for name in names:
        connection.execute(change.format(name))
    connection.commit()
    connection.close()
    found = open_store().recovered
    assert (found.flows, found.dispatches) == ([flow], [dispatch])


@pytest.mark.parametrize("change", ["DELETE FROM hosted", "UPDATE hosted SET identity = '{'"])
def test_steps_of_flows_elsewhere_come_back_too(paths: Paths, open_store: Callable[..., Store], change: str) -> None:
    """A2.15 at the broker of the worker; one that was deleted does not come back."""
    kept = HostedRecord(
        number=7, dispatch_id="d", peer="b", flow_id="f", step_id="one", group="g",
        identity=TargetIdentity("a", "s", "i"), stored_at=NOW, transport="accepted", offers=1,
        report=ReportRecord("completed", 8, "x", NOW),
    )  # fmt: skip
    other = replace(kept, number=9, dispatch_id="e", report=None)
    store = Store.open(paths, NOW)
    events = [
        event(1, replace(kept, transport="prepared", offers=0, report=None), "hosted.stored"),
        event(2, kept, "hosted.reported_completed"),
        event(3, other, "hosted.stored"),
        event(4, other, "hosted.deleted", is_gone=True),
    ]
    store.commit([(1, tuple(events))])  # type: ignore[arg-type]
    store.close()
    connection = sqlite3.connect(paths.database)
    connection.execute(change)
    connection.commit()
    connection.close()
    found = open_store().recovered
    assert (found.hosted, found.last_number) == ([kept], 7)


def test_a_flow_that_was_deleted_does_not_come_back(paths: Paths, open_store: Callable[..., Store]) -> None:
    flow, dispatch = with_flows(paths)
    store = Store.open(paths, NOW)
    gone = [event(4, replace(dispatch, revision=2), "dispatch.deleted", is_gone=True)]
    gone.append(event(5, replace(flow, revision=3), "flow.deleted", is_gone=True))
    store.commit([(1, tuple(gone))])
    store.close()
    found = open_store().recovered
    assert (found.flows, found.dispatches) == ([], [])


def test_the_number_of_a_text_that_is_lost_is_not_given_again(paths: Paths, open_store: Callable[..., Store]) -> None:
    """Design section 5: texts are not made anew; no other text may be taken for one."""
    with_flows(paths)
    spoil_table(paths, "bodies")
    rebuild(paths, "aside")
    found = open_store().recovered
    assert found.last_number == 9
    assert found.lost_texts == {4}, "of what is not completed"


@pytest.mark.parametrize("change", ["UPDATE mail SET size = 'many'", "ALTER TABLE mail DROP COLUMN size"])
def test_rows_that_do_not_say_what_they_should_are_made_anew(
    paths: Paths, open_store: Callable[..., Store], change: str
) -> None:
    waiting, last = with_mail(paths)
    connection = sqlite3.connect(paths.database)
    connection.execute(change)
    connection.commit()
    connection.close()
    paths.key.unlink()
    rebuild(paths, "aside")
    assert as_it_was(open_store(), waiting, last)


def test_without_the_journal_a_damaged_table_is_lost(paths: Paths, open_store: Callable[..., Store]) -> None:
    """A part of the journal may not say that a message was taken, and nothing may arrive twice."""
    with_mail(paths, 40)
    spoil_table(paths, "mail")
    spoil_table(paths, "journal")
    _, saved = rebuild(paths, "aside")
    assert not saved.is_whole and saved.count("mail") == 0
    store = open_store()
    assert (store.recovered.addresses, store.recovered.mail) == ([DESK], [])


def test_an_event_that_says_nothing_leaves_the_rows_as_they_are(paths: Paths, open_store: Callable[..., Store]) -> None:
    with_mail(paths)
    connection = sqlite3.connect(paths.database)
    connection.execute("UPDATE journal SET row = '{' WHERE seq = 3")
    connection.execute("UPDATE mail SET size = 'many' WHERE number = 2")
    connection.commit()
    connection.close()
    paths.key.unlink()
    rebuild(paths, "aside")
    assert [mail.number for mail in open_store().recovered.mail] == [3]


def test_a_store_of_an_earlier_version_lacks_nothing(paths: Paths, open_store: Callable[..., Store]) -> None:
    """What its version did not have is not lost."""
    filled(paths)
    connection = sqlite3.connect(paths.database)
    for name in ("addresses", "sessions", "mail", "bodies", "journal"):
        connection.execute(f"DROP TABLE {name}")
    connection.execute("ALTER TABLE retired_ids DROP COLUMN address")
    connection.execute("UPDATE meta SET value = 1 WHERE key = 'schema'")
    connection.commit()
    connection.close()
    assert (inspect(paths).trouble, inspect(paths).mail) == (None, 0)
    paths.key.unlink()
    _, saved = rebuild(paths, "aside")
    assert all(table.is_whole for table in saved.tables.values())
    assert [record.session_id for record in open_store().recovered.retired_ids] == ["s1"]


class CutOff(Exception):
    """Stand for the moment in which the process is killed."""


CALLS = ("mkdir", "link", "unlink", "rename", "replace", "fsync")


@pytest.mark.parametrize("spoil", [lose_key, take_another_key, lose_database, spoil_middle])
def test_at_no_moment_is_anything_recreated_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Paths], None]
) -> None:
    """Design section 5: whatever is cut off, a broker refuses what is there, and doing it again saves as much."""
    template = Paths(tmp_path / "template")
    template.home.mkdir()
    filled(template, 200)
    spoil(template)
    wanted = rescue(template).count("operations")
    for allowed in range(100):
        paths = Paths(shutil.copytree(template.home, tmp_path / str(allowed)))
        left = [allowed]

        def counted(call: Callable[..., object], left: list[int] = left) -> Callable[..., object]:
            def run(*arguments: object, **options: object) -> object:
                if left[0] == 0:
                    raise CutOff
                left[0] -= 1
                return call(*arguments, **options)

            return run

        with monkeypatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, counted(getattr(os, name)))
            try:
                rebuild(paths, "aside")
            except CutOff:
                was_cut = True
            else:
                was_cut = False
        found = inspect(paths)
        if found.trouble is not None:
            assert found.trouble.code in MENDED
            with pytest.raises(StoreUnusable):
                Store.open(paths, NOW)
            rebuild(paths, "again")
        store = Store.open(paths, NOW)
        assert len(store.recovered.operations) + len(store.recovered.damaged) == wanted, allowed
        store.close()
        if not was_cut:
            assert allowed > 10, "every step was cut off once"
            return
    raise AssertionError("it never came to its end")


def test_a_rebuilding_that_was_cut_off_is_put_aside_with_the_rest(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(paths)
    paths.key.unlink()

    def refuse(*arguments: object) -> None:
        raise CutOff

    with monkeypatch.context() as patch:
        patch.setattr(rebuilding, "_sync", refuse)
        with pytest.raises(CutOff):
            rebuild(paths, "aside")
    move_aside(paths, "all")
    assert files_of(paths) == []
    assert inspect(paths).files == {}
