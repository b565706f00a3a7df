"""Show what is on its way to other machines, hurry it, or give it up."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from intercom.cli.arguments import Parser, add_home, add_json, add_timeout, clean
from intercom.cli.identity import opened, time_left
from intercom.cli.person import require_person
from intercom.cli.render import Output, duration, visible
from intercom.cli.tables import Fit, show_table
from intercom.errors import RequestRefused, UsageError
from intercom.limits import MAILBOX_PAGE_CEILING, REQUEST_MS

if TYPE_CHECKING:
    from intercom.client.mailviews import OutboxItem

USAGE = "list | show ID | retry ID | cancel ID"
DESCRIPTION = """`list` shows what is on its way to other machines, or waits for them, the oldest first: messages whose
outcome is not known yet, mail for who is at home elsewhere, tasks, and steps of flows and their reports.

    accepted    it is stored here, and the engine has not said that it has it
    posted      the engine has it, or gets it once it can be reached; what became of it is not known yet
    deferred    it waits here, and is brought away when its machine is back
    peer_acked  a task that its machine has; running: that is done there

`show ID` shows one entry. `retry ID` brings it away now, and lets its time begin anew; nothing arrives twice by that.
`cancel ID` gives a message up, which is for the person to do: its sender is told, unless it waits itself. What was
posted may arrive all the same. A task is ended by `intercom invocation cancel`, a flow by `intercom flow cancel`.

Starts a broker when none runs. Ends with 3 when nothing of this id is in the outbox.
"""
HEAD = ("FOR", "ON", "KIND", "STATE", "SINCE", "TRIES", "ID")
_ONE = ("show", "retry", "cancel")


def configure(parser: Parser) -> None:
    """Add the options of ``outbox``."""
    parser.add_argument("words", nargs="*", metavar=USAGE, help="what to do; without anything `list`")
    parser.add_argument("--node", metavar="NODE", type=clean, help="with list: only what is for this machine")
    add_json(parser)
    add_timeout(parser, f"longest wait for the broker (default {REQUEST_MS // 1000})")
    add_home(parser)
    parser.set_defaults(name=None, groups=None)


def run(arguments: Namespace, output: Output) -> int:
    """Do it and return 0."""
    words = arguments.words or ["list"]
    if words == ["list"]:
        return _list(arguments, output)
    if len(words) != 2 or words[0] not in _ONE or arguments.node is not None:
        raise UsageError(f"say {USAGE}", hint="`intercom outbox --help` tells what they do.")
    what, delivery_id = words
    if what == "cancel":
        require_person("giving up what is in the outbox")
    with opened(arguments, "outbox", purpose="control", default_ms=REQUEST_MS) as session:
        timeout = time_left(arguments, REQUEST_MS)
        if what == "show":
            return _show(session.outbox(delivery_id=delivery_id, timeout=timeout).entries, delivery_id, output)
        if what == "retry":
            session.retry_outbox(delivery_id, timeout=timeout)
        else:
            session.cancel_outbox(delivery_id, timeout=timeout)
    output.document({"ok": True, "id": delivery_id})
    output.line("it is brought away now" if what == "retry" else "given up")
    return 0


def _list(arguments: Namespace, output: Output) -> int:
    with opened(arguments, "outbox", purpose="control", default_ms=REQUEST_MS) as session:
        page = session.outbox(peer=arguments.node, limit=MAILBOX_PAGE_CEILING, timeout=time_left(arguments, REQUEST_MS))
    output.document({"ok": True, "entries": [described(each) for each in page.entries], "left": page.left})
    if output.as_json:
        return 0
    now = time.time() * 1000
    rows = [
        (
            each.target,
            each.node,
            each.kind,
            each.status.replace("_", " "),
            f"{duration(now - each.queued_at)} ago",
            str(each.attempts),
            each.delivery_id,
        )
        for each in page.entries
    ]
    if not rows:
        output.line("nothing is on its way to another machine")
        return 0
    show_table(output, HEAD, rows, Fit(whole=("ID",), names=("FOR", "ON"), left_out=("TRIES", "KIND")))
    if page.left:
        output.note(f"{page.left} more are not shown")
    return 0


def _show(entries: tuple[OutboxItem, ...], delivery_id: str, output: Output) -> int:
    if not entries:
        raise RequestRefused(
            f"nothing with the id {delivery_id} is in the outbox: its outcome is known, or it never was",
            code="unknown_delivery",
        )
    [entry] = entries
    output.document({"ok": True, "entry": described(entry)})
    for name, value in described(entry).items():
        if value is not None:
            output.line(f"{name:<14} {visible(str(value))}")
    return 0


def described(entry: OutboxItem) -> dict[str, Any]:
    """Return an entry as a JSON object."""
    return {
        "id": entry.delivery_id,
        "kind": entry.kind,
        "state": entry.status,
        "target": entry.target,
        "node": entry.node,
        "peer": entry.peer,
        "attempts": entry.attempts,
        "queuedAt": entry.queued_at,
        "nextAttemptAt": entry.next_attempt_at,
        "messageId": entry.message_id,
        "invocationId": entry.invocation_id,
        "bytes": entry.size,
        "detail": entry.detail,
    }
