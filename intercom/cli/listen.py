"""Be there for others: print what arrives, and answer questions with a command."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from intercom.cli.answering import RunningAnswer, reason_of, summary_of
from intercom.cli.arguments import Parser, add_common
from intercom.cli.identity import opened, paths_of
from intercom.cli.messages import clock, described, indented, same_identity, shown
from intercom.cli.render import Output, visible, who
from intercom.cli.who import identity_of, name_of
from intercom.client.activity import BUSY, IDLE
from intercom.errors import BrokerError, RequestRefused, RequestTimeout, SendError, TooLarge
from intercom.limits import ANSWER_POLL_MAX_MS, ANSWER_POLL_MS, INCOMING_MESSAGES

if TYPE_CHECKING:
    from intercom.client.blocking import FlowStep, IncomingMessage, Session
    from intercom.client.blocking_invoke import Task
    from intercom.client.invoking import Reported
    from intercom.wire.invocations import RunState

USAGE = ""
DESCRIPTION = """Print what arrives until it is interrupted, or for --timeout seconds from the start.

It receives for the address of the identity of the command (`intercom whoami`): first what waited there. Whoever
received for it before is told that it was replaced, and ends. Mail is taken out once it was printed.

With --answer, COMMAND is run by the shell for every question, one after the other. The text is its standard input;
INTERCOM_MESSAGE_ID, INTERCOM_SENDER_ID, INTERCOM_SENDER_NAME, INTERCOM_SENDER_DIRECTORY and INTERCOM_CHANNEL are in its
environment. What it prints is the answer; a status other than 0 tells the asker that there is none.

It takes steps of flows (`intercom docs flows`). With --answer, COMMAND does them: INTERCOM_FLOW_ID, INTERCOM_STEP_ID
and INTERCOM_DISPATCH_ID are in its environment too, it may take as long as it likes, its status reports the step
completed or failed, and what it prints is the summary. Without --answer, `intercom flow report` reports them.

It takes tasks (`intercom invoke`) likewise: COMMAND does them, with INTERCOM_INVOCATION_ID, INTERCOM_RUN_ID and
INTERCOM_ACTION in its environment, and what it prints is the result. A task that is taken back ends its COMMAND.
Without --answer, `intercom invocation report` reports them.

Others see in `intercom list` that it is busy while COMMAND is at work, and idle else, and since when.

