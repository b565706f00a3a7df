"""What a session has promised is taken up again in one order, and only what was refused is given up."""

from __future__ import annotations

from intercom.client.restoring import reserve_child
from intercom.client.staging import GoingLive, new_stage
from intercom.errors import ConnectionLost, RegistrationRefused
from intercom.wire import reasons
from tests.support.client import Rig
from tests.support.hosting import GROUP, ROOT, acknowledge, announcing, owned, run_of


def everything() -> Rig:
    """Return a session that supervises, owns a run and is a stage of it."""
    rig = Rig(group=GROUP)
    rig.register()
    rig.core.profile.children["capability"] = "reviewer"
    owned(rig, ROOT, "st-1")
    place = rig.core.commitments.stage
    stage = new_stage(rig.core.profile, place, ROOT, "st-1", None, "cap-7f")
    [live] = rig.begin(GoingLive(place, stage, rig.now + 1_000))
    rig.feed({"type": "live_workflow_stage_route_registered", "requestId": live["requestId"]})
    [asked] = rig.begin(reserve_child(rig.core.profile, rig.core.commitments.places, "reviewer", now=rig.now))
    rig.feed({"type": "restoring_recipient_ack", "requestId": asked["requestId"]})
    return rig


ORDER = [
    "authorize_supervisor",
    "reserve_restoring_recipient",
    "register_pending_stage_route",
    "register_live_workflow_stage_route",
]


def test_each_comes_after_what_it_needs() -> None:
    """Protocol 4.12 needs the capability, 6.12.5 the route."""
    rig = everything()
    rig.lose()
    assert [frame["type"] for frame in rig.register()] == ORDER


def test_a_connection_that_just_ends_changes_nothing() -> None:
    rig = everything()
    for cause in (None, ConnectionLost("broken"), RegistrationRefused("for another reason")):
        assert rig.core.commitments.ended(cause, rig.now) is None
    rig.lose()
    assert [frame["type"] for frame in rig.register()] == ORDER


def test_the_run_is_given_up_and_the_rest_stays() -> None:
    rig = everything()
    rig.lose()
    rig.register()
    rig.feed({"type": "registration_failed", "reason": reasons.ROUTE_NOT_AUTHORIZED})
    rig.lose()
    assert [frame["type"] for frame in rig.register()] == [ORDER[0], ORDER[1], ORDER[3]]


def test_the_stage_is_given_up_and_the_rest_stays() -> None:
    rig = everything()
    rig.lose()
    rig.register()
    rig.feed({"type": "registration_failed", "reason": reasons.LIVE_OTHER_GROUP, "code": "group_mismatch"})
    rig.lose()
    assert [frame["type"] for frame in rig.register()] == ORDER[:3]


def test_a_refusal_of_what_nobody_announced() -> None:
    """It is told as any other refusal of the session."""
    rig = Rig(group=GROUP)
    rig.register()
    operation = announcing(rig, run_of(rig), "a")
    [frame] = rig.begin(operation)
    acknowledge(rig, frame)
    rig.feed({"type": "registration_failed", "reason": reasons.ROUTE_NOT_AUTHORIZED})
    rig.lose()
    trouble = rig.core.take_trouble()
    assert trouble is not None and trouble.code == "run_not_authorized"
