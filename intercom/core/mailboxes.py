"""Keep the mail that waits: by mailbox, in order, each message once, within the bounds.

A mailbox is named by the target identity of whoever may open it: an address, or a session with a lifecycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Literal

from msgspec.structs import replace

from intercom.core.clock import Instant
from intercom.core.deadlines import Deadline
from intercom.core.records import Elsewhere, MailRecord
from intercom.limits import Limits

if TYPE_CHECKING:
    from intercom.core.operation import Operation
    from intercom.core.sessions import Session

GIVEN_UP_PREFIX = "undeliverable:"
"""Begins the id of what tells a sender that its message was given up; its number and the id of that message follow."""


class Mail:
    """Hold one message that waits, and what only this process knows of it; its body is on disk."""

    __slots__ = (
        "confirmed_by",
        "deadline",
        "due",
        "is_back",
        "is_offered",
        "is_plain",
        "joined",
        "leader",
        "left_before",
        "left_for",
        "offered_at",
        "offers",
        "operation",
        "posted_to",
        "record",
        "ticket",
    )

    def __init__(self, record: MailRecord, operation: Operation | None) -> None:
        self.record = record
        self.operation = operation
        """The row of its message id; the broker's own notices have none."""
        self.offers = record.offers
        self.ticket = 0
        self.is_back = False
        """It was mail in this place before, of which the journal tells."""
        self.is_offered = False
        """Written, or about to be, to who holds the mailbox now."""
        self.offered_at: Instant | None = None
        self.confirmed_by: str | None = None
        """The session whose receipt came and could not be recorded yet; it waits for nothing else."""
        self.deadline: Deadline | None = None
        self.due = 0
        """When its time is over by the monotonic clock, ms."""
        self.is_plain = False
        """Known to this process to hold nothing but a text, so that another one with this text says nothing else."""
        self.joined: tuple[Mail, ...] = ()
        """Those that are handed over with it: they say the same."""
        self.leader: Mail | None = None
        """The one with which it is handed over."""
        self.posted_to: set[str] = set()
        """The brokers of other machines that may have it: until that is known nobody here is given it."""
        self.left_for: set[str] = set()
        """Those that were away when it was posted: they find it when they are back, and may have it from then on."""
        self.left_before = False
        """An earlier process left it: who was away then may have been back since, when nobody here saw it."""

    def elsewhere(self, peer: str = "", *, is_away: bool = False) -> Elsewhere:
        """Return for its row who may have it once it is posted to this broker too."""
        posted_to, left_for = self.posted_to.copy(), self.left_for.copy()
        if peer:
            (left_for if is_away else posted_to).add(peer)
        return Elsewhere(tuple(sorted(posted_to)), tuple(sorted(left_for)))

    @property
    def says(self) -> tuple[str, bytes] | None:
        """Return what tells that another one says the same; None for what is always handed over by itself.

        An ask is waited for and an answer belongs to its question; what is valid for a time has its own end.
        """
        record, operation = self.record, self.operation
        if operation is None or record.is_ask or record.reply_to is not None or record.valid_until is not None:
            return None
        return operation.sender, operation.signature

    @property
    def brings_task(self) -> bool:
        """Tell whether its body is that of a task, with which it is stored."""
        return self.record.body is not None and self.record.assignment is None

    @property
    def waits(self) -> bool:
        """Tell whether it is to be handed over still."""
        return not self.is_offered and self.confirmed_by is None and not self.record.is_kept

    @property
    def written_by(self) -> str:
        """Return whose mail this is, who may come back under another id."""
        return self.record.sender_mailbox or self.record.sender_session

    @property
    def number(self) -> int:
        """Return the key of its row; a mailbox is ordered by it."""
        return self.record.number

    @property
    def message_id(self) -> str:
        """Return the id of the message."""
        return self.record.message_id

    @property
    def tells_of(self) -> str | None:
        """Return the id of the message of which a notice tells that it was given up."""
        if not self.message_id.startswith(GIVEN_UP_PREFIX):
            return None
        return self.message_id.removeprefix(GIVEN_UP_PREFIX).partition(":")[2]


