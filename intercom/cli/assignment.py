"""Show work that was handed out, say how far it is, and answer it."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from shlex import quote
from typing import TYPE_CHECKING

from intercom.cli.arguments import Parser, add_common, clean, words_of
from intercom.cli.attaching import add_attach, attachments_of
from intercom.cli.identity import opened, time_left
from intercom.cli.render import Output, duration, visible
from intercom.cli.tables import Fit, show_table
from intercom.cli.who import identity_of
from intercom.cli.working import described_assignment
from intercom.client.choosing import chosen as one_of
from intercom.client.working import REPORTABLE, AssignmentName
from intercom.errors import AssignmentLost, BrokerError, RequestRefused, UsageError
from intercom.limits import REQUEST_MS, WORK_PAGE_CEILING, WORK_REQUEST_MS

if TYPE_CHECKING:
    from intercom.client.blocking import Session
    from intercom.client.working import AnyAssignment
    from intercom.client.workviews import AssignmentView

USAGE = "list | show ID | report ID STATE [WHY...] | reply ID TEXT..."
DESCRIPTION = f"""Show the assignments that are open: messages of the inbox that were handed to a worker. Say how far
one of this identity (`intercom whoami`) is, or answer it.

    list                    all of them, the oldest first; with --mine those of this identity
    show ID                 one of them
    report ID STATE WHY...  say how far it is
    reply ID TEXT...        answer who sent the message, which ends the work

STATE is one of {", ".join(sorted(REPORTABLE))}. `accepted` takes the
responsibility, and must be said in time; what is not accepted goes back to the inbox. `failed` and `expired` end the
work; with --retryable, work that is not accepted yet goes back to the inbox instead. WHY is for people.

ID is the id of the assignment, or at least 4 characters of one. It need not be this process that claimed it: whoever
acts under its address may go on with it. TEXT may be several words; `-` alone reads standard input.

Reports and answers may be repeated: each counts once. After an answer whose outcome is not known, repeat it with the
same TEXT and the --source that is printed.

