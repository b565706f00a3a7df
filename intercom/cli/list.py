"""Show the sessions in reach, and the workflow stages."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from intercom.cli.arguments import Parser, add_common, clean
from intercom.cli.identity import opened, paths_of, time_left
from intercom.cli.render import Output, duration, short_ids
from intercom.cli.stages import DRAWN, PLAIN, documents_of
from intercom.cli.stages import FIT as STAGE_FIT
from intercom.cli.stages import HEAD as STAGE_HEAD
from intercom.cli.stages import rows_of as stage_rows_of
from intercom.cli.tables import Fit, show_table
from intercom.limits import COMING_BACK_MS, CONTEXT_FRESH_MS, EARLIER_HOME_MS, REQUEST_MS

if TYPE_CHECKING:
    from intercom.client.views import SessionView
    from intercom.paths import Paths

USAGE = ""
DESCRIPTION = """Show the sessions in reach: those of the group given by --group, else of those joined with
`intercom join`, else of `default`.

Shown are the name, the shortest id that `send` takes, what the session says that it is doing and since when, its
process, model and groups, and its directory, marked when it is the one you are in. `intercom listen --answer` is `busy`
or `idle`; other sessions say what they like, or nothing. In brackets stand the policies that are in force for it
(`intercom policy`): its own, then the person's. A session that told in the last ten minutes how full the context of its
model is shows that, too. The process is what the kernel says; what a session claims is
added where it differs.

SEES says when a session in an agent host is shown a message: `at once`, also in the middle of its work; `when idle`;
`when it looks`, so that a message may wait; `no messages`. Behind it stands by what, where the session says so: the
best way into its host that works now (`intercom docs hosts`). Others declare nothing.

`away` is a session that lost its connection then and may come back: messages to it wait.

Where sessions of other machines are shown, before each directory stands the machine: `builder@studio` is the one there.

Ids are always whole and work when pasted. Where the terminal is narrow, other cells are cut and columns left out; in a
pipe no column is.

Below them come the stages of workflow runs that may be seen from those groups, as a tree: the run, and in it each
stage with its name, whether it is running (in which session) or pending, and the stages that are only possible, with
the number of messages that wait for them. Run and stage joined with `/` are a target for `send`. Those in the group of
a run see its stages: `intercom list --group workflow:RUN`.

