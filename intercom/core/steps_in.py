"""Hand the steps of flows at other brokers to sessions here, and say how they are (protocol 12.11).

Rule 1: whether a session can be handed a step is judged with our own state, and what is answered is recorded before.
Rule 2: an attempt is one, however often its letter comes; what we say of it is how it is by then.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Literal

from msgspec import DecodeError
from msgspec.json import decode

from intercom.core import features
from intercom.core import flow_tables as tables
from intercom.core.clock import Instant
from intercom.core.flow import Dispatch
from intercom.core.flow_records import HostedRecord, ReportRecord
from intercom.core.flow_settling import GONE
from intercom.core.hosted import Hosted, Hosting, after
from intercom.core.letters_in import LettersIn
from intercom.core.mailing import Letter
from intercom.core.peer_records import Arrived
from intercom.core.records import KnownSessionRecord, Recovered
from intercom.core.step_letters import (
    DISPATCH,
    DISPATCHED,
    INQUIRE,
    OVER,
    REPORTED,
    DispatchedLetter,
    DispatchLetter,
    InquireLetter,
    OverLetter,
    ReportedLetter,
)
from intercom.core.steps_reports import HostedReports
from intercom.core.steps_waiting import StepOnItsWay
from intercom.core.turns import Turns
from intercom.wire.codec import parse_message
from intercom.wire.flows import DISPATCH_PREFIX, REPORT_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable

    from intercom.core.flows import FlowsOfBroker
    from intercom.core.ground import Ground
    from intercom.core.lifecycle import Known
    from intercom.core.mailboxes import Mail
    from intercom.core.post import Post
    from intercom.core.registry import Registry
    from intercom.core.tasks_out import Postman


class StepsIn:
    """Hold the attempts of other brokers' flows that sessions here were handed."""

    kinds = frozenset({DISPATCH, INQUIRE, OVER, REPORTED})
    """The letters it takes."""

    def __init__(
        self,
        ground: Ground,
        registry: Registry,
        post: Post,
        flows: FlowsOfBroker,
        postman: Postman,
        next_number: Callable[[], int],
    ) -> None:
        self._ledger = ground.ledger
        self._letters = LettersIn(ground)
        self._limits = ground.limits
        self._broker_info = ground.broker_info
        self._boxes = post.boxes
        self._mailing = post.mailing
        self._book = flows.book
        self._targets = flows.finder
        self._admission = flows.admission
        self._postman = postman
        self._next_number = next_number
        self._hosting = Hosting(ground.journal, ground.ledger, post.mailing)
        self.turns = Turns(
            flows.book,
            self._hosting,
            ground.deadlines,
            self._say_free,
            flows.reconciler.kick,
            ground.limits.receipt_wait_ms,
        )
        self.reports = HostedReports(
            ground,
            self._hosting,
            flows.finder,
            post.mailing,
            postman,
            next_number,
            self._accepted,
            self._freed,
        )
        self._never: OrderedDict[str, None] = OrderedDict()
        """The attempts that were refused, or over before they came: a copy that comes late is not handed over.

        Of what was refused there is a row, too, so that the next process says the same.
        """
        self._mailing.on_moving.append(self._mail_moving)
        registry.lifecycle.on_renewed.append(self._session_ended)
        registry.lifecycle.on_ending.append(self._session_ending)

    # --- letters ----------------------------------------------------------------------------------------

    def arrived(self, fact: Arrived, now: Instant) -> None:
        """Take what the broker of a flow says; what cannot be read is let go of."""
        try:
            if fact.kind == DISPATCH:
                return self._take(fact, decode(fact.body, type=DispatchLetter), now)
            if fact.kind == INQUIRE:
                return self._look(fact, decode(fact.body, type=InquireLetter))
            if self._ledger.is_closed:
                pass  # it is said again to a process that can record it
            elif fact.kind == OVER:
                self._over(fact, decode(fact.body, type=OverLetter), now)
            else:
                answer = decode(fact.body, type=ReportedLetter)
                if (hosted := self._known(fact, answer.dispatch_id)) is not None:
                    self.reports.answered(hosted, answer, now)
        except DecodeError:
            pass
        return self._letters.settle_when_recorded(fact.arrival, now)

    def _say(self, peer: str, letter: DispatchedLetter, settles: int = 0) -> None:
        ticket = self._ledger.last_ticket
        self._postman.post(peer, DISPATCHED, letter.dispatch_id, letter, ticket, settles=settles)
        if not settles:
            self._ledger.rest(ticket, self._say_again, (peer, letter))

    def _say_again(self, said: tuple[str, DispatchedLetter], now: Instant) -> None:
        """Say how an attempt is by now, where that did not leave since something else could not be recorded.

        What answers a letter needs none of this: that letter is not settled, and comes again.
        """
        peer, letter = said
        hosted = self._hosting.get(letter.dispatch_id)
        if self._ledger.is_closed:
            return  # the next process says how everything is
        if hosted is not None:
            self._say_how(hosted)
        elif letter.state == "free":
            self._say(peer, letter)

    def _say_how(self, hosted: Hosted, settles: int = 0) -> None:
        """Say how an attempt is, behind everything on which that rests."""
        record = hosted.record
        transport: Any = record.transport if record.transport in ("published", "accepted") else "prepared"
        state: Literal["stored", "lost", "gone", "refused"] = "stored"
        if record.end in ("lost", "gone", "refused") and record.report is None:
            state = record.end  # type: ignore[assignment]  # one of the three
        letter = DispatchedLetter(
            hosted.id,
            state,
            transport,
            max(1, record.offers),
            may_be_brought=record.address is not None and transport != "prepared",
            reason=record.reason or "",
        )
        self._say(record.peer, letter, settles)

    def _known(self, fact: Arrived, dispatch_id: str) -> Hosted | None:
        """Return an attempt as far as the broker that speaks of it is the one of its flow."""
        hosted = self._hosting.get(dispatch_id)
        return hosted if hosted is not None and hosted.record.peer == fact.peer else None

    def _look(self, fact: Arrived, letter: InquireLetter) -> None:
        hosted = self._known(fact, letter.dispatch_id)
        if hosted is not None:
            self._say_how(hosted, fact.arrival)
        elif self._ledger.is_closed:
            self._say(fact.peer, DispatchedLetter(letter.dispatch_id, "unreachable"), fact.arrival)
        else:
            self._say(fact.peer, DispatchedLetter(letter.dispatch_id, "unknown"), fact.arrival)

    # --- steps ------------------------------------------------------------------------------------------

    def _take(self, fact: Arrived, letter: DispatchLetter, now: Instant) -> None:
        """Answer an attempt: behind its commit if it is new, with how far it is if it is known."""
        hosted = self._known(fact, letter.dispatch_id)
        if hosted is not None:
            return self._say_how(hosted, fact.arrival)
        session_id = letter.identity.session_id
        no: DispatchedLetter | None = None
        if self._ledger.is_closed or self._admission.is_shut:
            no = DispatchedLetter(letter.dispatch_id, "unreachable")
        elif letter.dispatch_id in self._never:
            return self._letters.settle_when_recorded(fact.arrival, now)
        elif (reason := self._unfit(letter)) is not None:
            self._note_refusal(fact.peer, letter, reason, now)
            no = DispatchedLetter(letter.dispatch_id, "refused", reason=reason)
        elif self.turns.is_busy(session_id, letter.dispatch_id):
            self.turns.ask(session_id, letter.dispatch_id, fact.peer)
            no = DispatchedLetter(letter.dispatch_id, "busy")
        else:
            self.turns.forget(letter.dispatch_id, session_id)
            self._store(fact, letter, now)
            return None
        return self._say(fact.peer, no, fact.arrival)

    def _unfit(self, letter: DispatchLetter) -> str | None:
        """Return why the session of an attempt cannot be handed it, by what is known of that here."""
        message = parse_message(letter.message)
        if message is None or message.id != DISPATCH_PREFIX + letter.dispatch_id:
            return "its message cannot be read"
        if self._hosting.get(letter.dispatch_id) is not None or self._book.dispatch(letter.dispatch_id) is not None:
            return "another dispatch has its id there"
        known = self._targets.known_as(letter.identity)
        if known is None:
            return GONE
        session = known.session
        if letter.group not in (known.groups if session is None else session.groups):
            return f"its session is not in group {letter.group}"
        granted = known.record.features if session is None else session.features
        if features.FLOW_REPORT not in granted:
            return f"its session cannot report: it did not ask for {features.FLOW_REPORT}"
        if session is not None and session.is_terminal:
            return "its session has finished and takes nothing more"
        box = self._boxes.open(known.mailbox_key)
        has_room = self._boxes.has_room(box, len(letter.message))
        self._boxes.discard_if_unused(box)
        return None if has_room else "the mailbox of its session is full"

    def _store(self, fact: Arrived, letter: DispatchLetter, now: Instant) -> None:
        known = self._targets.known_as(letter.identity)
        assert known is not None, "its session was found"
        record = HostedRecord(
            number=self._next_number(),
            dispatch_id=letter.dispatch_id,
            peer=fact.peer,
            flow_id=letter.flow_id,
            step_id=letter.step_id,
            group=letter.group,
            identity=letter.identity,
            stored_at=now.wall,
            address=known.record.address,
        )
        hosted = Hosted(record)
        self._hosting.enter(hosted)
        mail = Letter(
            mailbox=known.mailbox_key,
            message_id=DISPATCH_PREFIX + hosted.id,
            message=bytes(letter.message),
            sender_info=self._broker_info,
            sender_mailbox=None,
            sender_session="",
            target=letter.target,
        )
        hosted.mail = self._mailing.put(mail, None, now, self._undo_store, hosted, self._hosting.begun(hosted, now))
        self._say_how(hosted, fact.arrival)

    def _undo_store(self, hosted: Hosted, now: Instant) -> None:
        self._hosting.leave(hosted)

    def _over(self, fact: Arrived, letter: OverLetter, now: Instant) -> None:
        """Let go of an attempt that the broker of its flow is done with."""
        self.turns.forget(letter.dispatch_id)
        hosted = self._known(fact, letter.dispatch_id)
        if hosted is None:
            self._never_takes(letter.dispatch_id, now)
            return
        if hosted.record.over_at is not None:
            return
        reason = letter.reason or letter.outcome
        mail = hosted.mail
        self._hosting.change(hosted, "hosted.over", now, end="over", reason=reason, over_at=now.wall)
        self._hosting.withdraw(mail, reason, now)
        self._freed(hosted, now)

    def _note_refusal(self, peer: str, letter: DispatchLetter, reason: str, now: Instant) -> None:
        """Record that an attempt is refused, so that a copy of it hears the same, whatever has changed by then."""
        if self._hosting.get(letter.dispatch_id) is None and self._book.dispatch(letter.dispatch_id) is None:
            record = HostedRecord(
                number=self._next_number(),
                dispatch_id=letter.dispatch_id,
                peer=peer,
                flow_id=letter.flow_id,
                step_id=letter.step_id,
                group=letter.group,
                identity=letter.identity,
                stored_at=now.wall,
                end="refused",
                reason=reason,
                over_at=now.wall,
            )
            self._hosting.refuse(Hosted(record), self._undo_refusal, now)
        self._never_takes(letter.dispatch_id, now)

    def _undo_refusal(self, hosted: Hosted, now: Instant) -> None:
        self._hosting.leave(hosted)
        self._never.pop(hosted.id, None)  # its letter comes again, and is judged then

    def _never_takes(self, dispatch_id: str, now: Instant) -> None:
        self._never[dispatch_id] = None
        if len(self._never) > self._limits.steps_never_taken:
            oldest = self._hosting.get(self._never.popitem(last=False)[0])
            if oldest is not None and oldest.record.end == "refused":
                self._hosting.delete(oldest, now)

    # --- what happens to them ---------------------------------------------------------------------------

    def _mail_moving(self, mail: Mail, kind: str, reason: str, now: Instant) -> None:
        """Note what is about to become of the message that brings an attempt."""
        record = mail.record
        if record.sender_session or not record.message_id.startswith(DISPATCH_PREFIX):
            return
        hosted = self._hosting.get(record.message_id.removeprefix(DISPATCH_PREFIX))
        if hosted is None or hosted.mail is not mail:
            return
        if kind == "offered":
            if hosted.record.transport == tables.TRANSPORT.begins:
                self._hosting.change(hosted, "hosted.published", now, transport=after(hosted.record, "publish"))
                self._say_how(hosted)
        elif kind == "delivered":
            self._accepted(hosted, mail.offers, now)
        else:
            self._hosting.change(hosted, "hosted.lost", now, end="lost", reason=reason)
            self._say_how(hosted)
            self._freed(hosted, now)

    def _accepted(self, hosted: Hosted, offers: int, now: Instant) -> None:
        transport = after(hosted.record, "accept")
        self._hosting.change(hosted, "hosted.accepted", now, transport=transport, offers=offers)
        self._say_how(hosted)

    def _session_ending(self, known: Known, now: Instant) -> None:
        self._session_ended(known.record, now)

    def _session_ended(self, before: KnownSessionRecord, now: Instant) -> None:
        """Note that this incarnation of a session will not come back, before that is recorded."""
        hosted = self._hosting.at(before.session_id)
        if hosted is not None and hosted.record.identity.incarnation == before.incarnation:
            self._gone(hosted, now)
        self.turns.session_ended(before.session_id)

    def _gone(self, hosted: Hosted, now: Instant) -> None:
        if hosted.record.report is not None:
            return  # what was reported is decided about by its own rule
        mail = hosted.mail
        self._hosting.change(hosted, "hosted.gone", now, end="gone", reason=GONE)
        self._hosting.withdraw(mail, GONE, now)
        self._say_how(hosted)

    def _freed(self, hosted: Hosted, now: Instant) -> None:
        self.turns.freed(hosted.session_id, now)

    def _say_free(self, dispatch_id: str, peer: str) -> None:
        self._say(peer, DispatchedLetter(dispatch_id, "free"))

    def ended_here(self, dispatch: Dispatch, now: Instant) -> None:
        """Note that a step of a flow of ours is over."""
        if self._targets.is_here(dispatch.record.identity):
            self.turns.freed(dispatch.record.identity.session_id, now)

    # --- others -----------------------------------------------------------------------------------------

    def peer_seen(self, peer: str, now: Instant) -> None:
        """Tell a broker that was away, or is another process now, how what is of its flows is."""
        for hosted in self._hosting:
            if hosted.record.peer != peer or hosted.record.over_at is not None:
                continue
            self._say_how(hosted)
            self.reports.try_now(hosted, now)

    def on_their_way(self) -> list[StepOnItsWay]:
        """Return the reports that the brokers of their flows have not answered."""
        return [self._shown(hosted, report) for hosted in self._hosting if (report := hosted.owed_report) is not None]

    def _shown(self, hosted: Hosted, report: ReportRecord) -> StepOnItsWay:
        record = hosted.record

        def again(now: Instant) -> None:
            self.reports.try_now(hosted, now)

        return StepOnItsWay(
            report.body,
            "report",
            REPORT_PREFIX + hosted.id,
            record.peer,
            f"flow {record.flow_id}",
            record.flow_id,
            hosted.attempts,
            report.at,
            again,
        )

    def in_work(self, is_here: Callable[[str], bool]) -> int:
        """Return how many steps were taken and are not reported."""
        return sum(
            hosted.occupies and hosted.record.transport == "accepted" and is_here(hosted.session_id)
            for hosted in self._hosting
        )

    def addresses(self) -> set[int]:
        """Return the numbers of the addresses under which they were handed out."""
        return {hosted.record.address for hosted in self._hosting if hosted.record.address is not None}

    def tidy(self, now: Instant) -> None:
        """Forget what has been over for long, and what will never be."""
        for hosted in self._hosting:
            record = hosted.record
            if hosted.owes_report and record.stored_at + self._limits.mail_ttl_ms > now.wall:
                continue
            if record.over_at is not None:
                is_old = record.over_at + self._limits.bodies_kept_ms <= now.wall
            else:
                is_old = not hosted.occupies and record.stored_at + self._limits.mail_ttl_ms <= now.wall
            if is_old:
                self.reports.forget(hosted)
                self._hosting.delete(hosted, now)

    def recover(self, recovered: Recovered, now: Instant) -> None:
        """Enter what the store held, and go on with it."""
        for record in sorted(recovered.hosted, key=lambda record: record.number):
            self._hosting.enter(Hosted(record))
            if record.end == "refused":
                self._never[record.dispatch_id] = None
        for box in self._boxes.all():
            for mail in list(box.in_order()):
                self._enter_mail(mail, now)
        for hosted in self._hosting:
            record = hosted.record
            self.reports.try_now(hosted, now)
            if not hosted.occupies or record.report is not None:
                continue
            if self._targets.known_as(record.identity) is None:
                self._gone(hosted, now)
            elif hosted.mail is None and record.transport in ("prepared", "published"):
                self._hosting.change(hosted, "hosted.lost", now, end="lost", reason="its message is lost")

    def _enter_mail(self, mail: Mail, now: Instant) -> None:
        record = mail.record
        if record.sender_session or not record.message_id.startswith(DISPATCH_PREFIX):
            return
        hosted = self._hosting.get(record.message_id.removeprefix(DISPATCH_PREFIX))
        if hosted is None:
            return
        if hosted.record.end is None and hosted.record.transport != "accepted":
            hosted.mail = mail
        else:
            self._mailing.withdraw(mail, "the step was taken before the broker ended", now)
