"""Let the broker finish what is open before it leaves, and take nothing new meanwhile (protocol 3.10).

    serving --broker_drain--> working --nothing is in work, twice--> emptying links --nothing is in work still--> stop
                               |   ^---------- something is again ---------+
                               +-- the time is up, whatever is open ----------------------------------------------> stop

Rule 1: what was begun may end: answers, reports, receipts and plain messages are taken as ever. Rule 2: what is neither
begun nor needs somebody who is here does not hold the broker up: it is on disk, and the next broker goes on with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from intercom.core.clock import Instant
from intercom.core.effects import Stop
from intercom.drains import Outcome
from intercom.wire.flows import FlowCreate, FlowResume, FlowRetry, FlowStart
from intercom.wire.frames import BrokerDrain, BrokerDrained
from intercom.wire.invocations import Invoke
from intercom.wire.links import CommandSend
from intercom.wire.mail import RequestFailed
from intercom.wire.watching import SpawnSession
from intercom.wire.work import InboxClaim, InboxDispatch

if TYPE_CHECKING:
    from intercom.core.assignments import Assignments
    from intercom.core.connections import Connection
    from intercom.core.deadlines import Deadlines
    from intercom.core.flows import FlowsOfBroker
    from intercom.core.invoking import Invoking
    from intercom.core.links import Links
    from intercom.core.outbox import Outbox
    from intercom.core.questions import Questions
    from intercom.core.sessions import SessionTable
    from intercom.limits import Limits

NEW_WORK = (
    Invoke,
    InboxDispatch,
    InboxClaim,
    CommandSend,
    SpawnSession,
    FlowCreate,
    FlowStart,
    FlowResume,
    FlowRetry,
)
"""Requests that begin something, which a broker that drains refuses."""
REFUSED = "The broker stops soon and takes nothing new; ask again in a moment"
REASON = "it was drained"
"""Why the broker stops."""


class Draining:
    """Watch what is in work until nothing is, or until the time is up."""

    def __init__(
        self,
        questions: Questions,
        sessions: SessionTable,
        assignments: Assignments,
        flows: FlowsOfBroker,
        invoking: Invoking,
        links: Links,
        deadlines: Deadlines,
        outbox: Outbox,
        limits: Limits,
        shut: Callable[[], None],
    ) -> None:
        """``shut`` closes every way by which something new begins."""
        self._questions = questions
        self._sessions = sessions
        self._assignments = assignments
        self._flows = flows
        self._invoking = invoking
        self._links = links
        self._deadlines = deadlines
        self._outbox = outbox
        self._limits = limits
        self._shut = shut
        self._askers: list[tuple[Connection, str]] = []
        self._since: Instant | None = None
        self._until = 0
        """Monotonic ms."""
        self._was_idle = False
        self._is_emptying = False
        """The links are asked to say when their inboxes are empty."""
        self._failed: list[str] = []
        self._is_over = False

    def begin(self, connection: Connection, frame: BrokerDrain, now: Instant) -> None:
        """Begin to drain, or wait for the end of what another one began; the newest one says how long it may take."""
        self._askers.append((connection, frame.request_id))
        self._until = now.mono + frame.timeout_ms
        if self._since is None:
            self._since = now
            self._outbox.note("draining", timeout_ms=frame.timeout_ms)
            self._shut()
            self._links.leave(frame.timeout_ms)
        self._look(None, now)

    def refuse(self, connection: Connection, frame: Any) -> None:
        """Refuse what would begin something."""
        self._outbox.write(connection, RequestFailed(frame.request_id, "broker_draining", REFUSED, True))

    @property
    def report(self) -> dict[str, Any] | None:
        """Return what the status tells of it, if the broker drains."""
        if self._since is None:
            return None
        until = self._since.wall + self._until - self._since.mono
        return {"since": self._since.wall, "until": until, "open": self.in_work()}

    def in_work(self) -> dict[str, int]:
        """Return how much of each kind those who are here are busy with, kinds of which there is something."""
        counts = {
            "questions": sum(
                1 for each in self._questions if self._is_here(each.asker_id) and self._is_here(each.target_id)
            ),
            "assignments": sum(1 for each in self._assignments.all() if self._is_here(each.record.session_id)),
            "steps": self._flows.count_in_work(self._is_here),
            "runs": self._invoking.count_in_work(self._is_here),
            "commands": self._links.count_in_work(),
        }
        return {kind: count for kind, count in counts.items() if count}

    def _is_here(self, session_id: str) -> bool:
        return self._sessions.get(session_id) is not None

    def _look(self, _: None, now: Instant) -> None:
        """Look whether it is over; it is looked again soon, because the end of one thing may begin another."""
        if self._is_over:
            return
        is_idle = not self.in_work()
        if now.mono >= self._until:
            self._end()
        elif is_idle and self._was_idle and not self._is_emptying:
            self._is_emptying = True
            self._links.drain(self._emptied)
        self._was_idle = is_idle
        if not self._is_over:
            self._deadlines.add(min(now.mono + self._limits.drain_look_ms, self._until), self._look)

    def _emptied(self, outcome: Outcome) -> None:
        self._is_emptying = False
        self._failed += [str(error) for error in _parts(outcome)]
        if not self.in_work():
            self._end()

    def _end(self) -> None:
        """Tell everybody who asked how it ended, and stop."""
        if self._is_over:
            return
        self._is_over = True
        left, failed = self.in_work(), self._failed
        self._outbox.note("drained", open=left, failed=failed)
        for connection, request_id in self._askers:
            self._outbox.write(connection, BrokerDrained(request_id, not left and not failed, left, failed))
        self._outbox.add(Stop(REASON))


def _parts(outcome: Outcome) -> list[Exception]:
    if outcome is None:
        return []
    return list(outcome.exceptions) if isinstance(outcome, ExceptionGroup) else [outcome]
