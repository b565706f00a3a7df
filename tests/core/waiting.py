"""Look for circles among open questions in another way than the broker does."""

from __future__ import annotations

from tests.core.harness import World


def open_edges(world: World) -> set[tuple[str, str]]:
    """Return who waits for whom, by open questions whose asker is here."""
    asked = world.broker._messages.questions._by_asker.values()
    questions = [question for each in asked for question in each.values() if not question.dormant]
    party = world.broker._registry.sessions.party_of
    return {(party(question.asker_id), party(question.target_id)) for question in questions}


def assert_no_circle(world: World) -> None:
    """Take out, again and again, who waits for nobody; whoever is left waits for itself in the end."""
    edges = {(asker, target) for asker, target in open_edges(world) if asker != target}
    while edges:
        waiting = {asker for asker, _ in edges}
        left = {(asker, target) for asker, target in edges if target in waiting}
        assert left != edges, f"a circle: {sorted(edges)}"
        edges = left
