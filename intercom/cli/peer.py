"""Show which brokers of other machines are there, and ask one for a sign of life."""

from __future__ import annotations

import os
from argparse import Namespace
from typing import Any

from intercom.cli.arguments import Parser, add_home, add_json, add_timeout
from intercom.cli.identity import paths_of, time_left
from intercom.cli.render import Output, visible
from intercom.cli.status import quiet_report
from intercom.cli.tables import Fit, show_table
from intercom.config import load_settings
from intercom.errors import IntercomError, UsageError
from intercom.limits import CLUSTER_CHECK_MS, REQUEST_MS

USAGE = "list | ping NODE"
DESCRIPTION = """`list` shows the brokers of other machines that the broker of this one knows to be there, and how the
way to them is. It starts no broker. SESSIONS, `names` with --json, says how many sessions each answers for.

`ping NODE` asks the broker of that machine for a sign of life, past the broker of this one, and prints how long that
took; in place of the name of the machine stands the id of its broker, or eight characters or more with which it begins.
"""


class NoCluster(IntercomError):
    """Say that the settings name no way to other machines."""

    code = "no_cluster"
    hint = "`intercom docs cluster` shows what to write into intercom.toml."


class NoPeer(IntercomError):
    """Say that no broker is called so, or more than one."""

    code = "unknown_peer"
    exit_status = 3
    hint = "`intercom peer list` shows which are there."


class EngineTrouble(IntercomError):
    """Say that the engine between the brokers cannot be used."""

    code = "cluster_unavailable"
    exit_status = 5
    retry = "after"
    hint = "`intercom cluster check` looks for the cause."


class PeerSilent(IntercomError):
    """Say that a broker holds its place and does not answer."""

    code = "peer_silent"
    exit_status = 6
    retry = "after"
    hint = "Its place ends by itself in a few seconds if it is gone; then `intercom peer list` does not show it."


def configure(parser: Parser) -> None:
    """Add the options of ``peer``."""
    parser.add_argument("words", nargs="*", metavar="list | ping NODE", help="what to do")
    add_json(parser)
    add_timeout(parser, f"longest wait (default {REQUEST_MS // 1000}, with ping {CLUSTER_CHECK_MS // 1000})")
    add_home(parser)


def run(arguments: Namespace, output: Output) -> int:
    """Do it and return 0."""
    if arguments.words == ["list"]:
        return _list(arguments, output)
    if len(arguments.words) == 2 and arguments.words[0] == "ping":
        return _ping(arguments, output)
    raise UsageError("say `list` or `ping NODE`", hint="`intercom peer --help` tells what they do.")


def _list(arguments: Namespace, output: Output) -> int:
    found = quiet_report(paths_of(arguments), time_left(arguments, REQUEST_MS)).get("multiNode")
    state: dict[str, Any] = (
        found if isinstance(found, dict) else {"status": "off", "reason": "the broker does not tell"}
    )
    peers = [each for each in state.get("peers", ()) if isinstance(each, dict)]
    reason = {"reason": str(state["reason"])} if "reason" in state else {}
    output.document({"ok": True, "status": str(state.get("status")), **reason, "peers": peers})
    if output.as_json:
        return 0
    if peers:
        rows = [(str(each.get("node")), str(each.get("names")), str(each.get("brokerId"))) for each in peers]
        show_table(output, ("NODE", "SESSIONS", "BROKER"), rows, Fit(whole=("BROKER",), names=("NODE",)))
        return 0
    why = f": {state['reason']}" if "reason" in state else ", and nobody else is there"
    output.line(visible(f"{state.get('status')}{why}"))
    return 0


def _ping(arguments: Namespace, output: Output) -> int:
    settings = load_settings(paths_of(arguments), os.environ, {}).cluster
    if not settings.url:
        raise NoCluster("intercom.toml names no server under [cluster]")
    from intercom.cluster.nats.access import Unusable
    from intercom.cluster.nats.inspection import UnknownPeer, run_ping

    wanted = arguments.words[1]
    try:
        broker_id, node, took_ms = run_ping(settings, wanted, time_left(arguments, CLUSTER_CHECK_MS))
    except Unusable as error:
        raise EngineTrouble(str(error)) from None
    except UnknownPeer as error:
        there = ", ".join(error.names) or "nobody"
        raise NoPeer(f"No one broker is called {wanted}; there is {there}") from None
    except TimeoutError:
        raise PeerSilent(f"The broker of {wanted} does not answer") from None
    output.document({"ok": True, "node": node, "brokerId": broker_id, "roundTripMs": took_ms})
    output.line(visible(f"{node} ({broker_id}) answers in {took_ms:.1f} ms"))
    return 0
