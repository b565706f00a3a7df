"""Handle frames one at a time, strictly in their order, within bounds (FE 4.3, primitive P10).

    open --push--> open (within the bounds)      open --push beyond a bound, fail, a handler that raises--> failed
    open --close--> closed

Rule 1: the frame that is being handled counts. Rule 2: in failed and closed nothing is taken any more and nothing that
waited is handled. Rule 3: the owner hears of a failure once, whatever fails afterwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Generic, TypeVar

from intercom.drains import Outcome, Told, combined

Frame = TypeVar("Frame")


class InboxOverflow(Exception):
    """Say that more came than may wait."""


class _State(Enum):
    OPEN = "open"
    FAILED = "failed"
    CLOSED = "closed"


class OrderedInbox(Generic[Frame]):
    """Hold the frames of one connection that wait for their turn.

    Args:
        handle: deals with a frame; returns whether it is done with it, else ``done`` is called later. It may raise.
        on_failed: is told once, with the error.
        frames: most frames, the one being handled included.
        size: most bytes, likewise.

    Raises:
        ValueError: a bound is not a positive whole number.
    """

    __slots__ = (
        "_bytes",
        "_draining",
        "_error",
        "_frames",
        "_handle",
        "_is_busy",
        "_on_failed",
        "_size",
        "_state",
        "_turns",
        "_waiting",
    )

    def __init__(
        self, handle: Callable[[Frame], bool], on_failed: Callable[[Exception], None], *, frames: int, size: int
    ) -> None:
        if any(type(bound) is not int or bound < 1 for bound in (frames, size)):
            raise ValueError("the bounds of an inbox are positive whole numbers")
        self._handle = handle
        self._on_failed = on_failed
        self._frames = frames
        self._size = size
        self._waiting: deque[tuple[Frame, int]] = deque()
        """The first one is being handled, while the inbox is busy."""
        self._bytes = 0
        self._is_busy = False
        self._turns = False
        """A loop is at work that goes on with the next frame by itself."""
        self._state = _State.OPEN
        self._error: Outcome = None
        self._draining: list[Told] = []

    @property
    def frames(self) -> int:
        """Return how many frames are here, the one being handled included."""
        return len(self._waiting)

    @property
    def bytes(self) -> int:
        """Return their size."""
        return self._bytes

    @property
    def is_over(self) -> bool:
        """Tell a running handler that nothing it does counts any more."""
        return self._state is not _State.OPEN

    def push(self, frame: Frame, size: int) -> bool:
        """Take a frame; False when the inbox is over, or is over because of this one."""
        if self._state is not _State.OPEN:
            return False
        if len(self._waiting) + 1 > self._frames or self._bytes + size > self._size:
            self.fail(InboxOverflow(f"more than {self._frames} frames or {self._size} bytes wait"))
            return False
        self._waiting.append((frame, size))
        self._bytes += size
        self._go_on()
        return self._state is _State.OPEN

    def done(self) -> None:
        """Go on with the next frame: the one being handled is dealt with."""
        if self._state is _State.OPEN and self._is_busy:
            self._leave()
            self._go_on()

    def fail(self, error: Exception) -> None:
        """End the inbox with an error; only the first one counts."""
        if self._state is not _State.OPEN:
            return
        on_failed = self._on_failed
        self._end(_State.FAILED)
        self._error = error
        try:
            on_failed(error)
        except Exception as another:
            self._error = combined((error, another))
        self._settle()

    def close(self) -> None:
        """End the inbox; what waits is not handled."""
        if self._state is _State.OPEN:
            self._end(_State.CLOSED)
            self._settle()

    def drain(self, told: Told) -> None:
        """Call ``told`` once nothing waits any more, with the error of a failed inbox; what comes meanwhile counts."""
        self._draining.append(told)
        self._settle()

    def _go_on(self) -> None:
        if self._turns:
            return
        self._turns = True
        try:
            while self._waiting and not self._is_busy:
                self._is_busy = True
                try:
                    is_done = self._handle(self._waiting[0][0])
                except Exception as error:
                    self.fail(error)
                    return
                if self._state is not _State.OPEN:
                    return
                if is_done and self._is_busy:
                    self._leave()
        finally:
            self._turns = False
        self._settle()

    def _leave(self) -> None:
        self._is_busy = False
        self._bytes -= self._waiting.popleft()[1]

    def _end(self, state: _State) -> None:
        self._state = state
        # Whoever they belong to has this inbox as well: the two would keep each other after the end.
        self._handle = self._on_failed = _nobody
        self._waiting.clear()
        self._bytes = 0
        self._is_busy = False

    def _settle(self) -> None:
        if self._waiting:
            return
        draining, self._draining = self._draining, []
        for told in draining:
            told(self._error)


def _nobody(about: object) -> Any:
    """Stand where the owner of an inbox was; one that is over calls nobody."""
