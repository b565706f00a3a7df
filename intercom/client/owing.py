"""Remember the questions a session was asked and has not answered, so that an answer sent plainly is known (F67).

A question counts from the moment in which a consumer has it: what nobody has read, nobody can be answering. That it was
withdrawn is told by brokers that know features; else whoever answers it learns so.
"""

from __future__ import annotations

from intercom.client.sending import SendOperation
from intercom.client.views import IncomingMessage, may_mean
from intercom.limits import ASK_MS, INCOMING_MESSAGES


class Owing:
    """Hold the latest ``INCOMING_MESSAGES`` questions that nobody is known to have answered or given up."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[IncomingMessage, int]] = {}
        """Questions by id, with the time at which nobody waits for the answer any more."""
        self._withdrawn: dict[str, None] = {}
        """Ids of questions that were withdrawn, perhaps before a consumer had them."""

    def note(self, message: IncomingMessage, now: int) -> None:
        """Take notice that a consumer has a message; ``now`` is in monotonic milliseconds."""
        if message.expects_reply and message.id not in self._withdrawn:
            self._open[message.id] = message, now + ASK_MS
            if len(self._open) > INCOMING_MESSAGES:
                del self._open[next(iter(self._open))]

    def withdrawn(self, message_id: str) -> None:
        """Take notice that nobody waits for this answer any more."""
        self._open.pop(message_id, None)
        self._withdrawn[message_id] = None
        if len(self._withdrawn) > INCOMING_MESSAGES:
            del self._withdrawn[next(iter(self._withdrawn))]

    def learn(self, operation: SendOperation[object]) -> None:
        """Take notice of what became of a message: the question it was an answer to may be closed now."""
        if operation.closed is not None:
            self._open.pop(operation.closed, None)

    def infer(self, operation: SendOperation[object], now: int) -> None:
        """Make a plain send the answer to the only question its target asked; with several it stays plain."""
        if not operation.may_refer or not self._open:
            return
        self._open = {key: (message, until) for key, (message, until) in self._open.items() if now < until}
        asked = [message for message, _ in self._open.values() if may_mean(operation.target, message.sender)]
        operation.refer(asked)
