"""Follow what happens in a broker: how things are at a sequence of its journal, then everything behind it, once.

A watch survives its connection: it goes on behind the last thing it was told. It keeps at most ``WATCHED_KEPT`` things
that its program has not taken; then it is ended at the broker, and begun again where it was once they were taken. So
nothing is lost, whoever is slow, as long as the journal still has it; when it has not, a new snapshot says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias
from weakref import WeakSet, WeakValueDictionary

from msgspec import UNSET, MsgspecError, Struct, UnsetType
from msgspec.json import decode

from intercom.client.composing import clean_text
from intercom.client.contact import Contact
from intercom.client.notices import Happened, News
from intercom.client.outcomes import again
from intercom.client.patience import PatientRequest
from intercom.client.pursuing import Pursuit
from intercom.client.views import Malformed
from intercom.errors import IntercomError, RequestRefused, UsageError
from intercom.limits import WATCH_SUBJECTS, WATCHED_KEPT
from intercom.wire import watching
from intercom.wire.watching import UnwatchRequest, WatchAlive, WatchedEvent, WatchEnded, Watching, WatchRequest

AddressName: TypeAlias = str | tuple[str, str]
"""Name of an address, alone or with its home group."""
Restart: TypeAlias = Literal["ahead", "compacted", "other_journal"]


class WatchedState(Struct, frozen=True, kw_only=True):
    """Say how one thing was when a watch began: what ``kind`` it is, and ``about`` which one by ids and names."""

    kind: str
    state: str
    about: dict[str, str]
    detail: dict[str, Any]


class WatchSnapshot(Struct, frozen=True, kw_only=True):
    """Tell how things are; everything that happens after it is told behind it.

    ``restarted`` says that a watch could not go on where it was, and why: what happened in between is not told.
    ``left_out`` counts what did not fit into ``states``.
    """

    position: str
    """Where a later watch can go on."""
    states: tuple[WatchedState, ...]
    restarted: Restart | None
    left_out: int


class WatchEvent(Struct, frozen=True, kw_only=True):
    """Tell one thing that happened, after it was recorded; times are epoch milliseconds."""

    position: str
    """Where a later watch can go on behind it."""
    seq: int
    """Its number in the journal."""
    kind: str
    """Such as ``session.closed`` or ``mail.delivered``; more kinds may come."""
    at: int
    about: dict[str, str]
    """Whom or what it is about: ids and names."""
    detail: dict[str, Any]
    """More about it, such as ``state`` or ``reason``; never the text of a message."""
    kept: bool = True
    """False: it is in no journal, and told only to who follows it just now; ``seq`` is that of what was told last."""


Watched: TypeAlias = WatchSnapshot | WatchEvent


class Watch:
    """Hold one watch; made by ``Watches.open``."""

    def __init__(self, subjects: list[watching.WatchSubject], after: tuple[int, str | None] | None) -> None:
        self.subjects = subjects
        self.seq: int | None = None if after is None else after[0]
        """Everything up to here came; ``None`` before the first snapshot."""
        self.taken = self.seq
        """Everything up to here was taken."""
        self.journal_id = None if after is None else after[1]
        self.watch_id: str | None = None
        """On the present connection."""
        self.asking: PatientRequest[None] | None = None
        """The request that is not answered."""
        self.is_full = False
        """It was ended at the broker until what it keeps was taken."""
        self.is_closed = False
        self.trouble: IntercomError | None = None
        """Why it is over."""
        self.kept: deque[Watched] = deque()

    @property
    def has_news(self) -> bool:
        """Tell whether there is something to take, or a reason why nothing more will come."""
        return bool(self.kept) or self.trouble is not None

    @property
    def position(self) -> str | None:
        """Return where a later watch can go on behind what was taken; ``None`` while nothing was."""
        seq = self.taken if self.kept else self.seq
        return None if seq is None else _position(seq, self.journal_id)

    def request(self, request_id: str) -> WatchRequest:
        """Return the frame that begins it, or goes on with it."""
        return WatchRequest(
            request_id,
            self.subjects or UNSET,
            UNSET if self.seq is None else self.seq,
            UNSET if self.journal_id is None else self.journal_id,
        )


class _Asking(PatientRequest[None]):
    """Wait until a watch has begun; what it fails with is the end of the watch."""

    def __init__(self, watch: Watch, begun: Callable[[Watch, Watching], None], failed: Callable[[Watch], None]) -> None:
        super().__init__(watch.request, Watching, lambda answer: begun(watch, answer), None)
        self._watch = watch
        self._failed = failed

    def fail(self, error: Exception) -> None:
        """Settle with an error, which is the program's to see."""
        super().fail(error)
        if isinstance(error, IntercomError):
            self._watch.trouble = error
        self._failed(self._watch)


