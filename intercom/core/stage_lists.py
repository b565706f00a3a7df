"""Show workflow stages in ``list``, and say who may look into which group (protocol 6.12.7, 6.12.8)."""

from __future__ import annotations

from collections.abc import Iterator

from intercom.core.rosters import Roster, Stage
from intercom.core.routes import controls
from intercom.core.sessions import Session
from intercom.core.stages import Stages
from intercom.wire.frames import FutureStage, WorkflowStage
from intercom.wire.targets import owns_group, parse_target


def may_inspect(requester: Session, group: str, stages: Stages) -> bool:
    """Tell whether a session may see who is in this group: any group, unless it holds stages of somebody's run."""
    for roster in stages.rosters:
        if group in roster.groups and owns_group(roster.group, group):
            return group in requester.groups or controls(requester, roster.group)
    return True


def stage_rows(requester: Session, group: str | None, stages: Stages) -> list[WorkflowStage]:
    """Return the stages this session sees, those of one group only when ``group`` is given."""
    return [
        row
        for roster in stages.rosters
        for stage in roster.stages
        if _is_shown(stage, roster, requester, group)
        for row in _rows(stage, roster, requester, stages)
    ]


def _is_shown(stage: Stage, roster: Roster, requester: Session, group: str | None) -> bool:
    return (
        stage.route_eligible
        and stage.is_agent
        and group in (None, stage.group)
        and (
            stage.group in requester.groups
            or (owns_group(roster.group, stage.group) and controls(requester, roster.group))
        )
    )


def _rows(stage: Stage, roster: Roster, requester: Session, stages: Stages) -> Iterator[WorkflowStage]:
    alias = stages.live(stage.text)
    live = roster.live.get(stage.text)
    if live is not None:
        if live != requester.id:
            yield WorkflowStage(roster.run_id, stage.id, stage.name, stage.text, "running", stage.group, live)
    elif alias is None:
        if not stage.is_running:
            yield WorkflowStage(roster.run_id, stage.id, stage.name, stage.text, "pending", stage.group)
    elif alias.session is not requester:
        yield WorkflowStage(roster.run_id, stage.id, stage.name, stage.text, "running", stage.group, alias.session.id)


def future_rows(requester: Session, group: str | None, stages: Stages) -> list[FutureStage]:
    """Return the stages that runs may still have, as far as this session may know of them."""
    return [
        FutureStage(roster.run_id, row.target, row.queued_count, roster.group, row.delivery_states, row.delivery_only)
        for roster in stages.rosters
        if roster.possible
        and group in (None, roster.group)
        and any(owns_group(roster.group, membership) for membership in requester.groups)
        for row in roster.possible
        if not _is_non_agent(row.target, stages)
    ]


def _is_non_agent(text: str, stages: Stages) -> bool:
    target = parse_target(text)
    return target is not None and stages.is_non_agent(text, target)
