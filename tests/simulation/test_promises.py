"""Hold the page of promises against the rules that worlds are checked by."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

PAGE = (files("intercom") / "docs" / "promises.md").read_text("utf-8")
CHECKED = frozenset(
    rule
    for source in Path(__file__).parent.glob("*.py")
    for rule in re.findall(r'Broken\("([a-z-]+)"', source.read_text("utf-8"))
)


def test_every_rule_is_promised_and_every_promise_is_checked() -> None:
    named = {rule for line in PAGE.splitlines() if line.startswith("| ") for rule in line.rsplit("|", 2)[-2].split(",")}
    rules = {rule.strip().strip("`") for rule in named if re.fullmatch(r" ?`[a-z]+(-[a-z]+)+` ?", rule)}
    assert rules == CHECKED
