"""Test what is known of the keys of brokers that have been away for long (cluster.md 2)."""

from __future__ import annotations

from intercom.cluster.nats.leftbehind import Left, LeftBehind
from intercom.limits import CLUSTER_GONE_MS


def test_keys_of_brokers_away_for_a_day_are_due_as_they_were_seen() -> None:
    """cluster.md 2: anybody may purge those of a broker away for a day"""
    left = LeftBehind("own")
    left.seen("sessions", "own.x", "own", 1)
    left.seen("sessions", "b.x", "b", 2)
    left.seen("routes", "r", "b", 3)
    left.seen("sessions", "c.x", "c", 4)
    assert left.due({"c"}, 0) == []
    assert left.due({"c"}, CLUSTER_GONE_MS - 1) == []
    left.seen("routes", "r", "b", 5)
    assert left.due({"c"}, CLUSTER_GONE_MS) == [Left("sessions", "b.x", "b", 2), Left("routes", "r", "b", 5)]
    left.seen("sessions", "b.x", None, 6)
    assert left.due({"c"}, CLUSTER_GONE_MS) == [Left("routes", "r", "b", 5)]


def test_one_that_was_there_in_between_begins_anew() -> None:
    """A lease seen even once: it is away from the end of that; also over a new connection of ours."""
    left = LeftBehind("own")
    left.seen("sessions", "b.x", "b", 2)
    left.due((), 0)
    left.begin_anew()
    assert left.due((), CLUSTER_GONE_MS) == []
    left.seen("sessions", "b.x", "b", 2)
    assert left.due((), CLUSTER_GONE_MS) == [Left("sessions", "b.x", "b", 2)]
    assert left.due({"b"}, CLUSTER_GONE_MS) == []
    assert left.due((), CLUSTER_GONE_MS) == []
    assert left.due((), 2 * CLUSTER_GONE_MS) == [Left("sessions", "b.x", "b", 2)]


def test_a_key_that_another_broker_has_taken_over_is_that_ones() -> None:
    """What lies where somebody else wrote since is not of the one that is away."""
    left = LeftBehind("own")
    left.seen("routes", "r", "b", 2)
    left.due({"c"}, 0)
    left.seen("routes", "r", "c", 3)
    assert left.due({"c"}, CLUSTER_GONE_MS) == []
    left.seen("routes", "r", "b", 4)
    assert left.due({"c"}, CLUSTER_GONE_MS) == []
