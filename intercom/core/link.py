"""Hold one link, the connection that has it now, and its commands.

A claim, the right of one connection to a link, moves

    awaiting --link_ready--> checking --recorded--> ready
       +---------+----------------+--------------------+--> ended

Rule: a claim that has ended never acts again; the link's generation tells it from the next one.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from intercom.core.deadlines import Deadline
from intercom.core.records import CommandRecord, EventRecord, LinkRecord
from intercom.drains import Told

if TYPE_CHECKING:
    from intercom.core.connections import Connection
    from intercom.core.ordered import OrderedInbox
    from intercom.core.sessions import Session

OPEN = frozenset({"pending", "received"})
"""States in which something may still become of a command."""


class Stage(Enum):
    """Name how far a claim is."""

    AWAITING = "awaiting"
    CHECKING = "checking"
    READY = "ready"
    ENDED = "ended"


_MOVES = {
    Stage.AWAITING: frozenset({Stage.CHECKING, Stage.ENDED}),
    Stage.CHECKING: frozenset({Stage.READY, Stage.ENDED}),
    Stage.READY: frozenset({Stage.ENDED}),
    Stage.ENDED: frozenset[Stage](),
}


class Command:
    """Hold one command."""

    __slots__ = ("record", "ticket")

    def __init__(self, record: CommandRecord, ticket: int = 0) -> None:
        self.record = record
        self.ticket = ticket
        """Of the append with its newest row."""

    @property
    def is_open(self) -> bool:
        """Tell whether something may still become of it."""
        return self.record.state in OPEN


class Claim:
    """Hold the right of one connection to a link."""

    __slots__ = (
        "connection",
        "connection_id",
        "deadline",
        "draining",
        "generation",
        "inbox",
        "is_draining",
        "link",
        "offered",
        "session",
        "stage",
        "waiting",
        "worker_state",
    )

    def __init__(self, link: Link, connection: Connection, session: Session, connection_id: str) -> None:
        self.link = link
        self.connection = connection
        self.session = session
        self.connection_id = connection_id
        self.generation = link.record.generation
        self.stage = Stage.AWAITING
        self.inbox: OrderedInbox[Any]
        self.deadline: Deadline | None = None
        """Of the readiness, later of the receipt of what is offered."""
        self.offered: Command | None = None
        """It is being read, or was written and has no receipt."""
        self.is_draining = False
        self.draining: list[Told] = []
        """Who waits until nothing is offered."""
        self.waiting: frozenset[str] = frozenset()
        """Ids of commands the worker said it will not begin before the next broker is there."""
        self.worker_state: dict[str, Any] | None = None

    def look_whether_drained(self) -> None:
        """Tell those who wait for it when nothing is offered, once what that rests on is recorded."""
        if self.offered is None:
            draining, self.draining = self.draining, []
            for told in draining:
                told(None)

    def drain(self, told: Told) -> None:
        """Call ``told`` once nothing is offered."""
        self.draining.append(told)
        self.look_whether_drained()

    def move(self, to: Stage) -> None:
        """Go to another stage; raises ``ValueError`` for a move that does not exist, and changes nothing then."""
        if to not in _MOVES[self.stage]:
            raise ValueError(f"a claim does not go from {self.stage.value} to {to.value}")
        self.stage = to


class Link:
    """Hold one link."""

    __slots__ = (
        "claim",
        "commands",
        "events",
        "exhausted_at",
        "failures",
        "heartbeat_at",
        "other_journal",
        "record",
        "ticket",
    )

    def __init__(self, record: LinkRecord) -> None:
        self.record = record
        self.ticket = 0
        """Of the append with its newest row."""
        self.claim: Claim | None = None
        self.commands: dict[int, Command] = {}
        """By their places, in order."""
        self.events: dict[int, EventRecord] = {}
        """Those of the pinned journal that are remembered, by their numbers there, in order."""
        self.failures: deque[int] = deque()
        """When attempts failed (monotonic ms)."""
        self.exhausted_at: int | None = None
        """The generation for which it was recorded that the attempts are used up."""
        self.other_journal: str | None = None
        """With which journal its worker came last and was refused."""
        self.heartbeat_at: int | None = None
        """Epoch ms."""

    @property
    def id(self) -> str:
        """Return the id of the link."""
        return self.record.link_id

    @property
    def open_count(self) -> int:
        """Return how many commands are open."""
        return sum(1 for command in self.commands.values() if command.is_open)

    @property
    def state(self) -> str:
        """Return the state as it is shown."""
        if self.record.refused is not None:
            return "refused"
        if self.claim is None:
            return "away"
        return "ready" if self.claim.stage is Stage.READY else "connecting"


def fingerprint_of(body: bytes) -> str:
    """Return what tells whether two bodies are the same."""
    return sha256(body).hexdigest()
