"""Hand tasks over, and follow what becomes of them (protocol 13.3, 13.4).

    job --the target takes work--> inbox;  --it is away, or other mail waits for it--> mailbox
     |                                           ^
     +--it is here--> pushed under a lease --no receipt in time, and it has a mailbox--+

Rule 1: a task is handed over behind the commit that accepted it, under a message id that is always the same; where it
is put is recorded with that commit when nothing stands against it. Rule 2: one that could not be handed over is tried
again. Rule 3: what its mail does to a run is recorded before the mail goes. Rule 4: a run that is to stop is cancelled
once nobody has its task: it is handed to nobody else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import UNSET, Raw, Struct
from msgspec.json import encode
from msgspec.structs import replace

from intercom.core import features
from intercom.core.clock import Instant
from intercom.core.invocation_records import LET_GO, InvocationRecord
from intercom.core.invocation_targets import Place, Targets
from intercom.core.invocation_texts import invoked_info
from intercom.core.invocations import JOB, Holders, Invocation, Invocations, Texts
from intercom.core.mailing import Letter
from intercom.core.move import Move, take_back
from intercom.core.offers import Missing
from intercom.core.records import InboxRecord, ReadBodies
from intercom.wire import notices
from intercom.wire.frames import MessageFrame
from intercom.wire.invocations import CANCEL_PREFIX, RUN_PREFIX

if TYPE_CHECKING:
    from intercom.core.assignments import Assignment
    from intercom.core.deadlines import Deadline, Deadlines
    from intercom.core.forwarding import Forwarding
    from intercom.core.inbox import Inbox, Parked
    from intercom.core.labels import Found
    from intercom.core.ledger import Ledger
    from intercom.core.mailboxes import Mail, Mailboxes
    from intercom.core.mailing import Mailing
    from intercom.core.offers import Offers
    from intercom.core.outbox import Outbox
    from intercom.core.parking import Parking
    from intercom.core.peer_records import DeliveryRecord
    from intercom.core.sessions import Session
    from intercom.core.work import Work
    from intercom.limits import Limits

GONE = "The target is gone and did not come back: it did not finish"
LOST = "Whoever had it ended without a report, and nobody acts under the address: it did not finish"
LATE = "Nobody took it in the time it was given"
FOLLOWS = "Its address is at home on another machine by now, and it goes there"
LEFT = "It was to stop, and nobody has it any more: whoever had it left without having confirmed it"
Way: TypeAlias = Literal["inbox", "mailbox", "push", "nowhere"]
"""How a task is handed over; nowhere: its target does not let it through."""
Kept: TypeAlias = Literal["quiet", "hold"]
"""What a policy does with it on the way."""


class Planned(Struct, frozen=True):
    """Say how a new task will be handed over; a push begins with the commit that accepts it."""

    place: Any
    """A ``Place``, if it has one."""
    way: Way | None
    kept: Kept | None
    epoch: int = 0
    lease_until: int | None = None
    """Of the push, epoch ms; None: it is none."""


class Pushing(Struct, frozen=True):
    """Remember for which push a task is read."""

    invocation: Any
    session: Any


class Dispatching:
    """Run jobs, and set runs by what becomes of their messages."""

    def __init__(
        self,
        book: Invocations,
        targets: Targets,
        inbox: Inbox,
        parking: Parking,
        boxes: Mailboxes,
        mailing: Mailing,
        offers: Offers,
        work: Work,
        ledger: Ledger,
        deadlines: Deadlines,
        outbox: Outbox,
        limits: Limits,
        next_number: Callable[[], int],
        epoch: int,
        broker_info: bytes,
        forwarding: Forwarding,
    ) -> None:
        self._forwarding = forwarding
        self._broker_info = broker_info
        self._book = book
        self._targets = targets
        self._inbox = inbox
        self._parking = parking
        self._boxes = boxes
        self._mailing = mailing
        self._offers = offers
        self._work = work
        self._ledger = ledger
        self._deadlines = deadlines
        self._outbox = outbox
        self._limits = limits
        self._next_number = next_number
        self._epoch = epoch
        self._look: Deadline | None = None
        self._gone_since: dict[Holders, int] = {}
        """When those who have something were first found gone, monotonic ms."""
        self.is_shut = False
        """The broker leaves soon: nothing is handed over any more."""
        book.on_opened_again = self._opened_again

    # --- jobs -------------------------------------------------------------------------------------------

    def planned(self, found: Found, info: bytes, now: Instant) -> Planned:
        """Return how a new task for whom was found will be handed over, asked by somebody with this session object."""
        target = found.candidate
        assert target is not None, "only of a label that leads to somebody"
        if target.authority is not None:
            return Planned(None, None, None)
        session = found.session
        place = self._targets.place(target.target_id) if session is None else self._targets.place_of(session)
        way, kept = (None, None) if place is None else self._way(place, info)
        lease_until = now.wall + self._limits.job_lease_ms if way == "push" else None
        return Planned(place, way, kept, self._epoch, lease_until)

    def accept(
        self, record: InvocationRecord, planned: Planned, message: bytes, info: bytes, now: Instant
    ) -> Invocation:
        """Record an invocation with its run and its job; what is left of the job goes on behind that commit."""
        if record.authority is not None:
            return self._accept_for_peer(record, record.authority, message, info, now)
        place, way, kept = planned.place, planned.way, planned.kept
        if way == "push" and place is not None and not self._book.is_full:
            invocation = Invocation(
                record, info, record.invocation_id, leased_until=now.mono + self._limits.job_lease_ms
            )
            changes = self._book.enter(invocation, message, now)
            invocation.ticket = self._ledger.append(changes, self._not_accepted, invocation)
            self._offer(invocation, place.session, message, now)
            if self._look is None:
                self.watch(now)
            return invocation
        move = Move()
        if place is not None and way == "inbox" and self._inbox.has_room(record.size):
            record = replace(record, job="completed", placement="inbox", attempts=1)
            invocation = self._book.create(record, message, info, move, now)
            self._parking.put_in(self._parked(invocation, place, now), move, now)
            invocation.ticket = self._parking.append(move)
        elif place is not None and way == "mailbox" and self._has_room(str(place.mailbox), record.size):
            record = replace(record, job="completed", placement="mailbox", attempts=1)
            invocation = self._book.create(record, message, info, move, now)
            mail = self._mailing.put_task(str(place.mailbox), record, info, kept, now, take_back, move, *move.changes)
            invocation.mail, invocation.ticket = mail, mail.ticket
        elif place is not None and way == "push":
            invocation = self._book.create(record, message, info, move, now)
            invocation.leased_until = now.mono + self._limits.job_lease_ms
            move.inverse(lambda now: self._stop_offering(invocation))
            invocation.ticket = move.append(self._ledger)
            self._offer(invocation, place.session, message, now)
        else:
            invocation = self._book.create(record, message, info, move, now)
            invocation.ticket = move.append(self._ledger)
            self._ledger.when_committed(invocation.ticket, self.accepted, invocation)
        self.watch(now)
        return invocation

    def _not_accepted(self, invocation: Invocation, now: Instant) -> None:
        self._stop_offering(invocation)
        self._book.leave(invocation)

    def _accept_for_peer(
        self, record: InvocationRecord, peer: str, message: bytes, info: bytes, now: Instant
    ) -> Invocation:
        move = Move()
        record = replace(record, job="completed", placement="outbox", attempts=1)
        invocation = self._book.create(record, message, info, move, now)
        delivery = self._forwarding.plan(invocation, peer, move, now)
        invocation.ticket = move.append(self._ledger)
        self._ledger.when_committed(invocation.ticket, self._forwarding.planned, delivery)
        return invocation

    def delivery_of(self, invocation: Invocation) -> DeliveryRecord | None:
        """Return how an invocation gets to another machine, if it does."""
        return self._forwarding.delivery_of(invocation.id)

    def _way(self, place: Place, info: bytes) -> tuple[Way, Kept | None]:
        """Return how somebody is handed a task, and what a policy does with it on the way."""
        action = self._targets.action_for(place, info)
        if action == "refuse":
            return "nowhere", None
        if place.session is not None and place.session.work_mode is not None and action == "accept":
            return "inbox", None
        if place.session is not None and (
            place.mailbox is None or (action == "accept" and self._is_free(place.session))
        ):
            return "push", None
        return "mailbox", None if action == "accept" else action

    def _is_free(self, session: Session) -> bool:
        """Tell whether what comes now may be pushed to a session that has a mailbox, without overtaking anything."""
        box = session.mailbox
        if box is None or box.holder is not session or box.waits_for_its_turn:
            return False
        return self._offers.count(session) < self._limits.mail_offers

    def _lease(self, record: InvocationRecord, now: Instant) -> dict[str, Any]:
        """Return what changes when a push begins."""
        until = now.wall + self._limits.job_lease_ms
        lease: dict[str, Any] = {"job": "running", "lease_epoch": self._epoch, "lease_until": until}
        return {**lease, "placement": "session", "attempts": record.attempts + 1}

    def accepted(self, invocation: Invocation, now: Instant) -> None:
        """Hand over what was accepted and is recorded now."""
        self._run(invocation, now)
        self.watch(now)

    def watch(self, now: Instant) -> None:
        """Look at what is open every now and then, as long as something is."""
        if self._look is None and self._book.open_count:
            self._look = self._deadlines.add(now.mono + self._limits.job_retry_ms, self._look_again)

    def _opened_again(self) -> None:
        if self._look is None:
            self._look = self._deadlines.add(0, self._begin_again)

    def _begin_again(self, _: None, now: Instant) -> None:
        self._look = None
        self.watch(now)

    def _look_again(self, _: None, now: Instant) -> None:
        self._look = None
        if self._mailing.can_promise:
            for invocation in self._book.going_ones():
                self._check(invocation, now)
            self._look_for_holders(now)
        self.watch(now)

    def _check(self, invocation: Invocation, now: Instant) -> None:
        """Give up what can never end by itself; hand over what is due."""
        record = invocation.record
        if self._stops(invocation):
            return self.take_out(invocation, LEFT, now)
        if (
            record.state in _NOT_BEGUN
            and JOB[record.job]
            and record.take_until is not None
            and record.take_until <= now.wall
        ):
            return self.fail(invocation, LATE, now)
        if self._has_message(invocation) or not self._are_gone((record.target, record.worker)):
            invocation.gone_since = None
        elif invocation.gone_since is None:
            invocation.gone_since = now.mono
        elif now.mono - invocation.gone_since >= self._limits.run_stale_ms:
            return self.fail(invocation, GONE, now, reconciled=True)
        self._run(invocation, now)
        return None

    def _look_for_holders(self, now: Instant) -> None:
        """Give up what was handed over to those who are gone: they are looked for, not every one of their tasks."""
        gone = [holders for holders in self._book.held() if self._are_gone(holders)]
        self._gone_since = {holders: self._gone_since.get(holders, now.mono) for holders in gone}
        for holders, since in list(self._gone_since.items()):
            if now.mono - since < self._limits.run_stale_ms:
                continue
            for invocation in self._book.held_by(holders):
                if not self._has_message(invocation):
                    why = GONE if self._targets.is_gone(invocation.record.target) else LOST
                    self.fail(invocation, why, now, reconciled=True)
            if not self._book.held_by(holders):
                del self._gone_since[holders]  # perhaps nobody looks again

    def _are_gone(self, holders: Holders) -> bool:
        """Tell whether nobody has what these had; an address is no one by itself: whoever acts under it next may be."""
        target, worker = holders
        if self._targets.is_gone(target) and (worker is None or self._targets.is_gone(worker)):
            return True
        if worker is None:
            return False
        is_lost = self._targets.was_lost(worker) and not self._targets.is_here(target)
        return is_lost or self._targets.is_left_behind(target, worker)

    def _has_message(self, invocation: Invocation) -> bool:
        """Tell whether the message that brings a task still waits somewhere: then it ends with that."""
        return self._mail_of(invocation) is not None or self._inbox.get(invocation.record.message_id) is not None

    def _run(self, invocation: Invocation, now: Instant) -> None:
        record = invocation.record
        is_void = record.job == "running" and (record.lease_epoch != self._epoch or invocation.leased_until <= now.mono)
        is_due = (record.job == "pending" or is_void) and invocation.retry_at <= now.mono
        if not is_due or not invocation.is_open or not self._mailing.can_promise or self.is_shut:
            return
        place = self._targets.place(record.target)
        if place is None:
            return
        way, kept = self._way(place, invocation.info)
        if way == "nowhere":
            self.fail(invocation, f"It was not handed over: {notices.NOT_LET_THROUGH}", now)
        elif way == "inbox":
            self._park(invocation, place, now)
        elif way == "mailbox":
            self._mail(invocation, str(place.mailbox), kept, now, was_written=record.job == "running")
        else:
            self._push(invocation, place.session, now)

    def _later(self, invocation: Invocation, why: str, pause_ms: int, now: Instant) -> None:
        invocation.retry_at = now.mono + pause_ms
        move = Move()
        self._book.change(invocation, "run.updated", move, now, last_error=why)
        if move.changes:
            invocation.ticket = move.append(self._ledger)

    def _handed(self, invocation: Invocation, placement: str, move: Move, now: Instant) -> None:
        """Note that a task was put where its target finds it, which is all that its job does."""
        members = {"job": "completed", "placement": placement, "lease_epoch": None, "lease_until": None}
        attempts = invocation.record.attempts + 1
        self._book.change(invocation, "run.updated", move, now, attempts=attempts, last_error=None, **members)

    def _park(self, invocation: Invocation, place: Place, now: Instant) -> None:
        record = invocation.record
        if not self._inbox.has_room(record.size):
            return self._later(invocation, "the inbox is full", self._limits.mailbox_full_retry_ms, now)
        move = Move()
        move.inverse(lambda now: self._not_handed(invocation, now))
        self._handed(invocation, "inbox", move, now)
        self._parking.put_in(self._parked(invocation, place, now), move, now)
        invocation.ticket = self._parking.append(move)
        return None

    def _parked(self, invocation: Invocation, place: Place, now: Instant) -> InboxRecord:
        record = invocation.record
        return InboxRecord(
            record.number,
            record.message_id,
            invocation.info,
            record.requester_mailbox,
            record.requester_session,
            record.asked,
            record.size,
            now.wall,
            now.wall + self._limits.mail_ttl_ms,
            "invocation",
            "bound_session",
            place.groups,
            record.take_until,
            place.session.id,
            place.address,
        )

    def _has_room(self, key: str, size: int) -> bool:
        box = self._boxes.get(key)
        return box is None or self._boxes.has_room(box, size)

    def _mail(
        self,
        invocation: Invocation,
        key: str,
        kept: Kept | None,
        now: Instant,
        *,
        was_written: bool,
        is_offered: bool = False,
    ) -> None:
        """Put a task into a mailbox; one that was pushed before may have arrived, or its holder has it."""
        record = invocation.record
        if not self._has_room(key, record.size):
            return self._later(invocation, "its mailbox is full", self._limits.mailbox_full_retry_ms, now)
        move = Move()
        move.inverse(lambda now: self._not_handed(invocation, now))
        self._handed(invocation, "mailbox", move, now)
        mail = self._mailing.put_task(
            key,
            record,
            invocation.info,
            kept,
            now,
            take_back,
            move,
            *move.changes,
            is_offered=is_offered,
            was_written=was_written,
        )
        invocation.mail, invocation.ticket = mail, mail.ticket
        return None

    def _not_handed(self, invocation: Invocation, now: Instant) -> None:
        invocation.mail = None
        invocation.retry_at = now.mono + self._limits.job_retry_ms

    # --- with an address that moves -----------------------------------------------------------------------

    def come_home(self, invocation: Invocation, key: str, now: Instant) -> None:
        """Put a task that no other broker has into the mailbox of its address, which is at home here by now."""
        move, record = Move(), invocation.record
        self._forwarding.come_home(invocation, move, now)
        members = {"placement": "mailbox", "attempts": record.attempts + 1, "target": key, "asked_as": record.asked}
        self._book.change(invocation, "run.updated", move, now, **members)
        place = self._targets.place(key)
        assert place is not None, "the address is at home here"
        way, kept = self._way(place, invocation.info)
        record, info = invocation.record, invocation.info
        mail = self._mailing.put_task(key, record, info, kept, now, take_back, move, *move.changes, is_back=True)
        invocation.mail, invocation.ticket = mail, mail.ticket
        if way == "nowhere":
            self._mailing.refuse([mail], now)
        self.watch(now)

    def hand_on(self, mail: Mail, peer: str, target: str, message: bytes, now: Instant) -> None:
        """Let a task of ours that waits in a mailbox be one of the peer to which that has moved, and send it there."""
        invocation = self._book.of_message(mail.message_id)
        assert invocation is not None, "its mail brings a task"
        move, record = Move(), invocation.record
        self._take_from_mailbox(invocation, mail, move, now)
        members = {"authority": peer, "target": target, "placement": "outbox", "turn": record.turn + 1}
        self._book.change(invocation, "run.updated", move, now, asked_as=record.asked, **members)
        self._forwarding.hand_on(invocation, peer, message, move, now)

    def let_go(self, mail: Mail, now: Instant) -> None:
        """Give a task that waits in a mailbox which has moved back to the broker that asked for it."""
        invocation = self._book.of_message(mail.message_id)
        assert invocation is not None, "its mail brings a task"
        move = Move()
        self._take_from_mailbox(invocation, mail, move, now)
        self._book.change(invocation, "run.updated", move, now, placement=LET_GO)
        self._end(invocation, "cancelled", Texts(error=FOLLOWS), move, now)
        invocation.ticket = move.append(self._ledger)

    def put_into_mailbox(self, mail: Mail, move: Move, now: Instant) -> None:
        """Note that a message is in a mailbox which was in the inbox, in the same append; it may bring a task."""
        invocation = self._book.of_message(mail.message_id)
        if invocation is not None:
            invocation.mail = mail
            self._book.change(invocation, "run.updated", move, now, placement="mailbox")

    def _take_from_mailbox(self, invocation: Invocation, mail: Mail, move: Move, now: Instant) -> None:
        """Take the message of a task out of its mailbox, and with it what says that it is not wanted any more."""
        self._mailing.end_work(mail, "handed_on", move.changes, now)
        move.inverse(lambda now: self._mailing.put_back(mail, now))
        notice = self._in_its_box(invocation.notice)
        if notice is not None:
            pointless = self._mailing.give_up([notice], "withdrawn", FOLLOWS, move.changes, now)
            move.inverse(lambda now: self._mailing.unsettle_given_up(pointless, now))

    def asks_to_stop(self, mail: Mail) -> bool:
        """Tell whether mail says that a task is not wanted any more."""
        invocation = self._book.of_message(RUN_PREFIX + mail.message_id.removeprefix(CANCEL_PREFIX))
        return invocation is not None and invocation.notice is mail

    def task_of(self, mail: Mail) -> Invocation | None:
        """Return the invocation whose task a mail brings."""
        invocation = self._book.of_message(mail.message_id)
        return invocation if invocation is not None and invocation.mail is mail else None

    # --- push -------------------------------------------------------------------------------------------

    def _push(self, invocation: Invocation, session: Session, now: Instant) -> None:
        """Lease the job and read the task for a session that is here."""
        move = Move()
        move.inverse(lambda now: self._not_handed(invocation, now))
        self._book.change(invocation, "run.updated", move, now, **self._lease(invocation.record, now))
        invocation.ticket, invocation.leased_until = move.append(self._ledger), now.mono + self._limits.job_lease_ms
        self._ledger.when_committed(invocation.ticket, self._read, Pushing(invocation, session))

    def _read(self, pushing: Pushing, now: Instant) -> None:
        self._outbox.add(ReadBodies(pushing, (pushing.invocation.record.number,)))

    def push_read(self, pushing: Pushing, bodies: dict[int, bytes] | None, now: Instant) -> None:
        """Write a task that was read; ``None``: it could not be."""
        invocation: Invocation = pushing.invocation
        record = invocation.record
        if not invocation.is_open or record.job != "running" or not self._mailing.can_promise:
            return
        if bodies is None:
            return self._not_pushed(invocation, "the store could not be read", now)
        if record.number not in bodies:
            return self.fail(invocation, f"It was not handed over: {notices.BODY_LOST}", now)
        return self._offer(invocation, pushing.session, bodies[record.number], now)

    def _offer(self, invocation: Invocation, session: Session, message: bytes, now: Instant) -> None:
        """Write a task to a session behind its newest append."""
        record = invocation.record
        message_id = record.message_id
        frame = MessageFrame(Raw(invocation.info), Raw(message))
        if record.take_until is not None and features.QUEUE in session.features:
            frame.valid_until = record.take_until
        if features.INVOKE in session.features:
            frame.invocation = invoked_info(record)
        invocation.offered = self._offers.offer(
            session,
            frame,
            message_id,
            message_id,
            now,
            after=invocation.ticket,
            on_received=self._pushed,
            on_missing=self._missing,
            subject=(invocation, session),
        )

    def _pushed(self, subject: Any, now: Instant) -> None:
        invocation, session = subject
        invocation.offered = None
        record = invocation.record
        is_begun = record.state not in _NOT_BEGUN
        if not self._mailing.can_promise:
            return
        if not is_begun and record.job == "running" and record.started_at is None and not record.reconciled:
            event = self._book.pushed(invocation, session.id, now)
            invocation.ticket = self._ledger.append((event,), self._not_taken, (subject, record))
        elif invocation.is_open and (JOB[record.job] or not is_begun):
            move = Move()
            move.inverse(lambda now: self._take_again(subject, now))
            self._book.take(invocation, session.id, move, now, record.state if is_begun else "running")
            invocation.ticket = move.append(self._ledger)

    def _not_taken(self, taken: Any, now: Instant) -> None:
        subject, before = taken
        self._book.put_back(subject[0], before)
        self._take_again(subject, now)

    def _take_again(self, subject: Any, now: Instant) -> None:
        """Record a receipt again a little later: the session has the task and will not confirm it twice."""
        self._deadlines.add(now.mono + self._limits.mail_retry_ms, self._pushed, subject)

    def received(self, session: Session, message_id: str, now: Instant) -> None:
        """Take the receipt of a push that came later than was waited for: the task has arrived after all."""
        invocation = self._book.of_message(message_id)
        if (
            invocation is not None
            and session.id == invocation.record.target
            and invocation.record.placement == "session"
        ):
            self._pushed((invocation, session), now)

    def _missing(self, subject: Any, why: Missing, now: Instant) -> None:
        invocation, session = subject
        invocation.offered = None
        if not invocation.is_open or invocation.record.job != "running" or not self._mailing.can_promise:
            return
        box = session.mailbox
        is_gone = self._targets.is_gone(
            invocation.record.target
        )  # nobody opens the mailbox of a session that has ended
        if box is None or is_gone or not self._has_room(box.key, invocation.record.size):
            return self._not_pushed(invocation, why.value, now)
        if invocation.record.cancel_asked_at is not None and not session.connection.open:
            return self.take_out(invocation, LEFT, now)
        was_written = why is Missing.NOT_CONFIRMED
        has_it = was_written and box.holder is session and session.connection.open
        return self._mail(invocation, box.key, None, now, was_written=was_written, is_offered=has_it)

    def _not_pushed(self, invocation: Invocation, why: str, now: Instant) -> None:
        invocation.retry_at = now.mono + self._limits.job_retry_ms
        move = Move()
        members = {"job": "pending", "lease_epoch": None, "lease_until": None, "last_error": why}
        self._book.change(invocation, "run.updated", move, now, **members)
        if self._stops(invocation):
            self._cancel(invocation, LEFT, move, now)
        invocation.ticket = move.append(self._ledger)

    def told(self, message_id: str, session: Session) -> Any:
        """Return what a session is told of the invocation whose task a message brings."""
        is_cancelled = message_id.startswith(CANCEL_PREFIX)
        task_id = RUN_PREFIX + message_id.removeprefix(CANCEL_PREFIX) if is_cancelled else message_id
        invocation = self._book.of_message(task_id)
        if invocation is None or features.INVOKE not in session.features:
            return UNSET
        return invoked_info(invocation.record)

    # --- what becomes of the message --------------------------------------------------------------------

    def mail_left(self, mail: Mail, now: Instant) -> None:
        """Go on after whoever had a message left without having confirmed it."""
        invocation = self._book.of_message(mail.message_id)
        if invocation is not None and self._mailing.can_promise and self._stops(invocation):
            self.take_out(invocation, LEFT, now)

    def parked_again(self, parked: Parked, move: Move, now: Instant) -> None:
        """Let nobody else take a task from the inbox whose run is to stop, in the same append."""
        invocation = self._book.of_message(parked.id)
        if invocation is not None and self._stops(invocation):
            self._cancel(invocation, LEFT, move, now)

    def mail_moving(self, mail: Mail, kind: str, reason: str, now: Instant) -> None:
        """Set a run by what is about to happen to its mail."""
        if mail.record.assignment is not None or mail.record.notice is not None:
            return
        invocation = self._book.of_message(mail.record.message_id)
        if invocation is None or kind == "offered":
            return
        if kind == "delivered":
            box = self._boxes.get(mail.record.mailbox)
            holder = None if box is None or box.holder is None else box.holder.id
            if invocation.record.state in _NOT_BEGUN:
                move = Move()
                self._book.take(invocation, holder, move, now)
                invocation.ticket = move.append(self._ledger)
        elif kind != "withdrawn" and invocation.is_open:
            self.fail(invocation, f"It was not handed over: {reason}", now)

    def assignment_moving(
        self, assignment: Assignment, state: str, why: str, move: Move, now: Instant, *, is_over: bool
    ) -> None:
        """Set a run by what its worker reports, in the same append."""
        invocation = self._book.of_message(assignment.record.message_id)
        if invocation is None or not (invocation.is_open or invocation.record.reconciled):
            return
        if not is_over:
            target = _STATES.get(state)
            if target is not None and assignment.record.accepted and target != invocation.record.state:
                self._book.take(invocation, assignment.record.session_id, move, now, target)
        elif state == "reply_emitted":
            self._end(invocation, "completed", Texts(output=assignment.answer), move, now)
        elif state == "interrupted":
            self._end(invocation, "failed", Texts(error=f"It is not known how far it came: {why}"), move, now, True)
        elif state in ("failed", "expired"):
            self._end(invocation, "failed", Texts(error=why), move, now)

    def parked_leaving(self, parked: Parked, outcome: str, reason: str, move: Move, now: Instant) -> None:
        """Set a run whose message leaves the inbox without an assignment having ended, in the same append."""
        invocation = self._book.of_message(parked.id)
        if invocation is None or not invocation.is_open or outcome == "withdrawn":
            return
        if outcome in ("expired", "undeliverable"):
            self._end(invocation, "failed", Texts(error=f"It was not handed over: {reason}"), move, now)
        else:
            assert outcome == "settled", "with its assignment its run has ended"
            self._end(invocation, "completed", Texts(summary="Settled in the inbox, without a reply"), move, now)

    def answered(self, session: Session, message_id: str, text: str, now: Instant) -> None:
        """Take a message that answers a task for its result."""
        invocation = self._book.of_message(message_id)
        if invocation is None or not self._mailing.can_promise or not self.is_worker(session, invocation):
            return
        if invocation.record.authority is not None:
            return  # that broker heard it too, and reports
        if invocation.allows("completed"):
            move = Move()
            self._end(invocation, "completed", Texts(output=text), move, now)
            invocation.ticket = move.append(self._ledger)

    def is_worker(self, session: Session, invocation: Invocation) -> bool:
        """Tell whether a session may say what became of a task."""
        record = invocation.record
        if session.id == record.worker or self._targets.is_target(session, record.target):
            return True
        assignment = self._assignment(invocation)
        return assignment is not None and assignment.is_of(session)

    def _assignment(self, invocation: Invocation) -> Assignment | None:
        parked = self._inbox.get(invocation.record.message_id)
        return None if parked is None else self._work.assignments.get(parked.record.assignment or "")

    # --- what its worker says of the run ----------------------------------------------------------------

    def take_on(self, invocation: Invocation, move: Move, now: Instant) -> None:
        """Take the report that a run goes on for the acceptance of its assignment, in the same append."""
        assignment = self._assignment(invocation)
        if assignment is not None and not assignment.record.accepted:
            self._work.assignments.accept(assignment, assignment.record.sequence + 1, move, now, {})

    def close(self, invocation: Invocation, state: str, move: Move, now: Instant) -> None:
        """End with a run what brought its task, in the same append."""
        assignment = self._assignment(invocation)
        parked = self._inbox.get(invocation.record.message_id)
        if assignment is not None:
            is_done = state == "completed"
            names = ("reply_emitted", "answered") if is_done else ("failed", "failed")
            self._work.assignments.end(assignment, *names, f"its run is {state}", move, now)
        elif parked is not None:
            self._parking.withdraw(parked, move, now)

    def reported(self, invocation: Invocation, now: Instant) -> None:
        """Go on after such a report was recorded."""
        assignment = self._assignment(invocation)
        if assignment is not None and assignment.record.accepted:
            self._work.handing.accepted(assignment, now)

    # --- ends -------------------------------------------------------------------------------------------

    def _end(
        self, invocation: Invocation, state: str, texts: Texts, move: Move, now: Instant, reconciled: bool = False
    ) -> None:
        self._book.end(invocation, state, texts, move, now, self._next_number(), reconciled=reconciled)

    def fail(self, invocation: Invocation, why: str, now: Instant, *, reconciled: bool = False) -> None:
        """End a run as failed, in an append of its own."""
        self._stop_offering(invocation)
        move = Move()
        texts = Texts(error=why[: self._limits.run_text_characters])
        self._end(invocation, "failed", texts, move, now, reconciled)
        invocation.ticket = move.append(self._ledger)

    def _stop_offering(self, invocation: Invocation) -> None:
        if invocation.offered is not None:
            self._offers.withdraw(invocation.offered)
            invocation.offered = None

    def _mail_of(self, invocation: Invocation) -> Mail | None:
        """Return the message that brings a task while it is in its mailbox: it may have gone into the inbox."""
        return self._in_its_box(invocation.mail)

    def _in_its_box(self, mail: Mail | None) -> Mail | None:
        box = None if mail is None else self._boxes.get(mail.record.mailbox)
        return mail if mail is not None and box is not None and box.entries.get(mail.number) is mail else None

    def nobody_has(self, invocation: Invocation) -> bool:
        """Tell whether no session that is here has the task; one that left without having confirmed it has it not."""
        record, mail = invocation.record, self._mail_of(invocation)
        if record.authority is not None:
            return self._forwarding.is_untouched(invocation)
        if mail is not None:
            return _waits(mail)
        if record.placement == "session" and JOB[record.job]:  # it may have been written, and was not confirmed
            is_being_written = record.job == "running" and record.lease_epoch == self._epoch
            return not is_being_written and not self._targets.is_here(record.target)
        if record.state not in _NOT_BEGUN:
            return False
        parked, assignment = self._inbox.get(record.message_id), self._assignment(invocation)
        if assignment is not None:
            brought = assignment.mail
            return brought is not None and _waits(brought) and not assignment.record.accepted
        return record.job == "pending" or (parked is not None and parked.is_free)

    def _stops(self, invocation: Invocation) -> bool:
        """Tell whether a run is to stop that nobody is there to report on."""
        record = invocation.record
        is_asked = record.cancel_asked_at is not None and record.authority is None
        return is_asked and invocation.is_open and self.nobody_has(invocation)

    def brings(self, mail: Mail) -> bool:
        """Tell whether mail brings a task."""
        return self.task_of(mail) is not None

    def is_in_work(self, invocation: Invocation, is_here: Callable[[str], bool]) -> bool:
        """Tell whether somebody who is here has a task that did not come as an assignment, confirmed or not."""
        record, mail = invocation.record, self._mail_of(invocation)
        if record.placement == "inbox":
            return False
        if invocation.offered is not None or (mail is not None and mail.is_offered):
            return True
        return record.state == "running" and record.worker is not None and is_here(record.worker)

    def take_out(self, invocation: Invocation, reason: str, now: Instant) -> None:
        """Cancel what nobody has, with its message."""
        move = Move()
        self._cancel(invocation, reason, move, now)
        invocation.ticket = move.append(self._ledger)

    def _cancel(self, invocation: Invocation, reason: str, move: Move, now: Instant) -> None:
        self._end(invocation, "cancelled", Texts(error=reason or None), move, now)
        self._forwarding.cancel(invocation, move, now)
        self.close(invocation, "cancelled", move, now)
        mail = [each for each in (self._mail_of(invocation), self._in_its_box(invocation.notice)) if each is not None]
        if mail:
            pointless = self._mailing.give_up(mail, "withdrawn", "its task was cancelled", move.changes, now)
            move.inverse(lambda now: self._mailing.unsettle_given_up(pointless, now))

    def ask_to_stop(self, invocation: Invocation, reason: str, now: Instant) -> None:
        """Tell whoever has a task, once, that it is not wanted any more."""
        record = invocation.record
        move = Move()
        self._book.change(invocation, "invocation.cancel_asked", move, now, cancel_asked_at=now.wall)
        if record.authority is not None:
            invocation.ticket = move.append(self._ledger)
            return self._forwarding.recall(invocation, reason, now)
        message_id = f"{CANCEL_PREFIX}{record.run_id}"
        because = f": {reason}" if reason else ""
        text = f"Invocation {record.invocation_id} is not wanted any more{because}. Stop, and report what became of it."
        body = encode({"id": message_id, "timestamp": now.wall, "content": {"text": text}})
        place = self._targets.place(record.worker or record.target) or self._targets.place(record.target)
        if place is not None and self._targets.is_elsewhere(place):
            place = None  # nobody has it there
        if place is not None and place.mailbox is not None:
            letter = Letter(place.mailbox, message_id, body, self._broker_info, None, "", "")
            invocation.notice = self._mailing.put(letter, None, now, take_back, move, *move.changes)
            invocation.ticket = invocation.notice.ticket
            return None
        invocation.ticket = move.append(self._ledger)
        if place is not None and place.session is not None:
            frame = MessageFrame(Raw(self._broker_info), Raw(body))
            frame.invocation = self.told(message_id, place.session)
            self._outbox.write(place.session.connection, frame, invocation.ticket)
        return None

    # --- start ------------------------------------------------------------------------------------------

    def recover_mail(self, message_id: str, mail: Mail | None) -> None:
        """Enter a message read from the store that brings a task, or says that it is not wanted."""
        if message_id.startswith(CANCEL_PREFIX):
            invocation = self._book.of_message(RUN_PREFIX + message_id.removeprefix(CANCEL_PREFIX))
            if invocation is not None and mail is not None and not mail.record.sender_session:
                invocation.notice = mail
        elif (invocation := self._book.of_message(message_id)) is not None:
            invocation.mail = mail

    def recovered(self, now: Instant) -> None:
        """Go on with what an earlier process was handing over; its leases are void."""
        for invocation in self._book.newest_first():
            mail = self._mail_of(invocation)
            if mail is not None and not invocation.is_open and self._mailing.can_promise:
                self._mailing.withdraw(mail, "its task has ended", now)
        for invocation in self._book.open_ones():
            if self._mailing.can_promise and self._stops(invocation):
                self.take_out(invocation, LEFT, now)
            self._run(invocation, now)
        self._forwarding.recovered(now)
        self.watch(now)

    def due_soon(self, now: Instant) -> int:
        """Return how much goes on by itself soon: hand-overs, and runs whose target is looked for."""
        going = sum(
            invocation.gone_since is not None
            or (bool(JOB[invocation.record.job]) and self._targets.is_here(invocation.record.target))
            for invocation in self._book.going_ones()
        )
        looked_for = (each for holders in self._gone_since for each in self._book.held_by(holders))
        return going + sum(not self._has_message(each) for each in looked_for)


def _waits(mail: Mail) -> bool:
    """Tell whether mail is nowhere but in its mailbox."""
    return not mail.is_offered and mail.confirmed_by is None


_NOT_BEGUN = frozenset({"queued", "waking"})
_STATES = {"accepted": "running", "started": "running", "waiting_for_capability": "waiting"}
"""What the states of an assignment make of a run."""
