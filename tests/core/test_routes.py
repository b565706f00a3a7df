"""Test whose owner is asked about a target, and who may speak into an invocation (protocol 6.12.4, 6.12.6)."""

from __future__ import annotations

import pytest

from intercom.wire import reasons
from tests.core.harness import World, is_delivered, reason
from tests.core.runs import (
    CHILD,
    OTHER,
    RUN,
    asked,
    decide,
    group_of,
    host,
    live,
    member,
    own,
    owned,
    path,
    went_live,
    worker,
)

# --- who owns a target (protocol 6.12.4) ----------------------------------------------------------------


def test_the_deepest_run_named_in_a_path_is_asked() -> None:
    """protocol 6.12.4"""
    world = World()
    root, nested = owned(world), host(world)
    own(nested, CHILD)
    sender = member(world)
    sender.message(path(CHILD, "a"), "m1")
    request = asked(nested)
    assert (request["runId"], request["target"]) == (CHILD, path(CHILD, "a"))
    sender.message(path("boundary", "a"), "m2")
    assert asked(root)["runId"] == RUN
    sender.message(path(CHILD), "m3")
    assert asked(root)["runId"] == RUN, "the last segment is the stage"
    sender.message(path(CHILD, "**"), "m4")
    assert asked(root)["runId"] == RUN, "a pattern goes to the root"


def test_a_nested_run_in_another_group_is_no_owner() -> None:
    """protocol 6.12.4: a route whose group is the invocation group"""
    world = World()
    root = owned(world)
    own(host(world, group=f"{group_of()}/sub"), CHILD, group=f"{group_of()}/sub")
    member(world).message(path(CHILD, "a"), "m1")
    assert asked(root)


def test_a_nested_run_is_asked_even_when_the_root_has_no_route() -> None:
    """protocol 6.12.4"""
    world = World()
    nested = host(world)
    own(nested, CHILD)
    sender = member(world)
    sender.message(path(CHILD, "a"), "m1")
    assert asked(nested)
    assert reason(sender.message(path("a"), "m2")) == reasons.SESSION_NOT_FOUND


def test_the_group_of_the_root_counts_for_patterns_only() -> None:
    """protocol 6.12.4, OP-23"""
    world = World()
    root = host(world, group="team")
    own(root, group="team")
    sender = world.register("sender", info={"group": "team"})
    sender.message(path("a"), "m1")
    assert asked(root)
    assert reason(sender.message(path("*"), "m2")) == reasons.SESSION_NOT_FOUND


# --- authority (protocol 6.12.6) ------------------------------------------------------------------------


def sends_into(home: str | None, groups: list[str]) -> bool:
    world = World()
    owner = owned(world)
    members = {} if home is None else {"registrationGroup": home}
    sender = world.register("sender", info={"groups": groups}, **members)
    frames = sender.message(path("a"), "m")
    if frames:
        assert reason(frames) == "Target workflow run is in a different intercom group"
        assert owner.got() == []
        return False
    return bool(asked(owner))


@pytest.mark.parametrize(
    ("home", "groups", "expected"),
    [
        (None, ["default", group_of()], True),
        ("team", [group_of()], True),
        (group_of(), ["x", group_of()], True),
        (group_of(), ["x"], False),
        (None, ["default"], False),
        (None, ["default", f"{group_of()}/sub"], False),
        (f"{group_of()}/sub", ["x", group_of()], False),
        (group_of(OTHER), ["x", group_of()], False),
        ("workflow:", [group_of()], False),
    ],
)
def test_who_controls_an_invocation(home: str | None, groups: list[str], expected: bool) -> None:
    """protocol 6.12.6: a member whose home is the invocation itself or no workflow"""
    assert sends_into(home, groups) is expected


def test_the_invocation_reaches_its_subgroups_and_not_the_other_way_round() -> None:
    """protocol 6.12.6: asymmetric"""
    world = World()
    owner, sender = owned(world), member(world)
    below = worker(world, home=f"{group_of()}/sub")
    assert went_live(live(below, "st-1"))
    sender.message(path("st-1"), "m1")
    decide(owner, asked(owner), "forward", target=path("st-1"))
    assert below.texts() == ["x"]
    assert is_delivered(sender.got())
    above = worker(world, "above")
    assert went_live(live(above, "st-2"))
    assert reason(below.message(path("st-2"), "m2")) == reasons.DIFFERENT_GROUP
    assert above.got() == [] and owner.got() == []


def test_a_live_stage_in_reach_by_group_still_goes_through_its_owner() -> None:
    """protocol 4.8 D14"""
    world = World()
    owner = owned(world)
    peer = worker(world, "peer")
    assert went_live(live(peer, "st-1"))
    neighbour = world.register("neighbour", info={"group": "own-peer"})
    peer.got()
    neighbour.message(path("st-1"), "m")
    assert asked(owner)["live"] is True
    assert peer.got() == []
