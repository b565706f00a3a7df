"""Delete texts and history that the broker keeps."""

from __future__ import annotations

from argparse import Namespace

from intercom.cli.arguments import Parser, add_group, add_home, add_json, add_span, add_timeout, clean
from intercom.cli.identity import opened, paths_of, time_left
from intercom.cli.person import require_person
from intercom.cli.render import Output
from intercom.errors import UsageError
from intercom.limits import REQUEST_MS

USAGE = ""
DESCRIPTION = """Delete from the disk the texts of mail that was handed over or given up, which are kept for a day, and
the history that `intercom trace` shows. Mail that still waits stays, unless its address is named with --address: then
its senders are told that it is undeliverable.

This is for the person to do.
"""


def configure(parser: Parser) -> None:
    """Add the options of ``purge``."""
    add_span(parser, "--older-than", "only what is older")
    parser.add_argument("--address", metavar="NAME", type=clean, help="delete the mail that waits at this address too")
    add_json(parser)
    add_group(parser)
    add_timeout(parser, f"longest wait for the broker (default {REQUEST_MS // 1000})")
    add_home(parser)
    parser.set_defaults(name=None)


def run(arguments: Namespace, output: Output) -> int:
    """Delete and return 0."""
    paths_of(arguments)  # first: a system without Unix sockets says so
    require_person("deleting what the broker keeps")
    if arguments.groups and arguments.address is None:
        raise UsageError("--group tells addresses apart", hint="Name one with --address, or leave --group out.")
    with opened(arguments, "purge", purpose="control", default_ms=REQUEST_MS) as session:
        done = session.purge(
            older_than=arguments.older_than,
            address=arguments.address,
            group=arguments.groups[0] if arguments.groups else None,
            timeout=time_left(arguments, REQUEST_MS),
        )
    output.document({"ok": True, "mail": done.mail})
    output.line(f"deleted; {done.mail} waiting messages were given up")
    return 0
