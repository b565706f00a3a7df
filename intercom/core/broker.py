"""Enter the rules: everything that happens outside comes in here, and what must be done goes out.

Rule 1: this file dispatches; it decides nothing that a module of the core could own. Rule 2: every method returns the
effects of one event, in order, and never blocks, waits, reads a clock or fails because of what a peer did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import UNSET, Raw

from intercom.core import groups, stage_lists, standstill
from intercom.core.address_uses import AddressUses
from intercom.core.addresses import Addresses
from intercom.core.arrivals import Arrivals, Cause
from intercom.core.asking import Asking
from intercom.core.attempts import AnswerTaken, Attempt
from intercom.core.attention import REQUESTS as ATTENTION_REQUESTS
from intercom.core.attention import Attention
from intercom.core.barriers import Barriers
from intercom.core.clock import Instant
from intercom.core.commands import Offering
from intercom.core.connections import Connection, PeerCredentials
from intercom.core.deadlines import Deadlines
from intercom.core.deciding import Deciding
from intercom.core.delivery import Delivery
from intercom.core.departing import Departing
from intercom.core.desk import WORK_REQUESTS
from intercom.core.draining import NEW_WORK, Draining
from intercom.core.effects import Effect, Stop
from intercom.core.flow_admission import Admitting
from intercom.core.flow_requests import REQUESTS as FLOW_REQUESTS
from intercom.core.flow_requests import Showing
from intercom.core.flows import FlowsOfBroker
from intercom.core.following import Following
from intercom.core.guard import LoopGuard
from intercom.core.holding import Holding
from intercom.core.inbox import Inbox
from intercom.core.inquiries import REQUESTS, Inquiries, Tracing
from intercom.core.invocation_requests import REQUESTS as INVOCATION_REQUESTS
from intercom.core.invoking import TOKENS, Invoking
from intercom.core.journal import Journal
from intercom.core.keeping import Keeping
from intercom.core.ledger import Ledger
from intercom.core.lifecycle import SHOWN_WHO_IS_AWAY, Known, Lifecycle
from intercom.core.linkdesk import REQUESTS as LINK_REQUESTS
from intercom.core.linkdesk import LinkDesk
from intercom.core.links import FROM_WORKERS, Links
from intercom.core.mailboxes import Mail, Mailboxes
from intercom.core.mailing import Mailing, Offer, broker_info
from intercom.core.notifications import Notification, Notifications
from intercom.core.offers import Offered, Offers
from intercom.core.operations import Operations
from intercom.core.outbox import Outbox
from intercom.core.owners import Owners
from intercom.core.parking import Parking
from intercom.core.policies import Policies
from intercom.core.questions import Questions
from intercom.core.queueing import Queueing
from intercom.core.receipts import Receipts
from intercom.core.records import (
    Change,
    DropBodies,
    DropHistory,
    HistoryEvent,
    JournalPage,
    OperationState,
    Recovered,
    SessionState,
    StoreIdentity,
)
from intercom.core.registering import Reattaching, Registering, ToldOf
from intercom.core.resolving import Resolver
from intercom.core.restoring import Restoring
from intercom.core.sessions import Session, SessionTable, normalise_group
from intercom.core.spawning import Spawning
from intercom.core.stages import Stages
from intercom.core.supervision import Capabilities, Crossings
from intercom.core.waits import Waits
from intercom.core.watches import CatchingUp, Told
from intercom.core.work import Closed, Work
from intercom.limits import SUPERVISOR_CHARACTERS, Limits
from intercom.wire.capability import capability_for, is_made_with
from intercom.wire.frames import (
    AuthorizeSupervisor,
    BadRequest,
    BrokerDrain,
    BrokerStatus,
    BrokerStatusRequest,
    CancelAsk,
    CancelMessage,
    GroupEntry,
    Groups,
    Health,
    HealthRequest,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    ListSessions,
    Malformed,
    MembershipAck,
    MessageReceipt,
    PendingStageMessageResult,
    PendingStageNotificationResult,
    PendingStageRouteRegistered,
    Presence,
    PresenceAck,
    PresenceFailed,
    Received,
    Register,
    RegisterLiveWorkflowStageRoute,
    RegisterPendingStageRoute,
    RegistrationFailed,
    ReleaseRestoringRecipient,
    Request,
    ReserveRestoringRecipient,
    RestoringRecipientAck,
    Send,
    SendPendingStageNotification,
    Sessions,
    Shutdown,
    ShutdownAck,
    SupervisorAuthorized,
    SupervisorSend,
    Unregister,
    trim,
)
from intercom.wire.mail import SessionReattach
from intercom.wire.watching import SpawnSession, UnwatchRequest, WatchRequest

MULTI_NODE_OFF = {"status": "off", "reason": "no shared storage is selected"}

_SHUTDOWN = "shutdown"
"""Token of ``shutdown_ack``: the broker leaves once that frame was settled."""


class Broker:
    """Hold all state of one broker process and apply the rules to it.

    Args:
        key: 32 bytes under which signatures are made; the store's key, so that they survive a restart.
        ids: gives a new UUID v4 string at every call.
        instance_id: UUID of this process, told by ``health``.
        pid: of this process, for the status report.
        limits: the numbers to decide by.
        recovered: what the store held at start.
        now: the moment of start.
        store_trouble: why the store cannot be used; then every send is refused and nothing is ever appended.
        facts: further members of the status report's ``broker`` object.
        identity: of the store, its journal and this process on it.
        spawn_kinds: the sessions that may be started.
        node: what this machine is called in labels.
    """

    def __init__(
        self,
        *,
        key: bytes,
        ids: Callable[[], str],
        instance_id: str,
        pid: int,
        now: Instant,
        limits: Limits | None = None,
        recovered: Recovered | None = None,
        store_trouble: str | None = None,
        facts: dict[str, Any] | None = None,
        identity: StoreIdentity | None = None,
        spawn_kinds: Iterable[str] = (),
        node: str = "local",
    ) -> None:
        limits = limits or Limits()
        recovered = recovered or Recovered()
        self._limits = limits
        self._ids = ids
        self._instance_id = instance_id
        self._pid = pid
        self._facts = facts or {}
        self._last_failure: dict[str, Any] | None = None
        """Of the store, until a later commit succeeded."""
        self._failed_ticket = 0
        self._outbox = Outbox()
        self._ledger = Ledger(self._outbox)
        self._deadlines = Deadlines()
        self._connections: dict[int, Connection] = {}
        self._sessions = SessionTable(ids, self._ledger, recovered.retired_ids, limits.retired_ids)
        waits = Waits()
        self._questions = Questions(self._deadlines, waits, self._sessions.party_of)
        self._identity = identity or StoreIdentity(instance_id, instance_id, 1)
        journal = Journal(recovered.last_sequence)
        keeping = Keeping(self._ledger, journal, self._deadlines, limits.mail_retry_ms)
        self._addresses = Addresses(
            self._ledger, journal, keeping, recovered.addresses, limits.addresses, limits.address_idle_ms
        )
        self._policies = Policies(self._ledger, journal, recovered.policies, limits.policies)
        self._guard = LoopGuard(limits)
        self._asking = Asking(self._questions, waits, self._sessions, self._addresses, limits, self._outbox)
        self._capabilities = Capabilities(limits)
        self._crossings = Crossings(limits)
        self._operations = Operations(key, limits, self._ledger, self._deadlines, recovered, store_trouble)
        self._receipts = Receipts(limits, self._deadlines)
        self._restoring = Restoring(self._capabilities, limits)
        self._holding = Holding(self._restoring, self._operations, self._deadlines, limits, self._outbox)
        self._stages = Stages(limits, self._outbox)
        self._owners = Owners(self._stages, ids, self._deadlines, limits, self._outbox)
        self._barriers = Barriers(self._stages, self._owners, self._outbox)
        self._notifications = Notifications(
            self._stages.routes, self._sessions, self._operations, ids, self._deadlines, limits, self._outbox
        )
        self._lifecycle = Lifecycle(self._deadlines, self._ledger, journal, keeping, self._outbox, limits)
        self._boxes = Mailboxes(limits)
        info = broker_info(self._identity.broker_id, pid, now)
        self._mailing = Mailing(
            self._boxes,
            self._operations,
            self._sessions,
            journal,
            self._ledger,
            self._deadlines,
            self._outbox,
            limits,
            info,
        )
        self._inbox = Inbox(limits)
        parking = Parking(
            self._inbox, self._operations, self._mailing, journal, self._ledger, self._deadlines, self._outbox, limits
        )
        queueing = Queueing(
            self._addresses,
            self._lifecycle,
            self._sessions,
            self._boxes,
            self._mailing,
            self._operations,
            self._receipts,
            self._asking,
            self._crossings,
            self._policies,
            parking,
            self._outbox,
            limits,
        )
        self._delivery = Delivery(
            self._operations,
            self._receipts,
            self._asking,
            self._crossings,
            self._deadlines,
            limits,
            self._outbox,
            queueing,
            self._mailing,
        )
        self._deciding = Deciding(
            Resolver(self._sessions, self._questions, self._crossings),
            self._operations,
            self._holding,
            self._stages,
            self._owners,
            self._asking,
            self._crossings,
            self._delivery,
            queueing,
            self._guard,
            parking,
            limits,
            self._outbox,
        )
        self._arrivals = Arrivals(
            self._addresses,
            self._lifecycle,
            self._boxes,
            self._mailing,
            queueing,
            self._ledger,
            ids,
            self._identity,
            limits.sent_ids,
        )
        self._departing = Departing(
            self._connections,
            self._sessions,
            self._asking,
            self._operations,
            self._holding,
            self._restoring,
            self._stages,
            self._owners,
            self._notifications,
            self._barriers,
            self._deciding,
            self._arrivals,
            self._outbox,
        )
        self._registering = Registering(
            self._connections,
            self._sessions,
            self._capabilities,
            self._arrivals,
            self._departing,
            self._boxes,
            self._mailing,
            self._delivery,
            self._deciding,
            self._asking,
            self._holding,
            self._restoring,
            self._policies,
            self._outbox,
            limits,
            self._had_features,
        )
        self._arrivals.on_not_recorded = self._registering.arrival_not_recorded
        self._inquiries = Inquiries(
            self._sessions,
            self._addresses,
            self._lifecycle,
            self._boxes,
            self._mailing,
            self._operations,
            self._asking,
            self._receipts,
            self._ledger,
            self._outbox,
            limits,
            self._inbox,
            self._departing.force_close,
        )
        self._offers = Offers(self._outbox, self._deadlines, limits.push_receipt_ms)
        self._work = Work(
            self._inbox,
            parking,
            self._mailing,
            self._boxes,
            self._operations,
            self._addresses,
            self._sessions,
            self._lifecycle,
            self._offers,
            journal,
            self._ledger,
            self._deadlines,
            self._outbox,
            limits,
            ids,
            recovered.idempotency,
            now,
        )
        queueing.on_reply = self._work.replies.sent
        self._mailing.take_unclaimed = self._work.closing.take_unclaimed
        self._links = Links(
            self._operations,
            journal,
            self._ledger,
            self._deadlines,
            self._outbox,
            limits,
            ids,
            self._identity.journal_id,
            self._departing.hang_up,
            self._departing.violation,
        )
        self._link_desk = LinkDesk(
            self._links, self._addresses, self._lifecycle, self._boxes, self._ledger, self._outbox, limits
        )
        self._registering.on_arrived = self._links.session_came
        self._arrivals.on_departed = self._session_departed
        self._arrivals.on_restarted = self._work.closing.restarted
        self._following = Following(
            self._addresses,
            self._lifecycle,
            self._boxes,
            self._operations,
            self._ledger,
            self._deadlines,
            self._outbox,
            limits,
            self._identity.journal_id,
            recovered.last_sequence,
        )
        self._following.know_work(self._inbox, self._work.assignments)
        self._following.know_links(self._links)
        self._spawning = Spawning(
            spawn_kinds,
            self._work.register,
            self._ledger,
            self._deadlines,
            self._outbox,
            limits,
            ids,
            lambda: self._operations.trouble,
        )
        self._invoking = Invoking(
            sessions=self._sessions,
            addresses=self._addresses,
            lifecycle=self._lifecycle,
            policies=self._policies,
            inbox=self._inbox,
            parking=parking,
            boxes=self._boxes,
            mailing=self._mailing,
            queueing=queueing,
            work=self._work,
            offers=self._offers,
            watches=self._following.watches,
            journal=journal,
            ledger=self._ledger,
            deadlines=self._deadlines,
            outbox=self._outbox,
            limits=limits,
            ids=ids,
            next_number=self._operations.next_number,
            identity=self._identity,
            node=node,
            broker_info=info,
        )
        self._registering.on_spawned = self._spawning.registered
        self._departing.on_left = self._following.watches.session_left
        self._flows = FlowsOfBroker(
            sessions=self._sessions,
            addresses=self._addresses,
            lifecycle=self._lifecycle,
            boxes=self._boxes,
            mailing=self._mailing,
            asking=self._asking,
            operations=self._operations,
            journal=journal,
            ledger=self._ledger,
            deadlines=self._deadlines,
            outbox=self._outbox,
            ids=ids,
            identity=self._identity,
            keys=self._work.register,
            watches=self._following.watches,
            limits=limits,
            broker_info=info,
        )
        self._addresses.used = AddressUses(
            self._addresses,
            self._sessions,
            self._lifecycle,
            self._boxes,
            self._questions,
            self._inbox,
            self._work.assignments,
            self._flows,
            self._links,
            self._policies,
            limits.address_idle_ms,
        ).keys
        self._draining = Draining(
            self._questions,
            self._sessions,
            self._work.assignments,
            self._flows,
            self._invoking,
            self._links,
            self._deadlines,
            self._outbox,
            limits,
            self._shut,
        )
        self._handlers = _HANDLERS
        self._sessions.on_change = self._flows.directory_changed
        self._mailing.on_moving = self._mail_moving
        self._lifecycle.on_renewed = self._flows.session_ended
        self._attention = Attention(
            self._sessions,
            self._lifecycle,
            self._boxes,
            self._mailing,
            self._asking,
            self._policies,
            self._inquiries,
            self._outbox,
            limits,
        )
        self._registering.on_arrival = self._attention.arrived
        self._mailing.is_open = self._is_mailbox_open
        self._mailing.on_delivered = self._mail_delivered
        self._asking.holder_of = self._holder_of
        self._lifecycle.on_undone = self._sessions.release_id
        self._lifecycle.on_closing = self._session_closing
        self._lifecycle.on_closed = self._work.closing.recorded
        self._lifecycle.on_unclosed = self._work.closing.not_recorded
        if store_trouble is not None:
            self._ledger.is_closed = True
            self._sessions.stop_recording()
        for record in recovered.operations:
            operation = self._operations.recover(record, now)
            question = record.question
            is_open = question is not None and not question.answered and operation.question_due > now.mono
            if question is not None and is_open and record.state is OperationState.ACCEPTED:
                self._asking.recover(operation, question)
        for known_record in recovered.known_sessions:
            known = self._lifecycle.recover(known_record, now)
            if known.state is SessionState.RECONNECTING:
                self._sessions.reserve_id(known.id)
        for mail in recovered.mail:
            self._mailing.recover(mail, now)
        self._work.recover(recovered, now)
        self._flows.recover(recovered, now)
        self._links.recover(recovered)
        self._invoking.recover(recovered, now)
        self._is_tidied = store_trouble is None and recovered.last_sequence > 0
        """What had its time is deleted every now and then."""
        if self._is_tidied:
            self._tidy(None, now)

    def started(self) -> list[Effect]:
        """Return what is to be done for what the store held at start; called once, first."""
        return self._outbox.take()

    # --- what the server asks ---------------------------------------------------------------------------

    @property
    def session_count(self) -> int:
        """Return the number of registered sessions, control ones included."""
        return len(self._sessions)

    @property
    def away_count(self) -> int:
        """Return the number of sessions without a connection that may still come back."""
        return self._lifecycle.away_count

    def due_soon_count(self, now: Instant) -> int:
        """Return how much goes on by itself, or is due so soon that the broker stays for it."""
        return self._work.assignments.due_soon(now) + self._invoking.due_soon(now) + self._flows.is_at_work

    def is_registered(self, conn: int) -> bool:
        """Tell whether this connection has a session."""
        connection = self._connections.get(conn)
        return connection is not None and connection.session is not None

    def next_deadline(self) -> int | None:
        """Return when ``deadline_passed`` must be called next (monotonic ms), or None."""
        return self._deadlines.next_due()

    # --- events -----------------------------------------------------------------------------------------

    def connection_opened(self, conn: int, peer: PeerCredentials | None, now: Instant) -> list[Effect]:
        """Take note of an accepted connection; ``conn`` is a number never used before."""
        self._connections[conn] = Connection(conn, peer)
        return self._outbox.take()

    def frame_received(self, conn: int, frame: Request | Malformed | BadRequest, now: Instant) -> list[Effect]:
        """Apply one frame; frames of a connection that was ended or destroyed are ignored."""
        connection = self._connections.get(conn)
        if connection is None:
            return []
        kind = type(frame)
        if kind is Send or kind is SupervisorSend:
            if connection.session is None:
                self._departing.violation(connection, "a frame before register", now)
            else:
                self._deciding.send(connection, frame, now)  # type: ignore[arg-type]  # narrowed by kind
        elif connection.session is None and kind not in _BEFORE_REGISTRATION:
            self._departing.violation(connection, "a frame before register", now)
        else:
            self._handlers[kind](self, connection, frame, now)
        return self._outbox.take()

    def protocol_error(self, conn: int, reason: str, now: Instant) -> list[Effect]:
        """Destroy a connection whose bytes break the protocol."""
        connection = self._connections.get(conn)
        if connection is not None:
            self._departing.violation(connection, reason, now)
        return self._outbox.take()

    def connection_ended(self, conn: int, now: Instant) -> list[Effect]:
        """Retire a connection at its peer's FIN, its error or its close, whichever comes first."""
        connection = self._connections.get(conn)
        if connection is not None:
            self._departing.retire(connection, now)
            self._departing.end(connection)
        return self._outbox.take()

    def bodies_read(
        self, token: object, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant
    ) -> list[Effect]:
        """Go on after the bodies of these mails were read; None: they could not be."""
        if isinstance(token, Reattaching):
            self._registering.finish_reattach(token, numbers, bodies, now)
        elif isinstance(token, Offer):
            self._mailing.bodies_read(token, bodies, numbers, now)
        elif isinstance(token, Admitting | Showing):
            self._flows.bodies_read(token, numbers, bodies, now)
        elif isinstance(token, Offering):
            self._links.commands.read(token, bodies, now)
        elif isinstance(token, TOKENS):
            self._invoking.bodies_read(token, numbers, bodies, now)
        elif not self._link_desk.read(token, bodies, now):
            self._work.desk.read(token, bodies, now)
        return self._outbox.take()

    def history_read(self, token: object, events: list[HistoryEvent] | None, now: Instant) -> list[Effect]:
        """Go on after the history of a stream was read; None: it could not be."""
        assert isinstance(token, Tracing)
        self._inquiries.history_read(token, events, now)
        return self._outbox.take()

    def journal_read(self, token: object, page: JournalPage | None, now: Instant) -> list[Effect]:
        """Go on after a page of the journal was read; None: it could not be."""
        assert isinstance(token, CatchingUp)
        self._following.watches.journal_read(token, page, now)
        return self._outbox.take()

    def process_judged(self, ref: str, is_alive: bool, now: Instant) -> list[Effect]:
        """Take note whether the process behind a lost connection lives."""
        self._lifecycle.process_judged(ref, is_alive, now)
        return self._outbox.take()

    def spawn_ended(self, ref: str, reason: str, now: Instant) -> list[Effect]:
        """Take note that a command could not be started, or ended with a failure."""
        self._spawning.ended(ref, reason, now)
        return self._outbox.take()

    def frame_taken(self, token: object, now: Instant) -> list[Effect]:
        """Go on after the kernel took the last byte of the frame with this token."""
        if isinstance(token, Attempt):
            self._delivery.frame_taken(token, now)
        elif isinstance(token, AnswerTaken):
            self._operations.answer_taken(token.operation, token.connection)
        elif isinstance(token, Notification):
            self._notifications.frame_taken(token, now)
        elif isinstance(token, Offered):
            self._offers.frame_taken(token, now)
        elif isinstance(token, Told):
            self._following.watches.taken(token)
        elif token is _SHUTDOWN:
            self._outbox.add(Stop("a client asked for it"))
        return self._outbox.take()

    def frame_lost(self, token: object, now: Instant) -> list[Effect]:
        """Go on after it became certain that the frame with this token never left completely."""
        if isinstance(token, Attempt):
            self._delivery.frame_lost(token, now)
        elif isinstance(token, Notification):
            self._notifications.frame_lost(token, now)
        elif isinstance(token, Offered):
            self._offers.frame_lost(token, now)
        elif isinstance(token, ToldOf):
            if token.known.record.generation == token.generation:
                self._lifecycle.close(token.known, "never_told", now)
        elif token is _SHUTDOWN:
            self._outbox.add(Stop("a client asked for it"))
        return self._outbox.take()

    def committed(self, ticket: int, now: Instant) -> list[Effect]:
        """Take note that every append up to ``ticket`` is durable."""
        self._ledger.committed(ticket, now)
        if ticket >= self._failed_ticket:
            self._last_failure = None
        return self._outbox.take()

    def commit_failed(self, first: int, reason: str, final: bool, now: Instant) -> list[Effect]:
        """Undo every change with ticket ``first`` or later; their frames have been dropped by the caller.

        The appends among the returned effects belong to the next generation of tickets: the writer must take them.
        ``final`` closes the store for the life of the process: sends are refused from now on.
        """
        self._outbox.note("commit_failed", reason=reason, final=final)
        self._last_failure = {"reason": reason, "at": now.wall}
        self._failed_ticket = first
        if final:
            self._operations.trouble = reason
            self._sessions.stop_recording()
            self._ledger.is_closed = True
        self._ledger.failed(first, now)
        if final:
            self._following.watches.end_all("store_unusable")
        return self._outbox.take()

    def deadline_passed(self, now: Instant) -> list[Effect]:
        """Do everything that is due."""
        self._deadlines.run(now)
        return self._outbox.take()

    def draining(self, now: Instant) -> list[Effect]:
        """Say goodbye to those who must be told, while everything still works; ``stop`` follows."""
        self._spawning.drain()
        self._links.leave(self._limits.link_drain_ms)
        self._following.watches.end_all("broker_shutdown")
        return self._outbox.take()

    def stop(self, now: Instant) -> list[Effect]:
        """Fall silent: from now on ``frame_lost`` only forgets reservations, and nobody is told anything."""
        self._outbox.muted = True
        self._work.assignments.shut_down(now)
        self._holding.drop_all()
        self._operations.drop_leftovers()
        return self._outbox.take()

    # --- sessions ---------------------------------------------------------------------------------------

    def _register(self, connection: Connection, frame: Register, now: Instant) -> None:
        self._registering.register(connection, frame, now)

    def _reattach(self, connection: Connection, frame: SessionReattach, now: Instant) -> None:
        self._registering.reattach(connection, frame, now)

    def _unregister(self, connection: Connection, frame: Unregister, now: Instant) -> None:
        if connection.session is not None:
            connection.session.keeps_questions = frame.keeps_questions is True
        self._departing.retire(connection, now, Cause.UNREGISTERED)

    def _had_features(self, now: Instant) -> None:
        """See to it that what had its time is deleted every now and then."""
        if not self._is_tidied:
            self._is_tidied = True
            self._deadlines.add(now.mono + self._limits.tidy_ms, self._tidy)

    def _session_departed(self, session: Session, cause: Cause, now: Instant) -> None:
        """Do what the departure of a session leads to before anything becomes of what it leaves."""
        self._work.handing.session_left(session, now)
        self._links.session_left(session, cause, now)

    def _session_closing(self, known: Known, reason: str, changes: list[Change], now: Instant) -> Closed:
        """Do what the end of a known session leads to: nobody comes back to its questions, its work and its mailbox."""
        self._sessions.release_id(known.id)
        self._flows.session_ended(known.record, now)
        self._asking.asker_closed(known.id)
        return self._work.closing.closing(known, reason, changes, now)

    def _mail_moving(self, mail: Mail, kind: str, reason: str, now: Instant) -> None:
        self._flows.mail_moving(mail, kind, reason, now)
        self._invoking.mail_moving(mail, kind, reason, now)

    def _is_mailbox_open(self, key: str) -> bool:
        kind, _, rest = key.partition(":")
        if kind == "address":
            return True
        known = self._lifecycle.get(rest)
        return known is not None and known.state is not SessionState.CLOSED

    def _holder_of(self, key: str) -> Session | None:
        box = self._boxes.get(key)
        return None if box is None else box.holder

    def _mail_delivered(self, mail: Mail, ticket: int, now: Instant) -> None:
        operation = mail.operation
        if mail.record.is_ask and operation is not None and operation.question_due > now.mono:
            self._asking.open_to_mailbox(operation, mail.record.mailbox)

    def _tidy(self, _: None, now: Instant) -> None:
        """Delete what had its time, and look again later."""
        self._flows.tidy(now)
        self._invoking.tidy(now)
        self._ledger.append((DropBodies(now.wall), DropHistory(now.wall - self._limits.history_kept_ms)))
        self._deadlines.add(now.mono + self._limits.tidy_ms, self._tidy)

    # --- lists ------------------------------------------------------------------------------------------

    def _list(self, connection: Connection, frame: ListSessions, now: Instant) -> None:
        session = _session_of(connection)
        group = None if frame.group is UNSET else normalise_group(frame.group)
        if group is None:
            found = self._sessions.in_reach_of(session.groups)
        elif stage_lists.may_inspect(session, group, self._stages):
            found = self._sessions.in_reach_of([group])
        else:
            found = []
        agents = [peer for peer in found if peer.is_agent]
        if session.features & SHOWN_WHO_IS_AWAY:
            entries = [standstill.shown(peer, self._receipts, now, self._limits) for peer in agents]
            entries += self._away_rows(session, group)
        else:
            entries = [peer.encoded() for peer in agents]
        stages = stage_lists.stage_rows(session, group, self._stages)
        possible = stage_lists.future_rows(session, group, self._stages)
        self._outbox.write(connection, Sessions(frame.request_id, entries, stages, possible))

    def _away_rows(self, session: Session, group: str | None) -> list[Raw]:
        if group is not None and not stage_lists.may_inspect(session, group, self._stages):
            return []
        groups = session.groups if group is None else (group,)
        return [known.shown_as_away() for known in self._lifecycle.away() if known.is_in(groups)]

    def _list_groups(self, connection: Connection, frame: ListGroups, now: Instant) -> None:
        mine = _session_of(connection).groups
        entries = []
        for group in sorted(self._sessions.groups(), key=lambda name: (name.lower(), name)):
            count = sum(1 for member in self._sessions.members(group) if member.is_agent)
            if count:
                entries.append(GroupEntry(group, count, group in mine))
        self._outbox.write(connection, Groups(frame.request_id, entries))

    # --- presence and memberships -----------------------------------------------------------------------

    def _presence(self, connection: Connection, frame: Presence | JoinGroup | LeaveGroup, now: Instant) -> None:
        self._change_presence(connection, type(frame).__struct_config__.tag, groups.members_of(frame), now)

    def _malformed(self, connection: Connection, frame: Malformed, now: Instant) -> None:
        if frame.type in ("send", "supervisor_send"):
            self._deciding.send(connection, frame, now)
        elif frame.type == "send_pending_stage_notification":
            self._notifications.send(connection, frame, now)
        else:
            self._change_presence(connection, frame.type, frame.fields, now)

    def _change_presence(self, connection: Connection, kind: Any, members: dict[str, Any], now: Instant) -> None:
        session = _session_of(connection)
        request_id = members.get("requestId", UNSET)
        if request_id is not UNSET and not isinstance(request_id, str):
            return self._departing.violation(connection, f"{kind} with a requestId that is not a string", now)
        change = groups.read_change(kind, members, session, self._limits)
        if isinstance(change, str):
            if request_id is UNSET:
                return self._departing.violation(connection, f"{kind} without requestId: {change}", now)
            self._outbox.write(connection, PresenceFailed(request_id, change))
            return None
        was_terminal = session.is_terminal
        groups.store_presence(change, session, self._sessions)
        if session.is_terminal and not was_terminal:
            self._asking.target_ended(session, now)
        self._flows.directory_changed()
        groups.store_memberships(change, session, self._sessions, self._outbox, now)
        if session.features:
            self._arrivals.changed(session, now)
            self._following.watches.regrouped(session)
        if request_id is not UNSET:
            if kind == "presence":
                self._outbox.write(connection, PresenceAck(request_id, session.info["group"]))
            else:
                self._outbox.write(connection, MembershipAck(request_id, list(session.groups)))
        return None

    # --- receipts, questions, supervision ---------------------------------------------------------------

    def _received(self, connection: Connection, frame: Received, now: Instant) -> None:
        session = _session_of(connection)
        if self._delivery.received(session, frame, now):
            return
        if not self._offers.received(session, frame.message_id, frame.push_id, now):
            self._invoking.received(session, frame.message_id, now)

    def _cancel_ask(self, connection: Connection, frame: CancelAsk, now: Instant) -> None:
        self._deciding.withdraw(_session_of(connection), frame.message_id, now)

    def _message_receipt(self, connection: Connection, frame: MessageReceipt, now: Instant) -> None:
        connection.speaks_pi = True
        if isinstance(frame.message_id, str):
            self._delivery.received_by_habit(_session_of(connection), frame.message_id, now)

    def _cancel_message(self, connection: Connection, frame: CancelMessage, now: Instant) -> None:
        connection.speaks_pi = True
        if isinstance(frame.message_id, str):
            self._deciding.withdraw(_session_of(connection), frame.message_id, now)

    def _authorize_supervisor(self, connection: Connection, frame: AuthorizeSupervisor, now: Instant) -> None:
        session = _session_of(connection)
        child_name = trim(frame.child_name)
        if session.owner_token is None:
            return self._departing.violation(connection, "authorize_supervisor without an owner token", now)
        wished = None if frame.capability is UNSET else frame.capability
        if max(len(child_name), len(wished or "")) > SUPERVISOR_CHARACTERS:
            return self._departing.violation(connection, "authorize_supervisor with a text that is too long", now)
        if wished is not None and not is_made_with(wished, session.owner_token, child_name):
            return self._departing.violation(connection, "authorize_supervisor with a foreign capability", now)
        if not self._capabilities.has_room(session.id, wished):
            return self._departing.violation(connection, "authorize_supervisor beyond the limit of capabilities", now)
        capability = wished or capability_for(session.owner_token, child_name, self._ids())
        if not self._capabilities.authorize(capability, session.id, child_name, session.owner_token):
            return self._departing.violation(connection, "authorize_supervisor with a capability bound to another", now)
        answer = SupervisorAuthorized(frame.request_id, capability, session.id, child_name)
        self._outbox.write(connection, answer)
        return None

    def _reserve_restoring(self, connection: Connection, frame: ReserveRestoringRecipient, now: Instant) -> None:
        error = self._restoring.reserve(_session_of(connection), frame)
        self._outbox.write(connection, RestoringRecipientAck(frame.request_id, UNSET if error is None else error))

    def _release_restoring(self, connection: Connection, frame: ReleaseRestoringRecipient, now: Instant) -> None:
        ended, text = self._restoring.release(_session_of(connection), frame)
        self._outbox.write(connection, RestoringRecipientAck(frame.request_id))
        released = [] if ended is None else self._holding.take_waiting_for([ended])
        if text is None:
            return self._deciding.dispatch(released, now)
        for held in released:
            self._holding.fail(held, text)
        return None

    # --- workflow stages --------------------------------------------------------------------------------

    def _announce_route(self, connection: Connection, frame: RegisterPendingStageRoute, now: Instant) -> None:
        refusal = self._stages.announce(_session_of(connection), frame)
        if refusal is not None:
            self._departing.refuse_and_end(connection, RegistrationFailed(refusal), now)
        elif frame.request_id is not UNSET:
            self._outbox.write(connection, PendingStageRouteRegistered(frame.request_id))

    def _go_live(self, connection: Connection, frame: RegisterLiveWorkflowStageRoute, now: Instant) -> None:
        refusal = self._barriers.go_live(_session_of(connection), frame)
        if refusal is not None:
            self._departing.refuse_and_end(connection, refusal, now)

    def _owner_answered(self, connection: Connection, frame: PendingStageMessageResult, now: Instant) -> None:
        self._owners.answered(_session_of(connection), frame, now)

    def _notify_sender(self, connection: Connection, frame: SendPendingStageNotification, now: Instant) -> None:
        self._notifications.send(connection, frame, now)

    def _notified(self, connection: Connection, frame: PendingStageNotificationResult, now: Instant) -> None:
        self._notifications.answered(_session_of(connection), frame, now)

    # --- control ----------------------------------------------------------------------------------------

    def _inquire(self, connection: Connection, frame: Any, now: Instant) -> None:
        self._inquiries.answer(connection, frame, now)

    def _flow(self, connection: Connection, frame: Any, now: Instant) -> None:
        self._flows.answer(connection, frame, now)

    def _about_work(self, connection: Connection, frame: Any, now: Instant) -> None:
        self._work.desk.answer(connection, frame, now)

    def _follow(self, connection: Connection, frame: Any, now: Instant) -> None:
        self._following.answer(connection, frame, now)

    def _link(self, connection: Connection, frame: Any, now: Instant) -> None:
        self._links.received(connection, frame, now)

    def _about_links(self, connection: Connection, frame: Any, now: Instant) -> None:
        self._link_desk.answer(connection, frame, now)

    def _spawn(self, connection: Connection, frame: SpawnSession, now: Instant) -> None:
        self._spawning.answer(connection, frame, now)

    def _invoke(self, connection: Connection, frame: Any, now: Instant) -> None:
        self._invoking.answer(connection, frame, now)

    def _attend(self, connection: Connection, frame: Any, now: Instant) -> None:
        self._attention.answer(connection, frame, now)

    def _health(self, connection: Connection, frame: HealthRequest, now: Instant) -> None:
        self._outbox.write(connection, Health(frame.request_id, self._instance_id))

    def _broker_status(self, connection: Connection, frame: BrokerStatusRequest, now: Instant) -> None:
        store: dict[str, Any] = {"usable": self._operations.trouble is None, "operations": len(self._operations)}
        if self._operations.trouble is not None:
            store["trouble"] = self._operations.trouble
        if self._last_failure is not None:
            store["lastFailure"] = self._last_failure
        draining = self._draining.report
        report = {
            "pid": self._pid,
            "sessions": len(self._sessions),
            "multiNode": MULTI_NODE_OFF,
            "broker": {
                **self._facts,
                "instanceId": self._instance_id,
                "openQuestions": len(self._questions),
                "loopsRefused": self._guard.refused,
                "unconfirmedFrames": len(self._receipts),
                "restoringRecipients": len(self._restoring),
                "heldSends": len(self._holding),
                "workflowRuns": len(self._stages.routes),
                "liveStageTargets": len(self._stages.aliases),
                "ownerRequests": len(self._owners),
                "waitingStages": len(self._barriers),
                "notifications": len(self._notifications),
                "watches": len(self._following.watches),
                "spawnKinds": self._spawning.kinds,
                "mail": {
                    **self._boxes.totals(),
                    "addresses": len(self._addresses),
                    "sessionsAway": self._lifecycle.away_count,
                    "sessionsRemembered": self._lifecycle.remembered_count,
                },
                "flows": self._flows.status(),
                "invocations": self._invoking.status(),
                "inbox": {
                    "parked": len(self._inbox),
                    "capacity": self._inbox.capacity,
                    "underPressure": self._inbox.is_under_pressure,
                    "assignments": len(self._work.assignments),
                },
                "links": {
                    "known": len(self._links),
                    "ready": self._links.ready_count,
                    "openCommands": self._links.commands.open,
                },
                "store": store,
                **({} if draining is None else {"draining": draining}),
            },
        }
        self._outbox.write(connection, BrokerStatus(frame.request_id, report))

    def _drain(self, connection: Connection, frame: BrokerDrain, now: Instant) -> None:
        self._draining.begin(connection, frame, now)

    def _shut(self) -> None:
        """Let nothing new begin: the broker leaves soon."""
        self._handlers = {**_HANDLERS, **dict.fromkeys(NEW_WORK, Broker._refuse_new_work)}
        self._asking.is_shut = self._work.handing.is_shut = True
        self._invoking.shut()
        self._flows.shut()

    def _refuse_new_work(self, connection: Connection, frame: Any, now: Instant) -> None:
        self._draining.refuse(connection, frame)

    def _shutdown(self, connection: Connection, frame: Shutdown, now: Instant) -> None:
        self._outbox.note("shutdown_requested", byPid=None if connection.peer is None else connection.peer.pid)
        self._outbox.write(connection, ShutdownAck(frame.request_id), token=_SHUTDOWN)