class Mailbox:
    """Hold the mail of one address or session."""

    __slots__ = (
        "_alike",
        "_by_message",
        "_in_order",
        "awaits",
        "bytes",
        "entries",
        "holder",
        "is_read",
        "kept",
        "key",
        "offered",
        "offered_bytes",
        "overdue",
        "put_off",
        "tells_of",
    )

    def __init__(self, key: str) -> None:
        self.key = key
        self.entries: dict[int, Mail] = {}
        self._in_order = True
        self._by_message: dict[str, list[Mail]] = {}
        self._alike: dict[tuple[str, bytes], list[Mail]] = {}
        self.bytes = 0
        self.holder: Session | None = None
        """The connected session it is handed over to."""
        self.offered = 0
        self.offered_bytes = 0
        """Entries that wait for the holder's receipt, and their bytes."""
        self.kept = 0
        """Entries that a policy keeps from being handed over."""
        self.is_read = False
        """The bodies of some entries are being read."""
        self.put_off: dict[int, Mail] = {}
        """Offered entries, by number, that cannot go to another machine now and stay here for a while."""
        self.awaits: set[str] = set()
        """Brokers that may have older mail for its holder here, which is to come first."""
        self.overdue: set[int] = set()
        """Numbers of entries that another broker may have, and of which that has said nothing for long."""
        self.tells_of: dict[str, Mail] = {}
        """Entries that tell of a message which was given up, by its id."""

    def __len__(self) -> int:
        return len(self.entries)

    def enter(self, mail: Mail) -> None:
        """Take mail in; its place is that of its number."""
        if self.entries and next(reversed(self.entries)) > mail.number:
            self._in_order = False
        self.entries[mail.number] = mail
        self.kept += mail.record.is_kept
        self._by_message.setdefault(mail.message_id, []).append(mail)
        if (says := mail.says) is not None:
            self._alike.setdefault(says, []).append(mail)
        if mail.record.notice is not None and (told_of := mail.tells_of) is not None:
            self.tells_of[told_of] = mail
        self.bytes += mail.record.size

    def leave(self, mail: Mail) -> None:
        """Let mail out; what was handed over with it waits again."""
        for joined in mail.joined:
            if joined.leader is mail:
                self.unmark_offered(joined)
        self.unmark_offered(mail)
        self.put_off.pop(mail.number, None)
        self.overdue.discard(mail.number)
        del self.entries[mail.number]
        self.kept -= mail.record.is_kept
        if mail.record.notice is not None and self.tells_of.get(mail.tells_of or "") is mail:
            del self.tells_of[mail.tells_of or ""]
        alike = self._by_message[mail.message_id]
        alike.remove(mail)
        if not alike:
            del self._by_message[mail.message_id]
        if (says := mail.says) is not None and mail in (same := self._alike.get(says, [])):
            same.remove(mail)
            if not same:
                del self._alike[says]
        self.bytes -= mail.record.size

    @property
    def holds_others_up(self) -> bool:
        """Tell whether something waits here to be handed over, or to be confirmed: what comes later waits behind it."""
        return len(self.entries) > self.kept + len(self.overdue)

    def mark_kept(self, mail: Mail, kept: Literal["quiet", "hold", "released"] | None) -> None:
        """Note whether a policy keeps an entry from being handed over, or was overruled."""
        self.kept -= mail.record.is_kept
        mail.record = replace(mail.record, kept=kept)
        self.kept += mail.record.is_kept

    def offered_as(self, message_id: str) -> Mail | None:
        """Return the oldest entry under this message id that waits for the holder's receipt.

        A sender may choose the id of one of the broker's notices, so there may be several.
        """
        found = self._by_message.get(message_id)
        if found is None:
            return None
        offered = [mail for mail in found if mail.is_offered]
        return min(offered, key=lambda mail: mail.number, default=None)

    def under(self, message_id: str) -> Mail | None:
        """Return the oldest entry under this message id that was a message of somebody."""
        found = [mail for mail in self._by_message.get(message_id, ()) if mail.operation is not None]
        return min(found, key=lambda mail: mail.number, default=None)

    def oldest(self, message_id: str) -> Mail | None:
        """Return the oldest entry under this message id, whoever wrote it."""
        return min(self._by_message.get(message_id, ()), key=lambda mail: mail.number, default=None)

    def has_answer_to(self, message_id: str) -> bool:
        """Tell whether something waits here that replies to this message."""
        return any(mail.record.reply_to == message_id for mail in self.entries.values())

    def alike(self, says: tuple[str, bytes] | None) -> list[Mail]:
        """Return what waits and says this, as ``Mail.says`` tells it, the oldest first; nothing if one alone does."""
        found = [] if says is None else self._alike.get(says, [])
        if len(found) < 2:
            return []
        waiting = [mail for mail in found if not mail.is_offered and mail.confirmed_by is None]
        return sorted(waiting, key=lambda mail: mail.number)

    def copies_of(self, mail: Mail) -> Iterator[Mail]:
        """Give what is known to say the same and waits for the same, in the order in which it came."""
        for other in self._alike.get(mail.says, ()) if mail.is_plain and mail.says is not None else ():
            if other.is_plain and not other.is_offered and other.record.kept == mail.record.kept:
                yield other

    def in_order(self) -> list[Mail]:
        """Return all mail, the oldest first."""
        return list(self._oldest_first())

    def _oldest_first(self) -> Iterable[Mail]:
        if not self._in_order:
            self.entries = dict(sorted(self.entries.items()))
            self._in_order = True
        return self.entries.values()

    def position_of(self, mail: Mail) -> int:
        """Return the place of an entry, the first is 1."""
        return 1 + sum(1 for number in self.entries if number < mail.number)

    def mark_offered(self, mail: Mail, now: Instant, *, leader: Mail | None = None) -> None:
        """Note that an entry is on its way to the holder, by itself or with a ``leader`` that says the same."""
        mail.is_offered = True
        self.overdue.discard(mail.number)
        mail.offered_at = now
        mail.leader = leader
        if leader is None:
            self.offered += 1
            self.offered_bytes += mail.record.size

    def unmark_offered(self, mail: Mail) -> None:
        """Note that an entry is not on its way any more."""
        if mail.is_offered:
            mail.is_offered = False
            if mail.leader is None:
                self.offered -= 1
                self.offered_bytes -= mail.record.size
            mail.leader, mail.joined = None, ()

    def offered_since(self) -> Instant | None:
        """Return since when the holder has what it has not confirmed; ``None`` when it has confirmed everything."""
        if not self.offered:
            return None
        times = (mail.offered_at for mail in self._oldest_first() if mail.is_offered and mail.offered_at is not None)
        return next(iter(times), None)

    @property
    def waits_for_its_turn(self) -> bool:
        """Tell whether something waits here to be handed over: what comes now has to wait behind it."""
        return self.is_read or len(self.entries) > self.kept + self.offered + len(self.overdue)

    def next_to_offer(self, limits: Limits, stays: Callable[[Mail], bool]) -> list[Mail]:
        """Return the oldest entries that may be handed over now, ahead of the receipts of those before them.

        Those that ``stays`` tells to be left for the next broker are passed over.
        """
        chosen: list[Mail] = []
        count, size = self.offered, self.offered_bytes
        is_here = self.holder is None or not self.holder.is_remote
        if (self.awaits and is_here) or (self.holder is not None and self.holder.has_no_way):
            return chosen
        behind: set[str] = set()
        for mail in self._oldest_first():
            if mail.is_offered or not mail.waits or stays(mail):
                continue
            if mail.posted_to and is_here:
                if mail.number not in self.overdue:
                    behind.add(mail.written_by)
                continue
            if behind and mail.written_by in behind:
                continue
            if count and (count >= limits.mail_offers or size + mail.record.size > limits.mail_offer_bytes):
                break
            chosen.append(mail)
            count += 1
            size += mail.record.size
        return chosen


