"""What a run announces: targets that are made, and mistakes that are refused before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import to_builtins

from intercom.client.rosters import (
    DeliveryState,
    PossibleStage,
    RosterStage,
    checked_key,
    checked_owner_group,
    checked_run,
    parent_of,
    rostered,
)
from intercom.errors import UsageError

ROOT = "7f0c2f5e-3b1a-4c6d-9e21-5a4b3c2d1e0f"
NESTED = "1d2e3f40-5a6b-4c7d-8e9f-0a1b2c3d4e5f"
GROUP = f"workflow:{ROOT}"


def test_a_stage_of_the_root_run() -> None:
    """Protocol 6.12.2: the members of an announcement, with a target whose last segment is the id."""
    announced = rostered(ROOT, GROUP, [RosterStage(id="st-1", name="reviewer-a")], [])
    assert to_builtins(list(announced.stages)) == [
        {
            "stageId": "st-1",
            "stageName": "reviewer-a",
            "target": f"{GROUP}/st-1",
            "lifecycle": "pending",
            "routeEligible": True,
            "group": GROUP,
            "recipientPurpose": "agent",
        }
    ]


def test_a_stage_of_a_run_below() -> None:
    """Protocol 6.12.4: the id of the run below is a segment before the last, which leads to its owner."""
    stage = RosterStage(id="st-1", name="x", running=True, agent=False, listed=False)
    [announced] = rostered(NESTED, GROUP, [stage], []).stages
    assert announced.target == f"{GROUP}/{NESTED}/st-1"
    assert (announced.lifecycle, announced.recipient_purpose, announced.route_eligible) == ("running", "control", False)


def test_a_target_of_the_host_s_own() -> None:
    stage = RosterStage(id="st-1", name="x", target=f"{GROUP}/boundary/st-1", group=f"{GROUP}/part")
    [announced] = rostered(NESTED, GROUP, [stage], []).stages
    assert (announced.target, announced.group) == (f"{GROUP}/boundary/st-1", f"{GROUP}/part")


def test_possible_stages() -> None:
    """Protocol 6.12.2: targets of any kind, whole or below the run."""
    delivery = DeliveryState("m", ROOT, "st-1", "delivered", "it started")
    reported = PossibleStage(target=f"{GROUP}/**", queued=2, delivery_only=True, deliveries=(delivery,))
    given: list[PossibleStage | str] = ["reviewer-*", reported]
    announced = rostered(ROOT, GROUP, [], given).possible
    told = {"messageId": "m", "runId": ROOT, "stageId": "st-1", "state": "delivered", "reason": "it started"}
    assert to_builtins(list(announced)) == [
        {"target": f"{GROUP}/reviewer-*", "queuedCount": 0},
        {"target": f"{GROUP}/**", "queuedCount": 2, "deliveryOnly": True, "deliveryStates": [told]},
    ]


def test_the_frame() -> None:
    """Protocol 4.14."""
    announced = rostered(ROOT, GROUP, [], ["a"])
    frame = announced.frame(
        NESTED, group=GROUP, capability="c", dormant=True, parent=parent_of(ROOT, ["b"]), request_id="q"
    )
    assert to_builtins(frame) == {
        "type": "register_pending_stage_route",
        "runId": NESTED,
        "group": GROUP,
        "capability": "c",
        "requestId": "q",
        "dormant": True,
        "stages": [],
        "possibleStages": [{"target": f"{GROUP}/a", "queuedCount": 0}],
        "parent": {"runId": ROOT, "stageKeys": ["b"]},
    }
    silent = announced.frame(NESTED, group=GROUP, capability="c", dormant=False, parent=None)
    assert {"requestId", "dormant", "parent"}.isdisjoint(to_builtins(silent))


@pytest.mark.parametrize(
    "roster",
    [
        [RosterStage(id="a/b", name="x")],
        [RosterStage(id="a*", name="x")],
        [RosterStage(id="", name="x")],
        [RosterStage(id="a", name="x/y")],
        [RosterStage(id="a", name="x"), RosterStage(id="a", name="y")],
        [RosterStage(id="a", name="x", target=f"{GROUP}/b")],
        [RosterStage(id="a", name="x", target="nowhere/a")],
        [{"id": "a", "name": "x"}],
    ],
)
def test_rosters_that_no_broker_takes(roster: list[Any]) -> None:
    """Protocol 6.12.2; the broker would end the connection."""
    with pytest.raises(UsageError):
        rostered(ROOT, GROUP, roster, [])


@pytest.mark.parametrize(
    "possible",
    ["", "a//b", "workflow:x/y", PossibleStage(target="a", queued=-1), PossibleStage(target="a", queued=True)],
)
def test_possible_stages_that_no_broker_takes(possible: Any) -> None:
    with pytest.raises(UsageError):
        rostered(ROOT, GROUP, [], [possible])


def test_ids_groups_and_edges() -> None:
    """Protocol 6.12.1 and 6.12.2."""
    assert checked_run(ROOT) == ROOT
    assert checked_owner_group(GROUP) == GROUP
    assert checked_key("reviewer-a", "stage name") == "reviewer-a"
    assert parent_of(None, ()) is None
    for mistake in (
        lambda: checked_run("run-1"),
        lambda: checked_owner_group("default"),
        lambda: checked_owner_group("workflow:run-1"),
        lambda: checked_owner_group(f"{GROUP}/part"),
        lambda: parent_of(None, ["b"]),
        lambda: parent_of(ROOT, "boundary"),
        lambda: parent_of("run-1", ["b"]),
    ):
        with pytest.raises(UsageError):
            mistake()
