"""Keep the page about flows true: its diagrams against the tables, its example against the commands."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from intercom.cli.flow_files import read_flow
from intercom.client.reporting import MOVES
from intercom.core.flow_tables import TABLES, drawn

PAGE = (files("intercom") / "docs" / "flows.md").read_text("utf-8")
DIAGRAMS = {
    "Of a flow": "flow",
    "Of a step": "step",
    "Of an attempt: its message": "transport",
    "Of an attempt: its outcome": "outcome",
    "Of the binding to a to-do item": "binding",
}
EXPECTED = {heading: next(drawn(t.begins, t.moves) for t in TABLES if t.name == n) for heading, n in DIAGRAMS.items()}
EXPECTED["Of a report, at the worker"] = drawn("prepared", MOVES)


@pytest.mark.parametrize("heading", EXPECTED)
def test_a_diagram_is_the_table(heading: str) -> None:
    """After a change of a table the page is changed with it."""
    found = re.search(rf"^### {heading}\n\n```text\n(.*?)\n```", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None
    assert found[1].splitlines() == EXPECTED[heading]


def test_every_table_is_drawn() -> None:
    assert {table.name for table in TABLES} == set(DIAGRAMS.values())


def test_the_file_of_the_page_is_taken(tmp_path: Path) -> None:
    block = re.search(r"^    # release\.toml\n((?:    .*\n|\n)+)", PAGE, re.MULTILINE)
    assert block is not None
    place = tmp_path / "release.toml"
    place.write_text(re.sub(r"^    ", "", block[1], flags=re.MULTILINE))
    flow = read_flow(str(place))
    assert (flow["id"], flow["target"], [step["step_id"] for step in flow["steps"]]) == (
        "release",
        "worker",
        ["verify", "publish"],
    )
    assert flow["steps"][1]["report_timeout_ms"] == 3_600_000
