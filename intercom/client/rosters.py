"""Say which stages a workflow run has and may still have, and make the frame that announces them (protocol 6.12.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET, Struct, to_builtins

from intercom.client.composing import clean_text
from intercom.errors import UsageError
from intercom.wire.stage_frames import DeliveryState, ParentRun, RegisterPendingStageRoute, StageAnnouncement
from intercom.wire.stage_frames import PossibleStage as PossibleAnnouncement
from intercom.wire.targets import SCHEME, invocation_group, is_run_id, parse_target, root_run_of

__all__ = ["DeliveryState", "PossibleStage", "RosterStage", "Rostered", "checked_key", "checked_run", "rostered"]


class RosterStage(Struct, frozen=True, kw_only=True):
    """Describe a stage a run has.

    ``running`` tells whether its work has begun; the broker shows it as running only while a session is live as it.
    ``agent`` is false for a node that never takes messages, ``listed`` false for one that is not to be shown.
    ``target`` and ``group`` are made from the run where they are not given.
    """

    id: str
    name: str
    running: bool = False
    agent: bool = True
    listed: bool = True
    target: str | None = None
    group: str | None = None


class PossibleStage(Struct, frozen=True, kw_only=True):
    """Describe stages a run may still have.

    ``target`` is a whole target or what follows that of the run, and may hold stars; ``queued`` is how many messages
    wait for them; ``delivery_only`` marks an entry that only tells what became of messages, in ``deliveries``.
    """

    target: str
    queued: int = 0
    delivery_only: bool = False
    deliveries: tuple[DeliveryState, ...] = ()


class Rostered(Struct, frozen=True):
    """Hold what a run announces, in the form of the wire."""

    stages: tuple[StageAnnouncement, ...] = ()
    possible: tuple[PossibleAnnouncement, ...] = ()

    def frame(
        self,
        run_id: str,
        *,
        group: str,
        capability: str,
        dormant: bool,
        parent: ParentRun | None,
        request_id: str | None = None,
    ) -> RegisterPendingStageRoute:
        """Return the frame that announces this; without ``request_id`` the broker does not answer it."""
        return RegisterPendingStageRoute(
            run_id=run_id,
            group=group,
            capability=capability,
            request_id=UNSET if request_id is None else request_id,
            dormant=True if dormant else UNSET,
            stages=to_builtins(list(self.stages)),
            possible_stages=to_builtins(list(self.possible)),
            parent=UNSET if parent is None else to_builtins(parent),
        )


def rostered(
    run_id: str, group: str, roster: Iterable[RosterStage], possible: Iterable[PossibleStage | str]
) -> Rostered:
    """Return the announcement of a run whose owner's home group is ``group``; raise ``UsageError`` for a wrong one."""
    stages = tuple(_stage(stage, run_id, group) for stage in roster)
    ids = [stage.stage_id for stage in stages]
    if len(set(ids)) < len(ids):
        raise UsageError("two stages of the roster have the same id", hint="Names may repeat; ids may not.")
    return Rostered(stages, tuple(_possible(stage, run_id, group) for stage in possible))


def base_of(run_id: str, group: str) -> str:
    """Return what the targets of a run's stages begin with."""
    root = root_run_of(group)
    return group if root == run_id else f"{group}/{run_id}"


def checked_run(run_id: Any) -> str:
    """Return a run id; raise ``UsageError`` for what is none (protocol 6.12.1)."""
    cleaned = clean_text(run_id, "run_id")
    if not is_run_id(cleaned):
        raise UsageError(f"the run id {cleaned!a} is no UUID", hint="str(uuid.uuid4()) makes one.")
    return cleaned


def checked_owner_group(group: str) -> str:
    """Return the home group of a session that is to own runs; raise ``UsageError`` where it cannot."""
    root = root_run_of(group)
    if root is None or not is_run_id(root) or group != invocation_group(root):
        raise UsageError(
            f"a session with the home group {group!a} cannot own workflow runs",
            hint="Connect with group='workflow:<id of the root run>'.",
        )
    return group


def checked_key(key: Any, what: str) -> str:
    """Return the id or name of a stage; raise ``UsageError`` for one that no target can have as its last segment."""
    cleaned = clean_text(key, what)
    if not cleaned or "/" in cleaned or "*" in cleaned:
        raise UsageError(f"the {what} {cleaned!a} is empty or holds / or *", hint="Targets are made of it.")
    return cleaned


def parent_of(run_id: str | None, boundary: Sequence[str]) -> ParentRun | None:
    """Return the edge to the run above; raise ``UsageError`` for half of one."""
    if isinstance(boundary, str):
        raise UsageError("boundary must be several strings")
    if run_id is None:
        if boundary:
            raise UsageError("boundary was given without parent")
        return None
    return ParentRun(checked_run(run_id), [checked_key(key, "boundary name") for key in boundary])


def _stage(stage: RosterStage, run_id: str, group: str) -> StageAnnouncement:
    if not isinstance(stage, RosterStage):
        raise UsageError(f"a roster holds RosterStage objects, not {type(stage).__name__}")
    stage_id = checked_key(stage.id, "stage id")
    target = f"{base_of(run_id, group)}/{stage_id}" if stage.target is None else clean_text(stage.target, "target")
    parsed = parse_target(target)
    if parsed is None or parsed.kind != "path" or parsed.last != stage_id:
        raise UsageError(f"the target {target!a} does not end in the stage id {stage_id!a}, or is none")
    return StageAnnouncement(
        stage_id=stage_id,
        stage_name=checked_key(stage.name, "stage name"),
        target=target,
        lifecycle="running" if stage.running else "pending",
        route_eligible=stage.listed,
        group=group if stage.group is None else clean_text(stage.group, "group"),
        recipient_purpose="agent" if stage.agent else "control",
    )


def _possible(given: PossibleStage | str, run_id: str, group: str) -> PossibleAnnouncement:
    stage = PossibleStage(target=given) if isinstance(given, str) else given
    target = clean_text(stage.target, "target")
    if not target.startswith(SCHEME):
        target = f"{base_of(run_id, group)}/{target}"
    if parse_target(target) is None:
        raise UsageError(f"{target!a} is no target of a workflow stage")
    if isinstance(stage.queued, bool) or not isinstance(stage.queued, int) or stage.queued < 0:
        raise UsageError(f"queued must be a count, not {stage.queued!r}")
    return PossibleAnnouncement(
        target=target,
        queued_count=stage.queued,
        delivery_only=True if stage.delivery_only else UNSET,
        delivery_states=list(stage.deliveries) if stage.deliveries else UNSET,
    )
