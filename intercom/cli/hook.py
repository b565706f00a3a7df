"""Be what an agent host runs at its events: quick, quiet, and gone within a second."""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock, start_new_thread
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from intercom.cli.arguments import Parser, add_home, add_json, clean
from intercom.cli.render import Output
from intercom.errors import IntercomError, UsageError
from intercom.hosts.events import read_event
from intercom.hosts.facts import HOOKED, Facts, Moment, facts
from intercom.limits import HOOK_INPUT_BYTES, HOOK_MS, READ_BYTES, REWAKE_MS
from intercom.paths import Paths, resolve_home

USAGE = "HOST EVENT"
DESCRIPTION = """Read an event of an agent host from standard input, and print what the host is to do about it.

`intercom install` enters this into Claude Code, Codex and Gemini CLI (claude, codex, gemini); EVENT is the host's own
name of the event. At its start a session is told who it is; at prompts and after tools it is shown what others wrote; a
session that stops while others wait for its answer is asked for it. The message counts as shown when it was printed.

It ends within a second, prints nothing when there is nothing to say, and ends with 0 whatever happens; only with a host
that is not known, or options that are wrong, it ends with 1. What it could not do is told on standard error. As Rewake
of claude it waits for a message and ends with 2, which wakes an idle session.

With --json it prints a document of its own that holds as `output` what the host would be told.
"""


def configure(parser: Parser) -> None:
    """Add the options of ``hook``."""
    parser.usage_status = 1  # 2 would mean to a host that it must not go on
    parser.add_argument("host", metavar="HOST", help=", ".join(HOOKED))
    parser.add_argument("event", metavar="EVENT", help="the host's name of the event")
    add_json(parser)
    add_home(parser)


def run(arguments: Namespace, output: Output) -> int:
    """Do what the event asks for; return 0, or what wakes a session."""
    if arguments.host not in HOOKED:
        error = UsageError(f"{clean(arguments.host)} is no host with hooks", hint=f"There are {', '.join(HOOKED)}.")
        error.exit_status = 1
        raise error
    host = facts(arguments.host)
    moment = host.moments.get(arguments.event)
    told: list[dict[str, Any]] = []
    status = 0
    if moment is not None:
        with _no_longer_than(REWAKE_MS if moment == "rewake" else HOOK_MS):
            status = _act(arguments, output, host, moment, told)
    if not told:
        output.document({"ok": True, "output": None})
    return status


def _act(arguments: Namespace, output: Output, host: Facts, moment: Moment, told: list[dict[str, Any]]) -> int:
    from intercom.hosts.call import Call
    from intercom.hosts.hook import run as run_hook

    def say(document: dict[str, Any]) -> bool:
        import json

        told.append(document)
        output.document({"ok": True, "output": document})
        output.line(json.dumps(document))
        return not output.closed

    def wake(text: str) -> bool:
        output.note(text)
        return True

    try:
        event = read_event(_standard_input())
        paths = Paths(resolve_home(arguments.home, os.environ))
        return run_hook(Call(host, arguments.event, moment, event, paths, os.environ), say, wake)
    except IntercomError as error:
        output.note(f"intercom hook: {error.reason}")
    except Exception as error:  # a trace would go into the conversation of the host
        output.note(f"intercom hook: {type(error).__name__}: {error}")
    return 0


def _standard_input() -> bytes:
    """Return what the host tells; all of it is read, so that the host is never told that nobody reads."""
    if sys.stdin is None:
        return b""
    kept = bytearray()
    while data := sys.stdin.buffer.read(READ_BYTES):
        if len(kept) <= HOOK_INPUT_BYTES:
            kept += data
    return bytes(kept)


@contextmanager
def _no_longer_than(milliseconds: int) -> Iterator[None]:
    """End this process without a word when the block takes longer, whatever it waits for."""
    over = allocate_lock()
    over.acquire()

    def watch() -> None:
        if not over.acquire(timeout=milliseconds / 1000):
            os._exit(0)

    start_new_thread(watch, ())
    try:
        yield
    finally:
        over.release()
