"""Go live as a stage without a broker: refused, tried again, taken up again, and left."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.client.feeds import SessionEvent
from intercom.client.staging import GoingLive, LiveStage, new_stage
from intercom.errors import RequestTimeout, StageRefused, UsageError
from intercom.limits import STABLE_MS, STAGE_LIVE_MS, STAGE_RETRY_MS, STAGE_RETURN_MS
from intercom.wire import reasons
from tests.support.client import Frame, Rig

RUN = "7f0c2f5e-3b1a-4c6d-9e21-5a4b3c2d1e0f"
GROUP = f"workflow:{RUN}"

REFUSALS = {
    "owner_missing": (reasons.LIVE_NO_OWNER, "after"),
    "duplicate_live_owner": (reasons.DUPLICATE_LIVE_OWNER, "after"),
    "owner_not_workflow": (reasons.LIVE_NOT_A_WORKFLOW, "never"),
    "registrant_not_agent": (reasons.LIVE_NOT_AN_AGENT, "never"),
    "capability_mismatch": (reasons.LIVE_OTHER_CAPABILITY, "never"),
    "group_mismatch": (reasons.LIVE_OTHER_GROUP, "never"),
    "invalid_stage_key": (reasons.LIVE_INVALID_KEY, "never"),
    "non_agent_stage_key": (reasons.LIVE_NON_AGENT_KEY, "never"),
}
PASSING = ("owner_missing", "duplicate_live_owner")


def session() -> Rig:
    rig = Rig(group=GROUP)
    rig.register()
    return rig


def going_live(rig: Rig, timeout_ms: int = STAGE_LIVE_MS) -> tuple[GoingLive, LiveStage]:
    place = rig.core.commitments.stage
    stage = new_stage(rig.core.profile, place, RUN, "st-1", "reviewer-a", "cap")
    return GoingLive(place, stage, rig.now + timeout_ms), stage


def acknowledge(rig: Rig, frame: Frame) -> None:
    assert rig.feed({"type": "live_workflow_stage_route_registered", "requestId": frame["requestId"]}) == []


def live(rig: Rig) -> LiveStage:
    operation, stage = going_live(rig)
    [frame] = rig.begin(operation)
    acknowledge(rig, frame)
    assert operation.done and operation.error is None
    return stage


def refuse(rig: Rig, code: str) -> None:
    rig.feed({"type": "registration_failed", "reason": REFUSALS[code][0], "code": code})
    assert rig.is_broken
    rig.lose()


def test_a_session_goes_live() -> None:
    """Protocol 4.15 and 5.24; the answer may come late, behind the barrier."""
    rig = session()
    operation, _ = going_live(rig)
    [frame] = rig.begin(operation)
    assert frame == {
        "type": "register_live_workflow_stage_route",
        "requestId": frame["requestId"],
        "runId": RUN,
        "stageKeys": ["st-1", "reviewer-a"],
        "capability": "cap",
    }
    rig.pass_time(10_000)
    assert not operation.done
    acknowledge(rig, frame)
    assert operation.done


def test_it_goes_live_again_after_a_reconnect() -> None:
    rig = session()
    live(rig)
    rig.lose()
    [again] = rig.register()
    assert (again["type"], again["stageKeys"]) == ("register_live_workflow_stage_route", ["st-1", "reviewer-a"])
    acknowledge(rig, again)


@pytest.mark.parametrize("code", [code for code in REFUSALS if code not in PASSING])
def test_refusals_that_stay(code: str) -> None:
    """Protocol 6.12.5: each has its code, and what helps; the session goes on."""
    rig = session()
    operation, stage = going_live(rig)
    rig.begin(operation)
    refuse(rig, code)
    assert isinstance(operation.error, StageRefused)
    assert (operation.error.code, operation.error.retry) == (code, REFUSALS[code][1])
    assert operation.error.hint and REFUSALS[code][0] in operation.error.reason
    assert stage.lost
    assert rig.core.recovery.at == rig.now
    assert rig.register() == []


@pytest.mark.parametrize("code", PASSING)
def test_refusals_that_pass(code: str) -> None:
    """Protocol 5.29: clients retry by themselves on these two only."""
    rig = session()
    operation, _ = going_live(rig)
    rig.begin(operation)
    for _ in range(3):
        refuse(rig, code)
        assert rig.core.recovery.at == rig.now + STAGE_RETRY_MS
        rig.pass_time(STAGE_RETRY_MS)
        [frame] = rig.register()
    acknowledge(rig, frame)
    assert operation.done and operation.error is None


@pytest.mark.parametrize("code", PASSING)
def test_refusals_that_do_not_pass_in_time(code: str) -> None:
    rig = session()
    operation, _ = going_live(rig, 1_000)
    rig.begin(operation)
    refuse(rig, code)
    rig.pass_time(1_000)
    assert isinstance(operation.error, StageRefused)
    assert (operation.error.code, operation.error.retry) == (code, "after")
    assert rig.register() == []


def test_a_stage_whose_host_is_back_later() -> None:
    """After a broker's restart the stage may be first; it tries for a while, then goes on as a session."""
    rig = session()
    feed = rig.core.feed()
    stage = live(rig)
    rig.lose()
    began = rig.now
    while rig.now - began < STAGE_RETURN_MS:
        assert len(rig.register()) == 1
        refuse(rig, "owner_missing")
        rig.pass_time(STAGE_RETRY_MS)
    assert len(rig.register()) == 1
    refuse(rig, "owner_missing")
    assert rig.register() == []
    events = []
    while (event := feed.take()) is not None:
        events.append(event)
    assert SessionEvent(kind="stage_lost", run_id=RUN, reason=stage.lost) in events
    assert stage.lost


