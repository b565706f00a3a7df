"""Take what arrives: tell answers from messages, show each message once, and confirm it when it is done with.

Times are monotonic milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import UNSET

from intercom.client.asking import AskOperation
from intercom.client.contact import Contact
from intercom.client.inbox import Inbox
from intercom.client.lifecycle import Keeper
from intercom.client.notices import Arrived, News
from intercom.client.pursuing import Handlers, Pursuit
from intercom.client.views import IncomingMessage, message_of
from intercom.client.worklist import Worklist
from intercom.wire.frames import MessageFrame, PendingStageNotification, PendingStageNotificationResult, Received
from intercom.wire.invocations import RunUpdate


class Receiving:
    """Hold the messages of a session until their consumers have them, and their ids beyond that."""

    def __init__(
        self,
        contact: Contact,
        keeper: Keeper,
        pursuit: Pursuit,
        worklist: Worklist,
        news: News,
        kind: type[IncomingMessage],
        ids: Callable[[], str],
    ) -> None:
        self._contact = contact
        self._keeper = keeper
        self._pursuit = pursuit
        self._worklist = worklist
        self._news = news
        self._kind = kind
        self._ids = ids
        self._inbox = Inbox()
        self._untaken: set[str] = set()
        """Message ids of answers to asks, until their caller took them."""
        self._notices: dict[str, str] = {}
        """Message ids of notifications that are not confirmed, with the ids under which they are."""
        self._put_off: dict[str, IncomingMessage] = {}
        """Notices about messages that are being sent again, by the ids of those."""
        pursuit.on_asked = self._asked
        pursuit.on_sent = self._sent
        self.handlers: Handlers = {
            MessageFrame: self._on_message,
            PendingStageNotification: self._on_notification,
        }

    @property
    def wants_data(self) -> bool:
        """Tell whether the connection should be read.

        Not while ``INCOMING_MESSAGES`` are unread and nobody waits for an answer. With receipts it goes on while
        somebody does: what then finds no room is not confirmed, and comes again.
        """
        return not self._inbox.is_full or (self._contact.confirms and len(self._pursuit) > 0)

    @property
    def has_unread(self) -> bool:
        """Tell whether ``take`` would give a message."""
        return self._inbox.has_unread

    def take(self, consumer: object, now: int) -> IncomingMessage | None:
        """Give the next message to a consumer, confirming the one it had; ``None`` when there is none yet."""
        message, finished = self._inbox.take(consumer, now)
        if message is not None:
            self._pursuit.owing.note(message, now)
            self._say_begun(message)
        self._confirm(finished)
        return message

    def finish_taken(self, consumer: object, now: int) -> None:
        """Confirm the message a consumer has."""
        self._confirm(self._inbox.finish(consumer, now))

    def finish(self, message_id: str, now: int, *, is_late: bool = False) -> None:
        """Confirm a message whose consumer is done with it, unless it was confirmed before.

        ``is_late`` says that its reader was shown it after its time.
        """
        if is_late:
            self._inbox.note_late(message_id)
        if self._inbox.confirm(message_id, now):
            self._confirm([message_id])

    def finish_all(self, now: int) -> None:
        """Confirm every message that was taken."""
        self._confirm(self._inbox.finish_all(now))

    def answer_taken(self, answer: IncomingMessage, now: int, *, confirms: bool = True) -> None:
        """Take notice that who asked has the answer; it is confirmed now, or by whoever asked."""
        if answer.id in self._untaken:
            self._untaken.remove(answer.id)
            if confirms:
                self.finish(answer.id, now)

    def answer_left(self, answer: IncomingMessage) -> None:
        """Keep an answer as an ordinary message: who asked has gone without it."""
        if answer.id in self._untaken:
            self._untaken.remove(answer.id)
            self._keep(answer)

    # --- what the broker hands over ---------------------------------------------------------------------

    def _on_message(self, frame: MessageFrame, now: int) -> None:
        if frame.assignment is not UNSET:
            self._worklist.pushed(frame)
            return
        message = message_of(frame, self._kind)
        if self._inbox.knows(message.id):
            if message.expects_reply:
                self._pursuit.owing.reopened(message.id, now)  # a copy: its sender asks again
            if self._inbox.was_confirmed(message.id):
                self._confirm([message.id])
            return
        if self._keeper.knows(message.id):
            self._confirm([message.id])
            return
        if message.notice is not None and self._pursuit.gave_up(message.notice, now):
            self._confirm([message.id])
            return
        if message.notice is not None and self._pursuit.is_sending(message.notice.message_id):
            # It tells what became of the attempt before; the one under way may yet be delivered.
            self._inbox.note(message.id)
            self._put_off[message.notice.message_id] = message
            return
        # What refers to a question by ``replyTo`` has closed it at the broker, whatever else it says (protocol 6.5).
        working = self._pursuit.progressed(message, now) if message.reply_to is None else None
        if working is not None:
            self._inbox.note(message.id)
            self.finish(message.id, now)
            self._pursuit.after(working, now)
            return
        # Protocol 5.10: the broker writes this one itself, because the other side will never answer.
        is_settlement = message.reply_error is not None and message.id == f"terminal:{message.reply_to}"
        asked = self._pursuit.asked(message.reply_to)
        if asked is not None and asked.expects(message.sender):
            asked.replied(message)
            if not is_settlement:
                self._inbox.note(message.id)
                self._hold(asked, message, now)
            self._pursuit.after(asked, now)
        elif not is_settlement and not (self._contact.confirms and self._inbox.overflows):
            self._keep(message)

    def _on_notification(self, frame: PendingStageNotification, now: int) -> None:
        message = message_of(MessageFrame(frame.sender, frame.message), self._kind, is_notification=True)
        if self._inbox.was_confirmed(message.id):
            self._contact.write(PendingStageNotificationResult(frame.request_id, True))
        elif self._inbox.knows(message.id):
            self._notices[message.id] = frame.request_id
        elif self._inbox.overflows:
            self._contact.write(PendingStageNotificationResult(frame.request_id, False))
        else:
            self._notices[message.id] = frame.request_id
            self._keep(message)

    # --- inner works ------------------------------------------------------------------------------------

    def _say_begun(self, message: IncomingMessage) -> None:
        """Tell the broker that a task is under way; its message is confirmed when its consumer is done with it.

        Nobody waits for the answer: whatever is reported later says more.
        """
        invoked = message.invoked
        if invoked is not None and not invoked.is_cancelled and self._contact.is_online:
            self._contact.write(RunUpdate(self._ids(), invoked.id, self._ids(), "running"))

    def _asked(self, asked: AskOperation, now: int) -> None:
        """Take the answer to an ask out of the messages: it came before it was asked here."""
        answer = self._inbox.take_answer(asked.message_id, asked.expects)
        if answer is not None:
            asked.replied(answer)
            self._hold(asked, answer, now)
            self._pursuit.after(asked, now)

    def _sent(self, message_id: str, is_accepted: bool, now: int) -> None:
        """Show a notice that was put off, unless the message it is about found its way after all."""
        notice = self._put_off.pop(message_id, None)
        if notice is None:
            return
        if is_accepted:
            self.finish(notice.id, now)
        else:
            self._keep(notice)

    def _hold(self, asked: AskOperation, answer: IncomingMessage, now: int) -> None:
        """Keep an answer from being confirmed until its caller took it; one that says no is not taken."""
        if asked.result is None:
            self.finish(answer.id, now)
        else:
            self._untaken.add(answer.id)

    def _keep(self, message: IncomingMessage) -> None:
        self._inbox.put(message)
        self._pursuit.owing.came(message)
        self._news.add(Arrived())

    def _confirm(self, message_ids: Iterable[str]) -> None:
        confirmed = list(message_ids)
        if confirmed:
            self._keeper.note(confirmed)
        for message_id in confirmed:
            request_id = self._notices.pop(message_id, None)
            if not self._contact.is_online:
                continue
            if request_id is not None:
                self._contact.write(PendingStageNotificationResult(request_id, True))
            elif self._contact.confirms:
                late = True if self._inbox.was_late(message_id) else UNSET
                self._contact.write(Received(message_id, out_of_date=late))
