"""Test what ``list`` shows of stages, and who may look into which group (protocol 6.12.7, 6.12.8)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.harness import Client, World, only
from tests.core.runs import (
    CHILD,
    OTHER,
    RUN,
    group_of,
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

SUB = f"{group_of()}/sub"


def listed(client: Client, group: str | None = None) -> dict[str, Any]:
    members = {} if group is None else {"group": group}
    return only(client.write("list", requestId="q", **members), "sessions")


def ids(client: Client, group: str | None = None) -> list[str]:
    return [row["stageId"] for row in listed(client, group)["workflowStages"]]


def futures(client: Client, group: str | None = None) -> list[str]:
    return [row["target"] for row in listed(client, group)["workflowFutureStages"]]


# --- workflowStages (protocol 6.12.7) -------------------------------------------------------------------


def test_a_pending_stage_is_shown_with_all_members() -> None:
    """protocol 6.12.7"""
    world = World()
    owned(world, stages=[stage("st-1", "reviewer", group=f" {SUB} ")])
    assert listed(member(world))["workflowStages"] == [
        {
            "kind": "workflow-stage",
            "runId": RUN,
            "stageId": "st-1",
            "stageName": "reviewer",
            "target": path("st-1"),
            "lifecycle": "pending",
            "group": SUB,
        }
    ]


def test_a_live_stage_is_running_with_its_session() -> None:
    """protocol 6.12.7: whatever was announced"""
    world = World()
    owned(world, stages=[stage("st-1"), stage("st-2", lifecycle="running")])
    clients = worker(world, "a"), worker(world, "b")
    assert went_live(live(clients[0], "st-1")) and went_live(live(clients[1], "st-2"))
    rows = listed(member(world))["workflowStages"]
    assert [(row["lifecycle"], row["sessionId"]) for row in rows] == [("running", client.id) for client in clients]


def test_what_is_announced_running_without_a_session_is_not_shown() -> None:
    """protocol 6.12.7"""
    world = World()
    owned(world, stages=[stage("st-1", lifecycle="running"), stage("st-2")])
    assert ids(member(world)) == ["st-2"]


def test_what_cannot_be_addressed_is_not_shown() -> None:
    """protocol 6.12.7: routeEligible and an agent"""
    world = World()
    rows = [stage("st-1", routeEligible=False), stage("st-2", recipientPurpose="control"), stage("st-3")]
    owned(world, stages=rows)
    assert ids(member(world)) == ["st-3"]


def test_a_stage_does_not_see_itself() -> None:
    """protocol 6.12.7: its live session is not the requester"""
    world = World()
    owned(world, stages=[stage("st-1"), stage("st-2")])
    client = worker(world)
    client.write("join_group", group=group_of())
    assert went_live(live(client, "st-1"))
    assert ids(client) == ["st-2"]


def test_who_controls_the_invocation_sees_its_subgroups() -> None:
    """protocol 6.12.7, 6.12.6"""
    world = World()
    owned(world, stages=[stage("st-1"), stage("st-2", group=SUB)])
    assert ids(member(world)) == ["st-1", "st-2"]
    stranger = world.register("stranger")
    assert ids(stranger) == []
    below = world.register("below", info={"groups": [SUB, group_of()]}, registrationGroup=SUB)
    assert ids(below) == ["st-1", "st-2"], "a member of both groups, without control"
    below.write("leave_group", group=group_of())
    assert ids(below) == ["st-2"]
    sideways = world.register("sideways", info={"groups": [group_of()]}, registrationGroup=group_of(OTHER))
    assert ids(sideways) == ["st-1"]


def test_a_group_filter_is_the_stages_group() -> None:
    """protocol 6.12.7"""
    world = World()
    owned(world, stages=[stage("st-1"), stage("st-2", group=SUB)])
    sender = member(world)
    assert ids(sender, group_of()) == ["st-1"]
    assert ids(sender, f" {SUB} ") == ["st-2"]
    assert ids(sender, "default") == []


def test_stages_of_several_runs_come_in_the_order_of_their_rosters() -> None:
    """protocol 6.12.7; an update keeps the place of a roster"""
    world = World()
    owner = owned(world, stages=[stage("st-1")])
    own(owner, CHILD, stages=[stage("st-2", target=path(CHILD, "st-2"))])
    own(owner, stages=[stage("st-1"), stage("st-3")])
    rows = listed(member(world))["workflowStages"]
    assert [(row["runId"], row["stageId"]) for row in rows] == [(RUN, "st-1"), (RUN, "st-3"), (CHILD, "st-2")]


def test_without_workflows_both_lists_are_empty() -> None:
    """protocol 5.3"""
    answer = listed(World().register("alone"))
    assert answer["workflowStages"] == answer["workflowFutureStages"] == []


# --- workflowFutureStages -------------------------------------------------------------------------------


def test_a_possible_stage_is_shown_with_all_members() -> None:
    """protocol 6.12.7"""
    world = World()
    states = [{"messageId": "m", "runId": RUN, "stageId": "s", "state": "dropped", "reason": "skipped"}]
    row = possible(path("reviewer-*"), queuedCount=2, deliveryOnly=True, deliveryStates=states)
    owned(world, possibleStages=[row, possible(path("a"))])
    full, plain = listed(member(world))["workflowFutureStages"]
    assert full == {"kind": "workflow-future-stage", "runId": RUN, "group": group_of(), **row}
    assert plain == {
        "kind": "workflow-future-stage",
        "runId": RUN,
        "target": path("a"),
        "queuedCount": 0,
        "group": group_of(),
    }


@pytest.mark.parametrize(
    ("groups", "seen"),
    [([group_of()], True), ([SUB], True), (["default"], False), ([group_of(OTHER)], False), (["workflow:"], False)],
)
def test_members_of_the_invocation_see_what_may_come(groups: list[str], seen: bool) -> None:
    """protocol 6.12.7: a membership owned by the roster's group"""
    world = World()
    owned(world, possibleStages=[possible(path("a"))])
    assert bool(futures(world.register("x", info={"groups": groups}))) is seen