def test_the_patience_begins_anew() -> None:
    rig = session()
    stage = live(rig)
    for _ in range(2):
        rig.lose()
        rig.register()
        refuse(rig, "owner_missing")
        rig.pass_time(STAGE_RETURN_MS - 1)
        [frame] = rig.register()
        acknowledge(rig, frame)
        rig.pass_time(STABLE_MS)
    assert stage.lost is None


def test_a_stage_that_may_never_come_back() -> None:
    rig = session()
    stage = live(rig)
    rig.lose()
    rig.register()
    refuse(rig, "capability_mismatch")
    assert stage.lost
    assert rig.register() == []


def test_leaving() -> None:
    """The broker forgets a stage only with its session (protocol 6.12.5), so the session registers anew."""
    rig = session()
    stage = live(rig)
    rig.core.leave_stage(stage)
    assert rig.is_broken
    rig.lose()
    assert rig.core.recovery.at == rig.now
    register = rig.connect()
    assert register["preferredSessionId"] == "me"
    assert rig.feed({"type": "registered", "sessionId": "me", "acknowledgesReceipt": True}) == []
    rig.core.leave_stage(live(rig))
    rig.lose()


def test_leaving_while_offline() -> None:
    rig = session()
    stage = live(rig)
    rig.lose()
    rig.core.leave_stage(stage)
    assert rig.register() == []


def test_time_runs_out_behind_the_barrier() -> None:
    rig = session()
    operation, stage = going_live(rig, 1_000)
    rig.begin(operation)
    rig.pass_time(1_000)
    assert isinstance(operation.error, RequestTimeout)
    rig.core.leave_stage(stage)
    assert rig.is_broken, "the broker may have made it live meanwhile"


def test_stages_a_session_cannot_be() -> None:
    rig = session()
    place = rig.core.commitments.stage

    def mistake(**options: Any) -> None:
        given = {"run_id": RUN, "stage_id": "st-1", "name": None, "capability": "c", **options}
        with pytest.raises(UsageError):
            new_stage(rig.core.profile, place, **given)

    mistake(run_id="run-1")
    mistake(stage_id="a/b")
    mistake(stage_id="")
    mistake(name="a*")
    mistake(capability="")
    assert new_stage(rig.core.profile, place, RUN, "a", "a", "c").keys == ("a",)
    live(rig)
    mistake()
    control = Rig(group=GROUP, purpose="control")
    with pytest.raises(UsageError, match="control"):
        new_stage(control.core.profile, control.core.commitments.stage, RUN, "a", None, "c")
