"""Look at what was invoked, follow it, ask that it stops, and say as its target what became of it."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import TYPE_CHECKING, get_args

from intercom.cli.arguments import Parser, add_common, clean, words_of
from intercom.cli.identity import opened, time_left
from intercom.cli.invoked import described, follow, show, show_asked, tell_state
from intercom.cli.person import require_person
from intercom.cli.render import Output, duration, visible
from intercom.cli.tables import Fit, show_table
from intercom.cli.who import identity_of
from intercom.client.invoking import ENDED, Accepted, Following
from intercom.errors import RequestRefused, UsageError
from intercom.limits import REQUEST_MS, WORK_PAGE_CEILING, WORK_REQUEST_MS
from intercom.wire.invocations import ReportedState

if TYPE_CHECKING:
    from intercom.client.invoking import InvocationView

USAGE = "list | show ID | watch ID | cancel ID | report ID STATE [TEXT...]"
DESCRIPTION = """Look at what was invoked (`intercom invoke`), follow it, ask that it stops, and say as its
target what became of it.

    list          all that are remembered, the newest first; with --open those that have not ended, with --label those
                  that were given this word, or all of several
    show ID       one of them, with its task and its result while those are kept
    watch ID      print its state, and each change until it has ended, or for --timeout seconds; ends with 6 when that
                  comes first
    cancel ID     ask that it is not carried out: at once while nobody has it, else its target is told to stop; one
                  that others invoked is for the person
    report ID STATE [TEXT]
                  say as the identity that was given the task (`intercom whoami`) how far it is: running or waiting,
                  completed with TEXT as its result, failed or cancelled with TEXT as the reason; `-` alone as TEXT
                  reads standard input

Starts a broker when none runs. Ends with 3 when no such invocation is known.
"""
HEAD = ("ID", "STATE", "SINCE", "TARGET", "ACTION")
WORDS = {"list": 0, "show": 1, "watch": 1, "cancel": 1, "report": 2}
"""What may be done, with the number of words behind it."""


def configure(parser: Parser) -> None:
    """Add the options of ``invocation``."""
    parser.add_argument("words", nargs="*", metavar="WHAT", type=clean, help="what to do, and with which invocation")
    parser.add_argument("--open", action="store_true", help="list: only those that have not ended")
    parser.add_argument(
        "--label",
        dest="labels",
        metavar="WORD",
        type=clean,
        action="append",
        help="list: only those with this word; repeatable",
    )
    parser.add_argument("--reason", metavar="TEXT", type=clean, help="cancel: why, for whoever has it")
    add_common(parser, timeout=f"how long to watch (else for ever), or wait for the broker ({REQUEST_MS // 1000})")


def run(arguments: Namespace, output: Output) -> int:
    """Do what the first word names and return 0."""
    what, *rest = arguments.words or [""]
    if what not in WORDS or len(rest) < WORDS[what] or (len(rest) > WORDS[what] and what != "report"):
        raise UsageError("say what to do", hint=f"`intercom invocation {USAGE.replace(' | ', '`, `')}`.")
    if what == "cancel":
        return _cancel(rest[0], arguments, output)
    if what == "report":
        return _report(rest[0], rest[1], rest[2:], arguments, output)
    with opened(arguments, "invocation", purpose="control", default_ms=REQUEST_MS) as session:
        if what == "list":
            left = time_left(arguments, REQUEST_MS)
            found = session.invocations(
                limit=WORK_PAGE_CEILING, open_only=arguments.open, labels=arguments.labels or (), timeout=left
            )
            _show_all(found, output)
            return 0
        view = session.invocation(rest[0], timeout=time_left(arguments, REQUEST_MS))
        if what == "watch":
            told = Following(Accepted(view.id, view.run_id, view.target_id, view.state, None))
            follow(session, told, arguments, output)
            if not told.is_over:
                raise told.unfinished()
            view = session.invocation(rest[0])
    output.document({"ok": True, "invocation": described(view)})
    show(view, output)
    if what == "show":
        show_asked(view, output)
    return 0


def _report(wanted: str, state: str, words: list[str], arguments: Namespace, output: Output) -> int:
    """Say how far a task is that this identity was given."""
    if state not in get_args(ReportedState):
        raise UsageError(
            f"{visible(state)} is no state to report", hint=f"One of {', '.join(get_args(ReportedState))}."
        )
    if identity_of(arguments).address is None:
        raise UsageError("a guest was given no task", hint="Act as its target: --as NAME, the name it listens under.")
    text = words_of([wanted, *words], first="an id", usage="invocation report ID STATE TEXT")[1] if words else None
    member = "output" if state == "completed" else "error" if state in ENDED else "summary"
    with opened(arguments, "invocation", default_ms=WORK_REQUEST_MS, hold="none") as session:
        left = time_left(arguments, WORK_REQUEST_MS)
        texts = {} if text is None else {member: text}
        now = session.update_run(wanted, state, **texts, timeout=left)
    tell_state(wanted, now, output)
    return 0


def _cancel(wanted: str, arguments: Namespace, output: Output) -> int:
    """Cancel what this identity invoked; what others did only the person may."""
    try:
        with opened(arguments, "invocation", default_ms=WORK_REQUEST_MS, hold="none") as session:
            left = time_left(arguments, WORK_REQUEST_MS)
            state = session.cancel_invocation(wanted, arguments.reason, timeout=left)
    except RequestRefused as error:
        if error.code not in ("invocation_unknown", "not_allowed"):
            raise
        require_person("to cancel what others invoked")
        with opened(arguments, "invocation", purpose="control", default_ms=WORK_REQUEST_MS) as session:
            left = time_left(arguments, WORK_REQUEST_MS)
            state = session.cancel_invocation(wanted, arguments.reason, timeout=left)
    output.document({"ok": True, "invocationId": wanted, "state": state})
    asked = "" if state == "cancelled" else "; its target was asked to stop"
    output.line(f"{state}: {visible(wanted)}{asked}")
    return 0


def _show_all(views: list[InvocationView], output: Output) -> None:
    output.document({"ok": True, "invocations": [described(view) for view in views]})
    if output.as_json:
        return
    now = time.time() * 1000
    rows = [
        (view.id, view.state, duration(now - (view.completed_at or view.created_at)), view.target_name, view.action)
        for view in views
    ]
    if rows:
        show_table(output, HEAD, rows, Fit(whole=("ID",), names=("TARGET",), left_out=("ACTION", "SINCE")))
    else:
        output.line("no invocations")
