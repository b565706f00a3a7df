"""Describe who takes part in a world of the machine: programs, connections, sessions, attempts and their copies."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Generation(Enum):
    """Name the generations of clients (protocol 0)."""

    OLDER = "older"
    LEGACY_PI = "legacy pi"
    NEWEST = "newest"


@dataclass(eq=False)
class Program:
    """Be one client program over all its connections."""

    number: int
    generation: Generation
    confirms: bool
    prompt: bool
    """Confirms every message at once."""
    home: str | None
    supervises: bool
    last_id: str | None = None
    heard: list[Heard] = field(default_factory=list)
    capabilities: list[tuple[str, str]] = field(default_factory=list)
    """(child name, capability)."""

    @property
    def address(self) -> str | None:
        return f"address-{self.number}" if self.generation is Generation.NEWEST else None

    @property
    def token(self) -> str | None:
        return f"token-{self.number}" if self.supervises else None


@dataclass
class Heard:
    """Remember a message that reached a program."""

    message_id: str
    sender_id: str
    is_ask: bool


@dataclass(eq=False)
class Line:
    """Be one connection as its client sees it."""

    number: int
    program: Program
    member: Member | None = None
    requests: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Types of which one must answer, by request id."""
    ended: bool = False
    registered: int = 0
    """``registered`` frames that came."""


@dataclass(eq=False)
class Member:
    """Be one registered session as the rules see it."""

    line: Line
    id: str
    name: str | None
    groups: list[str]
    legacy: str
    home: str
    is_agent: bool
    is_terminal: bool
    supervisor: str | None
    identity: tuple[str, ...]
    order: int
    since: int
    """When it registered, monotonic ms."""
    here: bool = True
    view: set[str] = field(default_factory=set)

    @property
    def program(self) -> Program:
        return self.line.program

    @property
    def confirms(self) -> bool:
        return self.program.confirms

    @property
    def group_identity(self) -> tuple[str, ...]:
        return (self.home, *sorted(self.groups))

    def shares_group_with(self, other: Member) -> bool:
        return bool(set(self.groups) & set(other.groups))


@dataclass(eq=False)
class Attempt:
    """Be one attempt of a send."""

    line: Line
    member: Member
    kind: str
    frame: dict[str, Any]
    at: int
    order: int
    content: tuple[Any, ...]
    """What makes a retry the same operation (protocol 6.9.1)."""
    groups: tuple[str, ...]
    """Sender group identity."""
    aimed: Member | None
    """Whom the target meant when the attempt was made."""
    answers_question: bool = False
    """It was a reply to a question that was surely open."""
    repeats_open_ask: bool = False
    """It was an ask whose question was surely open."""
    forward: Forward | None = None
    answers: list[dict[str, Any]] = field(default_factory=list)
    newer: Attempt | None = None
    """A retry of the same operation."""

    @property
    def message(self) -> dict[str, Any]:
        message: dict[str, Any] = self.frame["message"]
        return message

    @property
    def id(self) -> str:
        message_id: str = self.message["id"]
        return message_id

    @property
    def is_ask(self) -> bool:
        return self.message.get("expectsReply") is True

    @property
    def reply_to(self) -> str | None:
        return self.message.get("replyTo")

    @property
    def is_pending_reply(self) -> bool:
        return self.frame.get("requirePendingReply") is True

    @property
    def was_delivered(self) -> bool:
        return any(answer["type"] == "delivered" for answer in self.answers)

    @property
    def was_surely_delivered(self) -> bool:
        """Tell the same; without an attempt id the answer may have been meant for another attempt."""
        return self.was_delivered and "attemptId" in self.frame


@dataclass(eq=False)
class Forward:
    """Be one copy of a message on its way to a recipient."""

    attempt: Attempt
    recipient: Member
    row_at: int
    """When its row was reserved at the earliest, monotonic ms."""
    at: int
    order: int
    fate: str = "pending"
    """pending, taken, lost, or died: the broker crashed while it was pending, its row may be on disk."""
    reached_at: int = -1

    @property
    def content(self) -> tuple[Any, ...]:
        return self.attempt.content

    @property
    def may_have_arrived(self) -> bool:
        return self.fate in ("pending", "taken")
