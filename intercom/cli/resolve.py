"""Tell whom a label means."""

from __future__ import annotations

from argparse import Namespace

from intercom.cli.arguments import Parser, add_common, clean
from intercom.cli.identity import opened, time_left
from intercom.cli.invoked import described_route
from intercom.cli.render import Output, visible
from intercom.errors import UsageError
from intercom.limits import REQUEST_MS

USAGE = "LABEL"
DESCRIPTION = """Tell whom a label means, as `intercom invoke` would take it, without asking anything of them:

    [@]name[.workspace[.node]][.key:value ...][#harness][?model]
    name@node

Keys are workspace (worktree, branch), profile (persona), harness (runtime), model and node (host). An id of a session
may stand in its place. Ends with 3 when nobody is called so, with 4 when several are: it prints labels that lead to one
each. Starts a broker when none runs.
"""


def configure(parser: Parser) -> None:
    """Add the options of ``resolve``."""
    parser.add_argument("words", nargs="*", metavar="LABEL", type=clean, help="the label")
    add_common(parser, timeout=f"longest wait for the broker (default {REQUEST_MS // 1000})")


def run(arguments: Namespace, output: Output) -> int:
    """Print whom it means and return 0."""
    if len(arguments.words) != 1:
        raise UsageError("name one label", hint="`intercom resolve LABEL`.")
    with opened(arguments, "resolve", default_ms=REQUEST_MS) as session:
        route = session.resolve(arguments.words[0], timeout=time_left(arguments, REQUEST_MS))
    output.document({"ok": True, "target": described_route(route)})
    output.line(f"{visible(route.label)}: {visible(route.name)} {visible(route.target_id)}, {route.state}")
    return 0
