"""Take up again, at each registration, what a session has promised: places of children, runs it owns, its stage.

The broker forgets all of it with the connection. What it refuses to take again is dropped by itself and said as an
event; everything else of the session goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from intercom.client.feeds import SessionEvent
from intercom.client.outcomes import again
from intercom.client.restoring import Places
from intercom.client.staging import LiveStage, StagePlace
from intercom.errors import IntercomError, RunRefused, StageRefused
from intercom.wire.frames import Request

if TYPE_CHECKING:
    from intercom.client.owning import Runs


class Ended(Struct, frozen=True):
    """Say what follows from the end of a connection that ended for the sake of a commitment."""

    pause_ms: int = 0
    """Before the next attempt to connect."""
    event: SessionEvent | None = None
    """What is lost although nobody asked just now."""


class Commitments:
    """Hold what a session has promised."""

    def __init__(self, write: Callable[[Request], None], ids: Callable[[], str]) -> None:
        self.places = Places()
        self.stage = StagePlace(write, ids)
        self._write = write
        self._ids = ids
        self._is_leaving = False
        self._runs: Runs | None = None

    @property
    def runs(self) -> Runs:
        """Return the runs of the session; what they need is loaded for the first one, since most sessions own none."""
        if self._runs is None:
            from intercom.client.owning import Runs

            self._runs = Runs(self._write, self._ids)
        return self._runs

    def registered(self) -> None:
        """Write everything again; the session's capabilities have been written before."""
        for frame in self.places.frames(self._ids):
            self._write(frame)
        if self._runs is not None:
            self._runs.registered()
        self.stage.registered()

    def leave(self, stage: LiveStage, *, is_online: bool) -> bool:
        """Forget a stage; tell whether the connection has to end, which alone makes the broker forget it too."""
        self._is_leaving = self.stage.leave(stage) and is_online
        return self._is_leaving

    def ended(self, cause: IntercomError | None, now: int) -> Ended | None:
        """Take notice that a good connection ended; ``None`` when that had nothing to do with a commitment."""
        is_leaving, self._is_leaving = self._is_leaving, False
        ended = Ended() if is_leaving and cause is None else None
        if isinstance(cause, StageRefused):
            pause, given_up = self.stage.refused(cause, now)
            ended = Ended(pause, event=None if given_up is None else _stage_lost(given_up))
        elif isinstance(cause, RunRefused) and (refused := self.runs.refused(cause)) is not None:
            run, operation = refused
            if operation is None:
                ended = Ended(event=SessionEvent(kind="run_lost", run_id=run.id, reason=cause.reason))
            else:
                if not operation.done:
                    operation.fail(again(cause))
                ended = Ended()
        if self._runs is not None:
            self._runs.disconnected()
        return ended


def _stage_lost(stage: LiveStage) -> SessionEvent:
    return SessionEvent(kind="stage_lost", run_id=stage.run_id, reason=stage.lost)
