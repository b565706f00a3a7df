"""Decide what becomes of the work and the mail of sessions that will not come back (protocol 10.2.1, 10.4.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from intercom.core.addresses import Addresses
from intercom.core.assignments import Assignments
from intercom.core.clock import Instant
from intercom.core.ledger import Ledger
from intercom.core.mailing import GivenUp, Mailing
from intercom.core.move import Move, take_back
from intercom.core.parking import Meant, Parking, meant_known
from intercom.core.records import Change, MailRecord
from intercom.wire import notices
from intercom.wire.flows import DISPATCH_PREFIX

if TYPE_CHECKING:
    from intercom.core.lifecycle import Known
    from intercom.core.mailboxes import Mail


class Closed(Struct, frozen=True):
    """Hold what one end of a session led to."""

    given_up: GivenUp
    move: Move


class Closing:
    """Give back, park and give up."""

    def __init__(
        self, assignments: Assignments, parking: Parking, mailing: Mailing, addresses: Addresses, ledger: Ledger
    ) -> None:
        self._assignments = assignments
        self._parking = parking
        self._mailing = mailing
        self._addresses = addresses
        self._ledger = ledger

    def closing(self, known: Known, reason: str, changes: list[Change], now: Instant) -> Closed:
        """Do in one append what the end of a session leads to; the caller appends ``changes``.

        Work it has not accepted is free again, work it has is ambiguous. Mail that was never written to it is parked;
        what cannot be, or may have been seen, is given up and its sender told.
        """
        move = Move(changes)
        self._assignments.session_closed(known, f"session closed: {reason}", move, now)
        mail = [] if known.record.holds_address else self._mailing.all_of(known.mailbox_key)
        given_up = [one for one in mail if not self._park(one, known, move, now)]
        text = notices.session_closed(reason)
        return Closed(self._mailing.give_up(given_up, "undeliverable", text, changes, now), move)

    def _park(self, mail: Mail, known: Known, move: Move, now: Instant) -> bool:
        record = mail.record
        if mail.offers or record.is_ask or record.notice is not None or _is_step(record):
            return False
        return self._parking.take_mail(mail, "closed_session_continuation", meant_known(known), move, now)

    def recorded(self, closed: Closed, ticket: int, now: Instant) -> None:
        """Go on behind the append of an end."""
        self._mailing.given_up(closed.given_up, ticket, now)
        self._ledger.when_committed(ticket, self._tell_free, None)

    def not_recorded(self, closed: Closed, now: Instant) -> None:
        """Take back what an end led to that could not be recorded; it is tried again."""
        self._mailing.undo_give_up(closed.given_up, now)
        take_back(closed.move, now)

    def _tell_free(self, _: None, now: Instant) -> None:
        self._parking.on_free(now)

    def restarted(self, known: Known, now: Instant) -> None:
        """Let work end that another process of the session had."""
        move = Move()
        self._assignments.session_closed(known, "the process was replaced", move, now)
        if move.changes:
            self._assignments.append(move, now)

    def take_unclaimed(self, mail: Mail, now: Instant) -> bool:
        """Park mail of an address that nobody fetched in time; False: its sender is told that it is undeliverable.

        What is for the person is for nobody else.
        """
        record = mail.record
        kind, _, number = record.mailbox.partition(":")
        address = self._addresses.get(int(number)) if kind == "address" else None
        if address is None or address.is_of_broker or record.is_ask or record.notice is not None or _is_step(record):
            return False
        move = Move()
        meant = Meant(None, address.number, address.groups)
        if record.assignment is not None or not self._parking.take_mail(mail, "unaddressed", meant, move, now):
            return False
        self._assignments.append(move, now)
        return True


def _is_step(record: MailRecord) -> bool:
    """Tell whether this is a step of a flow, which is for the one it was handed to alone (protocol 12.4)."""
    return not record.sender_session and record.message_id.startswith(DISPATCH_PREFIX)
