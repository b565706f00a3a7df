"""Hold sends until the session they mean has been brought back (protocol 4.8 E3, 6.11).

    (none) --admit--> held --take--> decided anew, failed, replaced by a retry, or dropped with its sender
                       |
                       +-- time limit: failed

Rule 1: a held send has left nothing on disk and nowhere else; taking it out is all there is to undo. Rule 2: whoever
takes it out answers for it: exactly one of the ends above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from intercom.core.attempts import CONFLICT_CODE, NOT_FOUND_CODE, Refusal, conflict_with, said_before
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.deadlines import Deadline, Deadlines
from intercom.core.features import QUEUE
from intercom.core.operations import Operations
from intercom.core.outbox import Outbox
from intercom.core.records import OperationState
from intercom.core.restoring import Reservation, Restoring
from intercom.core.sessions import Session
from intercom.limits import Limits
from intercom.wire import reasons
from intercom.wire.frames import TRUE, DeliveryFailed, Message, Send, SendHeld, trim


class Held:
    """Be one attempt of a send that waits."""

    __slots__ = (
        "began",
        "bytes",
        "connection",
        "deadline",
        "due",
        "frame",
        "is_ask",
        "is_by_alias",
        "message_id",
        "number",
        "reservation",
        "sender",
        "signature",
    )

    def __init__(
        self,
        connection: Connection,
        sender: Session,
        frame: Send,
        message: Message,
        signature: bytes,
        reservation: Reservation,
        began: int,
        *,
        is_by_alias: bool,
    ) -> None:
        self.connection = connection
        self.sender = sender
        self.frame = frame
        self.message_id = message.id
        self.is_ask = message.expects_reply is True
        self.signature = signature
        self.reservation = reservation
        self.began = began
        """When its frame came, monotonic ms."""
        self.is_by_alias = is_by_alias
        """The target was an id the child was known by; it may return under another."""
        self.bytes = _size(frame)
        self.number = 0
        """Its place in the order of arrival; a retry keeps it."""
        self.due = 0
        """When it fails, monotonic ms."""
        self.deadline: Deadline | None = None

    def aimed_anew(self, now: Instant) -> Send:
        """Return the frame to decide about after the hold; the wording stays what identifies it."""
        frame, returned_as = said_before(self.frame, now.mono - self.began), self.reservation.returned_as
        if returned_as is None or not self.is_by_alias:
            return frame
        wording = frame.to if frame.logical_target is UNSET else frame.logical_target
        return replace(frame, to=returned_as, logical_target=wording)


class Holding:
    """Admit sends to whoever is being brought back, and end every hold once."""

    def __init__(
        self, restoring: Restoring, operations: Operations, deadlines: Deadlines, limits: Limits, outbox: Outbox
    ) -> None:
        self._restoring = restoring
        self._operations = operations
        self._deadlines = deadlines
        self._limits = limits
        self._outbox = outbox
        self._held: dict[str, Held] = {}
        self.find: Callable[[str], Held | None] = self._held.get
        """Returns the held send of a message id."""
        self._by_sender: dict[str, dict[str, Held]] = {}
        self._by_reservation: dict[Reservation, dict[str, Held]] = {}
        self._bytes = 0
        self._admitted = 0

    def __len__(self) -> int:
        return len(self._held)

    def is_same(self, held: Held, frame: Send, message: Message, sender: Session) -> bool:
        """Tell whether a send is a retry of a held one, and not another under its id."""
        return held.signature == self._signature(frame, message, sender)

    # --- admission (E3) ---------------------------------------------------------------------------------

    def admit(
        self,
        connection: Connection,
        sender: Session,
        frame: Send,
        message: Message,
        earlier: Held | None,
        now: Instant,
    ) -> Held | Refusal | None:
        """Hold a send that resolved to nothing, if somebody it may mean is being brought back.

        A sender that does not understand ``send_held`` waits in silence, shorter than its own patience; for a
        dormant recipient it does not wait at all.

        Args:
            earlier: the hold this send takes the place of, taken out already; its order and deadline stay.

        Returns:
            The hold, why it is refused, or None when nobody it may mean is expected.
        """
        matching = self._restoring.matching(frame.to, sender)
        if not matching:
            return None
        if len(matching) > 1:
            return Refusal("E3", reasons.ambiguous_restoring(trim(frame.to)))
        reservation = matching[0]
        understands = frame.await_restoring_recipient == TRUE
        code: str | UnsetType = NOT_FOUND_CODE if frame.require_pending_reply is True else UNSET
        if reservation.gone is not None:
            return Refusal("E3", reservation.gone, code)
        if reservation.is_dormant and not understands:
            return Refusal("E3", reasons.RESTORING_DORMANT, code)
        signature = self._signature(frame, message, sender)
        refusal = self._refuse_known(message.id, signature, now)
        if refusal is not None:
            return refusal
        flag: Raw | UnsetType = TRUE if understands else UNSET  # what else was there may be of any size
        kept = replace(frame, message=frame.message.copy(), await_restoring_recipient=flag)
        is_by_alias = reservation.is_named(trim(frame.to).lower())
        held = Held(connection, sender, kept, message, signature, reservation, now.mono, is_by_alias=is_by_alias)
        if not self._has_room(held):
            return Refusal("E3", reasons.capacity("too many sends wait for a recipient", self._limits.hold_ms))
        self._enter(held, earlier, now.mono + (self._limits.hold_ms if understands else self._limits.silent_hold_ms))
        if understands and (earlier is None or earlier.frame.message is not frame.message):
            self._outbox.write(connection, SendHeld(message.id, max(0, held.due - now.mono), frame.attempt_id))
        return held

    def _refuse_known(self, message_id: str, signature: bytes, now: Instant) -> Refusal | None:
        """Refuse at once what the row of this message id forbids whoever the recipient will be."""
        operation = self._operations.find(message_id, now)
        if self._operations.is_unusable(message_id):
            return Refusal("E3", reasons.authority_invalid(self._operations.trouble))
        if operation is not None and operation.signature != signature:
            return Refusal("E3", conflict_with(operation), CONFLICT_CODE, operation.ticket)
        return None

    def _signature(self, frame: Send, message: Message, sender: Session) -> bytes:
        wording = frame.to if frame.logical_target is UNSET else frame.logical_target
        pending_reply = frame.require_pending_reply is True
        return self._operations.signature(wording, message, sender, pending_reply=pending_reply)

    def _has_room(self, held: Held) -> bool:
        limits = self._limits
        mine = self._by_sender.get(held.sender.id, {})
        return (
            len(mine) < limits.held_per_session
            and sum(other.bytes for other in mine.values()) + held.bytes <= limits.held_bytes_per_session
            and len(self._by_reservation.get(held.reservation, {})) < limits.held_per_reservation
            and len(self._held) < limits.held
            and self._bytes + held.bytes <= limits.held_bytes
        )

    def _enter(self, held: Held, earlier: Held | None, due: int) -> None:
        if earlier is None:
            self._admitted += 1
            held.number, held.due = self._admitted, due
        else:
            held.number, held.due = earlier.number, min(due, earlier.due)
        held.deadline = self._deadlines.add(held.due, self._run_out, held)
        self._held[held.message_id] = held
        self._by_sender.setdefault(held.sender.id, {})[held.message_id] = held
        self._by_reservation.setdefault(held.reservation, {})[held.message_id] = held
        self._bytes += held.bytes

    # --- the end of a hold ------------------------------------------------------------------------------

    def take(self, held: Held) -> None:
        """Take one held send out; the caller answers for it."""
        self._deadlines.cancel(held.deadline)
        del self._held[held.message_id]
        _take_out(self._by_sender, held.sender.id, held)
        _take_out(self._by_reservation, held.reservation, held)
        self._bytes -= held.bytes

    def take_waiting_for(self, reservations: Iterable[Reservation]) -> list[Held]:
        """Take out everything that waits for these, in the order of arrival; the caller answers for it."""
        waiting = [held for reservation in reservations for held in self._by_reservation.get(reservation, {}).values()]
        for held in waiting:
            self.take(held)
        return sorted(waiting, key=lambda held: held.number)

    def fail(self, held: Held, reason: str) -> None:
        """Tell the sender of a send that was taken out why it does not leave."""
        code: str | UnsetType = NOT_FOUND_CODE if held.frame.require_pending_reply is True else UNSET
        if self._is_repeated(held) and (told := reasons.in_doubt(reason)) != reason:
            reason, code = told, UNSET
        answer = DeliveryFailed(held.message_id, reason, held.frame.attempt_id, code)  # type: ignore[arg-type]  # the code is a literal
        self._outbox.write(held.connection, answer)

    def _is_repeated(self, held: Held) -> bool:
        """Tell whether an earlier attempt of a held send may have arrived; older clients are not told."""
        operation = self._operations.by_id(held.message_id)
        return (
            operation is not None
            and operation.state is OperationState.RESERVED
            and operation.signature == held.signature
            and QUEUE in held.sender.features
        )

    def sender_left(self, sender: Session) -> None:
        """Drop what a departing session wanted to send (protocol 6.15.1)."""
        for held in list(self._by_sender.get(sender.id, {}).values()):
            self.take(held)

    def drop_all(self) -> None:
        """Drop everything, because the broker stops: nobody is told (protocol 3.8)."""
        for held in list(self._held.values()):
            self.take(held)

    def _run_out(self, held: Held, now: Instant) -> None:
        self.take(held)
        self.fail(held, reasons.RESTORING_TIMED_OUT)


def _size(frame: Send) -> int:
    texts = (frame.to, frame.attempt_id, frame.logical_target, frame.expected_recipient_id)
    return len(frame.message) + sum(len(text) for text in texts if text is not UNSET)


def _take_out(index: dict[Any, dict[str, Held]], key: Any, held: Held) -> None:
    del index[key][held.message_id]
    if not index[key]:
        del index[key]
