"""Damage the files that clients keep: tokens, seen ids, reports and journals; a client says so, or goes on rightly."""

from __future__ import annotations

import itertools
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec.json import encode

from intercom.client.journalfile import JournalFile, damaged
from intercom.client.keeping import AddressKeeper
from intercom.client.report_files import ReportFiles
from intercom.client.reporting import ReportRecord
from intercom.errors import IntercomError
from intercom.paths import Paths
from tests.fuzz.mutations import spoilt_bytes
from tests.fuzz.tally import Tally

FILES = 40
LONGEST_S = 1.0
WALL = 1_700_000_000_000


def play(number: int) -> Tally:
    """Write the files of an address, damage one, and use them again, again and again."""
    chance, tally = random.Random(number), Tally()
    with tempfile.TemporaryDirectory(prefix="ic-fuzz-") as place:
        whole, home = Path(place, "whole").resolve(), Path(place, "home").resolve()
        _write(Paths(whole))
        for _ in range(FILES):
            shutil.copytree(whole, home, symlinks=True)
            victims = sorted(path for path in (home / "identities").rglob("*") if path.is_file())
            victim = chance.choice(victims)
            what = _damage(victim, chance)
            begun = time.thread_time()
            _use(Paths(home))
            tally.count(time.thread_time() - begun, (victim.name, what), LONGEST_S)
            shutil.rmtree(home)
    return tally


def _ids() -> Callable[[], str]:
    counted = itertools.count()
    return lambda: f"00000000-0000-4000-8000-{next(counted):012x}"


def _write(paths: Paths) -> None:
    keeper = AddressKeeper(paths, "amy", "default")
    keeper.prepare()
    keeper.note(["m-1", "m-2"])
    reports = ReportFiles(paths, "amy", "default")
    for dispatch_id in ("d-1", "d-2"):
        reports.save(ReportRecord(dispatch_id=dispatch_id, outcome="completed", summary="done", resources=["a"]))
    journal = JournalFile(paths, "k", _ids())
    journal.open(WALL)
    for number in (1, 2):
        told = journal.receive(f"c-{number}", number, b'{"do":1}')
        assert told is not None
        journal.begin(told)
    journal.settle("c-1", "command_applied", WALL)
    journal.report(b'{"kind":"odd"}', WALL)
    journal.acknowledge(1)
    journal.close()


def _damage(victim: Path, chance: random.Random) -> str:
    """Change a file as a failing disk, a full one or a person would."""
    content = victim.read_bytes()
    draw = chance.randrange(10)
    if draw == 0:
        victim.unlink()
        return "deleted"
    if draw == 1:
        victim.write_bytes(b"")
        return "emptied"
    if draw == 2:
        lines = content.splitlines(keepends=True)
        chance.shuffle(lines)
        victim.write_bytes(b"".join(lines) * chance.choice((1, 2)))
        return "shuffled"
    if draw == 3:
        victim.write_bytes(content + chance.randbytes(20) + b"\n")
        return "continued"
    if draw == 4:
        victim.unlink()
        victim.symlink_to("/dev/zero")
        return "a link"
    victim.write_bytes(spoilt_bytes(content, chance))
    return "spoilt"


def _use(paths: Paths) -> None:
    """Do with the files what clients do; an error of ours is an answer."""
    keeper = AddressKeeper(paths, "amy", "default")
    with suppress(IntercomError):
        keeper.prepare()
        assert keeper.token()
    keeper.refresh()
    keeper.knows("m-1")
    keeper.note(["m-3"])
    assert keeper.knows("m-3")
    reports = ReportFiles(paths, "amy", "default")
    for record in reports.load():
        assert isinstance(record, ReportRecord) and encode(record)
    with suppress(IntercomError):
        reports.save(ReportRecord(dispatch_id="d-3", outcome="failed", summary="no", resources=[]))
        assert any(record.dispatch_id == "d-3" for record in reports.load())
    for error in damaged(paths):
        assert str(error)
    journal = JournalFile(paths, "k", _ids())
    try:
        with suppress(IntercomError):
            journal.open(WALL)
            told = journal.receive(f"c-{journal.last_received + 1}", journal.last_received + 1, b"{}")
            if told is not None:
                journal.begin(told)
                journal.settle(told.command_id, "command_failed", WALL)
            journal.renew()
    finally:
        journal.close()