class Watches:
    """Hold the watches of a session that somebody still takes from; one whose taker is gone is ended.

    ``clock`` tells the monotonic time.
    """

    def __init__(
        self, contact: Contact, pursuit: Pursuit, news: News, clock: Callable[[], int], ids: Callable[[], str]
    ) -> None:
        self._contact = contact
        self._pursuit = pursuit
        self._news = news
        self._clock = clock
        self._ids = ids
        self._open: WeakSet[Watch] = WeakSet()
        self._by_id: WeakValueDictionary[str, Watch] = WeakValueDictionary()
        self._unwanted: set[str] = set()
        """Watches of this connection that the broker was asked to end."""
        self.handlers: dict[type[Any], Callable[[Any, int], None]] = {
            watching.WatchEvent: self._on_event,
            WatchAlive: self._on_alive,
            WatchEnded: self._on_ended,
        }

    def open(self, subjects: list[watching.WatchSubject], after: tuple[int, str | None] | None) -> Watch:
        """Begin a watch."""
        watch = Watch(subjects, after)
        self._open.add(watch)
        self._ask(watch)
        return watch

    def take(self, watch: Watch) -> Watched | None:
        """Return the next thing a watch was told, ``None`` when there is none yet; raise why it is over."""
        if watch.kept:
            taken = watch.kept.popleft()
            watch.taken = after_seq(taken)
            if watch.is_full and not watch.kept:
                watch.is_full = False
                self._ask(watch)
            return taken
        if watch.is_closed:
            raise UsageError("the watch is closed", hint="Begin another one.")
        if watch.trouble is not None:
            raise again(watch.trouble)
        return None

    def close(self, watch: Watch) -> None:
        """End a watch."""
        watch.is_closed = True
        watch.kept.clear()
        self._open.discard(watch)
        asking, watch.asking = watch.asking, None
        if asking is not None and not asking.done:
            self._pursuit.withdraw(asking, self._clock())
        self._end_at_broker(watch)

    # --- the connection ---------------------------------------------------------------------------------

    def lost(self) -> None:
        """Take notice that the connection ended, and with it every watch at the broker."""
        self._by_id.clear()
        self._unwanted.clear()
        for watch in list(self._open):
            watch.watch_id = None
            if not watch.is_full:
                self._ask(watch)

    # --- what the broker tells --------------------------------------------------------------------------

    def _begun(self, watch: Watch, answer: Watching) -> None:
        watch.asking = None
        watch.watch_id = answer.watch_id
        watch.journal_id, watch.seq = answer.journal_id, answer.seq
        self._by_id[answer.watch_id] = watch
        if answer.snapshot is not UNSET:
            snapshot = WatchSnapshot(
                position=_position(answer.seq, answer.journal_id),
                states=tuple(_state_of(state) for state in answer.snapshot),
                restarted=None if answer.restarted is UNSET else answer.restarted,
                left_out=answer.left_out,
            )
            self._keep(watch, snapshot)

    def _failed(self, watch: Watch) -> None:
        watch.asking = None
        self._news.add(Happened())

    def _on_event(self, answer: watching.WatchEvent, now: int) -> None:
        watch = self._by_id.get(answer.watch_id)
        if watch is None or watch not in self._open:
            self._forget(answer.watch_id)
            return
        watch.seq = answer.seq
        self._keep(watch, _event_of(answer, watch))

    def _on_alive(self, answer: WatchAlive, now: int) -> None:
        watch = self._by_id.get(answer.watch_id)
        if watch is None or watch not in self._open:
            self._forget(answer.watch_id)
        else:
            watch.seq = answer.seq

    def _on_ended(self, answer: WatchEnded, now: int) -> None:
        watch = self._by_id.pop(answer.watch_id, None)
        if watch is None or watch not in self._open or answer.reason == "unwatched":
            return
        watch.watch_id = None
        if answer.reason in ("too_slow", "compacted"):
            self._ask(watch)
        elif answer.reason in ("not_read", "store_unusable"):
            reason, retry = _ENDS[answer.reason]
            watch.trouble = RequestRefused(reason, code=answer.reason, retry="after" if retry else "never")
            self._news.add(Happened())

    # --- inner works ------------------------------------------------------------------------------------

    def _ask(self, watch: Watch) -> None:
        if watch.asking is not None or watch.is_closed or watch.trouble is not None:
            return
        watch.asking = _Asking(watch, self._begun, self._failed)
        self._pursuit.begin(watch.asking, self._clock())

    def _keep(self, watch: Watch, told: Watched) -> None:
        watch.kept.append(told)
        self._news.add(Happened())
        if len(watch.kept) >= WATCHED_KEPT:
            watch.is_full = True
            self._end_at_broker(watch)

    def _end_at_broker(self, watch: Watch) -> None:
        watch_id, watch.watch_id = watch.watch_id, None
        if watch_id is not None:
            self._forget(watch_id)

    def _forget(self, watch_id: str) -> None:
        """Have the broker end a watch nobody takes from, once; what still comes of it is passed over."""
        self._by_id.pop(watch_id, None)
        if watch_id not in self._unwanted and self._contact.is_online:
            self._unwanted.add(watch_id)
            self._contact.write(UnwatchRequest(self._ids(), watch_id))


