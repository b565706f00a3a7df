"""Find out whether brokers on other machines can be reached from here, and change nothing."""

from __future__ import annotations

import os
from argparse import Namespace

from intercom.cli.arguments import Parser, add_home, add_json, add_timeout, clean
from intercom.cli.identity import paths_of, time_left
from intercom.cli.render import Output, visible
from intercom.config import load_settings
from intercom.errors import UsageError
from intercom.limits import CLUSTER_CHECK_MS

USAGE = "check"
DESCRIPTION = """`check` looks at what the table [cluster] of intercom.toml names: can its files be used, does a server
of the engine answer, are stream and buckets set up as they must be, do the brokers there have the same key, how are the
clocks and what waits to be fetched. Nobody needs to run a broker for it.

Ends with 0 when all is well, or when the settings name no server, and with 1 when something is wrong.
"""


def configure(parser: Parser) -> None:
    """Add the options of ``cluster``."""
    parser.add_argument("words", nargs="*", metavar="check", help="what to do")
    add_json(parser)
    add_timeout(parser, f"longest wait for the engine (default {CLUSTER_CHECK_MS // 1000})")
    add_home(parser)


def run(arguments: Namespace, output: Output) -> int:
    """Check, print what was found, and return 0 when all is well."""
    if arguments.words != ["check"]:
        raise UsageError("say `check`", hint="`intercom cluster --help` tells what it does.")
    settings = load_settings(paths_of(arguments), os.environ, {}).cluster
    if not settings.url:
        found = "off: intercom.toml names no server under [cluster]; `intercom docs cluster` shows how"
        output.document({"ok": True, "state": "ok", "checks": [{"id": "settings", "state": "ok", "found": found}]})
        output.line(found)
        return 0
    from intercom.cluster.nats.inspection import Checked, run_check

    try:
        checked = run_check(settings, time_left(arguments, CLUSTER_CHECK_MS))
    except TimeoutError:
        checked = [Checked("engine", "bad", "it does not answer in time")]
    bad = next((each for each in checked if each.state == "bad"), None)
    checks = [{"id": each.id, "state": each.state, "found": clean(each.found)} for each in checked]
    if bad is None:
        output.document({"ok": True, "state": "ok", "checks": checks})
    else:
        reason = clean(f"{bad.id}: {bad.found}")
        output.failure(
            {"code": "cluster_unavailable", "reason": reason, "retry": "after", "state": "bad", "checks": checks}
        )
    for each in checked:
        output.line(f"{each.state:<8} {each.id:<8} {visible(each.found)}")
    return 0 if bad is None else 1
