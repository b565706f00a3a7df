"""Bring one message to its target: one id, as many attempts as it takes, one result.

The result is a receipt, or an error that says whether the message took effect and whether a retry is safe. Once it
may have arrived although no answer says so, that it is delivered, is queued, or was shown too late ends the doubt, and
nothing else, also when its sender repeats it under its id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from msgspec import UNSET, Raw

from intercom.client.operations import Operation, Result, Stage
from intercom.client.outcomes import RETRIED_CODES, RETURNING_CODES, UNCERTAIN_CODES, again, refusal, unknown
from intercom.client.supervision import GONE_CODE, gone
from intercom.client.views import IncomingMessage, Receipt
from intercom.errors import ConnectionLost, IntercomError, MessageConflict, OutcomeUnknown, SendError, TargetNotFound
from intercom.limits import SEND_MS, SEND_RETRY_MS
from intercom.wire.frames import (
    TRUE,
    Delivered,
    DeliveryFailed,
    Queued,
    Send,
    SendHeld,
    SupervisorSend,
)

if TYPE_CHECKING:
    from intercom.wire.unions import Request

_STAYS_PLAIN = frozenset({"no_open_question", "other_recipient", "ambiguous"})
"""Refusals of an answer nobody said was one, after which it is sent as the ordinary message it was given as."""


class SendOperation(Operation[Result]):
    """Wait for what becomes of one message; only answers to the present attempt count (protocol 6.8).

    ``is_reply`` marks the answer to an open question, ``is_supervised`` a message up the supervisor line, whose target
    is set anew for each attempt. ``logical_target`` is what the caller called the target, where that is something else;
    ``label`` is what people call it, which the broker is not told.
    ``may_be_held`` lets it wait for a recipient that is being brought back (protocol 6.11), ``queue`` for who is away;
    after ``valid_until`` it must not be handed over any more. ``answers`` is the id of the message it refers to;
    ``as_answer`` and ``as_progress`` make the same message one that answers a question, or tells its progress, where
    there turns out to be just one.
    """

    def __init__(
        self,
        message_id: str,
        target: str,
        message: Raw,
        *,
        deadline: int,
        is_reply: bool = False,
        expected_recipient: str | None = None,
        finishes: str | None = None,
        is_supervised: bool = False,
        logical_target: str | None = None,
        may_be_held: bool = False,
        queue: bool = False,
        valid_until: int | None = None,
        answers: str | None = None,
        label: str | None = None,
        as_answer: Callable[[str], Raw] | None = None,
        as_progress: Callable[[str], Raw] | None = None,
    ) -> None:
        super().__init__(deadline)
        self.message_id = message_id
        self.finishes = finishes
        """Id of the message that its consumer has finished with by sending this one."""
        self.target = target
        self.reregistered = False
        self.written = False
        """Whether any attempt was ever written."""
        self.closed: str | None = None
        """Id of the question that is known to be closed by what became of this message."""
        self.is_reply = is_reply
        self.is_supervised = is_supervised
        self.held: Receipt | None = None
        """What the broker said while it holds the present attempt."""
        self._may_be_held = may_be_held
        self._logical_target = logical_target
        self._label = label
        self._queue = queue
        self._valid_until = valid_until
        self._message = message
        self._expected_recipient = expected_recipient
        self._answers = answers
        self._as_answer = as_answer
        self._as_progress = as_progress
        self._plain: Raw | None = None
        """The message as it was given, while it is sent as the answer to a question instead."""
        self._went_as_answer = False
        """An earlier send of the same message was the answer to a question, and may have arrived as that."""
        self._hint = ""
        self._attempt: str | None = None
        self._doubt: OutcomeUnknown | None = None
        """Set once the message may have arrived although no answer says so."""
        self._refusal: SendError | None = None
        """The last refusal that invited another attempt."""
        self._was_lost = False
        self._broker_is_young = False

    @property
    def may_refer(self) -> bool:
        """Tell whether this is a message that could as well be the answer to a question, or tell its progress."""
        return self._as_answer is not None or self._as_progress is not None

    def refer(self, questions: Sequence[IncomingMessage], *, is_again: bool = False) -> None:
        """Take notice of what the target asked: one question is answered or told of, several are not.

        ``is_again`` says that the same message went out as this answer before.
        """
        self._went_as_answer = is_again
        if self._as_progress is not None:
            if len(questions) == 1:
                self._message = self._as_progress(questions[0].id)
        elif len(questions) == 1:
            self._become_answer(questions[0])
        elif questions:
            self._advise(questions)

    def _become_answer(self, question: IncomingMessage) -> None:
        """Be the answer to a question; should it not be open any more, the message is sent as it was given.

        The target stays as it was named: should that mean another session by now, that one gets the message.
        """
        assert self._as_answer is not None, "only what may be an answer becomes one"
        self._plain, self._message = self._message, self._as_answer(question.id)
        self._answers = question.id
        self.is_reply = True
        self._expected_recipient = question.sender.id

    def _advise(self, questions: Sequence[IncomingMessage]) -> None:
        """Say in the receipt how to answer the target, which asked several questions."""
        ids = ", ".join(question.id for question in questions)
        self._hint = (
            f"{self.named} asked {len(questions)} questions that are open, and this message answers none of them: "
            f"reply to one of them, or send with its id as reply_to ({ids})."
        )

    @property
    def doubt(self) -> OutcomeUnknown | None:
        """Return why the message may have arrived although no answer says so; None: that is not so."""
        if self._doubt is None and isinstance(self.error, OutcomeUnknown):
            return self.error
        return self._doubt

    def repeats(self, doubt: OutcomeUnknown) -> None:
        """Take notice that an earlier send under the same id left this doubt: no refusal of this one ends it."""
        self._doubt = again(doubt)

    def aim(self, target: str) -> None:
        """Send to somebody else from now on, who stands in the place of the first: it stays the same message."""
        if self.written and self._logical_target is None and target != self.target:
            self._logical_target = self.target
        self.target = target

    def attempt(self, attempt_id: str, now: int, *, queues: bool = False) -> Request:
        """Return the frame of the next attempt; ``queues`` tells whether the broker keeps mail."""
        self._move(Stage.FLYING)
        self._attempt = attempt_id
        self._next = now + SEND_MS
        self.written = True
        self.held = None
        frame = self._frame(attempt_id)
        if queues and type(frame) is Send:
            frame.queue_if_away = True if self._queue else UNSET
            frame.valid_for = UNSET if self._valid_until is None else max(0, self._valid_until - now)
        return frame

    def lost(self) -> None:
        """Take notice that the connection ended; what was under way may have arrived."""
        if self.stage is Stage.FLYING:
            self._was_lost = True
            self._doubts("The connection ended before the broker said what became of the message", "connection_lost")
        super().lost()

    def is_current(self, answer: Delivered | DeliveryFailed | Queued | SendHeld) -> bool:
        """Tell whether an answer is to the present attempt."""
        return self.stage is Stage.FLYING and answer.attempt_id in (self._attempt, UNSET)

    def keeps(self, answer: SendHeld, now: int) -> None:
        """Take ``send_held``: the final answer comes when the recipient is back, or the broker's time for it is up."""
        hold_ms = int(answer.timeout_ms)
        self.held = Receipt("held", self.message_id, self.named, held_ms=hold_ms)
        self._next = now + hold_ms + SEND_MS
        if self.deadline is not None:
            self.deadline = max(self.deadline, self._next)

    def accepted(self, answer: Delivered | Queued) -> None:
        """Take ``delivered`` or ``queued``."""
        self.closed = self._answers
        self._doubt = None
        self.succeed(cast("Result", self._receipt(answer)))

    def refused(
        self, answer: DeliveryFailed, now: int, returning_until: int | None, young_until: int | None = None
    ) -> None:
        """Take ``delivery_failed``.

        ``returning_until`` is set after a reconnect: until then others may not be back yet. ``young_until`` is set for
        a broker that has just started: until then sessions of an earlier one come back.
        """
        self._broker_is_young = young_until is not None and now < young_until
        if self._broker_is_young:
            returning_until = max(young_until or 0, returning_until or 0)
        error = refusal(answer)
        if error.code in UNCERTAIN_CODES:
            self._doubts(error.reason, error.code)
        pause = self._pause_after(error, now, returning_until)
        if pause is None and error.code == "no_open_question":
            self.closed = self._answers
        may_stay_plain = error.code in _STAYS_PLAIN and self._doubt is None and not self._went_as_answer
        if pause is None and self._plain is not None and (may_stay_plain or isinstance(error, MessageConflict)):
            self._stay_plain(self._plain, is_known=isinstance(error, MessageConflict))
        elif pause is None:
            self.fail(self._final(error))
        else:
            self._move(Stage.PAUSED)
            self._refusal = error
            self._next = now + pause

    def abandon(self, trouble: IntercomError) -> None:
        """Settle because no connection will come soon; never claim that nothing happened when it may have."""
        if self.stage is Stage.FLYING:
            self._doubts("The session ended before the broker said what became of the message", "connection_lost")
        if self._doubt is not None:
            self.fail(unknown(self._doubt.reason, self.message_id, code=self._doubt.code, cause=again(trouble)))
        else:
            super().abandon(trouble)

    def refuse_supervised(self) -> None:
        """Settle because there is no supervisor to send to."""
        self.fail(self._final(gone(self.message_id)))

    @property
    def named(self) -> str:
        """Return the target in the caller's words."""
        if self.is_supervised:
            return "The supervisor"
        return self._logical_target or self._label or self.target

    def _stay_plain(self, message: Raw, *, is_known: bool) -> None:
        """Go out as the ordinary message it was given as: nothing took effect as an answer.

        The id is free for it, or it ``is_known``: it went out under it before, and is repeated.
        """
        self._message, self._plain, self._answers = message, None, None
        self.is_reply = False
        self._expected_recipient = None
        if not is_known:
            self._hint = "It was sent as an ordinary message: the question it might have answered is not open any more."
        self.put_back()

    def _frame(self, attempt_id: str) -> Request:
        return self._send(attempt_id)

    def _send(self, attempt_id: str) -> Send:
        return self._kind(
            to=self.target,
            message=self._message,
            attempt_id=attempt_id,
            logical_target=UNSET if self._logical_target is None else self._logical_target,
            require_pending_reply=True if self.is_reply else UNSET,
            expected_recipient_id=UNSET if self._expected_recipient is None else self._expected_recipient,
            await_restoring_recipient=TRUE if self._may_be_held else UNSET,
        )

    @property
    def _kind(self) -> type[Send]:
        return SupervisorSend if self.is_supervised else Send

    def _receipt(self, answer: Delivered | Queued) -> Receipt:
        target = self.target if self.is_supervised else self.named
        inferred = None if self._plain is None else self._answers
        if isinstance(answer, Queued):
            return Receipt(
                "queued",
                self.message_id,
                target,
                answer.position,
                is_known=answer.not_in_known_set is not True,
                kept=None if answer.kept is UNSET else answer.kept,
                joined=None if answer.joined is UNSET else answer.joined,
                inferred_reply_to=inferred,
                hint=self._hint,
            )
        return Receipt("delivered", self.message_id, target, inferred_reply_to=inferred, hint=self._hint)

    def _pause_after(self, error: SendError, now: int, returning_until: int | None) -> int | None:
        """Return how long to wait before the same id is sent again, or ``None`` to give up."""
        if error.code in RETRIED_CODES:
            return SEND_RETRY_MS
        is_returning = returning_until is not None and now < returning_until
        if is_returning and error.code in RETURNING_CODES and self._may_return:
            return SEND_RETRY_MS
        return None

    @property
    def _may_return(self) -> bool:
        """Tell whether a target that is not there shortly after a reconnect may only be slower than this session."""
        return self.is_reply or self.is_supervised or self._was_lost or self._broker_is_young

    def _final(self, error: SendError) -> IntercomError:
        if self._doubt is None and self.is_supervised and isinstance(error, TargetNotFound):
            return error if error.code == GONE_CODE else gone(self.message_id, error)
        if error.code == "expired":
            self._doubt = None
        if self._doubt is None or isinstance(error, MessageConflict):
            return error
        reason = f"{self._doubt.reason.rstrip('.')}; the last attempt was answered: {error.reason}"
        told = unknown(reason, self.message_id, code=self._doubt.code, cause=error)
        told.hint, told.retry = self._doubt.hint, self._doubt.retry
        return told

    def _at_deadline(self, trouble: IntercomError | None) -> IntercomError:
        if self._doubt is None and self.stage is Stage.FLYING:
            self._doubts("The broker did not say in time what became of the message", "send_timeout")
        if self._doubt is not None:
            return again(self._doubt)
        if self._refusal is not None:
            return self._final(self._refusal)
        if trouble is not None:
            return again(trouble)
        return ConnectionLost("There was no connection to a broker in time; nothing was sent", retry="after")

    def _time_came(self) -> None:
        if self.stage is Stage.FLYING:
            self._doubts("The broker did not say what became of the message", "send_timeout")
        super()._time_came()

    def _doubts(self, reason: str, code: str) -> None:
        self._doubt = unknown(reason, self.message_id, code=code)
