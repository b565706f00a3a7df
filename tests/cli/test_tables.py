from __future__ import annotations

import io
import sys

import pytest

from intercom.cli.render import Output, columns_of
from intercom.cli.tables import Fit, fitted, show_table, table
from intercom.limits import CELL_COLUMNS, CUT_CELL_COLUMNS, CUT_NAME_COLUMNS

HEAD = ("NAME", "ID", "MODEL", "GROUPS", "DIRECTORY")
FIT = Fit(
    whole=("ID",), end_first=("DIRECTORY",), start_first=("MODEL", "GROUPS"), left_out=("GROUPS", "MODEL", "DIRECTORY")
)
ROWS = [
    ("worker", "1a2b3c4d", "some-model-with-a-long-name", "default", "/home/somebody/projects/the-first-one (here)"),
    ("日本", "0" * 60, "m", "default", "/x"),
]


def width_of(cells: list[list[str]]) -> int:
    return sum(max(map(columns_of, column)) for column in zip(*cells, strict=True)) + 2 * (len(cells[0]) - 1)


def test_a_row_is_one_line_whatever_it_holds() -> None:
    """F110: widths are computed after spelling out."""
    lines = table(("NAME", "DIRECTORY"), [("evil\nname", "/x"), ("日本", "/y\x1b")])
    assert lines == [
        "NAME        DIRECTORY",
        "evil\\nname  /x",
        "日本        /y\\x1b",
    ]


def test_ids_are_whole_in_every_width() -> None:
    """F46: what is printed works when pasted."""
    assert "0" * 60 in table(HEAD, ROWS, FIT)[2]
    for width in range(10, 160, 7):
        assert fitted(HEAD, ROWS, width, FIT)[2][1] == "0" * 60


def test_what_fits_stays_as_it_is() -> None:
    whole = fitted(HEAD, ROWS, 1_000, FIT)
    assert whole == [list(HEAD), *map(list, ROWS)]
    assert fitted(HEAD, ROWS, width_of(whole), FIT) == whole


@pytest.mark.parametrize("width", [80, 90, 100, 120, 140])
def test_cutting_comes_before_leaving_out(width: int) -> None:
    cells = fitted(HEAD, [ROWS[0]], width, FIT)
    assert width_of(cells) <= width
    assert cells[0] == list(HEAD)
    assert cells[1][:2] == ["worker", "1a2b3c4d"]


def test_of_a_directory_the_end_is_kept_and_of_a_model_the_beginning() -> None:
    cells = fitted(HEAD, [ROWS[0]], 60, FIT)
    model, directory = cells[1][2], cells[1][-1]
    assert (model[:4], model[-3:]) == ("some", "...")
    assert (directory[:3], directory[-6:]) == ("...", "(here)")
    assert CUT_CELL_COLUMNS <= columns_of(directory) < columns_of(ROWS[0][-1])


def test_columns_are_left_out_in_order() -> None:
    assert fitted(HEAD, [ROWS[0]], 45, FIT)[0] == ["NAME", "ID", "MODEL", "DIRECTORY"]
    assert fitted(HEAD, [ROWS[0]], 30, FIT)[0] == ["NAME", "ID", "DIRECTORY"]
    assert fitted(HEAD, [ROWS[0]], 5, FIT)[0] == ["NAME", "ID"]


def test_one_long_name_takes_no_column_from_the_others() -> None:
    fit = FIT._replace(names=("NAME",))
    rows = [("n" * 60, *ROWS[0][1:]), ROWS[0]]
    cells = fitted(HEAD, rows, 80, fit)
    assert width_of(cells) <= 80
    assert cells[0] == list(HEAD)
    assert cells[2][0] == "worker"
    assert cells[1][0].endswith("...")
    assert columns_of(cells[1][0]) >= CUT_NAME_COLUMNS
    assert fitted(HEAD, rows, 20, fit)[1][0] == "n" * (CUT_NAME_COLUMNS - 3) + "..."


def test_long_cells_are_cut_in_any_width() -> None:
    [_, row] = fitted(("NAME", "ID"), [("n" * 200, "x")], 1_000)
    assert row == ["n" * (CELL_COLUMNS - 3) + "...", "x"]


@pytest.mark.parametrize("plain", [True, False])
def test_a_terminal_gets_lines_that_fit(monkeypatch: pytest.MonkeyPatch, plain: bool) -> None:
    """With colours and without; a name with a mark of the rendering library is shown as it is."""

    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "dumb" if plain else "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "50")
    stream = Terminal(io.BytesIO(), encoding="utf-8", write_through=True)
    monkeypatch.setattr(sys, "stdout", stream)
    show_table(Output(as_json=False), HEAD, [("[red]x[/]", *ROWS[0][1:])], FIT)
    lines = stream.buffer.getvalue().decode().splitlines()  # type: ignore[attr-defined]
    assert all(columns_of(line.rstrip()) <= 50 for line in lines if "\x1b" not in line)
    assert any("[red]x[/]" in line and "1a2b3c4d" in line for line in lines)
