"""Repeat a request that may be repeated until it is answered: over lost connections, and refusals that pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from intercom.client.operations import RequestOperation, Result, Stage
from intercom.client.outcomes import refusal_of
from intercom.errors import IntercomError, RequestRefused, RequestTimeout
from intercom.limits import AWAIT_MS, REQUEST_MS, REQUEST_RETRY_MS
from intercom.wire.mail import RequestFailed

if TYPE_CHECKING:
    from intercom.wire.unions import Request

PASSING_CODES = frozenset({"not_recorded", "not_read", "broker_draining"})
"""Refusals that say nothing of the request itself."""
_AGAIN = "Repeat it as it was: it takes effect once."


class PatientRequest(RequestOperation[Result]):
    """Wait for the answer to a request that names itself, so that repeating it takes effect once."""

    def __init__(
        self,
        make: Callable[[str], Request],
        answers: type[Any] | tuple[type[Any], ...],
        read: Callable[[Any], Result],
        deadline: int | None,
    ) -> None:
        super().__init__(make, answers, read, deadline, needs_features=True)
        self._was_written = False
        self._refusal: RequestRefused | None = None
        """The last refusal that passes."""

    def attempt(self, request_id: str) -> Request:
        """Return the frame of the next attempt."""
        self._was_written = True
        self._refusal = None
        return super().attempt(request_id)

    def turned_down(self, answer: RequestFailed, now: int) -> None:
        """Try again a little later where that may help."""
        if answer.code not in PASSING_CODES:
            super().turned_down(answer, now)
            return
        self._refusal = refusal_of(answer)
        self._pause(now)

    def _pause(self, now: int) -> None:
        self._move(Stage.PAUSED)
        self._next = now + REQUEST_RETRY_MS

    def _at_deadline(self, trouble: IntercomError | None) -> IntercomError:
        if self._refusal is not None:
            return self._refusal
        if self._was_written:
            return RequestTimeout("The broker did not say in time whether it has it", hint=_AGAIN, retry="same_id")
        return super()._at_deadline(trouble)


class AwaitOperation(PatientRequest[Result]):
    """Wait for something that the broker tells once it is there, with as many requests as that takes.

    ``make`` builds the request for an id and the time it may take, ``read`` returns ``None`` for the answer that
    nothing came. Without ``until`` it waits for ever; at ``until`` the result is ``None``.
    """

    def __init__(
        self,
        make: Callable[[str, int], Request],
        answers: tuple[type[Any], ...],
        read: Callable[[Any], Result],
        until: int | None,
        now: Callable[[], int],
    ) -> None:
        super().__init__(self._next_request, answers, read, None if until is None else until + REQUEST_MS)
        self._make_waiting = make
        self._until = until
        self._now = now
        self._expected = 0
        """When the broker must say at the latest that nothing came."""
        self.on_end: Callable[[], None] | None = None
        """Called once, when it is settled."""

    def answered(self, answer: Any) -> None:
        """Settle with what came, or ask again."""
        result = self._read(answer)
        now = self._now()
        if result is not None or (self._until is not None and now >= self._until):
            self.succeed(result)
        elif now < self._expected:
            self._pause(now)  # whoever answers at once that nothing came would be asked without end
        else:
            self.put_back()

    def succeed(self, result: Result) -> None:
        """Settle with a result."""
        super().succeed(result)
        self._say_so()

    def fail(self, error: Exception) -> None:
        """Settle with an error."""
        super().fail(error)
        self._say_so()

    def _next_request(self, request_id: str) -> Request:
        now = self._now()
        most = AWAIT_MS if self._until is None else max(0, min(AWAIT_MS, self._until - now))
        self._expected = now + most
        return self._make_waiting(request_id, most)

    def _say_so(self) -> None:
        if self.on_end is not None:
            self.on_end()
