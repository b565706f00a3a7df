"""Show what waits to be taken as work, hand it out, and take it."""

from __future__ import annotations

import time
import uuid
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING

from intercom.cli import session as sessions
from intercom.cli.arguments import Parser, add_common, clean
from intercom.cli.identity import opened, time_left
from intercom.cli.render import Output, duration, visible, visible_block, who
from intercom.cli.tables import Fit, show_table
from intercom.cli.working import POLICIES, described_parked, show_work
from intercom.client.choosing import chosen as one_of
from intercom.errors import BrokerError, IntercomError, RequestRefused, UsageError
from intercom.limits import REQUEST_MS, WORK_PAGE_CEILING, WORK_REQUEST_MS

if TYPE_CHECKING:
    from intercom.client.blocking import Session
    from intercom.client.blocking_work import Assignment
    from intercom.client.mailviews import SessionRecord
    from intercom.client.workviews import InboxPage, ParkedMessage

USAGE = "list | show ID | dispatch ID SESSION | claim ID | wait | settle ID"
DESCRIPTION = """Show the messages that wait to be taken as work, hand one to a worker, or take one.

What is sent to a session that takes work waits here until somebody takes it, and so does what nobody came for. A
message stays in its place until its work is done: work that is not accepted in time, or given back, waits here again.

    list                 all of them, the oldest first, with who may claim each
    show ID              one of them, with its whole text
    dispatch ID SESSION  hand it to a session that takes work, by its name or id
    claim ID             take it as work of this identity (`intercom whoami`)
    wait                 wait until work is handed to this identity; with --claim also take what it may claim,
                         such as what was sent to its name, also before this command
    settle ID            take it out: it needs nobody any more

ID is the id of the message in the inbox, or at least 4 characters of one. Work that was claimed belongs to the
identity: later commands report on it and answer it with `intercom assignment`. It must be accepted within 30 seconds,
or it goes back; --accept does that at once.

Starts a broker when none runs. Ends with 6 when `wait` was over before anything came.
"""
HEAD = ("ID", "WAITS", "FROM", "TO", "MAY CLAIM", "TEXT")
WORDS = {"list": 0, "show": 1, "dispatch": 2, "claim": 1, "wait": 0, "settle": 1}
"""What may be done, with the number of words behind it."""


class NoWork(IntercomError):
    """Say that no work came while the command waited."""

    code = "no_work"
    retry = "after"
    exit_status = 6


def configure(parser: Parser) -> None:
    """Add the options of ``inbox``."""
    parser.add_argument("words", nargs="*", metavar="WHAT", help="what to do, and with which message")
    parser.add_argument("--accept", action="store_true", help="accept at once what is claimed or comes")
    parser.add_argument("--claim", action="store_true", help="wait: also take what waits and this identity may claim")
    parser.add_argument("--key", metavar="KEY", type=clean, help="dispatch: name the order, so that it can be repeated")
    parser.add_argument(
        "--within", metavar="SECONDS", type=_within, help="dispatch: time for accepting it (default 30; 0: no limit)"
    )
    add_common(parser, timeout=f"longest wait: for work (else for ever), or the broker ({REQUEST_MS // 1000})")


def run(arguments: Namespace, output: Output) -> int:
    """Do what the first word names and return 0."""
    what, *rest = arguments.words or [""]
    if what not in WORDS or len(rest) != WORDS[what]:
        raise UsageError("say what to do", hint=f"`intercom inbox {USAGE.replace(' | ', '`, `')}`.")
    if what in ("claim", "wait"):
        return _take(arguments, output, rest)
    # The broker knows an order again by its key and by who gives it, so whoever repeats one has to be the same.
    order = (arguments.key or str(uuid.uuid4())) if what == "dispatch" else None
    with opened(arguments, "inbox", purpose="control", occasion=order, default_ms=WORK_REQUEST_MS) as session:
        if what == "list":
            _show_all(whole_inbox(session, arguments), output)
            return 0
        items = whole_inbox(session, arguments).items
        if order is not None:
            _dispatch(session, items, rest[0], rest[1], order, arguments, output)
            return 0
        item = chosen(items, rest[0])
        if what == "show":
            _show(session.inbox_message(item.id, timeout=time_left(arguments, REQUEST_MS)), output)
        else:
            session.settle(item.id, timeout=time_left(arguments, REQUEST_MS))
            output.document({"ok": True, "inboxId": item.id})
            output.line(f"taken out: {visible(item.id)}")
    return 0


