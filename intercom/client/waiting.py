"""Keep everything a caller waits for: find it by the id an answer names, and know which is due next."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from intercom.client.asking import AskOperation
from intercom.client.operations import Operation, RequestOperation
from intercom.client.sending import SendOperation

TIMER_SLACK = 64
"""Timers of settled operations that are kept before the heap is rebuilt."""


class Waiting:
    """Hold the unsettled operations in the order in which they began."""

    def __init__(self) -> None:
        self._all: dict[int, Operation[Any]] = {}
        self._sends: dict[str, SendOperation[Any]] = {}
        self._requests: dict[str, RequestOperation[Any]] = {}
        self._timers: list[tuple[int, int, Operation[Any]]] = []
        self._turns = count()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Operation[Any]]:
        return iter(list(self._all.values()))

    def add(self, operation: Operation[Any]) -> None:
        """Keep an operation until ``remove``."""
        self._all[id(operation)] = operation
        if isinstance(operation, SendOperation):
            self._sends[operation.message_id] = operation
        self.schedule(operation)

    def remove(self, operation: Operation[Any]) -> None:
        """Drop a settled operation."""
        self._all.pop(id(operation), None)
        if isinstance(operation, SendOperation):
            self._sends.pop(operation.message_id, None)
        elif isinstance(operation, RequestOperation) and operation.request_id is not None:
            self._requests.pop(operation.request_id, None)
        if len(self._timers) > 2 * len(self._all) + TIMER_SLACK:
            self._timers = [timer for timer in self._timers if not timer[2].done]
            heapify(self._timers)

    def name(self, operation: RequestOperation[Any], request_id: str) -> None:
        """Take notice of the id under which the next answer to a request comes."""
        self._requests[request_id] = operation

    def forget_names(self) -> None:
        """Expect no answer to any request: its connection ended."""
        self._requests.clear()

    def send(self, message_id: str) -> SendOperation[Any] | None:
        """Return the send or ask with this message id."""
        return self._sends.get(message_id)

    def ask(self, message_id: str | None) -> AskOperation | None:
        """Return the ask with this message id that was written at least once."""
        found = self._sends.get(message_id) if message_id is not None else None
        return found if isinstance(found, AskOperation) and found.written else None

    def request(self, request_id: str) -> RequestOperation[Any] | None:
        """Return the request with this id, of which more is to come."""
        return self._requests.get(request_id)

    def take_request(self, request_id: str | None) -> RequestOperation[Any] | None:
        """Return the request with this id, if there is one; the id is used up."""
        return None if request_id is None else self._requests.pop(request_id, None)

    def schedule(self, operation: Operation[Any]) -> None:
        """Set a timer for the next time the operation is due, unless an earlier one is set."""
        due = operation.due
        if due is not None and (operation.scheduled is None or due < operation.scheduled):
            operation.scheduled = due
            heappush(self._timers, (due, next(self._turns), operation))

    def next_due(self) -> int | None:
        """Return the time of the next timer."""
        while self._timers:
            time, _, operation = self._timers[0]
            if operation.due == time:
                return time
            self._drop_timer()
        return None

    def take_due(self, now: int) -> Operation[Any] | None:
        """Return an operation whose time has come."""
        due = self.next_due()
        if due is None or due > now:
            return None
        operation = self._timers[0][2]
        heappop(self._timers)
        operation.scheduled = None
        return operation

    def _drop_timer(self) -> None:
        """Take the first timer away, which was overtaken; a later one may be needed."""
        time, _, operation = heappop(self._timers)
        if operation.scheduled == time:
            operation.scheduled = None
            self.schedule(operation)
