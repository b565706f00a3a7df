"""Test what a broker of a cluster tells others of who is here, and what it says of the way to them."""

from __future__ import annotations

from typing import Any

from intercom.core.records import Announce, ClusterState, Forwarded, HoldTargets, PeerLost, PeerSeen, RemoteName
from intercom.limits import Limits
from tests.core.harness import INSTANCE, World
from tests.core.peers import FAR, PEER

PAUSE_MS = Limits().announce_ms


def meshed(**more: Any) -> World:
    return World(cluster=ClusterState("starting"), **more)


def announced(world: World, after_ms: int = PAUSE_MS) -> dict[str, RemoteName | None]:
    """Return what is announced within this time."""
    world.pass_time(after_ms)
    work, world.peer_work = world.peer_work, []
    found: dict[str, RemoteName | None] = {}
    for each in work:
        if not isinstance(each, HoldTargets):
            assert isinstance(each, Announce)
            found |= each.names
    return found


def test_without_a_cluster_nothing_is_announced() -> None:
    """Without the setting nothing changes."""
    world = World()
    world.register("a")
    world.pass_time(60_000)
    assert world.peer_work == []


def test_a_broker_that_answers_for_nothing_announces_nothing() -> None:
    """protocol 6.13: its store cannot be used, so it takes no part."""
    world = World(cluster=ClusterState("off", "the store cannot be used"))
    world.register("a")
    world.peer_told(PeerSeen(PEER, "studio", None, ()))
    world.pass_time(60_000)
    assert world.peer_work == [] and report(world)["status"] == "off"


def test_what_is_said_of_a_task_that_nobody_sent_says_nothing() -> None:
    """F127"""
    world = meshed()
    world.peer_told(Forwarded("d" * 32, 1, "refused", reason="no"))
    assert announced(world) == {} and world.disk.journal == []


def test_agents_are_announced_with_what_others_need_to_know() -> None:
    """Session info, groups, home group, digest of the return address; never the address itself."""
    world = meshed()
    a = world.register("a", info={"groups": ["g", "h"]}, returnAddress="secret")
    world.register("c", info={"recipientPurpose": "control"})
    [told] = announced(world).values()
    assert told is not None
    assert (told.target_id, told.name, told.groups, told.state) == (a.id, "a", ("g", "h"), "active")
    assert told.home == INSTANCE and told.home_group == "g"
    assert told.return_hash is not None and "secret" not in str(told)
    assert b'"name":"a"' in told.session


def test_changes_and_departures_are_announced_once() -> None:
    world = meshed()
    a, b = world.register("a"), world.register("b")
    assert announced(world).keys() == {a.id, b.id}
    assert announced(world) == {}
    a.write("presence", name="a2", status="busy")
    assert [told and told.name for told in announced(world).values()] == ["a2"]
    b.leave()
    assert announced(world, PAUSE_MS - 1) == {}
    assert announced(world, 1) == {b.id: None}
    assert announced(world, 60_000) == {}


def test_what_comes_and_goes_in_a_moment_is_not_announced_at_all() -> None:
    """Peers need not hear of a command that is a session for a moment."""
    world = meshed()
    a = world.register("a")
    assert announced(world, 0).keys() == {a.id}
    b = world.register("b")
    world.pass_time(PAUSE_MS - 1)
    b.leave()
    assert announced(world, 1) == {}


def report(world: World) -> dict[str, Any]:
    [answer] = world.send(world.connect(), type="broker_status", requestId="1")
    found: dict[str, Any] = answer["report"]["multiNode"]
    return found


def test_the_report_says_how_the_way_is_and_who_is_there() -> None:
    """protocol 6.14"""
    assert report(World())["status"] == "off"
    world = meshed()
    assert report(world) == {"status": "starting", "node": "local"}
    world.peer_told(ClusterState("unavailable", "no server", "nats", "p"))
    told = {"status": "unavailable", "reason": "no server", "node": "local", "adapter": "nats", "prefix": "p"}
    assert report(world) == told
    world.peer_told(ClusterState("on", "", "nats", "p", 2))
    names = (RemoteName(FAR, "x", ("default",), "active", PEER),)
    world.peer_told(PeerSeen(PEER, "studio", "journal", names))
    told = report(world)
    assert told["peers"] == [{"brokerId": PEER, "node": "studio", "names": 1}] and told["foreign"] == 2
    world.peer_told(PeerLost(PEER))
    assert report(world)["peers"] == []
