"""Test that who held a target before is known before anything new is for it (protocol D13, 6.13)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.peer_records import TargetHeld
from intercom.core.records import ClusterState
from intercom.limits import Limits
from tests.core.cluster import IDS
from tests.core.harness import Client, answers, only
from tests.core.test_abroad import QUEUE, client, confirm
from tests.core.test_homes import holder
from tests.core.test_looking import Scene, moved

LIMITS = Limits()


# --- the first moment of a registration ----------------------------------------------------------------


def at_once(scene: Scene, name: str, to: str = "c", **more: Any) -> Client:
    """Let somebody come at a broker; the engine has heard nothing of that yet."""
    more = {"returnAddress": f"return-{name}", "acknowledgesReceipt": True, **more}
    return scene.cluster[to].register(name, **more)


def test_what_arrived_before_is_found_in_the_first_moment_after_a_registration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P 6.13, held writes: who held the target is not told yet; what is for it waits for that, in its order."""
    scene = Scene(monkeypatch)
    scene.send(scene.alice, "m1")
    confirm(scene.cluster, scene.bob, "m1")
    scene.bob.leave(), scene.alice.leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    scene.bob, scene.alice = at_once(scene, "bob"), at_once(scene, "alice")
    told = [*scene.alice.message("bob", "m1", "x"), *scene.alice.message("bob", "m2", "y")]
    assert answers(told) == [] == [frame for frame in scene.bob.got() if frame["type"] == "message"]
    assert scene.shown() == ["m2"] and only(answers(scene.alice.got()))["messageId"] == "m1"
    confirm(scene.cluster, scene.bob, "m2")
    assert only(answers(scene.alice.got()))["messageId"] == "m2"


def test_a_target_that_was_nowhere_else_has_what_waited_once_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """P 6.13: no other is asked; from then on nothing waits."""
    scene = Scene(monkeypatch)
    new = at_once(scene, "new", "a")
    assert answers(scene.alice.message("new", "m1")) == [] == new.got()
    scene.cluster.run()
    assert [frame["message"]["id"] for frame in new.got() if frame["type"] == "message"] == ["m1"]
    scene.alice.message("new", "m2")
    assert [frame["message"]["id"] for frame in new.got() if frame["type"] == "message"] == ["m2"]
    assert scene.looks() == 0


def test_an_engine_that_says_nothing_is_waited_for_no_longer_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """P 6.13: at most ``look_ms`` after the registration, for whatever was sent meanwhile; a late word still counts."""
    scene = Scene(monkeypatch)
    scene.alice = scene.moves(scene.alice, "alice", "c")
    scene.bob.leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    world = scene.cluster["c"]
    scene.bob = at_once(scene, "bob")
    world.peer_work.clear()  # what the engine was asked is lost
    scene.alice.message("bob", "m1", "x")
    world.pass_time(LIMITS.look_ms - 1)
    scene.alice.message("bob", "m2", "x")
    assert [frame for frame in scene.bob.got() if frame["type"] == "message"] == []
    world.pass_time(1)
    assert [frame["message"]["id"] for frame in scene.bob.got() if frame["type"] == "message"] == ["m1", "m2"]
    scene.alice.message("bob", "m3", "x")
    assert [frame["message"]["id"] for frame in scene.bob.got() if frame["type"] == "message"] == ["m3"]
    [(key, brokers)] = [each for each in scene.cluster.targets.items() if each[1] == (IDS["b"],)]
    world.peer_told(TargetHeld(key, brokers))
    scene.alice.message("bob", "m4", "x")
    assert [frame for frame in scene.bob.got() if frame["type"] == "message"] == []


def test_nothing_waits_while_the_engine_is_away_and_who_came_meanwhile_is_asked_about_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """cluster.md 3: local delivery never waits for an engine that cannot be reached; then D13 holds for all."""
    scene = Scene(monkeypatch)
    scene.send(scene.alice, "m1")
    confirm(scene.cluster, scene.bob, "m1")
    scene.bob.leave(), scene.alice.leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    early = at_once(scene, "early")
    other = at_once(scene, "other")
    other.message("early", "m0")
    scene.cluster.cut("c", leases_end=False)
    scene.bob, scene.alice = at_once(scene, "bob"), at_once(scene, "alice")
    scene.alice.message("bob", "m2", "x")
    got = [frame["message"]["id"] for who in (early, scene.bob) for frame in who.got() if frame["type"] == "message"]
    assert got == ["m0", "m2"]
    scene.cluster.run(LIMITS.announce_ms)
    confirm(scene.cluster, scene.bob, "m2")
    scene.alice.got()
    scene.cluster._connect(scene.cluster.nodes["c"])
    scene.alice.message("bob", "m1", "x")
    assert answers(scene.alice.got()) == []
    assert scene.shown() == [] and only(answers(scene.alice.got()))["type"] == "delivered"


