"""Show the addresses: durable names at which mail waits."""

from __future__ import annotations

import time
from argparse import Namespace

from intercom.cli.arguments import Parser, add_home, add_json, add_timeout
from intercom.cli.identity import opened, time_left
from intercom.cli.render import Output, duration
from intercom.cli.tables import Fit, show_table
from intercom.limits import REQUEST_MS

USAGE = ""
DESCRIPTION = """Show the addresses of this home: their name and home group, the session that receives for each, and how
much waits there since when. An address outlives sessions, commands and brokers; mail waits there while nobody receives.

Names such as `terminal-...` are those of commands that have no name of their own. Starts a broker when none runs.
"""
HEAD = ("NAME", "GROUP", "RECEIVES", "WAITING", "OLDEST", "LAST HELD")


def configure(parser: Parser) -> None:
    """Add the options of ``addresses``."""
    add_json(parser)
    add_timeout(parser, f"longest wait for the broker (default {REQUEST_MS // 1000})")
    add_home(parser)
    parser.set_defaults(name=None, groups=None)


def run(arguments: Namespace, output: Output) -> int:
    """Print the addresses and return 0."""
    with opened(arguments, "addresses", purpose="control", default_ms=REQUEST_MS) as session:
        found = session.addresses(timeout=time_left(arguments, REQUEST_MS))
    output.document(
        {
            "ok": True,
            "addresses": [
                {
                    "name": address.name,
                    "group": address.group,
                    "groups": list(address.groups),
                    "holder": address.holder,
                    "holderState": address.holder_state,
                    "waiting": address.mailbox_count,
                    "bytes": address.mailbox_bytes,
                    "oldestAt": address.oldest_at,
                    "createdAt": address.created_at,
                    "lastHeldAt": address.last_held_at,
                }
                for address in found
            ],
        }
    )
    if output.as_json:
        return 0
    now = time.time() * 1000
    rows = [
        (
            address.name,
            address.group or "-",
            "-" if address.holder is None else f"{address.holder} ({address.holder_state or 'active'})",
            str(address.mailbox_count),
            "-" if address.oldest_at is None else f"{duration(now - address.oldest_at)} ago",
            f"{duration(now - address.last_held_at)} ago",
        )
        for address in found
    ]
    if rows:
        show_table(output, HEAD, rows, Fit(whole=("RECEIVES",), names=("NAME",), left_out=("LAST HELD", "OLDEST")))
    else:
        output.line("no addresses")
    return 0
