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
from intercom.core.ledger import Ledger
from intercom.core.outbox import Outbox
from intercom.core.records import KnownSessionRecord, SessionState
from intercom.limits import Limits

if TYPE_CHECKING:
    from intercom.core.sessions import Session


SHOWN_WHO_IS_AWAY = frozenset({LIFECYCLE, OPERATOR})
"""Whoever has one of these features is also listed the sessions that lost their connection."""


class Known:
    """Hold one session that may come back, or was closed."""

    __slots__ = ("grace", "last", "record", "session")

    def __init__(self, record: KnownSessionRecord) -> None:
        self.record = record
        self.session: Session | None = None
        """The connected one."""
        self.last: Session | None = None
        """The one that was connected last to this broker process."""
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
        info: dict[str, Any] = decode(self.record.info)
        return info

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
        return f"session:{self.id}" if self.record.address is None else f"address:{self.record.address}"

    @property
    def process_ref(self) -> str:
        """Name the watch of its process."""
        return f"{self.id}/{self.record.incarnation}/{self.record.generation}"

    def is_in(self, groups: Iterable[str]) -> bool:
        """Tell whether it was in one of these groups last."""
        mine = self.groups
        return any(group in mine for group in groups)

    def shown_as_away(self) -> Raw:
        """Return the session object as a list shows it while it may come back."""
        record = self.record
        away = {"state": record.state.value, "stateSince": record.state_since, "graceDeadline": record.grace_deadline}
        return Raw(encode({**self.info, **away}))

    def is_owned_by(self, token: str | None) -> bool:
        """Tell whether this is its owner token."""
        return proves(token, self.record.token_hash)


class Lifecycle:
    """Move known sessions from state to state; ``on_closed`` is told of each that is closed."""

    def __init__(
        self,
        deadlines: Deadlines,
        ledger: Ledger,
        journal: Journal,
        outbox: Outbox,
        limits: Limits,
    ) -> None:
        self._deadlines = deadlines
        self._ledger = ledger
        self._journal = journal
        self._outbox = outbox
        self._limits = limits
        self._known: dict[str, Known] = {}
        self._closed: dict[str, Known] = {}
        """In the order in which they were closed."""
        self._by_process: dict[str, Known] = {}
        self._last_number = 0
        self._away: dict[str, Known] = {}
        self.on_closed: Callable[[Known, str, Instant], None] = lambda known, reason, now: None

    def __iter__(self) -> Iterator[Known]:
        return iter(list(self._known.values()))

    @property
    def away_count(self) -> int:
        """Return how many sessions may still come back."""
        return len(self._away)

    def away(self) -> list[Known]:
        """Return the sessions that may still come back."""
        return list(self._away.values())

    def get(self, session_id: str) -> Known | None:
        """Return the known session with this id."""
        return self._known.get(session_id.lower())

    # --- from state to state ----------------------------------------------------------------------------

    def enter(self, session: Session, record: KnownSessionRecord, now: Instant) -> Known:
        """Begin the life of a session, or of its next incarnation; the caller appends ``event_of``."""
        known = self._known.get(record.session_id.lower())
        if known is None:
            known = Known(record)
            self._known[record.session_id.lower()] = known
            self._make_room(now)
        else:
            self._leave_grace(known)
            self._closed.pop(record.session_id.lower(), None)
            known.record = record
        self._bind(known, session)
        return known

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
        known.session = None
        self._set(
            known,
            now,
            "session.reconnecting",
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
        known.session = None
        self._set(
            known,
            now,
            "session.closed",
            state=SessionState.CLOSED,
            state_since=now.wall,
            grace_deadline=None,
            closed_reason=reason,
        )
        self._closed[known.id.lower()] = known
        self.on_closed(known, reason, now)

    def changed(self, known: Known, now: Instant) -> None:
        """Store what peers see of a session, if that has changed."""
        session = known.session
        if session is not None:
            info = encode(session.info)
            if info != known.record.info:
                self._set(known, now, "session.changed", info=info)

    def hint(self, known: Known, hint: str | None, now: Instant) -> None:
        """Store what the session says it works on."""
        if hint != known.record.task_hint:
            self._set(known, now, "session.hint", task_hint=hint)

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
        self.close(known, "grace_timeout", now)

    def _set(self, known: Known, now: Instant, kind: str, **members: object) -> None:
        known.record = replace(known.record, **members)
        self._ledger.append((self._journal.event(kind, known.record, now),))

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
        self._ledger.append((self._journal.event("session.forgotten", known.record, now, is_gone=True),))


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