def subjects_of(
    *,
    sessions: Iterable[str] = (),
    addresses: Iterable[AddressName] = (),
    groups: Iterable[str] = (),
    messages: Iterable[str] = (),
    assignments: Iterable[str] = (),
    flows: Iterable[str] = (),
    invocations: Iterable[str] = (),
    links: Iterable[str] = (),
) -> list[watching.WatchSubject]:
    """Return what a watch is to follow; nothing stands for everything. Raises ``UsageError`` for what names nothing."""
    found = [_address(name) for name in _several(addresses, "addresses")]
    for member, ids in (
        ("session_id", sessions),
        ("group", groups),
        ("message_id", messages),
        ("assignment_id", assignments),
        ("flow_id", flows),
        ("invocation_id", invocations),
        ("link_id", links),
    ):
        found += [watching.WatchSubject(**{member: _named(name, member)}) for name in _several(ids, member)]
    if len(found) > WATCH_SUBJECTS:
        raise UsageError(f"one watch follows at most {WATCH_SUBJECTS} things, not {len(found)}")
    return found


def after_of(after: int | str | None) -> tuple[int, str | None] | None:
    """Return the sequence, and the journal if it is named, of a position; raise ``UsageError`` for what is none."""
    if after is None:
        return None
    seq, _, journal_id = str(after).partition("@")
    if isinstance(after, bool) or not (seq.isascii() and seq.isdigit()) or len(seq) > 18:
        raise UsageError(f"after is no position of a watch: {after!r}", hint="Give one that a watch has named.")
    return int(seq), journal_id or None


def _several(names: Any, what: str) -> Sequence[Any]:
    if isinstance(names, str):
        raise UsageError(f"{what} must be several, not a string", hint="Put it into a list.")
    return list(names)


def _named(name: Any, what: str) -> str:
    cleaned = clean_text(name, what)
    if not cleaned.strip():
        raise UsageError(f"{what} is empty")
    return cleaned


def _address(name: AddressName) -> watching.WatchSubject:
    given, group = (name, UNSET) if isinstance(name, str) else (name[0], _named(name[1], "group"))
    where: str | UnsetType = group
    return watching.WatchSubject(address=_named(given, "address"), group=where)


def after_seq(told: Watched) -> int:
    """Return the sequence up to which everything was taken by whoever has taken this."""
    return int(told.position.partition("@")[0])


def _position(seq: int, journal_id: str | None) -> str:
    return str(seq) if journal_id is None else f"{seq}@{journal_id}"


def _state_of(state: watching.WatchedState) -> WatchedState:
    detail = {} if state.detail is UNSET else state.detail
    return WatchedState(kind=state.kind, state=state.state, about=state.about, detail=detail)


def _event_of(answer: watching.WatchEvent, watch: Watch) -> WatchEvent:
    try:
        event = decode(answer.event, type=WatchedEvent)
    except MsgspecError as error:
        raise Malformed(f"an event that is none: {error}") from error
    return WatchEvent(
        position=_position(answer.seq, watch.journal_id),
        seq=answer.seq,
        kind=event.kind,
        at=event.at,
        about=event.about,
        detail={} if event.detail is UNSET else event.detail,
        kept=event.kept,
    )


_ENDS = {
    "not_read": ("The broker could not read its journal", True),
    "store_unusable": ("The broker's store was closed, so nothing is recorded that could be followed", False),
}
"""Reasons for which the broker ends a watch that going on does not cure, and whether they pass."""
