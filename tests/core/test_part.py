"""Hold the parts of the core to what the broker counts on."""

from __future__ import annotations

import typing

import pytest

from intercom.core.broker import Broker, _joined
from intercom.core.part import Part
from intercom.wire.frames import BadRequest, Malformed
from intercom.wire.unions import Request
from tests.core.harness import World


def members(union: object) -> set[type]:
    found: set[type] = set()
    for member in typing.get_args(union):
        found |= members(member) if typing.get_args(member) else {member}
    return found


def test_every_frame_a_client_may_write_has_one_who_takes_it() -> None:
    """What the codec lets through reaches a part (protocol 4)."""
    assert {*members(Request), Malformed, BadRequest} == set(World().broker._handlers)


def test_two_parts_cannot_take_the_same_frame() -> None:
    part = World().broker._sending
    with pytest.raises(AssertionError, match="two parts claim"):
        _joined((part.handlers(), part.handlers()))


def test_what_became_of_a_frame_can_be_told_either_way() -> None:
    """A token that matters only in one case costs nothing in the other (design section 3)."""
    broker = World().broker
    assert set(broker._taken) == set(broker._lost)


def test_a_part_need_not_do_anything() -> None:
    world = World()
    part = Part()
    world.broker._parts.append(part)
    world.broker.draining(world.now)
    assert world.broker.due_soon_count(world.now) == 0 and part.report() == {}
    world.broker.stop(world.now)


def test_each_part_is_entered_once() -> None:
    broker: Broker = World().broker
    assert len({id(part) for part in broker._parts}) == len(broker._parts)
