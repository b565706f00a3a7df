"""Open, settle and revive questions as their two sides come and go (protocol 6.5, design section 5 "Asks survive")."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import UNSET, Raw
from msgspec.json import encode

from intercom.core.addresses import Addresses
from intercom.core.attempts import Refusal
from intercom.core.clock import Instant
from intercom.core.features import OPERATOR, QUEUE
from intercom.core.operation import Operation
from intercom.core.outbox import Outbox
from intercom.core.questions import Question, Questions
from intercom.core.records import QuestionRecord
from intercom.core.sessions import Session, SessionTable
from intercom.core.waits import Wait, Waits
from intercom.limits import CIRCLE_NAMES, NAME_CHARACTERS, SHORT_ID_CHARACTERS, Limits
from intercom.wire import reasons
from intercom.wire.frames import MessageFrame, PeerDisconnected
from intercom.wire.mail import QuestionReopened, QuestionWithdrawn

if TYPE_CHECKING:
    from intercom.core.attempts import Attempt


UNSEEN = "somebody out of your reach"
"""What a session is told of a party that it may not see."""


class Asking:
    """Join the register of questions with the sessions behind it."""

    def __init__(
        self,
        questions: Questions,
        waits: Waits,
        sessions: SessionTable,
        addresses: Addresses,
        limits: Limits,
        outbox: Outbox,
    ) -> None:
        self._addresses = addresses
        self._questions = questions
        self._waits = waits
        self._sessions = sessions
        self._limits = limits
        self._outbox = outbox
        self.is_shut = False
        """The broker leaves soon: nothing new is asked."""
        self.holder_of: Callable[[str], Session | None] = lambda key: None
        """Tells who receives the mail of a mailbox."""
        self.returns_by: Callable[[str], int | None] = lambda session_id: None
        """Tells until when (monotonic ms) a session elsewhere may come back whose broker begins anew."""

    def refusal(self, asker: Session) -> Refusal | None:
        """Return why this session may ask nothing more now, or None when it may."""
        if self.is_shut:
            return Refusal("D15", reasons.DRAINING)
        if self._questions.count_asked_by(asker.id) + asker.asks_under_way >= self._limits.asks:
            return Refusal("D15", reasons.capacity(f"{self._limits.asks} asks are open", self._limits.ask_ms))
        return None

    def begin(self, attempt: Attempt) -> None:
        """Take note that an ask is under way: from now on its sender waits, until the attempt is settled."""
        attempt.sender.asks_under_way += 1
        attempt.waits = self._waits
        self._waits.begin(attempt)

    def circle(self, asker: Session, target: Session, answered: Question | None = None) -> str | None:
        """Return why this session must not wait for that one: somebody would wait for itself; None when it may.

        What it waits for already may be asked again. ``answered`` is a question that ends with this ask, because the
        ask answers it. Of the parties in the circle only those are named that the asker
        may see (protocol 15.1).
        """
        if target.address is not None and target.address.is_of_broker:
            return None
        chain = self._waits.chain(target.party, asker.party, answered)
        return self._described(chain, asker, target) if chain else None

    def _described(self, chain: Sequence[Wait], asker: Session, target: Session) -> str:
        between = [self.name_of(wait.target_id, asker) for wait in chain[:-1]]
        if len(between) > CIRCLE_NAMES:
            between[CIRCLE_NAMES - 1 : -1] = [f"{len(between) - CIRCLE_NAMES} more"]
        return reasons.would_deadlock(self.name_of(target.id, asker), between)

    @property
    def waits(self) -> Waits:
        """Return who waits for whom."""
        return self._waits

    def is_reached(self, identity: str, viewer: Session) -> bool:
        """Tell whether this is a mailbox of an address that the viewer may write to."""
        address = self._addresses.of_key(identity)
        return address is not None and address.is_reachable_from(viewer.groups)

    def name_of(self, identity: str, viewer: Session) -> str:
        """Return how a session may call who has this session id or mailbox: by a name, if it may see that one."""
        session = self._sessions.get(identity)
        if session is not None:
            is_seen = session.shares_group_with(viewer) or OPERATOR in viewer.features
            name = session.name or identity[:SHORT_ID_CHARACTERS]
            return name[:NAME_CHARACTERS] if is_seen else UNSEEN
        address = self._addresses.of_key(identity)
        if address is not None and (address.is_reachable_from(viewer.groups) or OPERATOR in viewer.features):
            return address.name[:NAME_CHARACTERS]
        return UNSEEN

    def open(self, asker: Session, target: Session, operation: Operation, now: Instant) -> None:
        """Record the question for the two sessions unless its deadline has passed; once it is open this has no effect.

        A dormant question of the same ask gives way: its asker has come back as this session. So does one of this
        asker that waits for the return of its target: this is the target, under another id.
        """
        self._open(asker, target.id, operation, now)

    def open_again(self, asker: Session, key: str, operation: Operation, now: Instant) -> None:
        """Record the question of an ask that was confirmed for an address nobody holds now: it owes the answer."""
        self._open(asker, key, operation, now)
        operation.recipient_session = key

    def _open(self, asker: Session, target_id: str, operation: Operation, now: Instant) -> None:
        for earlier in operation.questions:
            if earlier.dormant or (earlier.target_wait is not None and earlier.asker_id == asker.id):
                self._questions.close(earlier)
        if operation.question_due > now.mono:
            self._questions.open(asker.id, target_id, operation)

    def close(self, question: Question) -> None:
        """End a question without telling anybody: it was answered or never was."""
        self._questions.close(question)

    def reopen(self, question: Question, now: Instant) -> None:
        """Open a question again whose answer could not be recorded."""
        asker = self._sessions.get(question.asker_id)
        if asker is not None and question.operation.question_due > now.mono:
            self._questions.open(question.asker_id, question.target_id, question.operation)
            self.settle_if_over(asker, question.target_id, question.message_id, now)

    def withdraw(self, asker: Session, message_id: str) -> None:
        """End the questions this session asked under this message id, and tell who was asked (protocol 4.24, 5.42)."""
        for question in self._questions.asked_by(asker.id):
            if question.message_id == message_id:
                self._questions.close(question)
                self._tell_over(question)

    def tell_withdrawn(self, asker_id: str, target: Session, message_id: str) -> None:
        """Tell a session that was asked, if it understands that, that nobody waits for its answer."""
        if QUEUE in target.features:
            self._outbox.write(target.connection, QuestionWithdrawn(message_id, asker_id))

    def tell_reopened(self, asker: Session, target: Session, message_id: str, after: int) -> None:
        """Tell a session that has a question, if it understands that, that its answer is waited for again."""
        if QUEUE in target.features:
            self._outbox.write(target.connection, QuestionReopened(message_id, asker.id), after)

    def _tell_over(self, question: Question) -> None:
        """Tell who has a question, as who was asked or as who acts for it, that nobody waits for the answer."""
        target = self._sessions.get(question.target_id) or self.holder_of(question.target_id)
        if target is not None:
            self.tell_withdrawn(question.asker_id, target, question.message_id)

    def find_any(self, asker_id: str, target_id: str, message_id: str) -> Question | None:
        """Return the question of this triple, also one whose asker has still to return."""
        return self._questions.find(asker_id, target_id, message_id)

    def find_waiting(self, asker_id: str, mailbox: str, message_id: str) -> Question | None:
        """Return the question of this asker to an address one of whose two sides has still to return."""
        for question in self._questions.asked_by(asker_id):
            if question.message_id == message_id and question.is_waiting and question.operation.target == mailbox:
                return question
        return None

    def open_to_mailbox(self, operation: Operation, key: str) -> None:
        """Record the question of an ask that was handed over out of a mailbox: whoever acts for it answers."""
        question = self._questions.open(operation.sender_session, key, operation)
        if self._sessions.get(operation.sender_session) is None:
            question.dormant, question.asker_return = True, operation.asker_return

    def restore(self, question: Question) -> None:
        """Open a question again as it was, whose answer could not be recorded."""
        again = self._questions.open(question.asker_id, question.target_id, question.operation)
        again.dormant, again.asker_return = question.dormant, question.asker_return

    def owed(self, *identities: str, mailbox: str | None = None) -> list[Question]:
        """Return the questions these sessions and mailboxes owe an answer, oldest first.

        ``mailbox`` is that of an address: its own are also those whose last holder has not returned after a restart.
        """
        owed = {id(question): question for identity in identities for question in self._questions.owed_by(identity)}
        if mailbox is not None:
            owed |= {id(each): each for each in self._questions if each.is_waiting and each.operation.target == mailbox}
        return sorted(owed.values(), key=lambda question: question.operation.number)

    def owed_by_mailbox(self, target: Session, key: str) -> list[Operation]:
        """Let the open questions to a session that leaves in order be owed by its address from now on.

        Whoever acts under the address answers them: a command that reads a question has ended before it is answered.
        Returns the asks whose rows have to say so.
        """
        handed = []
        for question in self._questions.owed_by(target.id):
            if not question.is_waiting:
                self._questions.close(question)
                self._questions.open(question.asker_id, key, question.operation)
                question.operation.recipient_session = key
                handed.append(question.operation)
        return handed

    def asker_away(self, asker: Session) -> None:
        """Let what a session waits for wait for its return."""
        for question in self._questions.asked_by(asker.id):
            question.dormant = True
            question.asker_return = asker.return_hash
            self._questions.target_returned([question])  # the wait for the other side begins anew with its return

    def asker_left(self, session_id: str) -> None:
        """Drop what a session waits for that departs, or was away and does not come back, and tell who was asked."""
        for question in self._questions.asked_by(session_id):
            self._questions.close(question)
            self._tell_over(question)

    def target_left(self, target: Session) -> None:
        """Tell everybody who waits for a departing session; what waits for a side to return stays."""
        for question in self._questions.owed_by(target.id):
            asker = self._sessions.get(question.asker_id)
            if asker is not None and not question.is_waiting and not self._waits_for_return(question):
                self._questions.close(question)
                self._tell_gone(asker, question, target)

    def _waits_for_return(self, question: Question) -> bool:
        """Let a question wait for who was asked, if that may come back; return whether it does."""
        due = self.returns_by(question.target_id)
        if due is not None:
            self._questions.target_returned([question])
            self._questions.wait_for_target(question, due, self._target_stayed_away)
        return due is not None

    def target_ended(self, target: Session, now: Instant) -> None:
        """Settle every question to a session that turned terminal."""
        for question in self._questions.owed_by(target.id):
            asker = self._sessions.get(question.asker_id)
            if asker is not None and not question.is_waiting:
                self._questions.close(question)
                self._tell_terminal(asker, question, target, now)

    def settle_if_over(self, asker: Session, target_id: str, message_id: str, now: Instant) -> None:
        """Settle a question at once whose other side is gone or terminal by now (protocol 6.4, race)."""
        question = self._questions.find(asker.id, target_id, message_id)
        if question is None:
            return
        target = self._sessions.get(target_id)
        if target is None:
            if not self._waits_for_return(question):
                self._questions.close(question)
                self._tell_gone(asker, question, None)
        elif target.is_terminal:
            self._questions.close(question)
            self._tell_terminal(asker, question, target, now)

    def recover(self, operation: Operation, record: QuestionRecord) -> None:
        """Open the question of an accepted, unanswered ask read from the store, dormant."""
        question = self._questions.open(record.asker_session, record.target_session, operation)
        question.asker_return = record.asker_return
        question.dormant = True

    def session_returned(self, session: Session, now: Instant, *, is_proven: bool = False) -> None:
        """Wake the dormant questions of a session that is here again under its id.

        It showed its return address, or ``is_proven`` says that it showed more.
        """
        for question in self._questions.asked_by(session.id):
            is_asker = is_proven or (question.asker_return is not None and question.asker_return == session.return_hash)
            if not question.dormant or not is_asker:
                continue
            chain = self._waits.chain(question.target_party, question.asker_party)
            if chain:
                self._questions.close(question)  # its asker asks again if it waits, and is told why it cannot
                continue
            question.dormant = False
            if question.target_id == question.operation.target and question.target_id.startswith("address:"):
                continue  # a mailbox does not leave
            holder = self._sessions.get(question.target_id)
            if holder is None or holder.target_identity != question.operation.target:
                due = now.mono + self._limits.dormant_target_ms
                self._questions.wait_for_target(question, due, self._target_stayed_away)
            else:
                self.settle_if_over(session, question.target_id, question.message_id, now)
        returned = [
            question
            for question in self._questions.owed_by(session.id)
            if question.operation.target == session.target_identity
        ]
        self._questions.target_returned(returned)
        if session.is_terminal:
            self.target_ended(session, now)

    def _target_stayed_away(self, question: Question, now: Instant) -> None:
        question.target_wait = None
        self._questions.close(question)
        asker = self._sessions.get(question.asker_id)
        assert asker is not None, "its departure would have ended the question"
        self._tell_gone(asker, question, None)

    def _tell_gone(self, asker: Session, question: Question, target: Session | None) -> None:
        if asker.knows_newest_frames:
            name = UNSET if target is None or target.name is None else target.name
            frame = PeerDisconnected(question.message_id, question.target_id, name)
            self._outbox.write(asker.connection, frame, question.operation.ticket)

    def _tell_terminal(self, asker: Session, question: Question, target: Session, now: Instant) -> None:
        message = {
            "id": f"terminal:{question.message_id}",
            "timestamp": now.wall,
            "replyTo": question.message_id,
            "replyError": reasons.TERMINAL,
            "content": {"text": reasons.TERMINAL},
        }
        frame = MessageFrame(target.encoded(), Raw(encode(message)))
        self._outbox.write(asker.connection, frame, question.operation.ticket)
