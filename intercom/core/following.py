"""Let watches know the things this broker keeps: how a session, an address, a message is, and whom that concerns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from intercom.core import concerns, features
from intercom.core.addresses import Address, Addresses
from intercom.core.assignments import Assignment, Assignments
from intercom.core.clock import Instant
from intercom.core.concerns import Concern, State, key
from intercom.core.connections import Connection
from intercom.core.deadlines import Deadlines
from intercom.core.inbox import Inbox, Parked
from intercom.core.ledger import Ledger
from intercom.core.lifecycle import Known, Lifecycle
from intercom.core.link import Link
from intercom.core.links import Links
from intercom.core.mailboxes import Mailboxes
from intercom.core.operations import Operations
from intercom.core.outbox import Outbox
from intercom.core.records import (
    AddressRecord,
    AssignmentRecord,
    CommandRecord,
    EventRecord,
    IdempotencyRecord,
    InboxRecord,
    KnownSessionRecord,
    LinkRecord,
    MailRecord,
    PolicyRecord,
    SessionState,
)
from intercom.core.watches import Watches
from intercom.limits import Limits
from intercom.wire.mail import RequestFailed
from intercom.wire.watching import UnwatchRequest, WatchRequest


class Following:
    """Judge requests to follow, and tell how things are."""

    def __init__(
        self,
        addresses: Addresses,
        lifecycle: Lifecycle,
        boxes: Mailboxes,
        operations: Operations,
        ledger: Ledger,
        deadlines: Deadlines,
        outbox: Outbox,
        limits: Limits,
        journal_id: str,
        last_sequence: int,
    ) -> None:
        self._addresses = addresses
        self._lifecycle = lifecycle
        self._boxes = boxes
        self._operations = operations
        self._outbox = outbox
        self.watches = Watches(addresses, ledger, deadlines, outbox, limits, journal_id, last_sequence)
        ledger.on_event = self.watches.happened
        self.watches.follow(AddressRecord, concerns.of_address)
        self.watches.follow(KnownSessionRecord, concerns.of_session)
        self.watches.follow(MailRecord, concerns.of_mail)
        self.watches.follow(InboxRecord, concerns.of_inbox)
        self.watches.follow(AssignmentRecord, concerns.of_assignment)
        self.watches.follow(IdempotencyRecord, concerns.of_keyed)
        self.watches.follow(PolicyRecord, concerns.of_policy)
        self.watches.follow(LinkRecord, concerns.of_link)
        self.watches.follow(CommandRecord, concerns.of_command)
        self.watches.follow(EventRecord, concerns.of_event)
        self.watches.describe("session", self._session, self._sessions)
        self.watches.describe("address", self._address, self._every_address)
        self.watches.describe("message", self._message, lambda: ())

    def know_work(self, inbox: Inbox, assignments: Assignments) -> None:
        """Let snapshots tell of what is parked and of open assignments."""

        def parked(one: Parked) -> State:
            return State("inbox", "parked" if one.is_free else "assigned", concerns.inbox_concern(one.record))

        def assigned(one: Assignment) -> State:
            return State("assignment", one.record.state, concerns.assignment_concern(one.record, {}))

        self.watches.describe(
            "inbox",
            lambda inbox_id: None if (one := inbox.get(inbox_id)) is None else parked(one),
            lambda: map(parked, inbox.in_order()),
        )
        self.watches.describe(
            "assignment",
            lambda assignment_id: None if (one := assignments.get(assignment_id)) is None else assigned(one),
            lambda: map(assigned, assignments.all()),
        )

    def know_links(self, links: Links) -> None:
        """Let snapshots tell of links."""

        def state_of(link: Link) -> State:
            detail = {} if link.record.refused is None else {"code": link.record.refused}
            return State("link", link.state, concerns.link_concern(link.record, detail))

        self.watches.describe(
            "link",
            lambda link_id: None if (link := links.get(link_id)) is None else state_of(link),
            lambda: map(state_of, links),
        )

    def answer(self, connection: Connection, frame: WatchRequest | UnwatchRequest, now: Instant) -> None:
        """Answer a request, or refuse it."""
        session = connection.session
        assert session is not None, "only called for registered connections"
        if features.WATCH not in session.features:
            return self._refuse(connection, frame.request_id, "feature_not_granted", "This needs the feature watch")
        if isinstance(frame, UnwatchRequest):
            return self.watches.unwatch(connection, frame, now)
        if self._operations.trouble is not None:
            reason = (
                f"The store cannot be used, so nothing is recorded that could be followed: {self._operations.trouble}"
            )
            return self._refuse(connection, frame.request_id, "store_unusable", reason)
        return self.watches.watch(connection, session, frame, now)

    def _refuse(self, connection: Connection, request_id: str, code: str, reason: str) -> None:
        self._outbox.write(connection, RequestFailed(request_id, code, reason, False))

    # --- how things are ---------------------------------------------------------------------------------

    def _session(self, session_id: str) -> State | None:
        known = self._lifecycle.get(session_id)
        return None if known is None else _state_of_session(known)

    def _sessions(self) -> Iterable[State]:
        return (_state_of_session(known) for known in self._lifecycle if known.state is not SessionState.CLOSED)

    def _address(self, number: str) -> State | None:
        address = self._addresses.get(int(number))
        return None if address is None else self._state_of_address(address)

    def _every_address(self) -> Iterable[State]:
        return (self._state_of_address(address) for address in self._addresses)

    def _state_of_address(self, address: Address) -> State:
        box = self._boxes.get(address.key)
        detail: dict[str, Any] = {"mailboxCount": 0 if box is None else len(box)}
        if address.holder is not None:
            detail["session"] = address.holder.id
        concern = concerns.address_concern(address.row, detail)
        return State("address", "free" if address.holder is None else "held", concern)

    def _message(self, message_id: str) -> State | None:
        operation = self._operations.by_id(message_id)
        if operation is None:
            return None
        identities = (operation.sender, operation.target, operation.recipient_session)
        keys = [identity for identity in identities if identity is not None and ":" in identity]
        keys += [key("session", each) for each in (operation.sender_session, operation.recipient_session) if each]
        if operation.mail is not None:
            keys.append(operation.mail.record.mailbox)
        concern = Concern((key("message", message_id), *keys), {"messageId": message_id})
        return State("message", operation.fate, concern)


def _state_of_session(known: Known) -> State:
    info = known.info if known.session is None else known.session.info
    return State("session", known.state.value, concerns.session_concern(known.record, info, {}))
