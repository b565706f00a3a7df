"""Find out what is wrong, live, one check after the other, and change nothing."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from intercom import __version__
from intercom.cli import checks
from intercom.cli import probe as probing
from intercom.cli.arguments import Parser, add_home, add_json, add_timeout, clean
from intercom.cli.checks import Finding, State, concluded
from intercom.cli.identity import paths_of, time_left
from intercom.cli.locking import InUse, holder, is_held, locked
from intercom.cli.render import Output, visible
from intercom.cli.status import RESTORED, last_failure, machines, quiet_report
from intercom.errors import AccessDenied, ConnectionLost, HomeError, IntercomError, NoBroker
from intercom.limits import HOST_PROBE_MS, PROBE_MS
from intercom.paths import Paths

USAGE = ""
DESCRIPTION = """Check everything the broker and its sessions rest on, and say what is wrong and what to do about it.

Each check ends with `ok`, `bad`, or `unknown` when it could not tell, and why; the result is the worst of them. Nothing
is changed and no broker is started. A broker that is not needed and does not run is no trouble.

--probe HOST sends besides a marked message to each session of an agent host that runs here with what `intercom install`
entered, and tells whether it was shown to the model, and how soon. It costs such a session a step, no more.

Ends with 0 when all is well, with 1 when something is wrong, and with 6 when something could not be told.
"""
CHECKS = {
    "home": "the home is a directory of this user",
    "permissions": "nobody else can use the files in it",
    "filesystem": "the home is on a disk of this machine",
    "settings": "a broker would accept the settings",
    "disk": "there is room on the disk",
    "sandbox": "this process may use Unix sockets",
    "socket_path": "the path of the socket is short enough and nothing else is there",
    "socket": "this process can connect to it",
    "broker": "the broker answers, and is of this version",
    "lock": "who serves the home is who holds its lock",
    "store": "the broker can use its files",
    "cluster": "the broker reaches the engine through which it finds other machines",
    "workers": "the journals of durable workers are whole, and the broker agrees with them",
    "descriptors": "the broker may open enough files",
    "links": "Atomic and pi, where they are linked to the home, can start this broker",
    "log": "the broker reports no errors",
}
"""Every check by its id, which never changes, in order."""
_WORST: tuple[State, ...] = ("bad", "unknown", "ok")
WORKERS_SHOWN = 8
"""Durable workers that are told of by name."""
_STATUS = {"ok": 0, "bad": 1, "unknown": 6}


def configure(parser: Parser) -> None:
    """Add the options of ``doctor``."""
    parser.add_argument("--probe", metavar="HOST", choices=probing.HOSTS, help=f"{', '.join(probing.HOSTS)}")
    add_json(parser)
    add_timeout(
        parser,
        f"longest wait for the broker (default {PROBE_MS // 1000}); with --probe for all messages "
        f"({HOST_PROBE_MS // 1000})",
    )
    add_home(parser)


def run(arguments: Namespace, output: Output) -> int:
    """Check, print what was found, and return 0 when all is well."""
    found = examine(paths_of(arguments), PROBE_MS / 1000 if arguments.probe else time_left(arguments, PROBE_MS))
    if arguments.probe:
        found += probing.probe(paths_of(arguments), arguments.probe, time_left(arguments, HOST_PROBE_MS))
    state: State = next((state for state in _WORST if any(each.state == state for each in found)), "ok")
    document: dict[str, Any] = {"state": state, "checks": [_described(each) for each in found]}
    if state == "ok":
        output.document({"ok": True, **document})
    else:
        first = next(each for each in found if each.state == state)
        code = "unhealthy" if state == "bad" else "not_told"
        output.failure({"code": code, "reason": clean(first.found), "retry": "after", **document})
    for each in found:
        output.line(f"{each.state:<8} {each.id:<12} {visible(each.found)}")
        if each.hint and each.state != "ok":
            output.line(f"{'':<21} {visible(each.hint)}")
    return _STATUS[state]


def examine(paths: Paths, seconds: float) -> list[Finding]:
    """Return what every check found; ``seconds`` bounds the wait for the broker."""
    broker = Broker(paths, seconds)
    made: dict[str, Callable[[], Finding]] = {
        "home": lambda: checks.home(paths),
        "permissions": lambda: checks.permissions(paths),
        "filesystem": lambda: checks.file_system(paths),
        "settings": lambda: checks.settings(paths, os.environ),
        "disk": lambda: checks.disk(paths),
        "sandbox": checks.sandbox,
        "socket_path": lambda: checks.socket_path(paths),
        "socket": broker.check_socket,
        "broker": broker.check,
        "lock": broker.check_lock,
        "store": broker.check_store,
        "cluster": broker.check_cluster,
        "workers": broker.check_workers,
        "descriptors": lambda: checks.descriptors(broker.pid),
        "links": lambda: checks.links(paths, os.environ),
        "log": lambda: checks.log(paths),
    }
    return [concluded(check_id, made[check_id]) for check_id in CHECKS]


class Broker:
    """Hold what the broker says of itself, asked once."""

    def __init__(self, paths: Paths, seconds: float) -> None:
        self._paths = paths
        self._seconds = seconds
        self.report: dict[str, Any] | None = None
        self.trouble: IntercomError | None = None
        """Why there is no report."""
        try:
            self.report = quiet_report(paths, seconds)
        except IntercomError as error:
            self.trouble = error

    @property
    def pid(self) -> int | None:
        """Return the process id of the broker that answered."""
        pid = self.report.get("pid") if self.report is not None else None
        return pid if isinstance(pid, int) else None

    def check_socket(self) -> Finding:
        """Look whether this process can connect; nothing but the question for the report ever does."""
        socket = self._paths.socket
        if isinstance(self.trouble, NoBroker):
            return Finding("socket", "ok", f"nobody listens on {socket}")
        if isinstance(self.trouble, AccessDenied | HomeError):
            return Finding("socket", "bad", self.trouble.reason, self.trouble.hint)
        return Finding("socket", "ok", f"somebody listens on {socket}")

    def check(self) -> Finding:
        """Look whether the broker answers, and whether it is the one this command belongs to."""
        if self.report is None:
            if self.trouble is None or isinstance(self.trouble, NoBroker):
                return Finding("broker", "ok", "no broker runs; the next command that sends starts one")
            if isinstance(self.trouble, AccessDenied | HomeError):
                return Finding("broker", "unknown", "it cannot be asked, see `socket`")
            hint = self.trouble.hint
            if isinstance(self.trouble, ConnectionLost):
                hint = "Try again; `intercom log` tells why a broker ended."
            return Finding("broker", "bad", self.trouble.reason, hint)
        ours = self.report.get("broker")
        if not isinstance(ours, dict) or "version" not in ours:
            return Finding("broker", "unknown", f"the broker (pid {self.pid}) is not intercom, or of unknown version")
        told = f"the broker (pid {self.pid}) is intercom {ours['version']}"
        if ours["version"] != __version__:
            return Finding(
                "broker",
                "bad",
                f"{told}, this command is {__version__}",
                "`intercom restart` replaces the broker; no session is lost.",
            )
        return Finding(
            "broker",
            "ok",
            f"{told}; {self.report.get('sessions')} sessions, {ours.get('openQuestions')} open questions, "
            f"{ours.get('unconfirmedFrames')} messages not confirmed",
        )

    def check_lock(self) -> Finding:
        """Look who holds the lock of the home: the broker that answers, and nobody when none does."""
        lock = self._paths.lock
        try:
            held = is_held(lock)
        except (FileNotFoundError, NotADirectoryError):
            if self.report is None:
                return Finding("lock", "ok", "no broker ever ran here")
            return Finding("lock", "bad", f"a broker answers, and {lock} is gone", "`intercom restart` makes it anew.")
        pid = holder(lock)
        by = "a process" if pid is None else f"process {pid}"
        if self.report is None:
            if not held:
                return Finding("lock", "ok", "nobody holds it")
            if not isinstance(self.trouble, NoBroker):
                return Finding("lock", "ok", f"{by} holds it")
            return Finding(
                "lock",
                "bad",
                f"{by} holds {lock}, and no broker answers",
                "It may be a broker that is starting or ending: try again in a few seconds.",
            )
        if not held:
            return Finding("lock", "bad", "a broker answers, and nobody holds the lock", "Run `intercom restart`.")
        if pid is not None and self.pid is not None and pid != self.pid:
            return Finding(
                "lock", "bad", f"{by} holds {lock}, and process {self.pid} answers", "Run `intercom restart`."
            )
        return Finding("lock", "ok", f"{by} holds it")

    def check_cluster(self) -> Finding:
        """Look how the way to other machines is, where the settings name one."""
        found = self.report.get("multiNode") if self.report is not None else None
        if not isinstance(found, dict):
            return Finding("cluster", "ok", "no broker runs that could reach other machines")
        status = found.get("status")
        if status == "off":
            return Finding("cluster", "ok", f"off: {found.get('reason')}")
        hint = "`intercom cluster check` looks for the cause; on this machine everything works meanwhile."
        if status == "unavailable":
            return Finding("cluster", "bad", str(found.get("reason")), hint)
        if status == "on" and found.get("foreign"):
            return Finding("cluster", "bad", machines(found), "The brokers of one prefix need the same key_file.")
        return Finding("cluster", "ok" if status == "on" else "unknown", machines(found), hint)

    def check_workers(self) -> Finding:
        """Look what the broker and durable workers have on disk of each other, and who was refused."""
        from intercom.client.journalfile import damaged

        if trouble := damaged(self._paths):
            more = f", and {len(trouble) - 1} more are" if len(trouble) > 1 else ""
            return Finding("workers", "bad", f"{trouble[0].reason}{more}", trouble[0].hint)
        ours = self.report.get("broker") if self.report is not None else None
        counted = ours.get("links") if isinstance(ours, dict) else None
        if not isinstance(counted, dict) or not counted.get("known"):
            return Finding("workers", "ok", "no durable workers are known")
        from intercom.client import blocking

        home = self._paths.home
        with blocking.connect(purpose="control", home=home, start=False, timeout=self._seconds) as session:
            views = session.links(timeout=self._seconds)
        told = [
            f"{view.address or view.session_id}: events up to {view.event_floor}, {view.open_commands} open commands, "
            f"journal {view.journal_id or 'none yet'}"
            for view in views
        ]
        refused = [view for view in views if view.refused == "journal_identity_changed"]
        if refused:
            return Finding(
                "workers",
                "bad",
                f"{refused[0].address or refused[0].session_id} came with another journal than {refused[0].journal_id}",
                f"`intercom link show {refused[0].id}` shows what is open, and how the person lets it go on.",
            )
        left = f"; and {len(told) - WORKERS_SHOWN} more" if len(told) > WORKERS_SHOWN else ""
        return Finding("workers", "ok", "; ".join(told[:WORKERS_SHOWN]) + left)

    def check_store(self) -> Finding:
        """Ask the broker about the store; without one, look while nobody else can use it."""
        hint = "Nothing is delivered until it is whole; `intercom docs troubleshooting` tells what can be done."
        if self.report is not None:
            ours = self.report.get("broker")
            store = ours.get("store") if isinstance(ours, dict) else None
            if not isinstance(store, dict):
                return Finding("store", "unknown", "the broker does not tell how its store is")
            if not store.get("usable"):
                return Finding("store", "bad", f"the broker cannot use it: {store.get('trouble')}", hint)
            failed = last_failure(store)
            if failed is not None:
                return Finding(
                    "store",
                    "bad",
                    f"it {failed}",
                    "Messages are refused until that is mended; `disk` above and `intercom log` tell more.",
                )
            if isinstance(ours, dict) and ours.get("journalRestored"):
                hint = "Ask for what was sent since the copy was made; after `intercom restart` this is not said again."
                return Finding("store", "bad", RESTORED, hint)
            return Finding("store", "ok", f"in order, says the broker; {store.get('operations')} message ids")
        from intercom.store.inspection import files_of, inspect

        if not files_of(self._paths):
            return Finding("store", "ok", "there is none yet; the next broker makes it")
        try:
            with locked(self._paths, create=False):
                found = inspect(self._paths)
        except InUse as error:
            return Finding("store", "unknown", f"it is in use: {error.reason}")
        except FileNotFoundError:
            return Finding("store", "unknown", f"there is no {self._paths.lock} to keep brokers away while looking")
        if found.trouble is not None:
            if found.trouble.code == "held":
                hint = "End that process, or let it close the database: no broker begins before."
            return Finding("store", "bad", found.trouble.reason, hint)
        return Finding(
            "store", "ok", f"in order; {found.operations} message ids, {found.open_questions} open questions"
        )


def _described(finding: Finding) -> dict[str, str]:
    members = {"id": finding.id, "state": finding.state, "found": clean(finding.found)}
    if finding.hint and finding.state != "ok":
        members["hint"] = clean(finding.hint)
    return members