def whole_inbox(session: Session, arguments: Namespace) -> InboxPage:
    """Return everything that is parked, however many pages that takes."""
    from msgspec.structs import replace

    page = session.inbox(limit=WORK_PAGE_CEILING, timeout=time_left(arguments, REQUEST_MS))
    items = list(page.items)
    while len(page.items) == WORK_PAGE_CEILING:
        page = session.inbox(after=items[-1].place, limit=WORK_PAGE_CEILING, timeout=time_left(arguments, REQUEST_MS))
        items += page.items
    return replace(page, items=tuple(items))


def chosen(items: Sequence[ParkedMessage], wanted: str) -> ParkedMessage:
    """Return the message that is meant; raise ``RequestRefused`` when none is, or several."""
    return one_of(
        items,
        lambda item: item.id,
        wanted,
        none=lambda: RequestRefused(f"No message in the inbox has the id {wanted}", code="inbox_unknown"),
        many=lambda count: RequestRefused(
            f"{count} messages in the inbox have ids that begin with {wanted}",
            code="ambiguous_inbox",
            hint="Give the whole id; `intercom inbox list` shows it.",
        ),
    )


def worker(records: Sequence[SessionRecord], wanted: str, *, may_be_gone: bool = False) -> SessionRecord:
    """Return the session that is meant by a name, an id, or the beginning of one.

    A name means a closed one only if ``may_be_gone``, when no other is called so: then the one that left last.
    An id may mean a closed one in any case.
    """
    there = [record for record in records if record.state != "closed"]
    named = [record for record in there if (record.name or "").lower() == wanted.strip().lower()]
    if len(named) == 1:
        return named[0]
    if named:
        raise RequestRefused(
            f"{len(named)} sessions are called {wanted}",
            code="ambiguous_session",
            hint="Give the id of one; `intercom session list` shows it.",
        )
    if may_be_gone:
        gone = [record for record in records if (record.name or "").lower() == wanted.strip().lower()]
        if gone:
            return max(gone, key=lambda record: record.since)
    return sessions.chosen(records, wanted)


def _dispatch(
    session: Session,
    items: Sequence[ParkedMessage],
    message: str,
    wanted: str,
    key: str,
    arguments: Namespace,
    output: Output,
) -> None:
    is_repeatable = arguments.key is not None
    unseen: RequestRefused | None = None
    try:
        inbox_id = chosen(items, message).id
    except RequestRefused as error:
        if error.code != "inbox_unknown" or not is_repeatable:
            raise
        # What was ordered under this key may be done with: the broker knows the order longer than the message.
        inbox_id, unseen = message, error
    records = session.session_records(timeout=time_left(arguments, REQUEST_MS))
    record = worker(records, wanted, may_be_gone=is_repeatable)
    try:
        order = session.dispatch(
            inbox_id,
            record.id,
            key=key,
            accept_within=arguments.within,
            timeout=time_left(arguments, WORK_REQUEST_MS),
        )
    except RequestRefused as error:
        if unseen is None or error.code not in ("order_key_conflict", "inbox_unknown"):
            raise
        unseen.hint = "To repeat an order whose message is not there any more, give the whole id and the same options."
        raise unseen from None
    except BrokerError as error:
        error.hint = f"Repeat the command for {visible(inbox_id)} with --key {quote(key)}: it is handed over once."
        raise
    told = {"inboxId": inbox_id, "sessionId": record.id, "handedTo": order.handed_to}
    output.document({"ok": True, "assignmentId": order.assignment_id, **told})
    worker_name = who(record.name, record.id)
    where = {
        "session": f"{worker_name} has it",
        "mailbox": f"{worker_name} is away and finds it at its return",
        "staging": f"{worker_name} comes for it",
    }
    output.line(f"{where[order.handed_to]} (assignment {visible(order.assignment_id)})")


