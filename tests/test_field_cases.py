"""Hold the page of field cases: what broke for users of such brokers elsewhere, each case known by its number.

Every case has one row in ``docs/field-cases.md``. Its tests are there and name the case; a row without one says why.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import pytest

from tests.support.brokers import TOP

CASES = frozenset(
    {
        *(1, 2, 4, 5, 6, 7, 8, 10, 11, 13, 14, 15, 17, 18),
        *(19, 20, 22, 23, 24, 26, 27, 29, 31, 32, 33, 34),
        *(35, 37, 38, 39, 40, 42, 44),
        *(45, 46, 47, 49, 50, 51, 53, 54, 55),
        *(57, 58, 60, 61, 62),
        *(63, 64, 65, 67, 68, 70),
        *(71, 72, 73, 74, 76),
        *(77, 78, 80, 81, 82, 83, 85, 86, 87, 89),
        *(90, 92, 93, 94),
        *(95, 96, 98, 99),
        *(100, 102, 104, 105, 106),
        *(107, 108, 110, 111),
        *(113, 114, 115),
        *(117, 118, 119, 120),
        *(122, 123, 124, 125, 126, 127),
        *(128, 130, 131),
        *(133, 134, 135, 136),
    }
)
PAGE = (files("intercom") / "docs" / "field-cases.md").read_text("utf-8")
REASONS = ("not yet: ", "does not apply: ")


class Row(NamedTuple):
    """Hold one case of the page: what must be so, the tests that hold it, and the rest of the cell."""

    case: int
    must: str
    tests: list[tuple[str, str]]
    note: str


def rows() -> list[Row]:
    """Return the cases of the page in their order."""
    found = []
    for case, must, held in re.findall(r"^\| F(\d+) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE):
        tests = re.findall(r"`tests/([\w/]+\.py)::(\w+)`", held)
        note = re.sub(r"(, )?`tests/[^`]+`", "", held)
        found.append(Row(int(case), must, tests, note))
    return found


@cache
def told_by(path: str) -> dict[str, frozenset[int]]:
    """Return which cases each test of a file names, in its docstring or that of the module."""
    tree = ast.parse((TOP / "tests" / path).read_text())
    about = ast.get_docstring(tree) or ""
    tests = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {
        test.name: frozenset(map(int, re.findall(r"\bF(\d+)\b", f"{about} {ast.get_docstring(test) or ''}")))
        for test in tests
        if test.name.startswith("test_")
    }


def all_named() -> Iterator[int]:
    """Yield the cases that any test names."""
    for path in (TOP / "tests").rglob("test_*.py"):
        for cases in told_by(str(path.relative_to(TOP / "tests"))).values():
            yield from cases


def test_every_case_has_one_row() -> None:
    assert sorted(row.case for row in rows()) == sorted(CASES)
    assert PAGE.count("\n| F") == len(CASES), "a row that cannot be read"


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"F{row.case}")
def test_what_holds_a_case_is_there(row: Row) -> None:
    for path, name in row.tests:
        cases = told_by(path).get(name)
        assert cases is not None, f"{path} has no test {name}"
        assert row.case in cases, f"{path}::{name} does not name F{row.case}"
    if not row.tests:
        assert row.note.startswith(REASONS), "a case without a test says why"


def test_no_test_names_a_case_that_the_page_leaves_out() -> None:
    named = set(all_named())
    assert named <= CASES
    without = {row.case for row in rows() if not row.tests}
    assert not named & without, "these have tests by now: name them in docs/field-cases.md"