With --json every line is a document with an `event`: `listening`, `message`, `answered`, `unanswered`, `reported`,
`unreported`, and at last `ended`.
"""


class ReaderGone(Exception):
    """Say that nobody reads standard output any more."""


def configure(parser: Parser) -> None:
    """Add the options of ``listen``."""
    parser.add_argument("--answer", metavar="COMMAND", help="answer questions with what this command prints")
    add_common(parser, timeout="how long to listen (default: until interrupted)")


def run(arguments: Namespace, output: Output) -> int:
    """Listen, and return 0 when the time is over or nobody reads the output any more."""
    name = name_of(arguments)
    groups = sorted(set(arguments.groups or ()))
    output.marks["event"] = "ended"
    occasion = None if name is None else "\0".join([name.lower(), *groups])
    # What was printed for nobody must not be confirmed, so the block is left by the exception.
    status = None if arguments.answer is None else IDLE
    with (
        suppress(ReaderGone),
        opened(arguments, "listen", occasion=occasion, hold="take", status=status, takes_steps=True) as session,
    ):
        Listening(arguments, output, session).run()
        output.document({"ok": True, "event": "ended"})
    return 0


class Listening:
    """Take messages as they come, and keep at most one command at work on the questions among them."""

    def __init__(self, arguments: Namespace, output: Output, session: Session) -> None:
        self._command: str | None = arguments.answer
        self._environ = {**os.environ, "INTERCOM_HOME": str(paths_of(arguments).home)}
        self._until = None if arguments.timeout is None else arguments.began + arguments.timeout
        self._output = output
        self._session = session
        self._questions: deque[IncomingMessage] = deque()
        self._asked: IncomingMessage | None = None
        """The question the command is at work on."""
        self._running: RunningAnswer | None = None
        self._pause_ms = ANSWER_POLL_MS
        self._options = _how_to_report_as(arguments)

    def run(self) -> None:
        """Listen until the time is over; raise ``ReaderGone`` when nobody reads what is printed."""
        session = self._session
        self._say(
            {"ok": True, "event": "listening", "id": session.id, "name": session.name, "groups": list(session.groups)},
            None,
        )
        self._output.note(f"listening as {who(session.name, session.id)}")
        try:
            while self._until is None or time.monotonic() < self._until:
                message = session.receive(timeout=self._patience())
                if message is not None:
                    self._show(message)
                    self._accept(message)
                self._tend()
        finally:
            if self._running is not None:
                self._running.stop()

    def _patience(self) -> float | None:
        """Return how many seconds to wait for a message before something else has to be looked at."""
        waits = []
        if self._until is not None:
            waits.append(max(0.0, self._until - time.monotonic()))
        if self._running is not None:
            waits.append(self._pause_ms / 1000)
            self._pause_ms = min(2 * self._pause_ms, ANSWER_POLL_MAX_MS)
        return min(waits, default=None)

    def _accept(self, message: IncomingMessage) -> None:
        if self._command is None:
            return
        if message.invocation is not None and message.invocation.is_cancelled:
            self._stop_task(message, message.invocation)
            return
        if not (message.expects_reply or message.flow is not None or message.invocation is not None):
            return
        if len(self._questions) >= INCOMING_MESSAGES:
            self._settle(message, f"{len(self._questions)} questions wait already", failed=True)
        else:
            self._questions.append(message)

    def _tend(self) -> None:
        """Take the answer of the command that has ended, and begin with the next question."""
        if self._running is not None and self._asked is not None:
            answer = self._running.poll(_now())
            if answer is None:
                return
            asked, self._asked, self._running = self._asked, None, None
            self._settle(asked, answer.text, failed=answer.failed)
        while self._questions and self._running is None:
            asked = self._questions.popleft()
            if not asked.withdrawn:
                self._begin(asked)
        if self._command is not None:
            status = IDLE if self._running is None else BUSY
            if self._session.status != status:
                self._session.announce(status)

    def _begin(self, asked: IncomingMessage) -> None:
        assert self._command is not None, "without a command no question is kept"
        try:
            self._running = RunningAnswer(self._command, asked, self._environ, _now())
        except OSError as error:
            self._settle(asked, f"the command could not be started: {error.strerror}", failed=True)
            return
        self._asked = asked
        self._pause_ms = ANSWER_POLL_MS

    def _settle(self, message: IncomingMessage, text: str, *, failed: bool) -> None:
        if message.invocation is not None:
            self._report_task(message, message.invocation, text, "failed" if failed else "completed")
        elif message.flow is not None:
            self._report(message, message.flow, text, failed=failed)
        else:
            self._reply(message, text, failed=failed)

    def _stop_task(self, message: IncomingMessage, task: Task) -> None:
        """Do a task no further that is not wanted any more; what the command left undone stays so."""
        self._questions = deque(other for other in self._questions if not _brings(other, task))
        if self._running is not None and self._asked is not None and _brings(self._asked, task):
            self._running.stop()
            self._asked = self._running = None
        self._report_task(message, task, "it was taken back", "cancelled")

    def _report_task(self, message: IncomingMessage, task: Task, text: str, end: Reported) -> None:
        """Report a task by what its command came to."""
        about = {"messageId": message.id, "invocationId": task.id}
        named = f"invocation {visible(task.id)}"
        try:
            try:
                state = _end_task(task, text, end)
            except (RequestRefused, TooLarge) as error:
                if error.code not in ("invalid_update", TooLarge.code):
                    raise
                state = _end_task(task, f"the result is too large: {error.reason}", "failed")
        except (RequestRefused, RequestTimeout, BrokerError) as error:
            if end == "cancelled" and error.code == "run_terminal":
                return  # it had been reported before it was taken back
            self._say(
                {"ok": False, "event": "unreported", **error.as_dict(), **about},
                f"{clock()} {named} was not reported: {visible(error.reason)}",
            )
            return
        self._say(
            {"ok": True, "event": "reported", **about, "runState": state}, f"{clock()} reported {named} as {state}"
        )

    def _report(self, message: IncomingMessage, step: FlowStep, text: str, *, failed: bool) -> None:
        """Report a step by what its command came to."""
        outcome = "failed" if failed else "completed"
        about = {
            "messageId": message.id,
            "flowId": step.flow_id,
            "stepId": step.step_id,
            "dispatchId": step.dispatch_id,
        }
        named = f"step {visible(step.step_id)} of flow {visible(step.flow_id)}"
        try:
            reported = step.report(outcome, summary_of(text, outcome))
        except (RequestRefused, RequestTimeout, BrokerError) as error:
            self._say(
                {"ok": False, "event": "unreported", **error.as_dict(), **about},
                f"{clock()} {named} was not reported: {visible(error.reason)}",
            )
            return
        self._say(
            {"ok": True, "event": "reported", **about, "outcome": outcome, "stepState": reported.step_state},
            f"{clock()} reported {named} as {outcome}",
        )

    def _reply(self, message: IncomingMessage, text: str, *, failed: bool) -> None:
        asker = who(message.sender.name, message.sender.id)
        try:
            try:
                receipt = message.reply(text, error=failed)
            except TooLarge as error:
                text, failed = f"the answer is too large: {error.reason}", True
                receipt = message.reply(text, error=True)
        except (SendError, BrokerError) as error:
            self._say(
                {"ok": False, "event": "unanswered", **error.as_dict(), "messageId": message.id},
                f"{clock()} {asker} did not get the answer: {visible(error.reason)}",
            )
            return
        self._say(
            {
                "ok": True,
                "event": "answered",
                "messageId": message.id,
                "replyId": receipt.message_id,
                "state": receipt.state,
                "failed": failed,
                "text": text,
            },
            f"{clock()} {'told' if failed else 'answered'} {asker}:\n{indented(text)}",
        )

    def _show(self, message: IncomingMessage) -> None:
        self._say({"ok": True, "event": "message", **described(message)}, shown(message, self._options))

    def _say(self, document: dict[str, object], text: str | None) -> None:
        self._output.document(document)
        if text is not None:
            self._output.line(text)
        if self._output.closed:
            raise ReaderGone


def _brings(message: IncomingMessage, task: Task) -> bool:
    return message.invocation is not None and message.invocation.id == task.id


def _end_task(task: Task, text: str, end: Reported) -> RunState:
    if end == "completed":
        return task.update(end, output=text)
    return task.update(end, error=reason_of(text))


def _now() -> int:
    return time.monotonic_ns() // 1_000_000


def _how_to_report_as(arguments: Namespace) -> str | None:
    """Return the options a report needs in another shell; ``None`` where the command reports, or nobody else can."""
    if arguments.answer is not None or identity_of(arguments).address is None:
        return None
    return same_identity(Namespace(**{**vars(arguments), "name": name_of(arguments), "me": False}))
