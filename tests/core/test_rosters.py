"""Hold announcements of stages against protocol 6.12.2, and non-agent targets against 6.12.9."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.harness import Client, World, only, reason
from tests.core.runs import (
    CHILD,
    GRANDCHILD,
    OTHER,
    RUN,
    asked,
    group_of,
    host,
    live,
    member,
    own,
    owned,
    path,
    possible,
    stage,
    went_live,
    worker,
)
from tests.support.wire import without


def refusal(world: World, client: Client, frames: list[dict[str, Any]]) -> str:
    """Return why the connection was ended."""
    frame = only(frames, "registration_failed")
    assert "code" not in frame
    assert client.conn in world.finished
    return str(frame["reason"])


def fits(row: dict[str, Any], *, run: str = RUN, group: str = group_of(), kind: str = "stages") -> bool:
    """Tell whether a run takes this row."""
    world = World()
    client = host(world, group=group)
    frames = own(client, run, group=group, requestId="q", **{kind: [row]})
    if frames[0]["type"] == "pending_stage_route_registered":
        return True
    exact = {"stages": "Invalid workflow-stage roster", "possibleStages": "Invalid workflow possible-stage roster"}
    assert refusal(world, client, frames) == exact[kind]
    return False


# --- stages[] (protocol 6.12.2) -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [
        stage(),
        stage(lifecycle="running", routeEligible=False, recipientPurpose="control"),
        stage(recipientPurpose="agent", future=[1]),
        stage(group=f" {group_of()}/sub "),
        stage(target=path("boundary", "st-1")),
        stage(target=path("st-1", run=RUN)),
    ],
)
def test_a_stage_that_keeps_the_rules_is_taken(row: dict[str, Any]) -> None:
    """protocol 6.12.2"""
    assert fits(row)


@pytest.mark.parametrize("name", ["stageId", "stageName", "target", "lifecycle", "routeEligible", "group"])
def test_a_stage_needs_every_member(name: str) -> None:
    """protocol 6.12.2"""
    assert not fits(without(stage(), name))


@pytest.mark.parametrize(
    "row",
    [
        stage(target="reviewer"),
        stage(target=path("other")),
        stage("st-*", target=path("st-*")),
        stage("**", target=path("**")),
        stage(target=path("*", "st-1")),
        stage(target=path("st-1", run=OTHER)),
        stage(group="team"),
        stage(group=""),
        stage(group=f"{group_of()}-more"),
        stage(group=group_of(OTHER)),
        stage(recipientPurpose="robot"),
        stage(lifecycle="done"),
    ],
)
def test_a_stage_that_breaks_a_rule_is_refused(row: dict[str, Any]) -> None:
    """protocol 6.12.2"""
    assert not fits(row)


def test_a_nested_run_announces_below_the_root_of_its_group() -> None:
    """protocol 6.12.2: the root is the run of the owner's group, the announcing run, or the run is a segment"""
    assert fits(stage(target=path(CHILD, "st-1")), run=CHILD)
    assert fits(stage(target=path("boundary", "st-1")), run=CHILD)
    assert fits(stage(target=path("st-1", run=CHILD)), run=CHILD)
    assert fits(stage(target=path(CHILD, "st-1", run=OTHER)), run=CHILD)
    assert not fits(stage(target=path("st-1", run=OTHER)), run=CHILD)
    assert not fits(stage(CHILD, target=path(CHILD, run=OTHER)), run=CHILD)


@pytest.mark.parametrize("value", [None, {}, "x", 7, [None], [[]]])
@pytest.mark.parametrize("kind", ["stages", "possibleStages"])
def test_a_roster_is_a_list_of_objects(value: Any, kind: str) -> None:
    """protocol 4.14; null is never absence"""
    world = World()
    client = host(world)
    frames = own(client, **{kind: value})
    assert refusal(world, client, frames).startswith("Invalid workflow")


def test_one_wrong_row_refuses_all_and_changes_nothing() -> None:
    """protocol 4.14: refuse and end"""
    world = World()
    first = host(world)
    own(first, stages=[stage()])
    second = host(world)
    own(second, stages=[stage("st-2"), stage(group="team")])
    assert [row["stageId"] for row in stages_seen(member(world))] == ["st-1"]


# --- possibleStages[] -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [
        possible(path("a")),
        possible(path("reviewer-*")),
        possible(path("**")),
        possible(path("a", run=CHILD)),
        possible(path("a"), queuedCount=3, deliveryOnly=True),
        possible(
            path("a"),
            deliveryStates=[
                {"messageId": "m", "runId": RUN, "stageId": "s", "state": "x", "reason": "y", "sessionId": "z"}
            ],
        ),
    ],
)
def test_a_possible_stage_is_of_any_kind(row: dict[str, Any]) -> None:
    """protocol 6.12.2"""
    assert fits(row, run=CHILD, kind="possibleStages")


