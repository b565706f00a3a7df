"""Number the events of what outlives a connection (design sections 4 and 5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from intercom.core.clock import Instant
from intercom.core.records import (
    AddressRecord,
    AssignmentRecord,
    CommandRecord,
    DeliveryRecord,
    DiagnosisRecord,
    DispatchRecord,
    EventRecord,
    FlowRecord,
    Happened,
    HostedRecord,
    IdempotencyRecord,
    InboxRecord,
    InvocationRecord,
    KnownSessionRecord,
    LinkRecord,
    MailRecord,
    OutboxRecord,
    PeerRecord,
    PolicyRecord,
    Row,
)


class Journal:
    """Make events; each is committed together with the row it carries.

    Sequence numbers only grow, in the order of the appends, and are given there: what happens between the making of an
    event and its append may append events of its own. A number of an event whose commit failed is not given again.
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
        changed: tuple[str, ...] | None = None,
        **detail: Any,
    ) -> Happened:
        """Return the event of this kind as a change for an append.

        ``event_id`` names what can happen only once; of a row of which only some members have ``changed``, the journal
        holds no more.
        """
        return Happened(0, now.wall, stream_of(row), kind, event_id, row, is_gone, detail, changed)

    def changed(self, kind: str, row: Row, members: tuple[str, ...], now: Instant, detail: dict[str, Any]) -> Happened:
        """Return the event of a row of which only these members have changed, as ``event`` does."""
        return Happened(0, now.wall, stream_of(row), kind, None, row, False, detail, members)


def stream_of(row: Row) -> str:
    """Return the name of the stream that tells the history of this row."""
    return _STREAMS[row.__class__](row)


def mail_stream(message_id: str) -> str:
    """Return the name of the stream that tells what became of a message."""
    return f"mail:{message_id}"


_STREAMS: dict[type[Row], Callable[[Any], str]] = {
    AddressRecord: lambda row: f"address:{row.number}",
    KnownSessionRecord: lambda row: f"session:{row.session_id}",
    PolicyRecord: lambda row: f"policy:{row.number}",
    IdempotencyRecord: lambda row: f"idempotency:{row.number}",
    LinkRecord: lambda row: f"link:{row.link_id}",
    CommandRecord: lambda row: f"command:{row.number}",
    EventRecord: lambda row: f"event:{row.number}",
    InvocationRecord: lambda row: f"invocation:{row.number}",
    DiagnosisRecord: lambda row: f"route:{row.diagnosis_id}",
    DeliveryRecord: lambda row: f"delivery:{row.delivery_id}",
    PeerRecord: lambda row: f"peer:{row.broker_id}",
    OutboxRecord: lambda row: f"outbox:{row.number}",
    HostedRecord: lambda row: f"hosted:{row.dispatch_id}",
    FlowRecord: lambda row: f"flow:{row.number}",
    DispatchRecord: lambda row: f"dispatch:{row.dispatch_id}",
    InboxRecord: lambda row: mail_stream(row.inbox_id),
    MailRecord: lambda row: mail_stream(row.message_id),
    AssignmentRecord: lambda row: mail_stream(row.message_id),
}
"""The stream of each kind of row: what becomes of one message is one stream, wherever it is."""
