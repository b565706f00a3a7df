"""Ask the broker to leave and wait until it has."""

from __future__ import annotations

import time
from argparse import Namespace

from intercom.cli.arguments import Parser, add_common
from intercom.cli.ending import end
from intercom.cli.identity import MOMENT_S, paths_of, time_left
from intercom.cli.render import Output
from intercom.cli.status import quiet_report
from intercom.limits import STOP_WAIT_MS
from intercom.paths import Paths

USAGE = ""
DESCRIPTION = """Ask the broker to leave, and return when its process is gone. Nothing that was delivered is lost.

Sessions that are still there start a new broker and go on. Ends with 5 when no broker answers.
"""


def configure(parser: Parser) -> None:
    """Add the options of ``stop``."""
    add_common(parser, timeout=f"longest wait for its end (default {STOP_WAIT_MS // 1000})")


def run(arguments: Namespace, output: Output) -> int:
    """Stop the broker and return 0."""
    pid = stop(paths_of(arguments), time_left(arguments, STOP_WAIT_MS))
    output.document({"ok": True, "pid": pid})
    output.line(f"stopped the broker (pid {pid})")
    return 0


def stop(paths: Paths, seconds: float) -> int:
    """Stop the broker of a home and return the process id it had.

    ``seconds`` bounds it all. Raises what ``intercom.client.control.health`` and ``end`` raise.
    """
    until = time.monotonic() + seconds
    report = quiet_report(paths, seconds)
    end(paths, report, max(MOMENT_S, until - time.monotonic()))
    return int(report["pid"])