@pytest.mark.parametrize(
    "row",
    [
        possible("a"),
        possible(path("a", run=OTHER)),
        possible(path("a"), queuedCount=-1),
        possible(path("a"), queuedCount=1.5),
        possible(path("a"), deliveryOnly=False),
        possible(path("a"), deliveryStates=[{"messageId": "m"}]),
        {"target": path("a")},
    ],
)
def test_a_possible_stage_that_breaks_a_rule_is_refused(row: dict[str, Any]) -> None:
    """protocol 6.12.2"""
    assert not fits(row, kind="possibleStages")


# --- updates (protocol 6.12.3) --------------------------------------------------------------------------


def stages_seen(client: Client) -> list[dict[str, Any]]:
    return list(only(client.write("list", requestId="q"), "sessions")["workflowStages"])


def future_seen(client: Client) -> list[dict[str, Any]]:
    return list(only(client.write("list", requestId="q"), "sessions")["workflowFutureStages"])


def test_an_update_replaces_the_stages() -> None:
    """protocol 6.12.3"""
    world = World()
    owner, sender = owned(world, stages=[stage()]), member(world)
    own(owner, stages=[stage("st-2"), stage("st-3")])
    assert [row["stageId"] for row in stages_seen(sender)] == ["st-2", "st-3"]


def test_without_stages_and_possible_stages_the_roster_stays() -> None:
    """protocol 6.12.3"""
    world = World()
    owner, sender = owned(world, stages=[stage()]), member(world)
    own(owner)
    assert [row["stageId"] for row in stages_seen(sender)] == ["st-1"]


def test_omitted_stages_empty_the_roster_while_possible_ones_are_known() -> None:
    """protocol 6.12.3, OP-22"""
    world = World()
    owner, sender = owned(world, stages=[stage()], possibleStages=[possible(path("a"))]), member(world)
    own(owner)
    assert stages_seen(sender) == []
    assert [row["target"] for row in future_seen(sender)] == [path("a")]


def test_an_empty_list_of_possible_stages_removes_all_rows() -> None:
    """protocol 6.12.3: as a finished root does"""
    world = World()
    owner, sender = owned(world, possibleStages=[possible(path("a"))]), member(world)
    own(owner, possibleStages=[], stages=[stage()])
    assert future_seen(sender) == []
    assert len(stages_seen(sender)) == 1


def test_all_runs_of_one_owner_share_a_bound() -> None:
    """design 4: charge before you link"""
    world = World(limits=Limits(roster_characters=1_000))
    owner = owned(world, stages=[stage()])
    own(owner, CHILD, stages=[stage(name="n" * 600, target=path("st-1"))])
    assert owner.conn not in world.finished
    frames = own(owner, GRANDCHILD, stages=[stage(name="n" * 600, target=path("st-1"))])
    assert refusal(world, owner, frames) == reasons.roster_too_large(1_000)


def test_an_update_is_not_charged_twice() -> None:
    """design 4"""
    world = World(limits=Limits(roster_characters=1_000))
    owner = host(world)
    for _ in range(5):
        own(owner, stages=[stage(name="n" * 700)])
    assert owner.conn not in world.finished


# --- non-agent targets (protocol 6.12.9) ----------------------------------------------------------------


def is_non_agent(sender: Client, target: str) -> bool:
    frames = sender.message(target, f"m{sender.attempts}")
    return bool(frames) and frames[0].get("reason") == reasons.NOT_AN_AGENT


CONTROL = {"recipientPurpose": "control"}


def test_a_path_to_nodes_that_are_no_agents_is_refused() -> None:
    """protocol 4.8 B3, 6.12.9: by id, and by name where no id fits"""
    world = World()
    owned(world, stages=[stage("gate", "barrier", **CONTROL), stage("st-1", "reviewer")])
    sender = member(world)
    assert is_non_agent(sender, path("gate"))
    assert is_non_agent(sender, f" {path('barrier')} ")
    assert not is_non_agent(sender, path("st-1"))
    assert not is_non_agent(sender, path("nobody"))
    assert not is_non_agent(sender, path("*"))


def test_one_agent_among_the_nodes_makes_the_target_an_agent() -> None:
    """protocol 6.12.9: at least one is not, and none is"""
    world = World()
    owned(world, stages=[stage("a", "twin", **CONTROL), stage("b", "twin")])
    assert not is_non_agent(member(world), path("twin"))


