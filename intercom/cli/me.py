"""Show the person what waits at ``@me``, what that blocks, and take the answers."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from intercom.cli.arguments import Parser, add_common, words_of
from intercom.cli.identity import opened, paths_of, time_left
from intercom.cli.messages import clock, indented, shown
from intercom.cli.messages import described as message_described
from intercom.cli.person import require_person
from intercom.cli.policy import kept_described, settle
from intercom.cli.render import Output, duration, visible, who
from intercom.cli.returning import look_until_known
from intercom.cli.send import tell
from intercom.cli.waits import described as wait_described
from intercom.client.choosing import question_called
from intercom.client.profile import PERSON
from intercom.config import load_settings
from intercom.errors import RequestRefused, UsageError
from intercom.limits import ME_POLL_MS, NOTIFY_COMMAND_MS, PENDING_REPLY_RETRY_MS, PREFIX_CHARACTERS, REQUEST_MS

if TYPE_CHECKING:
    from intercom.client.attending import KeptMessage, Wait
    from intercom.client.blocking import Session
    from intercom.client.views import IncomingMessage

USAGE = "[answer ID TEXT]"
DESCRIPTION = """Show what waits for the person: first the questions, with who waits for the answer, since when, and who
waits in turn for that; then the messages that are held until the person lets them through; then what agents wrote.

On a terminal it asks for each question what to answer, and for each held message whether to let it through; an empty
answer leaves it for later. Elsewhere, and with --json, it only shows: nothing is taken out. `me answer ID TEXT` answers
one question; ID is its id, or the beginning of one. `--error` says that there will be no answer, and why.

--follow stays and says what comes, with --bell ringing the terminal; the command of the setting `notify_command` is run
for each, and is given what is said on its standard input. Agents write with `intercom send @me` and `intercom ask @me`.

