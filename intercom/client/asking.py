"""Bring a question to its target and wait for the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Raw

from intercom.client.operations import Stage
from intercom.client.sending import SendOperation
from intercom.client.views import IncomingMessage, Notice, SessionView, may_mean
from intercom.errors import (
    AskError,
    AskTimeout,
    IntercomError,
    PeerGone,
    ReplyFailed,
    SendError,
    TargetAway,
    TargetNotFound,
)
from intercom.limits import REBIND_RETRY_MS
from intercom.wire.frames import Delivered, Queued, Send, SendHeld
from intercom.wire.reasons import TERMINAL, behind, code_of

ANSWERED_HINT = "An answer that came while nobody waited for it is among the messages of who asked: `intercom receive`."

OnProgress: TypeAlias = Callable[[IncomingMessage], object]


class AskOperation(SendOperation[IncomingMessage]):
    """Wait for the answer to one question.

    Only a reply from the session that ``question_target`` named settles it (F70); before that frame came, only one
    from a session that the target, as it was named, can mean. The reply may come before ``delivered``, or without
    it (F65).
    """

    def __init__(
        self,
        message_id: str,
        target: str,
        message: Raw,
        *,
        deadline: int,
        is_supervised: bool = False,
        logical_target: str | None = None,
        queue: bool = False,
    ) -> None:
        super().__init__(
            message_id,
            target,
            message,
            deadline=deadline,
            is_supervised=is_supervised,
            logical_target=logical_target,
            may_be_held=not is_supervised,
            queue=queue,
        )
        self.answerer: str | None = None
        """Id of the session whose reply answers."""
        self.leaves_question = False
        """Whether it ended while the question may still be open at the broker."""
        self._accepted = False
        self._rebind_until: int | None = None
        self.on_progress: OnProgress | None = None
        """Called with every message that tells the progress of this question."""
        self.on_open: Callable[[], object] | None = None
        """Called once, when the question is open."""
        self.confirms = True
        """Whether the answer counts as received once who asked has it; else who asked confirms it."""
        self._patience_ms: int | None = None
        self._latest = deadline

    def be_patient(self, patience_ms: int | None, latest: int) -> None:
        """Let every sign of progress give the other side that much time from then on, until ``latest`` at most."""
        self._patience_ms = patience_ms
        self._latest = latest

    def progressed(self, message: IncomingMessage, now: int) -> bool:
        """Take a sign of progress; tell whether somebody took it. What that raises ends the ask.

        Who knows the id of the question was told it by who asked or who was asked, and may do no more than this.
        """
        if self._patience_ms is not None and self.deadline is not None:
            self.deadline = max(self.deadline, min(now + self._patience_ms, self._latest))
        if self.on_progress is None:
            return False
        try:
            self.on_progress(message)
        except Exception as error:
            self.leaves_question = True
            self.fail(error)
        return True

    def answered_by(self, session_id: str, attempt_id: str) -> None:
        """Take ``question_target``; without an attempt it names another session of the identity, which replies."""
        if attempt_id in (self._attempt, ""):
            self.answerer = session_id

    def expects(self, sender: SessionView) -> bool:
        """Tell whether a reply from this session answers the question."""
        if not self.written:
            return False
        if self.answerer is not None:
            return sender.id == self.answerer
        return may_mean(self.target, sender)

    def replied(self, message: IncomingMessage) -> None:
        """Take the reply."""
        self._doubt = None
        if message.reply_error is None:
            self.succeed(message)
        elif message.id == f"terminal:{self.message_id}" and message.reply_error == TERMINAL:
            hint = "Start a fresh session with the context it needs; this one will not answer."
            self.fail(self._named(PeerGone(message.reply_error, code="terminal", hint=hint)))
        else:
            error = self._named(ReplyFailed(message.reply_error))
            error.answer = message
            self.fail(error)

    def peer_left(self, session_id: str, name: str | None) -> None:
        """Take ``peer_disconnected``; one about another session than the answerer is old news."""
        if self.answerer in (None, session_id):
            self.fail(self._named(PeerGone(f"{name or self.named} left before it answered")))

    def given_up(self, notice: Notice) -> None:
        """Take a notice of the broker: the question waited and will not be handed over."""
        hint = "Ask again once it is there, or send a message."
        self.fail(
            self._named(PeerGone(f"{self.named} never got the question: {notice.reason}", code=notice.kind, hint=hint))
        )

    def accepted(self, answer: Delivered | Queued) -> None:
        """Take ``delivered`` or ``queued``: the question is open now, or will be once it is handed over."""
        was_open, self._accepted = self._accepted, True
        self._doubt = self._refusal = self._next = None
        self._move(Stage.OPEN)
        if self.on_open is not None and not was_open:
            self.on_open()

    def keeps(self, answer: SendHeld, now: int) -> None:
        """Take ``send_held``; the time for the answer stays what it was."""
        deadline = self.deadline
        super().keeps(answer, now)
        self.deadline = deadline

    def rebind(self, until: int) -> None:
        """Take notice of a reconnect: until then the other side may still come back."""
        self._rebind_until = until

    def refuse_supervised(self) -> None:
        """Settle because there is no supervisor; a question it had is withdrawn, lest it answers to nobody."""
        self.leaves_question = self.written
        super().refuse_supervised()

    def abandon(self, trouble: IntercomError) -> None:
        """Settle because no connection will come soon, or because the caller has gone."""
        self.leaves_question = self.written
        super().abandon(trouble)

    def _send(self, attempt_id: str) -> Send:
        frame = super()._send(attempt_id)
        frame.resolve_reply_target = True
        return frame

    def _doubts(self, reason: str, code: str) -> None:
        if not self._accepted:
            super()._doubts(reason, code)

    def _pause_after(self, error: SendError, now: int, returning_until: int | None) -> int | None:
        if self._accepted and error.code in ("not_found", "away"):
            is_returning = self._rebind_until is not None and now < self._rebind_until
            return REBIND_RETRY_MS if is_returning else None
        return super()._pause_after(error, now, returning_until)

    def _final(self, error: SendError) -> IntercomError:
        if error.code == "already_answered":
            return self._named(AskError(error.reason, code=error.code, hint=ANSWERED_HINT))
        is_gone = isinstance(error, TargetNotFound | TargetAway) or code_of(behind(error.reason)) in (
            "not_found",
            "away",
        )
        if is_gone and self.answerer is not None:
            return self._named(PeerGone(f"{self.named} is not there any more and has not answered"))
        return super()._final(error)

    def _at_deadline(self, trouble: IntercomError | None) -> IntercomError:
        if not self.written:
            return super()._at_deadline(trouble)
        self.leaves_question = True
        if self._accepted:
            hint = "The question was withdrawn. Ask again with a longer timeout, or send a message and go on."
            return self._named(AskTimeout(f"{self.named} did not answer in time", hint=hint))
        super()._at_deadline(trouble)
        hint = f"Asking again with the message id {self.message_id} is safe: the question cannot arrive twice."
        reason = f"{self.named} did not answer in time, and the broker did not confirm that the question arrived"
        return self._named(AskTimeout(reason, hint=hint, retry="same_id"))

    def _named(self, error: AskError) -> AskError:
        error.message_id = self.message_id
        return error
