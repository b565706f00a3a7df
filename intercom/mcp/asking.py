"""Ask, and outlive the call that asked: an answer that comes after the tool had to return waits in the tray.

It waits on disk, too, where the session has an address: should this process end, its next adapter shows it.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from intercom.client import peertext
from intercom.client.texts import duration, visible
from intercom.errors import AskError, IntercomError
from intercom.limits import TOOL_WORD_MS
from intercom.mcp.answers import AnswerFiles
from intercom.mcp.repeating import Repeats
from intercom.mcp.tray import Item, Tray

if TYPE_CHECKING:
    from intercom.client.aio import IncomingMessage, Session


class OpenQuestion:
    """Be a question this session asked: it has an answer, an error, or is open."""

    def __init__(self, message_id: str, target: str, seconds: float, key: Hashable = None) -> None:
        """Begin now; it ends in ``seconds`` at the latest."""
        self.message_id = message_id
        self.target = target
        self.key = key
        """What is asked, and whom: asked again in these words it is the same question."""
        self.began = time.monotonic()
        self.seconds = seconds
        self.answer: IncomingMessage | None = None
        self.error: IntercomError | None = None
        self.is_watched = True
        """A tool call waits for it and will take what comes."""
        self.has_word = anyio.Event()
        """Set when the broker said whether it takes the question."""
        self.settled = anyio.Event()
        self.scope = anyio.CancelScope()

    def fails(self, error: IntercomError) -> None:
        """End without an answer; where the other side wrote why, that is the answer, and shown as its words."""
        if isinstance(error, AskError) and error.answer is not None:
            self.answer = error.answer
        else:
            self.error = error

    @property
    def age_ms(self) -> float:
        """Return how long it has been open."""
        return (time.monotonic() - self.began) * 1000

    def described(self) -> str:
        """Return a line about it."""
        about = f"{peertext.short(self.message_id)} to {visible(self.target)}"
        return (
            f"{about}, asked {duration(self.age_ms)} ago, open for {duration(self.seconds * 1000 - self.age_ms)} more"
        )


class Asking:
    """Hold the questions of one session that are open."""

    def __init__(self, tray: Tray, files: AnswerFiles | None = None, repeats: Repeats | None = None) -> None:
        self._tray = tray
        self._repeats = Repeats() if repeats is None else repeats
        self._files = files
        self.open: dict[str, OpenQuestion] = {}

    async def ask(self, session: Session, question: OpenQuestion, target: str, text: str) -> None:
        """Ask and wait to the end; what comes when nobody waits any more goes to the tray."""
        self.open[question.message_id] = question
        try:
            with question.scope:
                question.answer = await session.ask(
                    target,
                    text,
                    message_id=question.message_id,
                    timeout=question.seconds,
                    logical_target=None if target == question.target else question.target,
                    on_held=lambda held: question.has_word.set(),
                    on_open=question.has_word.set,
                    confirm=False,
                )
                self._keep(question.answer)
        except IntercomError as error:
            question.fails(error)
            if question.answer is not None:
                self._keep(question.answer)
            elif error.retry == "same_id":
                self._repeats.keep(question.key, question.message_id)
        finally:
            del self.open[question.message_id]
            question.has_word.set()
            question.settled.set()
            if not question.is_watched and not question.scope.cancel_called:
                self.put_late(question)

    def end(self, error: IntercomError) -> None:
        """Say of all questions that are open that no answer can come: the session that asked them is over."""
        for question in self.open.values():
            question.error = error

    def _keep(self, answer: IncomingMessage) -> None:
        """Write an answer down and confirm it; where it cannot be written, it is confirmed when it was shown."""
        if self._files is None or self._files.save(answer):
            with suppress(IntercomError):  # the session is over: it comes again, and is known by its file
                answer.confirm()

    def put_late(self, question: OpenQuestion) -> None:
        """Put what became of a question where the model finds it later."""
        if question.answer is not None:
            self._tray.put(Item(question.answer, ""))
        elif question.error is not None:
            about = f"question {peertext.short(question.message_id)} to {visible(question.target)}"
            again = (
                " Asked again in the same words it is the same question." if question.error.retry == "same_id" else ""
            )
            reason = visible(question.error.reason).rstrip(".")
            self._tray.put(Item(None, f"[intercom: your {about} got no answer: {reason}.{again}]"))

    async def wait(self, question: OpenQuestion, seconds: float) -> bool:
        """Wait for the end of a question; tell whether it came. A call that is cancelled leaves it open.

        However short the time, what the broker says at first is waited for: a question it refuses is not open.
        """
        is_taken = False
        try:
            begin = anyio.current_time()
            with anyio.move_on_after(max(seconds, TOOL_WORD_MS / 1000)):
                await question.has_word.wait()
            with anyio.move_on_after(begin + seconds - anyio.current_time()):
                await question.settled.wait()
            is_taken = question.settled.is_set()
            return is_taken
        finally:
            question.is_watched = False
            if question.settled.is_set() and not is_taken:
                self.put_late(question)

    def withdraw(self, question: OpenQuestion) -> None:
        """Let the other side know that nobody waits any more."""
        question.scope.cancel()
