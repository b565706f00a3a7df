"""Show who waits for whom."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from intercom.cli.arguments import Parser, add_common
from intercom.cli.identity import opened, time_left
from intercom.cli.render import Output, duration
from intercom.cli.tables import Fit, show_table
from intercom.limits import REQUEST_MS

if TYPE_CHECKING:
    from intercom.client.attending import Wait

USAGE = ""
DESCRIPTION = """Show every question that is not answered, the oldest first: who waits, for whom, and for how long.

A question is `open` when the other side has it, `under way` before that, `queued` while it waits in a mailbox, and
`asker away` while who asked has lost its connection. Nobody ends up waiting for itself: an ask that would close a
circle is refused, and says who is in it (code `would_deadlock`).

Starts a broker when none runs.
"""
HEAD = ("WAITS", "FOR", "SINCE", "STATE", "ID")


def configure(parser: Parser) -> None:
    """Add the options of ``waits``."""
    add_common(parser, timeout=f"longest wait for the broker (default {REQUEST_MS // 1000})")


def run(arguments: Namespace, output: Output) -> int:
    """Print the waits and return 0."""
    with opened(arguments, "waits", purpose="control", default_ms=REQUEST_MS) as session:
        found = session.waits(timeout=time_left(arguments, REQUEST_MS))
    output.document({"ok": True, "waits": [described(wait) for wait in found.waits], "total": found.total})
    if output.as_json:
        return 0
    now = time.time() * 1000
    rows = [
        (wait.asker, wait.target, f"{duration(now - wait.since)} ago", wait.state.replace("_", " "), wait.message_id)
        for wait in found.waits
    ]
    if not rows:
        output.line("nobody waits for an answer")
        return 0
    show_table(output, HEAD, rows, Fit(whole=("ID",), names=("WAITS", "FOR"), left_out=("STATE",)))
    if found.total > len(rows):
        output.note(f"{found.total - len(rows)} more are not shown")
    return 0


def described(wait: Wait) -> dict[str, Any]:
    """Return a wait as a JSON object."""
    return {
        "messageId": wait.message_id,
        "state": wait.state,
        "asker": wait.asker,
        "askerId": wait.asker_id,
        "target": wait.target,
        "targetId": wait.target_id,
        "since": wait.since,
        "deadline": wait.deadline,
    }
