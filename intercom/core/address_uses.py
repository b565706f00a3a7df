"""Find out which addresses something still depends on: those never give way to new ones (protocol 9.3.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intercom.core.addresses import key_of
from intercom.core.records import SessionState

if TYPE_CHECKING:
    from intercom.core.clock import Instant
    from intercom.core.flows import FlowsOfBroker
    from intercom.core.linking import Linking
    from intercom.core.messages import Messages
    from intercom.core.post import Post
    from intercom.core.registry import Registry
    from intercom.core.work import Work


class AddressUses:
    """Look through everything that names an address, by number, by key or by name."""

    def __init__(
        self,
        registry: Registry,
        messages: Messages,
        post: Post,
        work: Work,
        flows: FlowsOfBroker,
        linking: Linking,
        idle_ms: int,
    ) -> None:
        self._addresses = registry.addresses
        self._sessions = registry.sessions
        self._lifecycle = registry.lifecycle
        self._policies = registry.policies
        self._questions = messages.questions
        self._boxes = post.boxes
        self._inbox = post.inbox
        self._assignments = work.assignments
        self._flows = flows
        self._links = linking.links
        self._idle_ms = idle_ms

    def keys(self, now: Instant) -> set[str]:
        """Return the keys of the addresses that are in use; keys of other mailboxes may be among them."""
        return self._of_sessions(now) | self._of_mail() | self._of_work() | self._of_flows()

    def _of_sessions(self, now: Instant) -> set[str]:
        """Sessions that are here, may come back, or left a short time ago, and what they asked each other."""
        numbers = {session.address.number for session in self._sessions if session.address is not None}
        for known in self._lifecycle:
            is_recent = known.record.state_since > now.wall - self._idle_ms
            if known.record.address is not None and (known.state is not SessionState.CLOSED or is_recent):
                numbers.add(known.record.address)
        parties = self._questions.parties() | {policy.record.party for policy in self._policies}
        return parties | {key_of(number) for number in numbers}

    def _of_mail(self) -> set[str]:
        """Mailboxes with mail or a holder, and senders who may have to be told what became of theirs."""
        found: set[str] = set()
        for box in self._boxes.all():
            found.add(box.key)
            found |= {mail.record.sender_mailbox or "" for mail in box.in_order()}
        return found

    def _of_work(self) -> set[str]:
        numbers = {assignment.record.address for assignment in self._assignments.all()}
        found = set()
        for parked in self._inbox.in_order():
            numbers.add(parked.record.target_address)
            found.add(parked.record.sender_mailbox or "")
        found |= {link.record.mailbox for link in self._links}
        return found | {key_of(number) for number in numbers if number is not None}

    def _of_flows(self) -> set[str]:
        found = {key_of(number) for number in self._flows.addresses()} | self._flows.creators()
        for target in self._flows.targets():
            found |= {address.key for address in self._addresses.named(target)}
        return found
