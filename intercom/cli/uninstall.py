"""Undo what ``install`` did."""

from __future__ import annotations

from argparse import Namespace

from intercom.cli import install
from intercom.cli.arguments import Parser
from intercom.cli.foreign import HOSTS
from intercom.cli.linking import uninstall_steps
from intercom.cli.render import Output

USAGE = install.USAGE
DESCRIPTION = """Give the clients of Atomic or pi their own directory back, with what was in it before.

Settings in config.json that were changed since are carried over into it. The broker and its files stay as they are.
"""


def configure(parser: Parser) -> None:
    """Add the options of ``uninstall``."""
    install.configure(parser)


def run(arguments: Namespace, output: Output) -> int:
    """Uninstall and return 0."""
    if not install.carry_out(arguments, output, uninstall_steps):
        output.line(f"nothing to undo: clients of {HOSTS[arguments.host].title} do not meet at the home")
    return 0
