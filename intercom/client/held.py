"""Keep the sends that the broker holds until somebody asks for their outcome (protocol 5.14)."""

from __future__ import annotations

from typing import Any

from intercom.client.sending import SendOperation
from intercom.errors import UsageError
from intercom.limits import HELD_SENDS_KEPT


class HeldSends:
    """Hold at most ``HELD_SENDS_KEPT`` of them; the oldest one that is settled goes first."""

    def __init__(self) -> None:
        self._kept: dict[str, SendOperation[Any]] = {}

    def keep(self, operation: SendOperation[Any]) -> None:
        """Keep a send whose caller was told that it is held."""
        self._kept[operation.message_id] = operation
        if len(self._kept) > HELD_SENDS_KEPT:
            oldest = next((each for each in self._kept.values() if each.done), operation)
            del self._kept[oldest.message_id]

    @property
    def unsettled(self) -> list[SendOperation[Any]]:
        """Return those of which the broker has not said what became of them."""
        return [operation for operation in self._kept.values() if not operation.done]

    def find(self, message_id: str) -> SendOperation[Any]:
        """Return a send that was held; raise ``UsageError`` for any other."""
        operation = self._kept.get(message_id)
        if operation is None:
            raise UsageError(f"no send with the message id {message_id} was held", hint="Send it again under its id.")
        return operation

    def forget(self, operation: SendOperation[Any]) -> None:
        """Take notice that the caller has the outcome."""
        self._kept.pop(operation.message_id, None)
