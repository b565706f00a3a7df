"""Hooks without an adapter keep a host from stopping only so often."""

from __future__ import annotations

from pathlib import Path

from intercom.hosts.stops import Stops
from intercom.limits import STOPS
from intercom.paths import Paths


def test_a_row_of_stops_is_bounded_and_ends_with_a_prompt(tmp_path: Path) -> None:
    """Issue: stop always leaves room, so that it cannot block for ever; each hook is a process of its own."""
    for _ in range(2):
        assert [Stops(Paths(tmp_path), "codex", "s-1").may_hold() for _ in range(STOPS + 1)] == [True] * STOPS + [False]
        assert Stops(Paths(tmp_path), "codex", "s-2").may_hold(), "another session counts for itself"
        Stops(Paths(tmp_path), "codex", "s-1").end()
        Stops(Paths(tmp_path), "codex", "s-2").end()
    assert list((tmp_path / "stops").iterdir()) == []


def test_a_count_that_cannot_be_kept_lets_the_host_stop(tmp_path: Path) -> None:
    """Without a count nothing says when to give in."""
    (tmp_path / "stops").write_text("in the way")
    assert not Stops(Paths(tmp_path), "codex", "s-1").may_hold()


def test_a_file_that_holds_something_else_counts_as_new(tmp_path: Path) -> None:
    stops = Stops(Paths(tmp_path), "codex", "s-1")
    stops.end()
    assert stops.may_hold()
    [file] = (tmp_path / "stops").iterdir()
    file.write_bytes(b"\xff")
    assert not stops.may_hold()
    file.write_bytes(b"many")
    assert stops.may_hold()
