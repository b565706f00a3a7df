"""Keep counts of long searches over the ends of processes (``scripts/fuzz --book``, ``scripts/simulate --book``)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests.fuzz import runner
from tests.support import campaign
from tests.support.campaign import Book, Tried, in_batches


def die_once(place: Path, number: int) -> int:
    """End the process that tries the third world, the first time."""
    if number == 3 and not (place / "died").exists():
        (place / "died").touch()
        os._exit(9)
    return 10 * number


def die_always(number: int) -> int:
    """End every process that tries the third world."""
    if number == 3:
        os._exit(9)
    return 10 * number


def test_a_process_that_ends_takes_no_count_with_it(tmp_path: Path) -> None:
    tried = [each for batch, _ in in_batches(partial(die_once, tmp_path), range(6), 1, 4) for each in batch]
    assert tried == [Tried(number, 10 * number) for number in range(6)]


def test_a_world_that_ends_every_process_is_told() -> None:
    tried = [each for batch, _ in in_batches(die_always, range(2, 5), 1, 3) for each in batch]
    assert tried == [Tried(2, 20), Tried(3, None), Tried(4, 40)]


def test_a_book_goes_on_behind_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "book"
    book = Book(path, "worlds")
    assert book.next(7) == 7
    book.add(7, 5, 1.0, inputs=50, slowest=0.2, wrong=[9])
    book.add(12, 3, 1.0, inputs=30)
    with path.open("ab") as file:
        file.write(b'{"what":"wor')  # the process ended while it wrote
    again = Book(path, "worlds")
    assert (again.next(7), again.worlds, again.inputs) == (15, 8, 80)
    again.add(15, 1, 1.0)
    assert [entry.first for entry in Book(path, "worlds").entries] == [7, 12, 15]
    assert again.summary() == (
        "worlds: 9 worlds with 80 inputs from 7 on in 3 s, the slowest input took 200 ms: 1 with something wrong ([9])"
    )


def test_other_code_is_not_counted_and_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Book(tmp_path / "book", "worlds").add(1, 4, 1.0)
    monkeypatch.setattr(campaign, "code_digest", lambda: "changed")
    book = Book(tmp_path / "book", "worlds")
    assert (book.next(1), book.worlds) == (5, 0)
    assert book.summary().endswith("4 worlds more on other code")


def test_a_book_is_about_one_thing(tmp_path: Path) -> None:
    Book(tmp_path / "book", "core").add(1, 4, 1.0)
    with pytest.raises(ValueError, match="is about core, not about codec"):
        Book(tmp_path / "book", "codec")


def test_frames_are_counted_over_parts(tmp_path: Path) -> None:
    def part(frames: int) -> list[int]:
        book = Book(tmp_path / "book", "targets")
        return [played.number for played in runner.search("targets", 1, book, first=1, frames=frames)]

    first = part(1)
    assert first == list(range(1, len(first) + 1)), "a batch is played as a whole"
    assert part(1) == [], "so many were tried"
    counted = Book(tmp_path / "book", "targets").inputs
    assert part(counted + 1)[0] == len(first) + 1


def test_nobody_is_left_when_a_search_is_killed(tmp_path: Path) -> None:
    """Those who tried worlds for it end by themselves"""
    search = f"""
import os, pathlib, time
from tests.support import campaign

campaign._LOOK_S = 0.01

def stay(number):
    pathlib.Path({str(tmp_path)!r}, "pid").write_text(str(os.getpid()))
    os.rename({str(tmp_path / "pid")!r}, {str(tmp_path / "tries")!r})
    time.sleep(60)

list(campaign.in_batches(stay, [1], 1, 1))
"""
    top = Path(__file__).parents[1]
    searching = subprocess.Popen((sys.executable, "-c", search), cwd=top, env={**os.environ, "PYTHONPATH": str(top)})
    deadline = time.monotonic() + 30
    while not (tmp_path / "tries").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    worker = int((tmp_path / "tries").read_text())
    searching.kill()
    searching.wait()
    while Path(f"/proc/{worker}").exists() and " Z " not in Path(f"/proc/{worker}/stat").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
