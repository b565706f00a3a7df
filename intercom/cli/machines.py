"""Tell what this machine is called among those of a cluster."""

from __future__ import annotations

from argparse import Namespace

from intercom.cli.identity import paths_of, time_left
from intercom.client.control import broker_status
from intercom.errors import IntercomError


def machine_here(arguments: Namespace, default_ms: int) -> str:
    """Return what the broker calls this machine, or nothing where it does not tell.

    It is asked within the time that the verb has left, ``default_ms`` without ``--timeout``.
    """
    try:
        found = broker_status(paths_of(arguments), timeout=time_left(arguments, default_ms)).get("multiNode")
    except IntercomError:
        return ""
    node = found.get("node") if isinstance(found, dict) else None
    return node if isinstance(node, str) else ""
