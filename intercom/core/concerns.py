"""Say whom an event concerns, what it is about, and what of it is shown to those who follow it.

Rule 1: what is said rests on the event and its row alone, so that it is the same when the event is read back from disk.
Rule 2: what is shown is chosen member by member: no text of a message, no secret.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.json import decode

from intercom.core.addresses import key_of
from intercom.core.records import (
    AddressRecord,
    AssignmentRecord,
    CommandRecord,
    EventRecord,
    Happened,
    IdempotencyRecord,
    IdempotencyState,
    InboxRecord,
    KnownSessionRecord,
    LinkRecord,
    MailRecord,
    PolicyRecord,
)
from intercom.limits import PREVIEW_CODE_POINTS


class Concern(Struct, frozen=True):
    """Name who follows and who may see something, and what they are shown of it."""

    keys: tuple[str, ...]
    """What it is about and whose it is, by ``key`` and ``key_of``: who is one of these sessions or addresses may see
    it."""
    about: dict[str, str]
    """The ids that are shown, by their names on the wire."""
    groups: tuple[str, ...] = ()
    """Their members may see it, too."""
    detail: dict[str, Any] = {}
    """What else is shown."""
    kind: str | None = None
    """How the event is called when not by its own kind."""

    @property
    def shown(self) -> dict[str, Any]:
        """Return the detail with its preview cut."""
        preview = self.detail.get("preview")
        if isinstance(preview, str) and len(preview) > PREVIEW_CODE_POINTS:
            return {**self.detail, "preview": preview[:PREVIEW_CODE_POINTS]}
        return self.detail


class State(Struct, frozen=True):
    """Say how one thing is."""

    kind: str
    state: str
    concern: Concern


def key(kind: str, name: str) -> str:
    """Return the key under which something is followed; ids of sessions are the same whatever their case."""
    return f"{kind}:{name.lower()}" if kind == "session" else f"{kind}:{name}"


def of_address(event: Happened) -> Concern:
    """Say it of an address."""
    row = event.row
    assert isinstance(row, AddressRecord)
    return address_concern(row, event.detail)


def address_concern(row: AddressRecord, detail: dict[str, Any]) -> Concern:
    """Say whom an address concerns: those who can reach it."""
    about = {"address": row.name, **({"group": row.group} if row.group else {})}
    return Concern((key_of(row.number),), about, row.groups, detail)


def of_session(event: Happened) -> Concern:
    """Say it of a session."""
    row = event.row
    assert isinstance(row, KnownSessionRecord)
    return session_concern(row, decode(row.info), event.detail)


def session_concern(row: KnownSessionRecord, info: dict[str, Any], detail: dict[str, Any]) -> Concern:
    """Say whom a session concerns: the groups it is in; ``info`` is the session object as peers see it."""
    about = {"sessionId": row.session_id}
    if isinstance(info.get("name"), str):
        about["name"] = info["name"]
    more = {
        "status": info.get("status"),
        "taskHint": row.task_hint,
        "graceDeadline": row.grace_deadline,
        "reason": row.closed_reason,
    }
    shown = {**detail, "state": row.state.value, **{name: value for name, value in more.items() if value is not None}}
    keys = (key("session", row.session_id), *(() if row.address is None else (key_of(row.address),)))
    return Concern(keys, about, tuple(info["groups"]), shown)


def of_mail(event: Happened) -> Concern:
    """Say it of mail: it concerns its sender, and whoever it was for or was offered to."""
    row = event.row
    assert isinstance(row, MailRecord)
    keys = [key("message", row.message_id), row.mailbox]
    if row.sender_mailbox is not None:
        keys.append(row.sender_mailbox)
    sessions = (row.sender_session, event.detail.get("session"))
    keys += [key("session", session) for session in sessions if isinstance(session, str) and session]
    about = {"messageId": row.message_id}
    if row.target:
        about["target"] = row.target
    shown: dict[str, Any] = {name: event.detail[name] for name in ("session", "reason") if name in event.detail}
    return Concern(tuple(dict.fromkeys(keys)), about, (), {**shown, "state": event.kind.removeprefix("mail.")})


def of_policy(event: Happened) -> Concern:
    """Say it of what the person lets through to somebody: it concerns that one."""
    row = event.row
    assert isinstance(row, PolicyRecord)
    return Concern((row.party,), {}, (), {"state": event.kind.removeprefix("policy.")})


def of_inbox(event: Happened) -> Concern:
    """Say it of a parked message: it concerns its sender, whom it was for, and who may deal with it."""
    row = event.row
    assert isinstance(row, InboxRecord)
    return inbox_concern(row)


def inbox_concern(row: InboxRecord) -> Concern:
    """Say whom a parked message concerns."""
    keys = [key("message", row.inbox_id), key("inbox", row.inbox_id)]
    keys += [key("session", session) for session in (row.sender_session, row.target_session) if session]
    if row.sender_mailbox is not None:
        keys.append(row.sender_mailbox)
    if row.target_address is not None:
        keys.append(key_of(row.target_address))
    about = {"inboxId": row.inbox_id, "messageId": row.inbox_id, "target": row.target}
    if row.assignment is not None:
        keys.append(key("assignment", row.assignment))
        about["assignmentId"] = row.assignment
    shown = {"reason": row.return_reason or row.reason}
    return Concern(tuple(dict.fromkeys(keys)), about, row.groups, shown)


def of_assignment(event: Happened) -> Concern:
    """Say it of an assignment: it concerns the worker, and whoever follows it or its message."""
    row = event.row
    assert isinstance(row, AssignmentRecord)
    return assignment_concern(row, event.detail)


def assignment_concern(row: AssignmentRecord, detail: dict[str, Any]) -> Concern:
    """Say whom an assignment concerns."""
    keys = [key("assignment", row.assignment_id), key("message", row.message_id), key("session", row.session_id)]
    if row.address is not None:
        keys.append(key_of(row.address))
    about = {"assignmentId": row.assignment_id, "messageId": row.message_id, "sessionId": row.session_id}
    shown: dict[str, Any] = {name: detail[name] for name in ("retryable", "reasonCode", "reason") if name in detail}
    return Concern(tuple(keys), about, (), {"state": row.state, "sequence": row.sequence, **shown})


def of_keyed(event: Happened) -> Concern | None:
    """Say it of a request with a key: only orders to start sessions are told, to the operator and that session."""
    row = event.row
    assert isinstance(row, IdempotencyRecord)
    kind = _SPAWN_EVENTS.get((event.kind, row.state))
    if row.scope != "spawn" or kind is None:
        return None
    result = decode(row.result)
    if "code" in result:
        kind = "spawn.failed"
    about = {name: result[name] for name in ("kind", "sessionId") if isinstance(result.get(name), str)}
    keys = (key("session", about["sessionId"]),) if "sessionId" in about else ()
    return Concern(keys, about, (), {}, kind)


def of_link(event: Happened) -> Concern | None:
    """Say it of a link: it concerns its worker; what an event or a command tells of is not told twice."""
    row = event.row
    assert isinstance(row, LinkRecord)
    if event.kind in ("link.advanced", "link.commanded"):
        return None
    return link_concern(row, event.detail)


def link_concern(row: LinkRecord, detail: dict[str, Any]) -> Concern:
    """Say whom a link concerns."""
    shown: dict[str, Any] = {name: detail[name] for name in ("reason", "code") if name in detail}
    more: dict[str, Any] = {"generation": row.generation, "eventFloor": row.floor}
    if row.journal_id is not None:
        more["journalId"] = row.journal_id
    return Concern((key("link", row.link_id), row.mailbox), {"linkId": row.link_id}, (), {**more, **shown})


def of_command(event: Happened) -> Concern:
    """Say it of a command: it concerns the worker, and whoever follows the link."""
    row = event.row
    assert isinstance(row, CommandRecord)
    shown: dict[str, Any] = {"state": row.state, "commandSeq": row.seq}
    if row.error_code is not None:
        shown["errorCode"] = row.error_code
    about = {"linkId": row.link_id, "commandId": row.command_id}
    return Concern((key("link", row.link_id), str(event.detail.get("mailbox"))), about, (), shown)


def of_event(event: Happened) -> Concern:
    """Say it of a durable event: it concerns the worker, and whoever follows the link."""
    row = event.row
    assert isinstance(row, EventRecord)
    shown: dict[str, Any] = {"seq": row.seq, "eventId": row.event_id, "kind": row.kind}
    return Concern((key("link", row.link_id), str(event.detail.get("mailbox"))), {"linkId": row.link_id}, (), shown)


_SPAWN_EVENTS = {
    ("idempotency.begun", IdempotencyState.IN_FLIGHT): "spawn.started",
    ("idempotency.done", IdempotencyState.DONE): "spawn.applied",
    ("idempotency.forgotten", IdempotencyState.IN_FLIGHT): "spawn.failed",
}
