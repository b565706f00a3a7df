"""Follow what happens: sessions that come and go, addresses, mail, work."""

from __future__ import annotations

import json
import time
from argparse import Namespace
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from intercom.cli.arguments import Parser, add_home, add_json, add_timeout, clean
from intercom.cli.identity import opened, time_left
from intercom.cli.render import Output, visible, who
from intercom.cli.session import chosen
from intercom.client.watches import WatchSnapshot, after_of, subjects_of
from intercom.limits import REQUEST_MS, WATCH_POLL_MS

if TYPE_CHECKING:
    from intercom.client.blocking import Session, Watching
    from intercom.client.watches import Watched, WatchedState, WatchEvent

USAGE = ""
DESCRIPTION = """Follow what happens, as it happens: first how things are, then one line for each thing.

    session.active      a session has come, or is back
    session.closed      it is over
    mail.queued         a message waits; mail.offered, mail.delivered, mail.expired tell how it goes on

and so on: `intercom docs protocol 11.1.3` lists them. Everything, unless options name what to follow; they may be
repeated and mixed. No line holds the text of a message. It goes on over restarts of the broker until it is interrupted,
or for --timeout seconds.

At the end it says with which --after a later `watch` goes on, without gap or repetition. When that is not possible any
more, because the history is too old or the store another one, it says so and begins anew.

With --json every line is a document with an `event`: `snapshot`, `happened`, and at last `ended`. What is not `kept`,
such as a look of the broker at a flow, is told only to who follows just then.

Starts a broker when none runs.
"""
OPTIONS = (
    ("--session", "sessions", "ID", "a session, by its id or at least 4 characters of it"),
    ("--address", "addresses", "NAME", "an address, and the mail that waits there"),
    ("--group", "groups", "GROUP", "the sessions and addresses of a group"),
    ("--message", "messages", "ID", "a message, also one that is sent later"),
    ("--assignment", "assignments", "ID", "an assignment"),
    ("--flow", "flows", "ID", "a flow"),
    ("--invocation", "invocations", "ID", "an invocation"),
    ("--link", "links", "ID", "the link of a durable worker: its events, and the commands for it"),
)


class ReaderGone(Exception):
    """Say that nobody reads standard output any more."""


def configure(parser: Parser) -> None:
    """Add the options of ``watch``."""
    for option, dest, metavar, meaning in OPTIONS:
        parser.add_argument(
            option, dest=f"followed_{dest}", metavar=metavar, type=clean, action="append", default=[], help=meaning
        )
    parser.add_argument("--after", metavar="POSITION", type=clean, help="go on behind this, which an earlier one named")
    add_json(parser)
    add_timeout(parser, "how long to follow (default: until interrupted)")
    add_home(parser)
    parser.set_defaults(name=None, groups=None)


def run(arguments: Namespace, output: Output) -> int:
    """Print what happens, and return 0 when the time is over or nobody reads the output any more."""
    named = {dest: list(getattr(arguments, f"followed_{dest}")) for _, dest, _, _ in OPTIONS}
    subjects_of(**named)
    after_of(arguments.after)
    output.marks["event"] = "ended"
    following: Watching | None = None
    try:
        with suppress(ReaderGone), opened(arguments, "watch", purpose="control") as session:
            named["sessions"] = _sessions(session, named["sessions"], arguments)
            following = session.watch(**named, after=arguments.after, timeout=WATCH_POLL_MS / 1000)
            _follow(following, arguments, output)
            output.document({"ok": True, "event": "ended", "position": following.position})
    finally:
        if following is not None and following.position is not None:
            output.marks["position"] = following.position
            output.note(f"to go on from here: --after {following.position}")
    return 0


def _follow(following: Watching, arguments: Namespace, output: Output) -> None:
    until = None if arguments.timeout is None else arguments.began + arguments.timeout
    while until is None or time.monotonic() < until:
        for told in following:
            _show(told, output)
            if output.closed:
                raise ReaderGone
            if until is not None and time.monotonic() >= until:
                return


def _sessions(session: Session, wanted: list[str], arguments: Namespace) -> list[str]:
    """Return the ids of the sessions that are meant."""
    if not wanted:
        return []
    records = session.session_records(timeout=time_left(arguments, REQUEST_MS))
    return [chosen(records, each).id for each in wanted]


def _show(told: Watched, output: Output) -> None:
    if not isinstance(told, WatchSnapshot):
        output.document(
            {
                "ok": True,
                "event": "happened",
                "position": told.position,
                "seq": told.seq,
                "kind": told.kind,
                "at": told.at,
                "about": told.about,
                "detail": told.detail,
                "kept": told.kept,
            }
        )
        output.line(f"{_time(told.at)}  {_sentence(told.kind, told)}")
        return
    output.document(
        {
            "ok": True,
            "event": "snapshot",
            "position": told.position,
            "restarted": told.restarted,
            "leftOut": told.left_out,
            "states": [
                {"kind": state.kind, "state": state.state, "about": state.about, "detail": state.detail}
                for state in told.states
            ],
        }
    )
    if told.restarted is not None:
        output.line(f"what happened before cannot be told: {_RESTARTS[told.restarted]}")
    for state in told.states:
        output.line(f"now  {_sentence(f'{state.kind} {state.state}', state)}")
    if told.left_out:
        output.line(f"now  and {told.left_out} more")


def _sentence(what: str, told: WatchEvent | WatchedState) -> str:
    """Return what happened to whom, and the members that tell more."""
    about = dict(told.about)
    name, session_id = about.pop("name", None), about.pop("sessionId", None)
    subject = [] if session_id is None else [who(name, session_id)]
    more: dict[str, Any] = {**about, **{key: value for key, value in told.detail.items() if key != "state"}}
    shown = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in more.items()]
    return visible(" ".join([f"{what:<22}", *subject, *shown]).rstrip())


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")


_RESTARTS = {
    "ahead": "the broker has never been that far",
    "compacted": "that part of the history is not kept any more",
    "other_journal": "the broker has another store than then",
}
