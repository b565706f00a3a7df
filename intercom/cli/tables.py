"""Lay out rows of raw cells: whole for a program, fitted into the terminal for a person.

What a person copies out of a table must be whole and on one line (F46). So where the terminal is too narrow cells
that only inform are cut and columns are left out; no cell is ever broken over two lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from intercom.cli.render import Output, clipped, columns_of, visible
from intercom.limits import CELL_COLUMNS, CUT_CELL_COLUMNS, CUT_NAME_COLUMNS

GAP = "  "


class Fit(NamedTuple):
    """Say how a table may lose width; all else stays whole."""

    whole: tuple[str, ...] = ()
    """Columns that are never cut, however long their cells are."""
    end_first: tuple[str, ...] = ()
    """Columns that may be cut, and of which the end tells most."""
    start_first: tuple[str, ...] = ()
    """Columns that may be cut, and of which the beginning tells most."""
    names: tuple[str, ...] = ()
    """Columns that may be cut at the end, but keep ``CUT_NAME_COLUMNS``."""
    left_out: tuple[str, ...] = ()
    """Columns that are left out, in this order, when cutting is not enough."""


WHOLE = Fit()


def table(head: Sequence[str], rows: Iterable[Sequence[str]], fit: Fit = WHOLE) -> list[str]:
    """Return aligned lines for ``rows`` of raw cells; each row is one line, long cells are cut, the last is not."""
    last = len(head) - 1
    whole = {head.index(name) for name in fit.whole} | {last}
    return _aligned(
        [
            [visible(cell) if column in whole else clipped(visible(cell)) for column, cell in enumerate(row)]
            for row in [head, *rows]
        ]
    )


def fitted(head: Sequence[str], rows: Iterable[Sequence[str]], width: int, fit: Fit = WHOLE) -> list[list[str]]:
    """Return the cells of the head and of every row, ready to be shown in a terminal of ``width`` columns.

    Columns that may be cut keep at least ``CUT_CELL_COLUMNS``, those of names ``CUT_NAME_COLUMNS``; when even that is
    too much, columns are left out. What is still too wide then stays as it is.
    """
    cells = [list(head), *([visible(cell) for cell in row] for row in rows)]
    cells = [
        [
            cell if name in fit.whole else _cut(cell, CELL_COLUMNS, name, fit)
            for name, cell in zip(head, row, strict=True)
        ]
        for row in cells
    ]
    waiting = list(fit.left_out)
    keeps = dict.fromkeys(fit.end_first + fit.start_first, CUT_CELL_COLUMNS)
    keeps |= dict.fromkeys(fit.names, CUT_NAME_COLUMNS)
    while True:
        widths = [max(map(columns_of, column)) for column in zip(*cells, strict=True)]
        missing = sum(widths) + len(GAP) * (len(widths) - 1) - width
        can_give = [max(0, have - keeps.get(name, have)) for name, have in zip(cells[0], widths, strict=True)]
        if missing <= sum(can_give) or not waiting:
            break
        gone = waiting.pop(0)
        if gone in cells[0]:
            place = cells[0].index(gone)
            cells = [row[:place] + row[place + 1 :] for row in cells]
    for _ in range(max(0, min(missing, sum(can_give)))):
        widest = max(range(len(widths)), key=lambda place: (can_give[place] > 0, widths[place]))
        widths[widest] -= 1
        can_give[widest] -= 1
    names = cells[0]
    return [
        [
            _cut(cell, room, name, fit) if name in keeps else cell
            for name, cell, room in zip(names, row, widths, strict=True)
        ]
        for row in cells
    ]


def show_table(output: Output, head: Sequence[str], rows: Sequence[Sequence[str]], fit: Fit = WHOLE) -> None:
    """Print a table in the way that suits who reads it; the cells are raw."""
    width = output.columns()
    if width is None:
        lines = table(head, rows, fit)
    else:
        cells = fitted(head, rows, width, fit)
        if output.fancy():
            _print_fancy(cells)
            return
        lines = _aligned(cells)
    for line in lines:
        output.line(line)


def _print_fancy(cells: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for heading in cells[0]:
        shown.add_column(heading, no_wrap=True, overflow="ignore")
    for row in cells[1:]:
        shown.add_row(*map(Text, row))
    # It takes no more than it needs; what it may take is plenty, so that nothing is ever squeezed or cropped there.
    plenty = sum(len(GAP) + 2 * max(map(len, column)) for column in zip(*cells, strict=True))
    Console(highlight=False, width=plenty).print(shown)


def _aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(columns_of, column)) for column in zip(*cells, strict=True)]
    lines = []
    for row in cells:
        padded = [cell + " " * (room - columns_of(cell)) for cell, room in zip(row, widths, strict=True)]
        lines.append(GAP.join(padded).rstrip())
    return lines


def _cut(cell: str, columns: int, name: str, fit: Fit) -> str:
    if name in fit.end_first:
        return clipped(cell[::-1], columns)[::-1]
    return clipped(cell, columns)
