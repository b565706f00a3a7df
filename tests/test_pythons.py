"""Test how ``scripts/test --all-pythons`` finds interpreters."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.pythons import newest


def interpreter(place: Path, answer: str) -> Path:
    """Write a program that says of itself what an interpreter would."""
    place.write_text(f"#!/bin/sh\necho {answer} {place}\n")
    place.chmod(0o700)
    return place


def test_the_newest_of_each_version_is_taken(tmp_path: Path) -> None:
    older, newer = (interpreter(tmp_path / f"python-{number}", f"cpython 3 12 {number}") for number in (1, 10))
    other = interpreter(tmp_path / "python-11", "cpython 3 11 0")
    assert newest(iter([older, newer, other])) == [other, newer]


@pytest.mark.parametrize("answer", ["cpython 3 10 13", "pypy 3 11 0", "", "cpython x y z"])
def test_what_cannot_run_it_is_passed_over(tmp_path: Path, answer: str) -> None:
    assert newest(iter([interpreter(tmp_path / "python", answer), tmp_path / "nothing"])) == []


def test_this_one_is_found() -> None:
    assert newest(iter([Path(sys.executable)])) == [Path(sys.executable)]
