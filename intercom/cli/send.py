"""Send one message and say what became of it."""

from __future__ import annotations

import os
import time
import uuid
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from shlex import quote
from typing import TYPE_CHECKING

from intercom.cli.arguments import Parser, add_common, add_span, clean, target_and_text
from intercom.cli.attaching import add_attach, attachments_of
from intercom.cli.identity import opened, time_left
from intercom.cli.naming import helpful, named_beside, resolved
from intercom.cli.render import Output, clipped, visible
from intercom.cli.who import ASKED_VARIABLES, identity_of
from intercom.errors import AskError, IntercomError, OutcomeUnknown, SendError, TargetAway
from intercom.limits import PREFIX_CHARACTERS, SEND_MS
from intercom.wire.targets import SCHEME

if TYPE_CHECKING:
    from intercom.client.blocking import Session
    from intercom.client.views import Receipt

USAGE = "TARGET TEXT..."
DESCRIPTION = """Send a message to a session and return when that session has it, or when it waits on disk.

It waits for a session that lost its connection, for an address that nobody holds now, and for the person, `@me`; after
7 days, or after --valid-for, it is given up and the sender is told. `queued` says that it waits and that nobody has it
yet; `delivered` that the other side has it. With --no-queue the command ends with 5 instead of waiting on disk.

TARGET is a name, a session id, or at least 4 characters that only one id in reach begins with; a name comes first.
TARGET may also be a stage of a workflow run, such as `workflow:RUN/reviewer-a`, or a pattern, such as
`workflow:RUN/reviewer-*` or `workflow:RUN/**`, for those in the group of the run (`--group workflow:RUN`). What is sent
to a stage that has not started is queued by the host of the run, and its place in the queue is printed. A target that
is being brought back is waited for, as long as the broker or --timeout allows.

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
    parser.add_argument("--no-queue", action="store_true", help="do not let it wait for somebody who is away")
    add_span(parser, "--valid-for", "do not hand it over later than that")
    add_common(parser, timeout=f"longest wait for the outcome (default {SEND_MS // 1000})")


def add_message_id(parser: Parser) -> None:
    """Add ``--message-id``."""
    parser.add_argument("--message-id", metavar="ID", type=clean, help="repeat the message with this id")


def message_id_of(arguments: Namespace) -> str:
    """Return the id the message goes under, a new one unless the caller repeats one."""
    return arguments.message_id or str(uuid.uuid4())


@contextmanager
def repeatable(message_id: str, *, is_again: bool) -> Iterator[None]:
    """Tell with every error after which the same message may be sent again how to do that (F76).

    ``is_again``: the caller says that it repeats it, so that only of this attempt it is known what came of it.
    """
    try:
        yield
    except (SendError, AskError) as error:
        if error.retry == "same_id":
            error.hint = (
                f"Repeat the command with --message-id {message_id}: the message cannot arrive twice. "
                f"`intercom trace {quote(visible(message_id))}` shows where it is."
            )
        elif error.retry == "after" and not isinstance(error, TargetAway):
            nothing = "Nothing was sent this time" if is_again else "Nothing was sent"
            error.hint = f"{nothing}. Repeat the command a little later, with --message-id {message_id}."
        raise


def say_held(held: Receipt, output: Output) -> None:
    """Say on standard error why nothing happens."""
    longest = (held.held_ms or 0) // 1000
    output.note(f"held: {clipped(visible(held.target))} is being brought back; waiting up to {longest} s")


def until_back(session: Session, held: Receipt, arguments: Namespace, output: Output) -> Receipt:
    """Wait until a target that is being brought back has the message, at most for ``--timeout``.

    Raises ``OutcomeUnknown`` when time is up: the broker drops what is held with the command, and may have handed it
    over just before.
    """
    say_held(held, output)
    left = None if arguments.timeout is None else time_left(arguments, SEND_MS)
    receipt = session.outcome(held, timeout=left)
    if receipt.state == "held":
        error = OutcomeUnknown("The target is still being brought back", code="still_held")
        error.message_id = held.message_id
        raise error
    return receipt


def run(arguments: Namespace, output: Output) -> int:
    """Send the message and return 0 when the target has it, or will find it."""
    target, text = target_and_text(arguments.words, verb="send")
    hint = how_to_answer(target, os.environ)
    progress: bool | str = arguments.progress
    if progress and hint:
        progress, hint = os.environ[ASKED_VARIABLES[0]], ""
    carried = attachments_of(arguments)
    arguments.began = time.monotonic()  # what standard input and pipes took is nobody's time but the caller's
    message_id = message_id_of(arguments)
    machine = named_beside(arguments, SEND_MS)
    with (
        opened(arguments, "send", occasion=message_id, default_ms=SEND_MS, hold="none") as session,
        helpful(session, target, machine),
        repeatable(message_id, is_again=arguments.message_id is not None),
        _hinting_at_the_queue(),
    ):
        found = resolved(session, target, time_left(arguments, SEND_MS), machine)
        receipt = session.send(
            found,
            text,
            logical_target=None if found == target else target,
            attachments=carried,
            message_id=message_id,
            timeout=time_left(arguments, SEND_MS),
            hold=True,
            queue=not arguments.no_queue,
            valid_for=arguments.valid_for,
            progress=progress,
            caused_by=os.environ.get(ASKED_VARIABLES[0]) or None,
        )
        if receipt.state == "held":
            receipt = until_back(session, receipt, arguments, output)
        sees = _sees(session, found, time_left(arguments, SEND_MS)) if receipt.state == "queued" else None
    guest = identity_of(arguments).key is None
    tell(receipt, target, output, sees=sees, guest=guest, **({"hint": hint} if hint else {}))
    if hint and not output.as_json:
        output.note(hint)
    elif guest and not output.as_json:
        output.note("sent as a guest, whom no reply reaches: act and listen under a name (--as NAME) to be answered")
    return 0


_KEPT = {
    "quiet": "its target is not woken by it: it reads the message when it looks for its mail",
    "hold": "it waits until the person lets it through to its target",
}


_SEES = {
    "now": "its host shows it messages at once",
    "idle": "its host shows it messages when it is idle",
    "pull": "it sees messages when it looks",
    "none": "its host has no way to show it messages",
}
"""How soon a session sees what waits for it, by what its host declared (protocol 6.4)."""


def _sees(session: Session, target: str, seconds: float) -> str | None:
    """Return how soon the target is shown a message, where it is here and says so."""
    wanted = target.strip().lower()
    try:
        views = session.list(timeout=seconds)
    except IntercomError:
        return None
    named = (view for view in views if wanted in (view.id.lower(), (view.name or "").lower()))
    push = next((view.raw.get("push") for view in named), None)
    return push if isinstance(push, str) and push in _SEES else None


def tell(receipt: Receipt, target: str, output: Output, *, sees: str | None = None, **more: object) -> None:
    """Say what became of a message: who has it, or where it waits, how soon it is seen, and how to look after it."""
    if sees is not None:
        more = {**more, "sees": sees}
    place: dict[str, int] = (
        {} if receipt.position is None else {"position": receipt.position, "known": receipt.is_known}
    )
    told = {"state": receipt.state, "messageId": receipt.message_id, "target": receipt.target}
    if receipt.kept is not None:
        more = {**more, "kept": receipt.kept}
    if receipt.joined is not None:
        more = {**more, "joined": receipt.joined}
    output.document({"ok": True, **told, **more, **place})
    waiting = "" if receipt.position is None else f", at place {receipt.position}"
    if not receipt.is_known:
        waiting += ", although no known stage matches"
    message_id = visible(receipt.message_id)
    is_stage = target.startswith(SCHEME)
    shown = visible(target) if is_stage else clipped(visible(target))
    output.line(f"{receipt.state} to {shown}{waiting} (message {message_id})")
    if receipt.joined is not None and not output.as_json:
        output.note(f"the same waits there already as message {visible(receipt.joined)}: the two are shown as one")
    if receipt.kept is not None and not output.as_json:
        output.note(_KEPT[receipt.kept])
    elif receipt.state == "queued" and not is_stage and not output.as_json:
        soon = "" if sees is None else f"; {_SEES[sees]}"
        output.note(
            f"it waits on disk, nobody has it yet{soon}; `intercom trace {quote(message_id)}` shows what becomes of it"
        )


@contextmanager
def _hinting_at_the_queue() -> Iterator[None]:
    try:
        yield
    except TargetAway as error:
        error.hint = "Without --no-queue it waits until the target is back."
        raise


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