def test_an_engine_that_said_nothing_and_goes_away_is_asked_once_more_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P 6.13, D13: what was waited for in vain is waited for no more; once it tells after all, that counts."""
    scene = Scene(monkeypatch)
    scene.send(scene.alice, "m1")
    confirm(scene.cluster, scene.bob, "m1")
    scene.bob.leave(), scene.alice.leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    world = scene.cluster["c"]
    scene.bob, scene.alice = at_once(scene, "bob"), at_once(scene, "alice")
    world.peer_work.clear()  # what the engine was asked is lost
    scene.alice.message("bob", "m2", "x")
    world.pass_time(LIMITS.look_ms)
    assert [frame["message"]["id"] for frame in scene.bob.got() if frame["type"] == "message"] == ["m2"]
    scene.cluster.cut("c", leases_end=False)
    scene.alice.message("bob", "m3", "x")
    assert [frame["message"]["id"] for frame in scene.bob.got() if frame["type"] == "message"] == ["m3"]
    scene.alice.got()
    scene.cluster._connect(scene.cluster.nodes["c"])
    scene.alice.message("bob", "m1", "x")
    assert answers(scene.alice.got()) == []
    assert scene.shown() == [] and only(answers(scene.alice.got()))["type"] == "delivered"


def test_a_broker_that_begins_waits_for_the_first_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    """P 6.13, `starting` with a local target: as long as it may take, then as if there was nobody else."""
    scene = Scene(monkeypatch)
    moved(scene)
    world = scene.cluster["c"]
    world.crash()
    scene.alice, scene.bob = at_once(scene, "alice"), at_once(scene, "bob")
    scene.alice.message("bob", "m1", "x")
    assert [frame for frame in scene.bob.got() if frame["type"] == "message"] == []
    world.peer_told(ClusterState("unavailable", "nobody there"))
    assert [frame["message"]["id"] for frame in scene.bob.got() if frame["type"] == "message"] == ["m1"]


# --- who is away ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("begins_anew", [False, True])
def test_what_an_address_accepted_elsewhere_is_found_while_nobody_holds_it(
    monkeypatch: pytest.MonkeyPatch, begins_anew: bool
) -> None:
    """D13, E4: its home has moved, and its holder has gone; also when the new home has begun anew since."""
    scene = Scene(monkeypatch)
    depot = holder(scene.cluster, "b", "depot")
    scene.send(scene.alice, "m1", to="depot")
    confirm(scene.cluster, depot, "m1")
    holder(scene.cluster, "c", "depot").leave()
    scene.alice.leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    if begins_anew:
        scene.cluster.crash("c")
    alice = client(scene.cluster, "c", "alice", **QUEUE)
    alice.message("depot", "m1", "x", extra={"queueIfAway": True})
    scene.cluster.run()
    assert only(answers(alice.got()))["type"] == "delivered"
    alice.message("depot", "m2", "x", extra={"queueIfAway": True})
    alice.message("depot", "m3", "x", extra={"queueIfAway": True})
    scene.cluster.run()
    assert [(each["type"], each["position"]) for each in answers(alice.got())] == [("queued", 1), ("queued", 2)]


def test_what_another_broker_brings_for_an_address_that_is_away_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """D13, 6.13.7: its home decides, and asks where it was before."""
    scene = Scene(monkeypatch)
    depot = holder(scene.cluster, "b", "depot")
    carol = client(scene.cluster, "b", "carol", **QUEUE)
    carol.message("depot", "m1", "x")
    depot.write("received", messageId="m1")
    assert only(answers(carol.got()))["type"] == "delivered"
    carol.leave()
    there = holder(scene.cluster, "c", "depot")
    there.leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    carol = client(scene.cluster, "a", "carol", **QUEUE)
    told = carol.message("depot", "m1", "x", extra={"queueIfAway": True})
    scene.cluster.run()
    assert only(answers(told))["type"] == "queued", "it is on its way to the home"
    assert scene.looks() == 1 and scene.cluster["c"].disk.mail == {} == scene.cluster["a"].disk.mail


def test_a_session_that_may_come_back_is_looked_for_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """D13, 9.4: it has left this machine, too, and may return to it."""
    scene = Scene(monkeypatch)
    scene.send(scene.alice, "m1")
    confirm(scene.cluster, scene.bob, "m1")
    scene.bob.leave(), scene.alice.leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    client(scene.cluster, "c", "bob", **QUEUE).leave()
    alice = client(scene.cluster, "c", "alice", **QUEUE)
    assert only([*alice.message("bob", "q1", "?", expectsReply=True), *answers(alice.got())])["reasonCode"] == "away"
    alice.message("bob", "m1", "x", extra={"queueIfAway": True})
    scene.cluster.run()
    assert only(answers(alice.got()))["type"] == "delivered"


def test_who_has_left_meanwhile_has_nothing_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    """6.9: what waits for the engine's word goes with its sender, and a target that goes is asked about no more."""
    scene = Scene(monkeypatch)
    new, brief = at_once(scene, "new", "a"), at_once(scene, "brief", "a")
    scene.alice.message("new", "m1")
    scene.alice.leave(), brief.leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    assert [frame for frame in new.got() if frame["type"] == "message"] == []
    scene.cluster.cut("a", leases_end=False)
    at_once(scene, "brief", "a").leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    scene.cluster.join("a")
    assert [post for post in scene.cluster.posts if post.kind == "look"] == []
