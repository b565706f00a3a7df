"""Be one session of the client without touching a socket: bytes and commands in, bytes and events out.

Whoever drives a ``ClientSession`` does four things. It hands over what the connection brought (``receive``, ``eof``)
and that time passed (``tick`` at ``deadline``); after every call it writes ``outgoing()``, looks at ``events()``, and,
when ``recovery.at`` is due, makes a connection and says so (``connecting``, ``connected``, ``connect_failed``). All
times are monotonic milliseconds unless they are called ``wall``, which are epoch milliseconds.

Here is what begins and ends connections. What callers wait for is in pursuing, what arrives in receiving; contact,
lifecycle, recovery, heartbeat, supervision, commitments and feeds have rules of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from intercom.client.announcing import Announcing
from intercom.client.asking import AskOperation
from intercom.client.assignment import Assignment
from intercom.client.commitments import Commitments
from intercom.client.composing import clean_id
from intercom.client.contact import Contact, Link, violation
from intercom.client.feeds import EventKind, Feed, Feeds, SessionEvent, told_of
from intercom.client.heartbeat import Heartbeat, Pulse
from intercom.client.held import HeldSends
from intercom.client.invoking import InvocationRequests
from intercom.client.lifecycle import Keeper, Lifecycle, Nothing, end_of, told_of_replacement
from intercom.client.notices import Arrived, Event, Happened, Held, HostAsked, News, Settled, Troubled
from intercom.client.operations import Opening, Operation
from intercom.client.outcomes import again
from intercom.client.profile import Profile
from intercom.client.pursuing import Handlers, Pursuit
from intercom.client.receiving import Receiving
from intercom.client.recovery import DOUBTFUL, HOPELESS, Recovery
from intercom.client.sending import SendOperation
from intercom.client.staging import LiveStage
from intercom.client.supervision import REFUSED_CODE, Line
from intercom.client.views import IncomingMessage, Malformed, Receipt, SessionView
from intercom.client.watches import Watch, Watched, Watches
from intercom.client.working import WorkRequests
from intercom.client.worklist import Worklist
from intercom.errors import BrokerError, ConnectionLost, IntercomError, NoBroker, UsageError
from intercom.wire.codec import ProtocolError
from intercom.wire.frames import (
    HealthRequest,
    PresenceAck,
    PresenceUpdate,
    Registered,
    SessionJoined,
    SessionLeft,
)
from intercom.wire.mail import Replaced, RequestFailed, SessionReattached
from intercom.wire.watching import WatchSubject

if TYPE_CHECKING:
    from intercom.client.bringing import Bringing
    from intercom.client.durable import AnyCommand, Durable
    from intercom.client.flowing import FlowRequests
    from intercom.client.reporting import Place, ReportMove, ReportRecord
    from intercom.client.workerjournal import WorkerJournal

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


class ClientSession:
    """Hold everything a session knows across its connections."""

    def __init__(
        self,
        profile: Profile,
        *,
        ids: Callable[[], str],
        chance: Callable[[], float],
        clock: Callable[[], int],
        message_kind: type[IncomingMessage] = IncomingMessage,
        assignment_kind: type[Assignment] = Assignment,
        keeper: Keeper | None = None,
        reports: Place | None = None,
        journal: WorkerJournal | None = None,
    ) -> None:
        """Begin offline; the first attempt to connect is due at once.

        ``ids`` gives new unique ids, ``chance`` numbers from 0 to 1; ``clock`` tells the monotonic time;
        ``message_kind`` and ``assignment_kind`` are what messages and assignments are made as, ``keeper`` what of an
        address outlives the process, ``reports`` where what it reports is written down,
        ``journal`` what a durable session reported and was told.
        """
        self.profile = profile
        self._ids = ids
        self._clock = clock
        self.recovery = Recovery(chance)
        self.session_id = ""
        self.held = HeldSends()
        self._contact = Contact()
        self._heartbeat = Heartbeat()
        self._silence: IntercomError | None = None
        """What is wrong when the broker does not answer any more."""
        self._line = Line(profile)
        self._lifecycle = Lifecycle(profile, keeper or Nothing())
        self._news = News()
        self._feeds = Feeds(self._news)
        self._announcing = Announcing(profile, self._contact, self._lifecycle, ids)
        self._pursuit = Pursuit(profile, self._contact, self._lifecycle, self._line, self._news, ids)
        self.commitments = Commitments(self._contact, self._pursuit, self._feeds, self._news, ids)
        self._watches = Watches(self._contact, self._pursuit, self._news, clock, ids)
        self.work = WorkRequests(self._lifecycle, clock, ids, assignment_kind)
        self._reports = reports
        self._flows: FlowRequests | None = None
        self._bringing: Bringing | None = None
        if profile.flows:
            from intercom.client.bringing import Bringing  # few sessions take steps of flows, and a command is one

            self._bringing = Bringing(self.flows, self._lifecycle, self.begin)
        self._durable: Durable | None = None
        if journal is not None:
            from intercom.client.durable import Durable  # few sessions are durable

            self._durable = Durable(journal, self._contact, self._news, lambda: clock() + self._wall_ahead, ids)
        self.invoking = InvocationRequests(self._lifecycle, clock, ids)
        self._worklist = Worklist(profile, self._contact, self._lifecycle, self._news, self.work)
        self._receiving = Receiving(
            self._contact, self._lifecycle.keeper, self._pursuit, self._worklist, self._news, message_kind, ids
        )
        self._wall_ahead = 0
        """How far the time of day is ahead of the monotonic clock."""
        self._ended_by: IntercomError | None = None
        self._was_online = False
        """Whether the present connection was registered."""
        self._untold: IntercomError | None = None
        self._was_told = False
        """Whether consumers have been told of the present trouble; they are told once (F131)."""
        self._handlers: Handlers = {
            **self._pursuit.handlers,
            **self._receiving.handlers,
            **self.commitments.handlers,
            **self._watches.handlers,
            **({} if self._durable is None else self._durable.handlers),
            Registered: self._on_registered,
            SessionReattached: self._on_reattached,
            RequestFailed: self._on_request_failed,
            Replaced: self._on_replaced,
            PresenceAck: self._on_presence_ack,
            SessionJoined: self._on_peer,
            PresenceUpdate: self._on_peer,
            SessionLeft: self._on_peer,
        }

    @property
    def flows(self) -> FlowRequests:
        """Return what makes requests about flows."""
        if self._flows is None:
            from intercom.client.flowing import FlowRequests
            from intercom.client.reporting import Nowhere, Outbox

            outbox = Outbox(self._reports or Nowhere(), lambda: self._clock() + self._wall_ahead, self._report_moved)
            self._flows = FlowRequests(self._clock, self._ids, outbox)
        return self._flows

    def _report_moved(self, record: ReportRecord, move: ReportMove) -> None:
        """Tell what became of a report that is written down."""
        kind: EventKind = f"report_{move}"  # type: ignore[assignment]  # there is one for each move
        self._feeds.put(SessionEvent(kind=kind, dispatch_id=record.dispatch_id, reason=record.last_error))

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

    def prepare(self, wall: int) -> None:
        """Make and open what of the session is kept in files; ``wall`` is now in epoch milliseconds.

        Raises ``AccessDenied``, ``HomeError``, or ``AddressHeld`` while another durable session has the journal.
        """
        self._lifecycle.keeper.prepare()
        if self._durable is not None:
            self._wall_ahead = wall - self._clock()
            self._durable.open()

    @property
    def durable(self) -> Durable:
        """Return the worker's side of the link; raise ``UsageError`` where there is none."""
        if self._durable is None:
            raise UsageError("this session is not durable", hint="Connect with durable=True and an address.")
        if self.link is Link.CLOSED:
            raise self.over()
        return self._durable

    # --- the connection ---------------------------------------------------------------------------------

    def connecting(self) -> None:
        """Take notice that an attempt to connect is under way; ``connected`` or ``connect_failed`` follows."""
        self.recovery.begun()

    def connected(self, now: int, wall: int, unanswered: BrokerError, young_until: int | None = None) -> None:
        """Take notice of a new connection and register or reattach on it.

        ``unanswered`` is the error for a broker that accepted the connection and stays silent; ``young_until`` the time
        until which a broker that has just started may still miss sessions of the one before it.
        """
        self._pursuit.connected(young_until)
        self._silence = unanswered
        self._wall_ahead = wall - now
        first = self._lifecycle.first_frame(wall, self._ids, claims=self._line.claims)
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
                self._handlers.get(type(answer), self._pursuit.answered)(answer, now)
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
        if self._bringing is not None:
            self._bringing.left()
        ended = None
        if self._was_online:
            self._was_online = False
            ended = self.commitments.ended(cause, now)
            self._line.begin_anew()
            assert self._contact.trouble is not None, "a connection that ended leaves its reason"
            self._feeds.put(SessionEvent(kind="disconnected", reason=self._contact.trouble.reason))
        if ended is not None and ended.event is not None:
            self._feeds.put(ended.event)
        self._watches.lost()
        if self._durable is not None:
            self._durable.lost()
        self._pursuit.lost(now)
        if ended is None:
            self._lose(cause, now)
        else:
            self.recovery.wait(now, ended.pause_ms)

    @property
    def wants_data(self) -> bool:
        """Tell whether the connection should be read."""
        return self.link is Link.CLOSED or self._receiving.wants_data

    def outgoing(self) -> bytes:
        """Return what has to be written now, whole frames only; write all of it or break the connection."""
        return self._contact.outgoing()

    def events(self) -> list[Event]:
        """Return what happened since the last call."""
        return self._news.take()

    # --- time -------------------------------------------------------------------------------------------

    def deadline(self) -> int | None:
        """Return when ``tick`` has something to do."""
        brings_at = None if self._bringing is None else self._bringing.due
        link_due = None if self._durable is None else self._durable.due
        times = (brings_at, link_due, self._pursuit.next_due(), self._contact.registration_due, self._heartbeat.due)
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
        self._pursuit.tick(now)
        if self._bringing is not None:
            self._bringing.tick(now)
        if self._durable is not None:
            self._durable.tick(now)

    # --- what callers wait for --------------------------------------------------------------------------

    def new_id(self, wish: str | None = None) -> str:
        """Return the id for a message: the wished one, if it is free, or a new one.

        Raises ``UsageError`` for an empty id or one that is being sent already.
        """
        if wish is None:
            return self._ids()
        chosen = clean_id(wish)
        if self._pursuit.is_sending(chosen):
            raise UsageError(f"the message id {chosen} is being sent already")
        return chosen

    def opening(self, now: int, timeout_ms: int) -> Opening:
        """Return the operation that waits until the session is registered."""
        return Opening(now + timeout_ms)

    def draining(self, timeout_ms: int | None) -> Operation[None]:
        """Return the operation that waits until what this session has said has arrived."""
        from intercom.client.draining import DrainOperation  # few sessions wait for that

        if self.link is Link.CLOSED:
            raise self.over()
        now, sends = self._clock(), self.held.unsettled
        parts = [operation.drain for operation in sends]
        if self._durable is not None:
            parts.append(self._durable.drain)

        def left() -> str:
            held = sum(not operation.done for operation in sends)
            events = 0 if self._durable is None else self._durable.unstored
            return f"events not on the broker's disk: {events}, messages the broker holds: {held}"

        def settled(operation: Operation[None]) -> None:
            self._pursuit.after(operation, self._clock())

        return DrainOperation(parts, left, settled, None if timeout_ms is None else now + timeout_ms)

    def begin(self, operation: Operation[Any], now: int) -> None:
        """Start an operation; ``Settled`` tells when it has its result. While offline it makes an attempt due now."""
        if self.link is Link.CLOSED:
            raise self.over()
        if operation.done:  # what it asks for is known already
            self._news.add(Settled(operation))
            return
        if self._bringing is not None:
            self._bringing.began(operation, now)
        self._pursuit.begin(operation, now)
        if not self._contact.is_online:
            self.recovery.hurry(now)
        if isinstance(operation, SendOperation) and operation.finishes is not None:
            # Behind the reply, which proves the arrival by itself: a receipt that comes after its time opens no
            # question, and the reply would find none.
            self._receiving.finish(operation.finishes, now)

    def withdraw(self, operation: Operation[Any], now: int) -> None:
        """Forget an operation whose caller has gone; an open question is withdrawn at the broker.

        An answer that came but was not taken is kept as an ordinary message.
        """
        if not operation.done:
            self._pursuit.withdraw(operation, now)
        elif isinstance(operation.result, IncomingMessage):
            self._receiving.answer_left(operation.result)

    def taken(self, operation: Operation[Any], now: int) -> None:
        """Take notice that the caller has the result; an answer is confirmed now, unless the caller does that."""
        if isinstance(operation.result, IncomingMessage):
            confirms = not isinstance(operation, AskOperation) or operation.confirms
            self._receiving.answer_taken(operation.result, now, confirms=confirms)

    def announce(self, status: str, wall: int) -> None:
        """Tell others a status, now or when the session is registered or back; nobody waits for the answer.

        ``wall`` is now in epoch milliseconds. After the end of the session it does nothing.
        """
        if self.link is not Link.CLOSED:
            self._announcing.announce(status, wall)

    @property
    def has_news(self) -> bool:
        """Tell whether ``take_message`` would give a message or ``take_trouble`` an error."""
        return self._receiving.has_unread or self._untold is not None

    def take_message(self, consumer: object, now: int) -> IncomingMessage | None:
        """Give the next message to a consumer, confirming the one it had; ``None`` when there is none yet."""
        return self._receiving.take(consumer, now)

    def finish_message(self, consumer: object, now: int) -> None:
        """Confirm the message a consumer has: it asks for the next one."""
        self._receiving.finish_taken(consumer, now)

    def confirm(self, message_id: str, now: int, *, is_late: bool = False) -> None:
        """Confirm a message that was taken before its consumer asks for the next one; twice is no error.

        ``is_late`` says that its reader was shown it after its time.
        """
        self._receiving.finish(message_id, now, is_late=is_late)

    def take_trouble(self) -> IntercomError | None:
        """Return, once, the error a consumer of messages should raise."""
        trouble, self._untold = self._untold, None
        return trouble

    @property
    def has_command(self) -> bool:
        """Tell whether ``take_command`` would give a command or raise."""
        return self._untold is not None or self.durable.has_news

    def take_command(self, kind: type[AnyCommand]) -> AnyCommand | None:
        """Give the next command as this kind, ``None`` when there is none yet; raise why there can be none."""
        command = self.durable.take(kind)
        if command is None and (trouble := self.take_trouble()) is not None:
            raise trouble
        return command

    def has_work(self, wall: int, *, claims: bool) -> bool:
        """Tell whether ``take_work`` would give an assignment, raise, or ask the broker for one."""
        return self._untold is not None or self._worklist.has_news(wall, claims=claims)

    def take_work(self, wall: int, until: int | None, *, claims: bool) -> Assignment | None:
        """Give the next assignment; when there is none, ask the broker for one where this session has to.

        That is when its host gives it turns, and when it ``claims`` what is parked; ``until`` bounds the time for it,
        in monotonic milliseconds. Raises why there can be no work, or why it could not be looked for.
        """
        work = self._worklist.take(wall)
        if work is None:
            trouble = self.take_trouble()
            if trouble is not None:
                raise trouble
            search = self._worklist.search(until, claims=claims)
            if search is not None:
                self.begin(search, self._clock())
        return work

    def watch(self, subjects: list[WatchSubject], after: tuple[int, str | None] | None) -> Watch:
        """Begin to follow what happens; ``Happened`` tells of news."""
        if self.link is Link.CLOSED:
            raise self.over()
        watch = self._watches.open(subjects, after)
        if not self._contact.is_online:
            self.recovery.hurry(self._clock())
        return watch

    def take_watched(self, watch: Watch) -> Watched | None:
        """Return the next thing a watch was told, ``None`` when there is none yet; raise why it is over."""
        return self._watches.take(watch)

    def unwatch(self, watch: Watch) -> None:
        """End a watch."""
        self._watches.close(watch)

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
            self._receiving.finish_all(now)
        if self._contact.is_online:
            for work in self._worklist.left_behind():
                self._contact.write(self.work.last_words(work))
        self._pursuit.abandon(ConnectionLost("The session was closed", retry="never"), now)
        self._contact.close(keeps_questions=self.profile.keep_questions)
        self._heartbeat.stop()
        self.recovery.begun()

    def release(self) -> None:
        """Let another session of the address have the journal: nothing is written any more, here or to the broker."""
        if self._durable is not None:
            self._durable.journal.close()

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
        self._announcing.registered()
        if is_back and self.profile.address is None:
            self._worklist.lost()
        if answer.broker_status is True:
            self._heartbeat.begin(now)
        self._is_online(now, is_back=is_back)

    def _on_reattached(self, answer: SessionReattached, now: int) -> None:
        self._lifecycle.reattached(answer)
        for frame in self._line.shown_again(self._ids):
            self._contact.write(frame)
        self._heartbeat.begin(now)
        self._announcing.reattached()
        self._is_online(now, is_back=True)

    def _on_request_failed(self, answer: RequestFailed, now: int) -> None:
        if self.link is not Link.REGISTERING:
            self._pursuit.answered(answer, now)
        elif (end := end_of(answer.code, answer.reason)) is not None:
            self._end_session(end, now)
        elif answer.retryable:
            reason = f"The broker cannot take this session back yet: {answer.reason}"
            self._contact.break_off(ConnectionLost(reason, retry="after"))
        else:
            self._contact.write(self._lifecycle.register(now + self._wall_ahead, claims=self._line.claims))

    def _is_online(self, now: int, *, is_back: bool) -> None:
        """Go on with everything that waits: the session is there, for the first time or again."""
        self.session_id = self.profile.session_id or ""
        self.recovery.registered(now)
        self._was_told = False
        self._was_online = True
        self.commitments.registered()
        if is_back:
            self._feeds.put(SessionEvent(kind="reconnected", session_id=self.session_id))
        self._pursuit.resume(now, is_back=is_back)
        if self._bringing is not None:
            self._bringing.came(now)

    def _on_replaced(self, answer: Replaced, now: int) -> None:
        wish = self.profile.address
        self._end_session(told_of_replacement(answer, None if wish is None else wish.name), now)

    def _end_session(self, error: IntercomError, now: int) -> None:
        """End the session for good, because others decided so; it must not come back by itself."""
        self._ended_by = error
        self._pursuit.abandon(error, now)
        if self._was_online:
            self._feeds.put(SessionEvent(kind="disconnected", reason=error.reason))
        self._contact.cut()
        self.release()
        self._heartbeat.stop()
        self.recovery.begun()
        self._news.add(Troubled())

    def _on_presence_ack(self, answer: PresenceAck, now: int) -> None:
        self._announcing.acknowledged(answer)
        self._pursuit.answered(answer, now)

    def _on_peer(self, answer: SessionJoined | PresenceUpdate | SessionLeft, now: int) -> None:
        if self._feeds:
            self._feeds.put(told_of(answer))

    # --- inner works ------------------------------------------------------------------------------------

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
        if is_told or isinstance(error, (*HOPELESS, *DOUBTFUL, NoBroker)):
            self._pursuit.abandon(error, now, only_openings=not is_told)
        if is_told and not self._was_told:
            self._was_told = True
            self._untold = again(error)
            self._news.add(Troubled())
