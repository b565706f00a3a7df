"""Ask the owner of a run what becomes of a message to one of its stages (protocol 4.16, 6.12.4).

    asked --delivered--> delivered
          --forward----> reserved and forwarded to the live stage, as any send from D8 on
          --queued-----> sticky broadcast to live stages, then queued
          --refused, time limit, departure of the owner--> failed

Rule 1: however a request ends, it is taken out first, and then the barriers that wait for it are told. Rule 2: a
request stays when its sender leaves: the owner is still deciding, and a stage must not start before it has.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Protocol

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from intercom.core.attempts import NOT_FOUND_CODE, Refusal
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.deadlines import Deadline, Deadlines
from intercom.core.outbox import Outbox
from intercom.core.owner_decisions import Decision, OwnerDecisions, decision_of
from intercom.core.routes import Route, controls
from intercom.core.sessions import Session
from intercom.core.stages import Stages
from intercom.limits import WHOLE_NUMBER_MAX, Limits
from intercom.wire import reasons
from intercom.wire.frames import (
    Delivered,
    DeliveryFailed,
    Message,
    MessageFrame,
    PendingStageMessage,
    PendingStageMessageResult,
    Queued,
    Send,
    StickyLiveDelivered,
    trim,
)
from intercom.wire.targets import StageTarget, parse_target


class Waiting(Protocol):
    """Wait until requests have ended; those of lower order are told first."""

    order: int

    def settled(self, request: OwnerRequest) -> None:
        """Note that one of the awaited requests has ended."""


class OwnerRequest:
    """Hold one send while the owner decides about it, with its sender as it was when it came."""

    __slots__ = (
        "asked_at",
        "barriers",
        "began",
        "bytes",
        "connection",
        "deadline",
        "frame",
        "id",
        "is_replaced",
        "is_withdrawn",
        "live",
        "message_id",
        "owner",
        "run_id",
        "sender",
        "sender_info",
        "signature",
        "target",
    )

    def __init__(
        self,
        request_id: str,
        route: Route,
        connection: Connection,
        sender: Session,
        frame: Send,
        message: Message,
        target: StageTarget,
        live: Session | None,
        signature: bytes,
        began: int,
    ) -> None:
        self.id = request_id
        self.owner = route.owner
        self.run_id = route.run_id
        self.connection = connection
        self.sender = sender
        self.sender_info = sender.encoded()
        self.frame = replace(frame, message=frame.message.copy())
        self.message_id = message.id
        self.target = target
        self.live = live
        self.signature = signature
        self.bytes = len(self.frame.message) + len(self.sender_info)
        self.asked_at = 0
        """Epoch ms."""
        self.began = began
        """When it came, monotonic ms."""
        self.deadline: Deadline | None = None
        self.barriers: set[Waiting] = set()
        self.is_replaced = False
        """The sender has sent the same message again since then; that attempt is asked about by itself."""
        self.is_withdrawn = False
        """The asker took the question back before it was open."""

    @property
    def text(self) -> str:
        """Return the target as it was sent, trimmed."""
        return trim(self.frame.to)

    @property
    def not_found_code(self) -> str | UnsetType:
        """Return the code of *not found* for this send."""
        return NOT_FOUND_CODE if self.frame.require_pending_reply is True else UNSET


class Owners:
    """Ask owners, and carry out what they decide."""

    def __init__(
        self,
        stages: Stages,
        ids: Callable[[], str],
        deadlines: Deadlines,
        limits: Limits,
        outbox: Outbox,
    ) -> None:
        self._stages = stages
        self._ids = ids
        self._deadlines = deadlines
        self._limits = limits
        self._outbox = outbox
        self._by_id: dict[str, OwnerRequest] = {}
        self._by_owner: dict[str, dict[str, OwnerRequest]] = {}
        self._by_root: dict[str, dict[str, OwnerRequest]] = {}
        self._by_sender: dict[str, dict[str, OwnerRequest]] = {}
        self._bytes = 0
        self.decisions = OwnerDecisions(limits)
        self.forward: Callable[[OwnerRequest, Session, Instant], None] = lambda request, session, now: None
        """Sends to the live stage what its owner wants to be forwarded; set by ``delivery``."""

    def __len__(self) -> int:
        return len(self._by_id)

    def in_flight(self, root: str) -> list[OwnerRequest]:
        """Return what owners are deciding about for the invocation of this root run, oldest first."""
        return list(self._by_root.get(root, {}).values())

    # --- asking -----------------------------------------------------------------------------------------

    def ask(
        self,
        connection: Connection,
        sender: Session,
        frame: Send,
        message: Message,
        target: StageTarget,
        live: Session | None,
        signature: bytes,
        now: Instant,
    ) -> Refusal | bool:
        """Put a send before the owner of its target; False when there is none, and nothing has happened then."""
        route = self._stages.routes.owner_of(target)
        if route is None:
            return False
        if live is None and not controls(sender, route.group):
            return Refusal("E2", reasons.DIFFERENT_RUN)
        request = OwnerRequest(
            self._ids(), route, connection, sender, frame, message, target, live, signature, now.mono
        )
        full = self._full(request)
        if full is not None:
            return Refusal("E2", reasons.capacity(full, self._limits.owner_answer_ms))
        asked = PendingStageMessage(
            request.id,
            request.sender_info,
            route.run_id,
            request.text,
            request.frame.message,
            UNSET if sender.registration_name is None else sender.registration_name,
            UNSET if sender.return_address is None else sender.return_address,
            UNSET if live is None else True,
        )
        self._outbox.write(route.owner.connection, asked)
        for earlier in self._by_sender.get(sender.id, {}).values():
            if earlier.message_id == request.message_id and earlier.signature == signature:
                earlier.is_replaced = True
        self._enter(request)
        request.asked_at = now.wall
        request.deadline = self._deadlines.add(now.mono + self._limits.owner_answer_ms, self._unanswered, request)
        return True

    def _full(self, request: OwnerRequest) -> str | None:
        """Name the bound that one more request would break."""
        limits = self._limits
        mine = self._by_sender.get(request.sender.id, {})
        if (
            len(mine) >= limits.owner_requests_per_session
            or request.bytes + sum(other.bytes for other in mine.values()) > limits.owner_request_bytes_per_session
        ):
            return "too many messages of this sender wait for a workflow's answer"
        if len(self._by_id) >= limits.owner_requests or self._bytes + request.bytes > limits.owner_request_bytes:
            return "too many messages wait for a workflow's answer"
        return None

    def _enter(self, request: OwnerRequest) -> None:
        self._by_id[request.id] = request
        self._bytes += request.bytes
        for index, key in self._places(request):
            index.setdefault(key, {})[request.id] = request

    def _take(self, request: OwnerRequest) -> None:
        """Take a request out and tell the barriers that wait for it."""
        del self._by_id[request.id]
        self._bytes -= request.bytes
        self._deadlines.cancel(request.deadline)
        for index, key in self._places(request):
            del index[key][request.id]
            if not index[key]:
                del index[key]
        for barrier in sorted(request.barriers, key=lambda each: each.order):
            barrier.settled(request)

    def _places(self, request: OwnerRequest) -> tuple[tuple[dict[str, dict[str, OwnerRequest]], str], ...]:
        return (
            (self._by_owner, request.owner.id),
            (self._by_root, request.target.run_id),
            (self._by_sender, request.sender.id),
        )

    def withdraw(self, asker: Session, message_id: str) -> None:
        """Note that this session takes back what it asked: it may still be delivered, but opens no question."""
        for request in self._by_sender.get(asker.id, {}).values():
            if request.message_id == message_id:
                request.is_withdrawn = True

    def decision_about(self, message_id: str, now: Instant) -> Decision | None:
        """Return how a message stands that an owner is deciding about, or has decided about lately."""
        for request in self._by_id.values():
            if request.message_id == message_id and not request.is_replaced:
                return decision_of(request, "reserved", None)
        return self.decisions.find(message_id, now)

    # --- settling ---------------------------------------------------------------------------------------

    def answered(self, owner: Session, frame: PendingStageMessageResult, now: Instant) -> None:
        """Do what the owner decided; an unknown request, or one of another owner, is ignored."""
        request = self._by_id.get(frame.request_id)
        if request is None or request.owner is not owner:
            return
        self._take(request)
        if frame.outcome == "delivered":
            self.decisions.note(request, "delivered", now)
            self._outbox.write(request.connection, Delivered(request.message_id, request.frame.attempt_id))
        elif frame.outcome == "forward":
            self._forward(request, frame, now)
        elif frame.outcome == "queued" and frame.position is not UNSET and frame.position > 0:
            position = min(ceil(frame.position), WHOLE_NUMBER_MAX)
            self.decisions.note(request, "queued", now, position)
            self._queued(request, frame, position)
        else:
            reason = reasons.STAGE_REFUSED if frame.reason is UNSET else frame.reason
            self.decisions.note(request, "undeliverable", now)
            self._fail(request, reason, frame.reason_code)

    def owner_left(self, owner: Session, now: Instant) -> None:
        """Fail everything a departing owner was asked, in order."""
        for request in list(self._by_owner.get(owner.id, {}).values()):
            self._take(request)
            self.decisions.note(request, "uncertain", now)
            self._fail(request, reasons.STAGE_OWNER_LEFT)

    def _unanswered(self, request: OwnerRequest, now: Instant) -> None:
        self._take(request)
        self.decisions.note(request, "uncertain", now)
        self._fail(request, reasons.STAGE_UNACKNOWLEDGED)

    def _forward(self, request: OwnerRequest, frame: PendingStageMessageResult, now: Instant) -> None:
        session = self._live_in(request.target, frame.target)
        if (
            session is None
            or request.connection.session is not request.sender
            or (request.live is not None and request.live is not session)
        ):
            return self._fail(request, reasons.SESSION_NOT_FOUND, request.not_found_code)
        return self.forward(request, session, now)

    def _live_in(self, original: StageTarget, text: str | UnsetType) -> Session | None:
        """Return the live stage behind a target an owner named, if it lies in the invocation it was asked about."""
        target = None if text is UNSET else parse_target(text)
        if target is None or text is UNSET or target.run_id != original.run_id:
            return None
        alias = self._stages.live(text)
        return None if alias is None else alias.session

    def _queued(self, request: OwnerRequest, frame: PendingStageMessageResult, position: int) -> None:
        reached = self._broadcast(request, [] if frame.forward_targets is UNSET else frame.forward_targets)
        if reached:
            told = StickyLiveDelivered(request.run_id, request.message_id, request.text, reached)
            self._outbox.write(request.owner.connection, told)
        attempt_id = request.frame.attempt_id
        if request.sender.knows_newest_frames:
            queued = Queued(request.message_id, request.text, position, attempt_id, frame.not_in_known_set)
            self._outbox.write(request.connection, queued)
        else:  # it would drop the connection; the run's durable queue has the message (protocol 5.30)
            self._outbox.write(request.connection, Delivered(request.message_id, attempt_id))

    def _broadcast(self, request: OwnerRequest, targets: list[str]) -> list[str]:
        """Write a message to live stages now, once to each, and return the targets that led to them."""
        written: set[str] = set()
        reached: dict[str, None] = {}
        for text in targets:
            session = self._live_in(request.target, text)
            if session is None or session is request.sender:
                continue
            if session.id not in written:
                self._outbox.write(session.connection, MessageFrame(request.sender_info, request.frame.message))
                written.add(session.id)
            reached[text] = None
        return list(reached)

    def _fail(self, request: OwnerRequest, reason: str, code: str | UnsetType = UNSET) -> None:
        answer = DeliveryFailed(request.message_id, reason, request.frame.attempt_id, code)  # type: ignore[arg-type]  # the codes are literals
        self._outbox.write(request.connection, answer)