Starts a broker when none runs. Ends with 3 when no such assignment is open: it ended, or went back to the inbox.
"""
HEAD = ("ID", "STATE", "SINCE", "WORKER", "MESSAGE")
WORDS = {"list": (0, 0), "show": (1, 1), "report": (2, None), "reply": (2, None)}
"""What may be done, with the least and the greatest number of words behind it."""


def configure(parser: Parser) -> None:
    """Add the options of ``assignment``."""
    parser.add_argument("words", nargs="*", metavar="WHAT", help="what to do, with which assignment, and how")
    parser.add_argument("--mine", action="store_true", help="list: only those of this identity")
    parser.add_argument("--retryable", action="store_true", help="report failed: it may be tried again")
    parser.add_argument("--code", metavar="CODE", type=clean, help="report: the reason, for programs")
    parser.add_argument("--event-id", metavar="ID", type=clean, help="report: repeat the report with this id")
    parser.add_argument("--reply-id", metavar="ID", type=clean, help="reply: tell this answer from another")
    parser.add_argument(
        "--source", metavar="MESSAGE-ID", type=clean, help="id of the message; then ID is whole and may have ended"
    )
    add_attach(parser)
    add_common(parser, timeout=f"longest wait for the broker (default {WORK_REQUEST_MS // 1000})")


def run(arguments: Namespace, output: Output) -> int:
    """Do what the first word names and return 0."""
    what, *rest = arguments.words or [""]
    least, most = WORDS.get(what, (1, 0))
    if len(rest) < least or (most is not None and len(rest) > most):
        raise UsageError("say what to do", hint=f"`intercom assignment {USAGE.replace(' | ', '`, `')}`.")
    if what == "report":
        return _report(rest[0], rest[1], " ".join(rest[2:]), arguments, output)
    if what == "reply":
        return _reply(rest, arguments, output)
    with opened(arguments, "assignment", purpose="control", default_ms=REQUEST_MS) as session:
        views = all_open(session, arguments)
    if what == "list":
        if arguments.mine:
            mine = (identity_of(arguments).address or "").lower()
            views = [view for view in views if view.address is not None and view.address.lower() == mine]
        _show_all(views, output)
        return 0
    view = chosen(views, rest[0])
    output.document({"ok": True, "assignment": described_assignment(view)})
    for label, value in described_assignment(view).items():
        output.line(f"{label:<15} {visible(str(value))}")
    return 0


def all_open(session: Session, arguments: Namespace) -> list[AssignmentView]:
    """Return the open assignments the session may see; more than a page of them is more than there can be workers."""
    return session.open_assignments(limit=WORK_PAGE_CEILING, timeout=time_left(arguments, REQUEST_MS))


def chosen(views: Sequence[AssignmentView], wanted: str) -> AssignmentView:
    """Return the assignment that is meant; raise ``RequestRefused`` when none is, or several."""
    return one_of(
        views,
        lambda view: view.id,
        wanted,
        none=lambda: AssignmentLost(
            f"No open assignment has the id {wanted}",
            hint="It ended, or went back to the inbox, or is not of this identity: `intercom assignment list` tells.",
        ),
        many=lambda count: RequestRefused(
            f"{count} assignments have ids that begin with {wanted}",
            code="ambiguous_assignment",
            hint="Give the whole id; `intercom assignment list` shows it.",
        ),
    )


def _report(wanted: str, state: str, why: str, arguments: Namespace, output: Output) -> int:
    if state not in REPORTABLE:
        raise UsageError(f"{state!r} is no state a worker reports", hint=f"One of {', '.join(sorted(REPORTABLE))}.")
    with opened(arguments, "assignment", default_ms=WORK_REQUEST_MS, hold="none", works=True) as session:
        of = _meant(session, wanted, arguments)
        with _repeatable(of):
            sequence = session.report(
                of,
                state,
                why or None,
                code=arguments.code,
                retryable=arguments.retryable,
                event_id=arguments.event_id,
                timeout=time_left(arguments, WORK_REQUEST_MS),
            )
    output.document({"ok": True, "assignmentId": of.id, "state": state, "sequence": sequence})
    output.line(f"recorded: {state}")
    return 0


def _reply(words: Sequence[str], arguments: Namespace, output: Output) -> int:
    wanted, text = words_of(words, first="the id of an assignment", usage="assignment reply ID TEXT")
    carried = attachments_of(arguments)
    arguments.began = time.monotonic()  # what standard input and pipes took is nobody's time but the caller's
    with opened(arguments, "assignment", default_ms=WORK_REQUEST_MS, hold="none", works=True) as session:
        of = _meant(session, wanted, arguments)
        with _repeatable(of):
            receipt = session.reply_to(
                of,
                text,
                attachments=carried,
                reply_id=arguments.reply_id,
                timeout=time_left(arguments, WORK_REQUEST_MS),
            )
    output.document({"ok": True, "assignmentId": of.id, "state": receipt.state, "messageId": receipt.message_id})
    output.line(f"{receipt.state} (message {visible(receipt.message_id)})")
    return 0


def _meant(session: Session, wanted: str, arguments: Namespace) -> AnyAssignment:
    if arguments.source is not None:
        return AssignmentName(wanted, arguments.source)
    return chosen(all_open(session, arguments), wanted)


@contextmanager
def _repeatable(of: AnyAssignment) -> Iterator[None]:
    """Tell with every error after which the same may be said again how to do that."""
    try:
        yield
    except BrokerError as error:
        name = f"{quote(visible(of.id))} with --source {quote(visible(of.source_message_id))}"
        error.hint = f"Repeat the command for {name}: it takes effect once."
        raise


def _show_all(views: Sequence[AssignmentView], output: Output) -> None:
    output.document({"ok": True, "assignments": [described_assignment(view) for view in views]})
    if output.as_json:
        return
    now = time.time() * 1000
    rows = [
        (
            view.id,
            view.state if view.accepted or view.accept_deadline is None else _left(view, now),
            duration(now - view.assigned_at),
            view.address or view.session_id,
            view.source_message_id,
        )
        for view in views
    ]
    if rows:
        fit = Fit(whole=("ID",), names=("WORKER",), start_first=("STATE",), left_out=("MESSAGE", "SINCE"))
        show_table(output, HEAD, rows, fit)
    else:
        output.line("no open assignments")


def _left(view: AssignmentView, now: float) -> str:
    return f"{view.state}, {duration((view.accept_deadline or 0) - now)} to accept it"
