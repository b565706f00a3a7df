"""Know the sessions that outlive their connection (design section 7; states of one session):

    active --connection lost--> reconnecting --session_reattach, register with the owner token--> active
      |                              |
      +--unregister, replaced        +--grace over, process ended, force close, replaced--> closed
      +--------------------------------------------------------------------------------------^

A closed session is remembered for a while, so that whoever comes back late learns why it cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.json import decode, encode
from msgspec.structs import replace

from intercom.core.addresses import digest, proves
from intercom.core.clock import Instant
from intercom.core.deadlines import Deadline, Deadlines
from intercom.core.effects import ForgetProcess, WatchProcess
from intercom.core.features import LIFECYCLE, OPERATOR
from intercom.core.journal import Journal
from intercom.core.keeping import Keeping
from intercom.core.ledger import Ledger
from intercom.core.outbox import Outbox
from intercom.core.records import Change, KnownSessionRecord, SessionState
from intercom.limits import Limits

if TYPE_CHECKING:
    from intercom.core.sessions import Session


FORCE_CLOSE = "force_close"
"""How the reason of a session begins that the operator closed."""
SHOWN_WHO_IS_AWAY = frozenset({LIFECYCLE, OPERATOR})
"""Whoever has one of these features is also listed the sessions that lost their connection."""


class Known:
    """Hold one session that may come back, or was closed."""

    __slots__ = ("_shown", "_shown_from", "change", "grace", "is_saved", "last", "record", "session")

    def __init__(self, record: KnownSessionRecord) -> None:
        self.record = record
        self.is_saved = True
        """Its row is on disk as it is, or on its way there."""
        self._shown: dict[str, Any] = {}
        self._shown_from: bytes | None = None
        self.change: Deadline | None = None
        """Set while a change of what peers see waits to be stored."""
        self.session: Session | None = None
        """The connected one."""
        self.last: Session | None = None
        """The one that was connected last to this broker process, until it is closed."""
        self.grace: Deadline | None = None

    @property
    def id(self) -> str:
        """Return its session id."""
        return self.record.session_id

    @property
    def state(self) -> SessionState:
        """Return where it is in its life."""
        return self.record.state

    @property
    def info(self) -> dict[str, Any]:
        """Return the session object as peers saw it last."""
        if self.state is SessionState.CLOSED:
            return decode(self.record.info)  # type: ignore[no-any-return]  # we encoded it
        if self._shown_from is not self.record.info:
            self._shown, self._shown_from = decode(self.record.info), self.record.info
        return self._shown

    @property
    def name(self) -> str | None:
        """Return its name."""
        return self.info.get("name")

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the groups it was in last."""
        return tuple(self.info["groups"])

    @property
    def mailbox_key(self) -> str:
        """Return the key of the mailbox it opens."""
        return f"address:{self.record.address}" if self.record.holds_address else f"session:{self.id}"

    @property
    def row(self) -> KnownSessionRecord:
        """Return the row as it is stored."""
        return self.record

    @property
    def process_ref(self) -> str:
        """Name the watch of its process."""
        return f"{self.id}/{self.record.incarnation}/{self.record.generation}"

    def close(self, reason: str, at: int) -> None:
        """Keep of it only its row from now on: thousands that were closed are remembered."""
        self.session = self.last = None
        self._shown, self._shown_from = {}, None
        self.record = replace(
            self.record, state=SessionState.CLOSED, state_since=at, grace_deadline=None, closed_reason=reason
        )

    def is_in(self, groups: Iterable[str]) -> bool:
        """Tell whether it was in one of these groups last."""
        mine = self.groups
        return any(group in mine for group in groups)

    def shown_as_away(self) -> Raw:
        """Return the session object as a list shows it while it may come back."""
        record = self.record
        away = {"state": record.state.value, "stateSince": record.state_since, "graceDeadline": record.grace_deadline}
        return Raw(encode({**self.info, **away}))

    @property
    def was_force_closed(self) -> bool:
        """Tell whether the operator closed it."""
        return (self.record.closed_reason or "").partition(":")[0] == FORCE_CLOSE

    def is_owned_by(self, token: str | None) -> bool:
        """Tell whether this is its owner token."""
        return proves(token, self.record.token_hash)


