"""Bring the reports that are written down and that the broker is not known to have, until it has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from intercom.client.flowing import FlowRequests, ReportOperation
from intercom.client.lifecycle import FLOW_REPORT, Lifecycle
from intercom.client.operations import Operation
from intercom.limits import REPORT_PUMP_MS


class Bringing:
    """Look at the outbox whenever the session is there, and after pauses while something is in it."""

    def __init__(
        self, requests: FlowRequests, lifecycle: Lifecycle, begin: Callable[[Operation[Any], int], None]
    ) -> None:
        self._requests = requests
        self._lifecycle = lifecycle
        self._begin = begin
        self.due: int | None = None
        """When the outbox is looked at next (monotonic ms)."""

    def came(self, now: int) -> None:
        """Take notice that the session is registered, for the first time or again."""
        if FLOW_REPORT in self._lifecycle.features:
            self.due = now

    def left(self) -> None:
        """Take notice that it is not."""
        self.due = None

    def began(self, operation: Operation[Any], now: int) -> None:
        """Take notice of a report that its caller may leave before the broker has it."""
        if isinstance(operation, ReportOperation) and self.due is None:
            self.due = now + REPORT_PUMP_MS

    def tick(self, now: int) -> None:
        """Send what nobody sends."""
        if self.due is None or now < self.due:
            return
        self.due = None
        for operation in self._requests.replayed():
            self._begin(operation, now)
        if self._requests.outbox.has_unsent:
            self.due = now + REPORT_PUMP_MS
