"""Decide about messages and carry them out; hear what became of them and what is taken back."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from intercom.core.attempts import AnswerTaken, Attempt
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.deciding import Deciding
from intercom.core.delivery import Delivery
from intercom.core.ground import Ground
from intercom.core.messages import Messages
from intercom.core.offers import Offered, Offers
from intercom.core.part import Handler, Part, Settler, session_of
from intercom.core.post import Post
from intercom.core.registry import Registry
from intercom.core.resolving import Resolver
from intercom.core.sessions import Session
from intercom.core.staging import Staging
from intercom.core.supervising import Supervising
from intercom.wire.frames import CancelAsk, CancelMessage, MessageReceipt, Received, Send, SupervisorSend


class Sending(Part):
    """Hold what decides, what delivers, and what waits for receipts."""

    def __init__(
        self,
        ground: Ground,
        registry: Registry,
        messages: Messages,
        supervising: Supervising,
        staging: Staging,
        post: Post,
    ) -> None:
        limits, outbox = ground.limits, ground.outbox
        self._operations = messages.operations
        self.offers = Offers(outbox, ground.deadlines, limits.push_receipt_ms)
        self.delivery = Delivery(
            messages.operations,
            messages.receipts,
            messages.asking,
            messages.crossings,
            ground.deadlines,
            limits,
            outbox,
            post.queueing,
            post.mailing,
        )
        self.resolver = Resolver(registry.sessions, messages.questions, messages.crossings)
        self.deciding = Deciding(
            self.resolver,
            messages.operations,
            supervising.holding,
            staging.stages,
            staging.owners,
            messages.asking,
            messages.crossings,
            self.delivery,
            post.queueing,
            messages.guard,
            post.parking,
            limits,
            outbox,
        )
        supervising.dispatch = self.deciding.dispatch
        self.on_late: list[Callable[[Session, str, Instant], None]] = []
        """Are told of each receipt for which nobody waits any more, with the id of its message."""

    def handlers(self) -> Mapping[type, Handler]:
        """Return who takes messages, confirmations, and what is taken back."""
        return {
            Send: self.deciding.send,
            SupervisorSend: self.deciding.send,
            Received: self._received,
            CancelAsk: self._cancel_ask,
            MessageReceipt: self._message_receipt,
            CancelMessage: self._cancel_message,
        }

    def taken(self) -> Mapping[type, Settler]:
        """Return who goes on after a message or its final answer was taken."""
        return {
            Attempt: self.delivery.frame_taken,
            AnswerTaken: self._operations.answer_taken,
            Offered: self.offers.frame_taken,
        }

    def lost(self) -> Mapping[type, Settler]:
        """Return who goes on after a message was lost."""
        return {Attempt: self.delivery.frame_lost, Offered: self.offers.frame_lost}

    def _received(self, connection: Connection, frame: Received, now: Instant) -> None:
        session = session_of(connection)
        if self.delivery.received(session, frame, now):
            return
        if not self.offers.received(session, frame.message_id, frame.push_id, now):
            for tell in self.on_late:
                tell(session, frame.message_id, now)

    def _cancel_ask(self, connection: Connection, frame: CancelAsk, now: Instant) -> None:
        self.deciding.withdraw(session_of(connection), frame.message_id, now)

    def _message_receipt(self, connection: Connection, frame: MessageReceipt, now: Instant) -> None:
        connection.speaks_pi = True
        if isinstance(frame.message_id, str):
            self.delivery.received_by_habit(session_of(connection), frame.message_id, now)

    def _cancel_message(self, connection: Connection, frame: CancelMessage, now: Instant) -> None:
        connection.speaks_pi = True
        if isinstance(frame.message_id, str):
            self.deciding.withdraw(session_of(connection), frame.message_id, now)
