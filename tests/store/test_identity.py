"""Test whose store it is, and that nothing else is taken for one."""

from __future__ import annotations

import hashlib
import hmac
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from intercom.core.records import RetiredIdRecord, SaveOperation, SaveRetiredId
from intercom.paths import Paths
from intercom.store.database import Store, StoreUnusable
from intercom.store.identity import key_check
from intercom.store.pair import beside
from intercom.store.rebuilding import rescue
from tests.support.records import NOW, operation


def refusal(paths: Paths) -> StoreUnusable:
    with pytest.raises(StoreUnusable) as caught:
        Store.open(paths, NOW)
    return caught.value


def change(paths: Paths, statement: str) -> None:
    connection = sqlite3.connect(paths.database)
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_identity_stays_and_the_epoch_grows(open_store: Callable[..., Store]) -> None:
    """Features 0.4: brokerId for the life of the store, epoch one more at every start."""
    first = open_store()
    first.close()
    second = open_store()
    assert (second.broker_id, second.journal_id, second.key) == (first.broker_id, first.journal_id, first.key)
    assert (first.epoch, second.epoch) == (1, 2)
    assert str(UUID(first.broker_id)) == first.broker_id
    assert str(UUID(first.journal_id)) == first.journal_id != first.broker_id


def test_key_check_is_a_keyed_digest_of_the_broker_id() -> None:
    """Design section 5: meta.keyCheck = HMAC(key, brokerId)."""
    assert key_check(b"k" * 32, "id") == hmac.new(b"k" * 32, b"id", hashlib.sha256).hexdigest()


def test_wrong_key_is_refused(open_store: Callable[..., Store], paths: Paths) -> None:
    """Design section 5, fail closed."""
    open_store().close()
    paths.key.write_bytes(bytes(32))
    before = paths.database.read_bytes()
    assert refusal(paths).code == "wrong_key"
    assert paths.database.read_bytes() == before
    assert paths.key.read_bytes() == bytes(32)


def test_wrong_key_is_refused_before_a_log_is_read_in(open_store: Callable[..., Store], paths: Paths) -> None:
    """Nothing is touched: a write-ahead log left by a crash stays as it is, too."""
    program = (
        "import os, sys; from pathlib import Path; from intercom.paths import Paths;"
        "from intercom.store.database import Store; Store.open(Paths(Path(sys.argv[1])), 0); os._exit(0)"
    )
    environ = {"PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, "-c", program, str(paths.home)], env=environ, check=True, timeout=30)
    key = paths.key.read_bytes()
    paths.key.write_bytes(bytes(32))
    files = [paths.database, paths.database.with_name("intercom.db-wal")]
    before = [path.read_bytes() for path in files]
    assert before[1]
    assert refusal(paths).code == "wrong_key"
    assert [path.read_bytes() for path in files] == before
    paths.key.write_bytes(key)
    assert open_store().epoch == 2


@pytest.mark.parametrize("kind", ["other program", "other application id", "no tables"])
def test_other_database_is_refused(open_store: Callable[..., Store], paths: Paths, kind: str) -> None:
    open_store().close()
    if kind == "other application id":
        change(paths, "PRAGMA application_id = 1")
    else:
        paths.database.unlink()
        change(paths, "CREATE TABLE other (x)" if kind == "other program" else "PRAGMA user_version = 1")
        paths.database.chmod(0o600)
    before = paths.database.read_bytes()
    assert refusal(paths).code == "foreign"
    assert paths.database.read_bytes() == before


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE meta",
        "DELETE FROM meta",
        *(f"DELETE FROM meta WHERE key = '{key}'" for key in ("schema", "brokerId", "journalId", "epoch", "keyCheck")),
        "UPDATE meta SET value = 0 WHERE key = 'schema'",
        "UPDATE meta SET value = 'x' WHERE key = 'schema'",
        "UPDATE meta SET value = -1 WHERE key = 'epoch'",
        "UPDATE meta SET value = 1.5 WHERE key = 'epoch'",
        "UPDATE meta SET value = '' WHERE key = 'brokerId'",
        "UPDATE meta SET value = x'00' WHERE key = 'journalId'",
        "UPDATE meta SET value = 1 WHERE key = 'keyCheck'",
    ],
)
def test_damaged_identity_is_refused(open_store: Callable[..., Store], paths: Paths, statement: str) -> None:
    open_store().close()
    change(paths, statement)
    before = paths.database.read_bytes()
    assert refusal(paths).code == "corrupt"
    assert paths.database.read_bytes() == before


@pytest.mark.parametrize("length", [0, 1, 99, 100, 4_095])
def test_a_log_outlives_a_database_that_was_cut_off(
    open_store: Callable[..., Store], paths: Paths, tmp_path: Path, length: int
) -> None:
    """F100: SQLite takes what is shorter than a page for a new database, and deletes the log that held everything."""
    store = open_store()
    store.commit([(1, (SaveOperation(operation(1, "kept")),))])
    log = beside(paths.database, "-wal")
    content = log.read_bytes()
    store.close()
    log.write_bytes(content)
    os.truncate(paths.database, length)
    with pytest.raises(StoreUnusable) as caught:
        open_store()
    assert caught.value.code == "corrupt"
    assert str(paths.database) in caught.value.reason
    assert rescue(paths).key is None
    assert log.read_bytes() == content


def test_damaged_file_is_refused_and_kept(open_store: Callable[..., Store], paths: Paths, tmp_path: Path) -> None:
    """F100 (with protocol 6.9.4 before it): empty, zeros, text, and cut at every 512 bytes."""
    store = open_store()
    store.commit([(1, tuple(SaveOperation(operation(number)) for number in range(1, 40)))])
    store.commit([(2, (SaveRetiredId(RetiredIdRecord("a", "h", 1)),))])
    store.close()
    whole = paths.database.read_bytes()
    damaged = [b"", bytes(len(whole)), b"SQLite format 3\0", b"{}", whole[:100] + bytes(len(whole) - 100)]
    damaged += [whole[:length] for length in range(512, len(whole), 512)]
    damaged += [whole[:page] + bytes(4_096) + whole[page + 4_096 :] for page in range(0, len(whole), 4_096)]
    names = sorted(os.listdir(tmp_path))
    for content in damaged:
        paths.database.write_bytes(content)
        for _ in range(2):
            assert refusal(paths).code == "corrupt"
        assert paths.database.read_bytes() == content
        assert sorted(os.listdir(tmp_path)) == names
    paths.database.write_bytes(whole)
    assert len(open_store().recovered.operations) == 39
