"""Exchange messages with other brokers: what is for a stand-in is posted to its broker, what comes is decided here.

    here: reserve --commit--> posted ----------> there: decided, forwarded, accepted
    here: accept  <-- outcome (behind its commit) -- there

Rule 1: the broker that answers for a session is the authority over it: groups and policies are judged there again.
Rule 2: each attempt is posted under an id of its own, and all of them under that of the message; whatever comes twice
meets the row of its message id. Rule 3: a refusal counts for the newest attempt only, an arrival whenever it is heard.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import UNSET, DecodeError, Raw, Struct, ValidationError
from msgspec.json import decode, encode
from msgspec.structs import replace

from intercom.core.attempts import NOT_FOUND_CODE, Attempt, Brought, Refusal
from intercom.core.claims import Claims
from intercom.core.clock import Instant
from intercom.core.homes import key_of
from intercom.core.letters import (
    NOTICE,
    NOTIFY,
    OUTCOME,
    SEND,
    WITHDRAWN,
    NoticeLetter,
    NotifyLetter,
    OutcomeLetter,
    SendLetter,
    WithdrawnLetter,
)
from intercom.core.notifications import Notification
from intercom.core.outgoing import OnItsWay, Outgoing
from intercom.core.peer_records import Arrived, Post, Posted, RemoteName, Settle
from intercom.core.queueing import Away
from intercom.core.records import OperationState
from intercom.core.refused import RefusedLetters, place_of
from intercom.core.sessions import NODE, Session
from intercom.core.standins import PEER, RemoteConnection, RunOwner, StandIn
from intercom.wire import reasons
from intercom.wire.codec import parse_message
from intercom.wire.frames import Delivered, DeliveryFailed, MessageFrame, PendingStageNotification, Queued, Send
from intercom.wire.mail import Notice, QuestionWithdrawn

if TYPE_CHECKING:
    from intercom.core.addresses import Address
    from intercom.core.deadlines import Deadline
    from intercom.core.deciding import Deciding
    from intercom.core.delivery import Delivery
    from intercom.core.ground import Ground
    from intercom.core.mailboxes import Mail, Mailboxes
    from intercom.core.mailing import Mailing
    from intercom.core.operation import Operation
    from intercom.core.operations import Operations
    from intercom.core.queueing import Queueing
    from intercom.core.receipts import Receipts, Unconfirmed
    from intercom.core.registry import Registry

Letter = TypeVar("Letter", SendLetter, OutcomeLetter, WithdrawnLetter, NoticeLetter)
_JOURNAL_CHARACTERS = 8
_CODES = ("message_id_conflict", "session_not_found", "away")
_PASSING = frozenset({"away", "capacity", "not_recorded", "cluster_unavailable", "store_unusable", "broker_draining"})
"""Why mail that was refused is offered again later."""


class _Sent(Struct, frozen=True, gc=False):
    """Remember what was posted last of a message, and to whom: only that broker can say what became of it.

    That it arrived can be said by those, too, to whom it was posted before.
    """

    attempt: str
    peer: str
    delivery_id: str
    earlier: frozenset[tuple[str, str]] = frozenset()
    """Brokers, and the delivery ids there."""


class Abroad:
    """Post what is for sessions elsewhere, and take what comes from there.

    Args:
        name_of: tells a session of this broker as others are told of it.
        sender_of: gives the stand-in of whoever sent a letter, one of its own where none is in the table yet.
    """

    def __init__(
        self,
        ground: Ground,
        registry: Registry,
        operations: Operations,
        receipts: Receipts,
        boxes: Mailboxes,
        mailing: Mailing,
        queueing: Queueing,
        delivery: Delivery,
        deciding: Deciding,
        claims: Claims,
        name_of: Callable[[Session], RemoteName],
        sender_of: Callable[[str, SendLetter, Instant], StandIn],
        is_cut_off: Callable[[str], bool],
        is_closed: Callable[[], bool],
        now: Instant,
    ) -> None:
        self._own = ground.identity.broker_id
        identity = ground.identity
        self.process = f"{identity.epoch}.{identity.journal_id[:_JOURNAL_CHARACTERS]}"
        """Names this process also where an older copy of its store was restored, which counts its epochs again."""
        self._outbox = ground.outbox
        self._limits = ground.limits
        self._deadlines = ground.deadlines
        self._sessions = registry.sessions
        self._addresses = registry.addresses
        self._operations = operations
        self._receipts = receipts
        self._boxes = boxes
        self._mailing = mailing
        self._queueing = queueing
        self._delivery = delivery
        self._deciding = deciding
        self._claims = claims
        claims.on_news = self._is_news
        self._name_of = name_of
        self._sender_of = sender_of
        self._is_cut_off = is_cut_off
        self._is_closed = is_closed
        self.is_owned: Callable[[str], bool] = lambda target: False
        """Tells whether a target is a stage whose owner is here."""
        self.takes_task: Callable[[Mail, str, bytes, Instant], bool] = lambda mail, peer, message, now: False
        """Takes mail over that brings a task, which is more than a message; False: this is none."""
        self.on_mail: Callable[[Address, Instant], None] = lambda address, now: None
        """Is told of all mail for addresses at home elsewhere that goes there now."""
        self.look_for_old: Callable[
            [RemoteConnection, Send, Address, set[str], bool, Operation | None, Instant], Refusal | bool
        ]
        """Asks what became of a message that may have been shown elsewhere; True: it waits for that."""
        self._posts = 0
        self._attempts: dict[tuple[str, str], _Sent] = {}
        """The newest attempt of what has no outcome yet, by mark and message id."""
        self._arrivals: dict[tuple[str, str], tuple[Arrived, SendLetter]] = {}
        """The newest attempt of what came and has no outcome yet, by broker and message id."""
        self._refused = RefusedLetters(ground.limits.letters_refused)
        self._is_overdue = False
        """What is decided now has waited long enough for news of its address."""
        self._started = now
        self._returning: list[tuple[Arrived, SendLetter]] = []
        """What came, so soon after the start, for sessions that may still be on their way back."""
        self._ahead: dict[str, tuple[Deadline, list[tuple[Arrived, SendLetter]]]] = {}
        """What came before it was heard here where its address is at home now, by the key of that, and until when."""
        self._posted: dict[int, Attempt] = {}
        """Attempts that are on their way to the engine."""
        self.outgoing = Outgoing(ground, operations, self._post_letter, self._next_attempt)

    def is_cut_off(self, peer: str) -> bool:
        """Tell whether nothing reaches this broker now."""
        return self._is_cut_off(peer)

    def is_closed(self) -> bool:
        """Tell whether the engine takes nothing now."""
        return self._is_closed()

    # --- out --------------------------------------------------------------------------------------------

    def carry(self, to: RemoteConnection, frame: Any, after: int, token: object | None) -> bool:
        """Post what is written to a stand-in; what its own broker tells it better is left out."""
        if isinstance(frame, MessageFrame):
            if isinstance(token, Attempt):
                return self._post_send(to, frame, after, token)
            if frame.mail is not UNSET:
                return self._post_mail(to, frame, after)
            return frame.notice is not UNSET and self._post_notice(to, frame, after)
        elif isinstance(frame, Delivered | DeliveryFailed | Queued):
            self._post_outcome(to, frame, after)
        elif isinstance(frame, QuestionWithdrawn):
            body = WithdrawnLetter(frame.message_id, frame.session_id)
            self.post(to.peer_id, WITHDRAWN, f"{WITHDRAWN} {frame.message_id}", body, after)
        elif isinstance(frame, PendingStageNotification) and isinstance(token, Notification):
            self._post_notification(to, frame, after, token)
        return True

    def _post_notification(
        self, to: RemoteConnection, frame: PendingStageNotification, after: int, notification: Notification
    ) -> None:
        letter = NotifyLetter(
            frame.request_id,
            notification.recipient.id,
            notification.recipient.home_group,
            self._name_of(notification.owner),
            frame.message,
            notification.operation.signature.hex(),
        )
        self.post(to.peer_id, NOTIFY, f"{NOTIFY} {frame.request_id}", letter, after)

    def _post_send(self, to: RemoteConnection, frame: MessageFrame, after: int, attempt: Attempt) -> bool:
        target, sender = to.session, attempt.sender
        assert target is not None, "a way is made for a session"
        if sender.is_remote:
            return False
        letter = SendLetter(
            attempt.message_id,
            target.id,
            target.target_identity,
            self._next_attempt(),
            self._name_of(sender),
            frame.message,
            attempt.is_ask,
            attempt.pending_reply,
            attempt.may_queue,
            self._validity_of(attempt),
            _address_of(target),
            wording=attempt.wording,
            claim=self._claim_for(target),
        )
        delivery_id = _delivery_id(letter, to.peer_id)
        after, _ = self.outgoing.begin(attempt, to.peer_id, delivery_id, letter, after)
        until = attempt.valid_until
        number = self._post_letter(to.peer_id, delivery_id, letter, after, None if until is None else until.mono)
        self._posted[number] = attempt
        self.outgoing.given(number, letter.mark, letter.message_id)
        return True

    def _claim_for(self, target: Session) -> int | None:
        address = target.address
        return None if address is None else self._claims.newest(key_of(address.group, address.name))

    def _validity_of(self, attempt: Attempt) -> int | None:
        """Return how long a message is of use from now on; the wait for its outcome began this very moment."""
        operation, until = attempt.operation, attempt.valid_until
        if operation is None or until is None:
            return None
        unconfirmed = operation.unconfirmed
        asked = operation.born if unconfirmed is None or unconfirmed.timeouts is None else unconfirmed.since
        return max(0, until.mono - asked)

    def _post_mail(self, to: RemoteConnection, frame: MessageFrame, after: int) -> bool:
        """Post mail that waited here; it stays here until its recipient has it."""
        target = to.session
        assert frame.mail is not UNSET
        assert target is not None and target.mailbox is not None, "only who has a mailbox is written mail"
        mail = target.mailbox.entries.get(frame.mail.entry)
        if mail is None:
            return True  # the task written before it has moved, and says itself that it is not wanted any more
        now = mail.offered_at
        if now is not None and target.address is not None and not target.id:
            self.on_mail(target.address, now)
        if now is not None and target.mailbox.put_off and self._mailing.must_wait(mail):
            self._mailing.put_off(mail, now)
            return True
        if not target.id and now is not None and self.takes_task(mail, to.peer_id, bytes(frame.message), now):
            return True
        record = mail.record
        identity = f"session:{record.sender_session}" if mail.operation is None else mail.operation.sender
        valid_for = until = None
        if record.valid_until is not None and mail.offered_at is not None:
            if self._is_cut_off(to.peer_id):
                # Nobody could say there that it has had its time, and tell its sender: it stays here meanwhile.
                self._mailing.put_off(mail, mail.offered_at)
                return True
            valid_for = max(0, record.valid_until - mail.offered_at.wall)
            until = mail.offered_at.mono + valid_for
        letter = SendLetter(
            mail.message_id,
            record.target if isinstance(target, RunOwner) else target.id,
            target.target_identity,
            self._next_attempt(),
            _sender_of(mail, identity, self._own, self._addresses.of_key(identity)),
            frame.message,
            record.is_ask,
            may_queue=not target.id,
            valid_for=valid_for,
            address=_address_of(target),
            was_forwarded=NODE in decode(record.sender_info),
            wording=record.target,
            claim=self._claim_for(target),
            maybe_at=tuple(sorted(mail.posted_to - {to.peer_id})),
        )
        self._post_letter(to.peer_id, _delivery_id(letter, to.peer_id), letter, after, until)
        is_away = self._is_cut_off(to.peer_id)
        if not isinstance(target, RunOwner):
            (mail.left_for if is_away else mail.posted_to).add(to.peer_id)
        if not target.id and mail.offered_at is not None:
            pause_ms = self._limits.peer_window_ms if is_away else self._limits.peer_outcome_ms
            self._mailing.keep_for_later(mail, pause_ms, mail.offered_at)
        return True

    def _post_letter(
        self, peer: str, delivery_id: str, letter: SendLetter, after: int = 0, valid_until: int | None = None
    ) -> int:
        key = letter.mark, letter.message_id
        before = self._attempts.get(key)
        earlier = frozenset() if before is None else before.earlier | {(before.peer, before.delivery_id)}
        self._attempts[key] = _Sent(letter.attempt, peer, delivery_id, earlier)
        if len(self._attempts) > self._limits.unconfirmed_total_frames:
            del self._attempts[next(iter(self._attempts))]  # then any outcome of it counts
        return self.post(peer, SEND, delivery_id, letter, after, attempt=letter.attempt, valid_until=valid_until)

    def _post_notice(self, to: RemoteConnection, frame: MessageFrame, after: int) -> bool:
        assert to.session is not None, "a way is made for a session"
        letter = NoticeLetter(to.session.id, frame.sender, frame.message, Raw(encode(frame.notice)))
        self.post(to.peer_id, NOTICE, f"{NOTICE} {self._posts}", letter, after)
        return True

    def _post_outcome(self, to: RemoteConnection, frame: Delivered | DeliveryFailed | Queued, after: int) -> None:
        found = self._arrivals.get((to.peer_id, frame.message_id))
        if found is None or found[1].attempt != frame.attempt_id:
            return
        arrived, mark = found[0], found[1].mark
        del self._arrivals[to.peer_id, frame.message_id]
        operation = self._operations.by_id(frame.message_id)
        if operation is not None and isinstance(frame, Queued):
            _note_answered(operation, to.peer_id, found[1].attempt)
        recipient = None if operation is None else operation.recipient_session
        letter = OutcomeLetter(frame.message_id, mark, frame.attempt_id, "delivered", recipient=recipient or "")
        if isinstance(frame, Queued):
            letter = OutcomeLetter(frame.message_id, mark, frame.attempt_id, "queued", position=frame.position)
        elif isinstance(frame, DeliveryFailed):
            letter = OutcomeLetter(
                frame.message_id,
                mark,
                frame.attempt_id,
                "failed",
                frame.reason,
                None if frame.reason_code is UNSET else frame.reason_code,
                is_known=operation is not None
                or reasons.is_unknown(frame.reason)
                or self.has_arrived(frame.message_id),
            )
            self._refused.note(arrived.peer, letter)
        self._say(arrived, letter, after)

    def _say(self, arrived: Arrived, letter: OutcomeLetter, after: int) -> None:
        """Post what became of what arrived, which is done with then."""
        attempt = f"{letter.attempt}.{arrived.arrival}"
        self.post(arrived.peer, OUTCOME, arrived.delivery_id, letter, after, attempt=attempt, settles=arrived.arrival)

    def post(
        self,
        peer: str,
        kind: str,
        delivery_id: str,
        letter: Any,
        after: int,
        *,
        attempt: str = "",
        settles: int = 0,
        valid_until: int | None = None,
    ) -> int:
        """Post a letter once the append with ticket ``after`` is committed; return the number of the post.

        Args:
            peer: id of the broker it is for.
            kind: what it is.
            delivery_id: the same in every copy.
            letter: its body.
            after: the append on which it rests.
            attempt: tells one posting from the next; none: it is one by itself.
            settles: what arrived and is done with once this was posted.
            valid_until: when it is of no use any more, monotonic ms; None: never.
        """
        self._posts += 1
        attempt = attempt or f"{self.process}.{self._posts}"
        body = encode(letter)
        self._outbox.add(Post(self._posts, peer, kind, delivery_id, attempt, body, after, settles, valid_until))
        return self._posts

    def _next_attempt(self) -> str:
        return f"{self.process}.{self._posts + 1}"

    def posted(self, fact: Posted, now: Instant) -> None:
        """Take note that the engine has an attempt."""
        self.outgoing.posted(fact.number)
        attempt = self._posted.pop(fact.number, None)
        if attempt is not None:
            self._delivery.frame_taken(attempt, now)

    # --- in ---------------------------------------------------------------------------------------------

    def arrived(self, fact: Arrived, now: Instant) -> None:
        """Take what another broker brought; what cannot be read, or is of a kind nobody knows, is let go of."""
        if fact.kind == SEND:
            letter = _read(fact, SendLetter)
            if letter is not None and letter.sender.home == fact.peer and _is_whole(letter):
                self._take_send(fact, letter, now)
                return
        elif fact.kind == OUTCOME:
            outcome = _read(fact, OutcomeLetter)
            if outcome is not None and self._may_tell(fact, outcome):
                self._take_outcome(fact.peer, outcome, now)
        elif fact.kind == WITHDRAWN:
            withdrawn = _read(fact, WithdrawnLetter)
            if withdrawn is not None:
                self._take_withdrawn(fact.peer, withdrawn, now)
        elif fact.kind == NOTICE:
            notice = _read(fact, NoticeLetter)
            if notice is not None:
                self._take_notice(notice)
        self._outbox.add(Settle(fact.arrival))

    def _take_send(self, fact: Arrived, letter: SendLetter, now: Instant) -> None:
        said = self._refused.of_copy(fact.peer, letter)
        if said is not None:
            self._say(fact, said, 0)
            return
        address = None if letter.address is None else self._addresses.at(*letter.address)
        is_for_mailbox = letter.address is not None and not letter.to
        # Whoever comes back: it is for whoever holds the address then, or for another machine.
        is_for_mailbox |= address is not None and (letter.may_queue or address.home is not None)
        is_early = not is_for_mailbox and now.mono - self._started.mono < self._limits.peer_return_ms
        if is_early and self._sessions.get(letter.to) is None and not self.is_owned(letter.to):
            if not self._returning:
                self._deadlines.add(now.mono + self._limits.announce_ms, self._take_returning)
            self._returning.append((fact, letter))
            return
        self._decide(fact, letter, now)

    def _take_returning(self, subject: None, now: Instant) -> None:
        returning, self._returning = self._returning, []
        for fact, letter in returning:
            self._take_send(fact, letter, now)

    def _decide(self, fact: Arrived, letter: SendLetter, now: Instant) -> None:
        sender = self._sender_of(fact.peer, letter, now)
        connection = sender.connection
        assert isinstance(connection, RemoteConnection)
        key = (fact.peer, letter.message_id)
        earlier = self._arrivals.get(key)
        if earlier is not None and earlier[1].attempt != letter.attempt:
            self._outbox.add(Settle(earlier[0].arrival))  # the newest attempt is the one that is answered
        if letter.valid_for is not None:
            # What it had when it was posted counts no more: it lay in the engine, or here, since then.
            letter = replace(letter, valid_for=0 if fact.valid_until is None else max(0, fact.valid_until - now.mono))
        self._arrivals[key] = (fact, letter)
        frame = Brought(
            letter.to,
            letter.message,
            letter.attempt,
            require_pending_reply=letter.pending_reply or UNSET,
            resolve_reply_target=letter.is_ask or UNSET,
            queue_if_away=letter.may_queue or UNSET,
            valid_for=UNSET if letter.valid_for is None else letter.valid_for,
            logical_target=UNSET if letter.address is None else _wording_of(*letter.address),
            wording=letter.wording,
        )
        if letter.address is not None and (self._sessions.get(letter.to) is None or self._is_old(letter)):
            self._decide_for_address(fact.peer, connection, frame, letter, *letter.address, now)
            return
        target = self._sessions.get(letter.to)
        if target is not None and target.is_remote:
            # It has moved on, and who sent this will be told where it is: nothing is passed on from broker to broker.
            code: Any = NOT_FOUND_CODE if letter.pending_reply else UNSET
            gone = DeliveryFailed(letter.message_id, reasons.SESSION_NOT_FOUND, letter.attempt, code)
            self._post_outcome(connection, gone, 0)
            return
        self._deciding.send(connection, frame, now)

    def _wait_for_news(self, key: str, peer: str, letter: SendLetter, now: Instant) -> None:
        """Keep what comes from a broker that knows more of an address than this one, until that is heard here."""
        if key not in self._ahead:
            until = self._deadlines.add(now.mono + self._limits.look_ms, self._decide_without_news, key)
            self._ahead[key] = until, []
        self._ahead[key][1].append(self._arrivals[peer, letter.message_id])

    def _is_news(self, key: str) -> None:
        if key in self._ahead:
            until, waiting = self._ahead[key]
            self._deadlines.cancel(until)
            self._ahead[key] = self._deadlines.add(0, self._decide_what_waited, key), waiting

    def _decide_without_news(self, key: str, now: Instant) -> None:
        self._is_overdue = True
        self._decide_what_waited(key, now)
        self._is_overdue = False

    def _decide_what_waited(self, key: str, now: Instant) -> None:
        for fact, letter in self._ahead.pop(key)[1]:
            found = self._arrivals.get((fact.peer, letter.message_id))
            if found is not None and found[0] is fact:  # else a newer attempt came meanwhile, which waits, too
                self._decide(fact, letter, now)

    def decide_again(self, peer: str, message_id: str, now: Instant) -> None:
        """Decide about a message that came, and waited for something, as if it came now."""
        found = self._arrivals.get((peer, message_id))
        if found is not None:
            self._decide(*found, now)

    def _decide_for_address(
        self,
        peer: str,
        connection: RemoteConnection,
        frame: Send,
        letter: SendLetter,
        group: str,
        name: str,
        now: Instant,
    ) -> None:
        """Decide about mail for an address; what its home is not here any more for is passed on, once."""
        key = key_of(group, name)
        if (key in self._ahead or self._claims.is_ahead(key, letter.claim)) and not self._is_overdue:
            self._wait_for_news(key, peer, letter, now)
            return
        address = self._addresses.at(group, name)
        known = None if address is None else self._known(letter, address)
        is_done = known is not None and known.state is OperationState.ACCEPTED
        if known is not None and address is not None and is_done and not (letter.is_ask and address.home is not None):
            self._outbox.write(connection, Delivered(letter.message_id, letter.attempt), known.ticket)
            return
        refusal: DeliveryFailed | None = None
        if address is None:
            refusal = DeliveryFailed(letter.message_id, reasons.SESSION_NOT_FOUND, letter.attempt)
        elif address.home is not None and (letter.was_forwarded or address.home == peer):
            refusal = DeliveryFailed(letter.message_id, reasons.away(address.name), letter.attempt, "away")
        elif address.home is not None and not self._claims.may_be_passed_on(key, letter.claim):
            refusal = DeliveryFailed(letter.message_id, reasons.UNCERTAIN_ELSEWHERE, letter.attempt)
        if address is None or refusal is not None:
            assert refusal is not None
            self._post_outcome(connection, refusal, 0)
            return
        if address.home is None and (
            self._comes_home(connection, address, frame, letter, known, now)
            or self._is_looked_for(connection, address, frame, letter, None, now)
        ):
            return
        found = self._queueing.of_address(address)
        if address.home is None and isinstance(found, Session):
            frame.to = found.id
            self._deciding.send(connection, frame, now)
        else:
            away = found if isinstance(found, Away) else Away(address.key, address.name, "", address.groups)
            self._deciding.send_away(connection, away, frame, now)
        if address.home is not None:
            operation = self._operations.by_id(letter.message_id)
            if operation is not None and operation.mail is not None:  # its sender may have brought it there, too
                operation.mail.posted_to.add(address.home)

    def _is_old(self, letter: SendLetter) -> bool:
        return letter.address is not None and self._claims.is_old(key_of(*letter.address), letter.claim)

    def _known(self, letter: SendLetter, address: Address) -> Operation | None:
        """Return the row that mail has here which was here before, unless somebody here has it in hand."""
        operation = self._operations.by_id(letter.message_id)
        if (
            operation is None
            or operation.target is None
            or not (operation.target == address.key or operation.target.startswith(PEER))
            or operation.sender_session != letter.sender.target_id
            or operation.unconfirmed is not None
        ):
            return None
        return operation

    def _is_looked_for(
        self,
        connection: RemoteConnection,
        address: Address,
        frame: Send,
        letter: SendLetter,
        operation: Operation | None,
        now: Instant,
    ) -> bool:
        """Let what may have been shown elsewhere wait for what others say of it, or refuse it for now."""
        others, is_old = self._others_of(letter), self._is_old(letter)
        if is_old:
            others |= {connection.peer_id}
        looked = bool(others) and self.look_for_old(connection, frame, address, others, is_old, operation, now)
        if isinstance(looked, Refusal):
            self._deciding.refuse(connection, letter.message_id, frame.attempt_id, looked)
        return looked is not False

    def _others_of(self, letter: SendLetter) -> set[str]:
        """Return the brokers that may have had a message before this one."""
        return {broker for broker in letter.maybe_at if broker != self._own}

    def _comes_home(
        self,
        connection: RemoteConnection,
        address: Address,
        frame: Send,
        letter: SendLetter,
        operation: Operation | None,
        now: Instant,
    ) -> bool:
        """Answer for mail that was here before, and that comes back since its address is at home here by now."""
        if operation is None:
            return False
        peer = connection.peer_id
        is_copy = self._is_old(letter) or _was_answered(operation, peer, letter.attempt)
        keeper = broker_of(operation) if operation.mail is None else ""
        if keeper and (is_copy or not (letter.was_forwarded or keeper == peer)):
            self._ask_its_keeper(connection, address, frame, operation, now)
            return True
        if operation.mail is None and self._is_looked_for(connection, address, frame, letter, operation, now):
            return True
        if operation.mail is not None:
            self._mailing.may_be_at(operation.mail, self._others_of(letter), now)
            if operation.target != address.key:
                self._mailing.readdress(operation.mail, address.key, now)
        elif not self._queueing.take_back(operation, letter, address.key, now):
            return False
        assert operation.mail is not None, "it waited here, or has been taken back"
        if not is_copy:
            self._mailing.is_not_at(operation.mail, peer, now)
        position = 1 if operation.position is None else operation.position
        answer = Queued(letter.message_id, address.name, position, letter.attempt)
        self._outbox.write(connection, answer, operation.ticket)
        return True

    def _ask_its_keeper(
        self, connection: RemoteConnection, address: Address, frame: Send, operation: Operation, now: Instant
    ) -> None:
        """Let a copy wait for what the broker says that has had the message since, or refuse it for now."""
        away = Away(address.key, address.name, "", address.groups)
        looked = self._queueing.look(connection, frame, away, operation, now)
        if looked is not True:
            refusal = looked or Refusal("D9", reasons.UNCERTAIN_ELSEWHERE, after=operation.ticket)
            self._deciding.refuse(connection, operation.message_id, frame.attempt_id, refusal)

    def was_passed_on(self, operation: Operation, peer: str) -> None:
        """Take note that the broker which had a message says that this one has it now, unless it has come home."""
        target = operation.target or ""
        if operation.state is OperationState.RESERVED:
            mailbox = target.removeprefix(PEER).partition(":")[2] if target.startswith(PEER) else target
            self._operations.keep_elsewhere(operation, operation.position or 1, f"{PEER}{peer}:{mailbox}")

    def _may_tell(self, fact: Arrived, letter: OutcomeLetter) -> bool:
        """Tell whether a broker may say what became of a message: it was sent to that one, under this very id."""
        sent = self._attempts.get((letter.mark, letter.message_id))
        if sent is None:
            address = self._addresses.of_key(letter.mark)
            is_at_home = address is not None and address.home == fact.peer
            is_so = is_at_home or letter.mark.startswith(f"{PEER}{fact.peer}:")
        else:
            told_by = fact.peer, fact.delivery_id
            is_so = told_by == (sent.peer, sent.delivery_id) or (
                letter.result == "delivered" and told_by in sent.earlier
            )
        if not is_so:
            self._outbox.note("cluster_outcome_ignored", peer=fact.peer, messageId=letter.message_id)
        return is_so

    def _take_outcome(self, peer: str, letter: OutcomeLetter, now: Instant) -> None:
        key = (letter.mark, letter.message_id)
        sent = self._attempts.get(key)
        is_newest = sent is None or sent.attempt == letter.attempt
        if letter.result != "delivered" and not is_newest:
            return
        self._attempts.pop(key, None)
        unconfirmed = self._receipts.find(*key)
        if unconfirmed is None:
            if not self._take_outcome_of_earlier(peer, letter, now):
                self._take_outcome_of_mail(peer, letter, now)
            elif letter.result == "failed" and letter.is_known and self._may_pass(letter):
                return  # it may have arrived there before; whoever sends it again hears that from there
        elif letter.result == "delivered":
            self._delivery.confirmed_elsewhere(unconfirmed, now, self._who_has_it(unconfirmed, letter))
        elif letter.result == "queued":
            self._delivery.queued_elsewhere(unconfirmed, letter.position, _kept_at(peer, letter.mark))
        else:
            code: Any = letter.code if letter.code in _CODES else UNSET
            self._delivery.refused_elsewhere(unconfirmed, letter.reason, code, now, is_known=letter.is_known)
        self.outgoing.settled(*key, now)

    def _who_has_it(self, unconfirmed: Unconfirmed, letter: OutcomeLetter) -> Session | None:
        """Return the session that has what was sent to a stage, or to one that has left, as far as it is seen here.

        That of the stage, or who holds by now the address that was meant.
        """
        found = self._sessions.get(letter.recipient)
        has_left = self._sessions.get(unconfirmed.waiter.target.id) is None
        is_meant = found is not None and (letter.mark.startswith(PEER) or found.target_identity == letter.mark)
        return found if has_left and is_meant and isinstance(found, StandIn) else None

    def give_up(self, entry: OnItsWay, now: Instant) -> None:
        """Let go of a message that is on its way: it may arrive all the same, and its sender is told no more."""
        unconfirmed = self._receipts.find(*entry.key)
        if unconfirmed is not None:
            self._delivery.refused_elsewhere(unconfirmed, reasons.RECEIPT_MISSING, UNSET, now, is_known=True)
        self.outgoing.settled(*entry.key, now)

    def was_forwarded(self, peer: str, message_id: str) -> bool:
        """Tell whether a message that came, and is not decided yet, is from another broker than its sender's."""
        found = self._arrivals.get((peer, message_id))
        return found is not None and found[1].was_forwarded

    def has_arrived(self, message_id: str) -> bool:
        """Tell whether a message came of which is not decided yet what becomes of it here."""
        return any(each[1] == message_id for each in self._arrivals) or any(
            letter.message_id == message_id for _, letter in self._returning
        )

    def accepted_elsewhere(self, operation: Operation, now: Instant) -> None:
        """Take note that a message arrived whose outcome was not heard."""
        mark = operation.target or ""
        unconfirmed = self._receipts.find(mark, operation.message_id)
        if unconfirmed is not None:
            self._delivery.confirmed_elsewhere(unconfirmed, now)
        elif operation.state is OperationState.RESERVED:
            self._operations.accept_unwaited(operation, now)
        self.outgoing.settled(mark, operation.message_id, now)

    def never_arrived(self, operation: Operation, now: Instant) -> None:
        """Forget a message that is provably not where it was sent to, and will not be."""
        mark = operation.target or ""
        self._attempts.pop((mark, operation.message_id), None)
        unconfirmed = self._receipts.find(mark, operation.message_id)
        if unconfirmed is not None:
            self._receipts.remove(unconfirmed)
        self.outgoing.settled(mark, operation.message_id, now)
        self._operations.forget(operation)

    def _take_outcome_of_earlier(self, peer: str, letter: OutcomeLetter, now: Instant) -> bool:
        """Take what became of a message that an earlier process posted; return whether it was one.

        Nobody waits for it now: whoever sent it asks again, and is answered by its row.
        """
        operation = self._operations.by_id(letter.message_id)
        if operation is None or operation.target != letter.mark or operation.state is not OperationState.RESERVED:
            return False
        if letter.result == "delivered":
            self._operations.accept_unwaited(operation, now)
        elif letter.result == "queued":
            self._operations.keep_elsewhere(operation, letter.position, _kept_at(peer, letter.mark))
        elif letter.result == "failed" and not letter.is_known:
            self._operations.forget(operation)
        return True

    def _take_outcome_of_mail(self, peer: str, letter: OutcomeLetter, now: Instant) -> None:
        box = self._boxes.get(letter.mark)
        # What was put there without a row, such as the reply to an assignment, has no other under its id.
        mail = None if box is None else box.under(letter.message_id) or box.oldest(letter.message_id)
        if box is None or mail is None:
            return
        if letter.result == "delivered" or (letter.result == "queued" and mail.operation is None):
            self._mailing.confirmed_elsewhere(mail, letter.recipient or letter.mark.rpartition(":")[2], now)
            self._mailing.offer(box, now)
        elif mail.is_offered and box.holder is not None and not box.holder.is_remote:
            return  # its address is at home here by now, and whoever holds it has it: a copy elsewhere comes back
        elif letter.result == "queued":
            if not self._is_at_home(letter.mark):  # else it is sent over from there
                self._mailing.handed_on(mail, peer, now)
                self._mailing.offer(box, now)
        elif not letter.is_known and peer in mail.posted_to and self._is_at_home(letter.mark):
            self._mailing.is_not_at(mail, peer, now)
        elif not mail.is_offered:
            return  # it is offered again anyhow
        elif letter.is_known or self._may_pass(letter):
            self._mailing.keep_for_later(mail, self._limits.peer_absent_ms, now)
        elif letter.reason == reasons.TOO_LATE:
            self._mailing.expired_elsewhere(mail, now)
        else:
            self._mailing.refused_elsewhere(mail, letter.reason, now)

    def _is_at_home(self, mark: str) -> bool:
        """Tell whether this marks an address that is at home here."""
        address = self._addresses.of_key(mark)
        return address is not None and address.home is None

    def _may_pass(self, letter: OutcomeLetter) -> bool:
        """Tell whether mail that was refused may be taken later; a home that knows nothing of it may have moved."""
        if letter.reason == reasons.SESSION_NOT_FOUND and self._addresses.of_key(letter.mark) is not None:
            return True
        return reasons.code_of(letter.reason) in _PASSING or letter.code == "away"

    def _take_withdrawn(self, peer: str, letter: WithdrawnLetter, now: Instant) -> None:
        asker = self._sessions.get(letter.asker)
        connection = None if asker is None else asker.connection
        if asker is not None and isinstance(connection, RemoteConnection) and connection.peer_id == peer:
            self._deciding.withdraw(asker, letter.message_id, now)

    def _take_notice(self, letter: NoticeLetter) -> None:
        session = self._sessions.get(letter.to)
        if session is not None and not session.is_remote and "queue" in session.features:
            frame = MessageFrame(letter.sender, letter.message, notice=decode(letter.notice, type=Notice))
            self._outbox.write(session.connection, frame)


