"""Hold what becomes of a call that waits for somebody else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, cast

from intercom.client.operations import Operation
from intercom.client.sending import SendOperation
from intercom.client.views import Receipt

if TYPE_CHECKING:
    from intercom.testing.session import MemorySession

Result = TypeVar("Result")


class NotSettled(RuntimeError):
    """Say that a result was asked for that is not there yet: somebody must act first, or time must pass."""


class Withdrawn(RuntimeError):
    """Say that a result was asked for of what was withdrawn before it was settled."""


class Pending(Generic[Result]):
    """Hold what becomes of a send, an ask or a reply."""

    def __init__(self, session: MemorySession, operation: Operation[Result]) -> None:
        """Wait; made by the methods of a session."""
        self._session = session
        self._operation = operation
        self._withdrawn: Withdrawn | None = None

    @property
    def done(self) -> bool:
        """Tell whether it is settled, with a result or an error, or withdrawn."""
        return self._operation.done

    @property
    def error(self) -> Exception | None:
        """Return the error it ended with, ``None`` when there is none or it is not settled."""
        return self._withdrawn or self._operation.error

    @property
    def held(self) -> Receipt | None:
        """Return what the broker said while it holds the message for a target that is being brought back."""
        return self._operation.held if isinstance(self._operation, SendOperation) else None

    def result(self) -> Result:
        """Return the result; raise the ``IntercomError`` it ended with, ``NotSettled`` or ``Withdrawn``."""
        if not self.done:
            raise NotSettled(
                "it is not settled: the other side has not asked for the message after it, or has not answered, "
                "or the broker is away; `advance` lets time pass"
            )
        if self.error is not None:
            raise self.error
        return cast("Result", self._operation.result)

    def withdraw(self) -> None:
        """Give up waiting; an open question is taken back. What is settled already stays as it is."""
        if not self.done:
            self._withdrawn = Withdrawn("it was withdrawn before it was settled: there is no result")
        self._session._withdraw(self._operation)
