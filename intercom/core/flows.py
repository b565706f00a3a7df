"""Be the flows to the rest of the core: build their parts, and tell them what happens outside (protocol 12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from intercom.core.clock import Instant
from intercom.core.deadlines import Deadlines
from intercom.core.flow_admission import Admission, Admitting
from intercom.core.flow_book import FlowBook
from intercom.core.flow_concerns import FlowStates, of_dispatch, of_flow
from intercom.core.flow_reconcile import Reconciler
from intercom.core.flow_reports import Reports
from intercom.core.flow_requests import FlowRequests, Showing
from intercom.core.flow_settling import Settling
from intercom.core.flow_targets import FlowTargets
from intercom.core.flow_views import FlowViews
from intercom.core.idempotency import Register
from intercom.core.journal import Journal
from intercom.core.ledger import Ledger
from intercom.core.mailboxes import Mail, Mailboxes
from intercom.core.mailing import Mailing
from intercom.core.records import DispatchRecord, FlowRecord, KnownSessionRecord, Recovered, StoreIdentity
from intercom.core.watches import Watches
from intercom.limits import Limits
from intercom.wire.flows import DISPATCH_PREFIX

if TYPE_CHECKING:
    from intercom.core.addresses import Addresses
    from intercom.core.asking import Asking
    from intercom.core.connections import Connection
    from intercom.core.lifecycle import Lifecycle
    from intercom.core.operations import Operations
    from intercom.core.outbox import Outbox
    from intercom.core.sessions import SessionTable


class FlowsOfBroker:
    """Hold everything about flows of one broker."""

    def __init__(
        self,
        *,
        sessions: SessionTable,
        addresses: Addresses,
        lifecycle: Lifecycle,
        boxes: Mailboxes,
        mailing: Mailing,
        asking: Asking,
        operations: Operations,
        journal: Journal,
        ledger: Ledger,
        deadlines: Deadlines,
        outbox: Outbox,
        ids: Callable[[], str],
        identity: StoreIdentity,
        keys: Register,
        watches: Watches,
        limits: Limits,
        broker_info: bytes,
    ) -> None:
        self._book = FlowBook(journal, ledger, mailing, limits)
        self._targets = FlowTargets(sessions, addresses, lifecycle, identity)
        self._admission = Admission(self._book, self._targets, boxes, asking, outbox, ids, limits, broker_info)
        self._settling = Settling(self._book)
        self._reports = Reports(self._book, self._targets, self._settling, operations.next_number)
        self._reconciler = Reconciler(
            self._book, self._targets, self._admission, self._settling, operations, deadlines, outbox, limits
        )
        self._requests = FlowRequests(
            self._book,
            self._reconciler,
            self._settling,
            self._reports,
            FlowViews(self._book, self._targets, self._reconciler, limits),
            ledger,
            outbox,
            operations.next_number,
            lambda: operations.trouble,
            keys,
            limits,
        )
        self._boxes = boxes
        self._mailing = mailing
        states = FlowStates(self._book)
        watches.follow(FlowRecord, of_flow)
        watches.follow(DispatchRecord, of_dispatch)
        watches.describe("flow", states.one, states.every)
        self._settling.on_settled = self._reconciler.kick
        self._reports.on_waiting = self._reconciler.kick
        self._book.on_undone = self._reconciler.kick

    # --- what the broker asks -------------------------------------------------------------------------------

    def status(self) -> dict[str, int]:
        """Return how many flows are known, are not over, and have a step under way."""
        return {"known": len(self._book), "live": self._book.live_count, "dispatches": self._book.open_count}

    def targets(self) -> set[str]:
        """Return what the flows that are known are for, as it was named."""
        return {flow.record.target for flow in self._book.flows()}

    def addresses(self) -> set[int]:
        """Return the numbers of the addresses under which their steps were handed out."""
        numbers = {
            dispatch.record.address for flow in self._book.flows() for dispatch in self._book.dispatches_of(flow)
        }
        return {number for number in numbers if number is not None}

    @property
    def is_at_work(self) -> bool:
        """Tell whether some flow goes on by itself: then the broker must not leave."""
        return any(
            self._book.open_of(flow) is not None or self._admission.candidate(flow) is not None
            for flow in self._book.live()
        )

    def shut(self) -> None:
        """Hand out no step any more: the broker leaves soon."""
        self._reconciler.is_shut = True

    def count_in_work(self, is_here: Callable[[str], bool]) -> int:
        """Return how many steps were taken by sessions that are here and are not reported."""
        found = (self._book.open_of(flow) for flow in self._book.live())
        return sum(
            each is not None and each.record.accepted_at is not None and is_here(each.record.identity.session_id)
            for each in found
        )

    # --- what happens ---------------------------------------------------------------------------------------

    def answer(self, connection: Connection, frame: Any, now: Instant) -> None:
        """Answer a request about flows."""
        self._requests.answer(connection, frame, now)

    def bodies_read(
        self, token: Admitting | Showing, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant
    ) -> None:
        """Go on after texts were read."""
        if isinstance(token, Admitting):
            self._admission.body_read(token, numbers[0], bodies, now)
        else:
            self._requests.bodies_read(token, bodies, now)

    def mail_moving(self, mail: Mail, kind: str, reason: str, now: Instant) -> None:
        """Note what is about to become of the message that carries a dispatch."""
        record = mail.record
        if record.sender_session or record.notice is not None or not record.message_id.startswith(DISPATCH_PREFIX):
            return
        dispatch = self._book.dispatch(record.message_id.removeprefix(DISPATCH_PREFIX))
        if dispatch is None or dispatch.mail is not mail or not dispatch.is_open:
            return
        if kind == "offered":
            if dispatch.record.transport == "prepared":
                move = self._book.begin(now)
                move.dispatch(dispatch, "dispatch.published", transport="publish", published_at=now.wall)
                move.commit()
        elif kind == "delivered":
            self._reports.accepted(dispatch, now, is_confirmed=True)
            self._reconciler.kick()
        else:
            self._settling.message_lost(dispatch, f"its message was given up: {reason}", now)

    def session_ended(self, before: KnownSessionRecord, now: Instant) -> None:
        """Note that this incarnation of a session will not come back, before that is recorded."""
        dispatch = self._book.open_at(before.session_id)
        if dispatch is not None and dispatch.record.identity.incarnation == before.incarnation:
            self._reconciler.target_gone(dispatch, now)

    def directory_changed(self) -> None:
        """Note that somebody came, left or changed."""
        self._reconciler.directory_changed()

    def tidy(self, now: Instant) -> None:
        """Delete flows that have been over for long."""
        self._requests.collect(now)

    def recover(self, recovered: Recovered, now: Instant) -> None:
        """Enter what the store held; called once everything else was entered."""
        self._book.recover(recovered.flows, recovered.dispatches)
        for box in self._boxes.all():
            for mail in list(box.in_order()):
                message_id = mail.record.message_id
                if message_id.startswith(DISPATCH_PREFIX) and not mail.record.sender_session:
                    dispatch = self._book.dispatch(message_id.removeprefix(DISPATCH_PREFIX))
                    if dispatch is not None and dispatch.is_open and dispatch.record.accepted_at is None:
                        dispatch.mail = mail
                    else:
                        self._mailing.withdraw(mail, "the step was taken before the broker ended", now)
        self._reconciler.recover(now)
