"""Keep the places of children without a broker: reserved, released, and reserved again."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.client.restoring import capability_of, release_child, reserve_child
from intercom.client.supervision import authorize_child
from intercom.errors import ReservationRefused, UsageError
from intercom.limits import RELEASE_TEXT_CHARACTERS
from intercom.wire import reasons
from tests.support.client import OTHER, PEER, Frame, Rig

TOKEN = "owner-token-1"
CAPABILITY = "5b8f0d0a-2c44-4d7e-8f11-0a9b8c7d6e5f.qeVCJeYelAvEVzM9ayNSagKBox8e_JGwtjLx28UqbIo"
"""The test vector of protocol 6.6."""


def supervisor() -> Rig:
    rig = Rig(owner_token=TOKEN)
    rig.register()
    rig.core.profile.children[CAPABILITY] = "reviewer"
    return rig


def reserving(rig: Rig, child: str = "reviewer", **options: Any) -> Any:
    return reserve_child(rig.core.profile, rig.core.commitments.places, child, now=rig.now, **options)


def releasing(rig: Rig, child: str = "reviewer", **options: Any) -> Any:
    return release_child(rig.core.profile, rig.core.commitments.places, child, now=rig.now, **options)


def acknowledge(rig: Rig, frame: Frame, **members: Any) -> None:
    assert rig.feed({"type": "restoring_recipient_ack", "requestId": frame["requestId"], **members}) == []


def done(rig: Rig, operation: Any) -> Frame:
    [frame] = rig.begin(operation)
    acknowledge(rig, frame)
    assert operation.done and operation.error is None
    return frame


def test_a_place_is_kept() -> None:
    """Protocol 4.12 and 8.8."""
    rig = supervisor()
    frame = done(rig, reserving(rig, aliases=[PEER["id"]], group="teamA", dormant=True))
    assert {**frame, "requestId": "v1"} == {
        "type": "reserve_restoring_recipient",
        "requestId": "v1",
        "capability": CAPABILITY,
        "group": "teamA",
        "dormant": True,
        "aliases": [PEER["id"]],
    }
    plain = done(rig, reserving(rig))
    assert {"group", "dormant", "aliases"}.isdisjoint(plain)


def test_a_place_is_given_up() -> None:
    """Protocol 4.13."""
    rig = supervisor()
    done(rig, reserving(rig))
    assert {"gone", "refusal"}.isdisjoint(done(rig, releasing(rig)))
    assert done(rig, releasing(rig, refusal="x" * 2_000))["refusal"] == "x" * RELEASE_TEXT_CHARACTERS
    assert done(rig, releasing(rig, gone=""))["gone"] == "", "counts even when empty"


def test_places_are_kept_again_after_the_capabilities() -> None:
    """Protocol 4.12: only who supervises the capability now may reserve."""
    rig = supervisor()
    done(rig, reserving(rig, aliases=[PEER["id"]]))
    rig.lose()
    first, second = rig.register()
    assert (first["type"], second["type"]) == ("authorize_supervisor", "reserve_restoring_recipient")
    assert second["aliases"] == [PEER["id"]]
    done(rig, releasing(rig))
    rig.lose()
    assert [frame["type"] for frame in rig.register()] == ["authorize_supervisor"]


def test_a_child_that_is_gone_stays_gone() -> None:
    """Protocol 6.11: the marker goes with its owner's session, so it is set again."""
    rig = supervisor()
    done(rig, reserving(rig))
    done(rig, releasing(rig, gone="it was cancelled"))
    rig.lose()
    _, reserved, released = rig.register()
    assert (reserved["type"], released["type"]) == ("reserve_restoring_recipient", "release_restoring_recipient")
    assert released["gone"] == "it was cancelled"
    done(rig, reserving(rig))
    rig.lose()
    assert len(rig.register()) == 2, "it is being brought back after all"


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (reasons.RESTORING_NOT_SUPERVISED, "not_supervised"),
        (reasons.RESTORING_INVALID_ALIAS, "reservation_refused"),
        ("anything else", "reservation_refused"),
    ],
)
def test_what_the_broker_does_not_keep(reason: str, code: str) -> None:
    """Protocol 5.9."""
    rig = supervisor()
    [frame] = rig.begin(operation := reserving(rig))
    acknowledge(rig, frame, error=reason)
    assert isinstance(operation.error, ReservationRefused)
    assert (operation.error.code, operation.error.reason) == (code, reason)
    rig.lose()
    assert len(rig.register()) == 1


def test_children_that_cannot_be_meant() -> None:
    rig = supervisor()
    profile = rig.core.profile
    profile.children |= {"c2": "*", "c3": "*"}
    assert capability_of(profile, "c2") == "c2"
    for child in ("*", "nobody", ""):
        with pytest.raises(UsageError):
            reserving(rig, child)
    with pytest.raises(UsageError, match="no session id"):
        reserving(rig, aliases=["worker"])
    with pytest.raises(UsageError, match="at most"):
        reserving(rig, aliases=[PEER["id"], OTHER["id"]] * 3)
    with pytest.raises(UsageError, match="exclude"):
        releasing(rig, gone="a", refusal="b")


def test_a_capability_of_an_earlier_session() -> None:
    """Protocol 4.11 and 6.6: shown again by a supervisor that was restarted; another one would end the connection."""
    rig = Rig(owner_token=TOKEN)
    rig.register()
    [frame] = rig.begin(authorize_child(rig.core.profile, "reviewer", now=rig.now, capability=CAPABILITY))
    assert (frame["childName"], frame["capability"]) == ("reviewer", CAPABILITY)
    for name, capability in [("other", CAPABILITY), ("reviewer", "made.up"), ("reviewer", ""), ("reviewer", "x")]:
        with pytest.raises(UsageError, match="owner_token"):
            authorize_child(rig.core.profile, name, now=rig.now, capability=capability)
