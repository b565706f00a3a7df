"""Undo what ``install`` did."""

from __future__ import annotations

import os
from argparse import Namespace

from intercom.cli.arguments import Parser
from intercom.cli.foreign import HOSTS
from intercom.cli.identity import paths_of
from intercom.cli.install import add_host, add_rest, carry_out, host_of, link_place, wish_of
from intercom.cli.linking import uninstall_steps as unlink_steps
from intercom.cli.render import Output
from intercom.hosts import facts

USAGE = "HOST"
DESCRIPTION = """Take out of the files of an agent host what `intercom install` entered.

A file that nobody changed since becomes byte for byte what it was, a file that was made goes, and so do directories
that were made and are empty then. Of a file that was changed only our entries go. The clients of Atomic and pi get
their own directory back, with what was in it before; settings in config.json that were changed since are carried over
into it. The broker and its files stay as they are.
"""


def configure(parser: Parser) -> None:
    """Add the options of ``uninstall``."""
    add_host(parser)
    add_rest(parser)


def run(arguments: Namespace, output: Output) -> int:
    """Uninstall and return 0."""
    host = host_of(arguments)
    if host in HOSTS:
        steps = unlink_steps(HOSTS[host], paths_of(arguments), os.environ)
        if not carry_out(arguments, output, steps, link_place(arguments)):
            output.line(f"nothing to undo: clients of {HOSTS[host].title} do not meet at the home")
        return 0
    from intercom.hosts.installing import uninstall_steps

    found, wish = facts.facts(host), wish_of(arguments)
    if not carry_out(arguments, output, uninstall_steps(found, wish), found.directory(wish)):
        output.line(f"nothing to undo: {found.title} is not installed")
    return 0
