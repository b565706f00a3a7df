"""Hold every move a flow, a step, an attempt and a to-do binding can make (protocol 12.2), as tables.

Whoever changes a state asks its table first: a move that is not there raises ``IllegalMove`` and changes nothing. The
diagrams of the documentation are made from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class IllegalMove(Exception):
    """Report a move the table does not have: a bug, or a request that must be refused."""


class Table(Struct, frozen=True):
    """Hold the states of one thing and how it gets from one to another."""

    name: str
    begins: str
    """The state it begins in."""
    moves: Mapping[tuple[str, str], str]
    """The next state by (state, event)."""

    def after(self, state: str, event: str) -> str:
        """Return the state that follows.

        Raises:
            IllegalMove: the table has no such move.
        """
        following = self.moves.get((state, event))
        if following is None:
            raise IllegalMove(f"{self.name}: {event} is no move from {state}")
        return following

    def allows(self, state: str, event: str) -> bool:
        """Tell whether this event is a move from this state."""
        return (state, event) in self.moves

    def ends(self) -> frozenset[str]:
        """Return the states that nothing leaves."""
        left = {state for (state, _), following in self.moves.items() if following != state}
        return frozenset(set(self.moves.values()) - left)


def drawn(begins: str, moves: Mapping[tuple[str, str], str]) -> list[str]:
    """Return a table as the lines of a diagram, ``state --event, event--> state``, in its order."""
    edges: dict[tuple[str, str], list[str]] = {}
    for (state, event), following in moves.items():
        edges.setdefault((state, following), []).append(event)
    width = max(len(state) for state, _ in edges)
    return [f"(begins)  {begins}"] + [
        f"{state:<{width}} --{', '.join(events)}--> {following if following != state else '(the same)'}"
        for (state, following), events in edges.items()
    ]


FLOW = Table(
    "flow",
    "draft",
    {
        ("draft", "start"): "active",
        ("draft", "append"): "draft",
        ("draft", "cancel"): "cancelled",
        ("active", "pause"): "paused",
        ("active", "append"): "active",
        ("active", "retry"): "active",
        ("active", "all steps completed"): "completed",
        ("active", "not reachable"): "failed",
        ("active", "cancel"): "cancelled",
        ("paused", "resume"): "active",
        ("paused", "append"): "paused",
        ("paused", "retry"): "paused",
        ("paused", "all steps completed"): "completed",
        ("paused", "cancel"): "cancelled",
        ("failed", "resume"): "active",
    },
)
LIVE = frozenset({"draft", "active", "paused"})
"""The states of a flow that is not over; one that failed because nobody was reachable may be resumed."""

STEP = Table(
    "step",
    "pending",
    {
        ("pending", "handed out"): "dispatching",
        ("pending", "flow cancelled"): "cancelled",
        ("dispatching", "accepted"): "awaiting_result",
        ("dispatching", "completed"): "completed",
        ("dispatching", "failed"): "failed",
        ("dispatching", "ambiguous"): "ambiguous",
        ("dispatching", "retired"): "pending",
        ("awaiting_result", "completed"): "completed",
        ("awaiting_result", "failed"): "failed",
        ("awaiting_result", "ambiguous"): "ambiguous",
        ("awaiting_result", "retired"): "pending",
        ("failed", "retry"): "pending",
        ("failed", "flow cancelled"): "cancelled",
        ("ambiguous", "retry"): "pending",
        ("ambiguous", "flow cancelled"): "cancelled",
    },
)
TRIED = frozenset({"failed", "ambiguous"})
"""The states of a step that goes on only when somebody asks for it."""

TRANSPORT = Table(
    "transport",
    "prepared",
    {
        ("prepared", "publish"): "published",
        ("prepared", "reject"): "rejected",
        ("published", "accept"): "accepted",
        ("published", "reject"): "rejected",
    },
)

OUTCOME = Table(
    "outcome",
    "pending",
    {
        ("pending", "completed"): "completed",
        ("pending", "failed"): "failed",
        ("pending", "ambiguous"): "ambiguous",
        ("pending", "retired"): "retired",
    },
)

BINDING = Table(
    "binding",
    "pending",
    {
        ("pending", "bind"): "bound",
        ("pending", "ambiguous"): "ambiguous",
        ("bound", "completed"): "completed",
        ("bound", "failed"): "failed",
        ("bound", "ambiguous"): "ambiguous",
    },
)

TABLES = (FLOW, STEP, TRANSPORT, OUTCOME, BINDING)
