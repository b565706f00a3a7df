"""Hold the tables of flows against what the rules say."""

from __future__ import annotations

import pytest

from intercom.core.flow_tables import BINDING, FLOW, LIVE, OUTCOME, STEP, TABLES, TRANSPORT, IllegalMove, Table, drawn


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_an_illegal_move_raises(table: Table) -> None:
    """Design section 4, rule 2."""
    states = {state for state, _ in table.moves} | set(table.moves.values())
    events = {event for _, event in table.moves}
    for state in states:
        for event in events:
            if (state, event) not in table.moves:
                assert not table.allows(state, event)
                with pytest.raises(IllegalMove, match=event):
                    table.after(state, event)


@pytest.mark.parametrize(
    ("table", "ends"),
    [
        (FLOW, {"completed", "cancelled"}),
        (STEP, {"completed", "cancelled"}),
        (TRANSPORT, {"accepted", "rejected"}),
        (OUTCOME, {"completed", "failed", "ambiguous", "retired"}),
        (BINDING, {"completed", "failed", "ambiguous"}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_nothing_leaves(table: Table, ends: set[str]) -> None:
    """FE 2.3: terminal outcomes never change; a flow nobody was reachable for may be resumed (open point 9)."""
    assert table.ends() == ends
    assert table.begins not in ends


def test_a_flow_that_is_over_takes_no_move_but_one() -> None:
    """FE 2.3."""
    over = {state for state, _ in FLOW.moves if state not in LIVE}
    assert over == {"failed"}
    assert [event for state, event in FLOW.moves if state == "failed"] == ["resume"]


def test_a_table_is_drawn() -> None:
    assert drawn(OUTCOME.begins, OUTCOME.moves) == [
        "(begins)  pending",
        "pending --completed--> completed",
        "pending --failed--> failed",
        "pending --ambiguous--> ambiguous",
        "pending --retired--> retired",
    ]
