"""Say which steps, and which reports of steps, are on their way to other brokers (protocol 4.150)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from intercom.core.clock import Instant


class StepOnItsWay(Struct, frozen=True):
    """Describe a step that its worker's broker is not known to have, or a report that of its flow has not answered."""

    number: int
    """Of its text: the order in which they were stored."""
    kind: Literal["step", "report"]
    message_id: str
    peer: str
    target: str
    flow_id: str
    attempts: int
    """How often this process posted it."""
    since: int
    """Epoch ms."""
    again: Callable[[Instant], None]
    """Brings it away now."""
