"""Turn what links read into calls of the core: decode, classify, limit, hold back.

Frames of one connection are handled strictly in order, each with all its effects before the next frame of any
connection is looked at (protocol 1.3, 4.22). A connection whose frames wait for our own commit is read no further
(protocol 1.5), nor one whose next frame needs what is still being read from our own disk after a start, or is large
and decoded in steps, one a turn; waiting for anybody else never stops it.

Who gave up waiting to be registered, and closed, is not registered afterwards: a broker that was stopped for a while
would let it take the place of others, who has said meanwhile that nothing took effect.
"""

from __future__ import annotations

from collections.abc import Callable

from intercom.core.broker import Broker
from intercom.core.clock import Instant
from intercom.limits import (
    STEPPED_BYTES,
    UNCOMMITTED_BYTES,
    UNCOMMITTED_FRAMES,
    UNREGISTERED_FRAME_BYTES,
    UNREGISTERED_TOTAL_BYTES,
)
from intercom.server.lifecycle import IdleCheck
from intercom.server.link import Link, Stepped
from intercom.server.perform import Performer
from intercom.wire.codec import ProtocolError, decode_request, request_in_steps
from intercom.wire.frames import (
    BadRequest,
    BrokerStatusRequest,
    HealthRequest,
    ListGroups,
    ListSessions,
    Malformed,
    Presence,
    Register,
    Shutdown,
    Unregister,
)
from intercom.wire.framing import FrameReader, FramingError
from intercom.wire.mail import SessionReattach
from intercom.wire.unions import Request  # at run time too: the package may be replaced before it is needed

_WITHOUT_OPERATIONS = frozenset(
    {
        Register,
        SessionReattach,
        Unregister,
        ListSessions,
        ListGroups,
        Presence,
        HealthRequest,
        BrokerStatusRequest,
        Shutdown,
    }
)
"""Frames that look no message id up, so that they are handled while operations are still being read back."""
_REGISTRATIONS = frozenset({Register, SessionReattach})
_MEMBERSHIP = frozenset({Register, Unregister})


class Intake:
    """Handle the input of every link.

    Args:
        broker: the core.
        performer: does what the core decides.
        idle: keeps the account of who keeps the broker alive.
        clock: gives the present moment.
        frame_bytes: largest frame of a registered session.
    """

    def __init__(
        self,
        broker: Broker,
        performer: Performer,
        idle: IdleCheck,
        *,
        clock: Callable[[], Instant],
        frame_bytes: int,
    ) -> None:
        self._broker = broker
        self._performer = performer
        self._idle = idle
        self._clock = clock
        self._frame_bytes = frame_bytes
        self._unregistered_bytes = 0
        self._stopped = False

    def stop(self) -> None:
        """Look at no frame any more."""
        self._stopped = True

    def arrived(self, link: Link) -> None:
        """Handle what a link just read."""
        self.handle(link, self._clock())

    def resume(self, link: Link, now: Instant) -> None:
        """Go on with a link whose frames were committed: first with what it has, then with what is to come."""
        self.handle(link, now)
        if not link.paused and link.accepting and not self._stopped:
            link.resume_reading()

    def handle(self, link: Link, now: Instant) -> None:
        """Handle every complete frame the link has, as far as it is allowed to go."""
        number, reader, performer = link.number, link.reader, self._performer
        frame_received = self._broker.frame_received
        recalling = self._broker.is_recalling
        frames, size = link.uncommitted_frames, link.uncommitted_bytes
        newest = 0
        if not link.registered and link.classified:
            self._membership_changed(link, now)  # what it asked for may have had to wait
        try:
            while link.accepting and not self._stopped:
                if frames >= UNCOMMITTED_FRAMES or size >= UNCOMMITTED_BYTES:
                    link.paused = True
                    break
                if link.stepped is None:
                    arrived = reader.next_frame()
                    if arrived is None:
                        if link.eof:
                            performer.run(self._broker.connection_ended(number, now), now)
                        break
                    payload = arrived
                    if len(payload) > STEPPED_BYTES:
                        link.stepped = Stepped(payload, request_in_steps(payload))
                        continue
                    frame = decode_request(payload)
                else:
                    payload, steps = link.stepped
                    frame = next(steps)
                    if frame is None:
                        link.paused = True
                        performer.resume_soon(link)
                        break
                    link.stepped, link.paused = None, False
                kind = type(frame)
                if recalling and kind not in _WITHOUT_OPERATIONS:
                    reader.put_back(payload)
                    link.paused = True
                    break
                if kind in _REGISTRATIONS and link.is_abandoned() and says_no_more(reader.rest):
                    performer.run(self._broker.connection_ended(number, now), now)
                    break
                if not link.classified:
                    self._classify(link, frame, now)
                if ticket := performer.run(frame_received(number, frame, now), now):
                    newest = ticket
                    frames += 1
                    size += len(payload)
                if kind in _MEMBERSHIP:
                    self._membership_changed(link, now)
        except (FramingError, ProtocolError) as error:
            self._violated(link, str(error), now)
        if newest:
            performer.charge(link, newest, frames - link.uncommitted_frames, size - link.uncommitted_bytes)
        if not link.registered:
            self._count_input(link, now)

    def forget(self, link: Link) -> None:
        """Give back what this link had buffered: it is not an unregistered connection any more."""
        self._unregistered_bytes -= link.counted_input
        link.counted_input = 0

    def _classify(self, link: Link, frame: Request | Malformed | BadRequest, now: Instant) -> None:
        link.classified = True
        self._idle.first_frame(link.number, is_health=isinstance(frame, HealthRequest), now=now.mono)

    def _membership_changed(self, link: Link, now: Instant) -> None:
        registered = self._broker.is_registered(link.number)
        if registered and not link.registered:
            link.reader.limit_bytes = self._frame_bytes
            self.forget(link)
            self._idle.registered()
        elif link.registered and not registered:
            link.reader.limit_bytes = UNREGISTERED_FRAME_BYTES
            self._idle.arm(now.mono)
        link.registered = registered

    def _violated(self, link: Link, reason: str, now: Instant) -> None:
        self._performer.run(self._broker.protocol_error(link.number, reason, now), now)

    def _count_input(self, link: Link, now: Instant) -> None:
        decoding = 0 if link.stepped is None else len(link.stepped.payload)
        buffered = link.reader.buffered + decoding if link.accepting else 0
        self._unregistered_bytes += buffered - link.counted_input
        link.counted_input = buffered
        if self._unregistered_bytes > UNREGISTERED_TOTAL_BYTES and link.accepting:
            self._violated(link, "connections that have not registered buffer too much input", now)


def says_no_more(rest: bytes) -> bool:
    """Tell whether nothing follows a registration but a goodbye."""
    reader = FrameReader(UNREGISTERED_FRAME_BYTES)
    reader.feed(rest)
    try:
        payload = reader.next_frame()
        return payload is None or (isinstance(decode_request(payload), Unregister) and not reader.buffered)
    except ProtocolError:
        return False
