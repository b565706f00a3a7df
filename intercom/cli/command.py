"""Send commands to durable workers, and show what became of them."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from intercom.cli.arguments import Parser, add_common, clean, position, words_of
from intercom.cli.identity import opened, time_left
from intercom.cli.link import chosen as chosen_link
from intercom.cli.render import Output, duration, visible
from intercom.cli.tables import Fit, show_table
from intercom.client.choosing import chosen as one_of
from intercom.errors import RequestRefused, UsageError
from intercom.limits import LINK_PAGE_CEILING, REQUEST_MS, WORK_REQUEST_MS
from intercom.wire.jsontext import read

if TYPE_CHECKING:
    from intercom.client.linkviews import CommandView

USAGE = "send WORKER BODY | list | show ID"
DESCRIPTION = """Tell a durable worker to do something, once: the command waits while the worker is away, and is neither
lost nor carried out twice when the worker or the broker restarts.

    send WORKER BODY  store a command; WORKER is the address of a worker, or the id of its link. BODY is a JSON
                      object, at most 256 KiB; `-` reads standard input
    list              all commands that are kept, the oldest first; 1,000 behind --after
    show ID           one of them, with its body

`pending`: it has no receipt; `received`: it is on the worker's disk; `rejected`; `applied` and `failed`, as the worker
reported; `ambiguous`: the worker lost its journal. After an outcome that is not known, send it again with the same
--id: it is stored once.

ID is the id of a command, or at least 4 characters of one. Starts a broker when none runs.
"""
HEAD = ("ID", "STATE", "SINCE", "LINK", "DETAIL")


def configure(parser: Parser) -> None:
    """Add the options of ``command``."""
    parser.add_argument("words", nargs="*", metavar="WHAT", help="send WORKER BODY, list or show ID")
    parser.add_argument("--id", metavar="ID", type=clean, help="send: name the command, to repeat it")
    parser.add_argument("--after", metavar="NUMBER", type=position, default=0, help="list: those behind this number")
    add_common(parser, timeout=f"longest wait for the broker (default {WORK_REQUEST_MS // 1000})")


def run(arguments: Namespace, output: Output) -> int:
    """Do what the first word names and return 0."""
    what, *rest = arguments.words or [""]
    if (what, len(rest)) not in (("list", 0), ("show", 1)) and not (what == "send" and len(rest) >= 2):
        raise UsageError("say what to do", hint=f"`intercom command {USAGE.replace(' | ', '`, `')}`.")
    body = _body(rest) if what == "send" else {}
    with opened(arguments, "command", purpose="control", default_ms=WORK_REQUEST_MS) as session:
        if what == "send":
            link = chosen_link(session.links(timeout=time_left(arguments, REQUEST_MS)), rest[0])
            command = session.send_command(
                body, link_id=link.id, command_id=arguments.id, timeout=time_left(arguments, WORK_REQUEST_MS)
            )
            output.document({"ok": True, "command": described(command)})
            output.line(f"stored: {visible(command.id)}")
            return 0
        views = session.command_list(
            after=arguments.after, limit=LINK_PAGE_CEILING, timeout=time_left(arguments, REQUEST_MS)
        )
        if what == "list":
            output.document({"ok": True, "commands": [described(view) for view in views]})
            if not output.as_json:
                _show_all(views, output)
            return 0
        view = session.command(chosen(views, rest[0]).id, timeout=time_left(arguments, REQUEST_MS))
    output.document({"ok": True, "command": described(view)})
    for label, value in described(view).items():
        output.line(f"{label:<15} {visible('-' if value is None else str(value))}")
    return 0


def described(view: CommandView) -> dict[str, Any]:
    """Return a command as a JSON object."""
    return {
        "id": view.id,
        "number": view.number,
        "linkId": view.link_id,
        "commandSeq": view.seq,
        "state": view.state,
        "createdAt": view.created_at,
        "changedAt": view.changed_at,
        "errorCode": view.error_code,
        "detail": view.detail,
        "body": view.body,
    }


def chosen(views: Sequence[CommandView], wanted: str) -> CommandView:
    """Return the command that is meant; raise ``RequestRefused`` when none is, or several."""
    exact = [view for view in views if view.id == wanted]
    return one_of(
        exact or views,
        lambda view: view.id,
        wanted,
        none=lambda: RequestRefused(f"No command with the id {wanted} is known", code="unknown_command"),
        many=lambda count: RequestRefused(
            f"{count} commands have ids that begin with {wanted}",
            code="ambiguous_command",
            hint="Give the whole id; `intercom command list` shows it.",
        ),
    )


def _body(words: Sequence[str]) -> dict[str, Any]:
    _, text = words_of(words, first="a worker", usage="command send WORKER BODY")
    try:
        body = read(text.encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise UsageError("BODY is no JSON object", hint='Write it like \'{"do": "build"}\'.')
    return body


def _show_all(views: Sequence[CommandView], output: Output) -> None:
    now = time.time() * 1000
    rows = [
        (
            view.id,
            view.state,
            duration(now - view.changed_at),
            view.link_id[:8],
            view.error_code or view.detail or "-",
        )
        for view in views
    ]
    if rows:
        show_table(output, HEAD, rows, Fit(whole=("ID",), start_first=("DETAIL",), left_out=("LINK", "SINCE")))
    else:
        output.line("no commands")
