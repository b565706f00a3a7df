"""Have the broker finish what is open, take nothing new meanwhile, and leave."""

from __future__ import annotations

from argparse import Namespace

from intercom.cli.arguments import Parser, add_common
from intercom.cli.ending import watched
from intercom.cli.identity import paths_of, time_left
from intercom.cli.render import Output
from intercom.cli.status import quiet_report
from intercom.client.control import drain
from intercom.errors import ConnectionLost, IntercomError, NoBroker, RequestTimeout
from intercom.limits import DRAIN_MS, REQUEST_MS, STOP_WAIT_MS
from intercom.wire.frames import BrokerDrained

USAGE = "drain"
DESCRIPTION = """Have the broker leave once what its sessions are busy with has ended.

    drain  questions that are open, work that was handed out, steps of flows, invocations and commands may end, for
           --timeout; new ones are refused, and clients of ours make them again with the next broker. Messages and
           answers go on. Then the broker leaves, whatever is left: that is on disk, and the next broker goes on with
           it. Ending the wait, as with Ctrl-C, does not end the draining; `intercom status` shows it

Sessions that are still there start a new broker. `intercom stop` does not wait for anything. Ends with 0 when all had
ended, with 6 when the time was up before, and with 5 when no broker answers.
"""


class NotFinished(IntercomError):
    """Say that the broker has left and that some of what was open had not ended."""

    code = "not_finished"
    retry = "never"
    exit_status = 6
    hint = "Nothing is lost: the next broker goes on with it. Give more --timeout next time to wait longer."


class LeftMeanwhile(IntercomError):
    """Say that the broker was there and had left before it could be drained: another one had it leave."""

    code = "left_meanwhile"
    retry = "never"
    exit_status = 6
    hint = "Nothing is lost: the next broker goes on with it. `intercom log` tells what was open."


def configure(parser: Parser) -> None:
    """Add the options of ``broker``."""
    parser.add_argument("what", choices=("drain",), metavar="WHAT", help="drain")
    add_common(parser, timeout=f"how long what is open may go on (default {DRAIN_MS // 1000})")


def run(arguments: Namespace, output: Output) -> int:
    """Drain the broker and return 0 when everything had ended."""
    paths = paths_of(arguments)
    seconds = time_left(arguments, DRAIN_MS)
    report = quiet_report(paths, REQUEST_MS / 1000)
    pid = int(report["pid"])
    with watched(report, paths) as process:
        if not output.as_json:
            output.note(f"draining the broker (pid {pid}) for at most {arguments.timeout or DRAIN_MS / 1000:g} s")
        try:
            drained = drain(paths, seconds)
        except (NoBroker, ConnectionLost) as gone:
            if not process.wait(STOP_WAIT_MS / 1000):
                raise
            raise LeftMeanwhile(f"The broker (pid {pid}) left before it said what was open") from gone
        if not process.wait(STOP_WAIT_MS / 1000):
            raise RequestTimeout(
                f"The broker (pid {pid}) was drained and is still there",
                hint="`intercom status` shows whether it still answers.",
            )
    document = {"pid": pid, "finished": drained.finished, "open": drained.open, "failed": drained.failed}
    if drained.finished:
        output.document({"ok": True, **document})
        output.line(f"stopped the broker (pid {pid}); everything had ended")
        return 0
    error = NotFinished(f"The broker (pid {pid}) has stopped; {_left(drained)}")
    output.failure({**error.as_dict(), **document})
    if not output.as_json:
        output.note(f"intercom: {error.reason}. {error.hint}")
    return error.exit_status


def _left(drained: BrokerDrained) -> str:
    parts = [f"{count} {kind if count != 1 else kind.removesuffix('s')}" for kind, count in drained.open.items()]
    told = [f"still open: {', '.join(parts)}"] if parts else []
    return "; ".join([*told, *drained.failed])
