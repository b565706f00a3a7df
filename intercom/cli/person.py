"""Keep verbs that speak for the person away from agents (design section 7, Trust).

All processes of a user are one domain, so this stops no one who means harm; it stops an agent that follows advice.
"""

from __future__ import annotations

import os
from argparse import Namespace

from intercom.cli.arguments import Parser
from intercom.cli.who import identity_of
from intercom.client.profile import PERSON
from intercom.client.who import host_markers
from intercom.errors import IntercomError, UsageError


class NotAPerson(IntercomError):
    """Say that a verb is for the person at the terminal, and why this process does not look like one."""

    code = "not_a_person"
    exit_status = 7
    hint = "Ask the person to run it in a terminal of their own."


def add_me(parser: Parser) -> None:
    """Add ``--me``."""
    parser.add_argument("--me", action="store_true", help="act as the person, under @me")


def address_of(arguments: Namespace) -> str:
    """Return the address the command acts under; raise ``NotAPerson`` or, for a guest, ``UsageError``."""
    if arguments.me:
        require_person("acting as the person")
        return PERSON
    address = identity_of(arguments).address
    if address is None:
        raise UsageError("a guest has no address", hint="Name yourself with --as NAME or INTERCOM_NAME.")
    return address


def require_person(what: str) -> None:
    """Raise ``NotAPerson`` unless standard input is a terminal and no agent host has marked the environment."""
    markers = host_markers(os.environ)
    if markers:
        raise NotAPerson(f"{what} is for the person, and {markers[0]} says that an agent host runs this")
    if not os.isatty(0):
        raise NotAPerson(f"{what} is for the person, and standard input is not a terminal")
