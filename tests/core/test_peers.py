"""Test who is there on other machines, and what is taken from whom."""

from __future__ import annotations

from intercom.core.clock import Instant
from intercom.core.invocation_targets import address_id
from intercom.core.journal import Journal
from intercom.core.ledger import Ledger
from intercom.core.outbox import Outbox
from intercom.core.peers import Peers
from intercom.core.records import PeerLost, PeerSeen, RemoteName

NOW = Instant(1_000, 1_700_000_000_000)


def scene(*here: str) -> tuple[Peers, Ledger]:
    outbox = Outbox()
    ledger = Ledger(outbox)
    return Peers("own", Journal(0), ledger, lambda: 1, lambda target: target in here), ledger


def seen(broker_id: str, *names: str, machine: str = "studio") -> PeerSeen:
    there = tuple(RemoteName(name, name, ("default",), "active", broker_id) for name in names)
    return PeerSeen(broker_id, machine, None, there)


def test_names_come_and_go_with_their_peer() -> None:
    """FE 3.4 Peer discovery"""
    peers, _ = scene("local")
    assert peers.seen(seen("b", "x", "local"), NOW) and not peers.seen(seen("b", "y", "local"), NOW)
    assert [candidate.target_id for candidate in peers.candidates(["default"])] == ["y"]
    [candidate] = peers.candidates(None)
    assert (candidate.authority, candidate.node, candidate.is_local) == ("b", "studio", False)
    assert peers.candidates(["other"]) == [] and peers.with_id("y", ["other"]) is None
    assert peers.with_id("y", ["default"]) == candidate and peers.is_there("b")
    peers.lost(PeerLost("b"))
    assert peers.with_id("y", None) is None and not peers.is_there("b") and len(peers) == 0
    assert peers.name_of("b") == "studio" and peers.name_of("never") == "never"


def test_who_holds_an_address_is_known_by_that() -> None:
    """protocol 6.13.9: the address is the target, whoever holds it, and the id of its session leads to it."""
    peers, _ = scene()
    held = RemoteName("x", "Depot", ("default",), "active", "b", is_address=True, address=("default", "Depot"))
    peers.seen(PeerSeen("b", "studio", None, (held,)), NOW)
    [candidate] = peers.candidates(None)
    assert (candidate.target_id, candidate.ids) == (address_id("default", "depot"), ("x",))
    assert peers.with_id("x", None) == candidate


def test_oneself_is_no_peer() -> None:
    """FE 3.4 Peer discovery: our own names are not imported."""
    peers, ledger = scene()
    assert not peers.seen(seen("own", "x"), NOW)
    assert len(peers) == 0 and ledger.last_ticket == 0


def test_a_record_that_fails_is_taken_back() -> None:
    """design section 3.6"""
    peers, ledger = scene()
    peers.seen(seen("b", "x"), NOW)
    ledger.committed(1, NOW)
    peers.seen(seen("b", "x", machine="attic"), NOW)
    assert peers.name_of("b") == "attic"
    ledger.failed(2, NOW)
    assert peers.name_of("b") == "studio"
    peers.seen(seen("c", "z"), NOW)
    ledger.failed(3, NOW)
    assert peers.name_of("c") == "c"
