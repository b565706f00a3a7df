"""Test what a durable worker keeps: written before it is said, whole after any end of the process (FE 4)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from intercom.client import journalfile, workerjournal
from intercom.client.journalfile import JournalFile, damaged
from intercom.errors import AccessDenied, AddressHeld, HomeError
from intercom.paths import Paths
from intercom.testing.disk import counted_ids

IDS = counted_ids()


def opened(home: Path) -> JournalFile:
    journal = JournalFile(Paths(home), "key", IDS)
    journal.open(5)
    return journal


def again(journal: JournalFile, home: Path) -> JournalFile:
    """Let the process end, and another one begin."""
    journal.close()
    return opened(home)


def file_of(home: Path) -> Path:
    return home / "identities" / "addresses" / "key.link"


def kinds(journal: JournalFile) -> list[tuple[int, bytes]]:
    return [(event.seq, event.body) for event in journal.reported]


def test_everything_is_there_again(home: Path) -> None:
    journal = opened(home)
    journal.report(b'{"kind":"a","n":1.50}', 7)
    journal.report(b'{"kind":"b"}', 8)
    journal.receive("c1", 4, b'{"do":\n "it"}')
    journal.acknowledge(1)
    was = (journal.id, list(journal.reported), journal.waiting, journal.last_received)
    journal = again(journal, home)
    assert (journal.id, list(journal.reported), journal.waiting, journal.last_received) == was
    assert (journal.last_seq, journal.floor) == (2, 1)
    assert journal.waiting[0].body == b'{"do":"it"}'
    assert stat.S_IMODE(file_of(home).stat().st_mode) == 0o600
    journal.close()


def test_bodies_keep_their_bytes(home: Path) -> None:
    """An event that comes again is the same: the broker compares."""
    body = b'{"kind":"a","x":1e2,"y":[1.0,12345678901234567890],"z":"\\u00e9"}'
    journal = opened(home)
    journal.report(body, 1)
    journal = again(journal, home)
    assert kinds(journal) == [(1, body)]
    journal.close()


def test_a_command_is_received_once_and_begun_once(home: Path) -> None:
    journal = opened(home)
    told = journal.receive("c1", 1, b"{}")
    assert told is not None
    assert journal.receive("c1", 1, b"{}") is None
    journal = again(journal, home)
    assert journal.receive("c1", 1, b"{}") is None
    [told] = journal.waiting
    journal.begin(told)
    journal.settle("c1", "command_applied", 5)
    assert journal.waiting == []
    journal = again(journal, home)
    assert (journal.waiting, journal.receive("c1", 1, b"{}")) == ([], None)
    assert kinds(journal) == [(1, b'{"kind":"command_applied","commandId":"c1"}')]
    journal.close()


def test_what_was_begun_when_the_process_ended_is_reported_and_not_begun_again(home: Path) -> None:
    journal = opened(home)
    told = journal.receive("c1", 1, b"{}")
    assert told is not None
    journal.begin(told)
    for _ in range(2):
        journal = again(journal, home)
        assert journal.waiting == []
        assert kinds(journal) == [(1, b'{"kind":"command_failed","commandId":"c1","errorCode":"interrupted"}')]
    journal.close()


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_torn_line_counts_for_nothing(home: Path, cut: int) -> None:
    journal = opened(home)
    journal.report(b'{"kind":"a"}', 1)
    whole = file_of(home).stat().st_size
    journal.report(b'{"kind":"torn"}', 1)
    journal.close()
    os.truncate(file_of(home), whole + min(cut, file_of(home).stat().st_size - whole - 1))
    journal = opened(home)
    assert kinds(journal) == [(1, b'{"kind":"a"}')]
    assert journal.report(b'{"kind":"b"}', 1).seq == 2
    journal = again(journal, home)
    assert kinds(journal) == [(1, b'{"kind":"a"}'), (2, b'{"kind":"b"}')]
    journal.close()


def test_a_damaged_file_is_not_made_anew(home: Path) -> None:
    opened(home).close()
    file_of(home).write_bytes(b"{}\n")
    with pytest.raises(HomeError) as caught:
        opened(home)
    assert caught.value.code == "identity_damaged"
    assert file_of(home).read_bytes() == b"{}\n"


def test_one_session_at_a_time(home: Path) -> None:
    journal = opened(home)
    with pytest.raises(AddressHeld):
        opened(home)
    again(journal, home).close()


def test_a_new_journal_is_on_disk_with_its_name(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FE 4.2: the broker pins the journal it saw first, also when the power fails right after."""
    synced = []
    sync = os.fsync

    def note_sync(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note_sync)
    journal = JournalFile(Paths(home), "k", lambda: "j1")
    journal.open(1)
    journal.close()
    assert synced == ["k.link", "addresses", "identities", home.name]
    synced.clear()
    journal.open(2)
    journal.close()
    assert synced == []


