"""Answer a question that this identity owes an answer, whichever of its commands received it."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from intercom.cli.arguments import Parser, add_common, words_of
from intercom.cli.attaching import add_attach, attachments_of
from intercom.cli.identity import opened, time_left
from intercom.cli.invoked import open_tasks, tell_state
from intercom.cli.person import add_me, address_of
from intercom.cli.render import Output
from intercom.cli.returning import look_until_known
from intercom.cli.send import add_message_id, message_id_of, repeatable, tell
from intercom.client.choosing import TASK_PREFIX, question_called, task_called
from intercom.errors import RequestRefused, UsageError
from intercom.limits import PENDING_REPLY_RETRY_MS

if TYPE_CHECKING:
    from intercom.client.blocking import Session
    from intercom.client.mailviews import PendingAsk

USAGE = "MESSAGE-ID TEXT..."
DESCRIPTION = """Answer an open question. It need not be this process that received it: whoever acts under the address
that was asked (`intercom whoami`) may answer, once.

MESSAGE-ID is the id of the question, or the beginning of one that only one open question has; `intercom pending` lists
them. TEXT may be several words; `-` alone reads standard input. The id of the message that brought a task, `run:` and
more, completes the task (`intercom invocation report` says more of one); with --error it has failed.

Ends with 3 when no such question is open: it was answered, withdrawn, or its time is over. A broker that has just
started is asked again for a moment. Repeated with the
--message-id of an earlier answer, it says what became of that one.
"""


def configure(parser: Parser) -> None:
    """Add the options of ``reply``."""
    parser.add_argument("words", nargs="*", metavar="MESSAGE-ID TEXT", help="which question, and the answer")
    parser.add_argument("--error", action="store_true", help="say that there will be no answer; TEXT says why")
    add_attach(parser)
    add_message_id(parser)
    add_me(parser)
    add_common(parser, timeout=f"longest wait for the outcome (default {PENDING_REPLY_RETRY_MS // 1000})")


def run(arguments: Namespace, output: Output) -> int:
    """Send the answer and return 0 when the asker has it, or will find it."""
    wanted, text = words_of(arguments.words, first="the id of a question", usage="reply MESSAGE-ID TEXT")
    carried = attachments_of(arguments)
    message_id = message_id_of(arguments)
    address = address_of(arguments)
    default_ms = PENDING_REPLY_RETRY_MS
    with (
        opened(arguments, "reply", occasion=message_id, default_ms=default_ms, hold="none", address=address) as session,
        repeatable(message_id, is_again=arguments.message_id is not None),
    ):
        if wanted.startswith(TASK_PREFIX):
            if carried:
                raise UsageError("the result of a task carries no attachments", hint="Name the files in the text.")
            task = task_called(open_tasks(session, lambda: time_left(arguments, default_ms)), wanted)
            state = session.update_run(
                task.id,
                "failed" if arguments.error else "completed",
                output=None if arguments.error else text,
                error=text if arguments.error else None,
                timeout=time_left(arguments, default_ms),
            )
            tell_state(task.id, state, output)
            return 0
        try:
            question = look_until_known(
                lambda: question_called(session.pending(timeout=time_left(arguments, default_ms)), wanted),
                "unknown_question",
                arguments,
            )
        except RequestRefused:
            earlier = None if arguments.message_id is None else answered_before(session, wanted, arguments)
            if earlier is None:
                raise
            question = earlier
        receipt = session.answer(
            question,
            text,
            error=arguments.error,
            attachments=carried,
            message_id=message_id,
            timeout=time_left(arguments, default_ms),
        )
    tell(receipt, question.asker_name or question.asker_id, output, question=question.message_id)
    return 0


def answered_before(session: Session, wanted: str, arguments: Namespace) -> PendingAsk | None:
    """Return a question that is not open any more, for the answer that is repeated; ``None`` when it is not known.

    What became of the first copy of the answer is told by the broker, which knows it by its id.
    """
    from intercom.client.mailviews import PendingAsk

    try:
        found = session.trace(wanted, timeout=time_left(arguments, PENDING_REPLY_RETRY_MS))
    except RequestRefused:
        return None
    if found.sender is None:
        return None
    return PendingAsk(
        message_id=wanted, asker_id=found.sender, asker_name=None, asker_is_here=False, asked_at=0, deadline=0
    )
