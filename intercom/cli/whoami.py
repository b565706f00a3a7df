"""Show as whom, in which groups and in which home a command like this one acts."""

from __future__ import annotations

from argparse import Namespace

from intercom.cli.arguments import Parser, add_group, add_home, add_json, add_name, clean
from intercom.cli.identity import groups_of, paths_of
from intercom.cli.render import Output, visible
from intercom.cli.who import identity_of
from intercom.client.profile import DEFAULT_GROUP, checked_group, checked_name

USAGE = ""
DESCRIPTION = """Show who a command run here is: its name, the rule its identity comes from, groups, home and socket.

The rules, the first that applies: `name`, given by --as or INTERCOM_NAME; `host`, the session variable of the nearest
agent host; `terminal`, this terminal session; `guest`, nothing of all that. Only a name can be seen by others. The
first three have an address in their home group, the first of the groups: what answers their commands waits there. Of a
guest nothing is remembered: it can send, and ask while it runs.

Never starts a broker or speaks with one.
"""


def configure(parser: Parser) -> None:
    """Add the options of ``whoami``."""
    add_json(parser)
    add_name(parser)
    add_group(parser)
    add_home(parser)


def run(arguments: Namespace, output: Output) -> int:
    """Print what is known and return 0."""
    paths = paths_of(arguments)
    identity = identity_of(arguments)
    name = None if identity.name is None else checked_name(identity.name)
    found = groups_of(arguments, paths)
    groups = [checked_group(group) for group in found] or [DEFAULT_GROUP]
    origin = "given" if arguments.groups else "joined" if found else "standard"
    output.document(
        {
            "ok": True,
            "name": name,
            "rule": identity.rule,
            "address": identity.address,
            "because": clean(identity.about),
            "groups": groups,
            "groupsFrom": origin,
            "home": clean(str(paths.home)),
            "socket": clean(str(paths.socket)),
        }
    )
    for label, value in (
        ("name", name or "-"),
        ("address", identity.address or "-"),
        ("identity", f"{identity.rule}: {identity.about}"),
        ("groups", ", ".join(groups) + {"given": " (by --group)", "joined": " (joined)", "standard": ""}[origin]),
        ("home", str(paths.home)),
        ("socket", str(paths.socket)),
    ):
        output.line(f"{label:<11} {visible(value)}")
    return 0
