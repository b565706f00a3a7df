"""Send one message and say what became of it."""

from __future__ import annotations

import os
import time
import uuid
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from intercom.cli.arguments import Parser, add_common, clean, target_and_text
from intercom.cli.attaching import add_attach, attachments_of
from intercom.cli.identity import opened, time_left
from intercom.cli.naming import helpful, resolved
from intercom.cli.render import Output, clipped, visible
from intercom.cli.who import ASKED_VARIABLES, name_of
from intercom.errors import AskError, SendError
from intercom.limits import PREFIX_CHARACTERS, SEND_MS

USAGE = "TARGET TEXT..."
DESCRIPTION = """Send a message to a session and return when that session has it.

TARGET is a name, a session id, or at least 4 characters that only one id in reach begins with; a name comes first.
TEXT may be several words; `-` alone reads standard input, of which one trailing line break is removed. Words after `--`
are never taken for options.

In a command of `intercom listen --answer` a send to the one who asked is not the answer: what the command prints is.
That is said, unless --progress tells that it is meant so: then the asker learns how far its question is.

A message has an id, printed with the result. After "outcome unknown" run the same command with --message-id and that
id: the message cannot arrive twice.
"""


def configure(parser: Parser) -> None:
    """Add the options of ``send``."""
    parser.add_argument("words", nargs="*", metavar="TARGET TEXT", help="who gets it, and what to say")
    add_attach(parser)
    parser.add_argument("--progress", action="store_true", help="this is not the answer to a question of TARGET")
    add_message_id(parser)
    add_common(parser, timeout=f"longest wait for the outcome (default {SEND_MS // 1000})")


def add_message_id(parser: Parser) -> None:
    """Add ``--message-id``."""
    parser.add_argument("--message-id", metavar="ID", type=clean, help="repeat the message with this id")


def message_id_of(arguments: Namespace) -> str:
    """Return the id the message goes under, a new one unless the caller repeats one."""
    return arguments.message_id or str(uuid.uuid4())


@contextmanager
def repeatable(message_id: str) -> Iterator[None]:
    """Tell with every error after which the same message may be sent again how to do that (F76)."""
    try:
        yield
    except (SendError, AskError) as error:
        if error.retry == "same_id":
            error.hint = f"Repeat the command with --message-id {message_id}: the message cannot arrive twice."
        elif error.retry == "after":
            error.hint = f"Nothing was sent. Repeat the command a little later, with --message-id {message_id}."
        raise


def run(arguments: Namespace, output: Output) -> int:
    """Send the message and return 0 when the target has it."""
    target, text = target_and_text(arguments.words, verb="send")
    hint = how_to_answer(target, os.environ)
    progress: bool | str = arguments.progress
    if progress and hint:
        progress, hint = os.environ[ASKED_VARIABLES[0]], ""
    carried = attachments_of(arguments)
    arguments.began = time.monotonic()  # what standard input and pipes took is nobody's time but the caller's
    message_id = message_id_of(arguments)
    with (
        opened(arguments, "send", occasion=message_id, default_ms=SEND_MS) as session,
        helpful(session, target),
        repeatable(message_id),
    ):
        found = resolved(session, target, time_left(arguments, SEND_MS))
        receipt = session.send(
            found,
            text,
            logical_target=None if found == target else target,
            attachments=carried,
            message_id=message_id,
            timeout=time_left(arguments, SEND_MS),
            progress=progress,
        )
    guest = name_of(arguments) is None
    place: dict[str, int] = {} if receipt.position is None else {"position": receipt.position}
    told = {"state": receipt.state, "messageId": receipt.message_id, "target": receipt.target, "guest": guest}
    output.document({"ok": True, **told, **place, **({"hint": hint} if hint else {})})
    waiting = "" if receipt.position is None else f", at place {receipt.position}"
    output.line(f"{receipt.state} to {clipped(visible(target))}{waiting} (message {visible(receipt.message_id)})")
    if hint and not output.as_json:
        output.note(hint)
    elif guest and not output.as_json:
        output.note("sent as a guest, whom no reply reaches: act and listen under a name (--as NAME) to be answered")
    return 0


def how_to_answer(target: str, environ: Mapping[str, str]) -> str:
    """Say how the question is answered at which this command is at work, when ``target`` is who asked it (F67)."""
    asked, asker, name = (environ.get(variable, "") for variable in ASKED_VARIABLES)
    wanted = target.strip().lower()
    is_asker = wanted in (asker.lower(), name.lower()) or (
        len(wanted) >= PREFIX_CHARACTERS and asker.startswith(wanted)
    )
    if not asked or not wanted or not is_asker:
        return ""
    return (
        f"this is no answer to the question {visible(asked)}: what the command of `listen --answer` prints is. "
        "Use --progress where that is meant"
    )
