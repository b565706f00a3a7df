"""Let who held an address here say what it is done with, before the address goes to its newer holder (protocol 6.13.6).

    holds it --taken elsewhere--> told ``replaced`` --its connection ends, or the time is over--> gone, with its mail

What it had confirmed when it read that is on its way then, and would be shown again there if it was not heard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from intercom.core.clock import Instant
from intercom.wire.mail import Replaced

if TYPE_CHECKING:
    from intercom.core.addresses import Address
    from intercom.core.deadlines import Deadline
    from intercom.core.ground import Ground
    from intercom.core.mailboxes import Mailboxes
    from intercom.core.receipts import Receipts
    from intercom.core.sessions import Session


class Parting:
    """Hold those that are about to leave.

    Args:
        is_over: is told of each address whose holder has left, or had its time.
    """

    def __init__(
        self, ground: Ground, boxes: Mailboxes, receipts: Receipts, is_over: Callable[[Address, Instant], None]
    ) -> None:
        self._outbox = ground.outbox
        self._deadlines = ground.deadlines
        self._limits = ground.limits
        self._boxes = boxes
        self._receipts = receipts
        self._is_over = is_over
        self._deadline: dict[int, Deadline | None] = {}
        """By the numbers of the addresses; None: its holder has had its time."""
        self._told: dict[int, Session] = {}

    def holds_up(self, address: Address, now: Instant) -> bool:
        """Tell whether an address has to wait for its holder here, which is told that it is not it any more."""
        holder = address.holder
        if holder is None or holder.is_remote or not holder.connection.open:
            return False
        if self._told.get(address.number) is holder:
            return self._deadline[address.number] is not None
        if not self._has_in_hand(address, holder):
            return False
        self.forget(address)
        self._told[address.number] = holder
        self._outbox.write(holder.connection, Replaced("address", ""))
        self._deadline[address.number] = self._deadlines.add(
            now.mono + self._limits.part_ms, self._had_its_time, address
        )
        return True

    def waits_for(self, address: Address) -> bool:
        """Tell whether an address waits for whoever holds it here, and goes then."""
        return address.holder is not None and self._told.get(address.number) is address.holder

    def was_told(self, session: Session) -> bool:
        """Tell whether somebody knows already that it holds its address no more."""
        address = session.address
        return address is not None and self._told.get(address.number) is session

    def left(self, session: Session) -> None:
        """Go on with an address whose holder departs, once it has."""
        address = session.address
        if address is not None and self._told.get(address.number) is session:
            self.forget(address)
            self._deadlines.add(0, self._is_over, address)

    def forget(self, address: Address) -> None:
        """Wait for nobody: the address is gone, or somebody else holds it here."""
        self._told.pop(address.number, None)
        self._deadlines.cancel(self._deadline.pop(address.number, None))

    def _has_in_hand(self, address: Address, holder: Session) -> bool:
        box = self._boxes.get(address.key)
        return bool(box is not None and box.offered) or bool(self._receipts.awaited_from(holder.target_identity))

    def _had_its_time(self, address: Address, now: Instant) -> None:
        self._deadline[address.number] = None
        self._is_over(address, now)
