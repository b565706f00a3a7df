"""Let who owns a mailbox read what waits there and leave it, and say of each message that it was read (protocol 9.5.8).

For readers that come and go, such as a command: to look changes nothing, and is no hand-over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw, Struct

from intercom.core import features
from intercom.core.clock import Instant
from intercom.core.coalescing import say_the_same
from intercom.core.giving import No
from intercom.core.inquiries import Inquiries
from intercom.core.mailboxes import Mail, Mailbox
from intercom.core.mailing import notice_of
from intercom.core.part import Handler, Part, Reader, session_of
from intercom.core.records import ReadBodies
from intercom.wire.mail import MailPeek, MailPeeked, MailSettle, MailSettled, PeekedMail

if TYPE_CHECKING:
    from intercom.core.connections import Connection
    from intercom.core.ground import Ground
    from intercom.core.post import Post
    from intercom.core.sessions import Session

NEEDED: dict[type, frozenset[str]] = dict.fromkeys(
    (MailPeek, MailSettle), frozenset({features.LIFECYCLE, features.ADDRESS})
)
"""Of which features one at least must have been granted."""
_NO_MAILBOX = No("unknown_mailbox", "This session has no mailbox: it has neither an address nor a lifecycle")
_NOT_READ = No("not_read", "The store could not be read; ask again", retryable=True)


class Peek(Struct, frozen=True):
    """Remember who wants to read which mail."""

    connection: Any
    request_id: str
    box: Mailbox
    chosen: list[Mail]
    left: int


class Peeking(Part):
    """Answer ``mail_peek`` and ``mail_settle``."""

    def __init__(self, ground: Ground, post: Post, inquiries: Inquiries) -> None:
        self._boxes = post.boxes
        self._mailing = post.mailing
        self._inquiries = inquiries
        self._giving = inquiries.giving
        self._ledger = ground.ledger
        self._outbox = ground.outbox
        self._limits = ground.limits

    def handlers(self) -> Mapping[type, Handler]:
        """Return who takes these requests."""
        return {MailPeek: self.answer, MailSettle: self.answer}

    def readers(self) -> Mapping[type, Reader]:
        """Return who goes on after texts were read."""
        return {Peek: self._read}

    def answer(self, connection: Connection, frame: MailPeek | MailSettle, now: Instant) -> None:
        """Answer a request, or refuse it: every one gets exactly one answer."""
        session = session_of(connection)
        trouble = self._inquiries.store_trouble
        needed = NEEDED[type(frame)]
        key = session.return_mailbox
        no: No | None = None
        if not needed & session.features:
            no = No("feature_not_granted", f"This needs the feature {' or '.join(sorted(needed))}")
        elif trouble is not None:
            no = No("store_unusable", f"The store cannot be used, so nothing it keeps is shown: {trouble}")
        if key is None or no is not None:
            return self._giving.refuse(connection, frame.request_id, no or _NO_MAILBOX)
        if isinstance(frame, MailPeek):
            refused = self._peek(connection, key, frame)
        else:
            refused = self._settle(connection, session, key, frame, now)
        return None if refused is None else self._giving.decline(connection, frame.request_id, refused)

    def _peek(self, connection: Connection, key: str, frame: MailPeek) -> No | None:
        box = self._boxes.get(key) or Mailbox(key)
        waiting = [mail for mail in box.in_order() if mail.number > frame.after and self._may_be_read(mail)]
        chosen: list[Mail] = []
        size = 0
        for mail in waiting[: frame.limit]:
            size += mail.record.size
            if chosen and size > self._limits.mail_offer_bytes:
                break
            chosen.append(mail)
        peek = Peek(connection, frame.request_id, box, chosen, len(waiting) - len(chosen))
        self._outbox.add(ReadBodies(peek, tuple(mail.record.body_number for mail in chosen)))
        return None

    def _may_be_read(self, mail: Mail) -> bool:
        record = mail.record
        return not record.is_kept and mail.confirmed_by is None and self._ledger.is_committed(mail.ticket)

    def _read(self, peek: Peek, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant) -> None:
        del numbers
        if bodies is None:
            return self._giving.refuse(peek.connection, peek.request_id, _NOT_READ)
        messages: list[PeekedMail] = []
        told: set[Mail] = set()
        for mail in peek.chosen:
            body = bodies.get(mail.record.body_number)
            if mail in told or body is None or peek.box.entries.get(mail.number) is not mail:
                continue
            copies = [other for other in peek.chosen if _goes_with(mail, other, bodies)]
            told.update(copies)
            messages.append(self._peeked(mail, body, copies, now))
        self._outbox.write(peek.connection, MailPeeked(peek.request_id, messages, peek.left))
        return None

    def _peeked(self, mail: Mail, body: bytes, copies: list[Mail], now: Instant) -> PeekedMail:
        record = mail.record
        info = self._mailing.info_of(mail, now)
        if copies:
            info.sends = 1 + len(copies)
            info.last_queued_at = max(copy.record.queued_at for copy in copies)
        return PeekedMail(
            Raw(record.sender_info),
            Raw(body),
            info,
            UNSET if record.valid_until is None else record.valid_until,
            UNSET if record.notice is None else notice_of(record.notice),
        )

    def _settle(self, connection: Connection, session: Session, key: str, frame: MailSettle, now: Instant) -> No | None:
        box = self._boxes.get(key)
        found = [] if box is None else [mail for mail in box.in_order() if mail.message_id == frame.message_id]
        found = [mail for mail in found if self._may_be_read(mail) and mail.record.assignment is None]
        if box is None or not found:
            return No("unknown_message", f"No message {frame.message_id} waits in the mailbox of this session")
        if found[0].is_offered:
            return No("in_progress", "Who receives the mail of this mailbox has the message, and confirms it", True)
        mail = found[0]
        self._mailing.settle([mail, *(copy for copy in box.copies_of(mail) if copy is not mail)], session, now)
        self._giving.promise(connection, MailSettled(frame.request_id, frame.message_id))
        return None


def _goes_with(mail: Mail, other: Mail, bodies: dict[int, bytes]) -> bool:
    return (
        other.number > mail.number
        and mail.says is not None
        and mail.says == other.says
        and say_the_same(mail, other, bodies)
    )
