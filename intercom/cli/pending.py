"""Show which questions wait for an answer of this identity, and which tasks were given to it."""

from __future__ import annotations

import time
from argparse import Namespace

from intercom.cli.arguments import Parser, add_common
from intercom.cli.identity import opened, time_left
from intercom.cli.invoked import described, open_tasks
from intercom.cli.messages import how_to_report, same_identity
from intercom.cli.person import add_me, address_of
from intercom.cli.render import Output, duration, who
from intercom.cli.tables import Fit, show_table
from intercom.limits import REQUEST_MS

USAGE = ""
DESCRIPTION = """Show the open questions that this identity (`intercom whoami`) owes an answer, the oldest first: also
those that another process under its address received. `intercom reply ID TEXT` answers one.

What was asked is not kept; only who received it knows the text.

Shows too which tasks (`intercom invoke`) this identity was given that have not ended, with the command that reports
them; `intercom invocation show ID` tells what is to be done. Starts a broker when none runs.
"""
HEAD = ("ASKED", "LEFT", "BY", "ID")
TASKS = ("GIVEN", "STATE", "ACTION", "ID")


def configure(parser: Parser) -> None:
    """Add the options of ``pending``."""
    add_me(parser)
    add_common(parser, timeout=f"longest wait for the broker (default {REQUEST_MS // 1000})")


def run(arguments: Namespace, output: Output) -> int:
    """Print the questions and return 0."""
    address = address_of(arguments)
    with opened(arguments, "pending", default_ms=REQUEST_MS, hold="none", address=address) as session:
        asks = session.pending(timeout=time_left(arguments, REQUEST_MS))
        tasks = open_tasks(session, lambda: time_left(arguments, REQUEST_MS))
    output.document(
        {
            "ok": True,
            "questions": [
                {
                    "messageId": ask.message_id,
                    "askerId": ask.asker_id,
                    "askerName": ask.asker_name,
                    "askerIsHere": ask.asker_is_here,
                    "askedAt": ask.asked_at,
                    "deadline": ask.deadline,
                }
                for ask in asks
            ],
            "tasks": [described(task) for task in tasks],
        }
    )
    if output.as_json:
        return 0
    now = time.time() * 1000
    rows = [
        (
            f"{duration(now - ask.asked_at)} ago",
            duration(ask.deadline - now),
            who(ask.asker_name, ask.asker_id) + ("" if ask.asker_is_here else " (away)"),
            ask.message_id,
        )
        for ask in asks
    ]
    if rows:
        show_table(output, HEAD, rows, Fit(whole=("ID",), names=("BY",)))
    elif not tasks:
        output.line("no open questions")
    if tasks:
        given = [(f"{duration(now - task.created_at)} ago", task.state, task.action, task.id) for task in tasks]
        show_table(output, TASKS, given, Fit(whole=("ID",)))
        output.note(f"report with: {how_to_report('ID', same_identity(arguments), 'completed')}")
    return 0
