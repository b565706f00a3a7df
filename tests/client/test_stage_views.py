"""Stages as a program sees them."""

from __future__ import annotations

from msgspec.json import encode

from intercom.client.stage_views import StageView, stage_views
from intercom.wire.codec import decode_answer
from intercom.wire.frames import Sessions
from intercom.wire.stage_frames import DeliveryState
from tests.support.client import Frame

RUN = "7f0c2f5e-3b1a-4c6d-9e21-5a4b3c2d1e0f"
GROUP = f"workflow:{RUN}"

STAGE: Frame = {
    "kind": "workflow-stage",
    "runId": RUN,
    "stageId": "st-1",
    "stageName": "reviewer-a",
    "target": f"{GROUP}/st-1",
    "lifecycle": "running",
    "group": GROUP,
    "sessionId": "b1",
}
DELIVERY: Frame = {"messageId": "m", "runId": RUN, "stageId": "st-1", "state": "delivered", "reason": "it started"}
FUTURE: Frame = {
    "kind": "workflow-future-stage",
    "runId": RUN,
    "target": f"{GROUP}/reviewer-*",
    "queuedCount": 2,
    "group": GROUP,
    "deliveryStates": [DELIVERY],
    "deliveryOnly": True,
}


def views(**members: object) -> list[StageView]:
    answer = decode_answer(encode({"type": "sessions", "requestId": "q", "sessions": [], **members}))
    assert isinstance(answer, Sessions)
    return stage_views(answer)


def test_stages_come_before_possible_ones() -> None:
    """Protocol 6.12.7."""
    stage, possible = views(workflowStages=[STAGE], workflowFutureStages=[FUTURE])
    assert stage == StageView(
        state="running",
        run_id=RUN,
        target=f"{GROUP}/st-1",
        group=GROUP,
        id="st-1",
        name="reviewer-a",
        session_id="b1",
        raw=STAGE,
    )
    assert possible == StageView(
        state="possible",
        run_id=RUN,
        target=f"{GROUP}/reviewer-*",
        group=GROUP,
        queued=2,
        is_delivery_only=True,
        deliveries=(DeliveryState("m", RUN, "st-1", "delivered", "it started"),),
        raw=FUTURE,
    )


def test_a_stage_that_waits() -> None:
    waiting = {key: value for key, value in STAGE.items() if key != "sessionId"}
    [stage] = views(workflowStages=[{**waiting, "lifecycle": "pending"}])
    assert (stage.state, stage.session_id) == ("pending", None)


def test_a_broker_that_knows_no_stages() -> None:
    """Protocol 4.3: the older one leaves both members out."""
    assert views() == []
