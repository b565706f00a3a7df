"""Show the groups that have a session in them."""

from __future__ import annotations

from argparse import Namespace

from intercom.cli.arguments import Parser, add_common
from intercom.cli.identity import opened, time_left
from intercom.cli.render import Output
from intercom.cli.tables import show_table
from intercom.limits import REQUEST_MS

USAGE = ""
DESCRIPTION = """Show every group with a session in it, how many, and whether commands like this one act in it.

Which groups there are is no secret among the sessions of one user; who is in them is shown only to who shares them.
The command itself is not counted. Never starts a broker; ends with 5 when none answers.
"""
HEAD = ("GROUP", "SESSIONS", "MINE")


def configure(parser: Parser) -> None:
    """Add the options of ``groups``."""
    add_common(parser, timeout=f"longest wait for the broker (default {REQUEST_MS // 1000})")


def run(arguments: Namespace, output: Output) -> int:
    """Print the groups and return 0."""
    with opened(arguments, "groups", purpose="control", default_ms=REQUEST_MS, start=False) as session:
        listed = session.list_groups(timeout=time_left(arguments, REQUEST_MS))
    found = sorted(listed, key=lambda entry: entry.group)
    output.document(
        {
            "ok": True,
            "groups": [
                {"group": entry.group, "sessionCount": entry.session_count, "member": entry.member} for entry in found
            ],
        }
    )
    if output.as_json:
        return 0
    rows = [(entry.group, str(entry.session_count), "yes" if entry.member else "-") for entry in found]
    if rows:
        show_table(output, HEAD, rows)
    else:
        output.line("nobody is here")
    return 0
