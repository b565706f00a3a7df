"""Own workflow runs over reconnects: what they announce, what is asked of them, and which of them the broker refused.

The broker refuses an announcement by ending the connection, without saying which one it means (protocol 4.14). It
handles frames in order and answers what it takes, so it means the first one that has no answer. That run alone is
dropped; the session connects again at once and announces the others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from intercom.client.composing import clean_text
from intercom.client.operations import RequestOperation
from intercom.client.profile import Profile
from intercom.client.queueing import (
    HOST_FAILED,
    HOST_IS_BUSY,
    RUN_IS_OVER,
    Asked,
    Reached,
    StageQueue,
    asked,
    checked_answer,
    reached,
    result_of,
)
from intercom.client.rosters import (
    PossibleStage,
    Rostered,
    RosterStage,
    base_of,
    checked_owner_group,
    checked_run,
    parent_of,
    rostered,
)
from intercom.errors import RunRefused, UsageError
from intercom.limits import ENDED_RUNS_KEPT, STAGE_REQUESTS
from intercom.wire.frames import (
    PendingStageMessage,
    PendingStageRouteRegistered,
    RegisterPendingStageRoute,
    StickyLiveDelivered,
)
from intercom.wire.stage_frames import ParentRun

if TYPE_CHECKING:
    from intercom.wire.unions import Request


class Run(Struct, kw_only=True, eq=False):
    """Hold one run of this session."""

    id: str
    group: str
    capability: str
    is_dormant: bool
    parent: ParentRun | None
    rostered: Rostered
    waiting: deque[Asked | Reached]
    """What its host has not looked at yet."""
    lost: str | None = None
    """Why the broker does not know it as this session's any more."""

    def frame(self, announced: Rostered, request_id: str | None) -> RegisterPendingStageRoute:
        """Return the frame that announces the run with these stages."""
        return announced.frame(
            self.id,
            group=self.group,
            capability=self.capability,
            dormant=self.is_dormant,
            parent=self.parent,
            request_id=request_id,
        )

    def changed(self, roster: Iterable[RosterStage] | None, possible: Iterable[PossibleStage | str] | None) -> Rostered:
        """Return what it announces with another roster or other possible stages; ``None`` leaves them as they are."""
        new = rostered(self.id, self.group, roster or (), possible or ())
        return Rostered(
            self.rostered.stages if roster is None else new.stages,
            self.rostered.possible if possible is None else new.possible,
        )

    def target(self, segments: Sequence[str]) -> str:
        """Return the target below this run that these segments name."""
        return "/".join((base_of(self.id, self.group), *segments))


class RunShell:
    """Show a run to the program that owns it; every shell adds what waits."""

    _run: Run

    @property
    def id(self) -> str:
        """Return the run id."""
        return self._run.id

    @property
    def group(self) -> str:
        """Return the group of the whole invocation; whoever is to reach its stages joins it."""
        return self._run.group

    @property
    def capability(self) -> str:
        """Return the secret its stages go live with; a host that is restarted passes it again."""
        return self._run.capability

    @property
    def lost(self) -> str | None:
        """Return why the broker does not know the run as this session's any more, or ``None``."""
        return self._run.lost

    def target(self, *segments: str) -> str:
        """Return the target of a stage of this run, by its id or name, or of a pattern."""
        return self._run.target(segments)


def new_run(
    profile: Profile,
    book: Runs,
    run_id: str,
    *,
    capability: str | None,
    dormant: bool,
    parent: str | None,
    boundary: Sequence[str],
    ids: Callable[[], str],
) -> Run:
    """Return a run this session may own; raise ``UsageError`` for one it may not."""
    checked = checked_run(run_id)
    book.check_new(checked)
    if capability == "":
        raise UsageError("capability is empty", hint="Leave it out to have one made.")
    if capability is None:
        capability = book.former_capability(checked) or ids()
    return Run(
        id=checked,
        group=checked_owner_group(profile.home_group),
        capability=clean_text(capability, "capability"),
        is_dormant=dormant,
        parent=parent_of(parent, boundary),
        rostered=Rostered(),
        waiting=deque(),
    )


class Announcement(RequestOperation[None]):
    """Wait until the broker has taken what a run announces; only then it is announced again after a reconnect."""

    def __init__(self, book: Runs, run: Run, announced: Rostered, deadline: int) -> None:
        super().__init__(
            lambda request_id: run.frame(announced, request_id),
            PendingStageRouteRegistered,
            lambda answer: book.keep(run, announced),
            deadline,
        )
        self._book = book
        self._run = run

    def attempt(self, request_id: str) -> Request:
        """Return the frame of the next attempt."""
        self._book.wrote(request_id, self._run, self)
        return super().attempt(request_id)


