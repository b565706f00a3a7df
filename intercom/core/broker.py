"""Enter the rules: everything that happens outside comes in here, and what must be done goes out.

Rule 1: this file joins the parts and hands each event to whom it concerns; it decides nothing that a part could own.
Rule 2: every method returns the effects of one event, in order, and never blocks, waits, reads a clock or fails because
of what a peer did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from intercom.core.address_uses import AddressUses
from intercom.core.attention import Attention
from intercom.core.clock import Instant
from intercom.core.company import Company
from intercom.core.connections import Connection, PeerCredentials
from intercom.core.control import Control
from intercom.core.draining import Draining
from intercom.core.effects import Effect
from intercom.core.flows import FlowsOfBroker
from intercom.core.following import Following
from intercom.core.ground import Ground
from intercom.core.inquiries import Inquiries, Tracing
from intercom.core.invoking import Invoking
from intercom.core.linking import Linking
from intercom.core.membership import Membership
from intercom.core.messages import Messages
from intercom.core.outbox_requests import OutboxRequests
from intercom.core.part import Part
from intercom.core.peeking import Peeking
from intercom.core.post import Post
from intercom.core.records import (
    ClusterState,
    DropBodies,
    DropHistory,
    HistoryEvent,
    JournalPage,
    OperationsPage,
    PeerFact,
    Recovered,
    StoreIdentity,
)
from intercom.core.registry import Registry
from intercom.core.sending import Sending
from intercom.core.spawning import Spawning
from intercom.core.staging import Staging
from intercom.core.supervising import Supervising
from intercom.core.watches import CatchingUp
from intercom.core.work import Work
from intercom.limits import Limits
from intercom.wire.frames import (
    BadRequest,
    BrokerDrain,
    BrokerStatusRequest,
    HealthRequest,
    Malformed,
    Register,
    Shutdown,
)
from intercom.wire.mail import SessionReattach

if TYPE_CHECKING:
    from intercom.core.meshing import Meshing
    from intercom.wire.unions import Request

Row = TypeVar("Row")
_BEFORE_REGISTRATION = frozenset({Register, SessionReattach, HealthRequest, BrokerStatusRequest, Shutdown, BrokerDrain})


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
        cluster: how the way to other brokers is at first; None: there is none.
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
        cluster: ClusterState | None = None,
    ) -> None:
        self._limits = limits = limits or Limits()
        recovered = recovered or Recovered()
        identity = identity or StoreIdentity(instance_id, instance_id, 1)
        self._ground = ground = Ground(ids, limits, identity, pid, recovered.last_sequence, now)
        self._outbox, self._ledger, self._deadlines = ground.outbox, ground.ledger, ground.deadlines
        self._connections = ground.connections

        self._registry = registry = Registry(ground, recovered)
        self._messages = messages = Messages(ground, registry, key, recovered, store_trouble)
        self._supervising = supervising = Supervising(ground, messages)
        self._staging = staging = Staging(ground, registry, messages)
        self._post = post = Post(ground, registry, messages)
        self._sending = sending = Sending(ground, registry, messages, supervising, staging, post)
        self._membership = membership = Membership(
            ground, registry, messages, supervising, staging, post, sending, self._had_features
        )
        company = Company(ground, registry, messages, staging, sending, membership)
        self._inquiries = inquiries = Inquiries(ground, registry, messages, post, membership)
        peeking = Peeking(ground, post, inquiries)
        attention = Attention(ground, registry, messages, post, membership, inquiries)
        self._following = following = Following(
            ground, registry, messages, post, membership, company, recovered.last_sequence
        )
        self._work = work = Work(
            ground, registry, messages, post, sending, membership, following, recovered.idempotency, now
        )
        self._spawning = Spawning(spawn_kinds, work.register, ground, membership, self._store_trouble)
        self._flows = flows = FlowsOfBroker(ground, registry, messages, post, company, following, work)
        self._linking = linking = Linking(ground, registry, messages, post, membership, following, inquiries)
        self._invoking = Invoking(ground, registry, messages, post, sending, following, work, node)
        outbox = OutboxRequests(
            ground,
            registry,
            post,
            inquiries,
            lambda: self._meshing,
            self._invoking.forwarding,
            self._invoking.peers,
        )
        self._meshing: Meshing | None = None
        if cluster is not None:
            from intercom.core.meshing import Meshing  # with all that only a broker among others needs

            self._meshing = Meshing(
                ground,
                registry,
                messages,
                post,
                supervising,
                staging,
                sending,
                membership,
                company,
                flows,
                self._invoking,
                work,
                node,
                cluster,
                now,
            )
        self._parts: list[Part] = [
            messages,
            registry,
            supervising,
            staging,
            post,
            sending,
            membership,
            company,
            inquiries,
            peeking,
            attention,
            following,
            work,
            self._spawning,
            flows,
            linking,
            self._invoking,
            outbox,
        ]
        if self._meshing is not None:
            self._parts.append(self._meshing)
        draining = Draining(ground, registry, linking.links, self._parts)
        reporting = (*self._parts, draining)
        self._control = Control(ground, registry, messages, instance_id, pid, facts or {}, reporting)
        if self._meshing is not None:
            self._control.multi_node = self._meshing.multi_node
            inquiries.machines = self._meshing
        registry.addresses.used = AddressUses(
            registry, messages, post, work, flows, linking, limits.address_idle_ms
        ).keys

        entered = (*reporting, self._control)
        self._handlers = _joined(part.handlers() for part in entered)
        draining.refuses_in(self._handlers)
        self._readers = _joined(part.readers() for part in entered)
        taken, lost = _joined(part.taken() for part in entered), _joined(part.lost() for part in entered)
        tokens = dict.fromkeys((*taken, *lost), _go_on_with_nothing)
        self._taken, self._lost = {**tokens, **taken}, {**tokens, **lost}

        if store_trouble is not None:
            self._close_store()
        for part in self._parts:
            part.recover(recovered, now)
        self._is_tidied = store_trouble is None and recovered.last_sequence > 0
        """What had its time is deleted every now and then."""
        if self._is_tidied:
            self._tidy(None, now)

    def started(self) -> list[Effect]:
        """Return what is to be done for what the store held at start; called once, first."""
        return self._outbox.take()

    # --- what the server asks ---------------------------------------------------------------------------

    @property
    def last_ticket(self) -> int:
        """Return the ticket of the last append that was asked for."""
        return self._ledger.last_ticket

    @property
    def session_count(self) -> int:
        """Return the number of registered sessions, control ones included."""
        sessions = self._registry.sessions
        return len(sessions) - sessions.remote

    @property
    def away_count(self) -> int:
        """Return the number of sessions without a connection that may still come back."""
        return self._registry.lifecycle.away_count

    def due_soon_count(self, now: Instant) -> int:
        """Return how much goes on by itself, or is due so soon that the broker stays for it."""
        return sum(part.due_soon(now) for part in self._parts)

    def is_registered(self, conn: int) -> bool:
        """Tell whether this connection has a session."""
        connection = self._connections.get(conn)
        return connection is not None and connection.session is not None

    @property
    def is_recalling(self) -> bool:
        """Tell whether operations are still being read back: frames that need them must not come in before."""
        return self._messages.recalling.is_going_on

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
        if connection.session is None and kind not in _BEFORE_REGISTRATION:
            self._membership.departing.violation(connection, "a frame before register", now)
        else:
            self._handlers[kind](connection, frame, now)
        effects, self._outbox.effects = self._outbox.effects, []
        return effects

    def protocol_error(self, conn: int, reason: str, now: Instant) -> list[Effect]:
        """Destroy a connection whose bytes break the protocol."""
        connection = self._connections.get(conn)
        if connection is not None:
            self._membership.departing.violation(connection, reason, now)
        return self._outbox.take()

    def connection_ended(self, conn: int, now: Instant) -> list[Effect]:
        """Retire a connection at its peer's FIN, its error or its close, whichever comes first."""
        connection = self._connections.get(conn)
        if connection is not None:
            self._membership.departing.retire(connection, now)
            self._membership.departing.end(connection)
        return self._outbox.take()

    def bodies_read(
        self, token: object, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant
    ) -> list[Effect]:
        """Go on after the bodies of these mails were read; None: they could not be."""
        self._readers[type(token)](token, numbers, bodies, now)
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

    def operations_read(self, page: OperationsPage | None, now: Instant) -> list[Effect]:
        """Go on after operations were read that had been left on disk at the start; None: they could not be."""
        if page is None:
            self._messages.recalling.stop()
            self._lose_store("the operations could not be read")
            self._following.watches.end_all("store_unusable")
        else:
            self._messages.recalling.read(page, now)
        return self._outbox.take()

    def process_judged(self, ref: str, is_alive: bool, now: Instant) -> list[Effect]:
        """Take note whether the process behind a lost connection lives."""
        self._registry.lifecycle.process_judged(ref, is_alive, now)
        return self._outbox.take()

    def spawn_ended(self, ref: str, reason: str, now: Instant) -> list[Effect]:
        """Take note that a command could not be started, or ended with a failure."""
        self._spawning.ended(ref, reason, now)
        return self._outbox.take()

    def peer_told(self, fact: PeerFact, now: Instant) -> list[Effect]:
        """Take note of what is heard of other brokers, or of what became of work for one."""
        self._invoking.peer_told(fact, now)
        if self._meshing is not None:
            self._meshing.peer_told(fact, now)
        return self._outbox.take()

    def frames_taken(self, tokens: Iterable[object], now: Instant) -> list[Effect]:
        """Go on after the kernel took the last bytes of the frames with these tokens, in this order."""
        for token in tokens:
            self._taken[type(token)](token, now)
        return self._outbox.take()

    def frame_lost(self, token: object, now: Instant) -> list[Effect]:
        """Go on after it became certain that the frame with this token never left completely."""
        self._lost[type(token)](token, now)
        return self._outbox.take()

    def committed(self, ticket: int, now: Instant) -> list[Effect]:
        """Take note that every append up to ``ticket`` is durable."""
        self._ledger.committed(ticket, now)
        self._control.committed()
        return self._outbox.take()

    def commit_failed(self, first: int, reason: str, final: bool, now: Instant) -> list[Effect]:
        """Undo every change with ticket ``first`` or later; their frames have been dropped by the caller.

        The appends among the returned effects belong to the next generation of tickets: the writer must take them.
        ``final`` closes the store for the life of the process: sends are refused from now on.
        """
        self._outbox.note("commit_failed", reason=reason, final=final)
        self._control.commit_failed(reason, now)
        if final:
            self._lose_store(reason)
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
        for part in reversed(self._parts):
            part.drain()
        return self._outbox.take()

    def stop(self, now: Instant) -> list[Effect]:
        """Fall silent: from now on ``frame_lost`` only forgets reservations, and nobody is told anything."""
        self._outbox.muted = True
        for part in reversed(self._parts):
            part.stop(now)
        return self._outbox.take()

    # --- what joins the parts ---------------------------------------------------------------------------

    def _store_trouble(self) -> str | None:
        return self._messages.operations.trouble

    def _lose_store(self, reason: str) -> None:
        """Refuse every send from now on."""
        self._messages.operations.trouble = reason
        self._close_store()

    def _close_store(self) -> None:
        """Record nothing any more."""
        self._ledger.is_closed = True
        self._registry.sessions.stop_recording()

    def _had_features(self, now: Instant) -> None:
        """See to it that what had its time is deleted every now and then."""
        if not self._is_tidied:
            self._is_tidied = True
            self._deadlines.add(now.mono + self._limits.tidy_ms, self._tidy)

    def _tidy(self, _: None, now: Instant) -> None:
        """Delete what had its time, and look again later."""
        for part in self._parts:
            part.tidy(now)
        self._ledger.append((DropBodies(now.wall), DropHistory(now.wall - self._limits.history_kept_ms)))
        self._deadlines.add(now.mono + self._limits.tidy_ms, self._tidy)


def _joined(tables: Iterable[Mapping[type, Row]]) -> dict[type, Row]:
    """Return the rows of all tables; two parts that claim the same row are a mistake in the program."""
    joined: dict[type, Row] = {}
    for table in tables:
        twice = joined.keys() & table.keys()
        assert not twice, f"two parts claim {twice}"
        joined |= table
    return joined


def _go_on_with_nothing(token: object, now: Instant) -> None:
    """Ignore what became of a frame that matters only if it went the other way."""
