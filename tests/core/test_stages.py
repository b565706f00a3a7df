"""Test who may announce a run and take it over (protocol 4.14, 6.12.3), and what a send to a stage must look like."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.harness import World, is_delivered, only, reason, types
from tests.core.runs import (
    CHILD,
    OTHER,
    RUN,
    asked,
    decide,
    group_of,
    host,
    member,
    own,
    owned,
    path,
    stage,
)

NOT_AUTHORIZED = "Pending-stage route is not authorized"


def is_refused(frames: list[dict[str, Any]], reason: str = NOT_AUTHORIZED) -> bool:
    return frames == [{"type": "registration_failed", "reason": reason}]


# --- registering (protocol 4.14) ------------------------------------------------------------------------


def test_an_answer_comes_only_when_it_was_asked_for() -> None:
    """protocol 4.14, 5.20"""
    world = World()
    client = host(world)
    assert own(client) == []
    assert own(client, requestId="h1") == [{"type": "pending_stage_route_registered", "requestId": "h1"}]


def test_the_group_must_be_the_owners_home() -> None:
    """protocol 4.14: normalised group and registration group"""
    world = World()
    client = host(world)
    assert own(client, group=f" {group_of()} ", requestId="q")[0]["type"] == "pending_stage_route_registered"
    assert is_refused(own(client, CHILD, group=group_of(OTHER)))
    assert client.conn in world.finished
    plain = world.register("plain")
    assert own(plain, group="  ", requestId="q")[0]["type"] == "pending_stage_route_registered"


def test_joining_the_group_gives_no_authority() -> None:
    """protocol 6.3: only the home group counts as workflow authority"""
    world = World()
    assert is_refused(own(member(world)))


@pytest.mark.parametrize("change", [{"capability": "other"}, {"group": f"{group_of()}/sub"}])
def test_a_live_route_is_not_taken_by_a_stranger(change: dict[str, str]) -> None:
    """protocol 4.14: another capability or another group"""
    world = World()
    owner = owned(world)
    stranger = host(world, group=change.get("group"))
    assert is_refused(own(stranger, **change))
    member(world).message(path("a"), "m")
    assert asked(owner)["runId"] == RUN


def test_the_owner_itself_may_not_change_its_capability() -> None:
    """protocol 4.14, 6.12.3: a takeover comes from another session"""
    world = World()
    for dormant in (False, True):
        assert is_refused(own(owned(world, RUN if dormant else CHILD, dormant=dormant), capability="new"))


def test_another_process_of_the_same_secret_updates_the_roster_only() -> None:
    """protocol 6.12.3: the route and its owner stay"""
    world = World()
    owner, other = owned(world), host(world)
    answer = own(other, stages=[stage()], requestId="q")
    assert answer == [{"type": "pending_stage_route_registered", "requestId": "q"}]
    sender = member(world)
    sender.message(path("st-1"), "m")
    assert asked(owner)["target"] == path("st-1")
    other.leave()
    assert len(only(sender.write("list", requestId="l"))["workflowStages"]) == 1


def test_a_refusal_ends_the_session_with_all_that_was_its_own() -> None:
    """protocol 4.14: refuse and end; 6.15"""
    world = World()
    owner, sender = owned(world), member(world)
    sender.message(path("a"), "m")
    frames = own(owner, capability="wrong")
    assert types(frames) == ["pending_stage_message", "registration_failed"]
    assert reason(sender.got()) == reasons.STAGE_OWNER_LEFT
    assert own(owner, CHILD, requestId="q") == [], "what was pipelined is dropped"
    assert not world.broker.is_registered(owner.conn)


def test_a_session_owns_a_limited_number_of_runs() -> None:
    """design 4: charge before you link"""
    world = World(limits=Limits(routes_per_session=1))
    owner = owned(world)
    own(owner)
    assert is_refused(own(owner, CHILD), reasons.too_many_routes(1))


def test_a_route_ends_with_its_owner() -> None:
    """protocol 6.12.3, 6.15.4: another one may then own the run under any capability"""
    world = World()
    owned(world, stages=[stage()]).leave()
    sender = member(world)
    assert reason(sender.message(path("st-1"), "m1")) == reasons.SESSION_NOT_FOUND
    assert only(sender.write("list", requestId="l"))["workflowStages"] == []
    assert own(host(world), capability="new", requestId="q")[0]["type"] == "pending_stage_route_registered"


# --- dormant routes (protocol 6.12.3) -------------------------------------------------------------------


def test_a_dormant_route_is_taken_over_and_its_owner_told() -> None:
    """protocol 6.12.3, 5.21"""
    world = World()
    keeper = owned(world, dormant=True, capability="old", stages=[stage()])
    successor, sender = host(world), member(world)
    assert own(successor, capability="new", requestId="q")[0]["type"] == "pending_stage_route_registered"
    assert keeper.got() == [{"type": "pending_stage_route_revoked", "runId": RUN}]
    sender.message(path("a"), "m")
    assert asked(successor)["runId"] == RUN
    keeper.leave()
    sender.message(path("a"), "m2")
    assert asked(successor)["message"]["id"] == "m2", "the former owner takes nothing with it"


def test_until_then_the_dormant_owner_is_asked() -> None:
    """protocol 6.12.3, 6.12.4"""
    world = World()
    keeper, sender = owned(world, dormant=True), member(world)
    sender.message(path("a"), "m")
    decide(keeper, asked(keeper), "queued", position=2)
    assert only(sender.got(), "queued")["position"] == 2


def test_a_dormant_registration_takes_nothing_over() -> None:
    """protocol 6.12.3"""
    world = World()
    keeper = owned(world, dormant=True, capability="old")
    assert is_refused(own(host(world), capability="new", dormant=True))
    assert keeper.got() == []


def test_with_the_same_capability_a_dormant_route_stays_where_it_is() -> None:
    """protocol 6.12.3: handled as an announcement"""
    world = World()
    keeper, other, sender = owned(world, dormant=True), host(world), member(world)
    own(other)
    assert keeper.got() == []
    sender.message(path("a"), "m")
    assert asked(keeper)


def test_a_dormant_route_of_another_group_is_not_taken_over() -> None:
    """protocol 6.12.3: both groups are the owner's group"""
    world = World()
    owned(world, dormant=True, capability="old")
    assert is_refused(own(host(world, group=group_of(OTHER)), group=group_of(OTHER), capability="new"))


