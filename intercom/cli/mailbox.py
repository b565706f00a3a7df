"""Show what waits in a mailbox, without taking anything out."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from intercom.cli.arguments import Parser, add_common
from intercom.cli.identity import groups_of, opened, paths_of, time_left
from intercom.cli.render import Output, duration, visible, who
from intercom.cli.tables import Fit, show_table
from intercom.cli.who import identity_of
from intercom.client.mailviews import Mailbox
from intercom.client.profile import DEFAULT_GROUP, PERSON
from intercom.errors import RequestRefused, UsageError
from intercom.limits import MAILBOX_PAGE, REQUEST_MS

if TYPE_CHECKING:
    from intercom.client.mailviews import MailboxEntry

USAGE = "[show [ADDRESS | SESSION-ID]]"
DESCRIPTION = """Show what waits in the mailbox of this identity (`intercom whoami`), or in that of an address or of a
session without one. Nothing is taken out and no text is shown: `intercom receive` does that.

`queued` is a message nobody has, `offered` one that was handed over and not confirmed yet. EXPIRES says when its sender
is told that it was not delivered. `unconfirmed` is one that never waited on disk: it was written to the session that
received, which has not confirmed it; whoever receives next gets it again, unless the broker ends before.

Starts a broker when none runs.
"""
HEAD = ("PLACE", "STATE", "WAITS", "EXPIRES", "BYTES", "FROM", "ID")
OWN = "show"


def configure(parser: Parser) -> None:
    """Add the options of ``mailbox``."""
    parser.add_argument("words", nargs="*", metavar="WHOSE", help="`show` and an address or a session id")
    add_common(parser, timeout=f"longest wait for the broker (default {REQUEST_MS // 1000})")


def run(arguments: Namespace, output: Output) -> int:
    """Print the entries and return 0."""
    of = whose(arguments)
    with opened(arguments, "mailbox", purpose="control", default_ms=REQUEST_MS) as session:
        try:
            box = session.mailbox(**of, timeout=time_left(arguments, REQUEST_MS))
        except RequestRefused as error:
            if error.code != "unknown_address" or is_named(arguments):
                raise
            # An identity gets its address with the first command that speaks for it.
            box = Mailbox(owner=of["address"], count=0, bytes=0, entries=())
    output.document(
        {
            "ok": True,
            "owner": box.owner,
            "count": box.count,
            "bytes": box.bytes,
            "entries": [_described(entry) for entry in box.entries],
            "unconfirmed": [
                {
                    "messageId": message.message_id,
                    "from": dict(message.sender.raw),
                    "sentAt": message.sent_at,
                    "bytes": message.size,
                    "expectsReply": message.expects_reply,
                }
                for message in box.unconfirmed
            ],
        }
    )
    if not output.as_json:
        _show(box, output)
    return 0


def is_named(arguments: Namespace) -> bool:
    """Tell whether the words name a mailbox, instead of meaning that of this identity."""
    return any(place or word != OWN for place, word in enumerate(arguments.words))


def whose(arguments: Namespace) -> dict[str, Any]:
    """Return which mailbox the words name, as arguments of ``Session.mailbox``."""
    words = [word for place, word in enumerate(arguments.words) if place or word != OWN]
    if len(words) > 1 or (words and words == arguments.words):
        raise UsageError("name one mailbox", hint="`intercom mailbox show ADDRESS`; `intercom addresses` lists them.")
    if not words:
        identity = identity_of(arguments)
        if identity.address is None:
            raise UsageError("a guest has no mailbox", hint="Name yourself with --as NAME, or name an address.")
        groups = groups_of(arguments, paths_of(arguments))
        return {"address": identity.address, "group": groups[0] if groups else DEFAULT_GROUP}
    [name] = words
    if looks_like_a_session(name):
        return {"session_id": name}
    if name.lower() == PERSON or not arguments.groups:
        return {"address": name}
    return {"address": name, "group": arguments.groups[0]}


def looks_like_a_session(word: str) -> bool:
    """Tell whether a word has the form of a session id, which no name may have."""
    parts = word.split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and not set("".join(parts).lower()) - set(
        "0123456789abcdef"
    )


def _described(entry: MailboxEntry) -> dict[str, Any]:
    told = {
        "position": entry.position,
        "messageId": entry.message_id,
        "from": dict(entry.sender.raw),
        "state": entry.state,
        "queuedAt": entry.queued_at,
        "expiresAt": entry.expires_at,
        "bytes": entry.size,
        "offers": entry.offers,
        "expectsReply": entry.expects_reply,
    }
    optional = {"validUntil": entry.valid_until, "notice": entry.notice}
    return told | {name: value for name, value in optional.items() if value is not None}


def _show(box: Mailbox, output: Output) -> None:
    now = time.time() * 1000
    rows: list[tuple[str, ...]] = [
        (
            str(entry.position),
            entry.state,
            duration(now - entry.queued_at),
            f"in {duration(min(entry.expires_at, entry.valid_until or entry.expires_at) - now)}",
            str(entry.size),
            "intercom" if entry.notice is not None else who(entry.sender.name, entry.sender.id),
            entry.message_id,
        )
        for entry in box.entries
    ]
    rows += [
        (
            "-",
            "unconfirmed",
            duration(now - message.sent_at),
            "-",
            str(message.size),
            who(message.sender.name, message.sender.id),
            message.message_id,
        )
        for message in box.unconfirmed
    ]
    if rows:
        show_table(output, HEAD, rows, Fit(whole=("ID",), names=("FROM",), left_out=("BYTES", "EXPIRES")))
    else:
        output.line(f"the mailbox of {visible(box.owner)} is empty")
    if box.count > len(box.entries):
        output.line(f"{box.count - len(box.entries)} more wait; the first {MAILBOX_PAGE} are shown")
