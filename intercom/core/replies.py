"""Answer the senders of assigned messages, once for each reply request (protocol 10.4.3).

(none) --the sender has a mailbox--> sent: reply and end of the assignment are one append
   |
   +--it has none--> requested --written--> sent, when it confirms
                         |  ^          +--> unknown, when it does not
                         |  +-- never written: the next request sends it, under the same id
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Raw
from msgspec.json import encode

from intercom.core.assignments import Assignment, Assignments
from intercom.core.clock import Instant
from intercom.core.giving import Giving, No
from intercom.core.idempotency import REPLIES, Entry, Outcome, Register, Standing
from intercom.core.ledger import Ledger
from intercom.core.mailboxes import Mailboxes
from intercom.core.mailing import Letter, Mailing
from intercom.core.move import Move, take_back
from intercom.core.offers import Missing, Offered, Offers
from intercom.core.sessions import Session, SessionTable
from intercom.wire.frames import MessageFrame
from intercom.wire.work import AssignmentReplied, AssignmentReply

if TYPE_CHECKING:
    from intercom.core.connections import Connection

STALE = No(
    "assignment_unknown",
    "No such assignment is open: it has ended, was given back, or never was; trace tells what became of its message",
    category="reply_handle_stale",
)
OTHERS = No(
    "assignment_target_mismatch", "This assignment was given to another session", category="acceptance_rejected"
)
NOT_ACCEPTED = No("assignment_not_accepted", "Report the assignment as accepted first", category="acceptance_rejected")
_OTHER_REPLY = No(
    "reply_idempotency_conflict",
    "Another reply was sent under this replyRequestId",
    category="processing_failed_or_expired",
)
_UNKNOWN = No(
    "send_outcome_unknown",
    "The reply may have arrived: its recipient has not confirmed it; do not send it under another replyRequestId",
    category="processing_failed_or_expired",
    outcome_unknown=True,
)
_NOBODY = No(
    "target_unknown",
    "The sender of the message is gone and has no mailbox; nothing was sent",
    category="target_unavailable_before_acceptance",
)
_NOT_NOW = No(
    "target_not_writable",
    "The reply could not be handed over; nothing was sent, try again under the same replyRequestId",
    True,
    category="target_unavailable_before_acceptance",
)


class _Sending:
    """Hold a reply that is on its way to a session without a mailbox."""

    __slots__ = ("assignment", "entry")

    def __init__(self, assignment: Assignment, entry: Entry) -> None:
        self.assignment = assignment
        self.entry = entry


class Replies:
    """Send replies, and end the assignments they answer."""

    def __init__(
        self,
        assignments: Assignments,
        register: Register,
        mailing: Mailing,
        boxes: Mailboxes,
        sessions: SessionTable,
        offers: Offers,
        giving: Giving,
        ledger: Ledger,
        ids: Callable[[], str],
    ) -> None:
        self._assignments = assignments
        self._register = register
        self._mailing = mailing
        self._boxes = boxes
        self._sessions = sessions
        self._offers = offers
        self._giving = giving
        self._ledger = ledger
        self._ids = ids
        self._sending: dict[str, Offered] = {}
        """Replies that are on their way to sessions without a mailbox, by their keys."""

    def reply(self, connection: Connection, session: Session, frame: AssignmentReply, now: Instant) -> No | None:
        """Send a reply, or answer with the outcome it had; one that is under way is shared."""
        key = f"{identity_of(session)} {frame.assignment_id} {frame.reply_request_id}"
        fingerprint = encode([frame.source_message_id, frame.content]).decode()
        known = self._register.find(REPLIES, key)
        if known is None:
            assignment = self._open_for(session, frame)
            if isinstance(assignment, No):
                return assignment
        standing, entry = self._register.begin(REPLIES, key, fingerprint, now)
        if standing is Standing.CONFLICT:
            return _OTHER_REPLY
        subject = (connection, frame.request_id)
        if standing in (Standing.DONE, Standing.UNKNOWN):
            self._tell(subject, self._register.outcome(entry), now)
            return None
        if standing is Standing.IN_FLIGHT and key in self._sending:
            self._register.share(entry, self._tell, subject)
            return None
        assignment = self._open_for(session, frame)
        if isinstance(assignment, No):
            return assignment
        self._register.share(entry, self._tell, subject)
        return self._send(assignment, session, entry, frame, now)

    def _open_for(self, session: Session, frame: AssignmentReply) -> Assignment | No:
        assignment = self._assignments.get(frame.assignment_id)
        if assignment is None or assignment.record.message_id != frame.source_message_id:
            return STALE
        if not assignment.is_of(session):
            return OTHERS
        return assignment if assignment.record.accepted else NOT_ACCEPTED

    def _send(
        self, assignment: Assignment, session: Session, entry: Entry, frame: AssignmentReply, now: Instant
    ) -> No | None:
        record = assignment.parked.record
        assignment.answer = frame.content.text
        message_id = entry.result.get("messageId") or f"reply:{self._ids()}"
        message = encode(
            {"id": message_id, "timestamp": now.wall, "content": frame.content, "replyTo": record.inbox_id}
        )
        asker = self._sessions.get(record.sender_session)
        # Of whoever is elsewhere no mailbox is known here but that in which what is for it waits for its outcome.
        is_elsewhere = asker is not None and asker.is_remote
        box = asker.target_identity if asker is not None and is_elsewhere else record.sender_mailbox
        if box is not None and (is_elsewhere or self._mailing.is_open(box)):
            letter = Letter(
                box,
                message_id,
                message,
                session.written(),
                session.return_mailbox,
                session.id,
                record.sender_session,
                reply_to=record.inbox_id,
            )
            return self._put(assignment, entry, letter, now)
        if asker is None:
            self._register.withdraw(entry)
            entry.sharers.clear()
            return _NOBODY
        self._write(assignment, session, asker, entry, message_id, message, now)
        return None

    # --- to a mailbox -----------------------------------------------------------------------------------

    def _put(self, assignment: Assignment, entry: Entry, letter: Letter, now: Instant) -> No | None:
        box = self._boxes.open(letter.mailbox)
        if not self._boxes.has_room(box, letter.size):
            self._boxes.discard_if_unused(box)
            self._register.withdraw(entry)
            entry.sharers.clear()
            return _NOT_NOW
        move = Move()
        move.inverse(lambda now: self._register.withdraw(entry))
        status = "queued" if box.holder is None else "sent"
        self._request(assignment, entry, letter.message_id, move, now)
        self._emit(assignment, entry, letter.message_id, status, move, now)
        mail = self._mailing.put(letter, None, now, take_back, move, *move.changes)
        self._register.settle(entry, mail.ticket, now)
        return None

    def _request(self, assignment: Assignment, entry: Entry, message_id: str, move: Move, now: Instant) -> None:
        detail = {"replyRequest": entry.key.rpartition(" ")[2], "message": message_id}
        self._assignments.note(assignment, "reply_requested", move, now, detail=detail)

    def _emit(
        self, assignment: Assignment, entry: Entry, message_id: str, status: str, move: Move, now: Instant
    ) -> None:
        """End an assignment with its reply, and remember the outcome of the request."""
        self._assignments.end(
            assignment, "reply_emitted", "answered", "answered", move, now, detail={"message": message_id}
        )
        move.changes.append(self._register.done(entry, {"messageId": message_id, "status": status}, now))

    # --- to a session without a mailbox -----------------------------------------------------------------

    def _write(
        self,
        assignment: Assignment,
        session: Session,
        asker: Session,
        entry: Entry,
        message_id: str,
        message: bytes,
        now: Instant,
    ) -> None:
        sending = _Sending(assignment, entry)
        ticket = assignment.ticket
        if not entry.result:
            move = Move()
            move.inverse(lambda now: self._not_requested(entry, now))
            self._request(assignment, entry, message_id, move, now)
            move.changes.append(self._register.keep(entry, {"messageId": message_id}, now))
            ticket = assignment.ticket = move.append(self._ledger)
        frame = MessageFrame(session.encoded(), Raw(message))
        self._sending[entry.key] = self._offers.offer(
            asker,
            frame,
            message_id,
            message_id,
            now,
            after=ticket,
            on_received=self._received,
            on_missing=self._missing,
            subject=sending,
        )

    def _not_requested(self, entry: Entry, now: Instant) -> None:
        """Take a reply back whose request could not be recorded: its frame was dropped."""
        self._offers.withdraw(self._sending.pop(entry.key))
        sharers, entry.sharers = entry.sharers, []
        self._register.withdraw(entry)
        for _, (connection, request_id) in sharers:
            self._giving.refuse(connection, request_id, self._giving.not_recorded)

    def _received(self, sending: _Sending, now: Instant) -> None:
        self._sending.pop(sending.entry.key, None)
        entry, assignment = sending.entry, sending.assignment
        message_id = entry.result["messageId"]
        move = Move()
        # It was sent: the next request sends it again under the same id, which its recipient knows.
        move.inverse(lambda now: self._register.reopen(entry, now))
        if self._assignments.get(assignment.id) is assignment:
            self._emit(assignment, entry, message_id, "sent", move, now)
        else:
            move.changes.append(self._register.done(entry, {"messageId": message_id, "status": "sent"}, now))
        self._register.settle(entry, move.append(self._ledger), now)

    def _missing(self, sending: _Sending, why: Missing, now: Instant) -> None:
        entry = sending.entry
        self._sending.pop(entry.key, None)
        unknown = self._register.unknown(entry, now)
        self._register.settle(entry, self._ledger.append((unknown,)), now)

    # --- answers ----------------------------------------------------------------------------------------

    def _tell(self, subject: Any, outcome: Outcome, now: Instant) -> None:
        connection, request_id = subject
        if outcome.state is Standing.DONE:
            result = outcome.result
            self._giving.give(
                connection, AssignmentReplied(request_id, result["messageId"], result["status"]), outcome.ticket
            )
        else:
            self._giving.refuse(connection, request_id, _UNKNOWN)

    def sent(self, session: Session, reply_to: str, message_id: str, now: Instant) -> None:
        """Take a plain message that answers an accepted assignment for its reply."""
        assignment = self._assignments.accepted_for(session, reply_to)
        if assignment is not None and self._mailing.can_promise:
            move = Move()
            self._assignments.end(
                assignment, "reply_emitted", "answered", "answered", move, now, detail={"message": message_id}
            )
            move.append(self._ledger)


def identity_of(session: Session) -> str:
    """Return under which identity the keys of a session's reports and replies are remembered."""
    return session.return_mailbox or session.target_identity
