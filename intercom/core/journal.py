"""Number the events of what outlives a connection (design sections 4 and 5)."""

from __future__ import annotations

from typing import Any

from intercom.core.clock import Instant
from intercom.core.records import (
    AddressRecord,
    CommandRecord,
    DeliveryRecord,
    DiagnosisRecord,
    DispatchRecord,
    EventRecord,
    FlowRecord,
    Happened,
    IdempotencyRecord,
    InboxRecord,
    InvocationRecord,
    KnownSessionRecord,
    LinkRecord,
    PeerRecord,
    PolicyRecord,
    Row,
)


class Journal:
    """Make events; each is committed together with the row it carries.

    Sequence numbers only grow. One that was given to an event whose commit failed is not given again.
    """

    def __init__(self, last_sequence: int) -> None:
        self.last_sequence = last_sequence

    def event(
        self,
        kind: str,
        row: Row,
        now: Instant,
        *,
        event_id: str | None = None,
        is_gone: bool = False,
        **detail: Any,
    ) -> Happened:
        """Return the event of this kind as a change for an append.

        ``event_id`` names what can happen only once; left out, the event gets an id of its own.
        """
        self.last_sequence += 1
        sequence = self.last_sequence
        return Happened(
            sequence, now.wall, stream_of(row), kind, event_id or f"{kind}:{sequence}", row, is_gone, detail
        )


def stream_of(row: Row) -> str:
    """Return the name of the stream that tells the history of this row."""
    if isinstance(row, AddressRecord):
        return f"address:{row.number}"
    if isinstance(row, KnownSessionRecord):
        return f"session:{row.session_id}"
    if isinstance(row, PolicyRecord):
        return f"policy:{row.number}"
    if isinstance(row, IdempotencyRecord):
        return f"idempotency:{row.number}"
    if isinstance(row, LinkRecord):
        return f"link:{row.link_id}"
    if isinstance(row, CommandRecord):
        return f"command:{row.number}"
    if isinstance(row, EventRecord):
        return f"event:{row.number}"
    if isinstance(row, InvocationRecord):
        return f"invocation:{row.invocation_id}"
    if isinstance(row, DiagnosisRecord):
        return f"route:{row.diagnosis_id}"
    if isinstance(row, DeliveryRecord):
        return f"delivery:{row.delivery_id}"
    if isinstance(row, PeerRecord):
        return f"peer:{row.broker_id}"
    if isinstance(row, InboxRecord):
        return mail_stream(row.inbox_id)
    if isinstance(row, FlowRecord):
        return f"flow:{row.number}"
    if isinstance(row, DispatchRecord):
        return f"dispatch:{row.dispatch_id}"
    return mail_stream(row.message_id)


def mail_stream(message_id: str) -> str:
    """Return the name of the stream that tells what became of a message."""
    return f"mail:{message_id}"
