"""Know who is being brought back: the reservations supervisors make for their children (protocol 4.12, 4.13, 6.11).

    (none) --reserve--> expected --release, return, owner leaves--> (none)
                        |      ^
                        |      +-- reserved again: other fields, what waits goes on waiting
                        +-- released as gone --> gone: a marker that answers for the child; ends like the others

A reservation holds nothing itself: ``holding`` knows what waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import UNSET

from intercom.core.peer_records import PEER, RemoteReservation
from intercom.core.sessions import Session, is_uuid, normalise_group
from intercom.core.supervision import ANY_CHILD, Capabilities
from intercom.limits import RELEASE_TEXT_CHARACTERS, RESTORING_GROUP_CHARACTERS, Limits
from intercom.wire import reasons
from intercom.wire.frames import ReleaseRestoringRecipient, ReserveRestoringRecipient, is_blank, trim


class Reservation:
    """Stand for one child that is expected back, or of which its supervisor said that it is gone."""

    __slots__ = (
        "aliases",
        "capability",
        "child_name",
        "gone",
        "group",
        "is_dormant",
        "is_elsewhere",
        "owner_id",
        "refusal",
        "returned_as",
    )

    def __init__(self, capability: str) -> None:
        self.capability = capability
        self.owner_id = ""
        self.child_name = ""
        self.group = ""
        self.aliases: frozenset[str] = frozenset()
        """Ids the child was known by, in lower case."""
        self.is_dormant = False
        """The child belongs to an interrupted run that is not being restored right now."""
        self.gone: str | None = None
        """What its owner tells everybody who still writes to it."""
        self.is_elsewhere = False
        """Its supervisor is a session of another broker, which says how it is."""
        self.refusal: str | None = None
        """What those are told who waited, now that it has ended."""
        self.returned_as: str | None = None
        """The session id under which the child has come back."""

    def is_named(self, key: str) -> bool:
        """Tell whether ``key``, in lower case, is one of its aliases and not merely its name."""
        return key in self.aliases

    def addresses(self) -> Iterable[str]:
        """Return everything senders find it by, in lower case."""
        return self.aliases | {self.child_name.lower()}


class Restoring:
    """Keep reservations by capability, by owner, and by what senders call the child, within the bounds."""

    def __init__(self, capabilities: Capabilities, limits: Limits) -> None:
        self._capabilities = capabilities
        self._limits = limits
        self._known: dict[str, Reservation] = {}
        self._by_owner: dict[str, dict[str, Reservation]] = {}
        self._by_key: dict[str, dict[str, Reservation]] = {}
        self._elsewhere = 0
        self.on_change: Callable[[Reservation, bool], None] = lambda reservation, is_there: None
        """Is told of each reservation made here that is new, has changed, or is not there any more."""

    def __len__(self) -> int:
        return len(self._known) - self._elsewhere

    def reserve(self, owner: Session, frame: ReserveRestoringRecipient) -> str | None:
        """Create or replace the reservation of this capability (protocol 4.12).

        What waits for it goes on waiting, also when another supervisor has taken the capability over.

        Returns:
            None, or the sentence that says why nothing changed.
        """
        child_name = self._capabilities.supervised_child(frame.capability, owner.id)
        if child_name is None:
            return reasons.RESTORING_NOT_SUPERVISED
        if child_name == ANY_CHILD:
            return reasons.RESTORING_UNCLAIMED
        aliases = frozenset(trim(alias).lower() for alias in ([] if frame.aliases is UNSET else frame.aliases))
        if not all(is_uuid(alias) for alias in aliases):
            return reasons.RESTORING_INVALID_ALIAS
        group = owner.home_group if frame.group is UNSET else normalise_group(frame.group)
        if len(group) > RESTORING_GROUP_CHARACTERS:
            return reasons.RESTORING_LONG_GROUP
        reservation = self._known.get(frame.capability)
        is_new_here = reservation is None or reservation.owner_id != owner.id
        if is_new_here and not self._make_room(owner, is_known=reservation is not None):
            return reasons.RESTORING_CAPACITY
        if reservation is None:
            reservation = Reservation(frame.capability)
        else:
            self._remove(reservation)
        reservation.owner_id = owner.id
        reservation.child_name = child_name
        reservation.group = group
        reservation.aliases = aliases
        reservation.is_dormant = frame.dormant is True
        reservation.gone = None
        self._add(reservation)
        return None

    def release(self, owner: Session, frame: ReleaseRestoringRecipient) -> tuple[Reservation | None, str | None]:
        """End the reservation of this capability (protocol 4.13).

        Returns:
            The reservation whose held sends end now, None for whoever does not own it; and the text they fail
            with, None when they are to be dispatched.
        """
        reservation = self._known.get(frame.capability)
        if reservation is None or reservation.owner_id != owner.id:
            return None, None
        self._remove(reservation)
        if frame.gone is not UNSET:
            reservation.gone = frame.gone[:RELEASE_TEXT_CHARACTERS]
            self._add(reservation)
            return reservation, reservation.gone
        if frame.refusal is not UNSET and not is_blank(frame.refusal):
            reservation.refusal = frame.refusal[:RELEASE_TEXT_CHARACTERS]
            self.on_change(reservation, False)
        return reservation, reservation.refusal

    def matching(self, target: str, sender: Session) -> list[Reservation]:
        """Return the reservations a target of this sender may mean; who is gone counts only when nobody is expected."""
        found = self._by_key.get(trim(target).lower())
        if found is None:
            return []
        mine = [reservation for reservation in found.values() if reservation.group in sender.groups]
        mine = [reservation for reservation in mine if not reservation.is_elsewhere] or mine
        return [reservation for reservation in mine if reservation.gone is None] or mine

    def put_elsewhere(self, told: RemoteReservation) -> Reservation | None:
        """Enter, or change, what another broker says of who is expected back there; None: there is no room."""
        capability = f"{PEER}{told.home}:{told.key}"
        reservation = self._known.get(capability)
        if reservation is not None:
            self._remove(reservation)
        elif self._elsewhere >= self._limits.reservations:
            return None
        else:
            reservation = Reservation(capability)
            reservation.is_elsewhere = True
        reservation.owner_id = f"{PEER}{told.home}:{told.owner_id}"
        reservation.child_name = told.child_name
        reservation.group = told.group
        reservation.aliases = frozenset(told.aliases)
        reservation.is_dormant = told.is_dormant
        reservation.gone = told.gone
        self._add(reservation)
        return reservation

    def drop_elsewhere(self, reservation: Reservation) -> None:
        """Take out what another broker said."""
        self._remove(reservation)

    def returned(self, child: Session, capability: str, supervisor_id: str) -> list[Reservation]:
        """Take out what was reserved for a child that registered under ``capability``.

        Its supervisor's other reservations for a child of this name in one of its groups go with it (protocol 6.11).
        """
        name = (child.registration_name or "").lower()
        namesakes = self._by_key.get(name, {}).values()
        ended = [
            reservation
            for reservation in namesakes
            if reservation.owner_id == supervisor_id
            and reservation.child_name.lower() == name
            and reservation.group in child.groups
            and reservation.capability != capability
        ]
        own = self._known.get(capability)
        if own is not None:
            own.returned_as = child.id
            ended.append(own)
        for reservation in ended:
            self._remove(reservation)
        return ended

    def owner_left(self, owner: Session) -> list[Reservation]:
        """Take out everything a departing session has reserved, markers included (protocol 6.15.1)."""
        ended = list(self._by_owner.get(owner.id, {}).values())
        for reservation in ended:
            self._remove(reservation)
        return ended

    def _make_room(self, owner: Session, *, is_known: bool) -> bool:
        """Tell whether this session may own one reservation more; the oldest marker gives way."""
        mine = self._by_owner.get(owner.id, {})
        if len(mine) >= self._limits.reservations_per_session and not self._drop_marker(mine):
            return False
        return is_known or len(self) < self._limits.reservations or self._drop_marker(self._known)

    def _drop_marker(self, among: dict[str, Reservation]) -> bool:
        markers = (each for each in among.values() if each.gone is not None and not each.is_elsewhere)
        oldest = next(markers, None)
        if oldest is None:
            return False
        self._remove(oldest)
        return True

    def _add(self, reservation: Reservation) -> None:
        """Enter a reservation; it becomes the newest."""
        capability = reservation.capability
        self._known[capability] = reservation
        self._by_owner.setdefault(reservation.owner_id, {})[capability] = reservation
        for key in reservation.addresses():
            self._by_key.setdefault(key, {})[capability] = reservation
        if reservation.is_elsewhere:
            self._elsewhere += 1
        else:
            self.on_change(reservation, True)

    def _remove(self, reservation: Reservation) -> None:
        capability = reservation.capability
        del self._known[capability]
        _discard(self._by_owner, reservation.owner_id, capability)
        for key in reservation.addresses():
            _discard(self._by_key, key, capability)
        if reservation.is_elsewhere:
            self._elsewhere -= 1
        else:
            self.on_change(reservation, False)


def _discard(index: dict[str, dict[str, Reservation]], key: str, capability: str) -> None:
    entries = index[key]
    del entries[capability]
    if not entries:
        del index[key]
