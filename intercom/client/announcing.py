"""Tell others what a session is doing, without anybody waiting for it, and again where that was lost on the way."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET

from intercom.client.contact import Contact
from intercom.client.lifecycle import LIFECYCLE, Lifecycle
from intercom.client.profile import Profile
from intercom.wire.frames import Presence, PresenceAck


class Announcing:
    """Hold whether the broker knows the status of the session."""

    def __init__(self, profile: Profile, contact: Contact, lifecycle: Lifecycle, ids: Callable[[], str]) -> None:
        self._profile = profile
        self._contact = contact
        self._lifecycle = lifecycle
        self._ids = ids
        self._untold: str | None = None
        """Request id of the latest announcement, until the broker is known to have it; empty for one not written."""

    def announce(self, status: str, wall: int) -> None:
        """Tell a status, now or when the session is registered or back; ``wall`` is now in epoch milliseconds."""
        self._profile.announced(status, wall)
        self._untold = ""
        if self._contact.is_online:
            self._tell()

    def registered(self) -> None:
        """Take notice that a registration told the status."""
        self._untold = None

    def reattached(self) -> None:
        """Tell what was not known to have arrived: whoever takes a session back tells nothing of it."""
        if self._untold is not None:
            self._tell()

    def acknowledged(self, answer: PresenceAck) -> None:
        """Take notice that a change of presence arrived."""
        if answer.request_id == self._untold:
            self._untold = None

    def _tell(self) -> None:
        status = UNSET if self._profile.status is None else self._profile.status
        if LIFECYCLE not in self._lifecycle.features:
            self._contact.write(Presence(status=status))
            return
        self._untold = self._ids()
        self._contact.write(Presence(request_id=self._untold, status=status))
