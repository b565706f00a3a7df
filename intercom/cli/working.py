"""Show messages of the inbox and assignments: as documents for programs, as lines for people."""

from __future__ import annotations

import time
from argparse import Namespace
from shlex import quote
from typing import TYPE_CHECKING, Any

from intercom.cli.messages import indented
from intercom.cli.render import Output, duration, visible, who

if TYPE_CHECKING:
    from intercom.client.assignment import Assignment
    from intercom.client.views import Attachment
    from intercom.client.workviews import AssignmentView, ParkedMessage

POLICIES = {
    "operator_select": "nobody: it is handed out",
    "bound_session": "its target",
    "any_session": "any worker",
    "session_unavailable": "nobody: its target is gone",
    "assigned": "somebody has it",
    "none": "nobody",
}
"""Who may claim a message, in words."""


def described_parked(item: ParkedMessage) -> dict[str, Any]:
    """Return a message of the inbox as a JSON object."""
    document: dict[str, Any] = {
        "inboxId": item.id,
        "place": item.place,
        "from": dict(item.sender.raw),
        "target": item.target,
        "reason": item.reason,
        "claimPolicy": item.claim_policy,
        "parkedAt": item.parked_at,
        "preview": item.preview,
        "bytes": item.size,
        "groups": list(item.groups),
        "returns": item.returns,
    }
    optional = {
        "targetSessionId": item.target_session_id,
        "targetAddress": item.target_address,
        "assignmentId": item.assignment_id,
        "expiresAt": item.expires_at,
        "returnReason": item.return_reason,
        "text": item.text,
    }
    document |= {member: value for member, value in optional.items() if value is not None}
    if item.attachments:
        document["attachments"] = described_attachments(item.attachments)
    return document


def described_attachments(attachments: tuple[Attachment, ...]) -> list[dict[str, str]]:
    """Return attachments as JSON objects."""
    return [
        {"type": each.type, "name": each.name, "content": each.content}
        | ({"language": each.language} if isinstance(each.language, str) else {})
        for each in attachments
    ]


def described_assignment(view: AssignmentView) -> dict[str, Any]:
    """Return an assignment as a JSON object."""
    document = {
        "assignmentId": view.id,
        "sourceMessageId": view.source_message_id,
        "inboxId": view.inbox_id,
        "mode": view.mode,
        "state": view.state,
        "sequence": view.sequence,
        "accepted": view.accepted,
        "assignedAt": view.assigned_at,
        "sessionId": view.session_id,
        "attempts": view.attempts,
    }
    optional = {"address": view.address, "acceptDeadline": view.accept_deadline}
    return document | {member: value for member, value in optional.items() if value is not None}


def described_work(work: Assignment) -> dict[str, Any]:
    """Return work that was just handed to this command as a JSON object, with what is to be done."""
    message: dict[str, Any] = {"id": work.source_message_id, "from": dict(work.sender.raw), "text": work.text}
    if work.attachments:
        message["attachments"] = described_attachments(work.attachments)
    return {
        "assignment": described_assignment(work.present),
        "message": message,
    }


def show_work(work: Assignment, arguments: Namespace, output: Output) -> None:
    """Print work that was handed to this command: what is to be done, and what to say of it when."""
    output.document({"ok": True, **described_work(work)})
    if output.as_json:
        return
    output.line(f"{who(work.sender.name, work.sender.id)} wants:")
    output.line(indented(work.text))
    for attachment in work.attachments:
        output.line(f"  --- {visible(attachment.name)}")
        output.line(indented(attachment.content))
    options = same_worker(arguments)
    name = quote(visible(work.id))
    if not work.accepted:
        within = ""
        if work.accept_deadline is not None:
            within = f" within {duration(work.accept_deadline - time.time() * 1000)}"
        output.line(f"  accept it{within} with: intercom assignment report{options} {name} accepted")
    output.line(f"  answer it with: intercom assignment reply{options} {name} TEXT")


def same_worker(arguments: Namespace) -> str:
    """Return the options with which another command acts under the same address, with a space before each."""
    given = [("--as", arguments.name), *(("--group", group) for group in arguments.groups or ())]
    given.append(("--home", arguments.home))
    return "".join(f" {option} {quote(value)}" for option, value in given if value is not None)
