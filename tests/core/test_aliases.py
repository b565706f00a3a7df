"""Test which targets lead to a live stage, and how long they do (protocol 6.12.5)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.limits import STAGE_TARGET_CHARACTERS
from tests.core.harness import World
from tests.core.runs import (
    CHILD,
    OTHER,
    RUN,
    group_of,
    host,
    lead,
    live,
    own,
    owned,
    path,
    stage,
    went_live,
    worker,
)

# --- which targets (protocol 6.12.5) --------------------------------------------------------------------


def leads(stages: list[dict[str, Any]] | None, keys: tuple[str, ...], *targets: str, run: str = RUN) -> list[bool]:
    """Say which targets lead to a stage that goes live under these keys."""
    world = World()
    owner = host(world)
    own(owner, run, **({} if stages is None else {"stages": stages}))
    client = worker(world)
    assert went_live(live(client, *keys, run=run))
    return [lead(world, target) == client.conn for target in targets]


def test_a_known_stage_is_reached_by_id_and_name() -> None:
    """protocol 6.12.5"""
    rows = [stage("st-1", "reviewer", target=path("boundary", "st-1"))]
    targets = (path("boundary", "st-1"), path("boundary", "reviewer"), path("st-1"), path("reviewer"))
    assert leads(rows, ("st-1", "reviewer"), *targets) == [True, True, False, False]


def test_one_key_is_taken_for_an_id_first_and_else_for_a_name() -> None:
    """protocol 6.12.5: with a single key that matches no id, the first agent stage with that name"""
    rows = [
        stage("x", "reviewer", recipientPurpose="control"),
        stage("st-1", "reviewer", target=path("boundary", "st-1")),
    ]
    assert leads(rows, ("reviewer",), path("boundary", "reviewer"), path("boundary", "st-1")) == [True, False]
    assert leads(rows, ("st-1",), path("boundary", "st-1"), path("boundary", "reviewer")) == [True, False]


def test_two_keys_must_describe_one_stage() -> None:
    """protocol 6.12.5: whose id is among the keys and whose name is too; else the stage is unknown"""
    rows = [stage("st-1", "reviewer", target=path("boundary", "st-1"))]
    targets = (path("boundary", "st-1"), path("st-1"), path("tester"), path("boundary", "tester"))
    assert leads(rows, ("st-1", "tester"), *targets) == [False, False, True, False]


def test_an_unknown_stage_is_reached_below_the_root() -> None:
    """protocol 6.12.5: registrant unknown"""
    assert leads(None, ("st-1", "reviewer"), path("st-1"), path("reviewer")) == [True, True]


def test_an_unknown_stage_of_a_nested_run_is_reached_through_the_run() -> None:
    """protocol 6.12.5: with the run id as a middle segment when the run is not the root"""
    assert leads(None, ("a",), path(CHILD, "a"), path("a"), run=CHILD) == [True, False]


def test_a_name_that_is_a_siblings_id_captures_nothing() -> None:
    """protocol 6.12.5: the id of another roster stage gets no alias"""
    rows = [stage("st-1", "st-2"), stage("st-2", "other")]
    assert leads(rows, ("st-1", "st-2"), path("st-1"), path("st-2")) == [True, False]


def test_no_occurrence_of_an_ambiguous_name_gets_it() -> None:
    """protocol 6.12.5: at least two agent stages carry it"""
    rows = [stage("st-1", "twin"), stage("st-2", "twin")]
    assert leads(rows, ("st-1", "twin"), path("st-1"), path("twin")) == [True, False]
    assert leads(rows, ("twin",), path("twin")) == [False]
    assert leads(rows, ("unknown", "twin"), path("unknown"), path("twin")) == [True, False]


def test_a_name_shared_with_a_node_that_is_no_agent_is_not_ambiguous() -> None:
    """protocol 6.12.5: agent stages"""
    rows = [stage("st-1", "twin"), stage("st-2", "twin", recipientPurpose="control")]
    assert leads(rows, ("st-1", "twin"), path("twin")) == [True]


def test_an_update_that_makes_a_name_ambiguous_takes_it_away() -> None:
    """protocol 6.12.5: on every roster update; the name then goes through the owner"""
    world = World()
    owner = owned(world, stages=[stage("st-1", "twin")])
    client = worker(world)
    assert went_live(live(client, "st-1", "twin"))
    assert lead(world, path("twin")) == client.conn
    own(owner, stages=[stage("st-1", "twin"), stage("st-2", "twin")])
    assert lead(world, path("twin")) is None
    assert lead(world, path("st-1")) == client.conn
    own(owner, stages=[stage("st-1", "twin")])
    assert lead(world, path("twin")) is None, "it does not come back by itself"


def test_a_name_that_is_also_an_id_is_kept() -> None:
    """protocol 6.12.5: unless the name is also some stage's id"""
    world = World()
    owner = owned(world, stages=[stage("twin", "twin")])
    client = worker(world)
    assert went_live(live(client, "twin"))
    own(owner, stages=[stage("twin", "twin"), stage("st-2", "twin")])
    assert lead(world, path("twin")) == client.conn


def test_a_live_registration_retires_what_the_roster_did_not_know() -> None:
    """protocol 6.12.5: on every live registration"""
    world = World()
    owner = owned(world, stages=[stage("st-1", "twin"), stage("st-2", "twin")])
    first = worker(world, "first")
    assert went_live(live(first, "st-1", "twin"))
    assert lead(world, path("twin")) is None
    own(owner, stages=[stage("st-1", "twin"), stage("st-2", "other")])
    assert went_live(live(first, "st-1", "twin"))
    assert lead(world, path("twin")) == first.conn


def test_targets_outlive_their_roster_row_and_end_with_their_session() -> None:
    """protocol 6.12.5: use"""
    world = World()
    owner = owned(world, stages=[stage("st-1")])
    client = worker(world)
    assert went_live(live(client, "st-1"))
    own(owner, stages=[])
    assert lead(world, path("st-1")) == client.conn
    client.leave()
    assert lead(world, path("st-1")) is None


def test_targets_end_with_the_route_of_their_run() -> None:
    """protocol 6.12.5: valid while its run's route exists with the same capability"""
    world = World()
    owner = owned(world)
    client = worker(world)
    assert went_live(live(client, "st-1"))
    owner.leave()
    own(host(world), capability="new")
    assert lead(world, path("st-1")) is None
    assert client.got() == [], "the stage stays connected"


@pytest.mark.parametrize("is_looked_up", [False, True])
def test_targets_come_back_with_the_same_capability(is_looked_up: bool) -> None:
    """protocol 6.12.5: whoever writes while the owner is away does not cut its stages off for good (world 111309)"""
    world = World()
    owned(world).leave()
    owner = owned(world)
    client = worker(world)
    assert went_live(live(client, "st-1"))
    owner.leave()
    assert not is_looked_up or lead(world, path("st-1")) is None
    owned(world)
    assert lead(world, path("st-1")) == client.conn


def test_a_subgroups_own_run_is_not_the_invocation() -> None:
    """protocol 6.12.5: valid with the target's invocation group as the route's group"""
    world = World()
    sub = f"{group_of()}/sub"
    own(host(world, group=sub), group=sub)
    client = worker(world, home=sub)
    assert went_live(live(client, "a"))
    owned(world, OTHER)
    assert lead(world, path("a")) is None


def test_a_key_that_makes_no_target_leads_nowhere_and_stands_in_no_other_keys_way() -> None:
    """protocol 6.12.1: a target has a bounded length"""
    assert leads(None, ("x" * STAGE_TARGET_CHARACTERS, "c"), path("c")) == [True]
