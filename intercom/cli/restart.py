"""Replace the broker by a new process, and watch the sessions come back."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from intercom.cli.arguments import Parser, add_home, add_json, add_timeout
from intercom.cli.ending import end
from intercom.cli.identity import paths_of, time_left
from intercom.cli.render import Output, visible, who
from intercom.cli.status import quiet_report
from intercom.client import blocking
from intercom.errors import ConnectionLost, IntercomError, NoBroker
from intercom.limits import CONNECT_MS, GONE_POLL_MS, RETURN_WAIT_MS, STOP_WAIT_MS
from intercom.paths import Paths

if TYPE_CHECKING:
    from intercom.client.views import SessionView

LEAVING_HINT = "Somebody else may be restarting it just now: try again in a moment. " + NoBroker.hint
Fate: TypeAlias = Literal["back", "ended", "missing"]

USAGE = ""
DESCRIPTION = """Have the broker finish what it began and leave, see a new one start and the sessions move to it.

What was delivered stays delivered, and open questions stay open. Printed are the old and the new process, and of every
session whether it is `back`, whether its process has `ended` meanwhile, or whether it is `missing` still. Where no
broker runs one is started, and that is said.

Ends with 5 when a broker leaves while it is asked, and with 6 when sessions are missing after the wait.
"""


class NotBack(IntercomError):
    """Say that the new broker runs and that some sessions have not come to it yet."""

    code = "not_back"
    retry = "after"
    exit_status = 6
    hint = "`intercom list` shows who is there; a session that ended its connection must be started again."


class Replaced(NamedTuple):
    """Hold what was seen: report of the old broker, if one ran, and the new one, and the fate of each session."""

    old: dict[str, Any] | None
    new: dict[str, Any]
    sessions: list[tuple[SessionView, Fate]]


def configure(parser: Parser) -> None:
    """Add the options of ``restart``."""
    add_json(parser)
    add_timeout(parser, f"longest wait for the sessions (default {RETURN_WAIT_MS // 1000})")
    add_home(parser)


def run(arguments: Namespace, output: Output) -> int:
    """Restart, print what was seen, and return 0 when everybody is back."""
    seen = restart(paths_of(arguments), time_left(arguments, RETURN_WAIT_MS))
    missing = [view for view, fate in seen.sessions if fate == "missing"]
    document = {
        "old": None if seen.old is None else _broker(seen.old),
        "new": _broker(seen.new),
        "sessions": [{"id": view.id, "name": view.name, "state": fate} for view, fate in seen.sessions],
    }
    if missing:
        error = NotBack(f"{len(missing)} of {len(seen.sessions)} sessions are not back yet")
        output.failure({**error.as_dict(), **document})
    else:
        output.document({"ok": True, **document})
    old = "none ran" if seen.old is None else f"pid {seen.old.get('pid')}, {_version(seen.old)}"
    output.line(f"old broker  {old}")
    output.line(f"new broker  pid {seen.new.get('pid')}, {_version(seen.new)}")
    for view, fate in seen.sessions:
        output.line(f"{fate:<11} {who(view.name, view.id)}")
    if missing and not output.as_json:
        output.note(f"intercom: {error.reason}. {error.hint}")
    return NotBack.exit_status if missing else 0


def restart(paths: Paths, seconds: float) -> Replaced:
    """Replace the broker of a home; ``seconds`` bounds the wait for the sessions.

    Raises what ``intercom.client.control.health`` raises while nothing was done, and ``RequestTimeout`` when the old
    process does not leave.
    """
    old = _running(paths, min(seconds, CONNECT_MS / 1000))
    before: list[SessionView] = []
    if old is not None:
        try:
            before = _everybody(paths)
        except (NoBroker, ConnectionLost) as error:
            error.hint = LEAVING_HINT
            raise
        end(paths, old, STOP_WAIT_MS / 1000)
    until = time.monotonic() + seconds
    with blocking.connect(
        home=paths.home, purpose="control", model="intercom restart", timeout=CONNECT_MS / 1000
    ) as session:
        new = quiet_report(paths, CONNECT_MS / 1000)
        while True:
            fates = _fates(before, _listed(session))
            if all(fate != "missing" for _, fate in fates) or time.monotonic() >= until:
                return Replaced(old, new, fates)
            time.sleep(GONE_POLL_MS / 1000)


def _running(paths: Paths, seconds: float) -> dict[str, Any] | None:
    """Return the report of the broker that runs, None: none does."""
    try:
        return quiet_report(paths, seconds)
    except NoBroker:
        return None
    except ConnectionLost as error:
        error.hint = LEAVING_HINT
        raise


def _everybody(paths: Paths) -> list[SessionView]:
    with blocking.connect(
        home=paths.home, purpose="control", model="intercom restart", start=False, timeout=CONNECT_MS / 1000
    ) as session:
        return _listed(session)


def _listed(session: blocking.Session) -> list[SessionView]:
    """Return every agent session of every group that is connected."""
    found: dict[str, SessionView] = {}
    for entry in session.list_groups():
        found.update({view.id: view for view in session.list(entry.group) if view.state == "active"})
    return list(found.values())


def _fates(before: Iterable[SessionView], now: Iterable[SessionView]) -> list[tuple[SessionView, Fate]]:
    """Tell what became of each session: one that had to take another id is known by its process and name."""
    here = list(now)
    ids = {view.id for view in here}
    processes = {(view.peer_pid, view.name) for view in here if view.peer_pid is not None}
    fates: list[tuple[SessionView, Fate]] = []
    for view in before:
        if view.id in ids or (view.peer_pid, view.name) in processes:
            fates.append((view, "back"))
        else:
            fates.append((view, "ended" if view.peer_pid is not None and not _is_there(view.peer_pid) else "missing"))
    return fates


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _broker(report: dict[str, Any]) -> dict[str, Any]:
    ours = report.get("broker")
    version = ours.get("version") if isinstance(ours, dict) else None
    return {"pid": report.get("pid"), **({} if version is None else {"version": version})}


def _version(report: dict[str, Any]) -> str:
    version = _broker(report).get("version")
    return f"intercom {visible(str(version))}" if version is not None else "not intercom, or of unknown version"
