"""Hold the page of promises against the rules that worlds are checked by, and against the tests it names."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

PAGE = (files("intercom") / "docs" / "promises.md").read_text("utf-8")
PROMISES, TRIED = PAGE.split("## Where each promise is tried")
CHECKED = frozenset(
    rule
    for source in Path(__file__).parent.glob("*.py")
    for rule in re.findall(r'Broken\(\s*"([a-z-]+)"', source.read_text("utf-8"))
)
TOP = Path(__file__).parents[2]


def rows(page: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:2] == "| "]


def test_every_rule_is_promised_and_every_promise_is_checked() -> None:
    named = {rule for row in rows(PROMISES) for rule in row[-1].split(", ")}
    rules = {rule.strip("`") for rule in named if re.fullmatch(r"`[a-z]+(-[a-z]+)+`", rule)}
    assert rules == CHECKED


def test_every_rule_and_every_event_names_its_tests() -> None:
    events = {row[0] for row in rows(PROMISES.split("## What survives what")[1].split("## ")[0])} - {"event"}
    tried = {row[0] for row in rows(TRIED)} - {"rule or event"}
    assert tried == events | {f"`{rule}`" for rule in CHECKED}


def test_the_tests_that_are_named_are_there() -> None:
    named = [re.findall(r"`([^`]+)::([^`]+)`", row[-1]) for row in rows(TRIED)[1:]]
    assert all(named)
    for path, name in (each for found in named for each in found):
        assert re.search(rf"^(async )?def {name}\(", (TOP / path).read_text("utf-8"), re.MULTILINE), (path, name)
