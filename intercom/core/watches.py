"""Let sessions follow what happens: how things are at a sequence, then everything behind it (FE 5.2 P11).

    watch ----------------------------> live: told of each event once it is committed
    watch with a sequence --> catching up --(what is on disk is told, page by page)--> live
      catching up, live --> ended: by its session, by the broker, or because its client does not read

Rule 1: an event is told only after its commit, and to whom it concerns: it is looked up by its keys, never by asking
every watch. What no journal keeps is mentioned to who is live, and says so. Rule 2: nothing is buffered: what is
written and not taken by the kernel is counted, and a watch that catches up reads on when all was taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import UNSET, Raw, Struct
from msgspec.json import encode

from intercom.core import features
from intercom.core.addresses import Address, Addresses
from intercom.core.clock import Instant
from intercom.core.concerns import Concern, State, key
from intercom.core.connections import Connection
from intercom.core.deadlines import Deadline, Deadlines
from intercom.core.ledger import Ledger
from intercom.core.outbox import Outbox
from intercom.core.records import Happened, JournalPage, ReadJournal, Row
from intercom.core.sessions import Session
from intercom.limits import Limits
from intercom.wire import reasons
from intercom.wire.mail import RequestFailed
from intercom.wire.watching import (
    End,
    Restart,
    UnwatchRequest,
    WatchAlive,
    WatchedEvent,
    WatchedState,
    WatchEnded,
    WatchEvent,
    Watching,
    WatchRequest,
    WatchSubject,
)

EVERYTHING = "*"
"""Key under which those are found who follow all."""
UNKNOWN = "unknown"
"""State of what the broker does not know, or no longer."""
_SUBJECTS = (
    ("session", "session_id", "sessionId"),
    ("group", "group", "group"),
    ("message", "message_id", "messageId"),
    ("assignment", "assignment_id", "assignmentId"),
    ("flow", "flow_id", "flowId"),
    ("invocation", "invocation_id", "invocationId"),
    ("link", "link_id", "linkId"),
)
"""Kinds of subjects beside addresses, with their members in a request and their names on the wire."""


_TOO_MANY = "This session, or all together, have as many watches as are kept; end one that is not needed"
_NOT_ALLOWED = "Only who is concerned and the operator may follow this"
_NOT_READ = "The journal could not be read; watch again"


class Subject(Struct, frozen=True):
    """Name one thing that is followed."""

    kind: str
    id: str
    key: str
    about: dict[str, str]
    """How it is shown while nothing is known of it."""


class No(Struct, frozen=True):
    """Say why a request is refused."""

    code: str
    reason: str
    retryable: bool = False


class Watch:
    """Hold one watch."""

    __slots__ = (
        "alive",
        "connection",
        "id",
        "is_live",
        "is_over",
        "keys",
        "position",
        "request_id",
        "session",
        "subjects",
        "unsent",
        "unsent_bytes",
    )

    def __init__(self, watch_id: str, connection: Connection, session: Session, subjects: tuple[Subject, ...]) -> None:
        self.id = watch_id
        self.connection = connection
        self.session = session
        self.subjects = subjects
        """What it follows; nothing named is everything its session may see."""
        self.keys: tuple[str, ...] = ()
        """Under which it is found."""
        self.position = 0
        """Up to here everything was told, or was in the snapshot."""
        self.request_id: str | None = None
        """Of the request, while it is not answered."""
        self.is_live = False
        self.is_over = False
        self.unsent = 0
        self.unsent_bytes = 0
        """Events that were written and that the kernel has not taken."""
        self.alive: Deadline | None = None


class Told(Struct, frozen=True):
    """Mark an event that was written for a watch."""

    watch: Any
    size: int


class CatchingUp(Struct, frozen=True):
    """Remember for which watch the journal is read."""

    watch: Any


class Watches:
    """Know who follows what, and tell them.

    ``follow`` and ``describe`` are called once for each kind of row and of thing, before anything else.
    """

    def __init__(
        self,
        addresses: Addresses,
        ledger: Ledger,
        deadlines: Deadlines,
        outbox: Outbox,
        limits: Limits,
        journal_id: str,
        last_sequence: int,
    ) -> None:
        self._addresses = addresses
        self._ledger = ledger
        self._deadlines = deadlines
        self._outbox = outbox
        self._limits = limits
        self._journal_id = journal_id
        self._committed = last_sequence
        """Sequence of the newest event that is known to be on disk."""
        self._concerns: dict[type[Row], Callable[[Happened], Concern | None]] = {}
        self._describers: dict[str, tuple[Callable[[str], State | None], Callable[[], Iterable[State]]]] = {}
        self._by_connection: dict[int, dict[str, Watch]] = {}
        self._by_key: dict[str, dict[Watch, None]] = {}
        self._count = 0
        self._made = 0

    def __len__(self) -> int:
        return self._count

    def follow(self, row: type[Row], concern: Callable[[Happened], Concern | None]) -> None:
        """Learn whom the events of a kind of row concern; ``None`` is nobody."""
        self._concerns[row] = concern

    @property
    def followed(self) -> frozenset[type[Row]]:
        """Return the kinds of rows whose events can be told."""
        return frozenset(self._concerns)

    def describe(self, kind: str, one: Callable[[str], State | None], every: Callable[[], Iterable[State]]) -> None:
        """Learn how one thing of a kind is, by its id, and how all are that are not over."""
        self._describers[kind] = (one, every)

    # --- requests ---------------------------------------------------------------------------------------

    def watch(self, connection: Connection, session: Session, frame: WatchRequest, now: Instant) -> None:
        """Begin a watch, or refuse it (protocol 4.55)."""
        mine = self._by_connection.get(connection.number, {})
        if len(mine) >= self._limits.watches_per_session or self._count >= self._limits.watches:
            return self._refuse(connection, frame.request_id, No("watch_limit", _TOO_MANY, retryable=True))
        subjects = self._subjects_of(session, [] if frame.of is UNSET else frame.of)
        if isinstance(subjects, No):
            return self._refuse(connection, frame.request_id, subjects)
        self._made += 1
        watch = Watch(f"w{self._made}", connection, session, subjects)
        watch.request_id = frame.request_id
        self._enter(watch, now)
        if frame.after_seq is UNSET:
            return self._begin_with_snapshot(watch, UNSET, now)
        if frame.journal_id not in (UNSET, self._journal_id):
            return self._begin_with_snapshot(watch, "other_journal", now)
        watch.position = frame.after_seq
        return self._read_on(watch)

    def unwatch(self, connection: Connection, frame: UnwatchRequest, now: Instant) -> None:
        """End a watch; one that is over already is fine (protocol 4.56)."""
        watch = self._by_connection.get(connection.number, {}).get(frame.watch_id)
        if watch is not None:
            self._leave(watch)
        position = 0 if watch is None else watch.position
        self._outbox.write(connection, WatchEnded(frame.watch_id, "unwatched", position, frame.request_id))

    def _subjects_of(self, session: Session, named: list[WatchSubject]) -> tuple[Subject, ...] | No:
        found = []
        for each in named:
            subject = self._subject_of(session, each)
            if isinstance(subject, No):
                return subject
            found.append(subject)
        return tuple(found)

    def _subject_of(self, session: Session, named: WatchSubject) -> Subject | No:
        if named.address is not UNSET:
            address = self._address(named.address, None if named.group is UNSET else named.group)
            if isinstance(address, No):
                return address
            subject = Subject("address", str(address.number), address.key, {"address": address.name})
        else:
            [subject] = [
                Subject(kind, value, key(kind, value), {name: value})
                for kind, member, name in _SUBJECTS
                if (value := getattr(named, member)) is not UNSET
            ]
        if subject.kind == "group":
            is_allowed = subject.id in session.groups or features.OPERATOR in session.features
        else:
            state = self._state_of(subject)
            is_allowed = state is None or self._may_see(session, state.concern)
        return subject if is_allowed else No("not_allowed", _NOT_ALLOWED)

    def _address(self, name: str, group: str | None) -> Address | No:
        found = [address for address in self._addresses.named(name) if group is None or address.group == group]
        if not found:
            return No("unknown_address", f"No address {name} is known")
        if len(found) > 1:
            groups = ", ".join(sorted(address.group for address in found))
            return No("ambiguous_address", f"Several addresses are named {name}; name the group: {groups}")
        return found[0]

    # --- who is found under which key -------------------------------------------------------------------

    def _enter(self, watch: Watch, now: Instant) -> None:
        self._by_connection.setdefault(watch.connection.number, {})[watch.id] = watch
        self._count += 1
        self._index(watch)
        watch.alive = self._deadlines.add(now.mono + self._limits.watch_alive_ms, self._show_life, watch)

    def _leave(self, watch: Watch) -> None:
        watch.is_over = True
        mine = self._by_connection[watch.connection.number]
        del mine[watch.id]
        if not mine:
            del self._by_connection[watch.connection.number]
        self._count -= 1
        self._unindex(watch)
        self._deadlines.cancel(watch.alive)

    def _index(self, watch: Watch) -> None:
        if watch.subjects:
            keys = [subject.key for subject in watch.subjects]
        elif features.OPERATOR in watch.session.features:
            keys = [EVERYTHING]
        else:
            keys = [*_keys_of(watch.session), *(key("group", group) for group in watch.session.groups)]
        watch.keys = tuple(dict.fromkeys(keys))
        for each in watch.keys:
            self._by_key.setdefault(each, {})[watch] = None

    def _unindex(self, watch: Watch) -> None:
        for each in watch.keys:
            found = self._by_key[each]
            del found[watch]
            if not found:
                del self._by_key[each]

    def regrouped(self, session: Session) -> None:
        """Take notice that a session may be in other groups now."""
        for watch in self._by_connection.get(session.connection.number, {}).values():
            if not watch.subjects:
                self._unindex(watch)
                self._index(watch)

    # --- the snapshot -----------------------------------------------------------------------------------

    def _begin_with_snapshot(self, watch: Watch, restarted: Restart | Any, now: Instant) -> None:
        """Answer with how things are, uncommitted changes included: the answer waits for them."""
        states = self._snapshot(watch)
        told = states[: self._limits.watch_snapshot]
        watch.position = max(self._ledger.last_sequence, self._committed)
        watch.is_live = True
        answer = Watching(
            self._asked_by(watch),
            watch.id,
            self._journal_id,
            watch.position,
            [_shown_state(state) for state in told],
            restarted,
            len(states) - len(told),
        )
        ticket = self._ledger.last_ticket
        self._outbox.write(watch.connection, answer, ticket)
        self._ledger.rest(ticket, self._not_begun, (watch, answer.request_id))

    def _not_begun(self, subject: Any, now: Instant) -> None:
        """Refuse a watch whose snapshot told of what could not be recorded."""
        watch, request_id = subject
        if not watch.is_over:
            self._leave(watch)
            self._refuse(watch.connection, request_id, No("not_recorded", reasons.NOT_STORED, retryable=True))

    def _snapshot(self, watch: Watch) -> list[State]:
        session = watch.session
        if not watch.subjects:
            return [state for state in self._every() if self._may_see(session, state.concern)]
        found = []
        for subject in watch.subjects:
            if subject.kind == "group":
                found += [
                    state
                    for state in self._every()
                    if subject.id in state.concern.groups and self._may_see(session, state.concern)
                ]
            else:
                state = self._state_of(subject)
                found.append(state or State(subject.kind, UNKNOWN, Concern((subject.key,), subject.about)))
        return found

    def _every(self) -> Iterable[State]:
        for _, every in self._describers.values():
            yield from every()

    def _state_of(self, subject: Subject) -> State | None:
        describer = self._describers.get(subject.kind)
        return None if describer is None else describer[0](subject.id)

    # --- telling ----------------------------------------------------------------------------------------

    def happened(self, event: Happened, now: Instant) -> None:
        """Tell an event that is committed now to those who follow what it concerns."""
        self._committed = max(self._committed, event.seq)
        if not self._by_key:
            return
        concern = self._concern_of(event)
        if concern is None:
            return
        found = self._who_follows(concern)
        if not found:
            return
        told = Raw(encode(_shown_event(event, concern)))
        for watch in found:
            if watch.is_live and event.seq > watch.position and self._may_see(watch.session, concern):
                if self._is_slow(watch, len(told)):
                    self._end(watch, "too_slow")
                else:
                    watch.position = event.seq
                    self._write_event(watch, event.seq, told)

    @property
    def is_any(self) -> bool:
        """Tell whether anybody follows anything: else there is nobody to ``mention`` anything to."""
        return bool(self._by_key)

    def mention(self, kind: str, concern: Concern, now: Instant) -> None:
        """Tell those who follow it now of something that no journal keeps; who reads slowly is not told."""
        found = self._who_follows(concern)
        if not found:
            return
        event = WatchedEvent(kind, now.wall, concern.about, concern.shown or UNSET, kept=False)
        told = Raw(encode(event))
        for watch in found:
            if watch.is_live and self._may_see(watch.session, concern) and not self._is_slow(watch, len(told)):
                self._write_event(watch, watch.position, told)

    def _who_follows(self, concern: Concern) -> dict[Watch, None]:
        found: dict[Watch, None] = {}
        for each in _found_under(concern):
            found.update(self._by_key.get(each, {}))
        return found

    def _is_slow(self, watch: Watch, size: int) -> bool:
        """Tell whether its client leaves so much unread that no more is written."""
        return watch.unsent > 0 and (
            watch.unsent >= self._limits.watch_unsent_frames
            or watch.unsent_bytes + size > self._limits.watch_unsent_bytes
        )

    def _write_event(self, watch: Watch, seq: int, told: Raw) -> None:
        size = len(told)
        self._outbox.write(watch.connection, WatchEvent(watch.id, seq, told), token=Told(watch, size))
        watch.unsent += 1
        watch.unsent_bytes += size

    def taken(self, told: Told) -> None:
        """Take notice that the kernel has taken an event that was written for a watch."""
        watch: Watch = told.watch
        watch.unsent -= 1
        watch.unsent_bytes -= told.size
        if not (watch.is_over or watch.is_live or watch.unsent):
            self._read_on(watch)

    def _show_life(self, watch: Watch, now: Instant) -> None:
        watch.alive = self._deadlines.add(now.mono + self._limits.watch_alive_ms, self._show_life, watch)
        if watch.unsent or watch.request_id is not None:
            return
        if watch.is_live:
            watch.position = max(watch.position, self._committed)
        self._outbox.write(watch.connection, WatchAlive(watch.id, watch.position))

    def _concern_of(self, event: Happened) -> Concern | None:
        return self._concerns[type(event.row)](event)

    def _may_see(self, session: Session, concern: Concern) -> bool:
        if features.OPERATOR in session.features:
            return True
        if any(group in session.groups for group in concern.groups):
            return True
        mine = _keys_of(session)
        return any(each in mine for each in concern.keys)

    # --- catching up ------------------------------------------------------------------------------------

    def _read_on(self, watch: Watch) -> None:
        self._outbox.add(ReadJournal(CatchingUp(watch), watch.position, self._limits.watch_page))

    def journal_read(self, token: CatchingUp, page: JournalPage | None, now: Instant) -> None:
        """Go on after a page of the journal was read; ``None`` says that it could not be."""
        watch: Watch = token.watch
        if watch.is_over:
            return None
        if page is None:
            return self._not_read(watch)
        if watch.request_id is not None:
            if page.compacted > watch.position:
                return self._begin_with_snapshot(watch, "compacted", now)
            if page.is_whole and watch.position > max(page.last, self._committed):
                return self._begin_with_snapshot(watch, "ahead", now)
            self._outbox.write(
                watch.connection, Watching(self._asked_by(watch), watch.id, self._journal_id, watch.position)
            )
        elif page.compacted > watch.position:
            return self._end(watch, "compacted")
        self._tell_page(watch, page)
        watch.position = page.last
        if page.is_whole and page.last >= self._committed:
            watch.is_live = True
        elif not watch.unsent:
            self._read_on(watch)
        return None

    def _tell_page(self, watch: Watch, page: JournalPage) -> None:
        for event in page.events:
            concern = self._concern_of(event)
            if concern is None:
                continue
            if any(each in watch.keys for each in _found_under(concern)) and self._may_see(watch.session, concern):
                self._write_event(watch, event.seq, Raw(encode(_shown_event(event, concern))))

    def _not_read(self, watch: Watch) -> None:
        if watch.request_id is None:
            return self._end(watch, "not_read")
        request_id = self._asked_by(watch)
        self._leave(watch)
        return self._refuse(watch.connection, request_id, No("not_read", _NOT_READ, retryable=True))

    # --- ends -------------------------------------------------------------------------------------------

    def session_left(self, connection: Connection, stays: bool) -> None:
        """Forget the watches of a session that departs; its connection is told when it ``stays``."""
        for watch in list(self._by_connection.get(connection.number, {}).values()):
            if stays:
                self._end(watch, "session_ended")
            else:
                self._leave(watch)

    def end_all(self, reason: End) -> None:
        """End every watch, because the broker does not go on with them."""
        for mine in list(self._by_connection.values()):
            for watch in list(mine.values()):
                self._end(watch, reason)

    def _end(self, watch: Watch, reason: End) -> None:
        request_id = watch.request_id
        self._leave(watch)
        if request_id is not None:
            no = No("not_read", _NOT_READ, retryable=True)
            return self._refuse(watch.connection, request_id, no)
        self._outbox.write(watch.connection, WatchEnded(watch.id, reason, watch.position))
        return None

    def _asked_by(self, watch: Watch) -> str:
        request_id, watch.request_id = watch.request_id, None
        assert request_id is not None, "a watch is answered once"
        return request_id

    def _refuse(self, connection: Connection, request_id: str, no: No) -> None:
        self._outbox.write(connection, RequestFailed(request_id, no.code, no.reason, no.retryable))


def _keys_of(session: Session) -> tuple[str, ...]:
    """Return the keys of what a session is."""
    keys = [key("session", session.id)]
    if session.address is not None:
        keys.append(session.address.key)
    return tuple(keys)


def _found_under(concern: Concern) -> tuple[str, ...]:
    """Return every key under which those are found who follow this."""
    return (EVERYTHING, *concern.keys, *(key("group", group) for group in concern.groups))


def _shown_event(event: Happened, concern: Concern) -> WatchedEvent:
    return WatchedEvent(concern.kind or event.kind, event.at, concern.about, concern.shown or UNSET)


def _shown_state(state: State) -> WatchedState:
    return WatchedState(state.kind, state.state, state.concern.about, state.concern.shown or UNSET)