def test_a_group_filter_of_possible_stages_is_the_rosters_group() -> None:
    """protocol 6.12.7"""
    world = World()
    owned(world, possibleStages=[possible(path("a"))])
    sender = member(world)
    assert futures(sender, group_of()) == [path("a")]
    assert futures(sender, SUB) == []


def test_possible_nodes_that_are_no_agents_are_not_shown() -> None:
    """protocol 6.12.7, 6.12.9"""
    world = World()
    owned(
        world,
        stages=[stage("gate", recipientPurpose="control")],
        possibleStages=[possible(path("gate")), possible(path("*")), possible(path("a"))],
    )
    assert futures(member(world)) == [path("*"), path("a")]


# --- looking into a group (protocol 6.12.8) -------------------------------------------------------------


def names(client: Client, group: str) -> list[str]:
    return [session["name"] for session in listed(client, group)["sessions"]]


def test_a_group_with_stages_is_open_to_members_and_to_who_controls_it() -> None:
    """protocol 6.12.8"""
    world = World()
    owned(world, stages=[stage("st-1", group=SUB)])
    inside = world.register("inside", info={"group": SUB})
    assert names(inside, SUB) == ["inside"]
    assert names(member(world), SUB) == ["inside"]
    assert names(world.register("stranger"), SUB) == []
    sideways = world.register("sideways", info={"groups": [group_of()]}, registrationGroup=group_of(OTHER))
    assert names(sideways, SUB) == []


def test_any_other_group_is_open_to_everybody() -> None:
    """protocol 6.12.8, 4.3: without a stage in it, a workflow's group too"""
    world = World()
    owner = owned(world, stages=[stage("st-1", group=SUB)])
    member(world, "inside")
    stranger = world.register("stranger")
    assert names(stranger, group_of()) == ["inside"]
    own(owner, stages=[stage("st-1", group=group_of())])
    assert names(stranger, group_of()) == []
    owner.leave()
    assert names(stranger, group_of()) == ["inside"]
