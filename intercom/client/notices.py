"""Say what a session has for its shell to act on after a call."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import Struct

from intercom.client.operations import Operation
from intercom.client.sending import SendOperation


class Settled(Struct, frozen=True):
    """Say that an operation has its result or its error."""

    operation: Operation[Any]


class Held(Struct, frozen=True):
    """Say that a send is held by the broker, for who waits for no more than that."""

    operation: SendOperation[Any]


class HostAsked(Struct, frozen=True):
    """Say that the host of a run has something to look at."""


class Arrived(Struct, frozen=True):
    """Say that there is an unread message."""


class Happened(Struct, frozen=True):
    """Say that feeds have something to take."""


class Troubled(Struct, frozen=True):
    """Say that consumers of messages should be told: recovery needs somebody to look (``take_trouble``)."""


Event: TypeAlias = Settled | Held | HostAsked | Arrived | Happened | Troubled


class News:
    """Collect what happened until the shell looks."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def add(self, event: Event) -> None:
        """Keep an event."""
        self._events.append(event)

    def take(self) -> list[Event]:
        """Return what happened since the last call."""
        events, self._events = self._events, []
        return events