def test_an_id_wins_over_a_name() -> None:
    """protocol 6.12.9: the stages whose id is the last segment, or, if none, whose name is"""
    world = World()
    owned(world, stages=[stage("x", "y", **CONTROL), stage("y", "z")])
    assert not is_non_agent(member(world), path("y"))
    assert is_non_agent(member(world, "other"), path("x"))


def test_the_walk_follows_run_ids_and_boundary_names() -> None:
    """protocol 6.12.9"""
    world = World()
    owner = owned(world, stages=[stage("boundary")])
    own(
        owner,
        CHILD,
        stages=[stage("gate", target=path("boundary", "gate"), **CONTROL)],
        parent={"runId": RUN, "stageKeys": ["boundary", "alias"]},
    )
    sender = member(world)
    for way in ((CHILD,), ("boundary",), ("alias",)):
        assert is_non_agent(sender, path(*way, "gate"))
    assert not is_non_agent(sender, path("nowhere", "gate"))
    assert not is_non_agent(sender, path("gate"))


def test_an_ambiguous_boundary_leads_nowhere() -> None:
    """protocol 6.12.9: the only roster whose parent names that segment"""
    world = World()
    owner = owned(world, stages=[])
    for run in (CHILD, GRANDCHILD):
        parent = {"runId": RUN, "stageKeys": ["loop"]}
        own(owner, run, stages=[stage("gate", target=path(run, "gate"), **CONTROL)], parent=parent)
    sender = member(world)
    assert not is_non_agent(sender, path("loop", "gate"))
    assert is_non_agent(sender, path(CHILD, "gate"))


def test_without_a_roster_on_the_way_the_announced_texts_decide() -> None:
    """protocol 6.12.9: target, or target with the name as last segment, equals the text"""
    world = World()
    owner = host(world)
    own(owner, CHILD, stages=[stage("gate", "door", target=path("far", "gate"), **CONTROL)])
    sender = member(world)
    assert is_non_agent(sender, path("far", "gate"))
    assert is_non_agent(sender, path("far", "door"))
    assert not is_non_agent(sender, path("near", "gate"))


def test_a_parent_stays_known_and_a_malformed_one_is_ignored() -> None:
    """protocol 4.14, 6.12.3"""
    world = World()
    owner = owned(world, stages=[])
    rows = [stage("gate", target=path("b", "gate"), **CONTROL)]
    own(owner, CHILD, stages=rows, parent={"runId": RUN, "stageKeys": ["b"]})
    for value in (None, 7, {"runId": RUN}, {"runId": 1, "stageKeys": []}, {"runId": RUN, "stageKeys": [1]}):
        own(owner, CHILD, stages=rows, parent=value)
    sender = member(world)
    assert is_non_agent(sender, path("b", "gate"))
    own(owner, CHILD, stages=rows, parent={"runId": RUN, "stageKeys": ["c"]})
    assert not is_non_agent(sender, path("nowhere", "gate"))
    assert is_non_agent(sender, path("c", "gate"))


def test_rosters_of_other_invocations_say_nothing() -> None:
    """protocol 6.12.9: the rosters whose group is the invocation group"""
    world = World()
    owned(world, OTHER, stages=[stage("gate", target=path("gate", run=OTHER), group=group_of(OTHER), **CONTROL)])
    sender = member(world)
    assert not is_non_agent(sender, path("gate"))
    assert reason(sender.message(path("gate", run=OTHER), "m-other")) == reasons.NOT_AN_AGENT


def test_a_live_stage_is_an_agent_whatever_the_roster_says() -> None:
    """protocol 6.12.9: never when a valid live alias exists"""
    world = World()
    owner, sender = owned(world, stages=[stage("st-1")]), member(world)
    assert went_live(live(worker(world), "st-1"))
    own(owner, stages=[stage("st-1", **CONTROL)])
    owner.got()
    sender.message(path("st-1"), "m")
    assert asked(owner)["live"] is True


def test_of_two_runs_below_one_stage_one_may_end() -> None:
    """protocol 6.12.9: the other is found below it still"""
    world = World()
    owner = owned(world)
    parent = {"runId": RUN, "stageKeys": ["loop"]}
    second = host(world, OTHER, group=group_of())
    own(owner, CHILD, stages=[stage("a", target=path("loop", "a"))], parent=parent)
    own(second, OTHER, group=group_of(), stages=[stage("b", target=path("loop", "b"))], parent=parent)
    second.leave()
    assert world.broker._staging.stages.rosters.get(CHILD) is not None
    assert world.broker._staging.stages.rosters.get(OTHER) is None
