"""Keep what a durable worker reported and was told, over its own restarts (protocol 14).

One line a fact, JSON: the journal's identity, an event, a command that was received, a command that is being carried
out, up to where the broker has the events. Whatever the worker says to the broker is on disk before.

    command: received --begin--> begun --an event says so--> settled

Rule 1: a command is received once, by its id, and begun once. Rule 2: one that was begun when the process ended is
reported as failed, ``interrupted``: nobody knows how far it came, so it is not begun again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import decode, encode

from intercom.errors import AddressHeld
from intercom.limits import COMMAND_IDS_KEPT
from intercom.wire.links import OUTCOME_KINDS

INTERRUPTED = "interrupted"


class Reported(Struct, frozen=True):
    """Hold an event the broker has not acknowledged."""

    seq: int
    event_id: str
    occurred_at: int
    body: bytes


class Told(Struct):
    """Hold a command that was received; ``body`` is empty once it is settled."""

    command_id: str
    seq: int
    body: bytes
    is_begun: bool = False
    is_settled: bool = False


class WorkerJournal:
    """Hold the facts in memory; a subclass brings them to a disk.

    ``ids`` gives new unique ids.
    """

    def __init__(self, ids: Callable[[], str]) -> None:
        self._ids = ids
        self._is_open = False
        self.id = ""
        self.last_seq = 0
        self.floor = 0
        """Events up to here are on the broker's disk."""
        self.reported: deque[Reported] = deque()
        """Those behind it, in order."""
        self.commands: dict[str, Told] = {}
        """By their ids, in the order they came."""

    def open(self, wall: int) -> None:
        """Begin, or go on where an earlier process ended; ``wall`` is now in epoch milliseconds.

        Raises ``AddressHeld`` while another process has the journal, ``AccessDenied`` and ``HomeError``.
        """
        if self._is_open:
            raise held()
        self._is_open = True
        if not self.id:
            self.id = self._ids()
            self._append({"j": self.id})
        for told in list(self.commands.values()):
            if told.is_begun and not told.is_settled:
                self.settle(told.command_id, "command_failed", wall, errorCode=INTERRUPTED)

    def close(self) -> None:
        """Let another session have it."""
        self._is_open = False

    @property
    def last_received(self) -> int:
        """Return the greatest number of a command that was received."""
        return max((told.seq for told in self.commands.values()), default=0)

    @property
    def waiting(self) -> list[Told]:
        """Return the commands that were received and not begun, in the order they came."""
        return [told for told in self.commands.values() if not told.is_begun and not told.is_settled]

    def report(self, body: bytes, wall: int) -> Reported:
        """Write an event down; it counts once this has returned."""
        event = Reported(self.last_seq + 1, self._ids(), wall, body)
        self._append({"e": event.seq, "id": event.event_id, "at": event.occurred_at, "b": Raw(body)})
        self._take_event(event)
        return event

    def settle(self, command_id: str, kind: str, wall: int, **members: Any) -> Reported:
        """Write down what became of a command."""
        said = {name: value for name, value in members.items() if value is not None}
        return self.report(encode({"kind": kind, "commandId": command_id, **said}), wall)

    def receive(self, command_id: str, seq: int, body: bytes) -> Told | None:
        """Write a command down; ``None`` when it is known."""
        if command_id in self.commands:
            return None
        body = encode(decode(body))  # a line of its own, whatever white space came with it
        self._append({"c": command_id, "n": seq, "b": Raw(body)})
        told = self.commands[command_id] = Told(command_id, seq, body)
        return told

    def begin(self, told: Told) -> None:
        """Write down that a command is being carried out."""
        self._append({"d": told.command_id})
        told.is_begun = True

    def acknowledge(self, floor: int) -> None:
        """Take notice of what the broker has; after a crash it says so again."""
        if floor > self.floor:
            self._take_floor(floor)
            self._append({"f": floor}, is_synced=False)

    def renew(self) -> None:
        """Be another journal: the broker knows of events that this one has lost, or counts anew."""
        events = list(self.reported)
        self.id, self.last_seq, self.floor = self._ids(), 0, 0
        self.reported.clear()
        for event in events:
            self._take_event(Reported(self.last_seq + 1, event.event_id, event.occurred_at, event.body))
        self._rewrite()

    def _take_event(self, event: Reported) -> None:
        self.last_seq = event.seq
        self.reported.append(event)
        content = decode(event.body)
        told = self.commands.get(content.get("commandId")) if content.get("kind") in OUTCOME_KINDS else None
        if told is not None:
            told.is_settled, told.body = True, b""

    def _take_floor(self, floor: int) -> None:
        self.floor = floor
        while self.reported and self.reported[0].seq <= floor:
            self.reported.popleft()

    def _facts(self) -> list[dict[str, Any]]:
        """Return the shortest journal that says the same."""
        settled = [told.command_id for told in self.commands.values() if told.is_settled]
        for command_id in settled[: max(0, len(settled) - COMMAND_IDS_KEPT)]:
            del self.commands[command_id]
        facts: list[dict[str, Any]] = [{"j": self.id, "f": self.floor}]
        for told in self.commands.values():
            facts.append(
                {"c": told.command_id, "n": told.seq, "s": True}
                if told.is_settled
                else {"c": told.command_id, "n": told.seq, "b": Raw(told.body)}
            )
            if told.is_begun and not told.is_settled:
                facts.append({"d": told.command_id})
        return facts + [
            {"e": event.seq, "id": event.event_id, "at": event.occurred_at, "b": Raw(event.body)}
            for event in self.reported
        ]

    def _append(self, fact: dict[str, Any], *, is_synced: bool = True) -> None:
        """Write a fact down."""

    def _rewrite(self) -> None:
        """Write the shortest journal in place of this one."""


def held() -> AddressHeld:
    """Return the error for a journal that another session has."""
    return AddressHeld("Another durable session of this address is open; end that one first")
