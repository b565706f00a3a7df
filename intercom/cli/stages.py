"""Show the stages of workflow runs as a tree: one row a stage, below the run and the runs it lies in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from intercom.cli.tables import Fit

if TYPE_CHECKING:
    from intercom.client.stage_views import StageView

HEAD = ("STAGE", "NAME", "STATE", "WAITING", "SESSION")
FIT = Fit(whole=("STAGE", "SESSION"), names=("NAME",))


class Branch(NamedTuple):
    """Say what is drawn before a row and before the rows below it."""

    own: str
    below: str


PLAIN = (Branch("  ", "  "), Branch("  ", "  "))
"""In a pipe and on a plain terminal: every row that is not the last of its branch, and the last."""
DRAWN = (Branch("├─ ", "│  "), Branch("└─ ", "   "))
"""On a terminal that shows Unicode."""


class Node:
    """Hold what lies at one place of the tree."""

    def __init__(self) -> None:
        self.below: dict[str, Node] = {}
        self.views: list[StageView] = []


def documents_of(views: Iterable[StageView]) -> dict[str, list[dict[str, Any]]]:
    """Return the members of the JSON document, exactly as the broker told the stages."""
    stages: list[dict[str, Any]] = []
    possible: list[dict[str, Any]] = []
    for view in views:
        (possible if view.state == "possible" else stages).append(dict(view.raw))
    return {"stages": stages, "possibleStages": possible}


def rows_of(
    views: Sequence[StageView], ids: dict[str, str], branches: tuple[Branch, Branch] = PLAIN
) -> list[tuple[str, ...]]:
    """Return the cells of one row per run and per stage.

    What stands in the first column of a run and of a stage below it, joined with ``/``, is the target that a send
    takes. ``ids`` gives the shortest text for the sessions that are known.
    """
    root = Node()
    for view in views:
        node = root
        for segment in view.target.split("/"):
            node = node.below.setdefault(segment, Node())
        node.views.append(view)
    rows: list[tuple[str, ...]] = []
    for name, run in root.below.items():
        rows.append((name, "", "", "", ""))
        _add(rows, run, "", ids, branches)
    return rows


def _add(
    rows: list[tuple[str, ...]], node: Node, before: str, ids: dict[str, str], branches: tuple[Branch, Branch]
) -> None:
    last = len(node.below) - 1
    for place, (segment, child) in enumerate(node.below.items()):
        branch = branches[place == last]
        label = before + branch.own + segment
        rows += [(label, *_cells(view, ids)) for view in child.views] or [(label, "", "", "", "")]
        _add(rows, child, before + branch.below, ids, branches)


def _cells(view: StageView, ids: dict[str, str]) -> tuple[str, str, str, str]:
    if view.state == "possible":
        state = f"{len(view.deliveries)} reported" if view.is_delivery_only else "possible"
        return "-", state, str(view.queued), "-"
    session = "-" if view.session_id is None else ids.get(view.session_id, view.session_id)
    return view.name or "-", view.state, "-", session
