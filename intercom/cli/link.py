"""Show the links of workers, and give one to another journal of its worker."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from intercom.cli.arguments import Parser, add_common, clean, position
from intercom.cli.identity import opened, time_left
from intercom.cli.person import require_person
from intercom.cli.render import Output, duration, visible
from intercom.cli.tables import Fit, show_table
from intercom.client.choosing import chosen as one_of
from intercom.errors import RequestRefused, UsageError
from intercom.limits import REQUEST_MS

if TYPE_CHECKING:
    from intercom.client.linkviews import EventView, LinkView

USAGE = "list | show ID | events ID | repin ID --journal JOURNAL --yes"
DESCRIPTION = """Show the links: what a durable worker has reported, and what it has been told to do, is on disk on both
sides. `ready`: the worker is here; `away`; `connecting`; `refused`, because it came with another journal than the one
the link belongs to.

    list       all of them, the oldest first
    show ID    one of them, with all that is known
    events ID  the durable events of the worker that are kept, 16 behind --after
    repin ID   let the link go on with the worker's new journal (for the person): its events are counted from one again,
               and of commands it had received nobody knows any more whether they were carried out

ID is the id of a link, or at least 4 characters of one, or the address of the worker. Starts a broker when none runs.
"""
HEAD = ("ID", "WORKER", "STATE", "EVENTS", "COMMANDS", "HEARTBEAT")
WORDS = {"list": 0, "show": 1, "events": 1, "repin": 1}
"""What may be done, with the number of words behind it."""


def configure(parser: Parser) -> None:
    """Add the options of ``link``."""
    parser.add_argument("words", nargs="*", metavar="WHAT", help="list, show ID, events ID or repin ID")
    parser.add_argument("--after", metavar="NUMBER", type=position, default=0, help="events: those behind this number")
    parser.add_argument("--journal", metavar="JOURNAL", type=clean, help="repin: the journal of the worker")
    parser.add_argument("--yes", action="store_true", help="repin: do it")
    add_common(parser, timeout=f"longest wait for the broker (default {REQUEST_MS // 1000})")


def run(arguments: Namespace, output: Output) -> int:
    """Do what the first word names and return 0."""
    what, *rest = arguments.words or [""]
    if WORDS.get(what) != len(rest):
        raise UsageError("say what to do", hint=f"`intercom link {USAGE.replace(' | ', '`, `')}`.")
    if what == "repin":
        require_person("giving a link to another journal")
        if arguments.journal is None or not arguments.yes:
            raise UsageError(
                "what the worker received and did not report on is ambiguous after that",
                hint="Say which journal, and that you want it: --journal JOURNAL --yes.",
            )
    with opened(arguments, "link", purpose="control", default_ms=REQUEST_MS) as session:
        views = session.links(timeout=time_left(arguments, REQUEST_MS))
        if what == "list":
            output.document({"ok": True, "links": [described(view) for view in views]})
            if not output.as_json:
                _show_all(views, output)
            return 0
        view = chosen(views, rest[0])
        if what == "show":
            output.document({"ok": True, "link": described(view)})
            for label, value in described(view).items():
                output.line(f"{label:<15} {visible('-' if value is None else str(value))}")
            if view.other_journal_id is not None and not output.as_json:
                output.note(f"to let it go on with the other journal: `{repinning(view)}`")
        elif what == "events":
            events = session.link_events(view.id, after=arguments.after, timeout=time_left(arguments, REQUEST_MS))
            output.document({"ok": True, "events": [_event(event) for event in events]})
            for event in events:
                output.line(f"{event.seq:>6} {visible(event.kind)} {visible(str(event.body or '-'))}")
        else:
            doubtful = session.repin_link(view.id, arguments.journal, timeout=time_left(arguments, REQUEST_MS))
            output.document({"ok": True, "id": view.id, "journalId": arguments.journal, "ambiguous": doubtful})
            output.line(f"{visible(worker_of(view))} goes on with {visible(arguments.journal)}")
            for command_id in doubtful:
                output.line(f"look whether it was carried out: {visible(command_id)}")
    return 0


def repinning(view: LinkView) -> str:
    """Return the command that lets a link go on with the journal its worker was refused with."""
    return f"intercom link repin {view.id} --journal {view.other_journal_id} --yes"


def worker_of(view: LinkView) -> str:
    """Return whose link it is, for people."""
    return view.address or view.session_id or view.id


def described(view: LinkView) -> dict[str, Any]:
    """Return a link as a JSON object."""
    return {
        "id": view.id,
        "state": view.state,
        "address": view.address,
        "group": view.group,
        "sessionId": view.session_id,
        "generation": view.generation,
        "journalId": view.journal_id,
        "eventFloor": view.event_floor,
        "openCommands": view.open_commands,
        "waitingFrames": view.waiting_frames,
        "waitingBytes": view.waiting_bytes,
        "heartbeatAt": view.heartbeat_at,
        "refused": view.refused,
        "otherJournalId": view.other_journal_id,
        "workerState": view.worker_state,
    }


def chosen(views: Sequence[LinkView], wanted: str) -> LinkView:
    """Return the link that is meant; raise ``RequestRefused`` when none is, or several."""
    named = [view for view in views if view.address is not None and view.address.lower() == wanted.lower()]
    if len(named) == 1:
        return named[0]
    return one_of(
        named or views,
        lambda view: view.id,
        wanted,
        none=lambda: RequestRefused(f"No link with the id {wanted} is known", code="unknown_link"),
        many=lambda count: RequestRefused(
            f"{count} links have ids that begin with {wanted}",
            code="ambiguous_link",
            hint="Give the whole id; `intercom link list` shows it.",
        ),
    )


def _event(event: EventView) -> dict[str, Any]:
    members = asdict(event)
    return {
        "seq": members["seq"],
        "id": members["id"],
        "kind": members["kind"],
        "occurredAt": members["occurred_at"],
        "storedAt": members["stored_at"],
        "body": members["body"],
    }


def _show_all(views: Sequence[LinkView], output: Output) -> None:
    now = time.time() * 1000
    rows = [
        (
            view.id,
            worker_of(view),
            view.state if view.refused is None else f"refused: {view.refused}",
            str(view.event_floor),
            str(view.open_commands),
            "-" if view.heartbeat_at is None else f"{duration(now - view.heartbeat_at)} ago",
        )
        for view in views
    ]
    if rows:
        show_table(
            output,
            HEAD,
            rows,
            Fit(whole=("ID",), names=("WORKER",), start_first=("STATE",), left_out=("HEARTBEAT", "COMMANDS")),
        )
    else:
        output.line("no links")
