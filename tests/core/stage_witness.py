"""Watch a broker among workflow runs and object when it breaks a rule that holds whatever departs when (protocol 6.12).

The witness has an account of its own: who owns which run, what owners are deciding about, what reached whom. It is as
plain as the rules are told and shares nothing with the core but the grammar of targets.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from intercom.core.effects import Write
from intercom.limits import Limits
from intercom.wire import reasons
from intercom.wire.frames import (
    Delivered,
    LiveWorkflowStageRouteRegistered,
    MessageFrame,
    PendingStageMessage,
    Queued,
)
from intercom.wire.targets import StageTarget, owns_group, parse_target
from tests.core.harness import Watcher, World

HAZARDS = ("queued", "peer_disconnected", "pending_stage_notification", "question_target")
"""What ends the connection of a client that has not shown that it knows them (protocol 5.30)."""


@dataclass(eq=False)
class Actor:
    """Be one client program; it keeps its return address and the id it last had."""

    number: int
    kind: str
    home: str
    groups: tuple[str, ...]
    is_newest: bool = True
    confirms: bool = False
    capability: str = ""
    last_id: str | None = None
    conn: int | None = None
    unconfirmed: list[str] = field(default_factory=list)
    notified: list[tuple[str, str]] = field(default_factory=list)
    """Request id and message id of notifications that wait for this program."""


@dataclass(eq=False)
class Sent:
    """Be one attempt to send."""

    actor: Actor
    conn: int
    id: str
    attempt_id: str
    frame: dict[str, Any]
    answers: list[dict[str, Any]] = field(default_factory=list)
    decided: str | None = None

    @property
    def target(self) -> StageTarget:
        target = parse_target(self.frame["to"])
        assert target is not None
        return target


@dataclass(eq=False)
class Pending:
    """Be one question to an owner."""

    id: str
    conn: int
    run: str
    sent: Sent
    at: int


@dataclass(eq=False)
class Ownership:
    """Be the route of one run, as the rules say it must be."""

    conn: int
    capability: str
    group: str
    is_dormant: bool


class StageWitness(Watcher):
    """Keep the account of one world."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.actors: dict[int, Actor] = {}
        """By connection."""
        self.owners: dict[str, Ownership] = {}
        self.pending: dict[str, Pending] = {}
        self.sent: dict[str, list[Sent]] = {}
        self.notifications: set[str] = set()
        self.admitted: set[str] = set()
        """Notifications that a recipient took."""
        self.notified: Counter[str] = Counter()
        self.waits: dict[tuple[int, str], set[str]] = {}
        self.released: list[Pending] = []
        """Questions a barrier did not wait for any more; their owners must have left."""
        self.reached: Counter[tuple[str, Actor]] = Counter()
        self.cause: Sent | None = None
        self.forwarded: Sent | None = None
        self.world = World(limits=limits, auto=False, watcher=self)

    # --- the account ------------------------------------------------------------------------------------

    def is_here(self, conn: int) -> bool:
        return self.world.broker.is_registered(conn)

    def owner(self, run: str) -> Ownership | None:
        """Return who owns a run now; a route ends with its owner."""
        found = self.owners.get(run)
        return found if found is not None and self.is_here(found.conn) else None

    def announced(self, actor: Actor, conn: int, run: str, group: str, is_dormant: bool) -> bool:
        """Change the account as protocol 6.12.3 says; return whether the announcement is authorised."""
        existing = self.owner(run)
        if group != actor.home:
            return False
        if existing is None:
            self.owners[run] = Ownership(conn, actor.capability, group, is_dormant)
            return True
        is_same = existing.capability == actor.capability and existing.group == group
        takes_over = (
            existing.is_dormant
            and not is_dormant
            and existing.conn != conn
            and existing.capability != actor.capability
            and existing.group == group
        )
        if takes_over or (is_same and existing.conn == conn):
            self.owners[run] = Ownership(conn, actor.capability, group, is_dormant)
        return takes_over or is_same

    def is_undecided(self, pending: Pending) -> bool:
        return (
            pending.id in self.pending
            and self.world.mono < pending.at + self.limits.owner_answer_ms
            and self.is_here(pending.conn)
        )

    def undecided(self) -> list[Pending]:
        return [pending for pending in self.pending.values() if self.is_undecided(pending)]

    # --- the core writes --------------------------------------------------------------------------------

    def written(self, write: Write) -> None:
        frame = write.frame
        if isinstance(frame, PendingStageMessage):
            self._asked(write.to, frame)
        elif isinstance(frame, LiveWorkflowStageRouteRegistered):
            for request_id in self.waits.pop((write.to, frame.request_id)):
                pending = self.pending.get(request_id)
                if pending is not None and self.is_undecided(pending):
                    self.released.append(pending)
        elif isinstance(frame, MessageFrame) and self.forwarded is not None:
            assert self.is_here(self.forwarded.conn), "forwarded for a sender that had left"
        elif isinstance(frame, Delivered) and frame.message_id in self.sent:
            self._check_delivered(frame)
        elif isinstance(frame, Delivered):
            assert frame.message_id in self.admitted, "a notification nobody took"
        elif isinstance(frame, Queued):
            sent = self._of(frame.message_id, frame.attempt_id)
            assert sent.decided == "queued", "queued by nobody"
            assert frame.target == sent.frame["to"] and frame.position >= 1

    def _asked(self, conn: int, frame: PendingStageMessage) -> None:
        sent = self.cause
        assert sent is not None, "an owner is asked because somebody sends"
        owner = self.owner(frame.run_id)
        assert owner is not None and owner.conn == conn, "asked somebody who does not own the run"
        assert frame.target == sent.frame["to"]
        group = sent.target.invocation_group
        if frame.live is not True:
            assert owner.group in sent.actor.groups, "a stranger speaks into an invocation"
            assert sent.actor.home == owner.group or not sent.actor.home.startswith("workflow:")
        assert owner.group == group
        self.pending[frame.request_id] = Pending(frame.request_id, conn, frame.run_id, sent, self.world.mono)

    def _of(self, message_id: str, attempt_id: object) -> Sent:
        return next(sent for sent in self.sent[message_id] if sent.attempt_id == attempt_id)

    def _check_delivered(self, frame: Delivered) -> None:
        sent = self._of(frame.message_id, frame.attempt_id)
        if sent.decided == "delivered" or (sent.decided == "queued" and not sent.actor.is_newest):
            return
        assert any(message_id == frame.message_id for message_id, _ in self.reached), "delivered to nobody"

    # --- the kernel takes -------------------------------------------------------------------------------

    def taken(self, write: Write, frame: dict[str, Any]) -> None:
        actor = self.actors[write.to]
        kind = frame["type"]
        assert actor.is_newest or kind not in HAZARDS, f"{kind} to a client that does not know it"
        if isinstance(write.frame, MessageFrame):
            self._message_taken(actor, frame["message"]["id"])
        elif kind == "pending_stage_notification":
            actor.notified.append((frame["requestId"], frame["message"]["id"]))
        elif kind in ("delivered", "delivery_failed", "queued"):
            self._answered(write.to, frame)

    def _message_taken(self, actor: Actor, message_id: str) -> None:
        if message_id in self.notifications:
            assert not actor.is_newest and actor.home in actor.groups
            self.admitted.add(message_id)
            return
        sent = self.sent[message_id][-1]
        assert owns_group(sent.target.invocation_group, actor.home), "a message crossed into another invocation"
        assert actor is not sent.actor, "a message came back to its sender"
        self.reached[message_id, actor] += 1
        if actor.confirms:
            actor.unconfirmed.append(message_id)
        else:
            assert self.reached[message_id, actor] == 1, f"{message_id} reached a stage twice"

    def _answered(self, conn: int, frame: dict[str, Any]) -> None:
        message_id = frame["messageId"]
        if message_id in self.notifications:
            self.notified[frame["attemptId"]] += 1
            assert self.notified[frame["attemptId"]] == 1, "two answers to one notification"
            return
        sent = self._of(message_id, frame["attemptId"])
        assert sent.conn == conn and not sent.answers, f"two final answers: {sent.answers} and {frame}"
        sent.answers.append(frame)
        if frame["type"] == "delivery_failed" and frame["reason"] == reasons.STAGE_UNACKNOWLEDGED:
            assert sent.decided is None

    # --- at rest ----------------------------------------------------------------------------------------

    def check_released(self) -> None:
        """Object when a stage was told that it is live while an owner was still deciding (protocol 6.12.5)."""
        for pending in self.released:
            assert not self.is_here(pending.conn), "a stage went live too early"
        self.released.clear()

    def check_answers(self) -> None:
        """Object when a sender's newest attempt, or a stage, still waits although nothing moves any more."""
        assert not [conn for conn, _ in self.waits if self.is_here(conn)], "a stage waits for ever"
        for attempts in self.sent.values():
            newest = {(sent.conn, sent.id): sent for sent in attempts}
            for sent in newest.values():
                assert sent.answers or not self.is_here(sent.conn), f"no answer to {sent.frame}"