def _address_of(target: Session) -> tuple[str, str] | None:
    """Return group and name of the address for which a stand-in receives."""
    return None if target.address is None else (target.address.group, target.address.name)


def _kept_at(peer: str, mark: str) -> str:
    """Return by what a target is marked of which a broker keeps the message: an address may move from there."""
    return mark if mark.startswith(PEER) else f"{PEER}{peer}:{mark}"


def _wording_of(group: str, name: str) -> str:
    """Return what tells two sends to an address to be the same, whoever holds it: it is no name of anybody."""
    return f"{group}/{name.lower()}/"


def broker_of(operation: Operation) -> str:
    """Return the broker that a message was brought to, or passed on to; empty: it is here."""
    target = operation.target or ""
    return target.removeprefix(PEER).partition(":")[0] if target.startswith(PEER) else operation.posted_to


def _note_answered(operation: Operation, peer: str, attempt: str) -> None:
    """Take note that a message waits here that came with this attempt: it may be handed on from now on."""
    process, place = place_of(attempt)
    key = peer, process
    answered = operation.answered_attempts or {}
    operation.answered_attempts = {**answered, key: max(place, answered.get(key, place))}


def _was_answered(operation: Operation, peer: str, attempt: str) -> bool:
    """Tell whether what comes is older than, or is, what was answered of the same process: it is a copy."""
    process, place = place_of(attempt)
    return place <= (operation.answered_attempts or {}).get((peer, process), (0, ""))