def test_it_is_shortened_when_the_broker_has_everything(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journalfile, "JOURNAL_SHORTENED_BYTES", 400)
    monkeypatch.setattr(workerjournal, "COMMAND_IDS_KEPT", 2)
    journal = opened(home)
    for number in range(1, 6):
        journal.receive(f"c{number}", number, b"{}")
        journal.settle(f"c{number}", "command_applied", 1)
    begun = journal.receive("c6", 6, b'{"x":1}')
    assert begun is not None
    before = file_of(home).stat().st_size
    journal.acknowledge(5)
    assert file_of(home).stat().st_size < before
    assert journal.report(b'{"kind":"next"}', 1).seq == 6
    was = journal.id
    journal = again(journal, home)
    assert (journal.id, journal.floor, journal.last_seq) == (was, 5, 6)
    assert [told.command_id for told in journal.waiting] == ["c6"]
    assert list(journal.commands) == ["c4", "c5", "c6"]
    journal.close()


def test_a_new_identity_keeps_what_is_not_with_the_broker(home: Path) -> None:
    """FE 4.4: a journal that is behind what the broker knows counts from one again, under another name."""
    journal = opened(home)
    was = journal.id
    journal.report(b'{"kind":"a"}', 1)
    journal.report(b'{"kind":"b"}', 1)
    journal.acknowledge(1)
    journal.receive("c1", 9, b"{}")
    journal.renew()
    for _ in range(2):
        assert journal.id != was
        assert kinds(journal) == [(1, b'{"kind":"b"}')]
        assert [told.command_id for told in journal.waiting] == ["c1"]
        journal = again(journal, home)
    journal.close()


def test_a_disk_that_is_full_loses_nothing_that_was_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = opened(home)
    journal.report(b'{"kind":"a"}', 1)

    def refuse(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[:5])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(journalfile, "_write", refuse)
        with pytest.raises(HomeError, match="No space left"):
            journal.report(b'{"kind":"b"}', 1)
    assert journal.report(b'{"kind":"c"}', 1).seq == 2
    journal = again(journal, home)
    assert kinds(journal) == [(1, b'{"kind":"a"}'), (2, b'{"kind":"c"}')]
    journal.close()


@pytest.mark.parametrize("failing", ["fsync", "sync_directories"])
def test_what_is_said_after_it_could_not_be_shortened_is_kept(
    home: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """FE 4: before the shorter file took its place, and after."""
    monkeypatch.setattr(journalfile, "JOURNAL_SHORTENED_BYTES", 1)
    journal = opened(home)
    journal.report(b'{"kind":"a"}', 1)
    sync = os.fsync

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    def refuse_draft(descriptor: int) -> None:
        sync(descriptor)
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".new"):
            refuse()

    with monkeypatch.context() as patch:
        if failing == "fsync":
            patch.setattr(os, "fsync", refuse_draft)
        else:
            patch.setattr(journalfile, failing, refuse)
        with pytest.raises(HomeError, match="Input/output error"):
            journal.acknowledge(1)
    assert journal.report(b'{"kind":"b"}', 1).seq == 2
    journal = again(journal, home)
    assert (kinds(journal), journal.floor) == ([(2, b'{"kind":"b"}')], 1)
    journal.close()


def test_a_journal_that_could_not_be_begun_is_free_for_others(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(journalfile, "sync_directories", refuse)
        with pytest.raises(AccessDenied):
            opened(home)
    opened(home).close()


def test_it_is_looked_at_while_its_worker_has_it(home: Path) -> None:
    """What is being written counts for nothing yet, and nothing is changed by looking."""
    assert damaged(Paths(home)) == []
    journal = opened(home)
    journal.report(b'{"kind":"a"}', 7)
    whole = file_of(home).read_bytes()
    file_of(home).write_bytes(whole + b'{"e":2')
    assert damaged(Paths(home)) == []
    assert file_of(home).read_bytes() == whole + b'{"e":2'
    file_of(home).write_bytes(whole + b"{}\n")
    [trouble] = damaged(Paths(home))
    assert trouble.reason == f"{file_of(home)} is damaged in line 3"
    journal.close()