def _session_of(connection: Connection) -> Session:
    session = connection.session
    assert session is not None, "only called for registered connections"
    return session


_BEFORE_REGISTRATION = frozenset({Register, SessionReattach, HealthRequest, BrokerStatusRequest, Shutdown, BrokerDrain})

_HANDLERS: dict[type, Callable[..., None]] = {
    Register: Broker._register,
    Unregister: Broker._unregister,
    ListSessions: Broker._list,
    ListGroups: Broker._list_groups,
    Presence: Broker._presence,
    JoinGroup: Broker._presence,
    LeaveGroup: Broker._presence,
    Malformed: Broker._malformed,
    Received: Broker._received,
    CancelAsk: Broker._cancel_ask,
    MessageReceipt: Broker._message_receipt,
    CancelMessage: Broker._cancel_message,
    AuthorizeSupervisor: Broker._authorize_supervisor,
    ReserveRestoringRecipient: Broker._reserve_restoring,
    ReleaseRestoringRecipient: Broker._release_restoring,
    RegisterPendingStageRoute: Broker._announce_route,
    RegisterLiveWorkflowStageRoute: Broker._go_live,
    PendingStageMessageResult: Broker._owner_answered,
    SendPendingStageNotification: Broker._notify_sender,
    PendingStageNotificationResult: Broker._notified,
    HealthRequest: Broker._health,
    BrokerStatusRequest: Broker._broker_status,
    Shutdown: Broker._shutdown,
    BrokerDrain: Broker._drain,
    SessionReattach: Broker._reattach,
    BadRequest: Broker._inquire,
    WatchRequest: Broker._follow,
    UnwatchRequest: Broker._follow,
    SpawnSession: Broker._spawn,
    **dict.fromkeys(REQUESTS, Broker._inquire),
    **dict.fromkeys(ATTENTION_REQUESTS, Broker._attend),
    **dict.fromkeys(WORK_REQUESTS, Broker._about_work),
    **dict.fromkeys(FLOW_REQUESTS, Broker._flow),
    **dict.fromkeys(FROM_WORKERS, Broker._link),
    **dict.fromkeys(LINK_REQUESTS, Broker._about_links),
    **dict.fromkeys(INVOCATION_REQUESTS, Broker._invoke),
}
