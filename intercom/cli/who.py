"""Decide whose command this is, by its options and what surrounds it (``intercom.client.who``)."""

from __future__ import annotations

from argparse import Namespace

from intercom.client.who import Identity, given_name, identity

ASKED_VARIABLES = ("INTERCOM_MESSAGE_ID", "INTERCOM_SENDER_ID", "INTERCOM_SENDER_NAME")
"""What tells the command of ``listen --answer`` which question it is at work on, and who asked it."""


def name_of(arguments: Namespace) -> str | None:
    """Return the name the command acts under, ``None`` without one; raise ``UsageError`` for a bad one."""
    return given_name(arguments.name)


def identity_of(arguments: Namespace) -> Identity:
    """Return the identity of this command; raise ``UsageError`` for a bad name."""
    return identity(arguments.name)
