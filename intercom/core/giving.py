"""Give answers to requests, behind what they rest on, or refuse them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct

from intercom.core.clock import Instant
from intercom.core.ledger import Ledger
from intercom.core.outbox import Outbox
from intercom.wire import reasons
from intercom.wire.mail import RequestFailed

if TYPE_CHECKING:
    from intercom.core.connections import Connection


class No(Struct, frozen=True):
    """Say why a request is refused."""

    code: str
    reason: str
    retryable: bool = False
    category: str | None = None
    outcome_unknown: bool = False


class Giving:
    """Write the one answer of each request."""

    not_recorded = No("not_recorded", reasons.NOT_STORED, True)
    not_read = No("not_read", "The store could not be read; ask again", True)

    def __init__(self, outbox: Outbox, ledger: Ledger) -> None:
        self._outbox = outbox
        self._ledger = ledger

    def give(self, connection: Connection, answer: Any, after: int) -> None:
        """Answer once the append with this ticket is committed; when it cannot be, a refusal takes its place."""
        self._outbox.write(connection, answer, after)
        self.rest(connection, answer.request_id, after)

    def promise(self, connection: Connection, answer: Any) -> None:
        """Answer once everything is recorded that was asked for until now."""
        self.give(connection, answer, self._ledger.last_ticket)

    def rest(self, connection: Connection, request_id: str, ticket: int) -> None:
        """Refuse a request if the append with this ticket fails, on which its answer rests."""
        self._ledger.rest(ticket, self._tell_not_recorded, (connection, request_id))

    def _tell_not_recorded(self, subject: Any, now: Instant) -> None:
        connection, request_id = subject
        self.refuse(connection, request_id, self.not_recorded)

    def decline(self, connection: Connection, request_id: str, no: No) -> None:
        """Refuse a request for how things are, once that is recorded: a commit that fails may make them otherwise."""
        ticket = self._ledger.last_ticket
        self.refuse(connection, request_id, no, ticket)
        self.rest(connection, request_id, ticket)

    def refuse(self, connection: Connection, request_id: str, no: No, after: int = 0) -> None:
        """Refuse a request for what no commit changes, at once unless it is to wait for the append ``after``."""
        self._outbox.write(
            connection,
            RequestFailed(
                request_id,
                no.code,
                no.reason,
                no.retryable,
                True if no.outcome_unknown else UNSET,
                UNSET if no.category is None else no.category,
            ),
            after,
        )
