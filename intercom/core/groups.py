"""Decide about presence and memberships: what a change must look like, and who is told (protocol 4.5 to 4.7, 6.3)."""

from __future__ import annotations

import math
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from intercom.core.clock import Instant
from intercom.core.outbox import Outbox
from intercom.core.sessions import DEFAULT_GROUP, Session, SessionTable
from intercom.limits import PUSH_WAY_CHARACTERS, Limits
from intercom.wire import reasons
from intercom.wire.frames import (
    JoinGroup,
    LeaveGroup,
    Presence,
    PresenceUpdate,
    SessionJoined,
    SessionLeft,
    is_blank,
    trim,
)

PUSHES = ("now", "idle", "pull", "none")
RESERVED_GROUPS = frozenset({"true", "auto"})
CONTEXT_MEMBERS = ("contextTokens", "contextWindow", "contextPercent")
"""How full the context of a session's model is, in a session object and in ``presence``."""


class Change(Struct, frozen=True):
    """Hold a well-formed change of presence; UNSET members stay as they are."""

    name: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    reply_capability: str | UnsetType = UNSET
    push: str | UnsetType = UNSET
    push_way: str | UnsetType = UNSET
    groups: tuple[str, ...] | UnsetType = UNSET
    legacy_group: str | UnsetType = UNSET


def members_of(frame: Presence | JoinGroup | LeaveGroup) -> dict[str, Any]:
    """Return the members of a presence frame by their names on the wire."""
    members = {
        "requestId": frame.request_id,
        "name": frame.name,
        "status": frame.status,
        "model": frame.model,
        "group": frame.group,
        "groups": getattr(frame, "groups", UNSET),
        "replyCapability": frame.reply_capability,
        "push": getattr(frame, "push", UNSET),
        "pushWay": getattr(frame, "push_way", UNSET),
        "contextTokens": getattr(frame, "context_tokens", UNSET),
        "contextWindow": getattr(frame, "context_window", UNSET),
        "contextPercent": getattr(frame, "context_percent", UNSET),
    }
    return {name: value for name, value in members.items() if value is not UNSET}


def store_context(members: dict[str, Any], session: Session, now: Instant) -> None:
    """Store how full the context of a session's model is; what is no number is not looked at (protocol 15.4)."""
    told = {member: members[member] for member in CONTEXT_MEMBERS if member in members}
    if not told:
        return
    for member, value in told.items():
        if value is None:
            session.drop(member)
        elif _is_amount(value):
            session.update(**{member: value})
    session.drop("contextAt")
    if any(member in session.info for member in CONTEXT_MEMBERS):
        session.update(contextAt=now.wall)


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def read_change(kind: str, members: dict[str, Any], session: Session, limits: Limits) -> Change | str:
    """Return the change a frame of ``kind`` asks for, or the reason it is refused (protocol 4.5, in that order)."""
    groups: tuple[str, ...] | UnsetType = UNSET
    legacy: str | UnsetType = UNSET
    given_groups = members.get("groups", UNSET) if kind == "presence" else UNSET
    given_group = members.get("group", UNSET)
    if given_groups is not UNSET and not (
        isinstance(given_groups, list) and all(isinstance(group, str) for group in given_groups)
    ):
        return "Invalid presence groups"
    if given_group is not UNSET and not isinstance(given_group, str):
        return "Invalid presence group"
    if kind == "join_group" and given_group is UNSET:
        return "Invalid presence group"
    requested = given_groups if given_groups is not UNSET else [] if given_group is UNSET else [given_group]
    for group in requested:
        if is_blank(group):
            return "Invalid presence group: Intercom group name must not be blank"
        if trim(group).lower() in RESERVED_GROUPS:
            return reasons.reserved_group(trim(group))
    for member in ("name", "status", "model"):
        if not isinstance(members.get(member, ""), str):
            return f"Invalid presence {member}"
    reply_capability = members.get("replyCapability", UNSET)
    if reply_capability is not UNSET and reply_capability not in ("live", "terminal"):
        return "Invalid presence replyCapability: only live and terminal are known"
    if reply_capability == "live" and session.is_terminal:
        return "Invalid presence replyCapability: a terminal session cannot become live again"
    push = members.get("push", UNSET) if kind == "presence" else UNSET
    if push is not UNSET and push not in PUSHES:
        return "Invalid presence push: only now, idle, pull and none are known"
    push_way = members.get("pushWay", UNSET) if kind == "presence" else UNSET
    if push_way is not UNSET and not (isinstance(push_way, str) and 1 <= len(push_way) <= PUSH_WAY_CHARACTERS):
        return f"Invalid presence pushWay: it is a text of 1 to {PUSH_WAY_CHARACTERS} characters"

    legacy_now: str = session.info["group"]
    if kind == "join_group":
        groups, legacy = tuple(dict.fromkeys((*session.groups, trim(requested[0])))), legacy_now
    elif kind == "leave_group" and given_group is UNSET:
        groups, legacy = (session.home_group,), session.home_group
    elif kind == "leave_group":
        left = trim(requested[0])
        groups = tuple(group for group in session.groups if group != left) or (DEFAULT_GROUP,)
        legacy = legacy_now if legacy_now in groups else groups[0]
    elif given_groups is not UNSET or given_group is not UNSET:
        groups = tuple(dict.fromkeys(trim(group) for group in requested)) or (DEFAULT_GROUP,)
        legacy = groups[0]
    if groups is not UNSET and len(groups) > limits.groups:
        return f"Invalid presence groups: at most {limits.groups} are allowed"
    return Change(
        members.get("name", UNSET),
        members.get("status", UNSET),
        members.get("model", UNSET),
        reply_capability,
        push,
        push_way,
        groups,
        legacy,
    )


