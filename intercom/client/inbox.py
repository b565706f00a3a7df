"""Keep what arrived: unread messages, messages being worked on, and the ids that make a copy known as a copy.

A message is confirmed when its consumer asks for the next one, answers it, or leaves the block, never on reading it
(design section 7, Receipts). Until then a copy of it is ignored, so that whoever sends it again keeps waiting for the
receipt; after that a copy is confirmed again and not shown again.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from weakref import ref

from intercom.client.views import IncomingMessage, SessionView
from intercom.limits import INCOMING_MESSAGES, SEEN_IDS, Limits

REMEMBERED_MS = Limits().operation_ttl_ms
"""How long a confirmed id is remembered: as long as the broker may see a retry under it."""


class Inbox:
    """Hold messages for their consumers; methods return the ids that are to be confirmed now."""

    def __init__(self) -> None:
        self._unread: deque[IncomingMessage] = deque()
        self._in_hand: list[tuple[ref[object], str]] = []
        """Messages given to a consumer that has not asked for the next one; a consumer that is gone has finished."""
        self._unconfirmed: set[str] = set()
        self._confirmed: OrderedDict[str, int] = OrderedDict()
        """Ids with the time of their confirmation, oldest first."""
        self._late: set[str] = set()
        """Ids of messages that were shown after their time."""

    @property
    def is_full(self) -> bool:
        """Tell whether reading should stop until a consumer has taken something."""
        return len(self._unread) >= INCOMING_MESSAGES

    @property
    def overflows(self) -> bool:
        """Tell whether another message should rather be left to come again."""
        return len(self._unread) >= 2 * INCOMING_MESSAGES

    @property
    def has_unread(self) -> bool:
        """Tell whether ``take`` would give a message."""
        return bool(self._unread)

    def knows(self, message_id: str) -> bool:
        """Tell whether a message with this id came before."""
        return message_id in self._unconfirmed or message_id in self._confirmed

    def was_confirmed(self, message_id: str) -> bool:
        """Tell whether it was confirmed, so that its copy has to be confirmed too."""
        return message_id in self._confirmed

    def note(self, message_id: str) -> None:
        """Remember the id of a message that came and is not confirmed."""
        self._unconfirmed.add(message_id)

    def put(self, message: IncomingMessage) -> None:
        """Keep a message for the next consumer that asks."""
        self.note(message.id)
        self._unread.append(message)

    def note_late(self, message_id: str) -> None:
        """Remember that a message was shown after its time; its receipt says so (protocol 9.5.5)."""
        self._late.add(message_id)

    def was_late(self, message_id: str) -> bool:
        """Tell whether a message was shown after its time."""
        return message_id in self._late

    def take_answer(self, question: str, expects: Callable[[SessionView], bool]) -> IncomingMessage | None:
        """Take out the unread answer to a question that came before it was asked here, as its sender is expected."""
        for message in self._unread:
            if message.reply_to == question and expects(message.sender):
                self._unread.remove(message)
                return message
        return None

    def take(self, consumer: object, now: int) -> tuple[IncomingMessage | None, list[str]]:
        """Give the next message to a consumer, and say which ids are to be confirmed because it asked."""
        finished = self.finish(consumer, now)
        if not self._unread:
            return None, finished
        message = self._unread.popleft()
        if message.is_out_of_date:
            self.note_late(message.id)
        self._in_hand.append((ref(consumer), message.id))
        return message, finished

    def finish(self, consumer: object, now: int) -> list[str]:
        """Confirm what a consumer has: it asked for the next one; what consumers had that are gone is finished too."""
        if not self._in_hand:
            return []
        finished = [message_id for holder, message_id in self._in_hand if holder() in (consumer, None)]
        self._in_hand = [entry for entry in self._in_hand if entry[0]() not in (consumer, None)]
        return [message_id for message_id in finished if self.confirm(message_id, now)]

    def finish_all(self, now: int) -> list[str]:
        """Confirm everything that was taken: the block was left."""
        finished = [message_id for _, message_id in self._in_hand]
        self._in_hand.clear()
        return [message_id for message_id in finished if self.confirm(message_id, now)]

    def confirm(self, message_id: str, now: int) -> bool:
        """Take notice that a message is finished; tell whether it has to be confirmed now."""
        if message_id not in self._unconfirmed:
            return False
        self._unconfirmed.remove(message_id)
        self._confirmed[message_id] = now
        self._forget_old(now)
        return True

    def _forget_old(self, now: int) -> None:
        while self._confirmed:
            oldest = next(iter(self._confirmed))
            if len(self._confirmed) <= SEEN_IDS and now - self._confirmed[oldest] < REMEMBERED_MS:
                return
            del self._confirmed[oldest]
            self._late.discard(oldest)
