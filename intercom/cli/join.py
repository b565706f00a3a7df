"""Have the later commands of this identity act in one more group."""

from __future__ import annotations

from argparse import Namespace

from intercom.cli.arguments import Parser, add_home, add_json, add_name, group_name
from intercom.cli.identity import paths_of
from intercom.cli.render import Output, visible
from intercom.cli.who import identity_of
from intercom.client.memberships import change
from intercom.client.profile import checked_name
from intercom.client.who import Identity
from intercom.errors import PresenceRefused, UsageError
from intercom.limits import Limits

USAGE = "GROUP..."
DESCRIPTION = """Join groups: later commands of the same identity act in them without --group.

A command ends before anybody could reach it, so this changes no session: it is remembered in the home for the identity
of the command, which `intercom whoami` shows, and used by its next `list`, `send`, `ask`, `listen` and `groups`. A
session that is running, such as an `intercom listen`, stays in the groups it was started in. --group given to a later
command counts instead of what is remembered.

Who has joined nothing is in the group `default`, and stays in it: `intercom leave default` leaves it.
"""


def configure(parser: Parser) -> None:
    """Add the options of ``join``."""
    parser.add_argument("words", nargs="*", metavar="GROUP", help="the group to be in")
    add_json(parser)
    add_name(parser)
    add_home(parser)


def run(arguments: Namespace, output: Output) -> int:
    """Remember the groups and return 0."""
    if not arguments.words:
        raise UsageError("a group is missing", hint="`intercom groups` shows which groups there are.")
    wanted = [group_name(word) for word in arguments.words]
    identity = known_identity(arguments)

    def joined(present: tuple[str, ...]) -> tuple[str, ...]:
        groups = tuple(dict.fromkeys((*present, *wanted)))
        if len(groups) > Limits().groups:
            raise PresenceRefused(f"A session can be in at most {Limits().groups} groups")
        return groups

    tell(change(paths_of(arguments), identity, joined), identity, output)
    return 0


def known_identity(arguments: Namespace) -> Identity:
    """Return the identity of the command; raise ``UsageError`` for a guest, of whom nothing is remembered.

    A name that nobody may have is a ``UsageError`` too.
    """
    identity = identity_of(arguments)
    if identity.key is None:
        raise UsageError(
            "a guest is forgotten when its command ends, so it cannot join or leave a group",
            hint="Name yourself with --as NAME or INTERCOM_NAME, or give --group to each command.",
        )
    if identity.name is not None:
        checked_name(identity.name)
    return identity


def tell(groups: tuple[str, ...], identity: Identity, output: Output) -> None:
    """Say which groups the identity is in now."""
    output.document({"ok": True, "groups": list(groups), "name": identity.name, "rule": identity.rule})
    whose = identity.name if identity.name is not None else identity.about
    output.line(f"later commands of {visible(whose)} act in: {', '.join(visible(group) for group in groups)}")
