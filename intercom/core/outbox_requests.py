"""Tell what is on its way to other brokers, or waits for them, and let the operator hurry it or give it up (FE 3.11).

An outbox has four kinds of entries: messages that were posted and whose outcome is not known, mail that waits here for
somebody who is at home elsewhere, tasks, and the steps and reports of flows that cross machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec import UNSET
from msgspec.json import encode

from intercom.core import features
from intercom.core.clock import Instant
from intercom.core.deliveries import Delivery
from intercom.core.giving import No
from intercom.core.inquiries import Inquiries
from intercom.core.part import Handler, Part, session_of
from intercom.core.steps_waiting import StepOnItsWay
from intercom.wire.mail import RequestFailed
from intercom.wire.outbox import OutboxCancel, OutboxChanged, OutboxEntries, OutboxEntry, OutboxList, OutboxRetry

if TYPE_CHECKING:
    from intercom.core.addresses import Addresses
    from intercom.core.connections import Connection
    from intercom.core.forwarding import Forwarding
    from intercom.core.ground import Ground
    from intercom.core.mailboxes import Mail, Mailbox
    from intercom.core.meshing import Meshing
    from intercom.core.outgoing import OnItsWay
    from intercom.core.peers import Peers
    from intercom.core.post import Post
    from intercom.core.registry import Registry

NEEDED: dict[type, frozenset[str]] = dict.fromkeys(
    (OutboxList, OutboxRetry, OutboxCancel), frozenset({features.OPERATOR})
)
"""Of which features one at least must have been granted."""
PEER = "peer:"
"""With this begins the key of the mailbox of a session elsewhere."""
_UNKNOWN = "Nothing with this id is in the outbox: its outcome is known, or it never was"


class OutboxRequests(Part):
    """Answer ``outbox_list``, ``outbox_retry`` and ``outbox_cancel``.

    Args:
        meshing: returns what deals with other brokers; None: there are none.
        forwarding: brings tasks away.
        peers: knows what machines are called.
    """

    def __init__(
        self,
        ground: Ground,
        registry: Registry,
        post: Post,
        inquiries: Inquiries,
        meshing: Callable[[], Meshing | None],
        forwarding: Forwarding,
        peers: Peers,
    ) -> None:
        self._ledger = ground.ledger
        self._outbox = ground.outbox
        self._addresses: Addresses = registry.addresses
        self._boxes = post.boxes
        self._mailing = post.mailing
        self._inquiries = inquiries
        self._meshing = meshing
        self._forwarding = forwarding
        self._peers = peers

    def handlers(self) -> Mapping[type, Handler]:
        """Return who takes these requests."""
        return dict.fromkeys(NEEDED, self.answer)

    def answer(self, connection: Connection, frame: OutboxList | OutboxRetry | OutboxCancel, now: Instant) -> None:
        """Answer a request, or refuse it: every one gets exactly one answer."""
        refused: No | None
        needed, trouble = NEEDED[type(frame)], self._inquiries.store_trouble
        if not needed & session_of(connection).features:
            refused = No("feature_not_granted", f"This needs the feature {' or '.join(sorted(needed))}")
        elif trouble is not None:
            refused = No("store_unusable", f"The store cannot be used, so nothing it keeps is shown: {trouble}")
        elif isinstance(frame, OutboxList):
            refused = None
            self._list(connection, frame)
        else:
            refused = self._change(frame, now)
            if refused is None:
                changed = OutboxChanged(frame.request_id, frame.delivery_id)
                self._outbox.write(connection, changed, self._ledger.last_ticket)
        if refused is not None:
            no = RequestFailed(frame.request_id, refused.code, refused.reason, refused.retryable)
            self._outbox.write(connection, no)

    # --- what there is ----------------------------------------------------------------------------------

    def _list(self, connection: Connection, frame: OutboxList) -> None:
        def is_wanted(entry: OutboxEntry) -> bool:
            return (
                entry.entry > frame.after
                and frame.peer in (UNSET, entry.peer, entry.node)
                and frame.status in (UNSET, entry.status)
                and frame.delivery_id in (UNSET, entry.delivery_id)
            )

        found = sorted((entry for entry, _ in self._all() if is_wanted(entry)), key=lambda entry: entry.entry)
        left = max(0, len(found) - frame.limit)
        self._outbox.write(connection, OutboxEntries(frame.request_id, found[: frame.limit], left))

    def _all(self) -> Iterator[tuple[OutboxEntry, OnItsWay | tuple[Mailbox, Mail] | Delivery | StepOnItsWay]]:
        meshing = self._meshing()
        for one in () if meshing is None else meshing.outgoing:
            yield self._of_message(one), one
        for step in () if meshing is None else meshing.steps_on_their_way():
            yield self._of_step(step), step
        for box in self._boxes.all():
            peer = self._home_of(box)
            if peer is not None:
                for mail in box.in_order():
                    yield self._of_mail(peer, mail), (box, mail)
        for delivery in self._forwarding.open_ones():
            yield self._of_task(delivery), delivery

    def _home_of(self, box: Mailbox) -> str | None:
        """Return the broker for which mail waits; None: it is for somebody here."""
        if box.key.startswith(PEER):
            return box.key.removeprefix(PEER).partition(":")[0]
        address = self._addresses.of_key(box.key)
        return None if address is None else address.home

    def _of_message(self, one: OnItsWay) -> OutboxEntry:
        record = one.record
        return OutboxEntry(
            record.number,
            record.delivery_id,
            "message",
            one.status,
            record.peer,
            self._peers.name_of(record.peer),
            record.target,
            one.attempts,
            record.queued_at,
            message_id=record.message_id,
            next_attempt_at=_or_unset(one.due_at),
            size=record.size,
        )

    def _of_mail(self, peer: str, mail: Mail) -> OutboxEntry:
        record = mail.record
        return OutboxEntry(
            record.number,
            sha256(encode([record.mailbox, record.message_id, record.number])).hexdigest()[:32],
            "message",
            "posted" if mail.is_offered else "deferred",
            peer,
            self._peers.name_of(peer),
            record.target,
            mail.offers,
            record.queued_at,
            message_id=record.message_id,
            size=record.size,
        )

    def _of_step(self, step: StepOnItsWay) -> OutboxEntry:
        return OutboxEntry(
            step.number,
            step.message_id,
            step.kind,
            "posted" if step.attempts else "accepted",
            step.peer,
            self._peers.name_of(step.peer),
            step.target,
            step.attempts,
            step.since,
            message_id=step.message_id,
        )

    def _of_task(self, delivery: Delivery) -> OutboxEntry:
        record = delivery.record
        status: Any = record.status
        return OutboxEntry(
            record.number,
            record.delivery_id,
            "task",
            status,
            record.peer,
            self._peers.name_of(record.peer),
            record.target,
            record.attempts,
            record.first_queued_at,
            invocation_id=record.invocation_id,
            next_attempt_at=_or_unset(delivery.due_at if delivery.waits and not delivery.has_left else None),
            detail=_or_unset(record.detail),
        )

    # --- what is changed --------------------------------------------------------------------------------

    def _change(self, frame: OutboxRetry | OutboxCancel, now: Instant) -> No | None:
        found = next((one for entry, one in self._all() if entry.delivery_id == frame.delivery_id), None)
        if found is None:
            return No("unknown_delivery", _UNKNOWN)
        is_retry = isinstance(frame, OutboxRetry)
        if isinstance(found, tuple):
            box, mail = found
            if is_retry:
                self._mailing.keep_for_later(mail, 0, now)
                self._mailing.offer(box, now)
            else:
                self._mailing.take_out(mail, now)
        elif isinstance(found, Delivery):
            if not is_retry:
                task = found.record.invocation_id
                return No("not_a_message", f"This is a task: `intercom invocation cancel {task}` ends it")
            self._forwarding.try_now(found, now)
        elif isinstance(found, StepOnItsWay):
            if not is_retry:
                what = (
                    f"This is a {found.kind} of a flow: `intercom flow cancel {found.flow_id}` ends that, where it is"
                )
                return No("not_a_message", what)
            found.again(now)
        else:
            meshing = self._meshing()
            assert meshing is not None, "it knows of it"
            if is_retry:
                meshing.outgoing.retry(found, now)
            else:
                meshing.give_up(found, now)
        return None


def _or_unset(value: Any) -> Any:
    return UNSET if value is None else value
