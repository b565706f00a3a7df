"""Enter the rules: everything that happens outside comes in here, and what must be done goes out.

Rule 1: this file dispatches; it decides nothing that a module of the core could own. Rule 2: every method returns the
effects of one event, in order, and never blocks, waits, reads a clock or fails because of what a peer did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET, UnsetType

from intercom.core import groups
from intercom.core.asking import Asking
from intercom.core.attempts import AnswerTaken, Attempt
from intercom.core.clock import Instant
from intercom.core.connections import Connection, PeerCredentials
from intercom.core.deadlines import Deadlines
from intercom.core.delivery import Delivery
from intercom.core.effects import Destroy, Effect, Stop
from intercom.core.ledger import Ledger
from intercom.core.operations import Operations
from intercom.core.outbox import Outbox
from intercom.core.questions import Questions
from intercom.core.receipts import Receipts
from intercom.core.records import OperationState, Recovered
from intercom.core.resolving import Resolver
from intercom.core.sessions import Session, SessionTable, normalise_group
from intercom.core.supervision import Capabilities, Crossings
from intercom.limits import Limits
from intercom.wire import reasons
from intercom.wire.capability import capability_for, is_made_with
from intercom.wire.frames import (
    AuthorizeSupervisor,
    BrokerStatus,
    BrokerStatusRequest,
    CancelAsk,
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
    Presence,
    PresenceAck,
    PresenceFailed,
    Received,
    Register,
    Registered,
    RegistrationFailed,
    Request,
    Send,
    Sessions,
    Shutdown,
    ShutdownAck,
    SupervisorAuthorized,
    SupervisorSend,
    Unregister,
    trim,
)

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
        self._questions = Questions(self._deadlines)
        self._asking = Asking(self._questions, self._sessions, limits, self._outbox)
        self._capabilities = Capabilities(limits)
        self._crossings = Crossings(limits)
        self._operations = Operations(key, limits, self._ledger, self._deadlines, recovered, store_trouble)
        self._receipts = Receipts(limits)
        self._delivery = Delivery(
            Resolver(self._sessions, self._questions, self._crossings),
            self._operations,
            self._receipts,
            self._asking,
            self._crossings,
            self._deadlines,
            limits,
            self._outbox,
        )
        if store_trouble is not None:
            self._sessions.stop_recording()
        for record in recovered.operations:
            operation = self._operations.recover(record, now)
            question = record.question
            is_open = question is not None and not question.answered and operation.question_due > now.mono
            if question is not None and is_open and record.state is OperationState.ACCEPTED:
                self._asking.recover(operation, question)

    # --- what the server asks ---------------------------------------------------------------------------

    @property
    def session_count(self) -> int:
        """Return the number of registered sessions, control ones included."""
        return len(self._sessions)

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

    def frame_received(self, conn: int, frame: Request | Malformed, now: Instant) -> list[Effect]:
        """Apply one frame; frames of a connection that was ended or destroyed are ignored."""
        connection = self._connections.get(conn)
        if connection is None:
            return []
        kind = type(frame)
        if kind is Send or kind is SupervisorSend:
            if connection.session is None:
                self._violation(connection, "a frame before register", now)
            else:
                self._delivery.send(connection, frame, now)  # type: ignore[arg-type]  # narrowed by kind
        elif connection.session is None and kind not in _BEFORE_REGISTRATION:
            self._violation(connection, "a frame before register", now)
        else:
            _HANDLERS[kind](self, connection, frame, now)
        return self._outbox.take()

    def protocol_error(self, conn: int, reason: str, now: Instant) -> list[Effect]:
        """Destroy a connection whose bytes break the protocol."""
        connection = self._connections.get(conn)
        if connection is not None:
            self._violation(connection, reason, now)
        return self._outbox.take()

    def connection_ended(self, conn: int, now: Instant) -> list[Effect]:
        """Retire a connection at its peer's FIN, its error or its close, whichever comes first."""
        connection = self._connections.get(conn)
        if connection is not None:
            self._retire(connection, now)
            self._end(connection)
        return self._outbox.take()

    def frame_taken(self, token: object, now: Instant) -> list[Effect]:
        """Go on after the kernel took the last byte of the frame with this token."""
        if isinstance(token, Attempt):
            self._delivery.frame_taken(token, now)
        elif isinstance(token, AnswerTaken):
            self._operations.answer_taken(token.operation, token.connection)
        else:
            self._outbox.add(Stop("a client asked for it"))
        return self._outbox.take()

    def frame_lost(self, token: object, now: Instant) -> list[Effect]:
        """Go on after it became certain that the frame with this token never left completely."""
        if isinstance(token, Attempt):
            self._delivery.frame_lost(token, now)
        elif token is _SHUTDOWN:
            self._outbox.add(Stop("a client asked for it"))
        return self._outbox.take()

    def committed(self, ticket: int, now: Instant) -> list[Effect]:
        """Take note that every append up to ``ticket`` is durable."""
        self._ledger.committed(ticket)
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
        self._ledger.failed(first, now)
        return self._outbox.take()

    def deadline_passed(self, now: Instant) -> list[Effect]:
        """Do everything that is due."""
        self._deadlines.run(now)
        return self._outbox.take()

    def stop(self, now: Instant) -> list[Effect]:
        """Fall silent: from now on ``frame_lost`` only forgets reservations, and nobody is told anything."""
        self._outbox.muted = True
        self._operations.drop_leftovers()
        return self._outbox.take()

    # --- registration -----------------------------------------------------------------------------------

    def _register(self, connection: Connection, frame: Register, now: Instant) -> None:
        if connection.session is not None:
            return self._violation(connection, "register on a registered connection", now)
        if len(frame.session.get("groups", ())) > self._limits.groups:
            return self._violation(connection, f"register with more than {self._limits.groups} groups", now)
        supervisor_id: str | UnsetType = UNSET
        if frame.supervisor is not UNSET:
            claimed = self._claim_supervisor(frame)
            if claimed is None:
                self._outbox.write(connection, RegistrationFailed(reasons.INVALID_SUPERVISOR))
                self._outbox.note("registration_refused", reason=reasons.INVALID_SUPERVISOR)
                return self._end(connection)
            supervisor_id = claimed
        session = self._sessions.enter(connection, frame)
        if supervisor_id is not UNSET:
            session.supervisor_id = supervisor_id
        registered = Registered(
            session.id,
            supervisor_id,
            True if session.confirms_receipts else UNSET,
            acknowledges_pending_stage_routes=True,
            broker_status=True,
        )
        self._outbox.write(connection, registered)
        groups.announce(session, self._sessions, self._outbox)
        self._delivery.resend_unconfirmed(session)
        self._asking.session_returned(session, now)
        return None

    def _claim_supervisor(self, frame: Register) -> str | None:
        """Return the connected supervisor this registration may claim, and bind the slot; None: not authorised."""
        child_name = trim(frame.session.get("name", ""))
        claim = frame.supervisor
        if not child_name or not isinstance(claim, dict):
            return None
        capability, supervisor_id = claim.get("capability"), claim.get("supervisorSessionId")
        if not isinstance(capability, str) or not isinstance(supervisor_id, str):
            return None
        current = self._capabilities.claim(capability, child_name)
        if current is None or self._sessions.get(current) is None:
            return None
        self._capabilities.bind(capability, child_name)
        return current

    def _unregister(self, connection: Connection, frame: Unregister, now: Instant) -> None:
        self._retire(connection, now)

    def _retire(self, connection: Connection, now: Instant) -> None:
        """Let a session depart, in the order of protocol 6.15."""
        session = connection.session
        if session is None:
            return
        self._asking.asker_left(session)
        self._asking.target_left(session)
        self._sessions.leave(session)
        groups.announce_departure(session, self._sessions, self._outbox)

    def _end(self, connection: Connection) -> None:
        self._connections.pop(connection.number, None)
        self._outbox.finish(connection)

    def _violation(self, connection: Connection, reason: str, now: Instant) -> None:
        self._connections.pop(connection.number, None)
        connection.open = False
        self._outbox.add(Destroy(connection.number, reason))
        self._retire(connection, now)

    # --- lists ------------------------------------------------------------------------------------------

    def _list(self, connection: Connection, frame: ListSessions, now: Instant) -> None:
        session = _session_of(connection)
        if frame.group is UNSET:
            found = self._sessions.in_reach_of(session.groups)
        else:
            found = self._sessions.in_reach_of([normalise_group(frame.group)])
        entries = [peer.encoded() for peer in found if peer.is_agent]
        self._outbox.write(connection, Sessions(frame.request_id, entries, [], []))

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
            self._delivery.send(connection, frame, now)
        else:
            self._change_presence(connection, frame.type, frame.fields, now)

    def _change_presence(self, connection: Connection, kind: Any, members: dict[str, Any], now: Instant) -> None:
        session = _session_of(connection)
        request_id = members.get("requestId", UNSET)
        if request_id is not UNSET and not isinstance(request_id, str):
            return self._violation(connection, f"{kind} with a requestId that is not a string", now)
        change = groups.read_change(kind, members, session, self._limits)
        if isinstance(change, str):
            if request_id is UNSET:
                return self._violation(connection, f"{kind} without requestId: {change}", now)
            self._outbox.write(connection, PresenceFailed(request_id, change))
            return None
        was_terminal = session.is_terminal
        groups.store_presence(change, session, self._sessions)
        if session.is_terminal and not was_terminal:
            self._asking.target_ended(session, now)
        groups.store_memberships(change, session, self._sessions, self._outbox, now)
        if request_id is not UNSET:
            if kind == "presence":
                self._outbox.write(connection, PresenceAck(request_id, session.info["group"]))
            else:
                self._outbox.write(connection, MembershipAck(request_id, list(session.groups)))
        return None

    # --- receipts, questions, supervision ---------------------------------------------------------------

    def _received(self, connection: Connection, frame: Received, now: Instant) -> None:
        self._delivery.received(_session_of(connection), frame, now)

    def _cancel_ask(self, connection: Connection, frame: CancelAsk, now: Instant) -> None:
        self._delivery.withdraw(_session_of(connection), frame.message_id, now)

    def _authorize_supervisor(self, connection: Connection, frame: AuthorizeSupervisor, now: Instant) -> None:
        session = _session_of(connection)
        child_name = trim(frame.child_name)
        if session.owner_token is None:
            return self._violation(connection, "authorize_supervisor without an owner token", now)
        wished = None if frame.capability is UNSET else frame.capability
        if wished is not None and not is_made_with(wished, session.owner_token, child_name):
            return self._violation(connection, "authorize_supervisor with a foreign capability", now)
        if not self._capabilities.has_room(session.id, wished):
            return self._violation(connection, "authorize_supervisor beyond the limit of capabilities", now)
        capability = wished or capability_for(session.owner_token, child_name, self._ids())
        if not self._capabilities.authorize(capability, session.id, child_name, session.owner_token):
            return self._violation(connection, "authorize_supervisor with a capability bound to another", now)
        answer = SupervisorAuthorized(frame.request_id, capability, session.id, child_name)
        self._outbox.write(connection, answer)
        return None

    # --- control ----------------------------------------------------------------------------------------

    def _health(self, connection: Connection, frame: HealthRequest, now: Instant) -> None:
        self._outbox.write(connection, Health(frame.request_id, self._instance_id))

    def _broker_status(self, connection: Connection, frame: BrokerStatusRequest, now: Instant) -> None:
        store: dict[str, Any] = {"usable": self._operations.trouble is None, "operations": len(self._operations)}
        if self._operations.trouble is not None:
            store["trouble"] = self._operations.trouble
        if self._last_failure is not None:
            store["lastFailure"] = self._last_failure
        report = {
            "pid": self._pid,
            "sessions": len(self._sessions),
            "multiNode": MULTI_NODE_OFF,
            "broker": {
                **self._facts,
                "instanceId": self._instance_id,
                "openQuestions": len(self._questions),
                "unconfirmedFrames": len(self._receipts),
                "store": store,
            },
        }
        self._outbox.write(connection, BrokerStatus(frame.request_id, report))

    def _shutdown(self, connection: Connection, frame: Shutdown, now: Instant) -> None:
        self._outbox.note("shutdown_requested", byPid=None if connection.peer is None else connection.peer.pid)
        self._outbox.write(connection, ShutdownAck(frame.request_id), token=_SHUTDOWN)


def _session_of(connection: Connection) -> Session:
    session = connection.session
    assert session is not None, "only called for registered connections"
    return session


_BEFORE_REGISTRATION = frozenset({Register, HealthRequest, BrokerStatusRequest, Shutdown})

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
    AuthorizeSupervisor: Broker._authorize_supervisor,
    HealthRequest: Broker._health,
    BrokerStatusRequest: Broker._broker_status,
    Shutdown: Broker._shutdown,
}