class Lifecycle:
    """Move known sessions from state to state.

    ``on_closing`` is told of each that is being closed and adds what changes with it, so that all of it is one append;
    what it returns is handed to ``on_closed`` with the ticket, or to ``on_unclosed`` when it could not be recorded.
    """

    def __init__(
        self,
        deadlines: Deadlines,
        ledger: Ledger,
        journal: Journal,
        keeping: Keeping,
        outbox: Outbox,
        limits: Limits,
    ) -> None:
        self._deadlines = deadlines
        self._ledger = ledger
        self._journal = journal
        self._keeping = keeping
        self._outbox = outbox
        self._limits = limits
        self._known: dict[str, Known] = {}
        self._closed: dict[str, Known] = {}
        """In the order in which they were closed."""
        self._by_process: dict[str, Known] = {}
        self._last_number = 0
        self._away: dict[str, Known] = {}
        self.on_ending: list[Callable[[Known, Instant], None]] = []
        """Are told of each session that is being closed, first of all."""
        self.on_closing: Callable[[Known, str, list[Change], Instant], Any] = lambda known, reason, changes, now: None
        self.on_closed: Callable[[Any, int, Instant], None] = lambda closing, ticket, now: None
        self.on_renewed: list[Callable[[KnownSessionRecord, Instant], None]] = []
        """Are told what a session was that begins another incarnation, before that is recorded."""
        self.on_undone: Callable[[str], None] = lambda session_id: None
        """Is told of each session that was never recorded."""
        self.on_unclosed: Callable[[Any, Instant], None] = lambda closing, now: None

    def __iter__(self) -> Iterator[Known]:
        return iter(list(self._known.values()))

    @property
    def away_count(self) -> int:
        """Return how many sessions may still come back."""
        return len(self._away)

    @property
    def remembered_count(self) -> int:
        """Return how many closed sessions are remembered."""
        return len(self._closed)

    def away(self) -> list[Known]:
        """Return the sessions that may still come back."""
        return list(self._away.values())

    def get(self, session_id: str) -> Known | None:
        """Return the known session with this id."""
        return self._known.get(session_id.lower())

    # --- from state to state ----------------------------------------------------------------------------

    def enter(self, session: Session, record: KnownSessionRecord, now: Instant) -> Known:
        """Begin the life of a session, or of its next incarnation."""
        known = self._known.get(record.session_id.lower())
        before = None if known is None else known.record
        if known is None:
            known = Known(record)
            self._known[record.session_id.lower()] = known
            self._make_room(now)
        else:
            self._leave_grace(known)
            self._closed.pop(record.session_id.lower(), None)
            known.record = record
            assert before is not None
            if before.incarnation != record.incarnation:
                for tell in self.on_renewed:
                    tell(before, now)
        self._bind(known, session)
        known.is_saved = True
        event = self._journal.event("session.active", record, now, cause="register")
        self._ledger.append((event,), self._undo_enter, (known, before))
        return known

    def _undo_enter(self, subject: Any, now: Instant) -> None:
        """Take back a beginning that could not be recorded; nobody was told of it, so the owner before is the owner."""
        known, before = subject
        left_ms = 0 if known.grace is None else known.grace.due - now.mono
        self._leave_grace(known)
        self._forget_change(known)
        if before is None:
            self._known.pop(known.id.lower(), None)
            self._closed.pop(known.id.lower(), None)
            if known.session is not None:
                known.session.known = None
            self.on_undone(known.id)
            return
        is_closed = known.state is SessionState.CLOSED
        known.record = replace(
            before,
            state=known.state,
            state_since=known.record.state_since,
            grace_deadline=known.record.grace_deadline,
            closed_reason=known.record.closed_reason if is_closed else None,
        )
        if known.state is SessionState.RECONNECTING:
            self._begin_grace(known, left_ms, now)
        self._keeping.save_later("session.changed", known, self.is_known, now)

    def is_known(self, known: Known) -> bool:
        """Tell whether this session is still remembered."""
        return self._known.get(known.id.lower()) is known

    def next_number(self) -> int:
        """Return the number of the next session to enter."""
        self._last_number += 1
        return self._last_number

    def reattached(self, known: Known, session: Session, now: Instant) -> None:
        """Move a reconnecting session to active, or an active one to another connection."""
        self._leave_grace(known)
        self._bind(known, session)
        self._set(
            known,
            now,
            "session.active",
            state=SessionState.ACTIVE,
            state_since=now.wall,
            generation=known.record.generation + 1,
            grace_deadline=None,
        )

    def connection_lost(self, known: Known, now: Instant) -> None:
        """Move an active session to reconnecting and have its process judged."""
        info = known.record.info if known.session is None else encode(known.session.info)
        self._forget_change(known)
        known.session = None
        self._set(
            known,
            now,
            "session.reconnecting",
            info=info,
            state=SessionState.RECONNECTING,
            state_since=now.wall,
            grace_deadline=now.wall + self._limits.grace_ms,
        )
        self._begin_grace(known, self._limits.grace_ms, now)

    def close(self, known: Known, reason: str, now: Instant) -> None:
        """Move an active or reconnecting session to closed, for good; a closed one stays as it is."""
        if known.state is SessionState.CLOSED:
            return
        self._leave_grace(known)
        self._forget_change(known)
        known.close(reason, now.wall)
        self._closed[known.id.lower()] = known
        self._append_close(known, now)

    def _append_close(self, known: Known, now: Instant) -> None:
        known.is_saved = True
        changes: list[Change] = []
        for tell in self.on_ending:
            tell(known, now)
        closing = self.on_closing(known, known.record.closed_reason or "", changes, now)
        changes.append(self._journal.event("session.closed", known.record, now))
        ticket = self._ledger.append(tuple(changes), self._undo_close, (known, closing))
        self.on_closed(closing, ticket, now)

    def _undo_close(self, subject: Any, now: Instant) -> None:
        """Record the end of a session again a little later, with what becomes of its mail; it stays closed."""
        known, closing = subject
        self.on_unclosed(closing, now)
        self._deadlines.add(now.mono + self._limits.mail_retry_ms, self._close_again, known)

    def _close_again(self, known: Known, now: Instant) -> None:
        if self.is_known(known) and known.state is SessionState.CLOSED:
            self._append_close(known, now)

    def changed(self, known: Known, now: Instant) -> None:
        """Store soon what peers see of a session: some say what they do many times a second."""
        if known.change is None:
            known.change = self._deadlines.add(now.mono + self._limits.presence_stored_ms, self._store_change, known)

    def asked(
        self,
        known: Known,
        kind: str,
        take_back: Callable[[Any, Instant], None],
        subject: Any,
        now: Instant,
        **members: object,
    ) -> None:
        """Store at once what a session asked to be kept of it; ``take_back(subject, now)`` when it cannot be."""
        self._forget_change(known)
        info = known.record.info if known.session is None else encode(known.session.info)
        known.record = replace(known.record, **{"info": info, **members})
        known.is_saved = True
        event = self._journal.event(kind, known.record, now)
        self._ledger.append((event,), self._undo_asked, (known, kind, take_back, subject))

    def _undo_asked(self, subject: Any, now: Instant) -> None:
        """Bring the row in line with what is in force again: what else changed with it stays."""
        known, kind, take_back, what = subject
        take_back(what, now)
        if known.state is not SessionState.CLOSED and known.session is not None:
            known.record = replace(known.record, info=encode(known.session.info))
        self._keeping.save_later(kind, known, self.is_known, now)

    def _forget_change(self, known: Known) -> None:
        self._deadlines.cancel(known.change)
        known.change = None

    def _store_change(self, known: Known, now: Instant) -> None:
        known.change = None
        assert known.session is not None, "what has changed is forgotten when its connection is lost"
        info = encode(known.session.info)
        if info != known.record.info:
            self._set(known, now, "session.changed", info=info)

    def hint(self, known: Known, hint: str | None, now: Instant) -> None:
        """Store what the session says it works on."""
        before = known.record.task_hint
        if hint != before:
            self.asked(known, "session.hint", self._take_hint_back, (known, before), now, task_hint=hint)

    def _take_hint_back(self, subject: tuple[Known, str | None], now: Instant) -> None:
        known, before = subject
        known.record = replace(known.record, task_hint=before)

    def put_back(self, known: Known, member: str, value: Any) -> None:
        """Let a session be seen as before it asked for something that could not be recorded; None: without it."""
        if known.session is not None:
            known.session.drop(member) if value is None else known.session.update(**{member: value})
        else:
            info = {name: said for name, said in known.info.items() if name != member}
            known.record = replace(known.record, info=encode(info if value is None else {**info, member: value}))

    def process_judged(self, ref: str, is_alive: bool, now: Instant) -> None:
        """Close a session whose process has ended; one that lives has its grace."""
        known = self._by_process.get(ref)
        if known is not None and not is_alive and known.state is SessionState.RECONNECTING:
            self.close(known, "process_exit", now)

    # --- recovery ---------------------------------------------------------------------------------------

    def recover(self, record: KnownSessionRecord, now: Instant) -> Known:
        """Enter a session read from the store: an active one is reconnecting now, with a fresh grace."""
        known = Known(record)
        self._known[record.session_id.lower()] = known
        self._last_number = max(self._last_number, record.number)
        if record.state is SessionState.ACTIVE:
            self.connection_lost(known, now)
        elif record.state is SessionState.RECONNECTING:
            left = (record.grace_deadline or 0) - now.wall
            self._begin_grace(known, min(max(left, self._limits.restart_grace_ms), self._limits.grace_ms), now)
        else:
            self._closed[record.session_id.lower()] = known
        return known

    # --- help -------------------------------------------------------------------------------------------

    def _bind(self, known: Known, session: Session) -> None:
        known.session = known.last = session
        session.known = known

    def _begin_grace(self, known: Known, grace_ms: int, now: Instant) -> None:
        known.grace = self._deadlines.add(now.mono + grace_ms, self._grace_is_over, known)
        self._away[known.id.lower()] = known
        self._by_process[known.process_ref] = known
        if known.record.pid > 0:
            self._outbox.add(WatchProcess(known.process_ref, known.record.pid, known.record.started))

    def _leave_grace(self, known: Known) -> None:
        if known.grace is not None:
            self._deadlines.cancel(known.grace)
            known.grace = None
            del self._away[known.id.lower()]
            del self._by_process[known.process_ref]
            if known.record.pid > 0:
                self._outbox.add(ForgetProcess(known.process_ref))

    def _grace_is_over(self, known: Known, now: Instant) -> None:
        assert known.grace is not None
        if now.mono - known.grace.due > self._limits.late_ms:
            self._leave_grace(known)
            self._begin_grace(known, self._limits.restart_grace_ms, now)
        else:
            self.close(known, "grace_timeout", now)

    def _set(self, known: Known, now: Instant, kind: str, **members: object) -> None:
        known.record = replace(known.record, **members)
        self._keeping.save(kind, known, self.is_known, now)

    def _make_room(self, now: Instant) -> None:
        """Forget closed sessions that had their time, and the oldest ones beyond the limit."""
        before = now.wall - self._limits.tombstone_ms
        while self._closed:
            oldest = next(iter(self._closed.values()))
            if oldest.record.state_since >= before and len(self._known) <= self._limits.known_sessions:
                break
            self.forget(oldest, now)

    def forget(self, known: Known, now: Instant) -> None:
        """Remember a closed session no longer."""
        self._known.pop(known.id.lower(), None)
        self._closed.pop(known.id.lower(), None)
        event = self._journal.event("session.forgotten", known.record, now, is_gone=True)
        self._ledger.append((event,), self._undo_forget, known)

    def _undo_forget(self, known: Known, now: Instant) -> None:
        """Remember a session again until the next one makes room."""
        self._known[known.id.lower()] = self._closed[known.id.lower()] = known


def record_of(
    session: Session,
    number: int,
    incarnation: str,
    owner_token: str,
    now: Instant,
    **more: object,
) -> KnownSessionRecord:
    """Return the row of a session that begins its life."""
    peer = session.connection.peer
    pid = session.info.get("pid", 0)
    return KnownSessionRecord(
        session_id=session.id,
        number=number,
        state=SessionState.ACTIVE,
        state_since=now.wall,
        incarnation=incarnation,
        generation=1,
        token_hash=digest(owner_token),
        return_hash=session.return_hash,
        pid=peer.pid if peer is not None else int(pid),
        started=None if peer is None else peer.started,
        home_group=session.home_group,
        features=tuple(sorted(session.features)),
        info=encode(session.info),
        needs_registration=session.owner_token is not None or session.supervisor_id is not None,
        **more,  # type: ignore[arg-type]  # optional members
    )
