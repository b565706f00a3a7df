"""The inbox as a list: places, room, pressure (FE 1.3)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from intercom.core.inbox import Inbox, Parked, is_same_worker
from intercom.core.records import InboxRecord
from intercom.limits import Limits


def parked(number: int, inbox_id: str | None = None, size: int = 10) -> Parked:
    record = InboxRecord(
        number, inbox_id or f"m{number}", b"{}", None, "s", "w", size, 1, 2, "unaddressed", "bound_session", ("g",)
    )
    return Parked(record, None)


def test_everything_keeps_the_place_of_its_number() -> None:
    inbox = Inbox(Limits())
    for number in (5, 2, 9):
        inbox.enter(parked(number))
    assert [each.record.number for each in inbox.in_order()] == [2, 5, 9]
    second = inbox.get("m5")
    assert second is not None
    inbox.leave(second)
    inbox.enter(parked(3))
    assert [each.record.number for each in inbox.in_order()] == [2, 3, 9]
    assert inbox.get("m5") is None and len(inbox) == 3


def test_room_is_counted_in_messages_and_in_bytes() -> None:
    inbox = Inbox(Limits(inbox_entries=2, inbox_bytes=100))
    inbox.enter(parked(1, size=60))
    assert inbox.has_room(40) and not inbox.has_room(41)
    inbox.replace(inbox.in_order()[0], parked(1, size=90).record)
    assert not inbox.has_room(20)
    inbox.leave(inbox.in_order()[0])
    for number in (2, 3):
        inbox.enter(parked(number, size=1))
    assert not inbox.has_room(1)


@pytest.mark.parametrize(("capacity", "first"), [(256, 230), (10, 9), (1, 1)])
def test_pressure_begins_at_its_share(capacity: int, first: int) -> None:
    """FE 1.3, 1.6: floor(0.9 x capacity)."""
    inbox = Inbox(Limits(inbox_entries=capacity))
    for number in range(1, first):
        inbox.enter(parked(number))
    assert not inbox.is_under_pressure
    inbox.enter(parked(first))
    assert inbox.is_under_pressure


def session(session_id: str, address: int | None) -> Any:
    return SimpleNamespace(id=session_id, address=None if address is None else SimpleNamespace(number=address))


@pytest.mark.parametrize(
    ("mine", "theirs", "is_same"),
    [
        (("a", None), ("a", None), True),
        (("a", None), ("b", None), False),
        (("a", 1), ("b", 1), True),
        (("a", 1), ("b", 2), False),
        (("a", None), ("b", 1), False),
        (("a", 1), ("b", None), False),
        (("a", 1), ("a", None), True),
    ],
)
def test_a_worker_is_a_session_or_an_address(
    mine: tuple[str, int | None], theirs: tuple[str, int | None], is_same: bool
) -> None:
    assert is_same_worker(session(*mine), *theirs) is is_same
