"""Ask the broker to leave and wait until it has."""

from __future__ import annotations

import time
from argparse import Namespace
from contextlib import suppress
from typing import Any

from intercom.cli.arguments import Parser, add_common
from intercom.cli.ending import watched
from intercom.cli.identity import MOMENT_S, paths_of, time_left
from intercom.cli.render import Output
from intercom.cli.status import quiet_report
from intercom.client.control import shutdown
from intercom.errors import ConnectionLost, NoBroker, RequestTimeout
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


def end(paths: Paths, report: dict[str, Any], seconds: float) -> None:
    """Ask the broker that gave this report to leave, and wait until it is gone, also when it goes by itself.

    ``seconds`` bounds it all. Raises ``RequestTimeout`` when it is still there, ``BrokerBusy`` or ``AccessDenied``.
    """
    until = time.monotonic() + seconds
    with watched(report, paths) as process:
        with suppress(ConnectionLost, NoBroker):
            shutdown(paths, timeout=seconds)
        if not process.wait(max(MOMENT_S, until - time.monotonic())):
            raise RequestTimeout(
                f"The broker (pid {report['pid']}) was asked to leave and is still there",
                hint="`intercom status` shows whether it still answers.",
            )
