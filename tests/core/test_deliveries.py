"""Test the table of deliveries, and that a move and its row are one."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.clock import Instant
from intercom.core.deliveries import (
    LATE,
    REFUSED,
    STATUS,
    UNREACHABLE,
    Deliveries,
    Delivery,
    IllegalStep,
    delivery_id,
    status_of,
)
from intercom.core.journal import Journal
from intercom.core.move import Move, take_back
from intercom.core.records import DeliveryRecord, Happened, RemoteRun

NOW = Instant(1_000, 1_700_000_000_000)


def book(**members: Any) -> tuple[Deliveries, Delivery]:
    found = Deliveries(Journal(0))
    values: dict[str, Any] = {"status": "accepted", "first_queued_at": NOW.wall, **members}
    return found, found.enter(DeliveryRecord(7, "d", "i", "session:a", "a", "t", "b", **values))


@pytest.mark.parametrize("status", STATUS)
@pytest.mark.parametrize("to", [*STATUS])
def test_a_delivery_goes_only_where_its_table_says(status: str, to: str) -> None:
    """FE 3.3; rule 2 of the core: an illegal move raises and changes nothing."""
    found, delivery = book(status=status)
    before, move = delivery.record, Move()
    if to in STATUS[status]:
        found.change(delivery, "", move, NOW, status=to)
        [event] = move.changes
        assert isinstance(event, Happened)
        assert (event.kind, event.detail) == ("delivery.state_changed", {"previousStatus": status})
        take_back(move, NOW)
        assert delivery.record is before
    elif to != status:
        with pytest.raises(IllegalStep):
            found.change(delivery, "", move, NOW, status=to)
        assert delivery.record is before and move.changes == []


def test_only_an_assumed_failure_gives_way() -> None:
    """FE 3.3: a later real update may undo only a failure that was assumed."""
    _, assumed = book(status="failed", failure=UNREACHABLE)
    _, refused = book(status="failed", failure=REFUSED)
    _, late = book(status="failed", failure=LATE)
    assert assumed.allows("peer_acked") and assumed.allows("completed") and not assumed.allows("deferred")
    assert not refused.allows("peer_acked") and not late.allows("peer_acked")


def test_an_equal_row_is_not_written() -> None:
    """A3.13"""
    found, delivery = book()
    move = Move()
    found.change(delivery, "delivery.leased", move, NOW, attempts=0)
    assert move.changes == [] and move.inverses == []


def test_what_is_forgotten_comes_back_when_that_is_not_recorded() -> None:
    """design section 3.6: each append carries its inverse."""
    found, delivery = book()
    move = Move()
    found.forget(delivery, move, NOW)
    assert found.get("d") is None and found.of_invocation("i") is None and len(found) == 0
    take_back(move, NOW)
    assert found.get("d") is delivery and found.waiting_for("b") == [delivery] == found.open_ones()


def test_an_id_is_the_same_every_time_and_another_for_others() -> None:
    """cluster section 3: derived from sender identity, id and target broker."""
    assert delivery_id("a", "i", "b") == delivery_id("a", "i", "b")
    others = [("a", "i", "b"), ("x", "i", "b"), ("a", "x", "b"), ("a", "i", "x"), ("ai", "", "b")]
    assert len({delivery_id(*each) for each in others}) == len(others)


@pytest.mark.parametrize(
    ("run", "status"),
    [("queued", "peer_acked"), ("waking", "peer_acked"), ("running", "running"), ("waiting", "running")]
    + [(each, each) for each in ("completed", "failed", "cancelled")],
)
def test_the_state_of_a_run_makes_a_status(run: Any, status: str) -> None:
    """FE 3.3: peer_acked, mirrored run state."""
    assert status_of(RemoteRun("r", run)) == status
