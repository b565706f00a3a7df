"""Wait until everything a session has said has arrived, and raise whatever of it went wrong (FE 4.4, primitive P16)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from intercom.client.operations import Operation
from intercom.drains import Drain, Outcome, drain_all
from intercom.errors import IntercomError, RequestTimeout


class DrainOperation(Operation[None]):
    """Await all parts of a session; begun when it is made.

    ``left`` says what has not arrived yet, for the error when time is up; ``settled`` is told when it is over before.
    """

    def __init__(
        self,
        parts: Iterable[Drain],
        left: Callable[[], str],
        settled: Callable[[Operation[None]], None],
        deadline: int | None,
    ) -> None:
        super().__init__(deadline)
        self._left = left
        self._settled = settled
        drain_all(parts, self._ended)

    def _ended(self, outcome: Outcome) -> None:
        if self.done:
            return
        if outcome is None:
            self.succeed(None)
        else:
            self.fail(outcome)
        self._settled(self)

    def _at_deadline(self, trouble: IntercomError | None) -> IntercomError:
        hint = "What was reported is written down here and goes on; drain again, or leave: the next session goes on."
        return RequestTimeout(f"Not everything has arrived in time: {self._left()}", hint=hint, retry="after")
