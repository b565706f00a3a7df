"""Test sends to somebody who is brought back on another machine (protocol 6.11, 6.13, cluster.md 2)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from intercom.core.records import Announce, RemoteReservation
from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.cluster import IDS, Cluster
from tests.core.family import CHILD, GROUP, OLD_ID, TOKEN, capability_of, hold, ids, release, reserved
from tests.core.harness import Client, World, answers, only, reason

LIMITS = Limits()
UNDERSTANDS = {"awaitRestoringRecipient": True}


class Scene:
    """Hold a supervisor at ``b``, and somebody at ``a`` who writes to its child."""

    def __init__(self, **more: Any) -> None:
        self.cluster = Cluster(**more)
        self.parent = self.cluster["b"].register("parent", supervisorOwnerToken=TOKEN)
        self.capability = capability_of(self.parent)
        self.writer = self.enter("writer", "a")
        self.run(LIMITS.announce_ms)

    def enter(self, name: str, broker: str, group: str = GROUP, **more: Any) -> Client:
        info = {"group": group}
        return self.cluster[broker].register(
            name, info=info, returnAddress=f"return-{name}", acknowledgesReceipt=True, **more
        )

    def run(self, ms: int = LIMITS.announce_ms) -> None:
        self.cluster.run(ms)

    def reserve(self, **members: Any) -> None:
        members.setdefault("group", GROUP)
        assert reserved(self.parent, self.capability, **members) is None
        self.run()

    def child(self, name: str = CHILD) -> Client:
        claim = {"capability": self.capability, "supervisorSessionId": "x"}
        found = self.enter(name, "b", supervisor=claim)
        self.run()
        return found

    def held(self, broker: str = "a") -> int:
        found: int = self.cluster[broker].broker._supervising.report()["heldSends"]
        return found


@pytest.mark.parametrize("target", [CHILD, OLD_ID, "Reviewer"])
def test_who_is_brought_back_elsewhere_gets_what_was_sent_meanwhile(target: str) -> None:
    """6.11 consume: held where it was sent, dispatched once the child is seen; by alias also under another id."""
    scene = Scene()
    assert reason(scene.writer.message(target, "m0", extra=UNDERSTANDS)) == reasons.SESSION_NOT_FOUND
    scene.reserve(aliases=[OLD_ID])
    held = hold(scene.writer, "m1", target)
    assert held["messageId"] == "m1" and scene.held() == 1
    child = scene.child()
    scene.run()
    assert scene.held() == 0 and ids([*child.first, *child.got()]) == ["m1"]
    child.write("received", messageId="m1")
    scene.run()
    assert only(answers(scene.writer.got()))["type"] == "delivered"


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"gone": "cancelled"}, "cancelled"),
        ({"refusal": "it failed"}, "it failed"),
        ({}, reasons.SESSION_NOT_FOUND),
    ],
)
def test_what_its_supervisor_says_of_it_is_told_where_it_is_waited_for(members: dict[str, str], told: str) -> None:
    """6.11: gone and refusal with their text; without one the send is decided anew."""
    scene = Scene()
    scene.reserve()
    hold(scene.writer, "m1")
    release(scene.parent, scene.capability, **members)
    scene.run()
    assert reason(answers(scene.writer.got())) == told and scene.held() == 0
    later = "cancelled" if "gone" in members else reasons.SESSION_NOT_FOUND
    assert reason(scene.writer.message(CHILD, "m2", extra=UNDERSTANDS)) == later, "a marker stays, and nothing else"


def test_nobody_of_another_group_is_held_and_who_is_dormant_is_known_as_that() -> None:
    """6.11, admission"""
    scene = Scene()
    scene.reserve(dormant=True)
    other = scene.enter("other", "a", "elsewhere")
    assert reason(answers(other.message(CHILD, "m1", extra=UNDERSTANDS))) == reasons.SESSION_NOT_FOUND
    assert reason(answers(scene.writer.message(CHILD, "m2"))) == reasons.RESTORING_DORMANT
    hold(scene.writer, "m3")


@pytest.mark.parametrize("how", ["its supervisor leaves", "its broker is away", "its broker is killed"])
def test_a_reservation_ends_with_its_supervisor_and_its_broker(how: str) -> None:
    """6.11, owner departs; cluster.md 2: what a broker says counts while its lease lives."""
    scene = Scene()
    scene.reserve()
    hold(scene.writer, "m1")
    if how == "its supervisor leaves":
        scene.parent.leave()
    elif how == "its broker is away":
        scene.cluster.cut("b")
    else:
        scene.cluster.crash("b")
    scene.run()
    assert reason(answers(scene.writer.got())) == reasons.SESSION_NOT_FOUND and scene.held() == 0


def test_one_that_is_expected_here_comes_first() -> None:
    """OP-13: a local reservation is the better knowledge."""
    scene = Scene()
    scene.reserve()
    near = scene.cluster["a"].register("near", supervisorOwnerToken="another-token")
    capability = capability_of(near)
    assert reserved(near, capability, group=GROUP) is None
    hold(scene.writer, "m1")
    release(near, capability, gone="not here")
    assert reason(answers(scene.writer.got())) == "not here"


def test_a_broker_that_comes_later_is_told_of_all_and_an_ended_one_is_told_for_as_long_as_a_hold() -> None:
    """P 6.13: every reservation in force, and its gone marker; 6.11: whoever holds hears how it ended."""
    scene = Scene(names="ab")
    scene.cluster.cut("a")
    scene.reserve()
    scene.cluster.join("a")
    hold(scene.writer, "m1")
    release(scene.parent, scene.capability, refusal="no")
    scene.run()
    [told] = scene.cluster.nodes["b"].shared.values()
    assert (
        isinstance(told, RemoteReservation)
        and told.has_ended
        and told.refusal == "no"
        and scene.capability not in str(told)
    )
    scene.run(LIMITS.hold_ms)
    scene.run()
    assert scene.cluster.nodes["b"].shared == {}


def test_a_child_that_is_not_seen_is_waited_for_a_moment_only() -> None:
    """6.11: it came back and was gone again before this broker saw it."""
    scene = Scene()
    scene.reserve()
    hold(scene.writer, "m1")
    [told] = scene.cluster.nodes["b"].shared.values()
    assert isinstance(told, RemoteReservation)
    node = scene.cluster.nodes["b"]
    node.shared["restoring", told.key] = RemoteReservation(
        told.key,
        told.home,
        told.owner_id,
        CHILD,
        GROUP,
        has_ended=True,
        returned_as="e9000000-0000-4000-8000-000000000009",
    )
    scene.cluster._tell(scene.cluster.nodes["a"], node)
    assert scene.held() == 1
    scene.run(LIMITS.look_ms)
    assert reason(answers(scene.writer.got())) == reasons.SESSION_NOT_FOUND


def test_what_is_not_told_any_more_has_ended_and_what_ended_before_says_nothing() -> None:
    """cluster.md 2: what its broker says now replaces what it said before."""
    scene = Scene()
    scene.reserve()
    hold(scene.writer, "m1")
    node = scene.cluster.nodes["b"]
    kept = dict(node.shared)
    node.shared.clear()
    scene.cluster._tell(scene.cluster.nodes["a"], node)
    assert reason(answers(scene.writer.got())) == reasons.SESSION_NOT_FOUND
    node.shared.update(kept)
    scene.cluster.cut("a")
    release(scene.parent, scene.capability, refusal="no")
    scene.run()
    scene.cluster.join("a")
    assert reason(scene.writer.message(CHILD, "m2", extra=UNDERSTANDS)) == reasons.SESSION_NOT_FOUND
    scene.reserve()
    scene.run(LIMITS.hold_ms)
    scene.run()
    hold(scene.writer, "m3")


def test_a_child_that_is_seen_late_gets_what_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """6.11, consume: its reservation has ended a moment before it is announced."""
    scene = Scene()
    scene.reserve()
    hold(scene.writer, "m1")
    b = scene.cluster.nodes["b"]
    claim = {"capability": scene.capability, "supervisorSessionId": "x"}
    child = scene.enter(CHILD, "b", supervisor=claim)
    with monkeypatch.context() as silent:
        silent.setattr(scene.cluster, "_tell", lambda node, other: None)
        scene.cluster["b"].pass_time(LIMITS.announce_ms)
        scene.cluster._take_work(b)
    names, b.names = dict(b.names), {}
    scene.cluster._tell(scene.cluster.nodes["a"], b)
    assert scene.held() == 1
    b.names = names
    scene.cluster._tell(scene.cluster.nodes["a"], b)
    assert scene.held() == 0
    scene.run(LIMITS.look_ms)
    assert ids([*child.first, *child.got()]) == ["m1"]


def told_again(scene: Scene, **changes: Any) -> None:
    """Let the broker of the supervisor tell its reservation once more, with changes."""
    node = scene.cluster.nodes["b"]
    [told] = node.shared.values()
    node.shared["restoring", told.key] = structs.replace(told, **changes)  # type: ignore[union-attr]
    scene.cluster._tell(scene.cluster.nodes["a"], node)


def test_what_ended_and_is_told_once_more_is_over_already() -> None:
    """6.11: who came back is still not seen when it is told again; then a reservation has ended, and ends once."""
    scene = Scene()
    scene.reserve()
    hold(scene.writer, "m1")
    for _ in range(2):
        told_again(scene, has_ended=True, returned_as="e9000000-0000-4000-8000-000000000009")
        assert scene.held() == 1
    told_again(scene, has_ended=True, returned_as=None, refusal="no")
    assert reason(answers(scene.writer.got())) == "no" and scene.held() == 0
    scene.run(LIMITS.look_ms)
    told_again(scene, has_ended=True)
    assert answers(scene.writer.got()) == []


def test_what_a_broker_speaks_of_no_more_is_expected_no_more() -> None:
    """P 6.13: nobody else there is expected back."""
    scene = Scene()
    scene.reserve()
    hold(scene.writer, "m1")
    node = scene.cluster.nodes["b"]
    node.shared.clear()
    scene.cluster._tell(scene.cluster.nodes["a"], node)
    assert reason(answers(scene.writer.got())) == reasons.SESSION_NOT_FOUND and scene.held() == 0


def test_a_gone_marker_from_elsewhere_ends_the_holds_there_are() -> None:
    """6.11: also where it comes with the first that is told of it, when nobody waits yet."""
    scene = Scene()
    scene.reserve()
    told_again(scene, gone="lost")
    hold_or_not = answers(scene.writer.message(CHILD, "m1", extra=UNDERSTANDS))
    assert reason(hold_or_not) == "lost"


def test_a_reservation_that_ends_twice_within_a_hold_is_told_by_its_last_end() -> None:
    """P 6.13: what was told of the first end is not forgotten in place of the second."""
    scene = Scene()
    scene.reserve()
    release(scene.parent, scene.capability, refusal="no")
    scene.run()
    scene.run(LIMITS.hold_ms // 2)
    scene.reserve()
    release(scene.parent, scene.capability, refusal="never")
    scene.run()
    scene.run(LIMITS.hold_ms // 2)
    [told] = scene.cluster.nodes["b"].shared.values()
    assert isinstance(told, RemoteReservation) and told.refusal == "never"
    scene.run(LIMITS.hold_ms)
    assert scene.cluster.nodes["b"].shared == {}


def test_nobody_speaks_for_another_broker_and_there_is_a_bound() -> None:
    """cluster.md 2; charge before you link: what others expect has a limit of its own."""
    scene = Scene(limits=Limits(reservations=1))
    forged = RemoteReservation("k", IDS["c"], "owner", CHILD, GROUP)
    node = scene.cluster.nodes["b"]
    node.shared["restoring", "k"] = forged
    scene.cluster._tell(scene.cluster.nodes["a"], node)
    assert reason(scene.writer.message(CHILD, "m1", extra=UNDERSTANDS)) == reasons.SESSION_NOT_FOUND
    node.shared["restoring", "k"] = RemoteReservation("k", IDS["b"], "owner", "one", GROUP)
    node.shared["restoring", "l"] = RemoteReservation("l", IDS["b"], "owner", "two", GROUP)
    scene.cluster._tell(scene.cluster.nodes["a"], node)
    hold(scene.writer, "m2", "one")
    assert reason(scene.writer.message("two", "m3", extra=UNDERSTANDS)) == reasons.SESSION_NOT_FOUND
    near = scene.cluster["a"].register("near", supervisorOwnerToken=TOKEN)
    assert reserved(near, capability_of(near), group=GROUP) is None, "it takes nobody's place here"


def test_without_a_cluster_nothing_is_told() -> None:
    """Off without the setting."""
    world = World()
    parent = world.register("parent", supervisorOwnerToken=TOKEN)
    assert reserved(parent, capability_of(parent), group=GROUP) is None
    world.pass_time(10_000)
    assert not [work for work in world.peer_work if isinstance(work, Announce)]