def store_presence(change: Change, session: Session, sessions: SessionTable) -> None:
    """Store what a change says of the session itself; its memberships are changed after what follows from this."""
    if change.name is not UNSET:
        sessions.rename(session, change.name)
    if change.push is not UNSET:
        session.drop("pushWay")  # it told by what the session was told before
    for member, value in (
        ("status", change.status),
        ("model", change.model),
        ("replyCapability", change.reply_capability),
        ("push", change.push),
        ("pushWay", change.push_way),
    ):
        if value is not UNSET:
            session.update(**{member: value})


def store_memberships(change: Change, session: Session, sessions: SessionTable, outbox: Outbox, now: Instant) -> None:
    """Store the memberships and tell every peer what the whole change means to it (protocol 6.3)."""
    before = sessions.in_reach_of(session.groups) if session.is_agent else []
    if change.groups is not UNSET and change.legacy_group is not UNSET:
        sessions.regroup(session, change.groups, change.legacy_group)
    session.update(lastActivity=now.wall)
    if not session.is_agent:
        return
    after = sessions.in_reach_of(session.groups)
    were, are = {peer.id for peer in before}, {peer.id for peer in after}
    others = [peer for peer in before if peer is not session]
    outbox.broadcast((p.connection for p in others if p.id not in are), SessionLeft(session.id))
    others = [peer for peer in after if peer is not session]
    outbox.broadcast((p.connection for p in others if p.id not in were), SessionJoined(session.encoded()))
    outbox.broadcast((p.connection for p in others if p.id in were), PresenceUpdate(session.encoded()))


def announce(session: Session, sessions: SessionTable, outbox: Outbox) -> None:
    """Tell the peers of an agent that it is here."""
    if session.is_agent:
        peers = sessions.in_reach_of(session.groups)
        outbox.broadcast((p.connection for p in peers if p is not session), SessionJoined(session.encoded()))


def announce_presence(session: Session, sessions: SessionTable, outbox: Outbox) -> None:
    """Tell the peers of an agent that something they see of it has changed."""
    if session.is_agent:
        peers = sessions.in_reach_of(session.groups)
        outbox.broadcast((p.connection for p in peers if p is not session), PresenceUpdate(session.encoded()))


def announce_departure(session: Session, sessions: SessionTable, outbox: Outbox) -> None:
    """Tell the peers of an agent, which has left the table already, that it is gone."""
    if session.is_agent:
        peers = sessions.in_reach_of(session.groups)
        outbox.broadcast((p.connection for p in peers), SessionLeft(session.id))
