"""Be the MCP server of an agent host, or the bell that a host listens to."""

from __future__ import annotations

from argparse import Namespace

from intercom.cli.arguments import Parser, add_group, add_home, add_name
from intercom.cli.identity import paths_of
from intercom.cli.render import Output
from intercom.cli.who import name_of
from intercom.client.profile import checked_group
from intercom.errors import IntercomError

USAGE = ""
DESCRIPTION = """Be an MCP server on standard input and output: the agent of the host that starts it gets the tools
list, send, ask, reply, pending, receive, join, leave and status, and is told of messages by the best way its host has.
Hosts start it themselves; `intercom install HOST` writes the entry. It ends with its host.

It acts under the address of the session of the host, the one that commands run in that session have, too
(`intercom docs hosts` says for each host how that is known). With --as it acts under that name instead.

With --worker what others send it is work: it waits in the inbox until the agent takes it with the tool work, and the
tool finish hands in the result.

With --bell it is no server but prints a line whenever messages wait in the session of the nearest host: what a monitor
of a Claude Code plugin reads. That ends with the adapter.

Needs the package `mcp`: install `intercom-broker[mcp]`.
"""
HOSTS = ("claude", "codex", "opencode", "gemini", "pi", "atomic", "generic")


class NoSdk(IntercomError):
    """Say that the package for MCP is not installed."""

    code = "no_mcp"
    exit_status = 1
    hint = "Run `pip install 'intercom-broker[mcp]'` in the environment of this command."


def configure(parser: Parser) -> None:
    """Add the options of ``mcp``."""
    parser.add_argument("--host", choices=HOSTS, help="the host (default: what its MCP client calls itself)")
    parser.add_argument("--bell", action="store_true", help="print a line whenever messages wait")
    parser.add_argument("--worker", action="store_true", help="take work from the inbox: the tools work and finish")
    parser.add_argument("--no-inbox", action="store_true", help="do not use the inbox socket of Claude Code")
    parser.add_argument("--json", action="store_true", help="print bells, and why it cannot serve, as JSON documents")
    add_name(parser)
    add_group(parser)
    add_home(parser)


def run(arguments: Namespace, output: Output) -> int:
    """Serve until the host ends."""
    paths = paths_of(arguments)
    if arguments.bell:
        from intercom.client.bell import ring

        def line(text: str) -> None:
            output.document({"ok": True, "event": "bell", "text": text})
            output.line(text)

        return ring(paths, arguments.host, line, lambda: output.closed)
    groups = tuple(checked_group(group) for group in arguments.groups or ())
    name = name_of(arguments)
    try:
        import mcp  # noqa: F401 - its absence is to be told from any other fault
    except ModuleNotFoundError as error:
        if error.name != "mcp":
            raise
        raise NoSdk("the package mcp is not installed") from error
    from intercom.mcp.seats import Options
    from intercom.mcp.server import serve

    serve(Options(paths, arguments.host, name, groups, inbox=not arguments.no_inbox, works=arguments.worker))