def _delivery_id(letter: SendLetter, peer: str) -> str:
    return sha256(encode([letter.sender.identity, letter.message_id, peer])).hexdigest()[:32]


def _is_whole(letter: SendLetter) -> bool:
    """Tell whether the message can be read and is the one that the letter names: under its id it is answered."""
    message = parse_message(letter.message)
    return message is not None and message.id == letter.message_id


def _read(fact: Arrived, kind: type[Letter]) -> Letter | None:
    try:
        return decode(fact.body, type=kind)
    except (DecodeError, ValidationError):
        return None


def wording_at_home(address: Address | None) -> tuple[str, str] | None:
    """Return group and name of an address, if this broker may tell others who acts under it."""
    if address is None or address.home is not None or address.is_of_broker:
        return None
    return address.group, address.name


def _sender_of(mail: Mail, identity: str, own: str, address: Address | None) -> RemoteName:
    """Return whoever sent mail, as it was then."""
    record = mail.record
    info = decode(record.sender_info)
    groups = tuple(info.get("groups", ()))
    return_hash = identity.partition(":")[2] if identity.startswith("return:") else None
    name = info.get("name")
    return RemoteName(
        record.sender_session,
        name if isinstance(name, str) and name else record.sender_session,
        groups,
        "active",
        own,
        session=record.sender_info,
        identity=identity,
        home_group=str(info.get("group", "")),
        return_hash=return_hash,
        acts_for=wording_at_home(address),
    )
