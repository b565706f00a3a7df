"""Keep an account of what every client sent and saw.

The account knows inputs, frames and times, and what the disk holds; it never looks into the core. Where only the core
can know something for sure (such as whether a question is open) the account knows two bounds: what may be so at most,
and what must be so at least.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from intercom.core.effects import Append, Write
from intercom.core.records import AcceptOperation, OperationState, SaveOperation
from intercom.limits import Limits
from intercom.wire import reasons
from intercom.wire.frames import Registered
from tests.core.actors import Attempt, Forward, Line, Member
from tests.core.harness import Disk, World


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
            if isinstance(change, AcceptOperation):
                self.ever_accepted.add(self.operations[change.number].message_id)

    def states_of(self, message_id: str) -> set[OperationState]:
        """Return the states of the rows of this message id."""
        return {row.state for row in self.operations.values() if row.message_id == message_id}


class Account:
    """Know who is here, what was sent and what came of it, and which questions may and must be open."""

    world: World

    def __init__(self, limits: Limits, *, bounds_are_hit: bool) -> None:
        self.limits = limits
        self.bounds_are_hit = bounds_are_hit
        self.disk = WatchedDisk()
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
        answers = [answer for attempt in self.attempts[message_id] for answer in attempt.answers]
        newest = self.attempts[message_id][-1].answers
        return (
            bool(newest)
            and newest[-1].get("reason") == reasons.NOT_CONFIRMED_DURABLY
            and all(answer["type"] != "delivered" for answer in answers)
        )

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
