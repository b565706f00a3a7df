"""Tell a program what happens around its session, for as long as somebody listens and without ever waiting for it."""

from __future__ import annotations

from collections import deque
from typing import Literal, TypeAlias
from weakref import WeakSet

from msgspec import Struct

from intercom.client.notices import Happened, News
from intercom.client.views import SessionView, view_of
from intercom.limits import EVENTS_KEPT
from intercom.wire.frames import PresenceUpdate, SessionJoined, SessionLeft

EventKind: TypeAlias = Literal[
    "joined",
    "left",
    "presence",
    "disconnected",
    "reconnected",
    "run_lost",
    "stage_lost",
    "report_prepared",
    "report_published",
    "report_accepted",
    "report_refused",
    "missed",
]


class SessionEvent(Struct, frozen=True, kw_only=True):
    """Tell one thing that happened.

    ``joined`` and ``presence`` carry the ``session`` they are about as it is now, and its ``session_id``; of a session
    that ``left``, only the id is known. ``disconnected`` carries the ``reason`` and ``reconnected`` this session's own
    id: what others did in between is not told, ``list`` shows it. ``run_lost`` says that the broker does not know the
    run ``run_id`` as this session's any more, ``stage_lost`` that this session is no stage of it any more, each with
    the ``reason``. ``report_prepared``, ``report_published`` and ``report_accepted`` say that the report of the
    dispatch ``dispatch_id`` was written down, is sent (perhaps again), and is on disk at the broker; ``report_refused``
    says with a code as ``reason`` that the broker did not take it. ``missed`` says that ``count`` events before the
    next one were dropped because they were not taken in time.
    """

    kind: EventKind
    session_id: str | None = None
    session: SessionView | None = None
    reason: str | None = None
    count: int = 0
    run_id: str | None = None
    dispatch_id: str | None = None


class Feed:
    """Keep the latest ``EVENTS_KEPT`` events for one listener; the oldest go first."""

    def __init__(self) -> None:
        self._kept: deque[SessionEvent] = deque()
        self._missed = 0

    @property
    def has_news(self) -> bool:
        """Tell whether ``take`` would give an event."""
        return bool(self._kept)

    def put(self, event: SessionEvent) -> None:
        """Keep an event."""
        if len(self._kept) >= EVENTS_KEPT:
            self._kept.popleft()
            self._missed += 1
        self._kept.append(event)

    def take(self) -> SessionEvent | None:
        """Give the next event, or ``None`` when there is none yet."""
        if self._missed:
            missed, self._missed = self._missed, 0
            return SessionEvent(kind="missed", count=missed)
        return self._kept.popleft() if self._kept else None


class Feeds:
    """Hold the feeds of those who still listen; one whose listener is gone is forgotten."""

    def __init__(self, news: News) -> None:
        self._news = news
        self._open: WeakSet[Feed] = WeakSet()

    def __bool__(self) -> bool:
        return len(self._open) > 0

    def open(self) -> Feed:
        """Return a feed of everything that happens from now on."""
        feed = Feed()
        self._open.add(feed)
        return feed

    def put(self, event: SessionEvent) -> None:
        """Give an event to everybody who listens; ``Happened`` tells the shell so."""
        if not self._open:
            return
        for feed in self._open:
            feed.put(event)
        self._news.add(Happened())


def told_of(answer: SessionJoined | PresenceUpdate | SessionLeft) -> SessionEvent:
    """Return the event for what the broker tells of another session; raise ``Malformed`` for a broken one."""
    if isinstance(answer, SessionLeft):
        return SessionEvent(kind="left", session_id=answer.session_id)
    view = view_of(answer.session)
    kind: EventKind = "joined" if isinstance(answer, SessionJoined) else "presence"
    return SessionEvent(kind=kind, session_id=view.id, session=view)
