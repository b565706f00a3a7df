"""Let watches know the things this broker keeps: how a session, an address, a message is, and whom that concerns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from intercom.core import concerns, features
from intercom.core.addresses import Address
from intercom.core.clock import Instant
from intercom.core.company import Company
from intercom.core.concerns import Concern, State, key
from intercom.core.connections import Connection
from intercom.core.ground import Ground
from intercom.core.lifecycle import Known
from intercom.core.membership import Membership
from intercom.core.messages import Messages
from intercom.core.part import Handler, Part, Settler
from intercom.core.post import Post
from intercom.core.records import AddressRecord, KnownSessionRecord, MailRecord, PolicyRecord, SessionState
from intercom.core.registry import Registry
from intercom.core.watches import Told, Watches
from intercom.wire.mail import RequestFailed
from intercom.wire.watching import UnwatchRequest, WatchRequest


class Following(Part):
    """Judge requests to follow, and tell how things are; other parts let ``watches`` know theirs."""

    def __init__(
        self,
        ground: Ground,
        registry: Registry,
        messages: Messages,
        post: Post,
        membership: Membership,
        company: Company,
        last_sequence: int,
    ) -> None:
        self._addresses = registry.addresses
        self._lifecycle = registry.lifecycle
        self._boxes = post.boxes
        self._operations = messages.operations
        self._outbox = ground.outbox
        self.watches = Watches(
            registry.addresses,
            ground.ledger,
            ground.deadlines,
            ground.outbox,
            ground.limits,
            ground.identity.journal_id,
            last_sequence,
        )
        ground.ledger.on_event = self.watches.happened
        membership.departing.on_left.append(self.watches.session_left)
        company.on_regrouped.append(self.watches.regrouped)
        self.watches.follow(AddressRecord, concerns.of_address)
        self.watches.follow(KnownSessionRecord, concerns.of_session)
        self.watches.follow(MailRecord, concerns.of_mail)
        self.watches.follow(PolicyRecord, concerns.of_policy)
        self.watches.describe("session", self._session, self._sessions)
        self.watches.describe("address", self._address, self._every_address)
        self.watches.describe("message", self._message, lambda: ())

    def handlers(self) -> Mapping[type, Handler]:
        """Return who takes requests to follow."""
        return dict.fromkeys((WatchRequest, UnwatchRequest), self.answer)

    def taken(self) -> Mapping[type, Settler]:
        """Return who goes on after an event was taken."""
        return {Told: self._taken}

    def drain(self) -> None:
        """End every watch."""
        self.watches.end_all("broker_shutdown")

    def report(self) -> dict[str, Any]:
        """Return how many follow."""
        return {"watches": len(self.watches)}

    def _taken(self, token: Told, now: Instant) -> None:
        self.watches.taken(token)

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
        return (self._state_of_address(address) for address in self._addresses.here)

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
