"""Let a stage go live: its refusals, its aliases, and the wait for what was sent just before (protocol 4.15, 6.12.5).

Rule 1: a stage is told that it is live only when the fate of every message is known that its run's owners were asked
about before and that may be meant for it. Rule 2: a wait belongs to one session and one request, and ends with both.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from intercom.core.aliases import Alias, wanted_aliases
from intercom.core.outbox import Outbox
from intercom.core.owners import OwnerRequest, Owners
from intercom.core.rosters import Roster
from intercom.core.routes import Route
from intercom.core.sessions import Session
from intercom.core.stages import Stages
from intercom.wire import reasons
from intercom.wire.frames import (
    LiveWorkflowStageRouteRegistered,
    RegisterLiveWorkflowStageRoute,
    RegistrationFailed,
)
from intercom.wire.targets import SCHEME, owns_group, root_run_of

Code: TypeAlias = Literal[
    "owner_missing",
    "owner_not_workflow",
    "registrant_not_agent",
    "capability_mismatch",
    "group_mismatch",
    "invalid_stage_key",
    "non_agent_stage_key",
    "duplicate_live_owner",
]


class Barrier:
    """Wait for owners' answers on behalf of one stage that goes live."""

    __slots__ = ("_barriers", "awaited", "order", "request_id", "session")

    def __init__(self, barriers: Barriers, session: Session, request_id: str, order: int) -> None:
        self._barriers = barriers
        self.session = session
        self.request_id = request_id
        self.order = order
        self.awaited: set[OwnerRequest] = set()

    def settled(self, request: OwnerRequest) -> None:
        """Note that one of the awaited requests has ended."""
        self.awaited.discard(request)
        if not self.awaited:
            self._barriers.open(self)


class Barriers:
    """Admit live stages, and keep those that wait."""

    def __init__(self, stages: Stages, owners: Owners, outbox: Outbox) -> None:
        self._stages = stages
        self._owners = owners
        self._outbox = outbox
        self._by_session: dict[str, dict[str, Barrier]] = {}
        self._made = 0

    def __len__(self) -> int:
        return sum(len(waiting) for waiting in self._by_session.values())

    def go_live(self, session: Session, frame: RegisterLiveWorkflowStageRoute) -> RegistrationFailed | None:
        """Let the targets of a stage lead to this session, and tell it when nothing sent before is undecided.

        Returns:
            None, or the refusal that ends the connection; then nothing has changed.
        """
        keys = tuple(dict.fromkeys(frame.stage_keys))
        route = self._stages.routes.get(frame.run_id)
        roster = self._stages.rosters.get(frame.run_id)
        refusal = _refusal(session, frame.capability, keys, route, roster)
        if refusal is not None:
            return RegistrationFailed(*refusal)
        assert route is not None
        wanted = wanted_aliases(keys, route, roster)
        for text in wanted:
            held = self._stages.live(text)
            if held is not None and held.session is not session:
                code: Code = "duplicate_live_owner"
                return RegistrationFailed(reasons.DUPLICATE_LIVE_OWNER, code)
        for text, target in wanted.items():
            self._stages.aliases.add(Alias(text, target, session, frame.run_id, frame.capability))
        if roster is not None:
            self._stages.aliases.retire_ambiguous(roster)
        self._stages.on_change()
        self._wait(session, frame.request_id, self._concerning(keys, route, roster))
        return None

    def session_left(self, session: Session) -> None:
        """Drop the waits of a departing session."""
        for barrier in self._by_session.pop(session.id, {}).values():
            self._let_go(barrier)

    def open(self, barrier: Barrier) -> None:
        """Tell a stage that it is live."""
        waiting = self._by_session[barrier.session.id]
        del waiting[barrier.request_id]
        if not waiting:
            del self._by_session[barrier.session.id]
        self._outbox.write(barrier.session.connection, LiveWorkflowStageRouteRegistered(barrier.request_id))

    def _wait(self, session: Session, request_id: str, requests: list[OwnerRequest]) -> None:
        earlier = self._by_session.get(session.id, {}).get(request_id)
        if earlier is not None:
            self._let_go(earlier)
        self._made += 1
        barrier = Barrier(self, session, request_id, self._made)
        self._by_session.setdefault(session.id, {})[request_id] = barrier
        barrier.awaited.update(requests)
        for request in requests:
            request.barriers.add(barrier)
        if not requests:
            self.open(barrier)

    def _let_go(self, barrier: Barrier) -> None:
        for request in barrier.awaited:
            request.barriers.discard(barrier)

    def _concerning(self, keys: tuple[str, ...], route: Route, roster: Roster | None) -> list[OwnerRequest]:
        """Return the owner requests in flight that may be about a stage with these keys."""
        announced = [() if roster is None else roster.called(key) for key in keys]
        targets = [stage.target for stages in announced for stage in stages]
        is_unknown = not all(announced)
        return [
            request
            for request in self._owners.in_flight(root_run_of(route.group) or "")
            if (
                request.target.last in keys
                if request.target.kind == "path"
                else is_unknown or any(request.target.matches(target) for target in targets)
            )
        ]


def _refusal(
    session: Session, capability: str, keys: tuple[str, ...], route: Route | None, roster: Roster | None
) -> tuple[str, Code] | None:
    """Return the first reason for which this session may not go live under these keys."""
    if any("/" in key or "*" in key for key in keys):
        return reasons.LIVE_INVALID_KEY, "invalid_stage_key"
    if route is None:
        return reasons.LIVE_NO_OWNER, "owner_missing"
    if not session.is_agent:
        return reasons.LIVE_NOT_AN_AGENT, "registrant_not_agent"
    if not route.is_opened_by(capability):
        return reasons.LIVE_OTHER_CAPABILITY, "capability_mismatch"
    if not owns_group(route.group, session.home_group):
        return reasons.LIVE_OTHER_GROUP, "group_mismatch"
    if not route.group.startswith(SCHEME):
        return reasons.LIVE_NOT_A_WORKFLOW, "owner_not_workflow"
    for key in keys if roster is not None else ():
        named = (*roster.by_id.get(key, ()), *roster.by_name.get(key, ()))  # type: ignore[union-attr]  # tested above
        if named and not any(stage.is_agent for stage in named):
            return reasons.LIVE_NON_AGENT_KEY, "non_agent_stage_key"
    return None
