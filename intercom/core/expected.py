"""Tell other brokers who is expected back here, and hold sends for whom they expect (protocol 6.11, 6.13).

    here: reserved -----> there: reserved, sends to the child are held there
    here: ended --------> there: the child came back, and is seen: decided anew; or what its supervisor says of it

Rule 1: the capability stays at its broker, others know its digest. Rule 2: what has ended is told for as long as a send
may be held: whoever held one has to hear how it ended. Rule 3: with its broker a reservation is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import TYPE_CHECKING

from intercom.core.clock import Instant
from intercom.core.peer_records import RemoteReservation, RemoteRoute, Shelf

if TYPE_CHECKING:
    from intercom.core.ground import Ground
    from intercom.core.restoring import Reservation
    from intercom.core.sessions import SessionTable
    from intercom.core.supervising import Supervising


class Expected:
    """Hold what is told and heard of reservations; ``mark`` lets what has changed be announced."""

    def __init__(
        self, ground: Ground, sessions: SessionTable, supervising: Supervising, mark: Callable[[], None]
    ) -> None:
        self._own = ground.identity.broker_id
        self._deadlines = ground.deadlines
        self._limits = ground.limits
        self._sessions = sessions
        self._restoring = supervising.restoring
        self._holding = supervising.holding
        self._supervising = supervising
        self._mark = mark
        self._changed: dict[str, RemoteReservation | None] = {}
        self._ended: dict[str, RemoteReservation] = {}
        """Those of here that have ended, as long as that is told."""
        self._of: dict[str, dict[str, Reservation]] = {}
        """By broker and key."""
        self._returning: dict[tuple[str, str], str] = {}
        """The session ids of those who came back, and are not seen here yet."""
        self._restoring.on_change = self._change

    # --- here -------------------------------------------------------------------------------------------

    def _change(self, reservation: Reservation, is_there: bool) -> None:
        told = RemoteReservation(
            sha256(reservation.capability.encode()).hexdigest()[:40],
            self._own,
            reservation.owner_id,
            reservation.child_name,
            reservation.group,
            tuple(sorted(reservation.aliases)),
            reservation.is_dormant,
            reservation.gone if is_there else None,
            has_ended=not is_there,
            refusal=reservation.refusal,
            returned_as=reservation.returned_as,
        )
        self._changed[told.key] = told
        if is_there:
            self._ended.pop(told.key, None)
        else:
            self._ended[told.key] = told
        self._mark()

    def changed(self, now: Instant) -> dict[tuple[Shelf, str], RemoteReservation | None]:
        """Return what is to be told of reservations here."""
        changed, self._changed = self._changed, {}
        for told in changed.values():
            if told is not None and told.has_ended:
                self._deadlines.add(now.mono + self._limits.hold_ms, self._forget, told)
        return {("restoring", key): told for key, told in changed.items()}

    def _forget(self, told: RemoteReservation, now: Instant) -> None:
        if self._ended.get(told.key) is told:
            del self._ended[told.key]
            self._changed[told.key] = None
            self._mark()

    # --- elsewhere --------------------------------------------------------------------------------------

    def seen(self, peer: str, shared: Iterable[RemoteReservation | RemoteRoute], now: Instant) -> None:
        """Take note of whom a broker expects back, and of nobody else there."""
        mine = self._of.setdefault(peer, {})
        told = {each.key: each for each in shared if isinstance(each, RemoteReservation) and each.home == peer}
        for key in mine.keys() - told.keys():
            self._end(peer, key, None, now)
        for each in told.values():
            if each.has_ended:
                self._has_ended(peer, each, now)
            else:
                self._put(peer, each, now)

    def _put(self, peer: str, told: RemoteReservation, now: Instant) -> None:
        reservation = self._restoring.put_elsewhere(told)
        if reservation is None:
            return
        self._of[peer][told.key] = reservation
        if told.gone is not None:
            for held in self._holding.take_waiting_for([reservation]):
                self._holding.fail(held, told.gone)

    def _has_ended(self, peer: str, told: RemoteReservation, now: Instant) -> None:
        reservation = self._of[peer].get(told.key)
        if reservation is None:
            return
        place = (peer, told.key)
        if told.returned_as is not None and self._sessions.get(told.returned_as) is None:
            if place not in self._returning:
                self._returning[place] = told.returned_as
                self._deadlines.add(now.mono + self._limits.look_ms, self._stays_unseen, place)
            return
        reservation.returned_as = told.returned_as
        self._end(peer, told.key, told.refusal, now)

    def _stays_unseen(self, place: tuple[str, str], now: Instant) -> None:
        """Let nobody wait longer for who came back and is not seen: it is gone again, or in no group of theirs."""
        if place in self._returning:
            self._end(*place, None, now)

    def lost(self, peer: str, now: Instant) -> None:
        """Take note that a broker is away, and with it whom it expected."""
        for key in list(self._of.get(peer, ())):
            self._end(peer, key, None, now)

    def _end(self, peer: str, key: str, text: str | None, now: Instant) -> None:
        self._returning.pop((peer, key), None)
        reservation = self._of[peer].pop(key)
        self._restoring.drop_elsewhere(reservation)
        released = self._holding.take_waiting_for([reservation])
        if text is None:
            self._supervising.dispatch(released, now)
            return
        for held in released:
            self._holding.fail(held, text)
