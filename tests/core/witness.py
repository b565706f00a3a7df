"""Keep an account of what every client sent and saw, and object to whatever the rules do not allow.

The account knows inputs, frames and times, and what the disk holds; it never looks into the core. Where only the core
can know something for sure (such as whether a question is open) the account knows two bounds: what may be so at most,
and what must be so at least.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from msgspec import UNSET
from msgspec.json import decode as from_json

from intercom.core.effects import Append, Write
from intercom.core.records import OperationState, SaveOperation
from intercom.limits import Limits
from intercom.wire import reasons
from intercom.wire.frames import (
    DeliveryFailed,
    GroupEntry,
    Groups,
    MessageFrame,
    PeerDisconnected,
    PresenceUpdate,
    QuestionTarget,
    Registered,
    SessionJoined,
    SessionLeft,
    Sessions,
    SupervisorAuthorized,
)
from tests.core.harness import Disk, Watcher, World

BASE_TYPES = {
    "registered",
    "sessions",
    "message",
    "delivered",
    "delivery_failed",
    "session_joined",
    "session_left",
    "presence_update",
}
ON_REQUEST = {
    "registration_failed",
    "presence_ack",
    "presence_failed",
    "membership_ack",
    "groups",
    "supervisor_authorized",
    "health",
}
ALLOWED_TYPES = BASE_TYPES | ON_REQUEST | {"question_target"}
UNCERTAIN_REASONS = (
    reasons.UNCERTAIN,
    reasons.UNDER_WAY,
    reasons.NOT_CONFIRMED_DURABLY,
    reasons.RECEIPT_MISSING,
)
"""Whoever is told one of these does not know whether the message arrived."""


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


class WatchedDisk(Disk):
    """Remember what was ever durable."""

    def __init__(self) -> None:
        super().__init__()
        self.ever: set[str] = set()
        self.ever_accepted: set[str] = set()

    def commit(self, append: Append) -> None:
        super().commit(append)
        for change in append.changes:
            if isinstance(change, SaveOperation):
                self.ever.add(change.record.message_id)
                if change.record.state is OperationState.ACCEPTED:
                    self.ever_accepted.add(change.record.message_id)

    def states_of(self, message_id: str) -> set[OperationState]:
        """Return the states of the rows of this message id."""
        return {row.state for row in self.operations.values() if row.message_id == message_id}


class Witness(Watcher):
    """Watch one broker and its successors over one disk."""

    def __init__(self, limits: Limits, *, bounds_are_hit: bool) -> None:
        self.limits = limits
        self.bounds_are_hit = bounds_are_hit
        self.disk = WatchedDisk()
        self.world = World(limits=limits, auto=False, disk=self.disk, watcher=self)
        self.order = 0
        self.lines: dict[int, Line] = {}
        self.members: list[Member] = []
        """Everybody who is here, in the order of registration."""
        self.everybody: list[Member] = []
        self.attempts: dict[str, list[Attempt]] = defaultdict(list)
        self.forwards: dict[str, list[Forward]] = defaultdict(list)
        self.by_write: dict[int, tuple[Write, Forward]] = {}
        self.receipts: dict[tuple[tuple[str, ...], str], list[Member]] = {}
        """Who proved to have a message, by target identity and message id."""
        self.last_receipts: dict[tuple[tuple[str, ...], str], int] = {}
        """When somebody confirmed last; a reply may count as proof, this counts only receipts."""
        self.cancelled: dict[tuple[Member, str], int] = {}
        self.settled: dict[tuple[Member, str], int] = {}
        """Order in which an asker was told last that nobody will answer."""
        self.owners: dict[str, str | None] = {}
        """Return addresses of everybody who ever had a session id, as far as a restart does not forget them."""
        self.capabilities: dict[str, tuple[str, str, str | None]] = {}
        """(supervisor id, child name, bound name) by capability."""
        self.cause: Attempt | Line | None = None
        self.pending_registration: dict[str, Any] = {}
        self.store_is_closed = False
        self.last_restart = self.restarted_at = 0
        self.due_receipts: list[tuple[Line, str]] = []

    @property
    def mono(self) -> int:
        return self.world.mono

    def tick(self) -> int:
        self.order += 1
        return self.order

    # --- who is here ------------------------------------------------------------------------------------

    def find(self, session_id: str) -> Member | None:
        return next((member for member in self.members if member.id == session_id), None)

    def peers_of(self, member: Member) -> list[Member]:
        return [peer for peer in self.members if peer is not member and peer.shares_group_with(member)]

    def snapshot(self, member: Member) -> set[str]:
        return {peer.id for peer in self.peers_of(member) if peer.is_agent}

    def meant(self, sender: Member, target: str) -> list[Member]:
        """Return everybody in reach whom a target of a plain send may mean (protocol 6.2)."""
        exact = self.find(target)
        if exact is not None:
            return [exact]
        reach = [peer for peer in self.members if peer.is_agent and peer.shares_group_with(sender)]
        named = [peer for peer in reach if peer.name is not None and peer.name.lower() == target.lower()]
        return named or [peer for peer in reach if len(target) == 8 and peer.id[:8].lower() == target.lower()]

    def _enter(self, line: Line, frame: Registered) -> None:
        request = self.pending_registration
        program, info = line.program, request["session"]
        groups = [group.strip() or "default" for group in info.get("groups", [])]
        if "group" in info:
            groups.append(info["group"].strip() or "default")
        groups = list(dict.fromkeys(groups)) or ["default"]
        legacy = info["group"].strip() or "default" if "group" in info else groups[0]
        home = request.get("registrationGroup", legacy)
        session_id, wish = frame.session_id, request.get("preferredSessionId")
        assert self.find(session_id) is None, "an id is never granted twice"
        if wish == session_id and wish in self.owners and not self.bounds_are_hit:
            owner = self.owners[wish]
            assert owner is not None and owner == program.address, "an id was granted to a stranger"
        self.owners[session_id] = program.address
        identity: tuple[str, ...] = ("session", session_id)
        if program.address is not None:
            mine = ("return", program.address, home)
            if all(member.identity != mine for member in self.members):
                identity = mine
        supervisor = None
        if "supervisor" in request:
            capability = request["supervisor"]["capability"]
            supervisor, child_name, bound = self.capabilities[capability]
            assert frame.supervisor_session_id == supervisor and self.find(supervisor) is not None
            assert info["name"] == (bound or info["name"] if child_name == "*" else child_name), "a wrong child"
            self.capabilities[capability] = supervisor, child_name, info["name"]
        member = Member(
            line,
            session_id,
            info.get("name"),
            groups,
            legacy,
            home,
            info.get("recipientPurpose") != "control",
            info.get("replyCapability") == "terminal",
            supervisor,
            identity,
            self.tick(),
            self.mono,
        )
        self.members.append(member)
        self.everybody.append(member)
        line.member = member
        program.last_id = session_id
        member.view = self.snapshot(member)

    def leave(self, line: Line) -> None:
        """Note that the session of a connection is gone."""
        if line.member is not None:
            line.member.here = False
            self.members.remove(line.member)
            line.member = None

    def ended(self, conn: int) -> None:
        line = self.lines[conn]
        line.ended = True
        self.leave(line)

    def restarted(self) -> None:
        """Note that a new broker reads what the disk holds."""
        for line in self.lines.values():
            line.ended = True
            self.leave(line)
        for message_id, forwards in self.forwards.items():
            is_on_disk = bool(self.disk.states_of(message_id))
            for forward in forwards:
                if forward.fate == "pending" or (forward.fate == "lost" and is_on_disk):
                    forward.fate = "died"
        self.by_write.clear()
        self.capabilities.clear()
        self.owners = {
            session_id: owner for session_id, owner in self.owners.items() if session_id in self.disk.retired
        }
        self.store_is_closed = False
        self.cause = None
        self.last_restart, self.restarted_at = self.tick(), self.mono

    # --- clients write ----------------------------------------------------------------------------------

    def attempted(self, line: Line, kind: str, frame: dict[str, Any]) -> Attempt:
        """Note an attempt that is about to be made; it is the cause of what the core writes next."""
        member, message = line.member, frame["message"]
        assert member is not None
        content = (
            frame.get("logicalTarget", frame["to"]),
            message["content"]["text"],
            message.get("replyTo"),
            message.get("expectsReply") is True,
            member.program.address,
            member.group_identity if "requirePendingReply" in frame else None,
        )
        meant = self.meant(member, frame["to"])
        aimed = meant[0] if len(meant) == 1 else None
        attempt = Attempt(line, member, kind, frame, self.mono, self.tick(), content, member.group_identity, aimed)
        if aimed is not None and attempt.reply_to is not None:
            attempt.answers_question = self.must_be_open(aimed, member, attempt.reply_to)
        attempt.repeats_open_ask = self._has_open_question(attempt.id)
        for earlier in self.attempts[attempt.id]:
            if earlier.content == content:
                earlier.newer = attempt
        self.attempts[attempt.id].append(attempt)
        self.cause = attempt
        if attempt.reply_to is not None:
            self.confirmed(line, attempt.reply_to, by_reply=True)
        return attempt

    def confirmed(self, line: Line, message_id: str, *, by_reply: bool = False) -> None:
        """Note that a client proves that it has a message."""
        member = line.member
        if member is not None and member.confirms:
            self.receipts.setdefault((member.identity, message_id), []).append(member)
            if not by_reply:
                self.last_receipts[member.identity, message_id] = self.tick()
            for forward in self.forwards[message_id]:
                if forward.recipient.identity == member.identity:
                    forward.reached_at = self.mono

    # --- questions and crossings ------------------------------------------------------------------------

    def _reached(self, forward: Forward) -> bool:
        if forward.recipient.confirms:
            return (forward.recipient.identity, forward.attempt.id) in self.receipts
        return forward.fate == "taken"

    def _replies(self, question: str) -> list[Forward]:
        return [
            forward
            for forwards in self.forwards.values()
            for forward in forwards
            if forward.attempt.reply_to == question
        ]

    def may_be_open(self, asker: Member, target: Member, question: str) -> bool:
        """Tell whether ``target`` may owe ``asker`` an answer at all (protocol 6.5)."""
        asks = [
            attempt
            for attempt in self.attempts[question]
            if attempt.is_ask
            and (
                attempt.member is asker
                or (
                    attempt.order < self.last_restart
                    and attempt.member.id == asker.id
                    and attempt.member.program is asker.program
                    and asker.program.address is not None
                )
            )
        ]
        forwards = [
            forward
            for forward in self.forwards[question]
            if forward.attempt.is_ask
            and (forward.fate == "taken" or self._reached(forward))
            and (forward.recipient.program is target.program or forward.recipient.identity == target.identity)
        ]
        if not asks or not forwards or self._was_taken_back(question):
            return False
        newest = max(attempt.order for attempt in asks)
        if self.cancelled.get((asker, question), 0) > newest:
            return False
        last = max(forward.order for forward in forwards)
        answered = not self._may_be_cancelled(asker, question, 0) and any(
            reply.attempt.was_delivered
            and reply.attempt.answers_question
            and reply.attempt.member is target
            and reply.order > last
            for reply in self._replies(question)
            if reply.recipient is asker
        )
        return not answered and self.mono <= max(attempt.at for attempt in self.attempts[question]) + self.limits.ask_ms

    def _has_open_question(self, message_id: str) -> bool:
        """Tell whether a row surely stands for an open question that nobody has tried to answer yet."""
        forwards = self.forwards[message_id]
        asked = any(self.must_be_open(f.attempt.member, f.recipient, message_id) for f in forwards)
        return asked and not self._replies(message_id)

    def _may_be_cancelled(self, asker: Member, question: str, since: int) -> bool:
        """Tell whether the asker, or another session with its return address, took an ask back after ``since``."""
        return any(
            asked == question and order > since and member.program is asker.program
            for (member, asked), order in self.cancelled.items()
        )

    def must_be_open(self, asker: Member, target: Member, question: str) -> bool:
        """Tell whether ``target`` surely owes ``asker`` an answer."""
        mine = [attempt for attempt in self.attempts[question] if attempt.member is asker]
        revived = self._revived(asker, question)
        if mine and self._may_be_cancelled(asker, question, mine[-1].order):
            return False
        if not (asker.here and target.here and not target.is_terminal and self._is_unanswered(question)):
            return False
        if mine and mine[-1].is_ask and mine[-1].was_surely_delivered and mine[-1].aimed is target:
            return any(self._reached(f) for f in self.forwards[question] if f.recipient is target)
        return (
            revived is not None
            and revived.aimed is not None
            and (revived.aimed.id, revived.aimed.identity) == (target.id, target.identity)
            and self._is_first_since_restart(target)
            and target.since < asker.since + self.limits.dormant_target_ms
        )

    def _is_unanswered(self, question: str) -> bool:
        return all(self._has_failed(reply.attempt) for reply in self._replies(question)) and all(
            self.mono < forward.row_at + self.limits.ask_ms for forward in self.forwards[question]
        )

    def _has_failed(self, attempt: Attempt) -> bool:
        """Tell whether a reply was surely not recorded, so that it ended no question."""
        codes = [reasons.code_of(answer.get("reason", "")) for answer in attempt.answers]
        return "attemptId" in attempt.frame and codes in (["not_confirmed"], ["not_recorded"], ["not_found"])

    def _is_first_since_restart(self, member: Member) -> bool:
        alike = [other for other in self.everybody if other.id == member.id and other.order > self.last_restart]
        return alike == [member]

    def _revived(self, asker: Member, question: str) -> Attempt | None:
        """Return the ask of a former life that surely came back with its asker after a restart (design 5)."""
        attempts = self.attempts[question]
        newest = attempts[-1] if attempts else None
        if (
            newest is not None
            and newest.is_ask
            and newest.was_surely_delivered
            and newest.order < self.last_restart < asker.order
            and newest.member.program is asker.program
            and all(attempt.member.id == asker.id for attempt in attempts)
            and asker.program.address is not None
            and all(
                forward.recipient is newest.aimed and self.restarted_at < forward.row_at + self.limits.operation_ttl_ms
                for forward in self.forwards[question]
            )
            and all(asked != question for _, asked in self.cancelled)
            and self._is_first_since_restart(asker)
        ):
            return newest
        return None

    def _was_taken_back(self, message_id: str) -> bool:
        """Tell whether what followed from a message was undone, because its acceptance could not be recorded."""
        answers = self.attempts[message_id][-1].answers
        return bool(answers) and answers[-1].get("reason") == reasons.NOT_CONFIRMED_DURABLY

    def _may_cross(self, message_id: str, child: Member, supervisor: Member) -> bool:
        return not self._was_taken_back(message_id) and any(
            forward.attempt.kind == "supervisor_send"
            and forward.attempt.member.id == child.id
            and forward.attempt.order > self.last_restart
            and forward.recipient.program is supervisor.program
            and (forward.fate == "taken" or self._reached(forward))
            and self.mono < forward.reached_at + self.limits.crossing_ms
            for forward in self.forwards[message_id]
        )

    # --- the core writes --------------------------------------------------------------------------------

    def written(self, write: Write) -> None:
        line, frame = self.lines[write.to], write.frame
        kind = frame.__struct_config__.tag
        newest = line.program.generation is Generation.NEWEST
        assert kind in ALLOWED_TYPES or (newest and kind == "peer_disconnected"), f"{kind} to {line.program}"
        member = line.member
        if isinstance(frame, Registered):
            self._enter(line, frame)
        elif isinstance(frame, MessageFrame):
            self._message_written(line, write, frame)
        elif isinstance(frame, SessionJoined):
            assert member is not None
            info = from_json(frame.session)
            assert info["id"] not in member.view, "joined twice"
            member.view.add(info["id"])
            self._check_info(info)
        elif isinstance(frame, PresenceUpdate):
            assert member is not None
            info = from_json(frame.session)
            assert info["id"] in member.view, "an update about a stranger"
            self._check_info(info)
        elif isinstance(frame, SessionLeft):
            assert member is not None
            assert frame.session_id in member.view, "a stranger left"
            member.view.remove(frame.session_id)
        elif isinstance(frame, DeliveryFailed) and isinstance(self.cause, Attempt) and self.cause.line is line:
            attempts = [attempt for attempt in self.attempts[frame.message_id] if attempt.line is line]
            is_meant = self.cause in attempts and frame.attempt_id == self.cause.frame.get("attemptId", UNSET)
            if self.cause.forward is None and is_meant and (frame.attempt_id is not UNSET or len(attempts) == 1):
                self._check_refusal(self.cause, frame.reason)
        elif isinstance(frame, QuestionTarget):
            attempt = self._attempt_of(line, frame.message_id, frame.attempt_id)
            assert attempt.is_ask and attempt.frame.get("resolveReplyTarget") is True
            assert not attempt.answers, "a question target after the final answer"
        elif isinstance(frame, PeerDisconnected):
            assert member is not None
            assert any(
                attempt.is_ask and attempt.member.program is line.program for attempt in self.attempts[frame.reply_to]
            )
        elif isinstance(frame, SupervisorAuthorized):
            self._authorized(line, frame)
        elif isinstance(frame, Sessions):
            self._check_list(line, frame)
        elif isinstance(frame, Groups):
            self._check_groups(line, frame.groups)

    def _authorized(self, line: Line, frame: SupervisorAuthorized) -> None:
        assert line.member is not None and frame.supervisor_session_id == line.member.id
        known = self.capabilities.get(frame.capability)
        assert known is None or known[1] == frame.child_name
        bound = None if known is None or self.bounds_are_hit else known[2]
        self.capabilities[frame.capability] = line.member.id, frame.child_name, bound
        if known is None:
            line.program.capabilities.append((frame.child_name, frame.capability))

    def _check_info(self, info: dict[str, Any]) -> None:
        subject = self.find(info["id"])
        assert subject is not None and subject.is_agent
        assert info.get("name") == subject.name
        assert (info["groups"], info["group"]) == (subject.groups, subject.legacy)

    def _check_list(self, line: Line, frame: Sessions) -> None:
        member, group = line.member, frame.request_id.partition("@")[2]
        assert member is not None
        expected = [
            peer.id
            for peer in self.members
            if peer.is_agent and (group in peer.groups if group else peer.shares_group_with(member))
        ]
        assert [from_json(entry)["id"] for entry in frame.sessions] == expected

    def _check_groups(self, line: Line, entries: list[GroupEntry]) -> None:
        counts: dict[str, int] = defaultdict(int)
        for peer in self.members:
            for group in peer.groups if peer.is_agent else ():
                counts[group] += 1
        assert line.member is not None
        mine = line.member.groups
        assert [(entry.group, entry.session_count, entry.member) for entry in entries] == [
            (group, count, group in mine) for group, count in sorted(counts.items(), key=lambda item: item[0].lower())
        ]

    def _message_written(self, line: Line, write: Write, frame: MessageFrame) -> None:
        recipient, message = line.member, from_json(frame.message)
        assert recipient is not None
        message_id, sender = message["id"], from_json(frame.sender)
        if message_id.startswith("terminal:"):
            ended = self.find(sender["id"])
            assert ended is not None and ended.is_terminal, "only who ended settles a question so"
            asked = self.attempts[message["replyTo"]]
            assert any(attempt.is_ask and attempt.member.program is line.program for attempt in asked)
        elif isinstance(self.cause, Attempt):
            attempt = self.cause
            assert attempt.id == message_id and attempt.forward is None, "one forward for one attempt"
            assert sender["id"] == attempt.member.id, "from is the sender as it is now"
            assert message["content"] == attempt.message["content"]
            assert (frame.channel == "supervisor") == (attempt.kind == "supervisor_send")
            self._check_forward(attempt, recipient)
            ttl = self.limits.operation_ttl_ms
            row_at = min([f.at for f in self.forwards[message_id] if self.mono < f.at + ttl], default=self.mono)
            attempt.forward = Forward(attempt, recipient, row_at, self.mono, self.tick())
            self.forwards[message_id].append(attempt.forward)
            self.by_write[id(write)] = write, attempt.forward
        else:
            assert self.cause is line, "a message out of nothing"
            earlier = [f for f in self.forwards[message_id] if f.recipient.identity == recipient.identity]
            assert earlier and recipient.confirms, "written again to somebody else"
            confirmed = self.last_receipts.get((recipient.identity, message_id), 0)
            assert confirmed < earlier[-1].order, "written again although it was confirmed"
            again = Forward(earlier[-1].attempt, recipient, earlier[-1].row_at, self.mono, self.tick())
            self.forwards[message_id].append(again)
            self.by_write[id(write)] = write, again

    def _remembered(self, message_id: str) -> list[Forward]:
        return [f for f in self.forwards[message_id] if self.mono < f.row_at + self.limits.operation_ttl_ms]

    def _may_be_evicted(self, forward: Forward) -> bool:
        return (
            self.bounds_are_hit
            and not forward.attempt.is_ask
            and any(attempt.was_delivered for attempt in self.attempts[forward.attempt.id])
            and self.mono >= forward.row_at + self.limits.evictable_after_ms
        )

    def _check_forward(self, attempt: Attempt, recipient: Member) -> None:
        """Object to a message that may not reach this recipient, or not again."""
        sender, target, reply_to = attempt.member, attempt.frame["to"], attempt.reply_to
        assert recipient.is_agent and recipient is not sender
        assert not self.store_is_closed, "sent without a store"
        name = None if recipient.name is None else recipient.name.lower()
        assert target == recipient.id or target.lower() in (name, recipient.id[:8].lower())
        if target != recipient.id and reply_to is None:
            assert self.meant(sender, target) == [recipient], "an ambiguous target"
        assert not (attempt.is_ask and recipient.is_terminal), "an ask to somebody who has ended"
        assert (
            (attempt.kind == "supervisor_send" and sender.supervisor == recipient.id)
            or sender.shares_group_with(recipient)
            or (reply_to is not None and self.may_be_open(recipient, sender, reply_to))
            or (reply_to is not None and self._may_cross(reply_to, recipient, sender))
        ), "a message crossed groups"
        if attempt.is_pending_reply:
            assert reply_to is not None and self.may_be_open(recipient, sender, reply_to), "no question was open"
        for earlier in self.forwards[attempt.id] if attempt.repeats_open_ask else self._remembered(attempt.id):
            if earlier.may_have_arrived and not self._may_be_evicted(earlier):
                same = earlier.content == attempt.content and earlier.recipient.identity == recipient.identity
                assert same, "one id for two messages"
                assert recipient.confirms, "a second copy to somebody who does not confirm"

    def _check_refusal(self, attempt: Attempt, reason: str) -> None:
        """Object to a refusal that is not justified."""
        sender, target = attempt.member, attempt.frame["to"]
        meant = self.meant(sender, target)
        first = meant[0] if meant else None
        known = [
            f
            for f in self.forwards[attempt.id]
            if (f.may_have_arrived or f.fate == "died" or self._reached(f))
            and (self.mono < f.at + self.limits.operation_ttl_ms or f.attempt.is_ask)
        ]
        match reasons.code_of(reason):
            case "not_found":
                assert self.find(target) is None
                assert not meant or attempt.kind == "supervisor_send"
            case "different_group":
                # A reply may mean somebody in no group of its sender by name.
                assert first is not None or attempt.reply_to is not None
                if first is not None:
                    assert not sender.shares_group_with(first)
                    assert attempt.reply_to is None or not self.must_be_open(first, sender, attempt.reply_to)
            case "self_target":
                assert first is sender
            case "not_an_agent":
                assert any(not peer.is_agent for peer in self.members)
                assert first is None or not first.is_agent
            case "terminal":
                assert first is not None and first.is_terminal and attempt.is_ask
            case "other_recipient":
                wording = attempt.frame.get("logicalTarget")
                assert first is not None
                assert attempt.frame.get("expectedRecipientId", first.id) != first.id or (
                    wording is not None and self.meant(sender, wording) != [first]
                )
            case "ambiguous":
                assert len(meant) > 1 or attempt.reply_to is not None
            case "conflict":
                assert known, "a conflict with nothing"
                identity = None if first is None else first.identity
                assert any((f.content, f.recipient.identity) != (attempt.content, identity) for f in known)
            case "outcome_unknown":
                assert any(f.content == attempt.content for f in known), "nothing can have arrived"
            case "under_way":
                assert any(f.fate == "pending" for f in known), "nothing is under way"
            case "no_open_question":
                assert attempt.is_pending_reply and attempt.reply_to is not None
                assert first is None or not self.must_be_open(first, sender, attempt.reply_to), "a question is open"
            case "route_lost":
                assert attempt.is_ask
                assert any(f.attempt.groups != attempt.groups for f in known)
            case "capacity":
                assert self.bounds_are_hit
            case "no_supervisor":
                assert attempt.kind == "supervisor_send" and sender.supervisor is None
            case "other_supervisor":
                assert attempt.kind == "supervisor_send" and sender.supervisor != target
            case "store_unusable":
                assert self.store_is_closed
            case code:
                raise AssertionError(f"refused at once with {code}: {reason}")

    # --- the kernel takes -------------------------------------------------------------------------------

    def taken(self, write: Write, frame: dict[str, Any]) -> None:
        line = self.lines[write.to]
        kind = frame["type"]
        if kind == "registered":
            line.registered += 1
        elif kind not in ON_REQUEST:
            assert line.registered, "registered is the first frame a session sees"
        if kind == "message":
            self._message_taken(line, write, frame)
        elif kind in ("delivered", "delivery_failed"):
            self._answer_taken(line, frame)
        elif kind == "peer_disconnected" and line.member is not None:
            self._settled(line.member, frame["replyTo"])
        if "requestId" in frame:
            allowed = line.requests.pop(frame["requestId"], ())
            assert kind in allowed, f"an answer nobody waits for: {frame}"

    def _settled(self, asker: Member, question: str) -> None:
        assert question in self.disk.ever_accepted, "the end of a question that was not recorded"
        self.settled[asker, question] = self.tick()

    def gone(self, write: Write) -> None:
        if id(write) in self.by_write:
            self.by_write.pop(id(write))[1].fate = "lost"

    def _message_taken(self, line: Line, write: Write, frame: dict[str, Any]) -> None:
        message = frame["message"]
        if id(write) not in self.by_write:
            if line.member is not None:
                self._settled(line.member, message["replyTo"])
            return
        forward = self.by_write.pop(id(write))[1]
        forward.fate = "taken"
        forward.reached_at = self.mono
        if forward.attempt.forward is forward and "attemptId" in forward.attempt.frame:
            for answer in forward.attempt.answers:
                self._check_claim(forward, answer)
        heard = Heard(message["id"], frame["from"]["id"], message.get("expectsReply") is True)
        line.program.heard.append(heard)
        if line.program.confirms and line.program.prompt:
            self.due_receipts.append((line, message["id"]))

    def _check_claim(self, forward: Forward, answer: dict[str, Any]) -> None:
        if answer["type"] == "delivery_failed" and not answer["reason"].startswith(UNCERTAIN_REASONS):
            assert forward.fate != "taken", f"said not to be sent, and was: {answer['reason']}"

    def _attempt_of(self, line: Line, message_id: str, attempt_id: str | None) -> Attempt:
        mine = [a for a in self.attempts[message_id] if a.line is line and a.frame.get("attemptId") == attempt_id]
        assert mine, "an answer for nobody"
        # Without an attempt id nobody knows which attempt is meant; only the number of answers is certain then.
        return next((attempt for attempt in mine if not attempt.answers), mine[-1])

    def _answer_taken(self, line: Line, frame: dict[str, Any]) -> None:
        message_id = frame["messageId"]
        attempt = self._attempt_of(line, message_id, frame.get("attemptId"))
        assert not attempt.answers, f"two final answers: {attempt.answers} and {frame}"
        attempt.answers.append(frame)
        if frame["type"] == "delivered":
            assert message_id in self.disk.ever_accepted, "delivered without an accepted row"
            reached = [f.content for f in self.forwards[message_id] if self._reached(f)]
            assert reached and (attempt.content in reached or "attemptId" not in frame), "delivered to nobody"
            return
        if "attemptId" not in frame:
            return  # it may be about another attempt
        if attempt.forward is not None:
            self._check_claim(attempt.forward, frame)
        if frame["reason"] == reasons.RECEIPT_MISSING:
            assert attempt.forward is not None and attempt.forward.recipient.confirms
            waited_until = attempt.at + self.limits.receipt_wait_ms
            assert self.mono >= min(waited_until, attempt.forward.row_at + self.limits.operation_ttl_ms)
        if reasons.code_of(frame["reason"]) in ("conflict", "outcome_unknown", "under_way"):
            assert message_id in self.disk.ever, "an answer that rests on a row that was undone"

    # --- at rest ----------------------------------------------------------------------------------------

    def check_views(self) -> None:
        """Object when a client was told of other peers than it can see (protocol 6.3)."""
        for member in self.members:
            assert member.view == self.snapshot(member), f"{member} sees {member.view}"

    def check_disk(self) -> None:
        """Object when something was called delivered that the disk does not hold (protocol 6.9)."""
        for message_id in list(self.attempts):
            if self._has_open_question(message_id):
                assert OperationState.ACCEPTED in self.disk.states_of(message_id), f"{message_id} is open, not on disk"
            for forward in self._remembered(message_id):
                if forward.attempt.was_surely_delivered and not self._may_be_evicted(forward):
                    assert OperationState.ACCEPTED in self.disk.states_of(message_id), f"{message_id} is not on disk"

    def check_stopped(self) -> None:
        """Object to a reservation that survived a graceful stop although its message never left (design 5)."""
        for row in self.disk.operations.values():
            if row.state is OperationState.RESERVED:
                assert any(f.fate in ("taken", "died") or self._reached(f) for f in self.forwards[row.message_id]), (
                    f"{row.message_id} never left"
                )

    def check_answers(self) -> None:
        """Object when somebody still waits for an answer although nothing moves any more."""
        for attempts in self.attempts.values():
            for attempt in attempts:
                if attempt.member.here and attempt.newer is None:
                    alike = [attempt]
                    if "attemptId" not in attempt.frame:  # its answer may count for an earlier attempt
                        alike = [earlier for earlier in attempts if earlier.line is attempt.line]
                    assert any(earlier.answers for earlier in alike), f"no answer to {attempt.frame}"
        for line in self.lines.values():
            assert line.ended or not line.requests, f"no answer to {line.requests}"

    def check_silence(self) -> None:
        """Object when an asker waits for somebody who cannot answer any more and was not told (protocol 6.5)."""
        for question, attempts in self.attempts.items():
            newest = attempts[-1]
            asker, targets = newest.member, [newest.aimed]
            if newest.forward is not None:
                targets += self.receipts.get((newest.forward.recipient.identity, question), [])
            if (
                newest.is_ask
                and newest.was_surely_delivered
                and asker.here
                and self._is_unanswered(question)
                and not self._may_be_cancelled(asker, question, newest.order)
                and all(
                    target is not None
                    and (
                        (self.find(target.id) is None and asker.program.address is not None)
                        or (target.here and target.is_terminal)
                    )
                    for target in targets
                )
            ):
                assert self.settled.get((asker, question), 0) > newest.order, f"{question} waits in silence"
        for question in list(self.attempts):
            for asker in self.members:
                revived = self._revived(asker, question)
                if (
                    revived is not None
                    and revived.aimed is not None
                    and self.find(revived.aimed.id) is None
                    and self._is_unanswered(question)
                    and self.mono >= asker.since + self.limits.dormant_target_ms
                ):
                    assert (asker, question) in self.settled, f"{question} waits in silence since the restart"