All this is for the person: standard input is a terminal, and no agent host runs the command; else it ends with 7.
"""
LOOK_S = 0.001
"""Time in which what the broker has written already is read."""


class Question(NamedTuple):
    """Hold one question to the person; ``message`` is ``None`` when it was read before and its text is not kept."""

    message_id: str
    asker_id: str
    asker: str
    asked_at: float
    message: IncomingMessage | None
    blocks: tuple[Wait, ...]
    """Whoever waits for the asker in turn."""


class Waiting(NamedTuple):
    """Hold everything that waits for the person."""

    questions: list[Question]
    held: list[KeptMessage]
    messages: list[IncomingMessage]
    left: int
    """How many messages wait behind those."""


def configure(parser: Parser) -> None:
    """Add the options of ``me``."""
    parser.add_argument("words", nargs="*", metavar="answer ID TEXT", help="answer a question")
    parser.add_argument("--error", action="store_true", help="say that there will be no answer; TEXT says why")
    parser.add_argument("--follow", action="store_true", help="stay, and say what comes")
    parser.add_argument("--bell", action="store_true", help="ring the terminal for what waits")
    add_common(parser, timeout=f"longest wait for the broker, or to follow (default {REQUEST_MS // 1000}, or for ever)")


def run(arguments: Namespace, output: Output) -> int:
    """Show what waits, or answer, and return 0."""
    words = arguments.words
    if words and (words[0] != "answer" or len(words) < 3):
        raise UsageError("say what to answer", hint="`intercom me answer ID TEXT`, or `intercom me` alone.")
    if arguments.follow and words:
        raise UsageError("--follow answers nothing", hint="Answer with another `intercom me answer ID TEXT`.")
    paths_of(arguments)  # first: a system without Unix sockets says so
    require_person("reading what waits for the person")
    if words:
        wanted, text = words_of(words[1:], first="the id of a question", usage="me answer ID TEXT")
        return _answer(wanted, text, arguments, output)
    if arguments.follow:
        return _follow(arguments, output)
    is_asked = not output.as_json and sys.stdout is not None and sys.stdout.isatty()
    with _control(arguments) as control, _as_person(arguments) as me:
        found = look(me, control)
        if arguments.bell and (found.questions or found.held):
            _ring()
        if is_asked:
            _talk(me, control, found, arguments, output)
        else:
            _show(found, output)
    return 0


@contextmanager
def _as_person(arguments: Namespace) -> Iterator[Session]:
    """Speak for the person without receiving: what waits stays where it is until it is answered, or taken out."""
    with opened(arguments, "me", hold="none", address=PERSON, default_ms=REQUEST_MS, keep_questions=True) as session:
        yield session


@contextmanager
def _control(arguments: Namespace) -> Iterator[Session]:
    with opened(arguments, "me", purpose="control", default_ms=REQUEST_MS) as session:
        yield session


# --- what waits -----------------------------------------------------------------------------------------


def look(me: Session, control: Session) -> Waiting:
    """Return what waits; to look changes nothing."""
    waits = control.waits().waits
    questions: list[Question] = []
    messages: list[IncomingMessage] = []
    peeked = me.peek()
    for message in peeked.messages:
        if message.expects_reply:
            questions.append(
                Question(
                    message.id,
                    message.sender.id,
                    message.sender.name or message.sender.id,
                    _since(message),
                    message,
                    blocked_by(message.sender.id, message.sender.name, waits),
                )
            )
        else:
            messages.append(message)
    for ask in me.pending():
        if all(question.message_id != ask.message_id for question in questions):
            blocks = blocked_by(ask.asker_id, ask.asker_name, waits)
            name = ask.asker_name or ask.asker_id
            questions.append(Question(ask.message_id, ask.asker_id, name, ask.asked_at, None, blocks))
    questions.sort(key=lambda question: question.asked_at)
    kept = [message for message in control.policies().kept if message.action == "hold"]
    return Waiting(questions, kept, messages, peeked.left)


def _since(message: IncomingMessage) -> float:
    return message.timestamp if message.mail is None else message.mail.queued_at


def blocked_by(asker_id: str, asker: str | None, waits: Sequence[Wait]) -> tuple[Wait, ...]:
    """Return the waits that end only when this asker goes on, nearest first."""
    found: dict[str, Wait] = {}
    ahead = [(asker_id, asker)]
    while ahead:
        wanted_id, wanted = ahead.pop(0)
        for wait in waits:
            is_for = wait.target_id == wanted_id or (wanted is not None and wait.target == wanted)
            if is_for and wait.message_id not in found:
                found[wait.message_id] = wait
                ahead.append((wait.asker_id, wait.asker))
    return tuple(found.values())


# --- shown ----------------------------------------------------------------------------------------------


def _show(found: Waiting, output: Output) -> None:
    output.document(
        {
            "ok": True,
            "questions": [
                {
                    "messageId": question.message_id,
                    "asker": question.asker,
                    "askerId": question.asker_id,
                    "askedAt": question.asked_at,
                    "text": None if question.message is None else question.message.text,
                    "blocks": [wait_described(wait) for wait in question.blocks],
                }
                for question in found.questions
            ],
            "held": [kept_described(message) for message in found.held],
            "messages": [message_described(message) for message in found.messages],
            "left": found.left,
        }
    )
    if output.as_json:
        return
    if not (found.questions or found.held or found.messages):
        output.line("nothing waits for you")
    for question in found.questions:
        _show_question(question, output)
        output.line(f"  answer with: intercom me answer {visible(question.message_id)} TEXT")
    for message in found.held:
        _show_held(message, output)
        output.line(f"  let it through with: intercom policy release {visible(message.message_id)}")
    for message_ in found.messages:
        output.line(shown(message_))
    if found.messages:
        output.note("`intercom receive --me` takes messages out")
    if found.left:
        output.note(_more(found.left))


def _more(count: int) -> str:
    return "1 more message waits" if count == 1 else f"{count} more messages wait"


def _show_question(question: Question, output: Output) -> None:
    now = time.time() * 1000
    asker = who(question.asker if question.asker != question.asker_id else None, question.asker_id)
    output.line(f"{asker} waits for you since {duration(now - question.asked_at)}:")
    for wait in question.blocks:
        since = duration(now - wait.since)
        output.line(f"  {visible(wait.asker)} waits for {visible(wait.target)} since {since}")
    if question.message is None:
        output.line("    (its text was shown when it was received, and is not kept)")
        return
    output.line(indented(question.message.text))
    for attachment in question.message.attachments:
        output.line(f"  --- {visible(attachment.name)}")
        output.line(indented(attachment.content))


def _show_held(message: KeptMessage, output: Output) -> None:
    now = time.time() * 1000
    sender = who(message.sender.name, message.sender.id)
    since = duration(now - message.queued_at)
    often = "" if message.sends == 1 else f" {message.sends} times the same"
    output.line(f"{sender} wrote{often} to {visible(message.owner)}, held for you since {since}")


# --- answered -------------------------------------------------------------------------------------------


def _talk(me: Session, control: Session, found: Waiting, arguments: Namespace, output: Output) -> None:
    """Go through what waits with the person at the terminal."""
    if not (found.questions or found.held or found.messages):
        output.line("nothing waits for you")
    for question in found.questions:
        _show_question(question, output)
        text = _asked("answer (empty: later): ")
        if not text:
            continue
        if question.message is not None:
            me.settle_mail(question.message_id)  # a question is open once it was read
        receipt = me.answer(question_called(me.pending(), question.message_id), text)
        tell(receipt, question.asker, output, question=question.message_id)
    for held in found.held:
        _show_held(held, output)
        answer = _asked("let it through? (y: yes, n: refuse it, empty: later): ").lower()
        if answer in ("y", "yes", "n", "no"):
            action = "release" if answer.startswith("y") else "refuse"
            settle(control, held.message_id, action, arguments, output)
    for message in found.messages:
        output.line(shown(message))
    if found.messages and _asked("take these messages out? (y: yes, empty: later): ").lower() in ("y", "yes"):
        for message in found.messages:
            me.settle_mail(message.id)
    if found.left:
        output.note(f"{_more(found.left)}; run this again")


def _asked(prompt: str) -> str:
    try:
        return input(prompt).strip()
    except EOFError:
        return ""


def _answer(wanted: str, text: str, arguments: Namespace, output: Output) -> int:
    """Answer one question, read before or not."""
    with _as_person(arguments) as me:
        try:
            ask = look_until_known(
                lambda: question_called(me.pending(timeout=time_left(arguments, REQUEST_MS)), wanted),
                "unknown_question",
                arguments,
            )
        except RequestRefused as error:
            if error.code != "unknown_question":
                raise
            message = _unread(me, wanted)
            if message is None:
                error.hint = "`intercom me` shows the questions."
                raise
            me.settle_mail(message.id)
            ask = question_called(me.pending(timeout=time_left(arguments, REQUEST_MS)), message.id)
        left = time_left(arguments, PENDING_REPLY_RETRY_MS)
        receipt = me.answer(ask, text, error=arguments.error, timeout=left)
        tell(receipt, ask.asker_name or ask.asker_id, output, question=ask.message_id)
    return 0


def _unread(me: Session, wanted: str) -> IncomingMessage | None:
    """Return the only question with this id, or an id that begins so, among the mail that was not read."""
    found: list[IncomingMessage] = []
    after, left = 0, 1
    while left:
        peeked = me.peek(after=after)
        found += [each for each in peeked.messages if each.expects_reply and each.id.startswith(wanted)]
        left = peeked.left if peeked.messages else 0
        after = max((each.mail.entry for each in peeked.messages if each.mail is not None), default=after)
    exact = [message for message in found if message.id == wanted]
    meant = exact or (found if len(wanted) >= PREFIX_CHARACTERS else [])
    if len(meant) > 1:
        raise RequestRefused(
            f"{len(meant)} questions have ids that begin with {wanted}",
            code="ambiguous_question",
            hint="Give the whole id; `intercom me` shows it.",
        )
    return meant[0] if meant else None


# --- followed -------------------------------------------------------------------------------------------


def _follow(arguments: Namespace, output: Output) -> int:
    """Say what comes until time is up, taking nothing out."""
    until = None if arguments.timeout is None else arguments.began + arguments.timeout
    notify = load_settings(paths_of(arguments), os.environ, {}).notify_command
    output.marks["event"] = "ended"
    told: set[str] = set()
    with _control(arguments) as control:
        while until is None or time.monotonic() < until:
            for item in _items(control):
                if item["messageId"] not in told:
                    told.add(item["messageId"])
                    _announce(item, arguments, output, notify)
            if output.closed:
                return 0
            pause = ME_POLL_MS / 1000
            time.sleep(pause if until is None else max(0.0, min(pause, until - time.monotonic())))
    output.document({"ok": True, "event": "ended"})
    return 0


def _items(control: Session) -> list[dict[str, Any]]:
    """Return what waits for the person now, as documents."""
    try:
        entries = control.mailbox(PERSON).entries
    except RequestRefused as error:
        if error.code != "unknown_address":
            raise
        entries = ()
    items: list[dict[str, Any]] = [
        {
            "messageId": entry.message_id,
            "what": "question" if entry.expects_reply else "message",
            "from": entry.sender.name or entry.sender.id,
            "since": entry.queued_at,
        }
        for entry in entries
    ]
    for message in control.policies().kept:
        if message.action == "hold":
            sender = message.sender.name or message.sender.id
            held = {"messageId": message.message_id, "what": "held", "from": sender, "since": message.queued_at}
            items.append(held)
    return items


_SAID = {"question": "asks you something and waits", "message": "wrote to you", "held": "wrote a message held for you"}


def _announce(item: dict[str, Any], arguments: Namespace, output: Output, notify: str) -> None:
    output.document({"ok": True, "event": "waiting", **item})
    said = f"{visible(item['from'])} {_SAID[item['what']]}"
    output.line(f"{clock()} {said} (message {visible(item['messageId'])}); `intercom me` shows it")
    if arguments.bell:
        _ring()
    if notify:
        _notify(notify, said, output)


def _ring() -> None:
    with suppress(OSError, ValueError):
        if sys.stderr is not None and sys.stderr.isatty():
            sys.stderr.write("\a")
            sys.stderr.flush()


def _notify(command: str, said: str, output: Output) -> None:
    """Run the command of the settings; what is said goes to its standard input, never onto its command line."""
    import shlex
    import subprocess

    try:
        subprocess.run(
            shlex.split(command),
            input=said.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=NOTIFY_COMMAND_MS / 1000,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        output.note(f"intercom: the notify_command of the settings failed: {error}")
