"""Keep mail for who is away and for nobody yet (protocol 9.5, 10.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from intercom.core.clock import Instant
from intercom.core.ground import Ground
from intercom.core.inbox import Inbox
from intercom.core.mailboxes import Mail, Mailboxes
from intercom.core.mailing import Mailing, Offer
from intercom.core.messages import Messages
from intercom.core.parking import Parking
from intercom.core.part import Part, Reader
from intercom.core.queueing import Queueing
from intercom.core.records import Recovered, SessionState
from intercom.core.registry import Registry
from intercom.core.sessions import Session


class Post(Part):
    """Hold mailboxes and inbox, and what fills and empties them."""

    def __init__(self, ground: Ground, registry: Registry, messages: Messages) -> None:
        limits, ledger, journal = ground.limits, ground.ledger, ground.journal
        deadlines, outbox = ground.deadlines, ground.outbox
        self._registry = registry
        self._asking = messages.asking
        self.boxes = Mailboxes(limits)
        self.mailing = Mailing(
            self.boxes,
            messages.operations,
            registry.sessions,
            journal,
            ledger,
            deadlines,
            outbox,
            limits,
            ground.broker_info,
        )
        self.inbox = Inbox(limits)
        self.parking = Parking(
            self.inbox, messages.operations, self.mailing, journal, ledger, deadlines, outbox, limits
        )
        self.queueing = Queueing(
            registry.addresses,
            registry.lifecycle,
            registry.sessions,
            self.boxes,
            self.mailing,
            messages.operations,
            messages.receipts,
            messages.asking,
            messages.crossings,
            registry.policies,
            self.parking,
            outbox,
            limits,
        )
        self.mailing.is_open = self._is_open
        self.mailing.on_delivered = self._delivered
        messages.asking.holder_of = self._holder_of

    def readers(self) -> Mapping[type, Reader]:
        """Return who hands over mail that was read."""
        return {Offer: self._mail_read}

    def recover(self, recovered: Recovered, now: Instant) -> None:
        """Put the mail back into its boxes."""
        for mail in recovered.mail:
            self.mailing.recover(mail, now)

    def report(self) -> dict[str, Any]:
        """Return how much waits, and for how many."""
        lifecycle = self._registry.lifecycle
        return {
            "mail": {
                **self.boxes.totals(),
                "addresses": sum(1 for _ in self._registry.addresses.here),
                "sessionsAway": lifecycle.away_count,
                "sessionsRemembered": lifecycle.remembered_count,
            }
        }

    def _mail_read(self, token: Offer, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant) -> None:
        self.mailing.bodies_read(token, bodies, numbers, now)

    def _is_open(self, key: str) -> bool:
        """Tell whether somebody can still open a mailbox."""
        kind, _, rest = key.partition(":")
        if kind == "address":
            return True
        known = self._registry.lifecycle.get(rest)
        return known is not None and known.state is not SessionState.CLOSED

    def _holder_of(self, key: str) -> Session | None:
        box = self.boxes.get(key)
        return None if box is None else box.holder

    def _delivered(self, mail: Mail, ticket: int, now: Instant) -> None:
        """Open the question that a delivered message asks."""
        operation = mail.operation
        if mail.record.is_ask and operation is not None and operation.question_due > now.mono:
            self._asking.open_to_mailbox(operation, mail.record.mailbox)
