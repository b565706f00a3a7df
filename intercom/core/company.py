"""Show sessions to each other: lists, groups, and what each of them says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET, Raw

from intercom.core import groups, stage_lists, standstill
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.ground import Ground
from intercom.core.lifecycle import SHOWN_WHO_IS_AWAY
from intercom.core.membership import Membership
from intercom.core.messages import Messages
from intercom.core.part import Handler, Part, session_of
from intercom.core.registry import Registry
from intercom.core.sending import Sending
from intercom.core.sessions import Session, normalise_group
from intercom.core.staging import Staging
from intercom.wire.frames import (
    GroupEntry,
    Groups,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    ListSessions,
    Malformed,
    MembershipAck,
    Presence,
    PresenceAck,
    PresenceFailed,
    Sessions,
)


class Company(Part):
    """Answer who is here, and change what others see of a session."""

    def __init__(
        self,
        ground: Ground,
        registry: Registry,
        messages: Messages,
        staging: Staging,
        sending: Sending,
        membership: Membership,
    ) -> None:
        self._outbox = ground.outbox
        self._limits = ground.limits
        self._sessions = registry.sessions
        self._lifecycle = registry.lifecycle
        self._asking = messages.asking
        self._receipts = messages.receipts
        self._stages = staging.stages
        self._notifications = staging.notifications
        self._deciding = sending.deciding
        self._arrivals = membership.arrivals
        self._violation = membership.departing.violation
        self.on_change: list[Callable[[], None]] = []
        """Are told that a session shows itself differently, before its memberships change."""
        self.on_regrouped: list[Callable[[Session], None]] = []
        """Are told of each session with features that may be in other groups now."""

    def handlers(self) -> Mapping[type, Handler]:
        """Return who takes requests for lists, changes of presence, and frames that break their form."""
        return {
            ListSessions: self._list,
            ListGroups: self._list_groups,
            Presence: self._presence,
            JoinGroup: self._presence,
            LeaveGroup: self._presence,
            Malformed: self._malformed,
        }

    # --- lists ------------------------------------------------------------------------------------------

    def _list(self, connection: Connection, frame: ListSessions, now: Instant) -> None:
        session = session_of(connection)
        group = None if frame.group is UNSET else normalise_group(frame.group)
        if group is None:
            found = self._sessions.in_reach_of(session.groups)
        elif stage_lists.may_inspect(session, group, self._stages):
            found = self._sessions.in_reach_of([group])
        else:
            found = []
        agents = [peer for peer in found if peer.is_agent]
        if session.features & SHOWN_WHO_IS_AWAY:
            entries = [standstill.shown(peer, self._receipts, now, self._limits) for peer in agents]
            entries += self._away_rows(session, group)
        else:
            entries = [peer.encoded() for peer in agents]
        stages = stage_lists.stage_rows(session, group, self._stages)
        possible = stage_lists.future_rows(session, group, self._stages)
        self._outbox.write(connection, Sessions(frame.request_id, entries, stages, possible))

    def _away_rows(self, session: Session, group: str | None) -> list[Raw]:
        if group is not None and not stage_lists.may_inspect(session, group, self._stages):
            return []
        groups = session.groups if group is None else (group,)
        return [known.shown_as_away() for known in self._lifecycle.away() if known.is_in(groups)]

    def _list_groups(self, connection: Connection, frame: ListGroups, now: Instant) -> None:
        mine = session_of(connection).groups
        entries = []
        for group in sorted(self._sessions.groups(), key=lambda name: (name.lower(), name)):
            count = sum(1 for member in self._sessions.members(group) if member.is_agent)
            if count:
                entries.append(GroupEntry(group, count, group in mine))
        self._outbox.write(connection, Groups(frame.request_id, entries))

    # --- presence and memberships -----------------------------------------------------------------------

    def _presence(self, connection: Connection, frame: Presence | JoinGroup | LeaveGroup, now: Instant) -> None:
        self._change(connection, type(frame).__struct_config__.tag, groups.members_of(frame), now)

    def _malformed(self, connection: Connection, frame: Malformed, now: Instant) -> None:
        if frame.type in ("send", "supervisor_send"):
            self._deciding.send(connection, frame, now)
        elif frame.type == "send_pending_stage_notification":
            self._notifications.send(connection, frame, now)
        else:
            self._change(connection, frame.type, frame.fields, now)

    def _change(self, connection: Connection, kind: Any, members: dict[str, Any], now: Instant) -> None:
        session = session_of(connection)
        request_id = members.get("requestId", UNSET)
        if request_id is not UNSET and not isinstance(request_id, str):
            return self._violation(connection, f"{kind} with a requestId that is not a string", now)
        change = groups.read_change(kind, members, session, self._limits)
        if isinstance(change, str):
            if request_id is UNSET:
                return self._violation(connection, f"{kind} without requestId: {change}", now)
            self._outbox.write(connection, PresenceFailed(request_id, change))
            return None
        was_terminal = session.is_terminal
        groups.store_presence(change, session, self._sessions)
        if kind == "presence":
            groups.store_context(members, session, now)
        if session.is_terminal and not was_terminal:
            self._asking.target_ended(session, now)
        for tell_change in self.on_change:
            tell_change()
        groups.store_memberships(change, session, self._sessions, self._outbox, now)
        if session.features:
            self._arrivals.changed(session, now)
            for tell_regrouped in self.on_regrouped:
                tell_regrouped(session)
        if request_id is not UNSET:
            if kind == "presence":
                self._outbox.write(connection, PresenceAck(request_id, session.info["group"]))
            else:
                self._outbox.write(connection, MembershipAck(request_id, list(session.groups)))
        return None
