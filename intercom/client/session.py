"""Be one session of the client without touching a socket: bytes and commands in, bytes and events out.

Whoever drives a ``ClientSession`` does four things. It hands over what the connection brought (``receive``, ``eof``)
and that time passed (``tick`` at ``deadline``); after every call it writes ``outgoing()``, looks at ``events()``, and,
when ``recovery.at`` is due, makes a connection and says so (``connecting``, ``connected``, ``connect_failed``). All
times are monotonic milliseconds unless they are called ``wall``, which are epoch milliseconds.

What an answer of the broker sets off is all here, one short method for each kind; whatever has rules of its own is a
module: contact, lifecycle, inbox, waiting, owing, operations, recovery, heartbeat, supervision, commitments, feeds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Literal

from msgspec import UNSET

from intercom.client.asking import AskOperation
from intercom.client.commitments import Commitments
from intercom.client.composing import clean_id
from intercom.client.contact import Contact, Link, violation
from intercom.client.feeds import Feed, Feeds, SessionEvent
from intercom.client.heartbeat import Heartbeat, Pulse
from intercom.client.held import HeldSends
from intercom.client.inbox import Inbox
from intercom.client.lifecycle import LIFECYCLE, QUEUE, Keeper, Lifecycle, Nothing, end_of, told_of
from intercom.client.notices import Arrived, Event, Happened, Held, HostAsked, Settled, Troubled
from intercom.client.operations import Opening, Operation, RequestOperation, Stage
from intercom.client.outcomes import again, refusal_of
from intercom.client.owing import Owing
from intercom.client.profile import Profile
from intercom.client.recovery import DOUBTFUL, HOPELESS, Recovery
from intercom.client.sending import SendOperation
from intercom.client.staging import LiveStage
from intercom.client.supervision import REFUSED_CODE, Line
from intercom.client.views import IncomingMessage, Malformed, Notice, Receipt, SessionView, message_of, view_of
from intercom.client.waiting import Waiting
from intercom.errors import (
    BrokerError,
    ConnectionLost,
    IntercomError,
    NoBroker,
    PresenceRefused,
    RequestRefused,
    UsageError,
)
from intercom.limits import PENDING_REPLY_RETRY_MS, REBIND_MS, WITHDRAWN_ASKS
from intercom.wire.codec import ProtocolError
from intercom.wire.frames import (
    CancelAsk,
    Delivered,
    DeliveryFailed,
    Groups,
    HealthRequest,
    LiveWorkflowStageRouteRegistered,
    MembershipAck,
    MessageFrame,
    PeerDisconnected,
    PendingStageMessage,
    PendingStageNotification,
    PendingStageNotificationResult,
    PendingStageRouteRegistered,
    PendingStageRouteRevoked,
    Presence,
    PresenceAck,
    PresenceFailed,
    PresenceUpdate,
    QuestionTarget,
    Queued,
    Received,
    Registered,
    Request,
    RestoringRecipientAck,
    SendHeld,
    SessionJoined,
    SessionLeft,
    Sessions,
    StickyLiveDelivered,
    SupervisorAuthorized,
)
from intercom.wire.mail import (
    Addresses,
    MailboxEntries,
    Pending,
    Purged,
    QuestionWithdrawn,
    Replaced,
    RequestFailed,
    SessionForceClosed,
    SessionReattached,
    SessionRecords,
    TaskHintStored,
    Trace,
)
from intercom.wire.reasons import SESSION_NOT_FOUND, code_of

__all__ = [
    "Arrived",
    "ClientSession",
    "Event",
    "Happened",
    "Held",
    "HostAsked",
    "IncomingMessage",
    "Link",
    "Receipt",
    "SessionView",
    "Settled",
    "Troubled",
]

_OLDER_BROKER = "The broker does not know mail: it is older than this client"


class ClientSession:
    """Hold everything a session knows across its connections."""

    def __init__(
        self,
        profile: Profile,
        *,
        ids: Callable[[], str],
        chance: Callable[[], float],
        message_kind: type[IncomingMessage] = IncomingMessage,
        keeper: Keeper | None = None,
    ) -> None:
        """Begin offline; the first attempt to connect is due at once.

        ``ids`` gives new unique ids, ``chance`` numbers from 0 to 1; ``message_kind`` is what messages are made as,
        ``keeper`` what of an address outlives the process.
        """
        self.profile = profile
        self.recovery = Recovery(chance)
        self.session_id = ""
        self._contact = Contact()
        self._heartbeat = Heartbeat()
        self._silence: IntercomError | None = None
        """What is wrong when the broker does not answer any more."""
        self._line = Line(profile)
        self.commitments = Commitments(self._say, ids)
        self._lifecycle = Lifecycle(profile, keeper or Nothing())
        self._untold_status: str | None = None
        """Request id of the latest announcement, until the broker is known to have it; empty for one not written."""
        self._is_anew = False
        """Whether the next connection begins with a registration, whatever there was before."""
        self._wall_ahead = 0
        """How far the time of day is ahead of the monotonic clock."""
        self._ended_by: IntercomError | None = None
        self._feeds = Feeds()
        self._was_online = False
        """Whether the present connection was registered."""
        self._inbox = Inbox()
        self._waiting = Waiting()
        self._owing = Owing()
        self._ids = ids
        self._kind = message_kind
        self._events: list[Event] = []
        self._untaken: set[str] = set()
        """Message ids of answers to asks, until their caller took them."""
        self.held = HeldSends()
        self._notices: dict[str, str] = {}
        """Message ids of notifications that are not confirmed, with the ids under which they are."""
        self._withdrawn: deque[str] = deque(maxlen=WITHDRAWN_ASKS)
        """Message ids of asks that ended while offline."""
        self._returning_until: int | None = None
        self._young_until: int | None = None
        self._untold: IntercomError | None = None
        self._was_told = False
        """Whether consumers have been told of the present trouble; they are told once (F131)."""

    @property
    def link(self) -> Link:
        """Return what there is of a connection."""
        return self._contact.link

    @property
    def is_online(self) -> bool:
        """Tell whether the session is registered."""
        return self._contact.is_online

    @property
    def lifecycle(self) -> Lifecycle:
        """Return what of this session lasts over connections."""
        return self._lifecycle

    @property
    def was_ended(self) -> bool:
        """Tell whether the session is over because others decided so."""
        return self._ended_by is not None

    def over(self) -> IntercomError:
        """Return why a closed session cannot be used."""
        return UsageError("the session is closed") if self._ended_by is None else again(self._ended_by)

    # --- the connection ---------------------------------------------------------------------------------

    def connecting(self) -> None:
        """Take notice that an attempt to connect is under way; ``connected`` or ``connect_failed`` follows."""
        self.recovery.begun()

    def connected(self, now: int, wall: int, unanswered: BrokerError, young_until: int | None = None) -> None:
        """Take notice of a new connection and register or reattach on it.

        ``unanswered`` is the error for a broker that accepted the connection and stays silent; ``young_until`` the time
        until which a broker that has just started may still miss sessions of the one before it.
        """
        self._young_until = young_until
        self._silence = unanswered
        self._wall_ahead = wall - now
        first = self._lifecycle.first_frame(wall, self._ids, claims=self._line.claims, anew=self._is_anew)
        self._is_anew = False
        self._contact.begin(first, now, unanswered)

    def connect_failed(self, error: IntercomError, now: int) -> None:
        """Take notice that an attempt to connect failed."""
        self._contact.trouble = error
        self._lose(error, now)

    def standing(self, trouble: IntercomError) -> None:
        """Take notice of what an attempt under way would fail with if time ran out now."""
        self._contact.trouble = trouble

    def receive(self, data: bytes, now: int) -> None:
        """Handle what the connection brought; afterwards ``link`` may be ``BROKEN``."""
        self._heartbeat.heard(now)
        try:
            for answer in self._contact.answers(data):
                handler = _HANDLERS.get(type(answer))
                if handler is not None:
                    handler(self, answer, now)
        except (ProtocolError, Malformed) as error:
            self._contact.break_off(violation(error))

    def eof(self, now: int, cause: IntercomError | None = None) -> None:
        """Take notice that the connection is gone, whoever ended it; what is unanswered is sent again later.

        ``cause`` is set when the system refused to go on with it.
        """
        if self.link is Link.CLOSED:
            return
        if cause is not None:
            self._contact.break_off(cause)
        was_cut = cause is None
        cause = self._contact.ended()
        if was_cut and cause is None:
            self._lifecycle.unanswered()
        self._heartbeat.stop()
        ended = None
        if self._was_online:
            self._was_online = False
            ended = self.commitments.ended(cause, now)
            self._line.begin_anew()
            assert self._contact.trouble is not None, "a connection that ended leaves its reason"
            self._tell(SessionEvent(kind="disconnected", reason=self._contact.trouble.reason))
        self._waiting.forget_names()
        if ended is not None and ended.event is not None:
            self._tell(ended.event)
        for operation in self._waiting:
            if operation.done:
                self._after(operation, now)
                continue
            operation.lost()
            self._waiting.schedule(operation)
        if ended is None:
            self._lose(cause, now)
        else:
            self.recovery.wait(now, ended.pause_ms)

    @property
    def wants_data(self) -> bool:
        """Tell whether the connection should be read.

        Not while ``INCOMING_MESSAGES`` are unread and nobody waits for an answer. With receipts it goes on while
        somebody does: what then finds no room is not confirmed, and comes again.
        """
        if not self._inbox.is_full or self.link is Link.CLOSED:
            return True
        return self._contact.confirms and len(self._waiting) > 0

    def outgoing(self) -> bytes:
        """Return what has to be written now, whole frames only; write all of it or break the connection."""
        return self._contact.outgoing()

    def events(self) -> list[Event]:
        """Return what happened since the last call."""
        events, self._events = self._events, []
        return events

    # --- time -------------------------------------------------------------------------------------------

    def deadline(self) -> int | None:
        """Return when ``tick`` has something to do."""
        times = (self._waiting.next_due(), self._contact.registration_due, self._heartbeat.due)
        return min((time for time in times if time is not None), default=None)

    def tick(self, now: int) -> None:
        """Do what is due; afterwards ``link`` may be ``BROKEN``."""
        registration_due = self._contact.registration_due
        if registration_due is not None and now >= registration_due:
            self._contact.break_off(self._contact.trouble)
        match self._heartbeat.look(now, is_reading=self.wants_data):
            case Pulse.ASK:
                self._contact.write(HealthRequest(self._ids()))
            case Pulse.DEAD:
                self._heartbeat.stop()
                self._contact.break_off(self._silence)
        while (operation := self._waiting.take_due(now)) is not None:
            operation.tick(now, self._contact.trouble)
            self._after(operation, now)

    # --- what callers wait for --------------------------------------------------------------------------

    def new_id(self, wish: str | None = None) -> str:
        """Return the id for a message: the wished one, if it is free, or a new one.

        Raises ``UsageError`` for an empty id or one that is being sent already.
        """
        if wish is None:
            return self._ids()
        chosen = clean_id(wish)
        if self._waiting.send(chosen) is not None:
            raise UsageError(f"the message id {chosen} is being sent already")
        return chosen

    def opening(self, now: int, timeout_ms: int) -> Opening:
        """Return the operation that waits until the session is registered."""
        return Opening(now + timeout_ms)

    def begin(self, operation: Operation[Any], now: int) -> None:
        """Start an operation; ``Settled`` tells when it has its result. While offline it makes an attempt due now."""
        if self.link is Link.CLOSED:
            raise self.over()
        if isinstance(operation, SendOperation):
            self._owing.infer(operation, now)
        self._waiting.add(operation)
        if self._contact.is_online:
            self._launch(operation, now)
        else:
            self.recovery.hurry(now)
        if isinstance(operation, SendOperation) and operation.finishes is not None:
            # Behind the reply, which proves the arrival by itself: a receipt that comes after its time opens no
            # question, and the reply would find none.
            self._finish(operation.finishes, now)

    def withdraw(self, operation: Operation[Any], now: int) -> None:
        """Forget an operation whose caller has gone; an open question is withdrawn at the broker.

        An answer that came but was not taken is kept as an ordinary message.
        """
        if not operation.done:
            operation.withdraw()
            self._end(operation)
        elif isinstance(operation.result, IncomingMessage) and operation.result.id in self._untaken:
            self._untaken.remove(operation.result.id)
            self._keep(operation.result)

    def taken(self, operation: Operation[Any], now: int) -> None:
        """Take notice that the caller has the result; an answer is confirmed now."""
        answer = operation.result
        if isinstance(answer, IncomingMessage) and answer.id in self._untaken:
            self._untaken.remove(answer.id)
            self._finish(answer.id, now)

    def announce(self, status: str, wall: int) -> None:
        """Tell others a status, now or when the session is registered or back; nobody waits for the answer.

        ``wall`` is now in epoch milliseconds. After the end of the session it does nothing.
        """
        if self.link is Link.CLOSED:
            return
        self.profile.announced(status, wall)
        self._untold_status = ""
        if self._contact.is_online:
            self._tell_status()

    @property
    def has_news(self) -> bool:
        """Tell whether ``take_message`` would give a message or ``take_trouble`` an error."""
        return self._inbox.has_unread or self._untold is not None

    def take_message(self, consumer: object, now: int) -> IncomingMessage | None:
        """Give the next message to a consumer, confirming the one it had; ``None`` when there is none yet."""
        message, finished = self._inbox.take(consumer, now)
        if message is not None:
            self._owing.note(message, now)
        self._confirm(finished)
        return message

    def confirm(self, message_id: str, now: int) -> None:
        """Confirm a message that was taken before its consumer asks for the next one; twice is no error."""
        self._finish(message_id, now)

    def take_trouble(self) -> IntercomError | None:
        """Return, once, the error a consumer of messages should raise."""
        trouble, self._untold = self._untold, None
        return trouble

    def feed(self) -> Feed:
        """Return a feed of what happens around this session from now on; ``Happened`` tells of news."""
        return self._feeds.open()

    def close(self, now: int, *, finished: bool) -> None:
        """End the session: nothing is sent again, ``outgoing`` holds the goodbye.

        ``finished`` tells whether messages that were taken are done with, or are to come again.
        """
        if self.link is Link.CLOSED:
            return
        if finished:
            self._confirm(self._inbox.finish_all(now))
        for operation in self._waiting:
            operation.abandon(ConnectionLost("The session was closed", retry="never"))
            self._after(operation, now)
        self._contact.close(keeps_questions=self.profile.keep_questions)
        self._heartbeat.stop()
        self.recovery.begun()

    def leave_stage(self, stage: LiveStage) -> bool:
        """Be a stage no longer; tell whether the connection is cut for it.

        Only a new connection makes the broker forget the stage, and one is made at once.
        """
        is_cut = self.commitments.leave(stage, is_online=self._contact.is_online)
        if is_cut:
            self._contact.break_off(None)
        return is_cut

    # --- what the broker answers ------------------------------------------------------------------------

    def _on_registered(self, answer: Registered, now: int) -> None:
        is_back = bool(self.session_id)
        try:
            self._lifecycle.registered(answer)
        except IntercomError as error:
            self._contact.break_off(error)
            return
        for frame in self._line.registered(answer, self._ids):
            self._contact.write(frame)
        self._untold_status = None  # the registration told it
        if answer.broker_status is True:
            self._heartbeat.begin(now)
        self._is_online(now, is_back=is_back)

    def _on_reattached(self, answer: SessionReattached, now: int) -> None:
        self._lifecycle.reattached(answer)
        for frame in self._line.shown_again(self._ids):
            self._contact.write(frame)
        self._heartbeat.begin(now)
        if self._untold_status is not None:
            self._tell_status()
        self._is_online(now, is_back=True)

    def _on_request_failed(self, answer: RequestFailed, now: int) -> None:
        if self.link is not Link.REGISTERING:
            self._on_answer(answer, now)
        elif (end := end_of(answer.code, answer.reason)) is not None:
            self._end_session(end, now)
        elif answer.retryable:
            reason = f"The broker cannot take this session back yet: {answer.reason}"
            self._contact.break_off(ConnectionLost(reason, retry="after"))
        else:
            self._contact.write(self._lifecycle.register(now + self._wall_ahead, claims=self._line.claims))

    def _is_online(self, now: int, *, is_back: bool) -> None:
        """Go on with everything that waits: the session is there, for the first time or again."""
        if is_back:
            self._returning_until = now + PENDING_REPLY_RETRY_MS
        self.session_id = self.profile.session_id or ""
        self.recovery.registered(now)
        self._was_told = False
        self._was_online = True
        self.commitments.registered()
        if is_back:
            self._tell(SessionEvent(kind="reconnected", session_id=self.session_id))
        while self._withdrawn:
            self._contact.write(CancelAsk(self._withdrawn.popleft()))
        for operation in self._waiting:
            if isinstance(operation, AskOperation):
                operation.rebind(now + REBIND_MS)
            if isinstance(operation, SendOperation) and not self._line.claims:
                operation.reregistered = True
            self._launch(operation, now)

    def _on_question_withdrawn(self, answer: QuestionWithdrawn, now: int) -> None:
        self._owing.withdrawn(answer.message_id)

    def _on_replaced(self, answer: Replaced, now: int) -> None:
        wish = self.profile.address
        self._end_session(told_of(answer, None if wish is None else wish.name), now)

    def _end_session(self, error: IntercomError, now: int) -> None:
        """End the session for good, because others decided so; it must not come back by itself."""
        self._ended_by = error
        for operation in self._waiting:
            operation.abandon(error)
            self._after(operation, now)
        if self._was_online:
            self._tell(SessionEvent(kind="disconnected", reason=error.reason))
        self._contact.cut()
        self._heartbeat.stop()
        self.recovery.begun()
        self._events.append(Troubled())

    def _on_message(self, frame: MessageFrame, now: int) -> None:
        message = message_of(frame, self._kind)
        if self._inbox.knows(message.id):
            if self._inbox.was_confirmed(message.id):
                self._confirm([message.id])
            return
        if self._lifecycle.keeper.knows(message.id):
            self._confirm([message.id])
            return
        if message.notice is not None and self._settles(message.notice, now):
            self._confirm([message.id])
            return
        # What refers to a question by ``replyTo`` has closed it at the broker, whatever else it says (protocol 6.5).
        working = self._waiting.ask(message.progress_of) if message.reply_to is None else None
        if working is not None and working.progressed(message, now):
            self._inbox.note(message.id)
            self._finish(message.id, now)
            self._after(working, now)
            return
        # Protocol 5.10: the broker writes this one itself, because the other side will never answer.
        is_settlement = message.reply_error is not None and message.id == f"terminal:{message.reply_to}"
        asked = self._waiting.ask(message.reply_to)
        if asked is not None and asked.expects(message.sender):
            asked.replied(message)
            if not is_settlement:
                self._inbox.note(message.id)
                if asked.result is None:
                    self._finish(message.id, now)
                else:
                    self._untaken.add(message.id)
            self._after(asked, now)
        elif not is_settlement and not (self._contact.confirms and self._inbox.overflows):
            self._keep(message)

    def _on_notification(self, frame: PendingStageNotification, now: int) -> None:
        message = message_of(MessageFrame(frame.sender, frame.message), self._kind, is_notification=True)
        if self._inbox.was_confirmed(message.id):
            self._contact.write(PendingStageNotificationResult(frame.request_id, True))
        elif self._inbox.knows(message.id):
            self._notices[message.id] = frame.request_id
        elif self._inbox.overflows:
            self._contact.write(PendingStageNotificationResult(frame.request_id, False))
        else:
            self._notices[message.id] = frame.request_id
            self._keep(message)

    def _on_send_held(self, answer: SendHeld, now: int) -> None:
        operation = self._waiting.send(answer.message_id)
        if operation is not None and operation.is_current(answer):
            operation.keeps(answer, now)
            self._waiting.schedule(operation)
            self._events.append(Held(operation))

    def _on_delivered(self, answer: Delivered | Queued, now: int) -> None:
        operation = self._waiting.send(answer.message_id)
        if operation is not None and operation.is_current(answer):
            operation.accepted(answer)
            self._owing.learn(operation)
            self._after(operation, now)

    def _on_delivery_failed(self, answer: DeliveryFailed, now: int) -> None:
        operation = self._waiting.send(answer.message_id)
        if operation is None or not operation.is_current(answer):
            return
        if code_of(answer.reason) == "not_registered" and self._registers_anew(operation):
            return
        operation.refused(answer, now, self._returning_until, self._young_until)
        self._owing.learn(operation)
        self._after(operation, now)

    def _on_question_target(self, answer: QuestionTarget, now: int) -> None:
        asked = self._waiting.ask(answer.message_id)
        if asked is not None:
            asked.answered_by(answer.session_id, answer.attempt_id)

    def _on_peer_disconnected(self, answer: PeerDisconnected, now: int) -> None:
        asked = self._waiting.ask(answer.reply_to)
        if asked is not None:
            asked.peer_left(answer.peer_session_id, None if answer.peer_name is UNSET else answer.peer_name)
            self._after(asked, now)

    def _on_answer(self, answer: Any, now: int) -> None:
        operation = self._waiting.take_request(answer.request_id)
        if operation is None:
            return
        if isinstance(answer, operation.answers):
            operation.answered(answer)
        elif isinstance(answer, PresenceFailed):
            if answer.reason == SESSION_NOT_FOUND and self._registers_anew(operation):
                return
            operation.fail(PresenceRefused(answer.reason))
        elif isinstance(answer, RequestFailed):
            operation.fail(refusal_of(answer))
        else:
            raise ProtocolError(f"{type(answer).__name__} answers a request of another kind")
        self._after(operation, now)

    def _on_presence_ack(self, answer: PresenceAck, now: int) -> None:
        if answer.request_id == self._untold_status:
            self._untold_status = None
        self._on_answer(answer, now)

    def _on_route_registered(self, answer: PendingStageRouteRegistered, now: int) -> None:
        self.commitments.runs.answered(answer.request_id)
        self._on_answer(answer, now)

    def _on_stage_registered(self, answer: LiveWorkflowStageRouteRegistered, now: int) -> None:
        self.commitments.stage.settled()
        self._on_answer(answer, now)

    def _on_route_revoked(self, answer: PendingStageRouteRevoked, now: int) -> None:
        reason = "another session has taken the run over"
        if self.commitments.runs.lose(answer.run_id, reason):
            self._tell(SessionEvent(kind="run_lost", run_id=answer.run_id, reason=reason))

    def _on_stage_message(self, frame: PendingStageMessage, now: int) -> None:
        if self.commitments.runs.asked(frame):
            self._events.append(HostAsked())

    def _on_broadcast(self, frame: StickyLiveDelivered, now: int) -> None:
        if self.commitments.runs.reached(frame):
            self._events.append(HostAsked())

    def _on_peer(self, answer: SessionJoined | PresenceUpdate | SessionLeft, now: int) -> None:
        if not self._feeds:
            return
        if isinstance(answer, SessionLeft):
            self._tell(SessionEvent(kind="left", session_id=answer.session_id))
        else:
            view = view_of(answer.session)
            kind: Literal["joined", "presence"] = "joined" if isinstance(answer, SessionJoined) else "presence"
            self._tell(SessionEvent(kind=kind, session_id=view.id, session=view))

    # --- inner works ------------------------------------------------------------------------------------

    def _registers_anew(self, operation: SendOperation[Any] | RequestOperation[Any]) -> bool:
        """Break the connection of a session the broker does not know, once an operation; ``eof`` does the rest."""
        if operation.reregistered:
            return False
        operation.reregistered = True
        operation.put_back()
        self._is_anew = True
        self._contact.break_off(None)
        return True

    def _aim(self, operation: SendOperation[Any], now: int) -> bool:
        """Tell whether an operation has somebody to go to; a lost supervisor is looked for once."""
        if not operation.is_supervised:
            return True
        if self.profile.supervisor_id is not None:
            operation.target = self.profile.supervisor_id
            return True
        if operation.reregistered:
            operation.refuse_supervised()
            self._after(operation, now)
        else:
            operation.reregistered = True
            self._line.try_once(now)
            self._is_anew = True
            self._contact.break_off(None)
        return False

    def _launch(self, operation: Operation[Any], now: int) -> None:
        """Write the next attempt of an operation that waits for one, unless the connection is being broken."""
        if not self._contact.is_online:
            return
        if isinstance(operation, Opening):
            operation.succeed(None)
            self._after(operation, now)
            return
        if isinstance(operation, SendOperation):
            if not self._aim(operation, now):
                return
            self._contact.write(operation.attempt(self._ids(), now, queues=QUEUE in self._lifecycle.features))
        elif isinstance(operation, RequestOperation):
            if operation.needs_features and not self._lifecycle.features:
                operation.fail(RequestRefused(_OLDER_BROKER, code="feature_not_granted"))
                self._after(operation, now)
                return
            request_id = self._ids()
            self._waiting.name(operation, request_id)
            self._contact.write(operation.attempt(request_id))
        self._waiting.schedule(operation)

    def _after(self, operation: Operation[Any], now: int) -> None:
        """Do what follows from a move of an operation."""
        if operation.done:
            self._end(operation)
            self._events.append(Settled(operation))
        elif operation.stage is Stage.WAITING and self._contact.is_online:
            self._launch(operation, now)
        else:
            self._waiting.schedule(operation)

    def _end(self, operation: Operation[Any]) -> None:
        self._waiting.remove(operation)
        if isinstance(operation, AskOperation) and operation.leaves_question:
            if self._contact.is_online:
                self._contact.write(CancelAsk(operation.message_id))
            else:
                self._withdrawn.append(operation.message_id)

    def _tell_status(self) -> None:
        status = UNSET if self.profile.status is None else self.profile.status
        if LIFECYCLE not in self._lifecycle.features:
            self._contact.write(Presence(status=status))
            return
        # Whoever takes himself back tells nothing of himself, so what was lost on the way has to be told again.
        self._untold_status = self._ids()
        self._contact.write(Presence(request_id=self._untold_status, status=status))

    def _settles(self, notice: Notice, now: int) -> bool:
        """Tell whether a notice of the broker ends an ask that waits; others are messages like any."""
        asked = self._waiting.ask(notice.message_id)
        if asked is None:
            return False
        asked.given_up(notice)
        self._after(asked, now)
        return True

    def _keep(self, message: IncomingMessage) -> None:
        self._inbox.put(message)
        self._events.append(Arrived())

    def _finish(self, message_id: str, now: int) -> None:
        if self._inbox.confirm(message_id, now):
            self._confirm([message_id])

    def _say(self, frame: Request) -> None:
        """Write a frame that means nothing on another connection than the present one."""
        if self._contact.is_online:
            self._contact.write(frame)

    def _confirm(self, message_ids: Iterable[str]) -> None:
        confirmed = list(message_ids)
        if confirmed:
            self._lifecycle.keeper.note(confirmed)
        for message_id in confirmed:
            request_id = self._notices.pop(message_id, None)
            if not self._contact.is_online:
                continue
            if request_id is not None:
                self._contact.write(PendingStageNotificationResult(request_id, True))
            elif self._contact.confirms:
                self._contact.write(Received(message_id))

    def _tell(self, event: SessionEvent) -> None:
        if self._feeds:
            self._feeds.put(event)
            self._events.append(Happened())

    def _lose(self, error: IntercomError | None, now: int) -> None:
        """Plan the next attempt, or tell everybody who waits."""
        if error is not None and error.code == REFUSED_CODE and self.session_id:
            self.recovery.wait(now, self._line.refused(now))
            return
        if error is not None and (pause := self._lifecycle.refused(error)) is not None:
            self.recovery.wait(now, pause)
            return
        if error is not None and (lost := self._lifecycle.lost_place(error)) is not None:
            self._end_session(lost, now)
            return
        found_nobody = self.recovery.is_look and isinstance(error, NoBroker)
        is_told = self.recovery.lost(now, error)
        if error is None or found_nobody:
            return
        ends_opening = isinstance(error, (*HOPELESS, *DOUBTFUL, NoBroker))
        for operation in self._waiting:
            if is_told or (ends_opening and isinstance(operation, Opening)):
                operation.abandon(error)
                self._after(operation, now)
        if is_told and not self._was_told:
            self._was_told = True
            self._untold = again(error)
            self._events.append(Troubled())


_HANDLERS: dict[type[Any], Callable[[ClientSession, Any, int], None]] = {
    Registered: ClientSession._on_registered,
    SessionReattached: ClientSession._on_reattached,
    Replaced: ClientSession._on_replaced,
    QuestionWithdrawn: ClientSession._on_question_withdrawn,
    RequestFailed: ClientSession._on_request_failed,
    MessageFrame: ClientSession._on_message,
    Delivered: ClientSession._on_delivered,
    Queued: ClientSession._on_delivered,
    DeliveryFailed: ClientSession._on_delivery_failed,
    QuestionTarget: ClientSession._on_question_target,
    PeerDisconnected: ClientSession._on_peer_disconnected,
    Sessions: ClientSession._on_answer,
    Groups: ClientSession._on_answer,
    MembershipAck: ClientSession._on_answer,
    PresenceAck: ClientSession._on_presence_ack,
    PresenceFailed: ClientSession._on_answer,
    SupervisorAuthorized: ClientSession._on_answer,
    RestoringRecipientAck: ClientSession._on_answer,
    SendHeld: ClientSession._on_send_held,
    PendingStageRouteRegistered: ClientSession._on_route_registered,
    PendingStageRouteRevoked: ClientSession._on_route_revoked,
    PendingStageMessage: ClientSession._on_stage_message,
    StickyLiveDelivered: ClientSession._on_broadcast,
    LiveWorkflowStageRouteRegistered: ClientSession._on_stage_registered,
    PendingStageNotification: ClientSession._on_notification,
    TaskHintStored: ClientSession._on_answer,
    SessionRecords: ClientSession._on_answer,
    SessionForceClosed: ClientSession._on_answer,
    Addresses: ClientSession._on_answer,
    MailboxEntries: ClientSession._on_answer,
    Pending: ClientSession._on_answer,
    Trace: ClientSession._on_answer,
    Purged: ClientSession._on_answer,
    SessionJoined: ClientSession._on_peer,
    PresenceUpdate: ClientSession._on_peer,
    SessionLeft: ClientSession._on_peer,
}
