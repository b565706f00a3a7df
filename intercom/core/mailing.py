"""Live through a mail: put it down, hand it over, see it confirmed or given up (design section 7, Queueing).

    queued --written to the holder--> offered --received--> delivered
      ^  |                             |
      |  |                             +-- the holder left: queued again, its message may come twice
      |  +-- its time is over, its text is lost, its session is closed: given up, its sender is told once
      |  +-- its sender waits for no answer to it any more: taken back, nobody is told
      +-- its commit failed: taken back

Rule 1: a mail and its row change together, in one append. Rule 2: mail is handed over in its order, and nothing that
is sent later and may wait overtakes it. Rule 3: only a receipt ends a mail as delivered. Rule 4: what its sender wrote
more than once, word for word, is handed over once, with how often; each of it has an end of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import UNSET, Raw, Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from intercom.core.clock import Instant
from intercom.core.coalescing import is_plain, joinable, say_the_same
from intercom.core.deadlines import Deadlines
from intercom.core.features import QUEUE
from intercom.core.journal import Journal
from intercom.core.ledger import Ledger
from intercom.core.mailboxes import GIVEN_UP_PREFIX, Mail, Mailbox, Mailboxes
from intercom.core.outbox import Outbox
from intercom.core.peer_records import PEER
from intercom.core.records import (
    AcceptOperation,
    Change,
    Elsewhere,
    InboxRecord,
    InvocationRecord,
    MailRecord,
    OperationState,
    ReadBodies,
    ReleaseBody,
    SaveBody,
    SaveOperation,
)
from intercom.limits import LONGEST_VALIDITY_MS, Limits
from intercom.wire import notices
from intercom.wire.frames import MessageFrame, QuestionTarget
from intercom.wire.mail import MailInfo, Notice
from intercom.wire.work import AssignmentInfo

if TYPE_CHECKING:
    from intercom.core.operation import Operation
    from intercom.core.operations import Operations
    from intercom.core.sessions import Session, SessionTable

Kept: TypeAlias = Literal["quiet", "hold", "released"]
"""What a policy does with a mail, or that it was overruled."""
BROKER_NAME = "@intercom"
"""What the broker calls itself where it writes a message."""
_OFFERED = ("offers",)
"""What changes when mail is offered."""
_POSTED = ("offers", "elsewhere")
"""What changes when mail is offered that goes to another machine, or went there before."""
_TAKEN_BACK = "its sender took the question back"


class Letter(Struct, frozen=True):
    """Hold a message that is to be put down, and where it comes from."""

    mailbox: str
    message_id: str
    message: bytes
    sender_info: bytes
    sender_mailbox: str | None
    sender_session: str
    target: str
    valid_until: int | None = None
    is_ask: bool = False
    reply_to: str | None = None
    notice: bytes | None = None
    kept: Literal["quiet", "hold"] | None = None

    @property
    def size(self) -> int:
        """Return the bytes it is charged for."""
        return len(self.message) + len(self.sender_info)


class GivenUp(Struct, frozen=True):
    """Hold what ended undelivered in one append, and who is told of it."""

    mail: list[Mail]
    told: list[Mail]
    """The notices that wait in the mailboxes of senders."""
    direct: list[tuple[Any, MessageFrame]]
    """The notices for senders without a mailbox that are here."""


class Brought(Struct, frozen=True):
    """Hold what the message of an assignment is handed over with."""

    push_id: str
    info: AssignmentInfo


class Offer(Struct, frozen=True):
    """Remember for whom bodies are read."""

    box: Mailbox
    holder: Any


class Mailing:
    """Move mail from state to state."""

    def __init__(
        self,
        boxes: Mailboxes,
        operations: Operations,
        sessions: SessionTable,
        journal: Journal,
        ledger: Ledger,
        deadlines: Deadlines,
        outbox: Outbox,
        limits: Limits,
        broker_info: bytes,
    ) -> None:
        self._boxes = boxes
        self._operations = operations
        self._sessions = sessions
        self._journal = journal
        self._ledger = ledger
        self._deadlines = deadlines
        self._outbox = outbox
        self._limits = limits
        self._broker_info = broker_info
        self.is_open: Callable[[str], bool] = lambda key: True
        """Tells whether a mailbox can still be opened by somebody."""
        self.on_delivered: Callable[[Mail, int, Instant], None] = lambda mail, ticket, now: None
        """Is told of every mail that was confirmed, with the ticket on which that rests."""
        self.on_moving: list[Callable[[Mail, str, str, Instant], None]] = []
        """Are told of every mail that is about to be offered, delivered or given up, before that is appended: what it
        leads to is recorded first."""
        self.on_doubt: Callable[[Mail, Instant], None] = lambda mail, now: None
        """Is told of mail that another broker may have."""
        self.on_left: Callable[[Mail, Instant], None] = lambda mail, now: None
        """Is told of every mail that waits again because its holder left without having confirmed it."""
        self.stays: Callable[[Mail], bool] = lambda mail: False
        """Tells what is not handed over by this process any more; what came after it is."""
        self.take_unclaimed: Callable[[Mail, Instant], bool] = lambda mail, now: False
        """Takes mail over that nobody fetched in time; False: it is given up."""
        self.brought_by: Callable[[str], Brought | None] = lambda assignment_id: None
        """Tells what the mail of an assignment brings."""
        self.told_with: Callable[[str, Session], Any] = lambda message_id, session: UNSET
        """Tells what a session is told of the invocation whose task a message brings."""
        self.on_work_lost: Callable[[str, Instant], None] = lambda assignment_id, now: None
        """Is told of every assignment whose message cannot be read any more."""

    # --- put down ---------------------------------------------------------------------------------------

    def put(
        self,
        letter: Letter,
        operation: Operation | None,
        now: Instant,
        undo: Callable[[Any, Instant], None],
        subject: Any,
        *changes: Change,
        is_offered: bool = False,
        was_written: bool = False,
        body: int | None = None,
        size: int | None = None,
        number: int | None = None,
        posted_to: str = "",
        is_back: bool = False,
    ) -> Mail:
        """Append a mail at its place in its mailbox together with ``changes``, and offer it once that is committed.

        ``operation`` is its row, queued by now; ``undo(subject, now)`` is called after the mail was taken back.
        ``is_offered`` says that the holder of the mailbox has it already and has not confirmed it, ``was_written`` that
        a holder which has left may have it; ``body`` is the number under which its message is stored already, ``size``
        what that is charged for. ``number`` is its place where that is not the last one. ``posted_to`` is another
        broker that may have it: nobody here is given it until that is known. ``is_back`` says that it was mail here
        once, in this place.
        """
        if number is None:
            number = self._operations.next_number() if operation is None else operation.number
        record = MailRecord(
            number,
            letter.mailbox,
            letter.message_id,
            letter.sender_info,
            letter.sender_mailbox,
            letter.sender_session,
            letter.target,
            letter.size if size is None else size,
            now.wall,
            now.wall + self._limits.mail_ttl_ms,
            letter.valid_until,
            letter.is_ask,
            letter.reply_to,
            int(is_offered or was_written),
            letter.notice,
            kept=letter.kept,
            body=body,
            elsewhere=Elsewhere((posted_to,)) if posted_to else None,
        )
        mail = Mail(record, operation)
        mail.is_back = is_back
        mail.is_plain = mail.says is not None and is_plain(letter.message)
        box = self._boxes.add(mail)
        event_id = None if is_back else f"mail:{record.number}:queued"
        event = self._journal.event("mail.queued", record, now, event_id=event_id)
        rows = () if operation is None else (SaveOperation(operation.record()),)
        bodies = () if body is not None else (SaveBody(record.number, letter.message),)
        events: tuple[Change, ...] = (event,)
        if is_offered:
            box.mark_offered(mail, now)
            event_id = f"mail:{record.number}:offered:1"
            session_id = None if box.holder is None else box.holder.id
            offered = self._journal.event(
                "mail.offered", record, now, event_id=event_id, changed=_OFFERED, session=session_id
            )
            events = (event, offered)
        mail.ticket = self._ledger.append((*rows, *bodies, *changes, *events), self._undo_put, (mail, undo, subject))
        if operation is not None:
            operation.ticket = mail.ticket
        self._ledger.when_committed(mail.ticket, self._offer_when_committed, box)
        self._arm(mail, now)
        if posted_to:
            mail.posted_to.add(posted_to)
            self.on_doubt(mail, now)
        return mail

    def _undo_put(self, subject: Any, now: Instant) -> None:
        mail, undo, more = subject
        self._deadlines.cancel(mail.deadline)
        box = self._boxes.remove(mail)
        if box.entries:
            self._offer_later(box, now)  # what is behind it waited for it
        self._boxes.discard_if_unused(box)
        undo(more, now)

    def put_task(
        self,
        key: str,
        task: InvocationRecord,
        info: bytes,
        kept: Literal["quiet", "hold"] | None,
        now: Instant,
        undo: Callable[[Any, Instant], None],
        subject: Any,
        *changes: Change,
        is_offered: bool = False,
        was_written: bool = False,
        is_back: bool = False,
    ) -> Mail:
        """Append the message of an invocation, whose body is stored with it, as mail, with ``changes``; see ``put``.

        ``info`` is the session object of who asked, JSON. Its place is that of the invocation, however it was tried
        before; unless it was mail here once and ``is_back``.
        """
        letter = Letter(
            key,
            task.message_id,
            b"",
            info,
            task.requester_mailbox,
            task.requester_session,
            task.asked,
            task.take_until,
            kept=kept,
        )
        return self.put(
            letter,
            None,
            now,
            undo,
            subject,
            *changes,
            body=task.number,
            size=task.size,
            number=None if is_back else task.number,
            is_offered=is_offered,
            was_written=was_written,
        )

    def put_work(
        self, key: str, work: InboxRecord, assignment_id: str, changes: list[Change], now: Instant
    ) -> Mail | None:
        """Enter the message of an assignment into the mailbox of a worker that is away; None: it has no room.

        The message stays in the inbox, where its time is kept. The caller appends ``changes`` and hands the ticket to
        ``work_put``, or takes the mail out again with ``leave``.
        """
        box = self._boxes.open(key)
        if not self._boxes.has_room(box, work.size):
            self._boxes.discard_if_unused(box)
            return None
        record = MailRecord(
            self._operations.next_number(),
            key,
            work.inbox_id,
            work.sender_info,
            work.sender_mailbox,
            work.sender_session,
            work.target,
            work.size,
            now.wall,
            now.wall + LONGEST_VALIDITY_MS,
            reply_to=work.reply_to,
            assignment=assignment_id,
            body=work.number,
        )
        mail = Mail(record, None)
        self._boxes.add(mail)
        self._arm(mail, now)
        changes.append(self._journal.event("mail.queued", record, now, event_id=f"mail:{record.number}:queued"))
        return mail

    def put_parked(
        self, key: str, parked: InboxRecord, operation: Operation | None, changes: list[Change], now: Instant
    ) -> Mail:
        """Enter a message that was parked into a mailbox, for which no room is asked; the caller appends ``changes``.

        The body of a task is stored with that; everything else takes its own along.
        """
        record = MailRecord(
            parked.number,
            key,
            parked.inbox_id,
            parked.sender_info,
            parked.sender_mailbox,
            parked.sender_session,
            parked.target,
            parked.size,
            parked.parked_at,
            parked.expires_at,
            parked.valid_until,
            reply_to=parked.reply_to,
            offers=int(parked.returns > 0),
            body=parked.number if parked.reason == "invocation" else None,
        )
        mail = Mail(record, operation)
        self._boxes.add(mail)
        self._arm(mail, now)
        changes.append(self._journal.event("mail.readdressed", record, now))
        return mail

    def work_put(self, mail: Mail, ticket: int) -> None:
        """Hand over what was entered once it is recorded with this ticket."""
        mail.ticket = ticket
        self._ledger.when_committed(ticket, self._offer_when_committed, self._boxes.open(mail.record.mailbox))

    def end_work(self, mail: Mail, kind: str, changes: list[Change], now: Instant) -> bool:
        """Take the message of an assignment out of its mailbox, where it still is; the caller appends ``changes``.

        Returns whether it was there; ``put_back`` enters it again.
        """
        if not self.leave(mail):
            return False
        event_id = f"mail:{mail.number}:{kind}"
        changes.append(
            self._journal.event(f"mail.{kind}", mail.record, now, event_id=event_id, is_gone=True, changed=())
        )
        return True

    def leave(self, mail: Mail) -> bool:
        """Take mail out of its mailbox; return whether it was there."""
        box = self._boxes.get(mail.record.mailbox)
        if box is None or box.entries.get(mail.number) is not mail:
            return False
        self._deadlines.cancel(mail.deadline)
        mail.deadline = None
        self._boxes.discard_if_unused(self._boxes.remove(mail))
        return True

    def put_back(self, mail: Mail, now: Instant) -> None:
        """Let mail wait again whose end could not be recorded."""
        mail.ticket = 0
        self._offer_later(self._boxes.add(mail), now)
        self._arm(mail, now)

    @property
    def can_promise(self) -> bool:
        """Tell whether anything can be recorded: else nothing may be promised, and no mail moves."""
        return not self._ledger.is_closed

    def recover(self, record: MailRecord, now: Instant) -> None:
        """Enter mail read from the store."""
        mail = Mail(record, None)
        operation = self._operations.by_id(record.message_id)
        is_its_own = record.notice is None and record.assignment is None
        if operation is not None and operation.state is OperationState.QUEUED and is_its_own:
            mail.operation = operation
        self._boxes.add(mail)
        self._arm(mail, now)

    def _arm(self, mail: Mail, now: Instant) -> None:
        """Set its end: what is left by the wall clock, and never more than it had when it was queued."""
        record = mail.record
        due = record.expires_at if record.valid_until is None else min(record.valid_until, record.expires_at)
        mail.due = now.mono + min(max(0, due - now.wall), max(0, due - record.queued_at))
        mail.deadline = self._deadlines.add(mail.due, self._is_due, mail)

    # --- hand over --------------------------------------------------------------------------------------

    def holder_came(self, session: Session, key: str) -> Mailbox:
        """Let a session receive the mail of this mailbox from now on; the caller offers."""
        box = self._boxes.open(key)
        box.holder = session
        session.mailbox = box
        return box

    def holder_left(self, session: Session, now: Instant) -> None:
        """Take back what was offered to a session and not confirmed."""
        box = session.mailbox
        if box is None or box.holder is not session:
            return
        box.holder = None
        left = [mail for mail in box.in_order() if mail.is_offered]
        for mail in left:
            box.unmark_offered(mail)
        for mail in left:
            if mail.deadline is None:
                self._is_due(mail, now)
        for mail in left:
            if box.entries.get(mail.number) is mail:
                self.on_left(mail, now)
        self._boxes.discard_if_unused(box)

    def offer(self, box: Mailbox, now: Instant) -> None:
        """Hand over what may be handed over; first the bodies are read."""
        if box.holder is None or box.is_read or self._ledger.is_closed:
            return
        if 2 * box.offered > self._limits.mail_offers:
            return  # half of them at once is one read and one commit; one by one each would be
        chosen = self.next_to_offer(box)
        if chosen:
            box.is_read = True
            read = dict.fromkeys(mail.record.body_number for mail in chosen)
            for says, mail in {mail.says: mail for mail in chosen}.items():
                if alike := self._alike(box, mail, says):
                    read.update(dict.fromkeys(other.record.body_number for other in alike))
            self._outbox.add(ReadBodies(Offer(box, box.holder), tuple(read)))

    def _alike(self, box: Mailbox, mail: Mail, says: tuple[str, bytes] | None) -> list[Mail]:
        """Return what may be handed over with this mail, if its text is the same; most of all mail is alone."""
        alike = box.alike(says)
        return joinable(alike, mail, self._ledger.is_committed, self._limits) if alike else []

    def next_to_offer(self, box: Mailbox) -> list[Mail]:
        """Return what may be handed over now; what is not recorded yet lets nothing pass."""
        return self._committed(box.next_to_offer(self._limits, self.stays))

    def _committed(self, ready: list[Mail]) -> list[Mail]:
        return list(takewhile(lambda mail: self._ledger.is_committed(mail.ticket), ready))

    def _offer_when_committed(self, box: Mailbox, now: Instant) -> None:
        self.offer(box, now)

    def bodies_read(
        self, offer: Offer, bodies: dict[int, bytes] | None, numbers: tuple[int, ...], now: Instant
    ) -> bool:
        """Write the mail whose bodies were read to the holder; ``None`` says that they could not be read.

        Returns whether anything was handed over, or nothing was there any more.
        """
        box = offer.box
        box.is_read = False
        if box.holder is not offer.holder:
            self.offer(box, now)
            return True
        if bodies is None:
            self._offer_later(box, now)
            return False
        if not self.can_promise:
            return False
        ready = box.next_to_offer(self._limits, self.stays)
        read = [mail for mail in ready if mail.record.body_number in numbers]
        lost = [mail for mail in read if mail.record.body_number not in bodies]
        if given_up := [mail for mail in lost if mail.record.assignment is None]:
            self._give_up(given_up, "undeliverable", notices.BODY_LOST, now)
        for mail in lost:
            if mail.record.assignment is not None:
                self.on_work_lost(mail.record.assignment, now)
        has_changed = bool(lost)
        for mail in read:
            if mail.operation is not None and mail.operation.was_withdrawn:
                self.take_back(mail, now)
                has_changed = True
            elif mail.record.body_number in bodies and self._is_over(mail, now):
                self._end_of_time(mail, now)
                has_changed = True
        if has_changed:
            ready = box.next_to_offer(self._limits, self.stays)
        frames: list[MessageFrame | QuestionTarget] = []
        offered: list[Mail] = []
        events: list[Change] = []
        chosen = list(takewhile(lambda mail: mail.record.body_number in bodies, self._committed(ready)))
        for mail in chosen:
            if mail.is_offered:
                continue  # with one before it that says the same
            alike = self._alike(box, mail, mail.says)
            same = [other for other in alike if say_the_same(mail, other, bodies) and not other.is_offered]
            mail.joined = tuple(same)
            for each in (mail, *mail.joined):
                for tell in self.on_moving:
                    tell(each, "offered", "", now)
                each.offers += 1
                changed: tuple[str, ...] = _OFFERED
                each.record = replace(each.record, offers=each.offers)
                if box.holder.is_remote or each.record.elsewhere is not None:
                    # What is handed over with another one does not leave by itself.
                    peer = box.holder.at_peer if each is mail else ""
                    elsewhere = each.elsewhere(peer, is_away=box.holder.is_cut_off)
                    changed = _POSTED
                    each.record = replace(each.record, elsewhere=elsewhere)
                box.mark_offered(each, now, leader=None if each is mail else mail)
                offered.append(each)
                told: dict[str, Any] = {} if each is mail else {"with": mail.message_id}
                events.append(
                    self._journal.event(
                        "mail.offered",
                        each.record,
                        now,
                        event_id=None if each.is_back else f"mail:{each.number}:offered:{each.offers}",
                        changed=changed,
                        session=box.holder.id,
                        **told,
                    )
                )
            if mail.record.reply_to is not None and QUEUE in box.holder.features:
                # Whoever answered may not be the session that was asked, but act under the same address.
                frames.append(QuestionTarget(mail.record.reply_to, "", mail.record.sender_session))
            frames.append(self._frame(mail, bodies[mail.record.body_number], box.holder, now))
        if offered:
            # Only now: who was told that one moves has appended events of its own, which come before all of these.
            ticket = self._ledger.append(tuple(events), self._undo_offer, (box, offered))
            for frame in frames:
                self._outbox.write(box.holder.connection, frame, ticket)
        self.offer(box, now)
        return True

    def _frame(self, mail: Mail, body: bytes, holder: Session, now: Instant) -> MessageFrame:
        record = mail.record
        info = self.info_of(mail, now)
        if mail.joined:
            info.sends = 1 + len(mail.joined)
            info.last_queued_at = max(other.record.queued_at for other in mail.joined)
        notice = UNSET if record.notice is None else notice_of(record.notice)
        frame = MessageFrame(Raw(record.sender_info), Raw(body), mail=info, notice=notice)
        if record.valid_until is not None and QUEUE in holder.features:
            frame.valid_until = record.valid_until
        brought = None if record.assignment is None else self.brought_by(record.assignment)
        if brought is not None:
            frame.push_id, frame.assignment = brought.push_id, brought.info
        frame.invocation = self.told_with(record.message_id, holder)
        return frame

    def _undo_offer(self, subject: Any, now: Instant) -> None:
        box, offered = subject
        for mail in offered:
            mail.offers -= 1
            mail.record = replace(mail.record, offers=mail.offers)
            box.unmark_offered(mail)
        self._offer_later(box, now)

    def _offer_later(self, box: Mailbox, now: Instant) -> None:
        self._deadlines.add(now.mono + self._limits.mail_retry_ms, self._offer_when_committed, box)

    # --- what a policy keeps ----------------------------------------------------------------------------

    def keep(self, box: Mailbox, judged: list[tuple[Mail, Kept | None]], now: Instant) -> None:
        """Keep mail from being handed over, or let it go, as a policy says now; what is let go is offered."""
        before = [(mail, mail.record.kept) for mail, _ in judged]
        events: list[Change] = []
        for mail, kept in judged:
            box.mark_kept(mail, kept)
            kind = "mail.kept" if mail.record.is_kept else "mail.released"
            events.append(self._journal.event(kind, mail.record, now))
        ticket = self._ledger.append(tuple(events), self._undo_keep, before)
        for mail, _ in judged:
            mail.ticket = ticket
        self._ledger.when_committed(ticket, self._offer_when_committed, box)

    def _undo_keep(self, before: list[tuple[Mail, Kept | None]], now: Instant) -> None:
        for mail, kept in before:
            self._boxes.open(mail.record.mailbox).mark_kept(mail, kept)

    def refuse(self, mail: list[Mail], now: Instant) -> None:
        """Give up mail that its recipient, or the person, does not let through; its senders are told."""
        self._give_up(mail, "undeliverable", notices.NOT_LET_THROUGH, now)

    # --- the end of a mail ------------------------------------------------------------------------------

    def received(self, session: Session, message_id: str, now: Instant, *, is_late: bool = False) -> bool:
        """Take the holder's receipt; return whether it was for mail.

        ``is_late`` says that its reader was shown it after its time: it has expired then, as its sender is told.
        """
        box = session.mailbox
        mail = None if box is None else box.offered_as(message_id)
        if box is None or mail is None or box.holder is not session or self._ledger.is_closed:
            return False
        if is_late and mail.operation is not None and not mail.record.is_ask and self._is_past_validity(mail, now):
            self._give_up([mail], "expired", notices.SHOWN_LATE, now)
            self.offer(box, now)
            return True
        joined = [other for other in mail.joined if other.leader is mail]
        for each in (mail, *joined):
            self._confirm(each, session.id, now)
            self.on_delivered(each, each.ticket, now)
        self.offer(box, now)
        return True

    def confirmed_elsewhere(self, mail: Mail, session_id: str, now: Instant) -> None:
        """Take notice that another broker says that the recipient has a message, wherever that is by now."""
        for each in (mail, *(other for other in mail.joined if other.leader is mail)):
            if each.confirmed_by is None and self.can_promise:
                self._confirm(each, session_id, now)
                self.on_delivered(each, each.ticket, now)

    def handed_on(self, mail: Mail, peer: str, now: Instant) -> None:
        """Let go of mail that another broker keeps now for its recipient; what becomes of it is known there.

        Its row says where that is: the address it is for may be at home somewhere else again when somebody asks.
        """
        operation = mail.operation
        assert operation is not None, "what the broker itself wrote is kept by no other broker"
        self._deadlines.cancel(mail.deadline)
        mail.deadline = None
        self._boxes.discard_if_unused(self._boxes.remove(mail))
        operation.state = OperationState.RESERVED
        operation.position = operation.position or 1
        before, operation.target = operation.target, f"{PEER}{peer}:{mail.record.mailbox}"
        # Without an id: it may come back, and be handed on once more.
        event = self._journal.event("mail.handed_on", mail.record, now, is_gone=True, changed=())
        changes = (*_released(mail.record, now.wall), SaveOperation(operation.record()), event)
        operation.ticket = self._ledger.append(changes, self._undo_handed_on, (mail, before))

    def _undo_handed_on(self, subject: tuple[Mail, str | None], now: Instant) -> None:
        mail, target = subject
        assert mail.operation is not None, "it had a row when it was handed on"
        mail.operation.state, mail.operation.target = OperationState.QUEUED, target
        self.put_back(mail, now)

    def readdress(self, mail: Mail, key: str, now: Instant) -> None:
        """Let mail wait in another mailbox, since whoever it is for is known by that."""
        before = mail.record.mailbox
        self._put_into(mail, key)
        rows: tuple[Change, ...] = () if mail.operation is None else (SaveOperation(mail.operation.record()),)
        event = self._journal.event("mail.readdressed", mail.record, now)
        mail.ticket = self._ledger.append((*rows, event), self._undo_readdress, (mail, before))
        self._ledger.when_committed(mail.ticket, self._offer_when_committed, self._boxes.open(key))
        if mail.posted_to:
            self.on_doubt(mail, now)

    def _put_into(self, mail: Mail, key: str) -> None:
        self._boxes.discard_if_unused(self._boxes.remove(mail))
        mail.record = replace(mail.record, mailbox=key)
        self._boxes.add(mail)
        if mail.operation is not None:
            mail.operation.target = key

    def _undo_readdress(self, subject: tuple[Mail, str], now: Instant) -> None:
        mail, key = subject
        self._put_into(mail, key)
        mail.ticket = 0

    def was_passed_on(self, mail: Mail, peer: str, to: str, now: Instant) -> None:
        """Take notice that a broker has passed a message on to another one, which says what became of it."""
        mail.posted_to.discard(peer)
        mail.posted_to.add(to)
        mail.record = replace(mail.record, elsewhere=mail.elsewhere())
        self._ledger.append((self._journal.changed("mail.passed_on", mail.record, ("elsewhere",), now, {}),))

    def is_not_at(self, mail: Mail, peer: str, now: Instant) -> None:
        """Take notice that a broker has not got a message, nor will have it, or that it has sent it back."""
        box = self._boxes.get(mail.record.mailbox)
        mail.posted_to.discard(peer)
        if not mail.posted_to and box is not None:
            box.overdue.discard(mail.number)
            self.offer(box, now)

    def may_be_at(self, mail: Mail, brokers: set[str], now: Instant) -> None:
        """Take notice that mail which was given to nobody here may have been shown at other brokers."""
        if not mail.is_offered and not brokers <= mail.posted_to:
            mail.posted_to |= brokers
            self.on_doubt(mail, now)

    def put_off(self, mail: Mail, now: Instant) -> None:
        """Let mail wait that is offered and cannot go to another machine now, and what may not overtake it."""
        self._boxes.open(mail.record.mailbox).put_off[mail.number] = mail
        self.keep_for_later(mail, self._limits.peer_absent_ms, now)

    def must_wait(self, mail: Mail) -> bool:
        """Tell whether something before it was put off that it may not overtake: of the same sender, or a task."""
        put_off = self._boxes.open(mail.record.mailbox).put_off
        return any(
            number < mail.number and (other.written_by == mail.written_by or other.brings_task)
            for number, other in put_off.items()
        )

    def keep_for_later(self, mail: Mail, pause_ms: int, now: Instant) -> None:
        """Let mail wait again that its recipient could not be given, and offer it after a pause."""
        box = self._boxes.open(mail.record.mailbox)
        self._deadlines.add(now.mono + pause_ms, self._let_wait_again, (box, mail))

    def _let_wait_again(self, subject: tuple[Mailbox, Mail], now: Instant) -> None:
        box, mail = subject
        box.put_off.pop(mail.number, None)
        is_with_one_here = box.holder is not None and not box.holder.is_remote  # who has it, and confirms it
        if box.entries.get(mail.number) is mail and mail.is_offered and not is_with_one_here:
            box.unmark_offered(mail)
            if mail.deadline is None:
                self._is_due(mail, now)
        self.offer(box, now)

    def refused_elsewhere(self, mail: Mail, reason: str, now: Instant) -> None:
        """Give up mail that the broker of its recipient will never take; its sender is told."""
        self._give_up([mail], "undeliverable", reason, now, was_taken=False)

    def expired_elsewhere(self, mail: Mail, now: Instant) -> None:
        """Give up mail whose time was over when it came to the broker of its recipient; its sender is told."""
        self._give_up([mail], "expired", notices.NO_LONGER_VALID, now, was_taken=False)

    def take_out(self, mail: Mail, now: Instant) -> None:
        """Give up one mail for another machine because the operator wants that; its sender is told."""
        reason = notices.GIVEN_UP_ON_ITS_WAY if mail.offers else notices.GIVEN_UP
        self._give_up([mail], "purged", reason, now, was_taken=False)

    def settle(self, mail: list[Mail], session: Session, now: Instant) -> None:
        """Take notice that somebody who may open the mailbox has read mail that was never written to anybody."""
        for each in mail:
            self._confirm(each, session.id, now)
            self.on_delivered(each, each.ticket, now)

    def info_of(self, mail: Mail, now: Instant) -> MailInfo:
        """Return what is told of a mail beside its message."""
        record = mail.record
        return MailInfo(record.number, record.queued_at, max(0, now.wall - record.queued_at), mail.offers)

    def _confirm(self, mail: Mail, session_id: str, now: Instant) -> None:
        operation, record = mail.operation, mail.record
        for tell in self.on_moving:
            tell(mail, "delivered", "", now)
        self._deadlines.cancel(mail.deadline)
        mail.deadline = mail.confirmed_by = None
        self._boxes.discard_if_unused(self._boxes.remove(mail))
        rows: tuple[Change, ...] = ()
        if operation is not None and self._operations.is_present(operation):
            operation.state = OperationState.ACCEPTED
            operation.accepted_at = now.wall
            operation.recipient_session = record.mailbox if record.is_ask else session_id
            rows = (AcceptOperation(operation.number, operation.recipient_session, now.wall),)
        event_id = f"mail:{record.number}:delivered"
        event = self._journal.event(
            "mail.delivered", record, now, event_id=event_id, is_gone=True, changed=(), session=session_id
        )
        rows = (*rows, *_released(record, now.wall + self._limits.bodies_kept_ms))
        mail.ticket = self._ledger.append((*rows, event), self._undo_confirm, (mail, session_id))
        if operation is not None:
            operation.ticket = mail.ticket

    def _undo_confirm(self, subject: Any, now: Instant) -> None:
        """Record a receipt again a little later: the holder has the message and will not confirm it twice."""
        mail, session_id = subject
        if mail.operation is not None:
            mail.operation.state = OperationState.QUEUED
            mail.operation.accepted_at = mail.operation.recipient_session = None
        mail.ticket = 0
        mail.confirmed_by = session_id
        self._boxes.add(mail)
        mail.deadline = self._deadlines.add(now.mono + self._limits.mail_retry_ms, self._confirm_again, mail)

    def _confirm_again(self, mail: Mail, now: Instant) -> None:
        session_id = mail.confirmed_by
        if session_id is not None and self.can_promise:
            self._confirm(mail, session_id, now)

    def _is_over(self, mail: Mail, now: Instant) -> bool:
        """Tell whether its time is over by one of the clocks: the wall clock goes on while the machine sleeps."""
        record = mail.record
        until = record.expires_at if record.valid_until is None else min(record.valid_until, record.expires_at)
        return mail.due <= now.mono or until <= now.wall

    def _is_past_validity(self, mail: Mail, now: Instant) -> bool:
        until = mail.record.valid_until
        return until is not None and until <= mail.record.expires_at and self._is_over(mail, now)

    def _is_due(self, mail: Mail, now: Instant) -> None:
        mail.deadline = None
        if not mail.is_offered and self.can_promise:
            self._end_of_time(mail, now)  # else it is decided when the receipt comes, or the holder leaves

    def _end_of_time(self, mail: Mail, now: Instant) -> None:
        record = mail.record
        is_expired = record.valid_until is not None and record.valid_until <= record.expires_at
        is_unclaimed = mail.offers == 0 and record.kept != "hold"
        if not is_expired and is_unclaimed and self.take_unclaimed(mail, now):
            return
        reason = notices.NO_LONGER_VALID if is_expired else notices.NEVER_FETCHED
        if record.kept == "hold" and not is_expired:
            reason = notices.NEVER_LET_THROUGH
        if mail.offers:
            reason = notices.TIME_OVER
        self._give_up([mail], "expired" if is_expired else "undeliverable", reason, now)

    def take_back(self, mail: Mail, now: Instant) -> None:
        """End mail whose sender waits for no answer to it any more; its sender knows that."""
        assert mail.operation is not None, "only asks are taken back, and those have a row"
        mail.operation.question_due = mail.operation.born  # should that not be recorded, it is not handed over either
        self._give_up([mail], "withdrawn", _TAKEN_BACK, now)

    def purge(self, key: str, before: int, now: Instant) -> int:
        """Give up what was queued in a mailbox before this moment (epoch ms); return how much that was."""
        purged = [
            mail for mail in self.all_of(key) if mail.record.queued_at <= before and mail.record.assignment is None
        ]
        if purged:
            self._give_up(purged, "purged", notices.PURGED, now)
        return len(purged)

    def all_of(self, key: str) -> list[Mail]:
        """Return what waits in a mailbox, the oldest first."""
        box = self._boxes.get(key)
        return [] if box is None else [mail for mail in box.in_order() if mail.confirmed_by is None]

    def withdraw(self, mail: Mail, reason: str, now: Instant) -> None:
        """Take back mail of the broker itself that has become pointless."""
        self._give_up([mail], "withdrawn", reason, now)

    def arrives_after_all(self, sender: Session, message_id: str, now: Instant) -> None:
        """Take back what would tell a sender that this message was given up, before it knows: it was accepted anew."""
        box = sender.mailbox
        if box is not None and box.tells_of:
            notice = box.tells_of.get(message_id)
            if notice is not None and not notice.is_offered and self.can_promise:
                self.withdraw(notice, "its message was sent again", now)

    def _give_up(self, mail: list[Mail], kind: Any, reason: str, now: Instant, *, was_taken: bool = True) -> None:
        """End mail undelivered, in an append of its own."""
        changes: list[Change] = []
        given_up = self.give_up(mail, kind, reason, changes, now, was_taken=was_taken)
        self.given_up(given_up, self._ledger.append(tuple(changes), self.unsettle_given_up, given_up), now)

    def give_up(
        self, mail: list[Mail], kind: Any, reason: str, changes: list[Change], now: Instant, *, was_taken: bool = True
    ) -> GivenUp:
        """End mail undelivered and tell each sender once: in its mailbox, or at once when it has none and is here.

        Of what was handed over before nobody says that it was not delivered: its recipient may be done with it, unless
        not ``was_taken``: whoever it was handed to did not take it. The caller appends ``changes`` and hands the ticket
        to ``given_up``.
        """
        given_up = GivenUp(mail, [], [])
        for one in mail:
            for tell in self.on_moving:
                tell(one, kind, reason, now)
        for one in mail:
            record = one.record
            is_open = one.offers and was_taken and kind != "withdrawn" and reason != notices.SHOWN_LATE
            why = notices.never_confirmed(reason) if is_open else reason
            self._deadlines.cancel(one.deadline)
            one.deadline = None
            was_joined = bool(one.joined)
            box = self._boxes.remove(one)
            if was_joined:
                self._offer_later(box, now)
            self._boxes.discard_if_unused(box)
            changes.append(
                self._journal.event(
                    f"mail.{kind}",
                    record,
                    now,
                    event_id=f"mail:{record.number}:{kind}",
                    is_gone=True,
                    changed=(),
                    reason=why,
                )
            )
            changes += _released(record, now.wall + self._limits.bodies_kept_ms)
            if one.operation is not None:
                changes.extend(self._operations.drop(one.operation))
            if record.notice is None and kind != "withdrawn":
                told = "expired" if kind == "expired" else "undeliverable"
                self.tell_sender(record, record.message_id, told, why, changes, given_up, now)
        return given_up

    def given_up(self, given_up: GivenUp, ticket: int, now: Instant) -> None:
        """Tell the senders behind the append with this ticket."""
        for notice in given_up.told:
            notice.ticket = ticket
            box = self._boxes.open(notice.record.mailbox)
            self._ledger.when_committed(ticket, self._offer_when_committed, box)
            self._arm(notice, now)
        for session, frame in given_up.direct:
            self._outbox.write(session.connection, frame, ticket)

    def undo_give_up(self, given_up: GivenUp, now: Instant) -> None:
        """Let mail wait again whose end could not be recorded."""
        for notice in given_up.told:
            self._deadlines.cancel(notice.deadline)
            self._boxes.discard_if_unused(self._boxes.remove(notice))
        for mail in given_up.mail:
            if mail.operation is not None:
                self._operations.put_back(mail.operation)
            mail.ticket = 0
            self._boxes.add(mail)

    def unsettle_given_up(self, given_up: GivenUp, now: Instant) -> None:
        """Let mail wait again whose end could not be recorded, and look at it again a little later."""
        self.undo_give_up(given_up, now)
        for mail in given_up.mail:
            due = max(mail.due, now.mono + self._limits.mail_retry_ms)
            mail.deadline = self._deadlines.add(due, self._is_due, mail)
            self._offer_later(self._boxes.open(mail.record.mailbox), now)

    def tell_sender(
        self,
        record: MailRecord | InboxRecord,
        told_of: str,
        kind: Any,
        reason: str,
        changes: list[Change],
        given_up: GivenUp,
        now: Instant,
    ) -> None:
        """Tell the sender of the message ``told_of`` that it was given up, in the append of the caller."""
        notice = Notice(kind, told_of, record.target, reason)
        message_id = f"{GIVEN_UP_PREFIX}{record.number}:{told_of}"  # the same message may be given up again
        message = {
            "id": message_id,
            "timestamp": now.wall,
            "content": {"text": f"Message {told_of} to {record.target} {notices.fate(kind, reason)}: {reason}"},
        }
        key = record.sender_mailbox
        if key is not None and self.is_open(key):
            body, encoded = encode(message), encode(notice)
            size = len(body) + len(self._broker_info)
            notified = MailRecord(
                self._operations.next_number(),
                key,
                message_id,
                self._broker_info,
                None,
                "",
                "",
                size,
                now.wall,
                now.wall + self._limits.mail_ttl_ms,
                notice=encoded,
            )
            mail = Mail(notified, None)
            self._boxes.add(mail)
            given_up.told.append(mail)
            event_id = f"mail:{notified.number}:queued"
            changes.append(SaveBody(notified.number, body))
            changes.append(self._journal.event("mail.queued", notified, now, event_id=event_id))
            return
        sender = self._sessions.get(record.sender_session)
        if sender is not None and QUEUE in sender.features:
            given_up.direct.append((sender, MessageFrame(Raw(self._broker_info), Raw(encode(message)), notice=notice)))


def _released(record: MailRecord, at: int) -> tuple[Change, ...]:
    """Return what lets the body of a mail go, unless something else needs that."""
    return (ReleaseBody(record.number, at),) if record.body is None else ()


def broker_info(broker_id: str, pid: int, now: Instant) -> bytes:
    """Return the session object under which the broker itself writes."""
    return encode(
        {
            "id": broker_id,
            "name": BROKER_NAME,
            "cwd": "",
            "model": "",
            "pid": pid,
            "startedAt": now.wall,
            "lastActivity": now.wall,
            "group": "default",
            "groups": ["default"],
        }
    )


def notice_of(stored: bytes) -> Notice:
    """Return what the broker itself wrote of a message."""
    return decode(stored, type=Notice)
