"""Have the later commands of this identity act in fewer groups."""

from __future__ import annotations

from argparse import Namespace

from intercom.cli.arguments import Parser, add_home, add_json, add_name
from intercom.cli.identity import paths_of
from intercom.cli.join import known_identity, tell
from intercom.cli.render import Output
from intercom.client.memberships import change
from intercom.client.profile import DEFAULT_GROUP, checked_group

USAGE = "[GROUP...]"
DESCRIPTION = """Leave groups that were joined with `intercom join`; without GROUP all of them but `default`.

Like `join` this changes no running session, only what later commands of the same identity do. Leaving a group one is
not in is no error. Who leaves the last group is in `default` again.
"""


def configure(parser: Parser) -> None:
    """Add the options of ``leave``."""
    parser.add_argument("words", nargs="*", metavar="GROUP", help="the group to be in no more")
    add_json(parser)
    add_name(parser)
    add_home(parser)


def run(arguments: Namespace, output: Output) -> int:
    """Forget the groups and return 0."""
    unwanted = {checked_group(word) for word in arguments.words}
    identity = known_identity(arguments)

    def left(present: tuple[str, ...]) -> tuple[str, ...]:
        if not unwanted:
            return (DEFAULT_GROUP,)
        return tuple(group for group in present if group not in unwanted) or (DEFAULT_GROUP,)

    tell(change(paths_of(arguments), identity, left), identity, output)
    return 0
