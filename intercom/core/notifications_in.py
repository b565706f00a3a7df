"""Bring what owners of workflow runs elsewhere tell sessions here, and say whether they took it (protocol 4.17, 6.13).

    there: reserved --posted--> here: decided, reserved, written --taken--> accepted --posted behind its commit--> there

The broker of the owner judges its right to speak, this one its recipient. Whatever comes twice meets the row here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, DecodeError, Struct, ValidationError
from msgspec.json import decode

from intercom.core.clock import Instant
from intercom.core.letters import NOTIFIED, NOTIFY, NotifiedLetter, NotifyLetter
from intercom.core.peer_records import Arrived, Settle
from intercom.core.standins import RemoteConnection
from intercom.wire.codec import parse_message
from intercom.wire.frames import Delivered, DeliveryFailed

if TYPE_CHECKING:
    from intercom.core.abroad import Abroad
    from intercom.core.ground import Ground
    from intercom.core.notifications import Notifications
    from intercom.core.peer_records import RemoteName
    from intercom.core.standins import StandIn


class _WayBack(RemoteConnection):
    """Lead back to the broker of an owner, for the answer to one request of it."""

    __slots__ = ("_answered", "request")

    def __init__(
        self, number: int, abroad: Abroad, peer: str, request: str, answered: Callable[[_WayBack, Any, int], None]
    ) -> None:
        super().__init__(number, peer, abroad)
        self.request = request
        self._answered = answered

    def carry(self, frame: Any, after: int, token: object | None) -> bool:
        """Take a frame for the owner."""
        self._answered(self, frame, after)
        return True


class _Brought(Struct):
    """Hold one notification that is not answered, and what brought it last."""

    fact: Arrived
    way_back: Any


class NotificationsIn:
    """Take such notifications, and the answers to our own.

    Args:
        shape_of: gives what stands for whoever a letter names.
        next_number: numbers the ways by which answers go back.
    """

    kinds = frozenset({NOTIFY, NOTIFIED})

    def __init__(
        self,
        ground: Ground,
        notifications: Notifications,
        abroad: Abroad,
        shape_of: Callable[[str, RemoteName], StandIn],
        next_number: Callable[[], int],
    ) -> None:
        self._outbox = ground.outbox
        self._notifications = notifications
        self._abroad = abroad
        self._shape_of = shape_of
        self._next_number = next_number
        self._brought: dict[tuple[str, str], _Brought] = {}
        """By broker and request."""

    def arrived(self, fact: Arrived, now: Instant) -> None:
        """Take what another broker brought; what cannot be read is let go of."""
        try:
            if fact.kind == NOTIFY:
                letter = decode(fact.body, type=NotifyLetter)
                if letter.owner.home == fact.peer and parse_message(letter.message) is not None:
                    self._take(fact, letter, now)
                    return
            else:
                answer = decode(fact.body, type=NotifiedLetter)
                refusal = None if answer.is_delivered else (answer.reason, answer.code or UNSET)
                self._notifications.told(answer.request, fact.peer, refusal, now)
        except (DecodeError, ValidationError):
            pass
        self._outbox.add(Settle(fact.arrival))

    def _take(self, fact: Arrived, letter: NotifyLetter, now: Instant) -> None:
        key = (fact.peer, letter.request)
        known = self._brought.get(key)
        if known is not None:
            self._outbox.add(Settle(known.fact.arrival))
            known.fact = fact
            return
        owner = self._shape_of(fact.peer, letter.owner)
        way_back = _WayBack(self._next_number(), self._abroad, fact.peer, letter.request, self._answered)
        self._brought[key] = _Brought(fact, way_back)
        self._notifications.bring(way_back, owner, letter.to, letter.group, letter.message, letter.signature, now)

    # --- the way of the answers -------------------------------------------------------------------------

    def _answered(self, way_back: _WayBack, frame: Any, after: int) -> None:
        """Post what became of a notification to the broker of its owner; the first answer counts."""
        peer, request = key = way_back.peer_id, way_back.request
        brought = self._brought.get(key)
        if brought is None or brought.way_back is not way_back or not isinstance(frame, Delivered | DeliveryFailed):
            return
        del self._brought[key]
        letter = NotifiedLetter(request, is_delivered=True)
        if isinstance(frame, DeliveryFailed):
            code = None if frame.reason_code is UNSET else frame.reason_code
            letter = NotifiedLetter(request, is_delivered=False, reason=frame.reason, code=code)
        self._abroad.post(peer, NOTIFIED, f"{NOTIFIED} {request}", letter, after, settles=brought.fact.arrival)
