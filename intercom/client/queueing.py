"""Say what the owner of a workflow run is asked, and what it may answer (protocol 4.16, 5.22, 5.23)."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any, Literal, Protocol

from msgspec import UNSET, Struct

from intercom.client.composing import clean_text
from intercom.client.views import Attachment, SessionView, message_of
from intercom.errors import UsageError
from intercom.wire.frames import MessageFrame, PendingStageMessage, PendingStageMessageResult, StickyLiveDelivered
from intercom.wire.reasons import STAGE_ASK, STAGE_REFUSED


class StageRequest(Struct, frozen=True, kw_only=True):
    """Ask the owner of a run what is to become of a message.

    ``id`` is the message's: the same one may come again and is to be answered alike. ``sender`` is who sent it;
    ``sender_name`` and ``return_address`` are what finds the same sender after it returned, for ``notify``.
    ``is_live`` tells that ``target`` leads to a running stage, so that the message is usually forwarded.
    ``raw`` holds the message object as it came.
    """

    id: str
    run_id: str
    target: str
    text: str
    attachments: tuple[Attachment, ...]
    sender: SessionView
    sender_name: str | None
    return_address: str | None
    expects_reply: bool
    reply_to: str | None
    timestamp: int | float
    is_live: bool
    raw: dict[str, Any]


class StageAnswer(Struct, frozen=True):
    """Say what became of a message; made by ``queued``, ``forward``, ``delivered``, ``refused`` or ``not_started``."""

    outcome: Literal["queued", "forward", "delivered", "refused"]
    position: int | None = None
    target: str | None = None
    reason: str | None = None
    forward_to: tuple[str, ...] = ()
    is_known: bool = True
    is_conflict: bool = False

    @classmethod
    def queued(cls, position: int, *, forward_to: Iterable[str] = (), is_known: bool = True) -> StageAnswer:
        """Say that the message is on disk and waits at ``position``, 1 or more.

        ``forward_to`` names running stages that a broadcast is to reach at once; which of them it reached comes as
        ``reached``. ``is_known`` is false when no known stage of the run can ever match the target.
        """
        if isinstance(position, bool) or not isinstance(position, int) or position < 1:
            raise UsageError(f"a position is a whole number from 1 on, not {position!r}")
        targets = tuple(clean_text(target, "target") for target in forward_to)
        return cls("queued", position=position, forward_to=targets, is_known=is_known)

    @classmethod
    def forward(cls, target: str) -> StageAnswer:
        """Say that the broker is to hand the message to the running stage that ``target`` names."""
        return cls("forward", target=clean_text(target, "target"))

    @classmethod
    def delivered(cls) -> StageAnswer:
        """Say that the stage has the message, as one that came before."""
        return cls("delivered")

    @classmethod
    def refused(cls, reason: str, *, is_conflict: bool = False) -> StageAnswer:
        """Refuse the message for ``reason``, a sentence the sender sees.

        ``is_conflict`` says that its id was used before for another message.
        """
        return cls("refused", reason=clean_text(reason, "reason"), is_conflict=is_conflict)

    @classmethod
    def not_started(cls) -> StageAnswer:
        """Refuse a question to a stage that has not started, with the advice to send a message instead."""
        return cls("refused", reason=STAGE_ASK)


class StageQueue(Protocol):
    """Keep the messages to stages that have not started; implemented by the host of a run."""

    def admit(self, request: StageRequest) -> StageAnswer:
        """Say what is to become of a message; what is answered ``queued`` must be on disk before this returns.

        The broker waits 10 s. Whatever this raises refuses the message and ends the call of the session that runs.
        """

    def reached(self, message_id: str, target: str, stages: tuple[str, ...]) -> None:
        """Take notice that a queued broadcast to ``target`` was handed to these running stages already."""


class AsyncStageQueue(Protocol):
    """Keep the messages to stages as a ``StageQueue``, with calls that may be awaited."""

    def admit(self, request: StageRequest) -> StageAnswer | Awaitable[StageAnswer]:
        """Say what is to become of a message; what is answered ``queued`` must be on disk before this returns.

        The broker waits 10 s. Whatever this raises refuses the message and ends the block of the run.
        """

    def reached(self, message_id: str, target: str, stages: tuple[str, ...]) -> Awaitable[None] | None:
        """Take notice that a queued broadcast to ``target`` was handed to these running stages already."""


class Asked(Struct, frozen=True):
    """Hold a request together with the connection and the id under which it is answered."""

    request: StageRequest
    request_id: str
    connection: int


class Reached(Struct, frozen=True):
    """Hold what the broker did with a broadcast."""

    run_id: str
    message_id: str
    target: str
    stages: tuple[str, ...]


def asked(frame: PendingStageMessage, connection: int) -> Asked:
    """Return what a frame asks; raise ``Malformed`` for one that breaks the protocol."""
    message = message_of(MessageFrame(sender=frame.sender, message=frame.message))
    request = StageRequest(
        id=message.id,
        run_id=frame.run_id,
        target=frame.target,
        text=message.text,
        attachments=message.attachments,
        sender=message.sender,
        sender_name=None if frame.sender_registration_name is UNSET else frame.sender_registration_name,
        return_address=None if frame.sender_return_address is UNSET else frame.sender_return_address,
        expects_reply=message.expects_reply,
        reply_to=message.reply_to,
        timestamp=message.timestamp,
        is_live=frame.live is True,
        raw=message.raw,
    )
    return Asked(request, frame.request_id, connection)


def reached(frame: StickyLiveDelivered) -> Reached:
    """Return what a frame tells."""
    return Reached(frame.run_id, frame.message_id, frame.target, tuple(frame.delivered_targets))


def checked_answer(request: StageRequest, answer: object) -> StageAnswer:
    """Return what a host answered; raise ``UsageError`` for what can never be an answer to this request."""
    if not isinstance(answer, StageAnswer):
        raise UsageError(f"admit must return a StageAnswer, not {type(answer).__name__}")
    if answer.outcome == "queued" and request.expects_reply:
        raise UsageError("a question was answered queued", hint="Answer it StageAnswer.not_started() and keep nothing.")
    return answer


def result_of(request_id: str, answer: StageAnswer) -> PendingStageMessageResult:
    """Return the frame that answers."""
    return PendingStageMessageResult(
        request_id=request_id,
        outcome=answer.outcome,
        position=UNSET if answer.position is None else answer.position,
        target=UNSET if answer.target is None else answer.target,
        reason=UNSET if answer.reason is None else answer.reason,
        reason_code="message_id_conflict" if answer.is_conflict else UNSET,
        not_in_known_set=UNSET if answer.is_known else True,
        forward_targets=list(answer.forward_to) if answer.forward_to else UNSET,
    )


RUN_IS_OVER = StageAnswer("refused", reason=f"{STAGE_REFUSED}: the run has ended")
HOST_FAILED = StageAnswer("refused", reason=f"{STAGE_REFUSED}: its host could not take it")
HOST_IS_BUSY = StageAnswer("refused", reason=f"{STAGE_REFUSED}: too many messages wait for its host; try later")
