"""Test what this machine is said to be called."""

from __future__ import annotations

import time
from argparse import Namespace

from intercom.cli.machines import machine_here
from tests.support.commands import Shell


def test_a_broker_that_is_in_no_cluster_or_not_there_names_none(shell: Shell) -> None:
    """Off without the setting, and what cannot be told costs nobody their list."""
    arguments = Namespace(home=str(shell.home), timeout=None, began=time.monotonic())
    assert machine_here(arguments, 1_000) == ""
    shell.serve()
    assert machine_here(arguments, 5_000) == ""
