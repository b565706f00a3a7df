"""Ask one question and print the answer."""

from __future__ import annotations

import time
from argparse import Namespace

from intercom.cli.arguments import Parser, add_common, seconds, target_and_text
from intercom.cli.attaching import add_attach, attachments_of
from intercom.cli.identity import opened, time_left
from intercom.cli.messages import described
from intercom.cli.naming import helpful, named_beside, resolved
from intercom.cli.render import Output, visible, visible_block, who
from intercom.cli.send import add_message_id, message_id_of, repeatable, say_held
from intercom.client.profile import PERSON
from intercom.errors import UsageError
from intercom.limits import ASK_MS

USAGE = "TARGET TEXT..."
DESCRIPTION = """Ask a session a question, wait for its answer, and print the answer on standard output.

TARGET and TEXT are those of `intercom send`. A broker that dies meanwhile is replaced, and the question is not asked
twice. Interrupting the command, or its --timeout, withdraws the question. What the other side tells meanwhile of its
progress is shown on standard error. Only a question to the person, `@me`, waits for somebody who is not there; it may
wait for any time.

Ends with 0 when it was answered, 1 when the other side said that it cannot answer, 5 when the other side is away, 6
when there was no answer: the other side left, or the time ran out.
"""


def configure(parser: Parser) -> None:
    """Add the options of ``ask``."""
    parser.add_argument("words", nargs="*", metavar="TARGET TEXT", help="who is asked, and what")
    add_attach(parser)
    add_message_id(parser)
    most_s = ASK_MS // 1000
    parser.add_argument(
        "--patience",
        metavar="SECONDS",
        type=lambda text: seconds(text, most_s),
        help=f"give the other side that much more time at each sign of progress, {most_s} in all",
    )
    add_common(parser, timeout=f"longest wait for the answer (default {most_s}, which is the most but for @me)")


def run(arguments: Namespace, output: Output) -> int:
    """Ask, print the answer, and return 0."""
    target, text = target_and_text(arguments.words, verb="ask")
    most_s = ASK_MS // 1000
    if arguments.timeout is not None and arguments.timeout > most_s and target.strip().lower() != PERSON:
        raise UsageError(f"an ask waits at most {most_s} s, but for one to {PERSON}")
    carried = attachments_of(arguments)
    arguments.began = time.monotonic()  # what standard input and pipes took is nobody's time but the caller's
    message_id = message_id_of(arguments)
    machine = named_beside(arguments, ASK_MS)
    with (
        opened(arguments, "ask", occasion=message_id, default_ms=ASK_MS, hold="none") as session,
        helpful(session, target, machine),
        repeatable(message_id, is_again=arguments.message_id is not None),
    ):
        wanted = resolved(session, target, time_left(arguments, ASK_MS), machine)
        answer = session.ask(
            wanted,
            text,
            logical_target=None if wanted == target else target,
            attachments=carried,
            message_id=message_id,
            timeout=time_left(arguments, ASK_MS),
            patience=arguments.patience,
            on_progress=lambda message: output.note(
                f"{who(message.sender.name, message.sender.id)}: {visible(message.text)}"
            ),
            on_held=lambda held: say_held(held, output),
        )
        output.document({"ok": True, "state": "answered", "messageId": message_id, "answer": described(answer)})
        output.line(visible_block(answer.text))
        for attachment in answer.attachments:
            output.line(f"--- {visible(attachment.name)}")
            output.line(visible_block(attachment.content))
    return 0
