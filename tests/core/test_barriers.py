"""Test going live: the refusals, which targets lead to a stage, and the wait for undecided messages (6.12.5)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.wire import reasons
from tests.core.harness import Client, World, only, types
from tests.core.runs import (
    OTHER,
    asked,
    decide,
    group_of,
    host,
    lead,
    live,
    member,
    own,
    owned,
    path,
    stage,
    went_live,
    worker,
)

# --- refusals (protocol 4.15, 6.12.5) -------------------------------------------------------------------


def refused(world: World, client: Client, *keys: str, **more: Any) -> str:
    """Return the code with which the connection was ended."""
    frame = only(live(client, *keys, **more), "registration_failed")
    assert client.conn in world.finished and not world.broker.is_registered(client.conn)
    assert frame["reason"]
    return str(frame["code"])


@pytest.mark.parametrize("key", ["a/b", "/", "*", "reviewer-*", "**"])
def test_a_key_is_one_plain_segment(key: str) -> None:
    """protocol 6.12.5: invalid_stage_key, before everything else"""
    world = World()
    assert refused(world, worker(world), "fine", key) == "invalid_stage_key"


def test_a_run_needs_an_owner() -> None:
    """protocol 6.12.5: owner_missing"""
    world = World()
    owned(world).leave()
    assert refused(world, worker(world), "a") == "owner_missing"


def test_a_control_session_is_no_stage() -> None:
    """protocol 6.12.5, 6.4: registrant_not_agent"""
    world = World()
    owned(world)
    assert refused(world, host(world), "a", capability="wrong") == "registrant_not_agent"


def test_the_capability_is_the_runs() -> None:
    """protocol 6.12.5: capability_mismatch, before the group"""
    world = World()
    owned(world)
    assert refused(world, world.register("stranger"), "a", capability="wrong") == "capability_mismatch"


@pytest.mark.parametrize("home", ["default", group_of(OTHER), f"{group_of()}-more"])
def test_the_home_group_lies_in_the_runs_group(home: str) -> None:
    """protocol 6.12.5: group_mismatch; memberships do not count"""
    world = World()
    owned(world)
    client = worker(world, home=home)
    client.write("join_group", group=group_of())
    assert refused(world, client, "a") == "group_mismatch"


def test_the_owners_group_is_a_workflows() -> None:
    """protocol 6.12.5: owner_not_workflow"""
    world = World()
    own(host(world, group="team"), group="team")
    assert refused(world, worker(world, home="team"), "a") == "owner_not_workflow"


def test_a_key_of_nodes_that_are_no_agents_is_refused() -> None:
    """protocol 6.12.5: non_agent_stage_key, by id or name, when all that match are"""
    world = World()
    gate = stage("gate", "barrier", recipientPurpose="control")
    owned(world, stages=[gate, stage("x", "barrier-2", recipientPurpose="control"), stage("st-1", "barrier-2")])
    assert refused(world, worker(world, "a"), "gate") == "non_agent_stage_key"
    assert refused(world, worker(world, "b"), "st-1", "barrier") == "non_agent_stage_key"
    assert went_live(live(worker(world, "c"), "st-1", "barrier-2"))


def test_a_target_leads_to_one_session_only() -> None:
    """protocol 6.12.5, 5.29: duplicate_live_owner with its exact text"""
    world = World()
    owned(world)
    first = worker(world, "first")
    assert went_live(live(first, "st-1", "reviewer"))
    second = worker(world, "second")
    frame = only(live(second, "st-2", "reviewer"))
    assert frame == {
        "type": "registration_failed",
        "reason": "Live workflow-stage route is owned by another active session",
        "code": "duplicate_live_owner",
    }
    assert lead(world, path("st-2")) is None, "a refusal changes nothing"
    first.leave()
    assert went_live(live(worker(world, "third"), "st-1"))


def test_what_another_secret_registered_blocks_nobody() -> None:
    """protocol 6.12.5: an alias of a route that is gone is deleted on look-up"""
    world = World()
    keeper = owned(world, dormant=True, capability="old")
    assert went_live(live(worker(world, "first"), "a", capability="old"))
    own(host(world), capability="new")
    keeper.got()
    second = worker(world, "second")
    assert went_live(live(second, "a", capability="new"))
    assert lead(world, path("a")) == second.conn


def test_the_same_session_may_go_live_again() -> None:
    """protocol 6.12.5: another connected session"""
    world = World()
    owned(world)
    client = worker(world)
    assert went_live(live(client, "st-1"))
    assert went_live(live(client, "st-1", "reviewer"))


def test_a_refusal_drops_what_was_pipelined_and_peers_see_the_departure() -> None:
    """protocol 4.23, 8.7"""
    world = World()
    client = worker(world)
    peer = world.register("peer", info={"group": "own-worker"})
    client.got()
    live(client, "a")
    assert client.write("list", requestId="late") == []
    assert peer.got() == [{"type": "session_left", "sessionId": client.id}]


# --- the barrier (protocol 6.12.5) ----------------------------------------------------------------------


def barrier_world(*targets: str, stages: list[dict[str, Any]] | None = None) -> tuple[World, Client, list[Any]]:
    """Return a world in which the owner is deciding about messages to these targets."""
    world = World()
    owner = owned(world, **({} if stages is None else {"stages": stages}))
    sender = member(world)
    for number, target in enumerate(targets):
        sender.message(target, f"m{number}")
    return world, owner, owner.got()


def test_a_stage_waits_for_what_is_undecided() -> None:
    """protocol 6.12.5, 8.6: the answer comes before the message that was waited for"""
    world, owner, requests = barrier_world(path("st-1"), path("reviewer"))
    client = worker(world)
    assert live(client, "st-1", "reviewer") == []
    decide(owner, requests[0], "queued", position=1)
    assert client.got() == []
    decide(owner, requests[1], "forward", target=path("st-1"))
    assert types(client.got()) == ["live_workflow_stage_route_registered", "message"]


@pytest.mark.parametrize("outcome", ["delivered", "refused", "queued", "forward"])
def test_every_decision_ends_the_wait(outcome: str) -> None:
    """protocol 6.12.4: settled, whatever comes of it"""
    world, owner, (request,) = barrier_world(path("a"))
    client = worker(world)
    live(client, "a")
    decide(owner, request, outcome, **({"target": path("nobody")} if outcome == "forward" else {}))
    assert went_live(client.got())


def test_the_time_limit_and_the_owners_departure_end_the_wait() -> None:
    """protocol 6.12.5"""
    world, owner, _ = barrier_world(path("a"))
    client = worker(world)
    live(client, "a")
    world.pass_time(10_000)
    assert went_live(client.got())
    member(world, "late").message(path("a"), "m-late")
    assert live(client, "a", request="again") == []
    owner.leave()
    assert went_live(client.got())


def test_the_wait_of_a_stage_that_left_is_dropped() -> None:
    """protocol 6.12.5, 6.15.7"""
    world, owner, (request,) = barrier_world(path("a"))
    client = worker(world)
    live(client, "a")
    client.write("unregister")
    decide(owner, request, "queued", position=1)
    assert client.got() == []


def test_a_sender_that_left_is_still_waited_for() -> None:
    """protocol 6.12.5: the owner is still deciding about its message"""
    world = World()
    owner, sender = owned(world), member(world)
    sender.message(path("a"), "m")
    sender.leave()
    client = worker(world)
    assert live(client, "a") == []
    decide(owner, asked(owner), "queued", position=1)
    assert went_live(client.got())


@pytest.mark.parametrize(
    ("target", "waits"),
    [
        (path("st-1"), True),
        (path("anywhere", "reviewer"), True),
        (path("reviewer", "other"), False),
        (path("other"), False),
        (path("st-*"), True),
        (path("rev*"), False),
        (path("x*"), False),
        (path("**"), True),
        (path("boundary", "*"), False),
    ],
)
def test_what_concerns_a_known_stage(target: str, waits: bool) -> None:
    """protocol 6.12.5: paths that end in a key, and patterns that match the roster target"""
    world, owner, (request,) = barrier_world(target, stages=[stage("st-1", "reviewer")])
    client = worker(world)
    assert went_live(live(client, "st-1", "reviewer")) is not waits
    decide(owner, request, "delivered")
    assert went_live(client.got()) is waits


@pytest.mark.parametrize("target", [path("x*"), path("boundary", "*"), path("**")])
def test_every_pattern_concerns_a_stage_that_is_not_announced(target: str) -> None:
    """protocol 6.12.5: without a roster entry, every pattern"""
    world, owner, (request,) = barrier_world(target)
    client = worker(world)
    assert live(client, "st-1") == []
    decide(owner, request, "delivered")
    assert went_live(client.got())


def test_other_invocations_hold_nobody_up() -> None:
    """protocol 6.12.5: of the same root run"""
    world, _, _ = barrier_world(path("a"))
    owned(world, OTHER)
    client = worker(world, home=group_of(OTHER))
    assert went_live(live(client, "a", run=OTHER))


def test_what_comes_after_a_stage_asked_does_not_delay_it() -> None:
    """protocol 6.12.5: in flight at that moment"""
    world, owner, (request,) = barrier_world(path("a"))
    client = worker(world)
    live(client, "a")
    member(world, "late").message(path("a"), "m-late")
    decide(owner, request, "queued", position=1)
    assert went_live(client.got())


def test_waits_are_told_apart_by_session_and_request() -> None:
    """protocol 6.12.5"""
    world, owner, requests = barrier_world(path("a"), path("b"))
    first, second = worker(world, "first"), worker(world, "second")
    assert live(first, "a", request="same") == live(second, "b", request="same") == []
    assert live(first, "a", request="other") == []
    decide(owner, requests[0], "delivered")
    assert [frame["requestId"] for frame in first.got()] == ["same", "other"]
    assert second.got() == []
    decide(owner, requests[1], "delivered")
    assert [frame["requestId"] for frame in second.got()] == ["same"]


def test_the_targets_lead_to_a_stage_while_it_waits() -> None:
    """protocol 6.12.5: after the aliases are set"""
    world, owner, (request,) = barrier_world(path("a"))
    client = worker(world)
    live(client, "a")
    late = member(world, "late")
    late.message(path("a"), "m-late")
    second = asked(owner)
    assert second["live"] is True
    decide(owner, second, "forward", target=path("a"))
    assert client.texts() == ["x"]
    decide(owner, request, "delivered")
    assert went_live(client.got())


def test_a_repeated_request_is_answered_once() -> None:
    """protocol 6.12.5: keyed by session and request id"""
    world, owner, requests = barrier_world(path("a"), path("b"))
    client = worker(world)
    live(client, "a")
    live(client, "b")
    decide(owner, requests[0], "delivered")
    assert client.got() == []
    decide(owner, requests[1], "delivered")
    assert went_live(client.got())


def test_nothing_of_a_finished_workflow_stays() -> None:
    """protocol 6.15: nothing pending or aliased survives the departure of what it belongs to"""
    world, owner, _ = barrier_world(path("a"), path("*"))
    client = worker(world)
    live(client, "a")
    for left in (client, owner):
        left.leave()
    status = only(member(world, "observer").write("broker_status", requestId="q"))["report"]["broker"]
    counts = ("workflowRuns", "liveStageTargets", "ownerRequests", "waitingStages", "notifications")
    assert [status[name] for name in counts] == [0, 0, 0, 0, 0]
    assert world.broker.next_deadline() is None


def test_reasons_of_refusals_are_sentences() -> None:
    """protocol 5.29: clear for whoever reads them"""
    world = World()
    owned(world)
    frame = only(live(worker(world, home="team"), "a"))
    assert frame["reason"] == reasons.LIVE_OTHER_GROUP
