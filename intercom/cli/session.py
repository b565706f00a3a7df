"""Show and end the sessions a broker knows, also those that are away or closed."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from intercom.cli.arguments import Parser, add_common
from intercom.cli.identity import groups_of, opened, paths_of, time_left
from intercom.cli.person import require_person
from intercom.cli.render import Output, duration, short_ids, visible
from intercom.cli.tables import Fit, show_table
from intercom.cli.who import identity_of
from intercom.client.choosing import chosen as one_of
from intercom.client.profile import DEFAULT_GROUP
from intercom.errors import RequestRefused, UsageError
from intercom.limits import REQUEST_MS

if TYPE_CHECKING:
    from intercom.client.blocking import Session
    from intercom.client.mailviews import SessionRecord

USAGE = "list | show ID | close ID | hint TEXT"
DESCRIPTION = """Show the sessions that are known to the broker: `active` ones, those that lost their connection and
may come back (`reconnecting`, with the time they have left), and `closed` ones, which are remembered for 7 days.

    list       those that are here or may come back; with --all the closed ones too
    show ID    one of them, with all that is known
    close ID   close one for good; what waits for it alone is given up and the senders are told (for the person)
    hint TEXT  say in a few words what the session works on that receives for the identity of this command, such as
               `intercom listen` or an adapter in an agent host; an empty text takes it back

ID is a session id or at least 4 characters of one. Starts a broker when none runs.
"""
HEAD = ("NAME", "ID", "STATE", "SINCE", "WAITING", "PID", "GROUPS", "HINT")


def configure(parser: Parser) -> None:
    """Add the options of ``session``."""
    parser.add_argument("words", nargs="*", metavar="WHAT", help="list, show ID, close ID or hint TEXT")
    parser.add_argument("--all", action="store_true", help="list closed sessions too")
    add_common(parser, timeout=f"longest wait for the broker (default {REQUEST_MS // 1000})")


def run(arguments: Namespace, output: Output) -> int:
    """Do what the first word names and return 0."""
    what, *rest = arguments.words or [""]
    if what == "hint" and rest:
        return _hint(" ".join(rest), arguments, output)
    if (what, len(rest)) not in (("list", 0), ("show", 1), ("close", 1)):
        raise UsageError("say what to do", hint="`intercom session list`, `show ID`, `close ID` or `hint TEXT`.")
    if what == "close":
        require_person("closing a session")
    with opened(arguments, "session", purpose="control", default_ms=REQUEST_MS) as session:
        records = session.session_records(timeout=time_left(arguments, REQUEST_MS))
        if what == "list":
            records = [record for record in records if arguments.all or record.state != "closed"]
            output.document({"ok": True, "sessions": [described(record) for record in records]})
            if not output.as_json:
                _show_all(records, output)
            return 0
        record = chosen(records, rest[0])
        if what == "show":
            output.document({"ok": True, "session": described(record)})
            for label, value in described(record).items():
                output.line(f"{label:<15} {visible(_text(value))}")
            return 0
        return _close(session, record, arguments, output)


def described(record: SessionRecord) -> dict[str, Any]:
    """Return a known session as a JSON object."""
    return {
        "id": record.id,
        "name": record.name,
        "state": record.state,
        "since": record.since,
        "groups": list(record.groups),
        "pid": record.pid,
        "kind": record.kind,
        "address": record.address,
        "waiting": record.mailbox_count,
        "taskHint": record.task_hint,
        "graceDeadline": record.grace_deadline,
        "closedReason": record.closed_reason,
        "generation": record.generation,
        "incarnation": record.incarnation,
        "label": record.label,
        "workMode": record.work_mode,
    }


def chosen(records: Iterable[SessionRecord], wanted: str) -> SessionRecord:
    """Return the session that is meant; raise ``RequestRefused`` when none is, or several."""
    return one_of(
        records,
        lambda record: record.id,
        wanted,
        none=lambda: RequestRefused(f"No session with the id {wanted} is known", code="unknown_session"),
        many=lambda count: RequestRefused(
            f"{count} sessions have ids that begin with {wanted}",
            code="ambiguous_session",
            hint="Give the whole id; `intercom session list` shows it.",
        ),
    )


def _close(session: Session, record: SessionRecord, arguments: Namespace, output: Output) -> int:
    was_known = session.force_close(record.id, "closed by the person", timeout=time_left(arguments, REQUEST_MS))
    output.document({"ok": True, "id": record.id, "wasKnown": was_known})
    output.line(f"closed {visible(record.name or record.id)}")
    return 0


def _hint(text: str, arguments: Namespace, output: Output) -> int:
    address = address_of_identity(arguments)
    groups = groups_of(arguments, paths_of(arguments))
    group = groups[0] if groups else DEFAULT_GROUP
    with opened(arguments, "session", default_ms=REQUEST_MS, hold="none") as session:
        found = session.addresses(timeout=time_left(arguments, REQUEST_MS))
        own = [view for view in found if (view.name.lower(), view.group) == (address.lower(), group)]
        holder = own[0].holder if own else None
        if holder is None:
            raise RequestRefused(
                f"No session receives for {address} now, and that of this command ends with it: "
                "nothing would show the hint",
                code="unknown_session",
                hint="Begin with `intercom listen`, or what else receives for this identity.",
            )
        kept = session.task_hint(text.strip(), session_id=holder, timeout=time_left(arguments, REQUEST_MS))
        output.document({"ok": True, "id": holder, "taskHint": kept})
        output.line(f"kept: {visible(kept)}" if kept else "taken back")
    return 0


def address_of_identity(arguments: Namespace) -> str:
    """Return the address of the identity of this command; raise ``UsageError`` for a guest."""
    address = identity_of(arguments).address
    if address is None:
        raise UsageError("a guest has no session that lasts", hint="Name yourself with --as NAME or INTERCOM_NAME.")
    return address


def _show_all(records: Sequence[SessionRecord], output: Output) -> None:
    now = time.time() * 1000
    short = short_ids([record.id for record in records])
    rows = [
        (
            record.name or "-",
            short[record.id],
            _state(record, now),
            duration(now - record.since),
            str(record.mailbox_count),
            str(record.pid),
            ",".join(record.groups),
            record.task_hint or "-",
        )
        for record in records
    ]
    if rows:
        show_table(
            output,
            HEAD,
            rows,
            Fit(whole=("ID",), names=("NAME",), start_first=("STATE", "HINT"), left_out=("GROUPS", "PID", "HINT")),
        )
    else:
        output.line("no sessions")


def _state(record: SessionRecord, now: float) -> str:
    if record.state == "reconnecting" and record.grace_deadline is not None:
        return f"reconnecting, {duration(record.grace_deadline - now)} left"
    if record.state == "closed" and record.closed_reason is not None:
        return f"closed: {record.closed_reason}"
    return record.state


def _text(value: object) -> str:
    if value is None:
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
