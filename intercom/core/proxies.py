"""Let mail for addresses whose home is another broker go there, whoever holds them and whether anybody does.

What waits here stays until its home has it: what was posted while that was away may have been given up by the engine,
so it is posted again once it is back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from intercom.core.addresses import Address
from intercom.core.arrivals import Cause
from intercom.core.clock import Instant
from intercom.core.standins import RemoteConnection, StandIn, Way, proxy_of
from intercom.wire.mail import Replaced

if TYPE_CHECKING:
    from intercom.core.departing import Departing
    from intercom.core.ground import Ground
    from intercom.core.lifecycle import Lifecycle
    from intercom.core.mailboxes import Mail, Mailboxes
    from intercom.core.mailing import Kept, Mailing
    from intercom.core.sessions import Session


class Proxies:
    """Hold who receives here for addresses that are at home elsewhere; ``way`` is by which their mail gets there."""

    def __init__(
        self,
        ground: Ground,
        boxes: Mailboxes,
        mailing: Mailing,
        lifecycle: Lifecycle,
        departing: Departing,
        way: Way,
        next_number: Callable[[], int],
        node_of: Callable[[str], str],
        release: Callable[[Address, Instant], None],
        was_told: Callable[[Session], bool],
    ) -> None:
        self._outbox = ground.outbox
        self._boxes = boxes
        self._mailing = mailing
        self._lifecycle = lifecycle
        self._departing = departing
        self._way = way
        self._next_number = next_number
        self._node_of = node_of
        self._release = release
        self._was_told = was_told
        self._proxies: dict[int, StandIn] = {}
        """By the numbers of their addresses."""

    def aimed(self, address: Address, now: Instant) -> None:
        """Let the mail of an address go to where it is at home now."""
        home = address.home
        assert home is not None, "its mailbox is elsewhere"
        self._leave(address, now)
        proxy = proxy_of(address, home, self._next_number(), self._way, self._node_of(home))
        self._proxies[address.number] = proxy
        box = self._mailing.holder_came(proxy, address.key)
        quiet: list[tuple[Mail, Kept | None]] = [(mail, None) for mail in box.in_order() if mail.record.kept == "quiet"]
        if quiet and self._mailing.can_promise:
            self._mailing.keep(box, quiet, now)  # whether it may wake anybody is judged there
        self._mailing.offer(box, now)

    def left(self, address: Address, now: Instant) -> None:
        """Let whoever held an address here go: its newest rightful holder is elsewhere."""
        for known in self._lifecycle.away():
            if known.mailbox_key == address.key:
                self._lifecycle.close(known, Cause.REPLACED.value, now)
        holder = address.holder
        if holder is not None and not holder.is_remote:
            connection, was_told = holder.connection, self._was_told(holder)
            self._departing.retire(connection, now, Cause.REPLACED)
            if not was_told:
                self._outbox.write(connection, Replaced("address", ""))
            self._departing.end(connection)

    def came(self, address: Address, now: Instant) -> None:
        """Let the mail of an address wait here again: here is its home from now on."""
        self._leave(address, now)
        self._release(address, now)

    def _leave(self, address: Address, now: Instant) -> None:
        proxy = self._proxies.pop(address.number, None)
        if proxy is not None:
            self._mailing.holder_left(proxy, now)

    def peer_seen(self, peer: str, now: Instant) -> None:
        """Post once more what waits for a broker that was away."""
        for proxy in list(self._proxies.values()):
            connection = proxy.connection
            box = proxy.mailbox
            if isinstance(connection, RemoteConnection) and connection.peer_id == peer and box is not None:
                for mail in box.in_order():
                    if mail.is_offered:
                        self._mailing.keep_for_later(mail, 0, now)
                self._mailing.offer(box, now)
