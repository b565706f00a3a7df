"""Bring the fate of a queued message to its original sender (protocol 4.17, 4.18, 5.30).

    reserved --commit--> written --the recipient took it--> accepted --commit--> delivered
                |           +-- refused, time limit, departure of either side--> forgotten, failed
                +-- commit failed: withdrawn, Not recorded

To a recipient that does not know the frame it is a plain message from the owner, and a frame that the kernel took
counts as taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import UNSET, Raw, UnsetType

from intercom.core.attempts import CONFLICT_CODE, Refusal, conflict_with
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.deadlines import Deadline, Deadlines
from intercom.core.form import identify, is_reserved
from intercom.core.operation import Operation, Standing
from intercom.core.operations import Operations
from intercom.core.outbox import Outbox
from intercom.core.routes import Route, Routes
from intercom.core.sessions import Session, SessionTable, fingerprint
from intercom.limits import Limits
from intercom.wire import reasons
from intercom.wire.codec import parse_message
from intercom.wire.frames import (
    Delivered,
    DeliveryFailed,
    Malformed,
    Message,
    MessageFrame,
    PendingStageNotification,
    PendingStageNotificationResult,
    SendPendingStageNotification,
    trim,
)

if TYPE_CHECKING:
    from intercom.core.standins import RemoteConnection


class Notification:
    """Hold one report on its way, until its owner was answered."""

    __slots__ = (
        "attempt_id",
        "connection",
        "deadline",
        "id",
        "is_waiting",
        "message_id",
        "operation",
        "owner",
        "recipient",
    )

    def __init__(
        self,
        request_id: str,
        connection: Connection,
        owner: Session,
        recipient: Session,
        message_id: str,
        attempt_id: str | UnsetType,
        operation: Operation,
    ) -> None:
        self.id = request_id
        self.connection = connection
        self.owner = owner
        self.recipient = recipient
        self.message_id = message_id
        self.attempt_id = attempt_id
        self.operation = operation
        self.deadline: Deadline | None = None
        self.is_waiting = True
        """The owner is owed an answer."""


class Notifications:
    """Decide about notifications and carry them out."""

    def __init__(
        self,
        routes: Routes,
        sessions: SessionTable,
        operations: Operations,
        ids: Callable[[], str],
        deadlines: Deadlines,
        limits: Limits,
        outbox: Outbox,
    ) -> None:
        self._routes = routes
        self._sessions = sessions
        self._operations = operations
        self._ids = ids
        self._deadlines = deadlines
        self._limits = limits
        self._outbox = outbox
        self._by_id: dict[str, Notification] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    # --- the decision -----------------------------------------------------------------------------------

    def send(self, connection: Connection, frame: SendPendingStageNotification | Malformed, now: Instant) -> None:
        """Decide about a notification and answer or forward it; nothing about it is a protocol error."""
        refusal = self._decide(connection, frame, now)
        if refusal is None:
            return
        message_id, attempt_id = identify(frame)
        answer = DeliveryFailed(message_id, refusal.reason, attempt_id, refusal.code)  # type: ignore[arg-type]  # the codes are literals
        self._outbox.write(connection, answer, refusal.after)
        otherwise = DeliveryFailed(message_id, reasons.NOT_RECORDED, attempt_id)
        self._operations.rest(refusal.after, self._tell_otherwise, (connection, otherwise))

    def _decide(
        self, connection: Connection, frame: SendPendingStageNotification | Malformed, now: Instant
    ) -> Refusal | None:
        """Go through the steps of protocol 4.17; the first match wins. None: answered, or on its way."""
        if isinstance(frame, Malformed):
            is_attempt = isinstance(frame.fields.get("attemptId", ""), str)
            return Refusal("1", reasons.INVALID_MESSAGE if is_attempt else reasons.INVALID_ATTEMPT_ID)
        message = parse_message(frame.message)
        if message is None:
            return Refusal("1", reasons.INVALID_MESSAGE)
        if is_reserved(message.id):
            return Refusal("1", reasons.RESERVED_MESSAGE_ID)
        owner = connection.session
        route = self._routes.get(frame.run_id)
        if (
            owner is None
            or route is None
            or route.owner is not owner
            or not route.is_opened_by(frame.capability)
            or owner.home_group != route.group
        ):
            return Refusal("2", reasons.NOT_THE_ROUTE_OWNER)

        signature = self._signature(frame, message, route)
        known = self._answer_known(connection, message.id, frame.attempt_id, signature, now)
        if known is not None:
            return known or None
        recipient = self._recipient(frame, route.group)
        if recipient is None or recipient is owner or not _is_fit(recipient, route.group):
            return Refusal("5", reasons.SESSION_NOT_FOUND)
        return self._reserve(connection, owner, recipient, message.id, frame.attempt_id, frame.message, signature, now)

    def _answer_known(
        self, connection: Connection, message_id: str, attempt_id: str | UnsetType, signature: bytes, now: Instant
    ) -> Refusal | Literal[False] | None:
        """Answer what was delivered before (False), or say why it is refused; None: it is not known."""
        operation = self._operations.find(message_id, now)
        after = 0 if operation is None else operation.ticket
        match self._operations.standing(operation, message_id, signature, None):
            case Standing.MATCH:
                answer = Delivered(message_id, attempt_id)
                otherwise = DeliveryFailed(message_id, reasons.NOT_CONFIRMED_DURABLY, attempt_id)
                self._outbox.write(connection, answer, after)
                self._operations.rest(after, self._tell_otherwise, (connection, otherwise))
                return False
            case None:
                return None
            case Standing.UNCERTAIN:
                is_under_way = any(other.operation is operation for other in self._by_id.values())
                return Refusal("3", reasons.UNDER_WAY if is_under_way else reasons.UNCERTAIN, after=after)
            case Standing.INVALID:
                return Refusal("3", reasons.authority_invalid(self._operations.trouble))
            case _:
                assert operation is not None, "something was there to conflict with"
                return Refusal("3", conflict_with(operation), CONFLICT_CODE, after)

    def bring(
        self,
        connection: RemoteConnection,
        owner: Session,
        to: str,
        group: str,
        message: Raw,
        signature: str,
        now: Instant,
    ) -> None:
        """Decide about a notification of an owner at another broker, which has found its right to send it.

        Args:
            connection: leads to that broker, and takes the answer.
            owner: stands for whoever sent it.
            to: session id of its recipient.
            group: in which that has to be at home.
            message: as the owner wrote it; it can be read.
            signature: tells it from others of that broker.
        """
        read = parse_message(message)
        assert read is not None, "who brings it has looked"
        mine = self._operations.digest(f"{connection.peer_id} {signature}", read, None, None)
        refusal = self._answer_known(connection, read.id, UNSET, mine, now)
        if refusal is None:
            recipient = self._sessions.get(to)
            if recipient is None or recipient.is_remote or not _is_fit(recipient, group):
                refusal = Refusal("5", reasons.SESSION_NOT_FOUND)
            else:
                refusal = self._reserve(connection, owner, recipient, read.id, UNSET, message, mine, now)
        if refusal:
            answer = DeliveryFailed(read.id, refusal.reason, UNSET, refusal.code)  # type: ignore[arg-type]  # the codes are literals
            self._outbox.write(connection, answer, refusal.after)

    def told(self, request_id: str, peer: str, refusal: tuple[str, Any] | None, now: Instant) -> None:
        """Take what the broker of a recipient elsewhere says of a notification; ``refusal``: reason and code."""
        notification = self._by_id.get(request_id)
        if notification is None or not notification.recipient.is_remote:
            return
        if cast("RemoteConnection", notification.recipient.connection).peer_id != peer:
            return
        if refusal is None:
            self._accept(notification, now)
        else:
            self._give_up(notification, *refusal)

    def _signature(self, frame: SendPendingStageNotification, message: Message, route: Route) -> bytes:
        address = "" if frame.sender_return_address is UNSET else frame.sender_return_address
        name = "" if frame.sender_registration_name is UNSET else frame.sender_registration_name
        to = ":".join((frame.run_id, frame.to, address, name, route.group))
        return self._operations.digest(to, message, frame.capability, None)

    def _recipient(self, frame: SendPendingStageNotification, group: str) -> Session | None:
        """Find the session the message came from, under the id it had or as whoever it is now; those here first."""
        found = self._sessions.get(frame.to)
        if found is not None and not found.is_remote:
            return found
        at_home = [peer for peer in self._sessions if peer.home_group == group]
        if frame.sender_return_address is not UNSET:
            address = fingerprint(frame.sender_return_address)
            alike = [peer for peer in at_home if peer.return_hash == address]
        elif frame.sender_registration_name is not UNSET:
            name = trim(frame.sender_registration_name).lower()
            alike = [peer for peer in at_home if (peer.registration_name or "").lower() == name]
        else:
            alike = []
        here = [peer for peer in alike if not peer.is_remote]
        if len(here) == 1 or (found is None and not here and len(alike) == 1):
            return (here or alike)[0]
        return found

    # --- reserve and forward ----------------------------------------------------------------------------

    def _reserve(
        self,
        connection: Connection,
        owner: Session,
        recipient: Session,
        message_id: str,
        attempt_id: str | UnsetType,
        message: Raw,
        signature: bytes,
        now: Instant,
    ) -> Refusal | None:
        if len(self._by_id) >= self._limits.notifications:
            full = "too many notifications wait for their recipients"
            return Refusal("6", reasons.capacity(full, self._limits.notification_answer_ms))
        retry_after = self._operations.retry_after_ms(owner.sender_identity, now)
        if retry_after is not None:
            return Refusal("6", reasons.capacity("too many recent messages are remembered", retry_after))
        operation = self._operations.reserve(message_id, signature, owner, None, recipient.id, False, 0, now)
        notification = Notification(self._ids(), connection, owner, recipient, message_id, attempt_id, operation)
        self._by_id[notification.id] = notification
        self._operations.append_reservation(operation, self._undo_reservation, notification)
        due = now.mono + self._limits.notification_answer_ms
        notification.deadline = self._deadlines.add(due, self._unanswered, notification)
        written: PendingStageNotification | MessageFrame
        if recipient.knows_newest_frames:
            written = PendingStageNotification(notification.id, owner.encoded(), message)
        else:
            written = MessageFrame(owner.encoded(), message)
        operation.copies += 1
        self._outbox.write(recipient.connection, written, operation.ticket, notification)
        return None

    def frame_taken(self, notification: Notification, now: Instant) -> None:
        """Count a frame the kernel took as taken by a recipient that cannot answer it."""
        if notification.is_waiting and not notification.recipient.knows_newest_frames:
            self._accept(notification, now)

    def frame_lost(self, notification: Notification, now: Instant) -> None:
        """Take the reservation back: the frame never left."""
        notification.operation.copies -= 1
        self._give_up(notification, reasons.SESSION_NOT_FOUND)

    # --- the end ----------------------------------------------------------------------------------------

    def answered(self, session: Session, frame: PendingStageNotificationResult, now: Instant) -> None:
        """Accept or forget, as the recipient says; whoever else says it is ignored."""
        notification = self._by_id.get(frame.request_id)
        if notification is None or notification.recipient is not session:
            return
        if frame.delivered:
            self._accept(notification, now)
        else:
            self._give_up(notification, reasons.NOTIFICATION_REFUSED)

    def session_left(self, session: Session, now: Instant) -> None:
        """End everything a departing session took part in; an owner that leaves is told nothing."""
        for notification in list(self._by_id.values()):
            if notification.owner is session:
                self._settle(notification)
                self._operations.forget(notification.operation)
            elif notification.recipient is session and not session.is_remote:  # of others their broker says more
                self._give_up(notification, reasons.NOTIFICATION_RECIPIENT_LEFT)

    def _unanswered(self, notification: Notification, now: Instant) -> None:
        self._give_up(notification, reasons.NOTIFICATION_UNACKNOWLEDGED)

    def _accept(self, notification: Notification, now: Instant) -> None:
        self._settle(notification)
        operation = notification.operation
        ticket = self._operations.accept(
            operation, notification.recipient, None, self._undo_acceptance, notification, now
        )
        if ticket is None:
            self._fail(notification, reasons.NOT_CONFIRMED_DURABLY)
            return
        self._outbox.write(notification.connection, Delivered(notification.message_id, notification.attempt_id), ticket)

    def _give_up(self, notification: Notification, reason: str, code: Any = UNSET) -> None:
        self._operations.forget(notification.operation)
        if notification.is_waiting:
            self._settle(notification)
            self._fail(notification, reason, code)

    def _settle(self, notification: Notification) -> None:
        notification.is_waiting = False
        self._by_id.pop(notification.id, None)
        self._deadlines.cancel(notification.deadline)

    def _fail(self, notification: Notification, reason: str, code: Any = UNSET) -> None:
        answer = DeliveryFailed(notification.message_id, reason, notification.attempt_id, code)
        self._outbox.write(notification.connection, answer)

    def _tell_otherwise(self, subject: Any, now: Instant) -> None:
        connection, otherwise = subject
        self._outbox.write(connection, otherwise)

    # --- commits that failed ----------------------------------------------------------------------------

    def _undo_reservation(self, subject: object, now: Instant) -> None:
        assert isinstance(subject, Notification)
        self._operations.withdraw(subject.operation)
        if subject.is_waiting:
            self._settle(subject)
            self._fail(subject, reasons.NOT_RECORDED)

    def _undo_acceptance(self, subject: object, now: Instant) -> None:
        assert isinstance(subject, Notification)
        self._operations.unaccept(subject.operation, None)
        self._fail(subject, reasons.NOT_CONFIRMED_DURABLY)


def _is_fit(recipient: Session, group: str) -> bool:
    """Tell whether a session may be told what becomes of messages to a run of this group (protocol 4.17.5)."""
    return recipient.is_agent and recipient.home_group == group and group in recipient.groups
