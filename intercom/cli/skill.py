"""Print what a model is to know about talking with other sessions."""

from __future__ import annotations

import shlex
from argparse import Namespace

from intercom.cli.arguments import Parser, add_home, add_json
from intercom.cli.render import Output
from intercom.client.program import this_command
from intercom.hosts.skill import paragraph, skill

USAGE = ""
DESCRIPTION = """Print the skill that `intercom install` puts into hosts, for hosts and places that it does not know.

--paragraph prints a shorter text instead, for AGENTS.md or CLAUDE.md, between two marks by which it can be found again.
"""


def configure(parser: Parser) -> None:
    """Add the options of ``skill``."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--print", dest="wants_skill", action="store_true", help="print the skill, as without an option")
    what.add_argument("--paragraph", action="store_true", help="print the paragraph for AGENTS.md or CLAUDE.md")
    add_json(parser)
    add_home(parser)


def run(arguments: Namespace, output: Output) -> int:
    """Print a text and return 0."""
    text = paragraph() if arguments.paragraph else skill(shlex.join([*this_command("skill"), "list"]))
    output.document({"ok": True, "text": text})
    output.line(text.rstrip("\n"))
    return 0
