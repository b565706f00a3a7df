"""Test that an older copy of the database put back is noticed (FE 5.5, A5.7)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from intercom.paths import Paths
from intercom.store.database import CommitFailed, Store
from intercom.store.head import Head, HeadFile, read_head
from tests.support.records import event, letter


def test_it_is_written_at_most_once_a_second(tmp_path: Path) -> None:
    path = tmp_path / "head"
    head = HeadFile(path, "journal")
    head.committed(1, 10_000)
    head.committed(2, 10_999)
    assert read_head(path) == Head("journal", 1)
    head.committed(3, 11_000)
    assert read_head(path) == Head("journal", 3)
    assert path.stat().st_mode & 0o777 == 0o600
    head.committed(4, 11_001)
    head.write()
    assert read_head(path) == Head("journal", 4)
    assert os.listdir(tmp_path) == ["head"]


def test_what_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    assert read_head(tmp_path / "missing") is None
    (tmp_path / "text").write_text("no json")
    assert read_head(tmp_path / "text") is None
    os.mkfifo(tmp_path / "fifo")
    assert read_head(tmp_path / "fifo") is None
    (tmp_path / "link").symlink_to(tmp_path / "text")
    assert read_head(tmp_path / "link") is None


def test_a_place_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    HeadFile(tmp_path / "missing" / "head", "journal").committed(1, 0)


def test_a_journal_copied_back_from_an_older_backup_gets_a_new_id(
    open_store: Callable[..., Store], paths: Paths, tmp_path: Path
) -> None:
    """A5.7."""
    store = open_store()
    store.commit([(1, (event(1, letter(1)),))])
    store.close()
    backup = tmp_path / "backup"
    shutil.copy(paths.database, backup)
    store = open_store()
    store.commit([(1, (event(2, letter(2)),))])
    store.close()
    shutil.copy(backup, paths.database)
    restored = open_store()
    assert restored.was_restored
    assert restored.journal_id != store.journal_id
    assert restored.broker_id == store.broker_id
    restored.close()
    again = open_store()
    assert (again.was_restored, again.journal_id) == (False, restored.journal_id)


def test_a_store_that_only_went_on_keeps_its_journal(open_store: Callable[..., Store], paths: Paths) -> None:
    store = open_store()
    store.commit([(1, (event(1, letter(1)),))])
    store.close()
    paths.head.unlink()
    again = open_store()
    assert (again.was_restored, again.journal_id) == (False, store.journal_id)


def test_a_process_of_an_earlier_epoch_cannot_write(open_store: Callable[..., Store]) -> None:
    """A5.2: a paused first process that wakes up cannot write."""
    first = open_store()
    first.commit([(1, (event(1, letter(1)),))])
    second = open_store()
    with pytest.raises(CommitFailed) as caught:
        first.commit([(2, (event(2, letter(2)),))])
    assert caught.value.final
    second.commit([(1, (event(2, letter(3)),))])
    first.close()
    second.close()
    assert [record.number for record in open_store().recovered.mail] == [1, 3]