def test_a_route_wakes_when_its_owner_says_so() -> None:
    """protocol 6.12.3: the route is set to the sender"""
    world = World()
    owner = owned(world, dormant=True)
    own(owner)
    assert is_refused(own(host(world), capability="new"))


@pytest.mark.parametrize("value", [False, None, 1, "true", []])
def test_only_true_makes_a_route_dormant(value: object) -> None:
    """protocol 4.14"""
    world = World()
    owned(world, dormant=value)
    assert is_refused(own(host(world), capability="new"))


# --- form (protocol 4.8 B) ------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [path("*"), path("reviewer-*"), path("**"), path("a", "**")])
def test_a_pattern_cannot_be_asked(target: str) -> None:
    """protocol 4.8 B4"""
    world = World()
    owner, sender = owned(world), member(world)
    assert reason(sender.ask(target, "q")) == reasons.STAGE_ASK
    assert owner.got() == []
    sender.message(target, "m")
    assert asked(owner)["target"] == target


def test_the_removed_form_names_the_stages_target() -> None:
    """protocol 4.8 B5"""
    world = World()
    owner = owned(world, stages=[stage("st-1", "reviewer"), stage("st-2", "twin"), stage("st-3", "twin")])
    sender = member(world)
    assert path("st-1") in reason(sender.message(f"{RUN}:reviewer", "m1"))
    assert path("st-1") in reason(sender.message(f" {RUN}:st-1 ", "m2"))
    assert group_of() not in reason(sender.message(f"{RUN}:twin", "m3"))
    assert group_of() not in reason(sender.message(f"{RUN}:nobody", "m4"))
    assert "no longer supported" in reason(sender.message(f"{OTHER}:reviewer", "m5"))
    assert owner.got() == []


def test_the_hint_needs_a_workflow_group() -> None:
    """protocol 4.8 B5: its group begins with workflow:"""
    world = World()
    client = world.register("host", info={"group": "team"})
    own(client, group="team", stages=[stage(group="team")])
    sender = world.register("sender")
    assert group_of() not in reason(sender.message(f"{RUN}:reviewer", "m"))


def test_other_texts_with_a_colon_are_names() -> None:
    """protocol 6.12.1: anything that does not parse is no workflow target"""
    world = World()
    sender, peer = world.register("sender"), world.register("team:bob")
    for name in ("team:bob", f"workflow:{RUN}", "workflow:run-1/x"):
        peer.write("presence", name=name)
        assert is_delivered(sender.message(name, name))
    peer.write("presence", name=path("a"))
    assert is_delivered(sender.message(path("a"), "m")), "no alias, so the name is looked up (4.8 C)"


def test_supervisor_sends_never_go_to_stages() -> None:
    """protocol 4.9"""
    world = World()
    owner = owned(world)
    sender = member(world)
    assert reason(sender.message(path("a"), "m", kind="supervisor_send")) == reasons.NOT_A_CHILD
    assert owner.got() == []
