"""Test addresses at a broker that has just started and has not heard where they are (protocol 6.13.6)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from intercom.core.records import AddressesKnown, ClusterState
from intercom.limits import Limits
from tests.core.cluster import Cluster
from tests.core.harness import Client
from tests.core.test_abroad import QUEUE
from tests.core.test_homes import (
    FEATURES,
    OTHER,
    TOKEN,
    asker,
    claim,
    holder,
    home_of,
    is_here,
    known_address,
    refusal,
)

LIMITS = Limits()
ROWS = ["none", "elsewhere", "here"]
"""What the rows of a broker say of an address by now held at another."""


def started(row: str, **how: Any) -> tuple[Cluster, Client]:
    """Return a cluster whose broker ``b`` was just started, and the holder that the address has at ``a``."""
    cluster = Cluster()
    if row == "none":
        cluster.crash("b", is_cut=True)
        old = holder(cluster, "a")
    elif row == "elsewhere":
        old = holder(cluster, "a")
        assert cluster["b"].disk.addresses
    else:
        holder(cluster, "b").leave()
        cluster.run(2 * LIMITS.announce_ms)
        cluster.cut("b")
        old = holder(cluster, "a")
    cluster.crash("b", **how)
    assert bool(cluster["b"].disk.addresses) == (row != "none")
    old.got()
    return cluster, old


def types(who: Client, frames: list[dict[str, Any]] | None = None) -> list[str]:
    """Return the types of the frames that say who holds the address, of these or of what came since."""
    told = ("registered", "replaced", "registration_failed")
    return [frame["type"] for frame in frames or who.got() if frame["type"] in told]


def joined(cluster: Cluster) -> None:
    """Let the broker have its first contact with the engine."""
    cluster.join("b")
    cluster.run(2 * LIMITS.announce_ms)


def holds_alone(cluster: Cluster, new: Client, old: Client) -> bool:
    """Tell whether the session at ``b`` is the one holder in the whole cluster, and was not told otherwise."""
    assert "replaced" in types(old)
    assert home_of(cluster) == "b" and is_here(cluster, "b") and not is_here(cluster, "a")
    for broker in "ab":
        asker(cluster, broker, f"asker-{broker}").message("bob", f"m-{broker}")
        cluster.run()
    frames = [*new.first, *new.got()]
    shown = [frame["message"]["id"] for frame in frames if frame["type"] == "message"]
    return shown == ["m-a", "m-b"] and "replaced" not in types(new, frames)


@pytest.mark.parametrize("row", ROWS)
def test_a_registration_waits_for_the_first_contact_and_replaces_the_holder_elsewhere(row: str) -> None:
    """protocol 6.13.6, cluster (An address on two machines): whoever registers last holds it."""
    cluster, old = started(row, is_starting=True)
    new = claim(cluster, "b")
    assert new.first == []
    joined(cluster)
    new.first = new.got()
    assert types(new, new.first) == ["registered"]
    assert holds_alone(cluster, new, old)


@pytest.mark.parametrize("row", ROWS)
def test_a_registration_before_the_first_contact_is_the_newest_when_that_comes(row: str) -> None:
    """protocol 6.13.6: nobody waits for an engine that cannot be reached; the address is claimed when it is there."""
    cluster, old = started(row, is_cut=True)
    new = claim(cluster, "b")
    assert types(new, new.first) == ["registered"]
    joined(cluster)
    assert holds_alone(cluster, new, old)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("is_seen_to_fail", [True, False])
def test_nobody_waits_for_the_first_contact_longer_than_it_may_take(row: str, is_seen_to_fail: bool) -> None:
    """protocol 6.13.6, 6.13.11: two seconds from the start, and not at all once the engine is known to be away."""
    cluster, old = started(row, is_starting=True)
    cluster.run(500)
    new = claim(cluster, "b")
    if is_seen_to_fail:
        cluster["b"].peer_told(ClusterState("unavailable", "refused"))
    else:
        cluster.run(LIMITS.look_ms - 501)
        assert types(new) == []
        cluster.run(1)
    assert types(new) == ["registered"]
    later = claim(cluster, "b", "depot")
    assert types(later, later.first) == ["registered"], "whoever comes from here on does not wait"
    joined(cluster)
    assert holds_alone(cluster, new, old)
    assert home_of(cluster, "depot") == "b"


def test_nobody_waits_longer_than_for_a_claim_to_hear_where_all_addresses_are() -> None:
    """protocol 6.13.6: also where the engine is there and does not tell."""
    cluster, _ = started("elsewhere", is_starting=True)
    cluster["b"].peer_told(ClusterState("on", "", "play", "p"))
    cluster.run(LIMITS.look_ms)
    new = claim(cluster, "b")
    cluster.run(LIMITS.claim_ms - 1)
    assert types(new) == []
    cluster.run(1)
    assert types(new) == ["registered"]
    joined(cluster)
    assert home_of(cluster) == "b" and types(new) == []


@pytest.mark.parametrize("row", ROWS)
def test_without_the_token_the_holder_elsewhere_stays(row: str) -> None:
    """protocol 6.13.6: it is refused once it is known whose the address is."""
    cluster, old = started(row, is_starting=True)
    new = claim(cluster, "b", token=OTHER)
    assert new.first == []
    joined(cluster)
    new.first = new.got()
    assert refusal(new) == "address_taken"
    assert home_of(cluster) == "a" and types(old) == []


@pytest.mark.parametrize("row", ROWS)
def test_without_the_token_nobody_is_the_newest_holder(row: str) -> None:
    """protocol 6.13.6: of two tokens the one that the engine heard first opens it, and the other holder is told."""
    cluster, old = started(row, is_cut=True)
    new = claim(cluster, "b", token=OTHER)
    assert types(new, new.first) == ["registered" if row == "none" else "registration_failed"]
    joined(cluster)
    assert home_of(cluster) == "a" and types(old) == [] and not is_here(cluster, "b")
    assert types(new) == (["replaced"] if row == "none" else [])


@pytest.mark.parametrize("row", ROWS)
def test_who_does_not_hold_the_address_takes_it_from_nobody(row: str) -> None:
    """protocol 9.3.2: ``none`` acts under it only."""
    cluster, old = started(row, is_cut=True)
    new = claim(cluster, "b", hold="none")
    assert types(new, new.first) == ["registered"]
    joined(cluster)
    assert home_of(cluster) == "a" and types(old) == []


def test_free_yields_to_a_holder_here() -> None:
    """protocol 9.3.2, before the first contact, too."""
    cluster, _ = started("elsewhere", is_cut=True)
    first = claim(cluster, "b", hold="free")
    assert types(first, first.first) == ["registered"]
    assert refusal(claim(cluster, "b", hold="free")) == "address_held"
    joined(cluster)
    assert home_of(cluster) == "b" and types(first) == []


@pytest.mark.parametrize("token", [TOKEN, OTHER])
def test_where_a_row_says_no_token_the_engine_decides_about_that_which_was_shown(token: str) -> None:
    """protocol 6.13.6: a store of before may lack the digest; the rightful token is never ``address_taken``."""
    cluster, old = started("elsewhere", is_starting=True)
    disk = cluster["b"].disk
    for number, row in disk.addresses.items():
        disk.addresses[number] = replace(row, token_hash=None)
    cluster.crash("b", is_cut=True)
    new = claim(cluster, "b", token=token)
    assert types(new, new.first) == ["registered"]
    joined(cluster)
    if token == TOKEN:
        assert holds_alone(cluster, new, old)
    else:
        assert home_of(cluster) == "a" and (types(old), types(new)) == ([], ["replaced"])


@pytest.mark.parametrize("is_at_once", [False, True])
def test_two_that_wait_for_the_first_contact(is_at_once: bool) -> None:
    """protocol 6.13.6, 9.3: the later one holds it, and the other is told."""
    cluster, old = started("elsewhere", is_starting=True)
    both = [claim(cluster, "b"), claim(cluster, "b")]
    assert [who.first for who in both] == [[], []]
    if is_at_once:
        cluster["b"].peer_told(ClusterState("unavailable", "refused"))
    joined(cluster)
    for who in both:
        who.first = who.got()
    assert [types(who, who.first) for who in both] == [["registered", "replaced"], ["registered"]]
    assert holds_alone(cluster, both[1], old)


@pytest.mark.parametrize("is_reached", [False, True])
def test_who_leaves_before_the_first_contact_is_not_let_in(is_reached: bool) -> None:
    """protocol 6.13.6: nothing is claimed for nobody."""
    cluster, old = started("elsewhere", is_starting=True)
    new = claim(cluster, "b")
    cluster["b"].end(new.conn)
    if not is_reached:
        cluster.run(LIMITS.look_ms)
    joined(cluster)
    assert types(new) == types(old) == []
    assert home_of(cluster) == "a" and not is_here(cluster, "b")


@pytest.mark.parametrize("how", ["is_starting", "is_cut"])
def test_a_session_that_only_comes_back_takes_the_address_from_nobody(how: str) -> None:
    """cluster (An address on two machines): the older one is replaced, and does not come back by itself."""
    cluster = Cluster()
    features = [*FEATURES, "session.lifecycle"]
    first = claim(cluster, "b", features=features)
    registered = next(frame for frame in first.first if frame["type"] == "registered")
    cluster.run(2 * LIMITS.announce_ms)
    cluster.cut("b")
    new = holder(cluster, "a")
    cluster.crash("b", **{how: True})
    world = cluster["b"]
    conn = world.connect()
    back = world.send(
        conn,
        type="register",
        session={"cwd": "/p", "model": "m", "pid": 10, "startedAt": 1, "lastActivity": 1, "name": "bob"},
        acknowledgesReceipt=True,
        address={"name": "bob", "token": TOKEN},
        preferredSessionId=first.id,
        ownerToken=registered["ownerToken"],
        **{**QUEUE, "features": features},
    )
    assert types(first, back) == ["registered"] and back[0]["sessionId"] == first.id
    new.got()
    joined(cluster)
    assert home_of(cluster) == "a" and types(new) == []
    assert types(first, world.got(conn)) == ["replaced"]


def test_an_address_that_the_engine_lost_is_at_home_where_its_holder_comes() -> None:
    """protocol 6.13.6: this broker's row names another home, and nobody can be asked."""
    cluster = Cluster()
    holder(cluster, "a").leave()
    cluster.run(2 * LIMITS.announce_ms)
    cluster.cut("a")
    cluster.addresses.clear()
    cluster["b"].peer_told(AddressesKnown(frozenset()))
    cluster.cut("b")
    new = claim(cluster, "b")
    assert types(new, new.first) == ["registered"] and is_here(cluster, "b")
    joined(cluster)
    assert home_of(cluster) == "b" and known_address(cluster).token_hash
    cluster.join("a")
    assert home_of(cluster) == "b" and not is_here(cluster, "a")


def test_the_digest_of_a_token_is_stored_with_the_home() -> None:
    """protocol 6.13.6: without the engine, and after a restart, the wrong token is refused and the right one is not."""
    cluster, _ = started("elsewhere", is_cut=True)
    assert refusal(claim(cluster, "b", token=OTHER)) == "address_taken"
    assert claim(cluster, "b").id


def test_who_comes_for_an_address_that_was_only_heard_of_holds_it_here() -> None:
    """protocol 6.13.6: nobody here had anything to do with it before the engine went away."""
    cluster = Cluster()
    cluster.cut("b")
    holder(cluster, "a").leave()
    cluster.run(2 * LIMITS.announce_ms)
    cluster.join("b")
    assert not cluster["b"].disk.addresses
    cluster.cut("b")
    assert refusal(claim(cluster, "b", token=OTHER)) == "address_taken"
    new = claim(cluster, "b")
    assert types(new, new.first) == ["registered"]
    joined(cluster)
    assert home_of(cluster) == "b" and types(new) == []