class Mailboxes:
    """Find mailboxes by their key."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._boxes: dict[str, Mailbox] = {}

    def __len__(self) -> int:
        return sum(len(box) for box in self._boxes.values())

    def get(self, key: str) -> Mailbox | None:
        """Return the mailbox with this key if there is anything to know of it."""
        return self._boxes.get(key)

    def open(self, key: str) -> Mailbox:
        """Return the mailbox with this key, an empty one if there was none."""
        box = self._boxes.get(key)
        if box is None:
            box = self._boxes[key] = Mailbox(key)
        return box

    def discard_if_unused(self, box: Mailbox) -> None:
        """Forget a mailbox that is empty and nobody holds."""
        if not box.entries and box.holder is None and self._boxes.get(box.key) is box:
            del self._boxes[box.key]

    def has_room(self, box: Mailbox, size: int) -> bool:
        """Tell whether one more message of ``size`` bytes may wait."""
        return len(box.entries) < self._limits.mailbox_entries and box.bytes + size <= self._limits.mailbox_bytes

    def add(self, mail: Mail) -> Mailbox:
        """Enter mail; one that comes back takes its old place."""
        box = self.open(mail.record.mailbox)
        box.enter(mail)
        if mail.operation is not None:
            mail.operation.mail = mail
        return box

    def remove(self, mail: Mail) -> Mailbox:
        """Take mail out; returns the mailbox it was in."""
        box = self._boxes[mail.record.mailbox]
        box.leave(mail)
        if mail.operation is not None:
            mail.operation.mail = None
        return box

    def totals(self) -> dict[str, int]:
        """Return how much waits in all: messages, their bytes, in how many mailboxes, and since when (epoch ms)."""
        boxes = [box for box in self._boxes.values() if box.entries]
        totals = {"waiting": len(self), "bytes": sum(box.bytes for box in boxes), "mailboxes": len(boxes)}
        if boxes:
            totals["oldestAt"] = min(box.in_order()[0].record.queued_at for box in boxes)
        return totals

    def all(self) -> Iterable[Mailbox]:
        """Return every mailbox."""
        return list(self._boxes.values())
