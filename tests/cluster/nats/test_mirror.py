"""Test what is known of other brokers: leases judged by when they were seen, names by the lease they belong to."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from intercom.cluster.nats.mirror import Lease, Mirror
from intercom.core.records import PeerLost, PeerSeen, RemoteName, RemoteReservation

OWN, PEER, OTHER = "own", "peer", "other"


def lease(epoch: int = 1, node: str = "studio") -> Lease:
    return Lease(node, "journal", epoch, "host", 7, "1", 0)


def name(of: str, by: str = PEER) -> RemoteName:
    return RemoteName(of, of, ("default",), "active", by)


def test_a_broker_comes_is_renewed_and_ends_when_it_was_not_seen_for_15_seconds() -> None:
    """The lease of a broker has a time to live of 15 s (F125); no time that another machine wrote is compared."""
    mirror = Mirror(OWN)
    mirror.lease_seen(PEER, lease(), 0)
    assert mirror.facts(0) == [PeerSeen(PEER, "studio", "journal", (), 1)]
    mirror.lease_seen(PEER, lease(), 5_000)
    assert mirror.facts(19_999) == []
    assert mirror.facts(20_000) == [PeerLost(PEER)]
    assert mirror.facts(40_000) == [] and len(mirror) == 0


def test_a_lease_that_is_given_back_ends_at_once() -> None:
    mirror = Mirror(OWN)
    mirror.lease_seen(PEER, lease(), 0)
    mirror.facts(0)
    mirror.lease_ended(PEER)
    mirror.lease_ended(PEER)
    assert mirror.facts(1) == [PeerLost(PEER, said_goodbye=True)]


def test_names_count_while_the_lease_of_their_epoch_lives() -> None:
    """F125: what an earlier process said, told after what its successor said, changes nothing."""
    mirror = Mirror(OWN)
    mirror.name_seen(PEER, "s", 1, name("s"))
    assert mirror.facts(0) == []
    mirror.lease_seen(PEER, lease(), 0)
    assert mirror.facts(0) == [PeerSeen(PEER, "studio", "journal", (name("s"),), 1)]
    mirror.lease_seen(PEER, lease(2), 1)
    assert mirror.facts(1) == [PeerSeen(PEER, "studio", "journal", (), 2)]
    mirror.name_seen(PEER, "s", 2, name("s"))
    mirror.name_seen(PEER, "t", 2, name("t"))
    assert mirror.facts(1) == [PeerSeen(PEER, "studio", "journal", (name("s"), name("t")), 2)]
    mirror.name_seen(PEER, "s", 0, None)
    assert mirror.facts(1) == [PeerSeen(PEER, "studio", "journal", (name("t"),), 2)]


def expected(key: str, by: str = PEER, child: str = "reviewer") -> RemoteReservation:
    return RemoteReservation(key, by, "owner", child, "team")


def test_reservations_count_like_names_and_a_key_is_of_whoever_wrote_it_last() -> None:
    """cluster.md 2, restoring: by capability, so that another broker may write the key of one that had it before."""
    mirror = Mirror(OWN)
    for each in (PEER, OTHER):
        mirror.lease_seen(each, lease(), 0)
    mirror.facts(0)

    def told(broker: str) -> list[tuple[RemoteReservation, ...]]:
        return [fact.shared for fact in mirror.facts(0) if isinstance(fact, PeerSeen) and fact.broker_id == broker]

    mirror.shared_seen("restoring", "k", PEER, 1, expected("k"))
    assert told(PEER) == [(expected("k"),)]
    mirror.shared_seen("restoring", "l", PEER, 0, expected("l"))
    assert told(PEER) == [], "of an earlier process"
    mirror.shared_seen("restoring", "k", OTHER, 1, expected("k", OTHER))
    facts = {fact.broker_id: fact.shared for fact in mirror.facts(0) if isinstance(fact, PeerSeen)}
    assert facts == {PEER: (), OTHER: (expected("k", OTHER),)}
    mirror.begin_anew()
    assert told(OTHER) == [], "until all is told anew what is known counts"
    mirror.shared_seen("restoring", "m", OTHER, 1, expected("m", OTHER))
    assert told(OTHER) == [(expected("k", OTHER), expected("m", OTHER))]
    mirror.shelf_is_whole("routes")
    assert told(OTHER) == []
    mirror.shelf_is_whole("restoring")
    assert told(OTHER) == [(expected("m", OTHER),)]
    mirror.shared_seen("restoring", "m", None, 0, None)
    assert told(OTHER) == [()]


def test_who_is_told_of_last_comes_last() -> None:
    """protocol 6.13: of two that are said to hold an address the one that was told of last does."""
    mirror = Mirror(OWN)
    mirror.lease_seen(PEER, lease(), 0)
    for each in (name("s"), name("t"), replace(name("s"), state="away")):
        mirror.name_seen(PEER, each.target_id, 1, each)
    [seen] = mirror.facts(0)
    assert isinstance(seen, PeerSeen) and [each.target_id for each in seen.names] == ["t", "s"]
    mirror.name_seen(PEER, "t", 1, name("t"))
    assert mirror.facts(1) == [], "that says nothing new"


def test_what_says_nothing_new_is_not_told() -> None:
    mirror = Mirror(OWN)
    mirror.lease_seen(PEER, lease(), 0)
    mirror.name_seen(PEER, "s", 1, name("s"))
    mirror.facts(0)
    mirror.name_seen(PEER, "s", 1, name("s"))
    mirror.lease_seen(PEER, lease(), 1)
    mirror.name_seen(PEER, "u", 0, None)
    assert mirror.facts(1) == []


def test_one_never_hears_of_oneself() -> None:
    mirror = Mirror(OWN)
    mirror.lease_seen(OWN, lease(), 0)
    mirror.name_seen(OWN, "s", 1, name("s", OWN))
    assert mirror.facts(0) == []


def test_after_a_cut_nobody_leaves_who_is_told_again() -> None:
    """F125: peers see the sessions of a broker leave once and come back once, not at each connection."""
    mirror = Mirror(OWN)
    mirror.lease_seen(PEER, lease(), 0)
    for each in ("s", "t"):
        mirror.name_seen(PEER, each, 1, name(each))
    mirror.facts(0)
    mirror.begin_anew()
    mirror.name_seen(PEER, "s", 1, name("s"))
    assert mirror.facts(1) == []
    mirror.is_whole()
    assert mirror.facts(1) == [PeerSeen(PEER, "studio", "journal", (name("s"),), 1)]
    mirror.is_whole()
    assert mirror.facts(1) == []


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["lease", "end", "name", "gone", "anew", "whole", "wait"]),
        st.sampled_from([PEER, OTHER]),
        st.sampled_from(["s", "t"]),
        st.integers(1, 2),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(STEPS)
def test_whatever_happens_a_broker_comes_before_it_leaves_and_what_is_told_is_what_is_known(
    steps: list[tuple[str, str, str, int]],
) -> None:
    mirror, now, there = Mirror(OWN), 0, set()
    for step, broker, one, epoch in steps:
        if step == "lease":
            mirror.lease_seen(broker, lease(epoch), now)
        elif step == "end":
            mirror.lease_ended(broker)
        elif step == "name":
            mirror.name_seen(broker, one, epoch, name(one, broker))
        elif step == "gone":
            mirror.name_seen(broker, one, 0, None)
        elif step == "anew":
            mirror.begin_anew()
        elif step == "whole":
            mirror.is_whole()
        else:
            now += 6_000
        for fact in mirror.facts(now):
            if isinstance(fact, PeerSeen):
                there.add(fact.broker_id)
                assert all(each.home == fact.broker_id for each in fact.names)
            else:
                assert fact.broker_id in there
                there.remove(fact.broker_id)
        assert len(mirror) == len(there)
