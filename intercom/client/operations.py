"""Live the life of one thing a caller waits for: a send, an ask, a request, or being registered.

Rule 1: every move of an operation is made here, by ``_move`` and its table. Rule 2: an illegal move raises and
changes nothing. An operation knows no clock and no connection: the session tells it what happened and when.

    WAITING   to be written as soon as there is a registered connection
    FLYING    written; an answer to this attempt is awaited
    PAUSED    answered with a refusal that invites the same id again, a little later
    OPEN      an ask that was accepted; the reply is awaited
    DONE      settled: ``result`` or ``error``
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from intercom.client.outcomes import again, refusal_of
from intercom.errors import ConnectionLost, IntercomError, RequestTimeout
from intercom.wire.mail import RequestFailed

if TYPE_CHECKING:
    from intercom.drains import Told
    from intercom.wire.unions import Request

Result = TypeVar("Result")


class Stage(Enum):
    """Name where an operation stands."""

    WAITING = "waiting"
    FLYING = "flying"
    PAUSED = "paused"
    OPEN = "open"
    DONE = "done"


MOVES: dict[Stage, frozenset[Stage]] = {
    Stage.WAITING: frozenset({Stage.FLYING, Stage.DONE}),
    Stage.FLYING: frozenset({Stage.WAITING, Stage.PAUSED, Stage.OPEN, Stage.DONE}),
    Stage.PAUSED: frozenset({Stage.WAITING, Stage.DONE}),
    Stage.OPEN: frozenset({Stage.WAITING, Stage.DONE}),
    Stage.DONE: frozenset(),
}


class Operation(Generic[Result]):
    """Hold what all operations share; times are monotonic milliseconds."""

    _told: tuple[Told, ...] = ()
    """Who waits for the end beside the caller; most operations have nobody."""

    def __init__(self, deadline: int | None) -> None:
        self.stage = Stage.WAITING
        self.deadline = deadline
        self.result: Result | None = None
        self.error: Exception | None = None
        """An ``IntercomError``, or what a callback of the caller's own raised."""
        self.token: Any = None
        """Free for the shell: whom to wake when the operation is settled."""
        self.scheduled: int | None = None
        """Earliest time for which a timer is set; kept by ``Waiting``."""
        self._next: int | None = None

    @property
    def done(self) -> bool:
        """Tell whether the operation is settled."""
        return self.stage is Stage.DONE

    @property
    def due(self) -> int | None:
        """Return when ``tick`` has something to do, if nothing happens before."""
        if self.done:
            return None
        times = [time for time in (self._next, self.deadline) if time is not None]
        return min(times, default=None)

    def tick(self, now: int, trouble: IntercomError | None) -> None:
        """Let time pass; ``trouble`` is why there is no registered connection, if there is none."""
        if self.deadline is not None and now >= self.deadline:
            self.fail(self._at_deadline(trouble))
        elif self._next is not None and now >= self._next:
            self._next = None
            self._time_came()

    def put_back(self) -> None:
        """Take notice that the present attempt had no effect: it is to be made again on a new connection."""
        self._next = None
        self._move(Stage.WAITING)

    def lost(self) -> None:
        """Take notice that the connection ended: what was written has to be written again."""
        if self.stage is not Stage.WAITING:
            self.put_back()

    def withdraw(self) -> None:
        """Settle because the caller has gone; nobody will look at the error."""
        self.abandon(ConnectionLost("The caller has gone"))

    def succeed(self, result: Result) -> None:
        """Settle with a result."""
        self._move(Stage.DONE)
        self.result = result
        self._tell()

    def fail(self, error: Exception) -> None:
        """Settle with an error."""
        self._move(Stage.DONE)
        self.error = error
        self._tell()

    def drain(self, told: Told) -> None:
        """Call ``told`` once the operation is settled, with its error."""
        self._told = (*self._told, told)
        if self.done:
            self._tell()

    def _tell(self) -> None:
        if self._told:
            told, self._told = self._told, ()
            for tell in told:
                tell(self.error)

    def abandon(self, trouble: IntercomError) -> None:
        """Settle because no connection will come soon."""
        self.fail(again(trouble))

    def _at_deadline(self, trouble: IntercomError | None) -> IntercomError:
        raise NotImplementedError

    def _time_came(self) -> None:
        self._move(Stage.WAITING)

    def _move(self, stage: Stage) -> None:
        if stage not in MOVES[self.stage]:
            raise RuntimeError(f"{type(self).__name__} cannot go from {self.stage.value} to {stage.value}")
        self.stage = stage


class Opening(Operation[None]):
    """Wait until the session is registered; an error that a retry will not cure settles it at once."""

    def _at_deadline(self, trouble: IntercomError | None) -> IntercomError:
        if trouble is not None:
            return again(trouble)
        return ConnectionLost("No broker registered this session in time", retry="after")


class RequestOperation(Operation[Result]):
    """Wait for the answer to a request; every request may be repeated without harm.

    ``make`` builds the frame for a request id; ``read`` makes the caller's result of the answer.
    """

    def __init__(
        self,
        make: Callable[[str], Request],
        answers: type[Any] | tuple[type[Any], ...],
        read: Callable[[Any], Result],
        deadline: int | None,
        *,
        needs_features: bool = False,
        needs_feature: str | None = None,
    ) -> None:
        super().__init__(deadline)
        self.needs_feature = needs_feature
        """The feature without which the broker would not know the request."""
        self.needs_features = needs_features
        """Whether a broker that granted nothing would not know the request."""
        self.request_id: str | None = None
        self.answers = answers
        self.reregistered = False
        """Whether this request has made the session register anew already."""
        self._make = make
        self._read = read

    def attempt(self, request_id: str) -> Request:
        """Return the frame of the next attempt."""
        self._move(Stage.FLYING)
        self.request_id = request_id
        return self._make(request_id)

    def answered(self, answer: Any) -> None:
        """Settle with what the answer holds."""
        self.succeed(self._read(answer))

    def turned_down(self, answer: RequestFailed, now: int) -> None:
        """Take the broker's refusal."""
        self.fail(refusal_of(answer))

    def _at_deadline(self, trouble: IntercomError | None) -> IntercomError:
        if trouble is not None and self.stage is Stage.WAITING:
            return again(trouble)
        return RequestTimeout("The broker did not answer the request in time")
