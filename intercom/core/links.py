"""Let workers have their links: claims that fence each other, readiness, durable events (protocol 14).

Rule 1: an event is acknowledged after it is on disk, and its row, the floor and what becomes of a command are one
append. Rule 2: frames of one link are dealt with one at a time, in their order; the next one waits for the commit.
Rule 3: a link that fails ends its connection, after the worker was told why; nothing of it is dropped in part. One that
is refused leaves the connection alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, DecodeError, Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from intercom.core import features
from intercom.core.arrivals import Cause
from intercom.core.clock import Instant
from intercom.core.commands import Commands
from intercom.core.deadlines import Deadlines
from intercom.core.journal import Journal
from intercom.core.ledger import Ledger
from intercom.core.link import Claim, Link, Stage, fingerprint_of
from intercom.core.move import Move
from intercom.core.ordered import InboxOverflow, OrderedInbox
from intercom.core.outbox import Outbox
from intercom.core.records import EventRecord, Happened, LinkRecord, Recovered, ReleaseBody, SaveBody
from intercom.drains import Drain, Outcome, Told, drain_all
from intercom.limits import Limits
from intercom.wire.links import (
    DRAINING_KIND,
    HEARTBEAT_KIND,
    OUTCOME_KINDS,
    CommandReceived,
    CommandRejected,
    DurableEvent,
    EphemeralEvent,
    EventAck,
    LinkBootstrap,
    LinkConfirmed,
    LinkDrain,
    LinkReady,
    LinkRefused,
    LinkRejected,
    RefusalCode,
)
from intercom.wire.mail import RequestFailed

if TYPE_CHECKING:
    from intercom.core.connections import Connection
    from intercom.core.operations import Operations
    from intercom.core.sessions import Session
    from intercom.wire.frames import BadRequest

FROM_WORKERS = (LinkReady, LinkRejected, DurableEvent, EphemeralEvent, CommandReceived, CommandRejected)
"""What a worker writes about its link."""
READINESS = ("link_ready", "link_rejected")
"""Types of the frames with which a worker answers ``link_bootstrap``."""
OUTCOMES = dict(zip(OUTCOME_KINDS, ("applied", "failed"), strict=True))
"""What becomes of a command of which a durable event of this kind tells."""


class LinkBroken(Exception):
    """End a link and its connection: the worker broke a rule, or something could not be done in time."""

    def __init__(self, code: RefusalCode, reason: str) -> None:
        super().__init__(reason)
        self.code: RefusalCode = code
        self.reason = reason


class _Arrived(Struct, frozen=True):
    """Hold a frame until its turn."""

    frame: Any
    body: bytes
    """The body of a durable event, as bytes of its own."""


class Links:
    """Know every link and who has it."""

    def __init__(
        self,
        operations: Operations,
        journal: Journal,
        ledger: Ledger,
        deadlines: Deadlines,
        outbox: Outbox,
        limits: Limits,
        ids: Callable[[], str],
        journal_id: str,
        hang_up: Callable[[Connection, Instant], None],
        violation: Callable[[Connection, str, Instant], None],
    ) -> None:
        self._operations = operations
        self._journal = journal
        self._ledger = ledger
        self._deadlines = deadlines
        self._outbox = outbox
        self._limits = limits
        self._ids = ids
        self._journal_id = journal_id
        self._hang_up = hang_up
        self._violation = violation
        self._by_id: dict[str, Link] = {}
        self._by_mailbox: dict[str, Link] = {}
        self._claims: dict[int, Claim] = {}
        """By the numbers of their connections."""
        self._last_number = 0
        self._leaving_ms: int | None = None
        """How long workers were told they have, once the broker leaves."""
        self._now: Instant
        """The moment of the event that is being dealt with."""
        self._flaw: Exception | None = None
        """An error that is none of the worker's: it is raised where the event came from."""
        self.commands = Commands(operations, journal, ledger, deadlines, outbox, limits, self._by_id, self.fail)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Link]:
        return iter(self._by_id.values())

    def get(self, link_id: str) -> Link | None:
        """Return the link with this id."""
        return self._by_id.get(link_id)

    def of(self, mailbox: str) -> Link | None:
        """Return the link of whoever has this mailbox."""
        return self._by_mailbox.get(mailbox)

    @property
    def ready_count(self) -> int:
        """Return how many are ready."""
        return sum(1 for claim in self._claims.values() if claim.stage is Stage.READY)

    def recover(self, recovered: Recovered) -> None:
        """Enter what the store held."""
        for record in recovered.links:
            self._enter(Link(record))
            self._last_number = max(self._last_number, record.number)
        for event in recovered.events:
            link = self._by_id.get(event.link_id)
            if link is not None and link.record.journal_id == event.journal_id:
                link.events[event.seq] = event
        self.commands.recover(recovered.commands)

    def _enter(self, link: Link) -> None:
        self._by_id[link.id] = link
        self._by_mailbox[link.record.mailbox] = link

    # --- claims -----------------------------------------------------------------------------------------

    def session_came(self, session: Session, now: Instant) -> None:
        """Give a session that asked for it its link (protocol 14.2)."""
        if features.LINK in session.features and session.mailbox is not None:
            self._claim(session, session.mailbox.key, now)

    def _claim(self, session: Session, mailbox: str, now: Instant) -> None:
        move = Move()
        link = self._by_mailbox.get(mailbox) or self._make(mailbox, move, now)
        if link is None:
            text = "As many links as are kept are in use; register again later"
            self._outbox.write(session.connection, LinkRefused("", "capacity", text, True))
            return
        if self._rests(link, session, now):
            return
        before = link.record
        link.record = replace(before, generation=before.generation + 1)
        claim = Claim(link, session.connection, session, self._ids())
        claim.is_draining = self._leaving_ms is not None
        claim.inbox = OrderedInbox(
            lambda arrived: self._handle(claim, arrived),
            lambda error: self._failed(claim, error),
            frames=self._limits.link_frames,
            size=self._limits.link_bytes,
        )
        link.claim = claim
        self._claims[session.connection.number] = claim
        claim.deadline = self._deadlines.add(now.mono + self._limits.link_ready_ms, self._not_ready, claim)
        move.inverse(lambda now: self._not_claimed(claim, before, now))
        move.changes.append(self._journal.event("link.dialing", link.record, now))
        ticket = link.ticket = move.append(self._ledger)
        bootstrap = LinkBootstrap(
            link.id,
            claim.generation,
            claim.connection_id,
            "individual",
            self._journal_id,
            link.record.floor,
            {"sessionId": session.id},
        )
        self._outbox.write(session.connection, bootstrap, ticket)

    def _make(self, mailbox: str, move: Move, now: Instant) -> Link | None:
        """Return a new link; an unused one makes room, and without one there is none."""
        if len(self._by_id) >= self._limits.links:
            unused = next((link for link in self._by_id.values() if link.claim is None and not link.open_count), None)
            if unused is None:
                return None
            self._forget(unused, move, now)
        self._last_number += 1
        link = Link(LinkRecord(self._ids(), self._last_number, mailbox, 0, None, 0, 0, now.wall))
        self._enter(link)
        move.inverse(lambda now: self._leave(link))
        return link

    def _forget(self, link: Link, move: Move, now: Instant) -> None:
        self.commands.forget(link, move, now)
        self._leave(link)
        move.inverse(lambda now: self._enter(link))
        for event in link.events.values():
            move.changes.append(self._event_of(link, "event.forgotten", event, now, is_gone=True))
        move.changes.append(self._journal.event("link.forgotten", link.record, now, is_gone=True))

    def _leave(self, link: Link) -> None:
        del self._by_id[link.id]
        del self._by_mailbox[link.record.mailbox]

    def _not_claimed(self, claim: Claim, before: LinkRecord, now: Instant) -> None:
        """Take back a claim that could not be recorded, and try again a little later."""
        link = claim.link
        self._let_go(claim)
        link.record = before
        self._deadlines.add(now.mono + self._limits.link_retry_ms, self._claim_again, claim.connection)

    def _claim_again(self, connection: Connection, now: Instant) -> None:
        session = connection.session
        if session is not None and connection.open and connection.number not in self._claims:
            self.session_came(session, now)

    def _rests(self, link: Link, session: Session, now: Instant) -> bool:
        """Tell whether a link failed so often that it is not tried now; then it is once the time is over."""
        window = self._limits.link_window_ms
        while link.failures and link.failures[0] + window <= now.mono:
            link.failures.popleft()
        if len(link.failures) < self._limits.link_attempts:
            return False
        wait = link.failures[0] + window - now.mono
        if link.exhausted_at != link.record.generation:
            link.exhausted_at = link.record.generation
            self._note(link, "link.exhausted", now)
        text = f"The link failed {len(link.failures)} times in a row; it is tried again in {-(-wait // 1000)} s"
        self._outbox.write(session.connection, LinkRefused(link.id, "exhausted", text, True))
        self._deadlines.add(now.mono + wait, self._claim_again, session.connection)
        return True

    def _note(self, link: Link, kind: str, now: Instant, **detail: Any) -> None:
        """Record that something happened to a link which changes nothing of its row."""
        self._ledger.append((self._journal.event(kind, link.record, now, **detail),))

    def session_left(self, session: Session, cause: Cause, now: Instant) -> None:
        """End the claim of a session that departs; its link stays."""
        claim = self._claims.get(session.connection.number)
        if claim is None:
            return
        self._let_go(claim)
        if cause in (Cause.MOVED, Cause.REPLACED):
            self._note(claim.link, "link.authority_lost", now)
        else:
            self._note(claim.link, "link.ended", now, reason="connection_lost")

    def _let_go(self, claim: Claim) -> None:
        if claim.stage is Stage.ENDED:
            return
        claim.move(Stage.ENDED)
        self._deadlines.cancel(claim.deadline)
        claim.deadline = claim.offered = None
        claim.inbox.close()
        claim.look_whether_drained()
        self._claims.pop(claim.connection.number, None)
        claim.link.claim = None

    # --- ends -------------------------------------------------------------------------------------------

    def fail(self, claim: Claim, code: RefusalCode, reason: str, now: Instant) -> None:
        """End a link and its connection."""
        self._now = now
        claim.inbox.fail(LinkBroken(code, reason))

    def _failed(self, claim: Claim, error: Exception) -> None:
        now, link = self._now, claim.link
        if isinstance(error, InboxOverflow):
            error = LinkBroken("inbox_overflow", f"Send less before it is acknowledged: {error}")
        self._let_go(claim)
        if not isinstance(error, LinkBroken):
            self._flaw = error
            return
        link.failures.append(now.mono)
        kind = "link.inbox_overflow" if error.code == "inbox_overflow" else "link.ended"
        self._outbox.note("link_failed", link=link.id, code=error.code, reason=error.reason)
        if not self._ledger.is_closed:
            self._note(link, kind, now, reason=error.code)
        self._outbox.write(claim.connection, LinkRefused(link.id, error.code, error.reason, True))
        self._hang_up(claim.connection, now)

    def _not_ready(self, claim: Claim, now: Instant) -> None:
        self.fail(claim, "dial_timeout", f"The worker was not ready within {self._limits.link_ready_ms} ms", now)

    def _not_recorded(self, claim: Claim, now: Instant) -> None:
        if claim.stage is not Stage.ENDED:
            self.fail(claim, "not_recorded", "The store did not take it; come again and repeat it", now)

    def leave(self, within_ms: int) -> None:
        """Tell every worker, once, that the broker stops within that time; no command is offered any more."""
        if self._leaving_ms is not None:
            return
        self._leaving_ms = within_ms
        for claim in self._claims.values():
            claim.is_draining = True
            if claim.stage is Stage.READY:
                self._tell_leaving(claim)

    def _tell_leaving(self, claim: Claim) -> None:
        assert self._leaving_ms is not None, "only called while the broker leaves"
        self._outbox.write(claim.connection, LinkDrain(self._leaving_ms, "broker_shutdown"))

    def drain(self, told: Told) -> None:
        """Call ``told`` once every inbox is empty and every offered command has its receipt, with what failed."""
        drains: list[Drain] = []
        for claim in self._claims.values():
            drains += [partial(_drain_inbox, claim), claim.drain]
        drain_all(drains, told)

    def count_in_work(self) -> int:
        """Return how many commands workers that are ready have received, may have begun, and not reported on."""
        return sum(
            command.record.state == "received" and command.record.command_id not in claim.waiting
            for claim in self._claims.values()
            if claim.stage is Stage.READY
            for command in claim.link.commands.values()
        )

    # --- frames -----------------------------------------------------------------------------------------

    def received(self, connection: Connection, frame: Any, now: Instant) -> None:
        """Take a frame of a worker; without a link it means nothing, and will come again."""
        session = connection.session
        assert session is not None, "only called for registered connections"
        is_request = isinstance(frame, LinkReady | LinkRejected)
        if features.LINK not in session.features:
            if is_request:
                text = f"This needs the feature {features.LINK}"
                self._outbox.write(connection, RequestFailed(frame.request_id, "feature_not_granted", text, False))
                return None
            tag = type(frame).__struct_config__.tag
            return self._violation(connection, f"{tag} without the feature {features.LINK}", now)
        claim = self._claims.get(connection.number)
        if claim is None:
            if is_request:
                text = "This connection has no link now; wait for link_bootstrap"
                refused = LinkRefused(frame.link_id, "generation_stale", text, True, frame.request_id)
                self._outbox.write(connection, refused)
            return None
        self._now = now
        body = bytes(frame.body) if isinstance(frame, DurableEvent) else b""
        size = len(body or encode(frame))
        claim.inbox.push(_Arrived(frame, body), size + _FRAME_BYTES)
        self._raise_flaw()
        return None

    def unreadable(self, connection: Connection, frame: BadRequest, now: Instant) -> bool:
        """End the link of a worker whose answer to ``link_bootstrap`` breaks its rules; tell whether there was one."""
        claim = self._claims.get(connection.number)
        if claim is None:
            return False
        self.fail(claim, "bootstrap_invalid", f"{frame.type}: {frame.reason}", now)
        self._raise_flaw()
        return True

    def _raise_flaw(self) -> None:
        flaw, self._flaw = self._flaw, None
        if flaw is not None:
            raise flaw

    def _handle(self, claim: Claim, arrived: _Arrived) -> bool:
        frame, now = arrived.frame, self._now
        if self._ledger.is_closed:
            raise LinkBroken("not_recorded", "The store cannot be used, so nothing is recorded")
        if isinstance(frame, LinkReady):
            return self._ready(claim, frame, now)
        if isinstance(frame, LinkRejected):
            return self._rejected(claim, frame, now)
        if isinstance(frame, EphemeralEvent):
            self._heard(claim, frame.body, now)
            return True
        if claim.stage is not Stage.READY:
            return True
        if isinstance(frame, DurableEvent):
            return self._event(claim, frame, arrived.body, now)
        assert isinstance(frame, CommandReceived | CommandRejected)
        return self._receipt(claim, frame, now)

    def _heard(self, claim: Claim, body: dict[str, Any], now: Instant) -> None:
        """Take notice of what is not stored; what means nothing here is left aside."""
        kind, waiting = body.get("kind"), body.get("waiting")
        if kind == HEARTBEAT_KIND:
            claim.link.heartbeat_at = now.wall
        elif kind == DRAINING_KIND and claim.is_draining and isinstance(waiting, list):
            claim.waiting = frozenset(each for each in waiting if isinstance(each, str))

    def _commit(self, claim: Claim, move: Move, then: Callable[[Claim, Instant], None]) -> int:
        """Append a change that a frame leads to; the frame is dealt with once it is committed."""
        ticket = move.append(self._ledger)
        self._ledger.when_committed(ticket, then, claim)
        self._ledger.rest(ticket, self._not_recorded, claim)
        return ticket

    # --- readiness --------------------------------------------------------------------------------------

    def _ready(self, claim: Claim, frame: LinkReady, now: Instant) -> bool:
        link = claim.link
        if claim.stage is not Stage.AWAITING:
            raise LinkBroken("protocol_error", "A worker is ready once for each link_bootstrap")
        if self._is_stale(claim, frame):
            return True
        if frame.journal_id is UNSET:
            text = "A worker names its journal, so that it is known what its numbers count"
            return self._refuse(claim, frame.request_id, "journal_identity_missing", text, now)
        link.other_journal = None
        if link.record.journal_id not in (None, frame.journal_id):
            link.other_journal = frame.journal_id
            text = (
                "The link belongs to another journal of this worker; the operator decides: "
                f"intercom link repin {link.id} --journal {frame.journal_id} --yes"
            )
            return self._refuse(claim, frame.request_id, "journal_identity_changed", text, now)
        self._deadlines.cancel(claim.deadline)
        claim.deadline = None
        claim.move(Stage.CHECKING)
        claim.worker_state = None if frame.worker_state is UNSET else frame.worker_state
        move = Move()
        self._change(link, move, journal_id=frame.journal_id, refused=None)
        move.changes.append(self._journal.event("link.ready", link.record, now))
        link.ticket = self._commit(claim, move, self._opened)
        self._outbox.write(claim.connection, LinkConfirmed(frame.request_id, link.id, claim.generation), link.ticket)
        return False

    def _is_stale(self, claim: Claim, frame: LinkReady | LinkRejected) -> bool:
        """Refuse the answer to an earlier ``link_bootstrap``, which crossed with the newest: it decides nothing."""
        link = claim.link
        if (frame.link_id, frame.generation) == (link.id, claim.generation):
            return False
        text = f"The link of this connection is {link.id} in generation {claim.generation}"
        refused = LinkRefused(link.id, "generation_stale", text, False, frame.request_id)
        self._outbox.write(claim.connection, refused)
        return True

    def _opened(self, claim: Claim, now: Instant) -> None:
        if claim.stage is Stage.CHECKING:
            claim.move(Stage.READY)
            claim.link.failures.clear()
            if claim.is_draining:
                self._tell_leaving(claim)
            self._go_on(claim, now)

    def _go_on(self, claim: Claim, now: Instant) -> None:
        """Deal with the next frame, and offer the next command."""
        self._now = now
        claim.inbox.done()
        self._raise_flaw()
        claim.look_whether_drained()
        self.commands.pump(claim, now)

    def _refuse(self, claim: Claim, request_id: str, code: RefusalCode, reason: str, now: Instant) -> bool:
        """Let a connection go on without its link."""
        link = claim.link
        self._let_go(claim)
        move = Move()
        self._change(link, move, refused=code)
        move.changes.append(self._journal.event("link.refused", link.record, now, code=code))
        link.ticket = move.append(self._ledger)
        refused = LinkRefused(link.id, code, reason, False, request_id)
        self._outbox.write(claim.connection, refused, link.ticket)
        self._ledger.rest(link.ticket, self._refusal_lost, (claim.connection, refused))
        return True

    def _refusal_lost(self, subject: tuple[Connection, LinkRefused], now: Instant) -> None:
        """Refuse all the same: it is true without being recorded."""
        self._outbox.write(*subject)

    def _rejected(self, claim: Claim, frame: LinkRejected, now: Instant) -> bool:
        if claim.stage is not Stage.AWAITING:
            raise LinkBroken("protocol_error", "A worker rejects its link before it is ready, or not at all")
        if self._is_stale(claim, frame):
            return True
        text = f"The worker rejected its link: {frame.error_code}"
        claim.link.failures.append(now.mono)
        self._refuse(claim, frame.request_id, "bootstrap_rejected", text, now)
        self._hang_up(claim.connection, now)
        return True

    def _change(self, link: Link, move: Move, **members: Any) -> None:
        before = link.record
        link.record = replace(before, **members)

        def take_back(now: Instant) -> None:
            link.record = before

        move.inverse(take_back)

    def repin(self, link: Link, journal_id: str, move: Move, now: Instant) -> list[str]:
        """Let a link go on with another journal of its worker, from its first event; return the commands left open."""
        claim, link.other_journal = link.claim, None
        doubtful = self.commands.doubt(link, move, now)
        events, link.events = link.events, {}
        for event in events.values():
            move.changes.append(self._event_of(link, "event.forgotten", event, now, is_gone=True))

        def take_back(now: Instant) -> None:
            link.events = events

        move.inverse(take_back)
        self._change(link, move, journal_id=journal_id, floor=0, refused=None)
        move.changes.append(self._journal.event("link.repinned", link.record, now, journalId=journal_id))
        if claim is not None:
            self._let_go(claim)
            move.changes.append(self._journal.event("link.authority_lost", link.record, now))
            text = "The operator gave the link to another journal; wait for link_bootstrap"
            self._outbox.write(claim.connection, LinkRefused(link.id, "authority_lost", text, True))
        return doubtful

    # --- durable events ---------------------------------------------------------------------------------

    def _event(self, claim: Claim, frame: DurableEvent, body: bytes, now: Instant) -> bool:
        link = claim.link
        if frame.link_id != link.id:
            raise LinkBroken("generation_stale", f"The link of this connection is {link.id}")
        record = link.record
        if frame.seq <= record.floor:
            known = link.events.get(frame.seq)
            if known is not None and (known.event_id, known.fingerprint) != (frame.event_id, fingerprint_of(body)):
                raise LinkBroken("event_conflict", f"Event {frame.seq} is stored with another content")
            self._outbox.write(claim.connection, EventAck(link.id, record.floor), link.ticket)
            return True
        if frame.seq != record.floor + 1:
            raise LinkBroken("event_rejected", f"Event {record.floor + 1} is missing before {frame.seq}")
        content = _content_of(body, self._limits.link_body_bytes)
        assert record.journal_id is not None, "a link that is ready has a journal"
        number = self._operations.next_number()
        event = EventRecord(
            number,
            link.id,
            record.journal_id,
            frame.seq,
            frame.event_id,
            content["kind"],
            fingerprint_of(body),
            frame.occurred_at,
            now.wall,
        )
        move = Move()
        self._change(link, move, floor=frame.seq)
        self._keep(link, event, move, now)
        move.changes += [SaveBody(number, body), ReleaseBody(number, now.wall + self._limits.bodies_kept_ms)]
        move.changes.append(self._journal.event("link.advanced", link.record, now))
        outcome = OUTCOMES.get(event.kind)
        if outcome is not None:
            self.commands.settle(link, content, outcome, move, now)
        link.ticket = self._commit(claim, move, self._go_on)
        self._outbox.write(claim.connection, EventAck(link.id, frame.seq), link.ticket)
        return False

    def _keep(self, link: Link, event: EventRecord, move: Move, now: Instant) -> None:
        """Remember an event; beyond the bound the oldest is forgotten."""
        before = dict(link.events)

        def take_back(now: Instant) -> None:
            link.events = before

        move.inverse(take_back)
        while len(link.events) >= self._limits.link_events:
            oldest = link.events.pop(next(iter(link.events)))
            move.changes.append(self._event_of(link, "event.forgotten", oldest, now, is_gone=True))
        link.events[event.seq] = event
        move.changes.append(self._event_of(link, "event.stored", event, now))

    def _event_of(self, link: Link, kind: str, event: EventRecord, now: Instant, *, is_gone: bool = False) -> Happened:
        return self._journal.event(kind, event, now, is_gone=is_gone, mailbox=link.record.mailbox)

    # --- receipts ---------------------------------------------------------------------------------------

    def _receipt(self, claim: Claim, frame: CommandReceived | CommandRejected, now: Instant) -> bool:
        command = self.commands.find(claim.link, frame.command_id)
        if command is None:
            self._outbox.note("unknown_command", link=claim.link.id)
            return True
        if command.record.seq != frame.command_seq:
            raise LinkBroken("protocol_error", f"Command {frame.command_id} has number {command.record.seq}")
        if command.record.state != "pending":
            return True
        move = Move()
        self.commands.receipt(claim, command, frame, move, now)
        command.ticket = self._commit(claim, move, self._go_on)
        return False


def _drain_inbox(claim: Claim, told: Told) -> None:
    """Drain the inbox of a claim, and say of an error whose it is."""

    def name(outcome: Outcome) -> None:
        told(None if outcome is None else LinkBroken("protocol_error", f"link {claim.link.id} failed: {outcome}"))

    claim.inbox.drain(name)


_FRAME_BYTES = 256
"""What a frame counts beside its body: its ids and numbers."""


def _content_of(body: bytes, most: int) -> dict[str, Any]:
    """Return the body of an event: an object that says its kind."""
    if len(body) > most:
        raise LinkBroken("event_rejected", f"The body of an event has at most {most} bytes")
    try:
        content = decode(body)
    except DecodeError:
        content = None
    if not isinstance(content, dict) or not isinstance(content.get("kind"), str) or not content["kind"]:
        raise LinkBroken("event_rejected", "The body of an event is an object with a text as its kind")
    return content
