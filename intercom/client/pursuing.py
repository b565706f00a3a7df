"""Bring what callers wait for to its end, over as many connections as that takes.

An operation is written once there is a registered connection, and again when that one ended before the answer. Times
are monotonic milliseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET

from intercom.client.asking import AskOperation
from intercom.client.contact import Contact
from intercom.client.lifecycle import QUEUE, Lifecycle
from intercom.client.notices import Held, News, Settled
from intercom.client.operations import Opening, Operation, RequestOperation, Stage
from intercom.client.ordering import SpawnOperation
from intercom.client.owing import Owing
from intercom.client.profile import Profile
from intercom.client.sending import SendOperation
from intercom.client.supervision import Line
from intercom.client.views import IncomingMessage, Notice
from intercom.client.waiting import Waiting
from intercom.errors import IntercomError, OutcomeUnknown, PresenceRefused, RequestRefused, TooLarge
from intercom.limits import DOUBTFUL_SENDS, PENDING_REPLY_RETRY_MS, REBIND_MS, WITHDRAWN_ASKS
from intercom.wire.codec import ProtocolError
from intercom.wire.frames import (
    CancelAsk,
    Delivered,
    DeliveryFailed,
    PeerDisconnected,
    PresenceFailed,
    QuestionTarget,
    Queued,
    SendHeld,
)
from intercom.wire.mail import (
    QuestionReopened,
    QuestionWithdrawn,
    RequestFailed,
)
from intercom.wire.reasons import SESSION_NOT_FOUND, code_of
from intercom.wire.watching import SpawnStatus

if TYPE_CHECKING:
    from intercom.wire.unions import Request

Handlers: TypeAlias = dict[type[Any], Callable[[Any, int], None]]
"""What is done with an answer of each kind; each is called with the answer and the time."""

_OLDER_BROKER = "The broker does not know this request: it is older than this client"


class Pursuit:
    """Hold the operations of a session; ``len`` counts those that are not settled."""

    def __init__(
        self,
        profile: Profile,
        contact: Contact,
        lifecycle: Lifecycle,
        line: Line,
        news: News,
        ids: Callable[[], str],
    ) -> None:
        self.owing = Owing()
        self._profile = profile
        self._contact = contact
        self._lifecycle = lifecycle
        self._line = line
        self._news = news
        self._ids = ids
        self._waiting = Waiting()
        self._withdrawn: deque[str] = deque(maxlen=WITHDRAWN_ASKS)
        """Message ids of asks that ended while offline."""
        self._doubts: dict[str, OutcomeUnknown] = {}
        """What is not known of messages whose sending has ended, by their ids; the oldest give way."""
        self._returning_until: int | None = None
        self._young_until: int | None = None
        self.on_asked: Callable[[AskOperation, int], None] = lambda asked, now: None
        """Is told of every attempt at an ask: its answer may have come before."""
        self.on_sent: Callable[[str, bool, int], None] = lambda message_id, is_accepted, now: None
        """Is told of every send that is settled, and whether it is delivered or waits."""
        self.handlers: Handlers = {
            Delivered: self._on_accepted,
            Queued: self._on_accepted,
            DeliveryFailed: self._on_delivery_failed,
            SendHeld: self._on_send_held,
            QuestionTarget: self._on_question_target,
            QuestionWithdrawn: self._on_question_withdrawn,
            QuestionReopened: self._on_question_reopened,
            PeerDisconnected: self._on_peer_disconnected,
            SpawnStatus: self._on_spawn_status,
        }

    def __len__(self) -> int:
        return len(self._waiting)

    # --- callers ----------------------------------------------------------------------------------------

    def begin(self, operation: Operation[Any], now: int) -> None:
        """Start an operation; ``Settled`` tells when it has its result."""
        if isinstance(operation, SendOperation):
            self.owing.infer(operation, now)
            doubt = self._doubts.get(operation.message_id)
            if doubt is not None:
                operation.repeats(doubt)
        self._waiting.add(operation)
        self._launch(operation, now)

    def withdraw(self, operation: Operation[Any], now: int) -> None:
        """Forget an operation that is not settled and whose caller has gone."""
        operation.withdraw()
        self._end(operation)
        if isinstance(operation, SendOperation):
            self.on_sent(operation.message_id, False, now)

    def is_sending(self, message_id: str) -> bool:
        """Tell whether a message with this id is under way."""
        return self._waiting.send(message_id) is not None

    def asked(self, message_id: str | None) -> AskOperation | None:
        """Return the ask with this message id that was written at least once and is not settled."""
        return self._waiting.ask(message_id)

    def after(self, operation: Operation[Any], now: int) -> None:
        """Do what follows from a move of an operation."""
        if operation.done:
            self._end(operation)
            self._news.add(Settled(operation))
            if isinstance(operation, SendOperation):
                self.on_sent(operation.message_id, operation.error is None, now)
        elif operation.stage is Stage.WAITING and self._contact.is_online:
            self._launch(operation, now)
        else:
            self._waiting.schedule(operation)

    # --- the connection and time ------------------------------------------------------------------------

    def connected(self, young_until: int | None) -> None:
        """Take notice of a new connection.

        ``young_until`` is the time until which a broker that has just started may still miss sessions of the one
        before it.
        """
        self._young_until = young_until

    def resume(self, now: int, *, is_back: bool) -> None:
        """Write everything that waits: the session is registered, for the first time or again."""
        if is_back:
            self._returning_until = now + PENDING_REPLY_RETRY_MS
        while self._withdrawn:
            self._contact.write(CancelAsk(self._withdrawn.popleft()))
        for operation in self._waiting:
            if isinstance(operation, AskOperation):
                operation.rebind(now + REBIND_MS)
            if isinstance(operation, SendOperation) and not self._line.claims:
                operation.reregistered = True
            self._launch(operation, now)

    def lost(self, now: int) -> None:
        """Take notice that the connection ended: what is unanswered is written again on the next one."""
        self._waiting.forget_names()
        for operation in self._waiting:
            if operation.done:
                self.after(operation, now)
                continue
            operation.lost()
            self._waiting.schedule(operation)

    def abandon(self, trouble: IntercomError, now: int, *, only_openings: bool = False) -> None:
        """Settle everything because no connection will come soon, or only what waits to be registered."""
        for operation in self._waiting:
            if not only_openings or isinstance(operation, Opening):
                operation.abandon(trouble)
                self.after(operation, now)

    def next_due(self) -> int | None:
        """Return when ``tick`` has something to do."""
        return self._waiting.next_due()

    def tick(self, now: int) -> None:
        """Do what is due."""
        while (operation := self._waiting.take_due(now)) is not None:
            operation.tick(now, self._contact.trouble)
            self.after(operation, now)

    # --- what the broker answers ------------------------------------------------------------------------

    def answered(self, answer: Any, now: int) -> None:
        """Take an answer that means nothing beyond the request it answers; any other is ignored."""
        operation = self._waiting.take_request(getattr(answer, "request_id", None))
        if operation is None:
            return
        if isinstance(answer, operation.answers):
            operation.answered(answer)
        elif isinstance(answer, PresenceFailed):
            if answer.reason == SESSION_NOT_FOUND and self._registers_anew(operation):
                return
            operation.fail(PresenceRefused(answer.reason))
        elif isinstance(answer, RequestFailed):
            operation.turned_down(answer, now)
        else:
            raise ProtocolError(f"{type(answer).__name__} answers a request of another kind")
        self.after(operation, now)

    def gave_up(self, notice: Notice, now: int) -> bool:
        """Tell whether a notice of the broker ends an ask that waits; others are messages like any."""
        asked = self.asked(notice.message_id)
        if asked is None:
            return False
        asked.given_up(notice)
        self.after(asked, now)
        return True

    def progressed(self, message: IncomingMessage, now: int) -> AskOperation | None:
        """Return the ask that took a message as a sign of its progress; it may be settled, and ``after`` is due."""
        asked = self.asked(message.progress_of)
        return asked if asked is not None and asked.progressed(message, now) else None

    def _on_accepted(self, answer: Delivered | Queued, now: int) -> None:
        operation = self._waiting.send(answer.message_id)
        if operation is not None and operation.is_current(answer):
            operation.accepted(answer)
            self.owing.learn(operation)
            self.after(operation, now)

    def _on_delivery_failed(self, answer: DeliveryFailed, now: int) -> None:
        operation = self._waiting.send(answer.message_id)
        if operation is None or not operation.is_current(answer):
            return
        if code_of(answer.reason) == "not_registered" and self._registers_anew(operation):
            return
        operation.refused(answer, now, self._returning_until, self._young_until)
        self.owing.learn(operation)
        self.after(operation, now)

    def _on_send_held(self, answer: SendHeld, now: int) -> None:
        operation = self._waiting.send(answer.message_id)
        if operation is not None and operation.is_current(answer):
            operation.keeps(answer, now)
            self._waiting.schedule(operation)
            self._news.add(Held(operation))

    def _on_question_target(self, answer: QuestionTarget, now: int) -> None:
        asked = self.asked(answer.message_id)
        if asked is not None:
            asked.answered_by(answer.session_id, answer.attempt_id)

    def _on_question_withdrawn(self, answer: QuestionWithdrawn, now: int) -> None:
        self.owing.withdrawn(answer.message_id)

    def _on_spawn_status(self, answer: SpawnStatus, now: int) -> None:
        if answer.status != "received":
            self.answered(answer, now)
        elif isinstance(operation := self._waiting.request(answer.request_id), SpawnOperation):
            operation.received()

    def _on_question_reopened(self, answer: QuestionReopened, now: int) -> None:
        self.owing.reopened(answer.message_id, now)

    def _on_peer_disconnected(self, answer: PeerDisconnected, now: int) -> None:
        asked = self.asked(answer.reply_to)
        if asked is not None:
            asked.peer_left(answer.peer_session_id, None if answer.peer_name is UNSET else answer.peer_name)
            self.after(asked, now)

    # --- inner works ------------------------------------------------------------------------------------

    def _launch(self, operation: Operation[Any], now: int) -> None:
        """Write the next attempt of an operation that waits for one, unless there is no good connection."""
        if not self._contact.is_online:
            return
        if isinstance(operation, Opening):
            operation.succeed(None)
            self.after(operation, now)
            return
        if isinstance(operation, SendOperation):
            if not self._aim(operation, now):
                return
            if not self._write(
                operation, operation.attempt(self._ids(), now, queues=QUEUE in self._lifecycle.features), now
            ):
                return
            if isinstance(operation, AskOperation):
                self.on_asked(operation, now)
                if operation.done:
                    return
        elif isinstance(operation, RequestOperation):
            granted, wanted = self._lifecycle.features, operation.needs_feature
            if (operation.needs_features and not granted) or (wanted is not None and wanted not in granted):
                operation.fail(RequestRefused(_OLDER_BROKER, code="feature_not_granted"))
                self.after(operation, now)
                return
            request_id = self._ids()
            self._waiting.name(operation, request_id)
            if not self._write(operation, operation.attempt(request_id), now):
                return
        self._waiting.schedule(operation)

    def _write(self, operation: Operation[Any], frame: Request, now: int) -> bool:
        """Write what an operation has to say; one that no frame can hold is refused here, and for good."""
        try:
            self._contact.write(frame)
        except TooLarge as error:
            operation.fail(error)
            self.after(operation, now)
            return False
        return True

    def _aim(self, operation: SendOperation[Any], now: int) -> bool:
        """Tell whether an operation has somebody to go to; a lost supervisor is looked for once."""
        if not operation.is_supervised:
            return True
        if self._profile.supervisor_id is not None:
            operation.aim(self._profile.supervisor_id)
            return True
        if operation.reregistered:
            operation.refuse_supervised()
            self.after(operation, now)
        else:
            operation.reregistered = True
            self._line.try_once(now)
            self._break_off()
        return False

    def _registers_anew(self, operation: SendOperation[Any] | RequestOperation[Any]) -> bool:
        """Break the connection of a session the broker does not know, once an operation; its end does the rest."""
        if operation.reregistered:
            return False
        operation.reregistered = True
        operation.put_back()
        self._break_off()
        return True

    def _break_off(self) -> None:
        self._lifecycle.begin_anew()
        self._contact.break_off(None)

    def _end(self, operation: Operation[Any]) -> None:
        self._waiting.remove(operation)
        if isinstance(operation, SendOperation):
            self._note_doubt(operation)
        if isinstance(operation, AskOperation) and operation.leaves_question:
            if self._contact.is_online:
                self._contact.write(CancelAsk(operation.message_id))
            else:
                self._withdrawn.append(operation.message_id)

    def _note_doubt(self, operation: SendOperation[Any]) -> None:
        """Remember that nobody knows whether a message arrived, for the case that its sender repeats it."""
        self._doubts.pop(operation.message_id, None)
        if operation.doubt is not None:
            self._doubts[operation.message_id] = operation.doubt
            if len(self._doubts) > DOUBTFUL_SENDS:
                del self._doubts[next(iter(self._doubts))]
