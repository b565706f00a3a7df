"""Be the commands a durable session is given, with nothing but calls."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from intercom.client.durable import Command as _Command
from intercom.client.workerjournal import INTERRUPTED
from intercom.limits import LINK_DETAIL_CHARACTERS

if TYPE_CHECKING:
    from intercom.client.blocking_links import LinkCalls


class Command(_Command):
    """Hold a command for this durable session, which is being carried out, and say what became of it.

    As a ``with`` block it is done with the block, or failed when an exception ends that. What became of it is on
    disk here when a call returns, and reaches its sender when the broker can be reached.
    """

    __slots__ = ("_session",)

    _session: LinkCalls

    def done(self, detail: str | None = None) -> None:
        """Say that it was carried out; ``detail`` is for people, up to 1,000 characters."""
        self._session._engine.act(lambda: self._settle("command_applied", detail, None))

    def fail(self, detail: str | None = None, *, code: str | None = None) -> None:
        """Say that it was tried and failed; ``code`` is why, for programs."""
        self._session._engine.act(lambda: self._settle("command_failed", detail, code))

    def __enter__(self) -> Command:
        """Return the command."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Say what became of it, unless it was said."""
        if self.is_over:
            return
        if error is None:
            self.done()
        elif isinstance(error, Exception):
            self.fail(f"{type(error).__name__}: {error}"[:LINK_DETAIL_CHARACTERS], code="exception")
        else:
            self.fail(code=INTERRUPTED)


class Commands:
    """Iterate over the commands for a durable session; each is given out once."""

    def __init__(self, session: LinkCalls, timeout_ms: int | None) -> None:
        self._session = session
        self._timeout_ms = timeout_ms

    def __iter__(self) -> Commands:
        """Return the iterator itself."""
        return self

    def __next__(self) -> Command:
        """Wait for the next command; end when none came in time."""
        command = self._session._engine.next_command(Command, self._timeout_ms)
        if command is None:
            raise StopIteration
        command._session = self._session
        return command
