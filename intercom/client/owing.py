"""Remember the questions a session was asked and has not answered, so that an answer sent plainly is known (F67).

A question counts from the moment in which a consumer has it: what nobody has read, nobody can be answering. That nobody
waits for the answer, or somebody does again, is told by brokers that know features; else whoever answers it learns so.
"""

from __future__ import annotations

from intercom.client.sending import SendOperation
from intercom.client.views import IncomingMessage, may_mean
from intercom.limits import ASK_MS, INCOMING_MESSAGES


class Owing:
    """Hold the questions nobody has read, and the latest ``INCOMING_MESSAGES`` read ones not known to be answered."""

    def __init__(self) -> None:
        self._unread: dict[str, IncomingMessage] = {}
        self._read: dict[str, tuple[IncomingMessage, int]] = {}
        """Questions by id, with the time at which nobody waits for the answer any more."""
        self._inferred: dict[str, IncomingMessage] = {}
        """What the latest messages answered that became answers: repeated under their ids they mean the same."""

    def came(self, message: IncomingMessage) -> None:
        """Take notice of a message that no consumer has yet."""
        if message.expects_reply:
            self._unread[message.id] = message

    def note(self, message: IncomingMessage, now: int) -> None:
        """Take notice that a consumer has a message; ``now`` is in monotonic milliseconds."""
        if message.expects_reply:
            self._unread.pop(message.id, None)
            self._read[message.id] = message, now + ASK_MS
            if len(self._read) > INCOMING_MESSAGES:
                del self._read[next(iter(self._read))]

    def withdrawn(self, message_id: str) -> None:
        """Take notice that nobody waits for this answer any more."""
        message = self._find(message_id)
        if message is not None:
            message.withdrawn = True

    def reopened(self, message_id: str, now: int) -> None:
        """Take notice that this answer is waited for again."""
        message = self._find(message_id)
        if message is not None and message.withdrawn:
            message.withdrawn = False
            if message_id in self._read:
                self._read[message_id] = message, now + ASK_MS

    def learn(self, operation: SendOperation[object]) -> None:
        """Take notice of what became of a message: the question it was an answer to may be closed now."""
        if operation.closed is not None:
            self._read.pop(operation.closed, None)
        if not operation.is_reply:
            self._inferred.pop(operation.message_id, None)

    def infer(self, operation: SendOperation[object], now: int) -> None:
        """Make a plain send the answer to the only question its target asked; with several it stays plain."""
        if not operation.may_refer:
            return
        if operation.message_id in self._inferred:
            operation.refer([self._inferred[operation.message_id]], is_again=True)
            return
        if not self._read:
            return
        self._read = {key: (message, until) for key, (message, until) in self._read.items() if now < until}
        open_ones = [message for message, _ in self._read.values() if not message.withdrawn]
        meant = [message for message in open_ones if may_mean(operation.target, message.sender)]
        operation.refer(meant)
        if operation.is_reply:
            self._inferred[operation.message_id] = meant[0]
            if len(self._inferred) > INCOMING_MESSAGES:
                del self._inferred[next(iter(self._inferred))]

    def _find(self, message_id: str) -> IncomingMessage | None:
        if message_id in self._unread:
            return self._unread[message_id]
        message, _ = self._read.get(message_id, (None, 0))
        return message
