"""Keep what workflow runs announce: their stages, the stages they may still have, and the run above (protocol 6.12.2).

Rule 1: an announcement is read as a whole, and one wrong row makes all of it wrong. Rule 2: a roster never changes; an
update puts a new one in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import UNSET, ValidationError, convert
from msgspec.json import encode

from intercom.core.sessions import normalise_group
from intercom.wire.stage_frames import ParentRun, PossibleStage, StageAnnouncement
from intercom.wire.targets import StageTarget, owns_group, parse_target, root_run_of


class Stage:
    """Hold one announced stage with its target parsed and its group normalised."""

    __slots__ = ("group", "id", "is_agent", "is_running", "name", "route_eligible", "target", "text")

    def __init__(self, announced: StageAnnouncement, target: StageTarget) -> None:
        self.id = announced.stage_id
        self.name = announced.stage_name
        self.text = announced.target
        self.target = target
        self.is_running = announced.lifecycle == "running"
        self.route_eligible = announced.route_eligible
        self.is_agent = announced.recipient_purpose != "control"
        self.group = normalise_group(announced.group)


class Roster:
    """Hold what one run has announced, with the look-ups the rules need."""

    __slots__ = (
        "ambiguous",
        "by_id",
        "by_name",
        "by_text",
        "group",
        "groups",
        "is_elsewhere",
        "live",
        "parent",
        "possible",
        "run_id",
        "size",
        "stages",
    )

    def __init__(
        self,
        run_id: str,
        group: str,
        stages: tuple[Stage, ...],
        possible: tuple[PossibleStage, ...] | None,
        parent: ParentRun | None,
    ) -> None:
        self.run_id = run_id
        self.group = group
        self.stages = stages
        self.possible = possible
        """None until possible stages were announced once."""
        self.parent = parent
        self.is_elsewhere = False
        """Its owner is a session of another broker."""
        self.live: dict[str, str] = {}
        """Of one elsewhere: session ids by the targets of the stages that are live there."""
        self.by_id: dict[str, list[Stage]] = {}
        self.by_name: dict[str, list[Stage]] = {}
        self.by_text: dict[str, list[Stage]] = {}
        """By target, and by target with the name in the place of the id."""
        agents: dict[str, int] = {}
        for stage in stages:
            self.by_id.setdefault(stage.id, []).append(stage)
            self.by_name.setdefault(stage.name, []).append(stage)
            for text in {stage.text, stage.target.with_last(stage.name)}:
                self.by_text.setdefault(text, []).append(stage)
            if stage.is_agent:
                agents[stage.name] = agents.get(stage.name, 0) + 1
        self.ambiguous = frozenset(name for name, count in agents.items() if count > 1)
        """Names that at least two agents carry (protocol 6.12.5)."""
        self.groups = frozenset(stage.group for stage in stages)
        texts = sum(len(stage.text) + len(stage.name) + len(stage.group) for stage in stages)
        self.size = texts + len(encode(possible)) + len(encode(parent))
        """What the roster is charged with, in characters."""

    def called(self, key: str) -> list[Stage]:
        """Return the stages with this id, or, when there is none, with this name."""
        return self.by_id.get(key) or self.by_name.get(key, [])

    def described_by(self, keys: Iterable[str]) -> Stage | None:
        """Return the stage that registers under these distinct keys (protocol 6.12.5, *registrant*)."""
        keys = tuple(keys)
        for stage in self.stages:
            if stage.id in keys and (len(keys) == 1 or stage.name in keys):
                return stage
        if len(keys) > 1:
            return None
        return next((stage for stage in self.by_name.get(keys[0], ()) if stage.is_agent), None)


def read_stages(value: Any, run_id: str, group: str) -> tuple[Stage, ...] | None:
    """Return the announced stages of a run whose owner is in ``group``; None when any row breaks a rule."""
    try:
        announced = convert(value, list[StageAnnouncement])
    except ValidationError:
        return None
    root = root_run_of(group)
    stages = []
    for row in announced:
        target = parse_target(row.target)
        if target is None or target.kind != "path" or target.last != row.stage_id:
            return None
        if target.run_id not in (root, run_id) and run_id not in target.segments[:-1]:
            return None
        if not owns_group(group, normalise_group(row.group)):
            return None
        stages.append(Stage(row, target))
    return tuple(stages)


def announced(roster: Roster) -> tuple[StageAnnouncement, ...]:
    """Return the stages of a roster as they can be announced again."""
    return tuple(
        StageAnnouncement(
            stage.id,
            stage.name,
            stage.text,
            "running" if stage.is_running else "pending",
            stage.route_eligible,
            stage.group,
            UNSET if stage.is_agent else "control",
        )
        for stage in roster.stages
    )


def read_possible(value: Any, run_id: str, group: str) -> tuple[PossibleStage, ...] | None:
    """Return the announced possible stages; None when any row breaks a rule."""
    try:
        announced = convert(value, list[PossibleStage])
    except ValidationError:
        return None
    for row in announced:
        target = parse_target(row.target)
        if target is None or target.run_id not in (root_run_of(group), run_id):
            return None
    return tuple(announced)


def read_parent(value: Any) -> ParentRun | None:
    """Return the announced run above; a malformed value is ignored."""
    if value is UNSET:
        return None
    try:
        return convert(value, ParentRun)
    except ValidationError:
        return None


class Rosters:
    """Find rosters by run, by group, and downwards from a run."""

    def __init__(self) -> None:
        self._by_run: dict[str, Roster] = {}
        self._by_group: dict[str, dict[str, Roster]] = {}
        self._below: dict[tuple[str, str, str], dict[str, None]] = {}
        """Runs by group, run above and boundary name."""

    def __iter__(self) -> Iterator[Roster]:
        return iter(self._by_run.values())

    def get(self, run_id: str) -> Roster | None:
        """Return the roster of this run."""
        return self._by_run.get(run_id)

    def put(self, roster: Roster) -> None:
        """Set the roster of a run; it keeps the place of an earlier one."""
        self._unindex(roster.run_id)
        self._by_run[roster.run_id] = roster
        self._by_group.setdefault(roster.group, {})[roster.run_id] = roster
        for edge in _edges(roster):
            self._below.setdefault(edge, {})[roster.run_id] = None

    def drop(self, run_id: str) -> None:
        """Forget what this run announced; a run without a roster is fine."""
        self._unindex(run_id)
        self._by_run.pop(run_id, None)

    def is_non_agent(self, text: str, target: StageTarget) -> bool:
        """Tell whether a path names nodes of its run none of which is an agent (protocol 6.12.9)."""
        rosters = self._by_group.get(target.invocation_group)
        if rosters is None or target.kind != "path":
            return False
        roster = self._reached_by(target, rosters)
        if roster is not None:
            found = roster.called(target.last)
        else:
            found = [stage for each in rosters.values() for stage in each.by_text.get(text, ())]
        return bool(found) and not any(stage.is_agent for stage in found)

    def _reached_by(self, target: StageTarget, rosters: dict[str, Roster]) -> Roster | None:
        """Walk from the root run over run ids and boundary names."""
        current = target.run_id
        for segment in target.segments[:-1]:
            if segment in rosters:
                current = segment
                continue
            below = self._below.get((target.invocation_group, current, segment), ())
            if len(below) != 1:
                return None
            current = next(iter(below))
        return rosters.get(current)

    def _unindex(self, run_id: str) -> None:
        roster = self._by_run.get(run_id)
        if roster is None:
            return
        del self._by_group[roster.group][run_id]
        if not self._by_group[roster.group]:
            del self._by_group[roster.group]
        for edge in _edges(roster):
            del self._below[edge][run_id]
            if not self._below[edge]:
                del self._below[edge]


def _edges(roster: Roster) -> set[tuple[str, str, str]]:
    parent = roster.parent
    return set() if parent is None else {(roster.group, parent.run_id, key) for key in parent.stage_keys}
