"""Join routes, rosters and live aliases: who may announce what, and what a stage target means (protocol 6.12).

Rule 1: a route, its roster and everything in flight to its owner end with the owner; aliases end with their session.
Rule 2: nothing here writes to a sender; ``owners`` asks, ``barriers`` admits, ``delivery`` forwards.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET

from intercom.core.aliases import Alias, Aliases
from intercom.core.outbox import Outbox
from intercom.core.rosters import Roster, Rosters, read_parent, read_possible, read_stages
from intercom.core.routes import Route, Routes, controls
from intercom.core.sessions import Session, normalise_group
from intercom.limits import Limits
from intercom.wire import reasons
from intercom.wire.stage_frames import PendingStageRouteRevoked, RegisterPendingStageRoute
from intercom.wire.targets import SCHEME, StageTarget, owns_group


class Stages:
    """Keep what is known of all workflow runs."""

    def __init__(self, limits: Limits, outbox: Outbox) -> None:
        self._limits = limits
        self._outbox = outbox
        self.routes = Routes()
        self.rosters = Rosters()
        self.aliases = Aliases(self.routes)
        self.on_change: Callable[[], None] = lambda: None
        """Is told when a run has another owner or roster, or a stage is live."""

    # --- announcing (protocol 4.14, 6.12.3) -------------------------------------------------------------

    def announce(self, session: Session, frame: RegisterPendingStageRoute) -> str | None:
        """Set or take over the route of a run, and update its roster.

        Returns:
            None, or the reason for which the connection is to be ended; then nothing has changed.
        """
        group = normalise_group(frame.group)
        existing = self.routes.get(frame.run_id)
        if group != session.home_group:
            return reasons.ROUTE_NOT_AUTHORIZED
        is_dormant = frame.dormant is True
        is_takeover = is_announcement = False
        if existing is not None:
            opens = existing.is_opened_by(frame.capability)
            is_takeover = (
                existing.is_dormant
                and not is_dormant
                and not opens
                and existing.owner is not session
                and existing.group == group
            )
            if not is_takeover and (not opens or existing.group != group):
                return reasons.ROUTE_NOT_AUTHORIZED
            is_announcement = not is_takeover and existing.owner is not session
        elif len(self.routes.owned_by(session)) >= self._limits.routes_per_session:
            return reasons.too_many_routes(self._limits.routes_per_session)

        known = self.rosters.get(frame.run_id)
        if known is not None and known.is_elsewhere:
            known = None
        roster = self._announced(frame, group, known)
        if isinstance(roster, str):
            return roster
        owner = existing.owner if existing is not None and is_announcement else session
        if roster is not None and self._is_too_large(owner, roster):
            return reasons.roster_too_large(self._limits.roster_characters)

        if not is_announcement:
            self.routes.put(Route(frame.run_id, session, group, frame.capability, is_dormant))
        if is_takeover:
            assert existing is not None
            self._outbox.write(existing.owner.connection, PendingStageRouteRevoked(frame.run_id))
        if roster is not None:
            self.rosters.put(roster)
            self.aliases.retire_ambiguous(roster)
        self.on_change()
        return None

    def _announced(self, frame: RegisterPendingStageRoute, group: str, known: Roster | None) -> Roster | str | None:
        """Return the roster after this announcement, None when it says nothing of one, or why it is refused."""
        stages = () if frame.stages is UNSET else read_stages(frame.stages, frame.run_id, group)
        if stages is None:
            return reasons.INVALID_ROSTER
        possible = None if known is None else known.possible
        if frame.possible_stages is not UNSET:
            possible = read_possible(frame.possible_stages, frame.run_id, group)
            if possible is None:
                return reasons.INVALID_POSSIBLE_ROSTER
        if frame.stages is UNSET and possible is None:
            return None
        parent = read_parent(frame.parent)
        if parent is None and known is not None:
            parent = known.parent
        return Roster(frame.run_id, group, stages, possible, parent)

    def _is_too_large(self, owner: Session, roster: Roster) -> bool:
        others = [self.rosters.get(route.run_id) for route in self.routes.owned_by(owner)]
        held = sum(other.size for other in others if other is not None and other.run_id != roster.run_id)
        return held + roster.size > self._limits.roster_characters

    # --- what a target means ----------------------------------------------------------------------------

    def live(self, text: str) -> Alias | None:
        """Return the live stage this exact target leads to."""
        return self.aliases.find(text)

    def is_non_agent(self, text: str, target: StageTarget) -> bool:
        """Tell whether a target names only nodes that are no agents; a live stage is one (protocol 6.12.9)."""
        return self.rosters.is_non_agent(text, target) and self.live(text) is None

    def controls_live(self, sender: Session, session: Session, target: StageTarget) -> bool:
        """Tell whether a sender may write to a live stage in another group: the D7 bypass (protocol 6.12.6)."""
        route = self.routes.owner_of(target)
        return route is not None and controls(sender, route.group) and owns_group(route.group, session.home_group)

    def canonical_target(self, run_id: str, key: str) -> str | None:
        """Return the target of the one stage of this run with this id or name (protocol 4.8 B5)."""
        route, roster = self.routes.get(run_id), self.rosters.get(run_id)
        if route is None or roster is None or not route.group.startswith(SCHEME):
            return None
        found = {stage.text for stage in (*roster.by_id.get(key, ()), *roster.by_name.get(key, ()))}
        return found.pop() if len(found) == 1 else None

    # --- departure (protocol 6.15) ----------------------------------------------------------------------

    def owner_left(self, session: Session) -> None:
        """End the routes of a departing session, and the rosters of those runs."""
        owned = self.routes.owned_by(session)
        for route in owned:
            self.routes.drop(route.run_id)
            self.rosters.drop(route.run_id)
        if owned:
            self.on_change()

    def stage_left(self, session: Session) -> None:
        """Forget the targets that led to a departing session."""
        if self.aliases.session_left(session):
            self.on_change()
