"""Show which questions wait for an answer of this identity."""

from __future__ import annotations

import time
from argparse import Namespace

from intercom.cli.arguments import Parser, add_common
from intercom.cli.identity import opened, time_left
from intercom.cli.person import add_me, address_of
from intercom.cli.render import Output, duration, who
from intercom.cli.tables import Fit, show_table
from intercom.limits import REQUEST_MS

USAGE = ""
DESCRIPTION = """Show the open questions that this identity (`intercom whoami`) owes an answer, the oldest first: also
those that another process under its address received. `intercom reply ID TEXT` answers one.

What was asked is not kept; only who received it knows the text. Starts a broker when none runs.
"""
HEAD = ("ASKED", "LEFT", "BY", "ID")


def configure(parser: Parser) -> None:
    """Add the options of ``pending``."""
    add_me(parser)
    add_common(parser, timeout=f"longest wait for the broker (default {REQUEST_MS // 1000})")


def run(arguments: Namespace, output: Output) -> int:
    """Print the questions and return 0."""
    address = address_of(arguments)
    with opened(arguments, "pending", default_ms=REQUEST_MS, hold="none", address=address) as session:
        asks = session.pending(timeout=time_left(arguments, REQUEST_MS))
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
    else:
        output.line("no open questions")
    return 0