def _take(arguments: Namespace, output: Output, rest: Sequence[str]) -> int:
    patience = arguments.timeout
    arguments.timeout = None if not rest else patience
    with opened(arguments, "inbox", default_ms=WORK_REQUEST_MS, hold="none", works=True) as session:
        if rest:
            work = _claim(session, rest[0], arguments)
        else:
            left = None if patience is None else max(0.001, arguments.began + patience - time.monotonic())
            found = session.wait_for_assignment(claim=arguments.claim, timeout=left)
            if found is None:
                raise NoWork("No work came in time", hint=_no_work_hint(arguments))
            work = found
        if arguments.accept:
            work.accept()
    show_work(work, arguments, output)
    return 0


def _no_work_hint(arguments: Namespace) -> str:
    again = "Wait again: what comes meanwhile is kept, and nothing was taken."
    return (
        again if arguments.claim else f"{again} With --claim also what waits in the inbox for this identity is taken."
    )


def _claim(session: Session, wanted: str, arguments: Namespace) -> Assignment:
    """Take a message; of one that this identity may not take say who may."""
    try:
        inbox_id = chosen(whole_inbox(session, arguments).items, wanted).id
    except RequestRefused as error:
        if error.code != "inbox_unknown":
            raise
        inbox_id = wanted
    try:
        return session.claim(inbox_id, timeout=time_left(arguments, WORK_REQUEST_MS))
    except RequestRefused as error:
        if error.code != "inbox_unknown":
            raise
        with opened(arguments, "inbox", purpose="control", default_ms=REQUEST_MS) as person:
            item = chosen(whole_inbox(person, arguments).items, wanted)
        raise _not_claimable(item) from None


def _not_claimable(item: ParkedMessage) -> RequestRefused:
    """Return why a message that is there cannot be claimed by who wants it."""
    if item.assignment_id is not None:
        return RequestRefused(f"Somebody has the message {item.id} already", code="assignment_in_progress")
    if item.claim_policy == "bound_session":
        who_may = f"only {item.target} may claim it"
    elif item.claim_policy == "any_session":
        who_may = "workers of its groups may claim it, and this identity is in none of them, or sent it"
    else:
        who_may = f"nobody may claim it: {POLICIES[item.claim_policy].partition(': ')[2] or 'it is handed out'}"
    return RequestRefused(
        f"The message {item.id} is there, but {who_may}",
        code="not_allowed",
        hint=f"`intercom inbox dispatch {quote(item.id)} SESSION` hands it to a session that takes work.",
    )


def _show(item: ParkedMessage, output: Output) -> None:
    output.document({"ok": True, "item": described_parked(item)})
    if output.as_json:
        return
    from intercom.cli.messages import indented

    now = time.time() * 1000
    lines = {
        "id": item.id,
        "from": who(item.sender.name, item.sender.id),
        "to": item.target,
        "waits": f"{duration(now - item.parked_at)}: {item.reason}",
        "may claim": POLICIES[item.claim_policy],
        "assignment": item.assignment_id or "-",
        "given back": f"{item.returns} times, last: {item.return_reason}" if item.returns else "never",
    }
    for label, value in lines.items():
        output.line(f"{label:<11} {visible(value)}")
    output.line(indented(item.text or ""))
    for attachment in item.attachments:
        output.line(f"  --- {visible(attachment.name)}")
        output.line(indented(attachment.content))


def _show_all(page: InboxPage, output: Output) -> None:
    output.document(
        {
            "ok": True,
            "items": [described_parked(item) for item in page.items],
            "count": page.count,
            "capacity": page.capacity,
            "underPressure": page.under_pressure,
        }
    )
    if output.as_json:
        return
    now = time.time() * 1000
    rows = [
        (
            item.id,
            duration(now - item.parked_at),
            who(item.sender.name, item.sender.id),
            item.target,
            POLICIES[item.claim_policy],
            visible_block(item.preview).replace("\n", " "),
        )
        for item in page.items
    ]
    if rows:
        fit = Fit(
            whole=("ID",), names=("FROM", "TO"), start_first=("TEXT", "MAY CLAIM"), left_out=("TEXT", "MAY CLAIM")
        )
        show_table(output, HEAD, rows, fit)
    else:
        output.line("nothing waits")
    if page.under_pressure:
        output.line(f"{page.count} of at most {page.capacity} messages wait: more will soon be refused")


def _within(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86_400:
        raise ArgumentTypeError(f"not a number of seconds from 0 to 86400: {clean(text)}")
    return seconds
