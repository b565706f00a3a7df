"""Be the flows to the rest of the core: build their parts, and tell them what happens outside (protocol 12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from intercom.core.clock import Instant
from intercom.core.flow_admission import Admission, Admitting
from intercom.core.flow_book import FlowBook
from intercom.core.flow_concerns import FlowStates, Mentions, of_dispatch, of_flow, of_hosted
from intercom.core.flow_reconcile import Reconciler
from intercom.core.flow_reports import Reports
from intercom.core.flow_requests import REQUESTS, FlowRequests, Showing
from intercom.core.flow_settling import Settling
from intercom.core.flow_targets import FlowTargets
from intercom.core.flow_views import FlowViews
from intercom.core.mailboxes import Mail
from intercom.core.part import Handler, Part, Reader
from intercom.core.records import DispatchRecord, FlowRecord, HostedRecord, KnownSessionRecord, Recovered
from intercom.wire.flows import DISPATCH_PREFIX, FlowCreate, FlowResume, FlowRetry, FlowStart

if TYPE_CHECKING:
    from intercom.core.company import Company
    from intercom.core.following import Following
    from intercom.core.ground import Ground
    from intercom.core.lifecycle import Known
    from intercom.core.messages import Messages
    from intercom.core.post import Post
    from intercom.core.registry import Registry
    from intercom.core.work import Work


class FlowsOfBroker(Part):
    """Hold everything about flows of one broker."""

    def __init__(
        self,
        ground: Ground,
        registry: Registry,
        messages: Messages,
        post: Post,
        company: Company,
        following: Following,
        work: Work,
    ) -> None:
        ledger, outbox, limits = ground.ledger, ground.outbox, ground.limits
        sessions, addresses, lifecycle = registry.sessions, registry.addresses, registry.lifecycle
        boxes, mailing, operations, watches = post.boxes, post.mailing, messages.operations, following.watches
        self.book = FlowBook(ground.journal, ledger, mailing, limits)
        mentions = Mentions(watches)
        self.finder = FlowTargets(sessions, addresses, lifecycle, ground.identity)
        self.admission = Admission(
            self.book,
            self.finder,
            boxes,
            messages.asking,
            outbox,
            mentions,
            ground.ids,
            limits,
            ground.broker_info,
        )
        self.settling = Settling(self.book)
        self.reports = Reports(self.book, self.finder, self.settling, operations.next_number)
        self.reconciler = Reconciler(
            self.book,
            self.finder,
            self.admission,
            self.settling,
            operations,
            ground.deadlines,
            outbox,
            mentions,
            limits,
        )
        self.requests = FlowRequests(
            self.book,
            self.reconciler,
            self.settling,
            self.reports,
            FlowViews(self.book, self.finder, self.reconciler, addresses, limits),
            ledger,
            outbox,
            operations.next_number,
            lambda: operations.trouble,
            work.register,
            limits,
        )
        self.addresses_elsewhere: Callable[[], set[int]] = set
        """Tells under which addresses steps of other brokers' flows were handed out."""
        self.in_work_elsewhere: Callable[[Callable[[str], bool]], int] = lambda is_here: 0
        """Tells how many of those were taken and are not reported."""
        self._boxes = boxes
        self._mailing = mailing
        states = FlowStates(self.book)
        watches.follow(FlowRecord, of_flow)
        watches.follow(DispatchRecord, of_dispatch)
        watches.follow(HostedRecord, of_hosted)
        watches.describe("flow", states.one, states.every)
        self.settling.on_settled = self.reconciler.kick
        self.reports.on_waiting = self.reconciler.kick
        self.book.on_undone = self.reconciler.kick
        mailing.on_moving.append(self._mail_moving)
        lifecycle.on_renewed.append(self._session_ended)
        lifecycle.on_ending.append(self._session_ending)
        sessions.on_change.append(self.reconciler.directory_changed)
        company.on_change.append(self.reconciler.directory_changed)

    # --- what the broker asks -------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """Return how many flows are known, are not over, and have a step under way."""
        book = self.book
        return {"flows": {"known": len(book), "live": book.live_count, "dispatches": book.open_count}}

    def targets(self) -> set[str]:
        """Return what the flows that are known are for, as it was named."""
        return {flow.record.target for flow in self.book.flows()}

    def creators(self) -> set[str]:
        """Return the sender identities of those who have written what is not over: nobody else may cancel it."""
        return {flow.record.created_by for flow in self.book.live()}

    def addresses(self) -> set[int]:
        """Return the numbers of the addresses under which their steps were handed out."""
        numbers = {dispatch.record.address for flow in self.book.flows() for dispatch in self.book.dispatches_of(flow)}
        return {number for number in numbers if number is not None} | self.addresses_elsewhere()

    def due_soon(self, now: Instant) -> int:
        """Return 1 if some flow goes on by itself: then the broker must not leave."""
        return any(
            self.book.open_of(flow) is not None or self.admission.candidate(flow) is not None
            for flow in self.book.live()
        )

    begins = (FlowCreate, FlowStart, FlowResume, FlowRetry)

    def shut(self, within_ms: int) -> None:
        """Hand out no step any more."""
        self.admission.is_shut = True

    def in_work(self, is_here: Callable[[str], bool]) -> dict[str, int]:
        """Return how many steps were taken and are not reported."""
        found = (self.book.open_of(flow) for flow in self.book.live())
        taken = [each.record for each in found if each is not None and each.record.accepted_at is not None]
        mine = sum(is_here(record.identity.session_id) for record in taken)
        return {"steps": mine + self.in_work_elsewhere(is_here)}

    # --- what happens ---------------------------------------------------------------------------------------

    def handlers(self) -> Mapping[type, Handler]:
        """Return who takes requests about flows."""
        return dict.fromkeys(REQUESTS, self.requests.answer)

    def readers(self) -> Mapping[type, Reader]:
        """Return who goes on after texts were read."""
        return {Admitting: self._step_read, Showing: self._flow_read}

    def _step_read(
        self, token: Admitting, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant
    ) -> None:
        self.admission.body_read(token, numbers[0], bodies, now)

    def _flow_read(
        self, token: Showing, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant
    ) -> None:
        self.requests.bodies_read(token, numbers, bodies, now)

    def _mail_moving(self, mail: Mail, kind: str, reason: str, now: Instant) -> None:
        """Note what is about to become of the message that carries a dispatch."""
        record = mail.record
        if record.sender_session or record.notice is not None or not record.message_id.startswith(DISPATCH_PREFIX):
            return
        dispatch = self.book.dispatch(record.message_id.removeprefix(DISPATCH_PREFIX))
        if dispatch is None or dispatch.mail is not mail or not dispatch.is_open:
            return
        if kind == "offered":
            self.reports.published(dispatch, now)
        elif kind == "delivered":
            self.reports.accepted(dispatch, now, is_confirmed=True)
            self.reconciler.kick()
        else:
            self.settling.message_lost(dispatch, f"its message was given up: {reason}", now)

    def _session_ending(self, known: Known, now: Instant) -> None:
        self._session_ended(known.record, now)

    def _session_ended(self, before: KnownSessionRecord, now: Instant) -> None:
        """Note that this incarnation of a session will not come back, before that is recorded."""
        dispatch = self.book.open_at(before.session_id)
        if dispatch is not None and dispatch.record.identity.incarnation == before.incarnation:
            self.reconciler.target_gone(dispatch, now)

    def tidy(self, now: Instant) -> None:
        """Delete flows that have been over for long."""
        self.requests.collect(now)

    def recover(self, recovered: Recovered, now: Instant) -> None:
        """Enter what the store held; called once everything else was entered."""
        self.book.recover(recovered.flows, recovered.dispatches, recovered.lost_texts)
        hosted = {record.dispatch_id for record in recovered.hosted}
        for box in self._boxes.all():
            for mail in list(box.in_order()):
                message_id = mail.record.message_id
                if message_id.removeprefix(DISPATCH_PREFIX) in hosted:
                    continue
                if message_id.startswith(DISPATCH_PREFIX) and not mail.record.sender_session:
                    dispatch = self.book.dispatch(message_id.removeprefix(DISPATCH_PREFIX))
                    if dispatch is not None and dispatch.is_open and dispatch.record.accepted_at is None:
                        dispatch.mail = mail
                    else:
                        self._mailing.withdraw(mail, "the step was taken before the broker ended", now)
        self.reconciler.recover(now)