class Runs:
    """Hold the runs of a session in the order in which they were announced."""

    def __init__(self, write: Callable[[Request], None], ids: Callable[[], str]) -> None:
        self._runs: dict[str, Run] = {}
        self._former: dict[str, str] = {}
        """Capabilities of runs that ended: the broker keeps their routes as long as it keeps the session."""
        self._write = write
        self._ids = ids
        self._connection = 0
        """Grows with each connection: a request is answered on the one it came on, or not at all."""
        self._unanswered: dict[str, tuple[Run, Announcement | None]] = {}

    @property
    def has_waiting(self) -> bool:
        """Tell whether a host has something to look at."""
        return any(run.waiting for run in self._runs.values())

    def waiting(self) -> list[Run]:
        """Return the runs whose host has something to look at."""
        return [run for run in self._runs.values() if run.waiting]

    def former_capability(self, run_id: str) -> str | None:
        """Return the capability of a run that this session owned and ended."""
        return self._former.get(run_id)

    def check_new(self, run_id: str) -> None:
        """Raise ``UsageError`` for a run this session owns already."""
        if run_id in self._runs:
            raise UsageError(f"this session owns the run {run_id} already", hint="Use the run's announce.")

    def keep(self, run: Run, announced: Rostered) -> None:
        """Take notice that the broker has taken an announcement."""
        run.rostered = announced
        self._runs.setdefault(run.id, run)

    def wrote(self, request_id: str, run: Run, operation: Announcement | None) -> None:
        """Take notice that an announcement was written that the broker answers or refuses."""
        self._unanswered[request_id] = run, operation

    def answered(self, request_id: str) -> None:
        """Take notice that the broker has taken an announcement."""
        self._unanswered.pop(request_id, None)

    def registered(self) -> None:
        """Announce every run again."""
        for run in self._runs.values():
            request_id = self._ids()
            self.wrote(request_id, run, None)
            self._write(run.frame(run.rostered, request_id))

    def disconnected(self) -> None:
        """Drop what was asked on a connection that ended: the broker has told the senders."""
        self._connection += 1
        self._unanswered.clear()
        for run in self._runs.values():
            run.waiting.clear()

    def refused(self, error: RunRefused) -> tuple[Run, Announcement | None] | None:
        """Return the announcement the broker means, if there is one; a run it did not take again is dropped."""
        if not self._unanswered:
            return None
        run, operation = next(iter(self._unanswered.values()))
        if operation is None:
            self.lose(run.id, error.reason)
        return run, operation

    def lose(self, run_id: str, reason: str) -> bool:
        """Take notice that a run is not this session's any more; tell whether it was."""
        run = self._runs.pop(run_id, None)
        if run is None:
            return False
        run.lost = reason
        run.waiting.clear()
        return True

    def end(self, run: Run, *, is_online: bool) -> None:
        """Forget a run and take its rows off the list; what is asked of it from now on is refused."""
        if self._runs.get(run.id) is not run:
            return
        del self._runs[run.id]
        self._former[run.id] = run.capability
        while len(self._former) > ENDED_RUNS_KEPT:
            del self._former[next(iter(self._former))]
        if is_online:
            for item in run.waiting:
                if isinstance(item, Asked):
                    self.answer(item, RUN_IS_OVER)
            self._write(run.frame(Rostered(), None))

    def give_up(self, run: Run, *, is_online: bool) -> None:
        """Forget a run whose announcement nobody waits for any more; the broker may have taken it."""
        if self._runs.get(run.id) is run:
            self.end(run, is_online=is_online)
        elif is_online and any(announced is run for announced, _ in self._unanswered.values()):
            self._write(run.frame(Rostered(), None))

    def asked(self, frame: PendingStageMessage) -> bool:
        """Keep a request for its host; tell whether there is one, else refuse it."""
        item = asked(frame, self._connection)
        run = self._runs.get(frame.run_id)
        if run is None or len(run.waiting) >= STAGE_REQUESTS:
            self.answer(item, RUN_IS_OVER if run is None else HOST_IS_BUSY)
            return False
        run.waiting.append(item)
        return True

    def reached(self, frame: StickyLiveDelivered) -> bool:
        """Keep for its host what became of a broadcast; tell whether there is one."""
        run = self._runs.get(frame.run_id)
        if run is None:
            return False
        run.waiting.append(reached(frame))
        return True

    def answer(self, item: Asked, answer: object) -> None:
        """Answer a request, unless its connection has ended; raises ``UsageError`` for a wrong answer."""
        checked = checked_answer(item.request, answer)
        if item.connection == self._connection:
            self._write(result_of(item.request_id, checked))


def ask_host(book: Runs, run: Run, queue: StageQueue) -> None:
    """Let a host look at all that waits for it; what it raises refuses the request and goes on to the caller."""
    while run.waiting:
        item = run.waiting.popleft()
        if isinstance(item, Reached):
            queue.reached(item.message_id, item.target, item.stages)
            continue
        try:
            book.answer(item, queue.admit(item.request))
        except Exception:
            book.answer(item, HOST_FAILED)
            raise
