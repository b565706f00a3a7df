"""Keep the work a session was handed until its worker takes it, and know a copy as a copy.

Work is confirmed when it comes, not when it is taken: whoever hands it over waits two seconds for that. What nobody
accepts goes back to the inbox by its own deadline, and is not shown after that. Times are monotonic milliseconds unless
they are called ``wall``, which are epoch milliseconds.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from weakref import WeakSet

from msgspec import UNSET

from intercom.client.assignment import Assignment
from intercom.client.contact import Contact
from intercom.client.lifecycle import WORK, Lifecycle
from intercom.client.notices import Arrived, News
from intercom.client.operations import Operation
from intercom.client.profile import Profile
from intercom.client.working import WorkRequests
from intercom.errors import IntercomError, RequestRefused, UsageError
from intercom.limits import ACCEPT_MARGIN_MS, ASSIGNMENT_IDS_KEPT, ASSIGNMENTS_KEPT
from intercom.wire.frames import MessageFrame, Received


class Worklist:
    """Hold the assignments of a session."""

    def __init__(
        self, profile: Profile, contact: Contact, lifecycle: Lifecycle, news: News, requests: WorkRequests
    ) -> None:
        self._profile = profile
        self._contact = contact
        self._lifecycle = lifecycle
        self._news = news
        self._requests = requests
        self._untaken: deque[Assignment] = deque()
        self._known: OrderedDict[str, None] = OrderedDict()
        """Ids of assignments that came, oldest first."""
        self._taken: WeakSet[Assignment] = WeakSet()
        """What consumers have, for as long as they keep it."""
        self._search: Operation[Assignment | None] | None = None
        self._trouble: IntercomError | None = None
        """Why the last search failed, until a consumer is told."""

    def pushed(self, frame: MessageFrame) -> None:
        """Take work that the broker hands over; what finds no room is not confirmed, so it goes back."""
        assert frame.assignment is not UNSET, "only called for work"
        work = self._requests.pushed(frame.assignment, frame.sender, frame.message, frame.invocation)
        if work.id not in self._known:
            if len(self._untaken) >= ASSIGNMENTS_KEPT:
                return
            self._keep(work)
        if self._contact.confirms:
            self._contact.write(Received(work.message.id, frame.push_id))

    def has_news(self, wall: int, *, claims: bool) -> bool:
        """Tell whether ``take`` would give work, or ``search`` return something or raise."""
        self._drop_late(wall)
        return bool(self._untaken) or self._trouble is not None or (self._searches(claims=claims) and self._may_search)

    def take(self, wall: int) -> Assignment | None:
        """Give the next assignment that can still be accepted, oldest first."""
        self._drop_late(wall)
        if not self._untaken:
            return None
        work = self._untaken.popleft()
        self._taken.add(work)
        return work

    def search(self, until: int | None, *, claims: bool) -> Operation[Assignment | None] | None:
        """Return the operation that asks the broker for work until a time; ``None`` when none is to be begun.

        Raises why there can be no work, or, once, why the last search failed.
        """
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble
        if self._profile.work.mode is None:
            raise UsageError("this session takes no work", hint="Connect with work_mode='resident'.")
        if self._contact.is_online and WORK not in self._lifecycle.features:
            raise RequestRefused("The broker gives this session no work", code="feature_not_granted")
        if not self._searches(claims=claims) or not self._may_search:
            return None
        search = self._requests.awaiting(until, claims=claims, is_known=lambda found: found in self._known)
        search.on_end = lambda: self._found(search)
        self._search = search
        return search

    def lost(self) -> None:
        """Take notice that the session is another one to the broker, which has given back what was not accepted."""
        self._untaken.clear()

    def left_behind(self) -> Iterator[Assignment]:
        """Return what is not over and nobody will go on with: the session ends."""
        yield from self._untaken
        self._untaken.clear()
        yield from [work for work in self._taken if not work.is_over]

    @property
    def _may_search(self) -> bool:
        return self._search is None or self._search.done

    def _searches(self, *, claims: bool) -> bool:
        return claims or self._profile.work.mode == "managed_turn"

    def _found(self, search: Operation[Assignment | None]) -> None:
        if search.result is not None:
            self._keep(search.result)
        elif isinstance(search.error, IntercomError):
            self._trouble = search.error
        self._news.add(Arrived())

    def _keep(self, work: Assignment) -> None:
        self._known[work.id] = None
        while len(self._known) > ASSIGNMENT_IDS_KEPT:
            self._known.popitem(last=False)
        self._untaken.append(work)
        self._news.add(Arrived())

    def _drop_late(self, wall: int) -> None:
        while self._untaken:
            first = self._untaken[0]
            if first.accepted or first.accept_deadline is None or first.accept_deadline - wall > ACCEPT_MARGIN_MS:
                return
            self._untaken.popleft()