The command itself is not shown: it connects as a control session, which nobody sees. It starts a broker when none runs.
When the broker was just started in a home that had one before, it waits a moment for the sessions on their way back.
"""
SEES = "SEES"
PUSHES = {"now": "at once", "idle": "when idle", "pull": "when it looks", "none": "no messages"}
"""How soon a session sees a message, by what its host declared (protocol 6.4)."""
HEAD = ("NAME", "ID", "STATUS", "SINCE", "PID", "MODEL", "GROUPS", "DIRECTORY")
FIT = Fit(
    whole=("ID",),
    end_first=("DIRECTORY",),
    start_first=("STATUS", "MODEL", "GROUPS"),
    names=("NAME",),
    left_out=("GROUPS", "MODEL", SEES, "STATUS", "DIRECTORY"),
)


def configure(parser: Parser) -> None:
    """Add the options of ``list``."""
    add_common(parser, timeout=f"longest wait for the broker (default {REQUEST_MS // 1000})")


def run(arguments: Namespace, output: Output) -> int:
    """Print the sessions and return 0."""
    with opened(arguments, "list", purpose="control", default_ms=REQUEST_MS) as session:
        # Half of the time is kept for the answer, which matters more.
        time.sleep(min(until_all_are_back(paths_of(arguments)), time_left(arguments, REQUEST_MS) / 2))
        found = session.list(timeout=time_left(arguments, REQUEST_MS))
        stages = session.list_stages(timeout=time_left(arguments, REQUEST_MS))
    output.document({"ok": True, "sessions": [described(view) for view in found], **documents_of(stages)})
    if output.as_json:
        return 0
    machine = _machine_beside(found, arguments)
    rows = rows_of(found, time.time() * 1000, working_directory(), machine)
    if rows:
        show_table(output, *with_push(rows, found), FIT)
    else:
        output.line("nobody is here")
    if stages:
        output.line("")
        short = short_ids([view.id for view in found])
        branches = DRAWN if output.fancy() else PLAIN
        show_table(output, STAGE_HEAD, stage_rows_of(stages, short, branches), STAGE_FIT)
    return 0


def _machine_beside(found: list[SessionView], arguments: Namespace) -> str:
    """Return what this machine is called, where sessions of others are shown, else nothing."""
    if not any(view.raw.get("node") for view in found):
        return ""
    from intercom.cli.machines import machine_here

    return machine_here(arguments, REQUEST_MS)


def until_all_are_back(paths: Paths) -> float:
    """Return how many seconds sessions of the broker before this one may still need to come back; 0 without one.

    The pid file was written when this broker began to listen, the key by the first broker of the home.
    """
    try:
        began = os.stat(paths.pid).st_mtime
        first = os.stat(paths.key).st_mtime
    except OSError:
        return 0
    age = time.time() - began
    if age < 0 or (began - first) * 1000 <= EARLIER_HOME_MS:
        return 0
    return max(0, COMING_BACK_MS / 1000 - age)


def described(view: SessionView) -> dict[str, Any]:
    """Return a session as its JSON object, exactly as the broker told it."""
    return dict(view.raw)


def rows_of(views: list[SessionView], now: float, here: str, machine: str = "") -> list[tuple[str, ...]]:
    """Return the cells of one row per session; the id is the shortest text that a send accepts.

    ``now`` is in epoch milliseconds; sessions whose directory is ``here`` are marked, and those of this machine named
    with it, if ``machine`` is what it is called.
    """
    short = short_ids([view.id for view in views])
    return [
        (
            view.name or "-",
            short[view.id],
            _status(view, now),
            duration(now - (view.last_activity if view.state_since is None else view.state_since)),
            _process(view),
            view.model or "-",
            ",".join(view.groups),
            _directory(view, here, machine),
        )
        for view in views
    ]


def _directory(view: SessionView, here: str, machine: str) -> str:
    """Return where a session works, with the machine if sessions of several are shown."""
    node = view.raw.get("node")
    if isinstance(node, str) and node:
        return f"{node}:{view.cwd}"
    place = f"{machine}:{view.cwd}" if machine else view.cwd
    return f"{place} (here)" if view.cwd == here else place


def working_directory() -> str:
    """Return the working directory as a session here would report it; empty when it was deleted."""
    try:
        return clean(os.getcwd())
    except OSError:
        return ""


def _status(view: SessionView, now: float) -> str:
    from intercom.cli.policy import told
    from intercom.client.attending import POLICY_MEMBERS, policy_in

    policies = [policy for member in POLICY_MEMBERS if (policy := policy_in(view.raw, member))]
    return _standing(view, now) + _context(view, now) + "".join(f" [{told(rules)}]" for rules in policies)


def _context(view: SessionView, now: float) -> str:
    """Return how full the context of the session's model is, where it said so lately (protocol 15.4)."""
    at = _number(view, "contextAt")
    if now - (view.last_activity if at is None else at) > CONTEXT_FRESH_MS:
        return ""
    percent, tokens, window = (_number(view, f"context{each}") for each in ("Percent", "Tokens", "Window"))
    if percent is None and tokens is not None and window:
        percent = 100 * tokens / window
    if percent is not None:
        return f" (context {percent:.0f} % full)"
    return "" if tokens is None else f" (context {tokens:.0f} tokens)"


def _number(view: SessionView, member: str) -> float | None:
    value = view.raw.get(member)
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value < float("inf") else None


def _standing(view: SessionView, now: float) -> str:
    if view.unconfirmed_since is not None:
        standing = f"confirms nothing for {duration(now - view.unconfirmed_since)}"
        return f"{view.status}, {standing}" if view.status else standing
    if view.state == "active":
        return view.status or "-"
    return f"away ({view.status})" if view.status else "away"


def with_push(rows: list[tuple[str, ...]], views: list[SessionView]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return head and rows, with one more column where a session declared how soon it sees a message."""
    pushes = [_seen(view) for view in views]
    if set(pushes) <= {"-"}:
        return HEAD, rows
    place = HEAD.index("SINCE") + 1
    return (*HEAD[:place], SEES, *HEAD[place:]), [
        (*row[:place], push, *row[place:]) for row, push in zip(rows, pushes, strict=True)
    ]


def _seen(view: SessionView) -> str:
    """Return how soon a session sees a message and, where it says so, by what."""
    soon, way = PUSHES.get(str(view.raw.get("push"))), view.raw.get("pushWay")
    if soon is None:
        return "-"
    return f"{soon} ({way})" if isinstance(way, str) and way else soon


def _process(view: SessionView) -> str:
    """Return the process id the kernel tells, and the claimed one where it differs."""
    if view.peer_pid is None:
        return f"says {view.pid}"
    return str(view.peer_pid) if view.pid == view.peer_pid else f"{view.peer_pid} (says {view.pid})"
