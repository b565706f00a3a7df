"""Have a session started by a command that the settings name."""

from __future__ import annotations

import uuid
from argparse import Namespace
from shlex import quote

from intercom.cli.arguments import Parser, add_home, add_json, add_timeout, clean, words_of
from intercom.cli.identity import opened, time_left
from intercom.cli.render import Output, visible
from intercom.errors import BrokerError, UsageError
from intercom.limits import SPAWN_WAIT_MS

USAGE = "KIND [PROMPT | -]"
DESCRIPTION = """Have a session started, and wait until it has registered. KIND is one of the commands that
`intercom.toml` names under [spawn]; without any nothing can be started. The command finds PROMPT on its standard input,
`-` hands on that of this command.

    [spawn.reviewer]
    command = ["claude", "-p"]

At most 3 sessions are started within 30 s. An order with a --key that was used before starts nothing again: it tells
what became of the first, or waits for that. Only a command that is known to have failed (`spawn_failed`) is started
again. When --timeout is over first, the key under which the order can be repeated is printed.

Prints the id of the session. Ends with 6 when no session has come in time: the command may still be at work, and is not
started again under the same key.
Starts a broker when none runs.
"""


def configure(parser: Parser) -> None:
    """Add the options of ``spawn``."""
    parser.add_argument("words", nargs="*", metavar="KIND", help="the kind, then the prompt")
    parser.add_argument("--key", metavar="KEY", type=clean, help="name the order, so that repeating it starts nothing")
    add_json(parser)
    add_timeout(parser, f"longest wait for the session (default {SPAWN_WAIT_MS // 1000})")
    add_home(parser)
    parser.set_defaults(name=None, groups=None)


def run(arguments: Namespace, output: Output) -> int:
    """Order the session and return 0 when it is there."""
    words = arguments.words
    if not words or not words[0].strip():
        raise UsageError("a kind is missing", hint="`intercom status` shows those that the settings name.")
    key = arguments.key or str(uuid.uuid4())
    prompt = words_of(words, first="a kind", usage="spawn KIND PROMPT")[1] if len(words) > 1 else ""
    with opened(arguments, "spawn", purpose="control", default_ms=SPAWN_WAIT_MS) as session:
        try:
            found = session.spawn(words[0], prompt, key=key, timeout=time_left(arguments, SPAWN_WAIT_MS))
        except BrokerError as error:
            error.hint = f"Repeat the command with --key {quote(key)}: nothing is started twice."
            raise
    output.document({"ok": True, "id": found, "kind": words[0], "key": key})
    output.line(f"started {visible(words[0])}: {visible(found)}")
    return 0
