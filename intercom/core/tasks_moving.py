"""Let tasks follow the address they are for, when that moves to another machine (protocol 13.7).

    here, asked for here      --the mailbox goes--> handed on: they are those of the new home, and followed from here
    here, asked for elsewhere --the mailbox goes--> let go: whoever asked for them brings them to the new home
    handed on, and let go there                 --> handed on to the home of then; this is here: in its mailbox

Rule 1: one broker at a time may give a task to anybody. It records that it gives it away before the next one hears of
it, and each such turn has a number of its own. Rule 2: a task keeps its place among the mail that moves. Rule 3: what
somebody has taken stays with whoever took it, and with this broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from intercom.core.assignments import SESSION_LOST, Assignments
from intercom.core.clock import Instant
from intercom.core.invocation_targets import address_id
from intercom.core.move import Move

if TYPE_CHECKING:
    from intercom.core.addresses import Address, Addresses
    from intercom.core.ground import Ground
    from intercom.core.invocations import Invocation
    from intercom.core.invoking import Invoking
    from intercom.core.mailboxes import Mail
    from intercom.core.post import Post
    from intercom.core.tasks_out import Postman


class TasksMoving:
    """Hand tasks on, let them go and take them home.

    Args:
        home_of: tells at which broker the address with this id is at home, as far as is known here.
    """

    def __init__(
        self,
        ground: Ground,
        addresses: Addresses,
        post: Post,
        assignments: Assignments,
        invoking: Invoking,
        postman: Postman,
        home_of: Callable[[str], str | None],
    ) -> None:
        self._own = ground.identity.broker_id
        self._ledger = ground.ledger
        self._deadlines = ground.deadlines
        self._limits = ground.limits
        self._addresses = addresses
        self._inbox = post.inbox
        self._parking = post.parking
        self._mailing = post.mailing
        self._assignments = assignments
        self._dispatching = invoking.dispatching
        self._forwarding = invoking.forwarding
        self._targets = invoking.targets
        self._postman = postman
        self._home_of = home_of

    # --- away from here ---------------------------------------------------------------------------------

    def takes(self, mail: Mail, peer: str, message: bytes, now: Instant) -> bool:
        """Take mail over that brings a task and is to go to the new home of its address; False: it brings none."""
        if self._dispatching.asks_to_stop(mail):
            self._mailing.withdraw(mail, "whoever has its task is not where the address is by now", now)
            return True
        invocation = self._dispatching.task_of(mail)
        address = self._addresses.of_key(mail.record.mailbox)
        if invocation is None or address is None:
            return False
        if not invocation.is_open:
            self._mailing.withdraw(mail, "its task has ended", now)
        elif invocation.record.asked_at_peer is not None:
            self._dispatching.let_go(mail, now)
        elif self._postman.is_cut_off(peer):
            self._mailing.put_off(mail, now)
        else:
            self._dispatching.hand_on(mail, peer, address_id(address.group, address.name), message, now)
        return True

    def left(self, address: Address, now: Instant) -> None:
        """Let what is parked for an address go with its mailbox; what was taken and is with nobody any more is over."""
        if self._ledger.is_closed:
            return
        for assignment in self._assignments.all():
            if assignment.record.address == address.number:
                move = self._move(address)
                if not assignment.record.accepted:
                    self._assignments.give_back(assignment, "target_lost", SESSION_LOST, move, now)
                elif self._targets.has_ended(assignment.record.session_id):
                    self._assignments.end(assignment, "interrupted", "ambiguous", TAKEN, move, now)
                if move.changes:
                    self._assignments.append(move, now)
        for parked in self._inbox.in_order():
            record = parked.record
            if parked.is_free and record.target_address == address.number and record.claim == "bound_session":
                move = self._move(address)
                mail = self._parking.put_into_mailbox(parked, address.key, move, now)
                self._dispatching.put_into_mailbox(mail, move, now)
                self._mailing.work_put(mail, move.append(self._ledger))

    def _move(self, address: Address) -> Move:
        move = Move()
        move.inverse(lambda now: self._try_again(address, now))
        return move

    def _try_again(self, address: Address, now: Instant) -> None:
        self._deadlines.add(now.mono + self._limits.mail_retry_ms, self._left_again, address)

    def _left_again(self, address: Address, now: Instant) -> None:
        if address.home is not None:
            self.left(address, now)

    # --- on, or home ------------------------------------------------------------------------------------

    def go_on(self, invocation: Invocation, peer: str, now: Instant) -> bool:
        """Bring a task that ``peer`` has not to where its address is at home; False: there, as far as is known here."""
        home = self._home_of(invocation.record.target)
        if home is None or home == peer:
            return False
        if invocation.record.cancel_asked_at is not None:
            self._dispatching.take_out(invocation, "", now)
        elif home != self._own:
            self._forwarding.plan_again(invocation, home, now)
        else:
            address = self._targets.address_here(invocation.record.target)
            assert address is not None, "it is at home here"
            self._dispatching.come_home(invocation, address.key, now)
        return True


TAKEN = "the address moved to another machine, and whoever had taken it left"
