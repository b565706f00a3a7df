"""Test what ``scripts/power-loss`` takes for possible after the power has failed."""

from __future__ import annotations

import random
from pathlib import Path

from scripts.strain.power_images import FATES, KEPT, LOST, SECTOR_BYTES, TORN, Disk, Note, notes

HOME = Path("/home/one")
DATABASE = str(HOME / "db")
CHANCE = random.Random(0)


def did(what: str, name: str = DATABASE, offset: int = 0, data: bytes = b"") -> Note:
    return Note(what, name, offset, data, 0)


def disk_after(*done: Note) -> Disk:
    disk = Disk(HOME)
    for note in done:
        disk.follow(note)
    return disk


MADE = (did("create"), did("write", data=b"old"), did("sync"), did("sync", str(HOME)))


def test_what_was_synced_is_there_whatever_happens() -> None:
    disk = disk_after(*MADE)
    assert disk.unsynced == 0
    assert [disk.left(fate, CHANCE) for fate in FATES] == [{"db": b"old"}] * 3


def test_what_was_written_since_may_be_lost() -> None:
    disk = disk_after(*MADE, did("write", offset=3, data=b"er"), did("truncate", offset=4))
    assert disk.left(LOST, CHANCE) == {"db": b"old"}
    assert disk.left(KEPT, CHANCE) == {"db": b"olde"}


def test_some_sectors_of_a_write_may_be_there() -> None:
    disk = disk_after(*MADE, did("write", data=b"n" * 4 * SECTOR_BYTES))
    seen = {disk.left(TORN, CHANCE)["db"] for _ in range(200)}
    assert {len(content) for content in seen} == {3, *(part * SECTOR_BYTES for part in range(1, 5))}
    assert len(seen) > 5


def test_a_name_that_was_not_synced_may_be_missing_or_the_old_one() -> None:
    temporary = str(HOME / "db.new")
    disk = disk_after(
        *MADE,
        did("create", temporary),
        did("write", temporary, data=b"new"),
        did("sync", temporary),
        did("rename", temporary, data=DATABASE.encode()),
    )
    assert disk.left(LOST, CHANCE) == {"db": b"old"}
    assert disk.left(KEPT, CHANCE) == {"db": b"new"}
    disk.follow(did("sync", str(HOME)))
    assert disk.left(LOST, CHANCE) == {"db": b"new"}
    disk.follow(did("unlink"))
    assert (disk.left(LOST, CHANCE), disk.left(KEPT, CHANCE)) == ({"db": b"new"}, {})


def test_a_directory_that_is_synced_says_nothing_about_another() -> None:
    inner = str(HOME / "inside" / "token")
    disk = disk_after(*MADE, did("create", inner), did("sync", inner), did("sync", str(HOME)))
    assert disk.left(LOST, CHANCE) == {"db": b"old"}
    disk.follow(did("link", inner, data=f"{inner}.2".encode()))
    disk.follow(did("sync", str(HOME / "inside")))
    assert set(disk.left(LOST, CHANCE)) == {"db", "inside/token", "inside/token.2"}


def test_notes_are_read_as_they_were_written(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    name = b"/home/one/db"
    trace.write_bytes(b"write 5 3 12\n" + name + b"a\nb" + b"sync 0 0 12\n" + name + b"write 0 9 12\n" + name + b"cut")
    assert list(notes(trace)) == [Note("write", DATABASE, 5, b"a\nb", 28), Note("sync", DATABASE, 0, b"", 52)]
