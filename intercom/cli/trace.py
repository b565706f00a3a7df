"""Show what became of a message: every state it was in, and where it is now."""

from __future__ import annotations

import json
from argparse import Namespace
from datetime import datetime
from typing import TYPE_CHECKING

from intercom.cli.arguments import Parser, add_home, add_json, add_timeout
from intercom.cli.identity import opened, time_left
from intercom.cli.render import Output, visible
from intercom.errors import RequestRefused, UsageError
from intercom.limits import REQUEST_MS

if TYPE_CHECKING:
    from intercom.client.mailviews import TraceEvent

USAGE = "MESSAGE-ID"
DESCRIPTION = """Show what became of a message: its states with their times, and where it is now.

    reserved       its id was written down; whether it arrived is not known yet
    unconfirmed    it was written to who receives, which has not confirmed it; who receives next gets it again
    queued         it waits on disk; nobody has it
    offered        it was written to the session that receives, which has not confirmed it
    delivered      the other side has it
    answered       it was a question, and the answer was delivered
    expired        its time was over before anybody had it, and its sender was told; or a worker said that it is too
                   old to be of use
    undeliverable  nobody came for it in time, or its mailbox is gone; its sender was told
    handed_on      another machine keeps it for its recipient, or gave it to it since; trace it there
    withdrawn      it was a question, and its sender waits for no answer any more
    purged         the person emptied its mailbox or gave it up; its sender was told
    parked         it waits in the inbox until a worker takes it (`intercom inbox`)
    assigned       a worker has it; accepted, started and others are what the worker said of it
    failed         it was work, and the worker could not do it; no message told its sender
    ambiguous      it was work, and the worker was cut off; no message told its sender
    settled        it was work, and somebody said that it needs nobody any more
    uncertain      it may have arrived or not

Of a message to somebody who was there the broker remembers the fate for 12 minutes, of one that waited here for longer.

Starts a broker when none runs. Ends with 3 when nothing is known of it.
"""
UNKNOWN = "unknown"


def configure(parser: Parser) -> None:
    """Add the options of ``trace``."""
    parser.add_argument("words", nargs="*", metavar="MESSAGE-ID", help="the id that `send` printed")
    add_json(parser)
    add_timeout(parser, f"longest wait for the broker (default {REQUEST_MS // 1000})")
    add_home(parser)
    parser.set_defaults(name=None, groups=None)


def run(arguments: Namespace, output: Output) -> int:
    """Print the states and return 0."""
    if len(arguments.words) != 1:
        raise UsageError("name one message by its id", hint="`intercom send` prints it; `--json` too.")
    [message_id] = arguments.words
    with opened(arguments, "trace", purpose="control", default_ms=REQUEST_MS) as session:
        found = session.trace(message_id, timeout=time_left(arguments, REQUEST_MS))
    if found.state == UNKNOWN:
        raise RequestRefused(
            f"Nothing is known of the message {message_id}",
            code="unknown_message",
            hint="It was never sent in this home, or so long ago that it was forgotten, or its history was purged.",
        )
    output.document(
        {
            "ok": True,
            "messageId": found.message_id,
            "state": found.state,
            "where": found.where,
            "sender": found.sender,
            "recipient": found.recipient,
            "events": [{"at": event.at, "state": event.state, "detail": event.detail} for event in found.events],
        }
    )
    for event in found.events:
        output.line(f"{_time(event.at)}  {_told(event)}")
    output.line(f"now: {visible(found.state)}: {visible(found.where)}")
    return 0


def _told(event: TraceEvent) -> str:
    detail = " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in event.detail.items()
    )
    return visible(f"{event.state:<13} {detail}".rstrip())


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")
