from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from intercom.core.records import OperationState, SaveOperation
from intercom.paths import Paths
from intercom.store.database import Store
from intercom.store.inspection import files_of, inspect, move_aside
from tests.support.records import NOW, operation, question


def contents(home: Path) -> dict[str, str]:
    """Return a digest of every file that holds data; SQLite's shared memory does not."""
    return {
        path.name: sha256(path.read_bytes()).hexdigest() for path in home.iterdir() if not path.name.endswith("-shm")
    }


def filled(paths: Paths) -> Store:
    store = Store.open(paths, NOW)
    asked = operation(2, state=OperationState.ACCEPTED, question=question())
    store.commit([(1, (SaveOperation(operation(1)), SaveOperation(asked)))])
    return store


def test_a_home_without_a_store(paths: Paths) -> None:
    found = inspect(paths)
    assert (found.files, found.trouble, found.identity) == ({}, None, None)


def test_what_is_in_it_is_counted_and_nothing_is_changed(paths: Paths) -> None:
    store = filled(paths)
    identity = (store.broker_id, store.journal_id)
    store.close()
    before = contents(paths.home)
    found = inspect(paths)
    assert found.trouble is None
    assert found.identity is not None
    assert (found.identity.broker_id, found.identity.journal_id) == identity
    assert (found.operations, found.open_questions, found.retired_ids) == (2, 1, 0)
    assert set(found.files) == {"intercom.db", "intercom.key"}
    assert contents(paths.home) == before


def test_what_a_dead_broker_left_in_its_log_counts(paths: Paths) -> None:
    store = filled(paths)
    try:
        before = contents(paths.home)
        assert before["intercom.db-wal"]
        assert inspect(paths).operations == 2
        assert contents(paths.home) == before
    finally:
        store.close()


def spoil_key(paths: Paths) -> None:
    paths.key.write_bytes(bytes(32))


def cut_key(paths: Paths) -> None:
    paths.key.write_bytes(b"short")


def drop_key(paths: Paths) -> None:
    paths.key.unlink()


def drop_database(paths: Paths) -> None:
    paths.database.unlink()


def spoil_database(paths: Paths) -> None:
    paths.database.write_bytes(bytes(8_192))


def empty_database(paths: Paths) -> None:
    paths.database.write_bytes(b"")


def link_key(paths: Paths) -> None:
    paths.key.rename(paths.home / "elsewhere")
    paths.key.symlink_to(paths.home / "elsewhere")


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (spoil_key, "wrong_key"),
        (cut_key, "bad_key"),
        (drop_key, "half_pair"),
        (drop_database, "half_pair"),
        (spoil_database, "corrupt"),
        (empty_database, "corrupt"),
        (link_key, "not_ours"),
    ],
)
def test_it_is_refused_as_a_broker_would_refuse_it(paths: Paths, spoil: object, code: str) -> None:
    """Design section 5, fail closed; F128: looking changes nothing."""
    filled(paths).close()
    spoil(paths)  # type: ignore[operator]
    before = contents(paths.home)
    found = inspect(paths)
    assert found.trouble is not None
    assert found.trouble.code == code
    assert contents(paths.home) == before


def test_all_of_it_is_put_aside_and_the_next_store_is_another(paths: Paths) -> None:
    """Design section 5: the old files are kept, the next broker starts with a new journalId."""
    store = filled(paths)
    journal = store.journal_id
    store.close()
    kept = contents(paths.home)
    place = move_aside(paths, "aside")
    assert place == paths.home / "aside"
    assert contents(place) == kept
    assert files_of(paths) == []
    assert os.stat(place).st_mode & 0o777 == 0o700
    fresh = Store.open(paths, NOW)
    assert fresh.journal_id != journal
    fresh.close()
    with pytest.raises(FileExistsError):
        move_aside(paths, "aside")


def test_a_move_that_was_cut_off_can_be_done_again(paths: Paths) -> None:
    filled(paths).close()
    (paths.home / "first").mkdir()
    paths.database.rename(paths.home / "first" / "intercom.db")
    trouble = inspect(paths).trouble
    assert trouble is not None
    assert trouble.code == "half_pair"
    move_aside(paths, "second")
    assert inspect(paths).files == {}
