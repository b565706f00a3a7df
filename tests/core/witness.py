"""Object to whatever a broker does that its rules do not allow, judged by the account of what its clients did."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from msgspec import UNSET
from msgspec.json import decode as from_json

from intercom.core.effects import Write
from intercom.core.records import OperationState
from intercom.limits import Limits
from intercom.wire import reasons
from intercom.wire.frames import (
    Delivered,
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
from tests.core.account import Account
from tests.core.actors import Attempt, Forward, Generation, Heard, Line, Member
from tests.core.harness import Watcher, World

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


class Witness(Account, Watcher):
    """Watch one broker and its successors over one disk."""

    def __init__(self, limits: Limits, *, bounds_are_hit: bool) -> None:
        super().__init__(limits, bounds_are_hit=bounds_are_hit)
        self.world = World(limits=limits, auto=False, disk=self.disk, watcher=self)

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
        elif isinstance(frame, Delivered) and isinstance(self.cause, Attempt) and self.cause.forward is None:
            self._check_answered_again(self.cause, line, frame)
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
        assert attempt.frame.get("expectedRecipientId", recipient.id) == recipient.id, "not the expected recipient"
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

    def _check_answered_again(self, attempt: Attempt, line: Line, frame: Delivered) -> None:
        """Object when the question of a repeated ask was bound to a sender in other groups (protocol 6.9.5)."""
        if attempt.line is line and attempt.id == frame.message_id and attempt.is_ask:
            groups = [forward.attempt.groups for forward in self.forwards[attempt.id] if self._reached(forward)]
            assert attempt.groups in groups, "a question changed its groups"

    def check_written_again(self, member: Member) -> None:
        """Object when a session that registered did not get again what it had not confirmed (protocol 6.10.7)."""
        for message_id in list(self.forwards):
            mine = [f for f in self._remembered(message_id) if f.recipient.identity == member.identity]
            again = [f for f in mine if f.order > member.order]
            awaited = [f for f in mine if f.recipient.confirms and f.fate == "taken" and f.order < member.order]
            awaited = [f for f in awaited if f.order > self.last_restart]
            if awaited and (member.identity, message_id) not in self.receipts:
                assert again, f"{message_id} was not written again"

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
            case "would_deadlock":
                asked = [f for forwards in self.forwards.values() for f in forwards if f.attempt.is_ask]
                assert attempt.is_ask
                assert any(f.recipient.program is sender.program for f in asked), "nobody asked its sender"
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
