"""Speak with a broker over one connection at a time: frames out, answers in, and where the connection stands."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import UNSET

from intercom.client.outcomes import RUN_CODES, STAGE_HINTS
from intercom.client.supervision import refusal_of_claim
from intercom.errors import (
    AddressHeld,
    AddressTaken,
    BrokerError,
    ConnectionLost,
    IntercomError,
    ProtocolViolation,
    RegistrationRefused,
    RunRefused,
    StageRefused,
    TooLarge,
)
from intercom.limits import CONNECT_MS, FRAME_BYTES, FRAME_CEILING_BYTES, HEADER_BYTES, UNREGISTERED_FRAME_BYTES
from intercom.wire.codec import ProtocolError, decode_answer, encode
from intercom.wire.frames import ErrorFrame, Registered, RegistrationFailed, Unregister
from intercom.wire.framing import FrameReader
from intercom.wire.mail import RequestFailed, SessionReattach, SessionReattached
from intercom.wire.reasons import INVALID_SUPERVISOR

if TYPE_CHECKING:
    from intercom.wire.unions import Answer, Request


class Link(Enum):
    """Name what there is of a connection."""

    OFFLINE = "offline"
    REGISTERING = "registering"
    ONLINE = "online"
    BROKEN = "broken"
    """To be closed on purpose; ``ended`` follows."""
    CLOSED = "closed"
    """The session is over; only ``outgoing`` is still to be written."""


class Contact:
    """Hold the connection of a session; everything is forgotten with it but ``trouble``."""

    def __init__(self) -> None:
        self.link = Link.OFFLINE
        self.trouble: IntercomError | None = None
        """Why there is no registered connection now."""
        self.registration_due: int | None = None
        """When the broker must have answered ``register`` or ``session_reattach``."""
        self.confirms = False
        """Whether the broker understands receipts."""
        self._reader = FrameReader(FRAME_CEILING_BYTES)
        self._out: list[bytes] = []
        self._cause: IntercomError | None = None
        self._may_refuse = False
        """Whether the first frame may be answered with a refusal after which the connection can still be used."""

    @property
    def is_online(self) -> bool:
        """Tell whether the session is registered."""
        return self.link is Link.ONLINE

    def begin(self, first: Request, now: int, unanswered: IntercomError) -> None:
        """Register or reattach on a new connection; ``unanswered`` is the error for a broker that stays silent."""
        if self.link is not Link.OFFLINE:
            raise RuntimeError(f"a connection was made while {self.link.value}")
        self.link = Link.REGISTERING
        self.trouble = unanswered
        self.registration_due = now + CONNECT_MS
        self._reader = FrameReader(FRAME_CEILING_BYTES)
        self._may_refuse = isinstance(first, SessionReattach)
        try:
            self.write(first)
        except TooLarge as error:
            self.break_off(error)

    def answers(self, data: bytes) -> Iterator[Answer]:
        """Cut and decode what came; ends early when the connection has to be broken.

        Each answer must be handled before the next one is taken.
        """
        try:
            self._reader.feed(data)
            while self.link in (Link.REGISTERING, Link.ONLINE) and (payload := self._reader.next_frame()) is not None:
                answer = decode_answer(payload)
                self._look_at(answer)
                yield answer
        except ProtocolError as error:
            self.break_off(violation(error))

    def break_off(self, cause: IntercomError | None) -> None:
        """Have the connection closed on purpose: there is no way to go on with it."""
        self._cause = cause
        self.registration_due = None
        self.link = Link.BROKEN
        self._out.clear()

    def ended(self) -> IntercomError | None:
        """Take notice that the connection is gone; return why it was broken, or ``None`` if it just ended."""
        cause, self._cause = self._cause, None
        if cause is None and self.link is Link.REGISTERING:
            self.trouble = ConnectionLost("The broker ended the connection before it registered this session")
        else:
            self.trouble = cause or ConnectionLost("The connection to the broker ended")
        self.link = Link.OFFLINE
        self.registration_due = None
        self._out.clear()
        return cause

    def close(self, *, keeps_questions: bool = False) -> None:
        """Speak no more after what is in ``outgoing``, which ends with a goodbye where anything was said.

        Also behind a registration that was not answered: it would leave a session that nobody can take back.
        """
        if self.link is Link.ONLINE or (self.link is Link.REGISTERING and not self._out):
            self.write(Unregister(True if keeps_questions else UNSET))
        else:
            self._out.clear()
        self.link = Link.CLOSED
        self.registration_due = None

    def cut(self) -> None:
        """Speak no more at all: the broker has ended the session."""
        self._out.clear()
        self.link = Link.CLOSED
        self.registration_due = None

    def write(self, frame: Request) -> None:
        """Queue a frame; raise ``TooLarge`` for one that the broker would end the connection for."""
        encoded = encode(frame)
        most = FRAME_BYTES if self.is_online else UNREGISTERED_FRAME_BYTES
        if len(encoded) - HEADER_BYTES > most:
            raise TooLarge(f"the request takes {len(encoded) - HEADER_BYTES} bytes; a frame holds {most}")
        self._out.append(encoded)

    def outgoing(self) -> bytes:
        """Return what has to be written now, whole frames only."""
        if not self._out:
            return b""
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        return data

    def _look_at(self, answer: Answer) -> None:
        if self.link is Link.ONLINE:
            if isinstance(answer, Registered | SessionReattached):
                raise ProtocolError("registered came twice")
        elif isinstance(answer, Registered | SessionReattached):
            self.link = Link.ONLINE
            self.trouble = None
            self.registration_due = None
            self.confirms = isinstance(answer, SessionReattached) or answer.acknowledges_receipt is True
        elif isinstance(answer, RequestFailed) and self._may_refuse:
            self._may_refuse = False
        elif not isinstance(answer, RegistrationFailed | ErrorFrame):
            raise ProtocolError(f"{type(answer).__name__} came before registered")
        if isinstance(answer, RegistrationFailed):
            self.break_off(_refusal(answer))
        elif isinstance(answer, ErrorFrame):
            self.break_off(ProtocolViolation(f"The broker reports: {answer.error}"))


def _refusal(answer: RegistrationFailed) -> RegistrationRefused | BrokerError:
    if answer.reason == INVALID_SUPERVISOR:
        return refusal_of_claim(answer.reason)
    code = None if answer.code is UNSET else answer.code
    if code in STAGE_HINTS:
        hint, retry = STAGE_HINTS[code]
        return StageRefused(
            f"The broker did not let this session go live: {answer.reason}", code=code, hint=hint, retry=retry
        )
    if answer.reason in RUN_CODES:
        code, hint = RUN_CODES[answer.reason]
        return RunRefused(f"The broker did not take the run: {answer.reason}", code=code, hint=hint)
    if code == NOT_RECORDED:
        return BrokerError(answer.reason, code=code, hint="Free some space; the broker goes on once it can write.")
    kind = _REFUSALS.get(code or "", RegistrationRefused)
    return kind(f"The broker refused to register this session: {answer.reason}", code=code)


NOT_RECORDED = "not_recorded"
"""The one refusal of a registration that passes by itself: the broker's disk could not take it."""
_REFUSALS: dict[str, type[RegistrationRefused]] = {"address_taken": AddressTaken, "address_held": AddressHeld}


def violation(error: Exception) -> ProtocolViolation:
    """Return the public error for something the broker wrote that breaks the protocol."""
    raised = ProtocolViolation(f"The broker broke the protocol: {error}")
    raised.__cause__ = error
    return raised
