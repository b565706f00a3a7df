"""Show the broker without starting one, and without keeping one alive that wants to leave."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Any

from intercom.cli.arguments import Parser, add_common, clean
from intercom.cli.identity import paths_of, time_left
from intercom.cli.render import Output, duration, visible
from intercom.client.control import Exchange, converse
from intercom.errors import IntercomError
from intercom.limits import REQUEST_MS
from intercom.paths import Paths
from intercom.wire.frames import BrokerStatus, BrokerStatusRequest, Health, HealthRequest

USAGE = ""
DESCRIPTION = """Show the broker: its process, version, home, socket, sessions, age and store.

Never starts a broker; ends with 5 when none answers.
"""

RESTORED = "an older copy of it was put back, and what happened since that copy is lost"


def configure(parser: Parser) -> None:
    """Add the options of ``status``."""
    add_common(parser, timeout=f"longest wait for the broker (default {REQUEST_MS // 1000})")


def run(arguments: Namespace, output: Output) -> int:
    """Print the report and return 0."""
    paths = paths_of(arguments)
    try:
        report = quiet_report(paths, time_left(arguments, REQUEST_MS))
    except IntercomError as error:
        output.failure({**error.as_dict(), **_places(paths)})
        if not output.as_json:
            output.note(f"intercom: {visible(error.reason)}. {error.hint}".rstrip())
        return error.exit_status
    output.document({"ok": True, **_places(paths), **report})
    if not output.as_json:
        for label, value in described(report, paths):
            output.line(f"{label:<11} {visible(value)}")
    return 0


def quiet_report(paths: Paths, timeout: float) -> dict[str, Any]:
    """Return the broker's report on a connection that does not count as activity: its first frame is ``health``.

    ``timeout`` is in seconds; errors are those of ``intercom.client.control.health``.
    """

    def look(exchange: Exchange) -> BrokerStatus:
        exchange.ask(HealthRequest, Health)
        return exchange.ask(BrokerStatusRequest, BrokerStatus)

    return converse(paths, timeout, look).report


def described(report: dict[str, Any], paths: Paths) -> list[tuple[str, str]]:
    """Return labels and values for a person; a foreign broker tells less than ours."""
    broker = report.get("broker")
    ours: dict[str, Any] = broker if isinstance(broker, dict) else {}
    lines = [("broker", f"pid {report.get('pid')}, {_version(ours)}")]
    started = ours.get("startedAt")
    if isinstance(started, int | float):
        lines.append(("running for", duration(time.time() * 1000 - started)))
    lines += [("home", str(paths.home)), ("socket", str(paths.socket) + _elsewhere(paths))]
    sessions = str(report.get("sessions"))
    if ours.get("openQuestions"):
        sessions += f", {ours['openQuestions']} open questions"
    mail = ours.get("mail")
    if isinstance(mail, dict) and mail.get("sessionsAway"):
        sessions += f", {mail['sessionsAway']} away"
    lines.append(("sessions", sessions))
    if isinstance(mail, dict) and mail.get("waiting"):
        lines.append(("mail", _mail(mail)))
    flows = ours.get("flows")
    if isinstance(flows, dict) and flows.get("live"):
        lines.append(("flows", f"{flows['live']} not over, {flows['dispatches']} with a step under way"))
    draining = ours.get("draining")
    if isinstance(draining, dict):
        lines.append(("draining", _draining(draining)))
    store = ours.get("store")
    if isinstance(store, dict):
        restored = f"; {RESTORED}" if ours.get("journalRestored") else ""
        lines.append(("store", _store(store) + restored))
    cluster = report.get("multiNode")
    if isinstance(cluster, dict) and cluster.get("status") not in (None, "off"):
        lines.append(("machines", machines(cluster)))
    if "spawnKinds" in ours:
        kinds = ", ".join(map(str, ours["spawnKinds"]))
        lines.append(("may start", kinds or "nothing: intercom.toml names no commands under [spawn]"))
    if "durability" in ours:
        lines.append(("durability", str(ours["durability"])))
    if "startedBy" in ours:
        lines.append(("started by", str(ours["startedBy"])))
    return lines


def machines(cluster: dict[str, Any]) -> str:
    """Return how the way to other machines is, by the report of the broker."""
    own = f", as {cluster['node']}" if "node" in cluster else ""
    told = f"{cluster['status']}, through {cluster.get('adapter', 'nothing yet')}{own}"
    if "reason" in cluster:
        return f"{told}: {cluster['reason']}"
    peers = cluster.get("peers")
    if isinstance(peers, list) and cluster["status"] == "on":
        nodes = ", ".join(str(peer.get("node")) for peer in peers if isinstance(peer, dict))
        told += f"; {nodes or 'nobody else'} there"
    if isinstance(waiting := cluster.get("outbox"), int) and waiting:
        oldest = cluster.get("outboxOldestAt")
        since = f", the oldest since {duration(time.time() * 1000 - oldest)}" if isinstance(oldest, int) else ""
        told += f"; {waiting} in the outbox{since}"
    if cluster.get("foreign"):
        told += f"; {cluster['foreign']} things came that were made under another key"
    return told


def _mail(mail: dict[str, Any]) -> str:
    waiting, age_ms = mail["waiting"], time.time() * 1000 - mail["oldestAt"]
    return f"{waiting} message{'' if waiting == 1 else 's'} waiting, the oldest for {duration(age_ms)}"


def _draining(draining: dict[str, Any]) -> str:
    left = duration(max(0, draining["until"] - time.time() * 1000))
    counts = ", ".join(f"{kind} {count}" for kind, count in draining["open"].items())
    return f"nothing new is taken, and it leaves in {left} at the latest; open: {counts or 'nothing'}"


def _version(ours: dict[str, Any]) -> str:
    return f"intercom {ours['version']}" if "version" in ours else "not intercom, or of unknown version"


def _store(store: dict[str, Any]) -> str:
    if not store.get("usable"):
        return f"cannot be used, nothing is delivered: {store.get('trouble', 'no reason given')}"
    failed = last_failure(store)
    if failed is not None:
        return f"{failed}; messages that came then were refused"
    return f"in order, {store.get('operations')} operations"


def last_failure(store: dict[str, Any]) -> str | None:
    """Return when and why the last commit of a broker failed, by its report; ``None`` while all is well."""
    failure = store.get("lastFailure")
    if not isinstance(failure, dict):
        return None
    at = failure.get("at")
    ago = f" {duration(time.time() * 1000 - at)} ago" if isinstance(at, int | float) else ""
    return f"could not be written{ago}: {failure.get('reason')}"


def _elsewhere(paths: Paths) -> str:
    return " (the path of the home is too long for a socket)" if paths.socket_is_elsewhere else ""


def _places(paths: Paths) -> dict[str, str]:
    return {"home": clean(str(paths.home)), "socket": clean(str(paths.socket))}
