from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from intercom.core.records import DropRetiredId, RetiredIdRecord, SaveRetiredId
from intercom.limits import CHECKPOINT_PAGES
from intercom.paths import Paths
from intercom.store.database import Store
from intercom.store.log_space import extend_log

PAGE = 4_096
FULL_SIZE = 32 + 10 * (24 + PAGE)


def test_the_log_is_filled_up_with_zeros_behind_what_it_holds(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"frames")
    extend_log(log, 10, PAGE)
    assert log.read_bytes() == b"frames".ljust(FULL_SIZE, b"\0")
    assert log.stat().st_blocks * 512 >= FULL_SIZE, "room that is only set aside would make commits slow"


def test_a_log_that_is_long_enough_stays_as_it_is(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * (FULL_SIZE + 1))
    extend_log(log, 10, PAGE)
    assert log.read_bytes() == b"x" * (FULL_SIZE + 1)


def test_a_full_disk_leaves_the_log_as_long_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"frames")
    write, room = os.pwrite, [20_000]

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = write(descriptor, data[: room[0]], offset)
        room[0] -= count
        return count

    monkeypatch.setattr(os, "pwrite", pwrite)
    extend_log(log, 10, PAGE)
    assert room == [0]
    assert log.read_bytes() == b"frames"


def test_a_log_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    extend_log(tmp_path / "log", 10, PAGE)
    assert not list(tmp_path.iterdir())


def test_the_first_commit_makes_a_log_that_no_other_makes_longer(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    store = Store.open(paths, 0)
    log = tmp_path / "intercom.db-wal"
    store.commit([(1, (SaveRetiredId(RetiredIdRecord("1", None, 1)),))])
    size = log.stat().st_size
    assert size >= 32 + CHECKPOINT_PAGES * (24 + PAGE)
    for ticket in range(2, 2 * CHECKPOINT_PAGES):
        record = RetiredIdRecord(str(ticket % 7), None, ticket)
        store.commit([(ticket, (SaveRetiredId(record), DropRetiredId(str((ticket + 1) % 7))))])
    assert log.stat().st_size == size
    store.close()
    assert not log.exists()
