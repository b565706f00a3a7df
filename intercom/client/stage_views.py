"""Show the stages of workflow runs in the form a program works with (protocol 6.12.7)."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, to_builtins

from intercom.wire.frames import FutureStage, Sessions, WorkflowStage
from intercom.wire.stage_frames import DeliveryState


class StageView(Struct, frozen=True, kw_only=True):
    """Describe a stage of a workflow run as the broker shows it.

    ``state`` is ``running`` while a session, ``session_id``, is live as it, else ``pending``; both have ``id`` and
    ``name``. A ``possible`` one stands for stages the run may still have: its ``target`` may hold stars, ``queued``
    messages wait for it, and ``deliveries`` tell what became of others; with ``is_delivery_only`` nothing else does it
    stand for. ``raw`` holds the members as they are on the wire.
    """

    state: Literal["pending", "running", "possible"]
    run_id: str
    target: str
    group: str
    id: str | None = None
    name: str | None = None
    session_id: str | None = None
    queued: int = 0
    is_delivery_only: bool = False
    deliveries: tuple[DeliveryState, ...] = ()
    raw: dict[str, Any]


def stage_views(answer: Sessions) -> list[StageView]:
    """Return the stages of a ``sessions`` answer, then the possible ones; a broker that knows none shows none."""
    stages = [] if answer.workflow_stages is UNSET else answer.workflow_stages
    possible = [] if answer.workflow_future_stages is UNSET else answer.workflow_future_stages
    return [*map(_stage, stages), *map(_possible, possible)]


def _stage(stage: WorkflowStage) -> StageView:
    return StageView(
        state=stage.lifecycle,
        run_id=stage.run_id,
        target=stage.target,
        group=stage.group,
        id=stage.stage_id,
        name=stage.stage_name,
        session_id=None if stage.session_id is UNSET else stage.session_id,
        raw=to_builtins(stage),
    )


def _possible(stage: FutureStage) -> StageView:
    return StageView(
        state="possible",
        run_id=stage.run_id,
        target=stage.target,
        group=stage.group,
        queued=int(stage.queued_count),
        is_delivery_only=stage.delivery_only is True,
        deliveries=() if stage.delivery_states is UNSET else tuple(stage.delivery_states),
        raw=to_builtins(stage),
    )
