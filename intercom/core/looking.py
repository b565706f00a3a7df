"""Look at other brokers for an earlier acceptance of a message, before it is brought to somebody who has moved (D13).

    a message for one who was elsewhere lately --asked there--> accepted: delivered; queued; another: refused
                                               +-> nowhere, or not heard in time: decided as on one machine

Rule 1: it is asked only where the row of the message, or whoever held the identity of its target lately, is known to
have been, and where those who are asked passed it on to; whoever was nowhere else costs nothing. Rule 2: nobody waits
longer than ``Limits.look_ms``, and for a broker that cannot be reached not at all, nor when it cannot be any more; what
waits is charged to whoever sent it. Rule 3: to a broker it is only said that a message was accepted at a third one: if
it heard that it waits there, or is another, it might let go of it, and so might that one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Literal

from msgspec import UNSET, DecodeError, Raw, Struct, ValidationError
from msgspec.json import decode
from msgspec.structs import replace

from intercom.core.abroad import broker_of
from intercom.core.attempts import CONFLICT_CODE, Brought, Refusal, said_before
from intercom.core.clock import Instant
from intercom.core.holders import Holders, key_of_session
from intercom.core.homes import key_of
from intercom.core.peer_records import PEER, Arrived, Settle
from intercom.core.records import OperationState
from intercom.core.sending_over import SendingOver
from intercom.core.standins import RemoteConnection, identity_at
from intercom.wire import reasons
from intercom.wire.codec import parse_message
from intercom.wire.frames import Delivered, Message, Queued, Send, trim

if TYPE_CHECKING:
    from intercom.core.abroad import Abroad
    from intercom.core.addresses import Address
    from intercom.core.connections import Connection
    from intercom.core.deadlines import Deadline
    from intercom.core.deciding import Deciding
    from intercom.core.ground import Ground
    from intercom.core.mailboxes import Mailboxes
    from intercom.core.operation import Operation
    from intercom.core.operations import Operations
    from intercom.core.queueing import Away, Queueing
    from intercom.core.registry import Registry
    from intercom.core.sessions import Session

LOOK = "look"
LOOKED = "looked"
Result = Literal["nothing", "accepted", "queued", "reserved", "another"]


class LookLetter(Struct, frozen=True):
    """Ask what became of a message."""

    look: str
    """Names this look among all of every process; the answer brings it back."""
    message_id: str
    identity: str
    """By which its sender is known to whoever asks."""
    wording: str
    """What its sender called the target."""
    message: Raw
    behind: tuple[str, str] | None = None
    """Group and name of the address whose mail, as far as it waits there, is to be sent over before the answer."""


class LookedLetter(Struct, frozen=True):
    """Say it."""

    look: str
    result: Result
    position: int = 1
    passed_to: str = ""
    """The broker that has it in the place of whoever says so."""


class _Look:
    """Hold one message that waits for what others say."""

    def __init__(
        self,
        connection: Connection,
        sender: Session,
        frame: Send,
        place: tuple[int | str, str],
        operation: Operation | None,
        behind: tuple[str, str] | None,
        was_sent_over: bool,
        began: int,
        musts: tuple[str, ...] | None,
    ) -> None:
        self.place = place
        self.behind = behind
        """Group and name of the address whose older mail is waited for."""
        self.was_sent_over = was_sent_over
        """It waited where that address was before: it is older than what its sender writes to it here."""
        self.began = began
        """Monotonic ms."""
        self.musts = musts
        """Who has to be heard, and whoever else is asked, since it may have been shown there; None: nobody has to."""
        self.connection = connection
        self.session = sender
        self.frame = frame
        self.size = len(frame.message)
        self.operation = operation
        self.peers: set[str] = set()
        """Those that were asked and have not answered."""
        self.asked: set[str] = set()
        self.letter: LookLetter | None = None
        self.is_ready = False
        """It waits for others of its sender only."""
        self.heard: list[LookedLetter] = []
        self.deadline: Deadline | None = None


class Looking:
    """Ask those who held a target before; ``is_near``: the engine can be asked, as far as is known."""

    kinds = frozenset({LOOK, LOOKED})

    def __init__(
        self,
        ground: Ground,
        registry: Registry,
        operations: Operations,
        boxes: Mailboxes,
        deciding: Deciding,
        queueing: Queueing,
        abroad: Abroad,
        is_near: Callable[[], bool],
    ) -> None:
        self._own = ground.identity.broker_id
        self._outbox = ground.outbox
        self._deadlines = ground.deadlines
        self._limits = ground.limits
        self._ledger = ground.ledger
        self._addresses = registry.addresses
        self._operations = operations
        self._deciding = deciding
        self._abroad = abroad
        self._numbers = count(1)
        self._looks: dict[str, _Look] = {}
        self._of_message: dict[tuple[int | str, str], str] = {}
        """By the connection or the broker that it came from, and message id."""
        self._by_sender: dict[str, dict[str, _Look]] = {}
        self._bytes = 0
        self._looked: tuple[int | str, str] | None = None
        """What is decided at this moment and was looked for."""
        self._unheard: dict[str, list[str]] = {}
        """What waits until it is heard who held its target before, by the key of that."""
        self.on_other: Callable[[str, LookedLetter, Instant], None] = lambda peer, letter, now: None
        """Is told of what a broker says of what was asked by somebody else here."""
        self.holders = Holders(ground, registry, is_near, self._is_known)
        self.sending_over = SendingOver(ground, registry.addresses, boxes)
        abroad.look_for_old = self._begin_for_old
        deciding.look = self._begin
        queueing.look = self._begin_for_away
        deciding.is_out_of_reach = self._is_out_of_reach

    # --- to ask -----------------------------------------------------------------------------------------

    def _begin(
        self, connection: Connection, frame: Send, target: Session, operation: Operation | None, now: Instant
    ) -> Refusal | bool:
        """Ask where a message to somebody here may have been accepted; tell whether it waits for that, or may not."""
        key = key_of_session(target) if operation is None and target.was_at is None else None
        address = target.address if target.holds_address else None
        return self._look(connection, frame, key, target.was_at or (), address, operation, now)

    def _begin_for_away(
        self, connection: Connection, frame: Send, away: Away, operation: Operation | None, now: Instant
    ) -> Refusal | bool:
        """Do the same for a message to somebody who is away, and whose mailbox is here."""
        key = self.holders.key_of_away(away) if operation is None else None
        return self._look(connection, frame, key, (), self._addresses.of_key(away.key), operation, now)

    def _begin_for_old(
        self,
        connection: RemoteConnection,
        frame: Send,
        address: Address,
        others: set[str],
        is_old: bool,
        operation: Operation | None,
        now: Instant,
    ) -> Refusal | bool:
        """Do the same for a letter that others may have had, or that is older than the home of its address here."""
        key = key_of(address.group, address.name) if is_old else None
        return self._look(connection, frame, key, tuple(others), address, operation, now, is_strict=True)

    def _look(
        self,
        connection: Connection,
        frame: Send,
        key: str | None,
        others: tuple[str, ...],
        address: Address | None,
        operation: Operation | None,
        now: Instant,
        *,
        is_strict: bool = False,
    ) -> Refusal | bool:
        message, sender = parse_message(frame.message), connection.session
        assert message is not None and sender is not None, "it is decided about"
        place = _place_of(connection, message.id)
        if place == self._looked:
            return False
        if operation is not None and not is_strict:
            peer = broker_of(operation)
            others = (peer,) if peer else ()
        heard = () if key is None else self.holders.of(key, now)
        peers = None if heard is None else self._reachable((*others, *heard), connection, is_strict=is_strict)
        if peers is not None and not peers:
            return Refusal("D9", reasons.UNCERTAIN_ELSEWHERE) if is_strict else False
        if operation is not None and operation.unconfirmed is not None:
            operation.unconfirmed.waiter.settle()  # an earlier attempt is owed no answer any more
        if place in self._of_message:
            self._take(self._of_message[place])
        full = self._full(sender, len(frame.message))
        if full is not None:
            return Refusal("D13", reasons.capacity(full, self._limits.look_ms))
        name = self._of_message[place] = f"{self._abroad.process}.{next(self._numbers)}"
        kept = replace(frame, message=frame.message.copy())
        behind, was_sent_over = _address_of(address, frame, message), self._was_sent_over(connection, message.id)
        look = self._looks[name] = _Look(
            connection, sender, kept, place, operation, behind, was_sent_over, now.mono, others if is_strict else None
        )
        self._by_sender.setdefault(sender.id, {})[name] = look
        self._bytes += look.size
        look.deadline = self._deadlines.add(now.mono + self._limits.look_ms, self._is_due, name)
        if peers is None:
            assert key is not None, "only what has a key is not heard of yet"
            self._unheard.setdefault(key, []).append(name)
        else:
            self._ask(name, look, peers)
        return True

    def _was_sent_over(self, connection: Connection, message_id: str) -> bool:
        return isinstance(connection, RemoteConnection) and self._abroad.was_forwarded(connection.peer_id, message_id)

    def _reachable(self, others: tuple[str, ...], connection: Connection, *, is_strict: bool) -> set[str]:
        """Return whom to ask of those who may know of a message; ``is_strict``: nobody, unless all can be asked."""
        peers = set(others)
        if isinstance(connection, RemoteConnection) and not is_strict:
            peers.discard(connection.peer_id)  # it knows what it has
        reachable = {peer for peer in peers if not self._abroad.is_cut_off(peer)}
        return set() if is_strict and reachable != peers else reachable

    def _is_out_of_reach(self, operation: Operation) -> bool:
        peer = broker_of(operation)
        return peer != "" and self._abroad.is_cut_off(peer)

    def _ask(self, name: str, look: _Look, peers: set[str]) -> None:
        look.peers, look.asked = peers, set(peers)
        message = parse_message(look.frame.message)
        assert message is not None, "it was parsed before it was to be looked for"
        frame = look.frame
        wording = frame.to if frame.logical_target is UNSET else frame.logical_target
        if isinstance(frame, Brought):
            wording = frame.wording
        identity = look.session.sender_identity
        look.letter = LookLetter(name, message.id, identity, wording, frame.message, look.behind)
        for peer in sorted(peers):
            self._post(peer, look.letter)

    def _post(self, peer: str, letter: LookLetter) -> None:
        self._abroad.post(peer, LOOK, f"{LOOK} {letter.message_id}", letter, 0)

    def _may_ask(self, peer: str, look: _Look) -> bool:
        """Tell whether somebody may be asked to whom a message was passed on."""
        is_from_there = isinstance(look.connection, RemoteConnection) and look.connection.peer_id == peer
        return bool(peer) and not (
            peer == self._own or peer in look.asked or is_from_there or self._abroad.is_cut_off(peer)
        )

    def _is_known(self, key: str, now: Instant) -> None:
        """Ask those who held a target of which that is known now, or decide about what waited for that."""
        for name in self._unheard.pop(key, ()):
            look = self._looks.get(name)
            if look is None:
                continue
            known = (*(look.musts or ()), *(self.holders.of(key, now) or ()))
            peers = self._reachable(known, look.connection, is_strict=look.musts is not None)
            if peers:
                self._ask(name, look, peers)
            else:
                self._settle_in_turn(name, look, now)

    def _full(self, sender: Session, size: int) -> str | None:
        """Name the bound that one more message of this sender would break."""
        limits = self._limits
        mine = self._by_sender.get(sender.id, {})
        if (
            len(mine) >= limits.looks_per_session
            or size + sum(look.size for look in mine.values()) > limits.look_bytes_per_session
        ):
            return "too many messages of this sender wait for what other machines say of them"
        if len(self._looks) >= limits.looks or self._bytes + size > limits.look_bytes:
            return "too many messages wait for what other machines say of them"
        return None

    def _take(self, name: str) -> _Look:
        """Take out a message that waits; the caller answers for it."""
        look = self._looks.pop(name)
        self._deadlines.cancel(look.deadline)
        mine = self._by_sender[look.session.id]
        del mine[name]
        if not mine:
            del self._by_sender[look.session.id]
        self._bytes -= look.size
        del self._of_message[look.place]
        return look

    def sender_left(self, session: Session) -> None:
        """Drop what a departing session wanted to send; what another broker brought is decided all the same."""
        if not session.is_remote:
            for name in list(self._by_sender.get(session.id, ())):
                self._take(name)

    def _is_due(self, name: str, now: Instant) -> None:
        look = self._looks[name]
        look.deadline = None
        self._settle(name, look, now)

    # --- letters ----------------------------------------------------------------------------------------

    def arrived(self, fact: Arrived, now: Instant) -> None:
        """Take what another broker asks, or says."""
        try:
            if fact.kind == LOOK:
                self._asked(fact.peer, decode(fact.body, type=LookLetter), now)
            else:
                self._hear(fact.peer, decode(fact.body, type=LookedLetter), now)
        except (DecodeError, ValidationError):
            pass
        self._outbox.add(Settle(fact.arrival))

    def _asked(self, peer: str, letter: LookLetter, now: Instant) -> None:
        answer = partial(self._answer, peer, letter)
        operation = self._operations.find(letter.message_id, now)
        is_known = operation is not None and operation.state is not OperationState.QUEUED
        if letter.behind is None or is_known or not self.sending_over.waits(peer, *letter.behind, answer, now):
            answer(now)

    def _answer(self, peer: str, letter: LookLetter, now: Instant) -> None:
        operation = self._operations.find(letter.message_id, now)
        message = parse_message(letter.message)
        result: Result = "nothing"
        position = 1
        if operation is not None and message is not None:
            result = self._result(operation, peer, letter, message)
            position = operation.position or 1
        if result == "nothing" and self._abroad.has_arrived(letter.message_id):
            result = "reserved"
        after = 0 if operation is None else operation.ticket
        if letter.behind is not None:
            after = self._ledger.last_ticket  # of what was sent over, which may wait for its commit
        passed_to = broker_of(operation) if operation is not None and result == "reserved" else ""
        answer = LookedLetter(letter.look, result, position, passed_to)
        self._abroad.post(peer, LOOKED, f"{LOOKED} {letter.message_id}", answer, after)

    def _result(self, operation: Operation, peer: str, letter: LookLetter, message: Message) -> Result:
        identities = set(self._as_known_here(peer, letter.identity))
        is_same = any(
            self._operations.digest(wording, message, identity, None) == operation.signature
            for wording in ("", letter.wording)
            for identity in (None, *identities)
        )
        if not is_same:
            return "another" if operation.sender in identities else "nothing"
        if operation.state is OperationState.ACCEPTED:
            return "accepted"
        return "queued" if operation.state is OperationState.QUEUED else "reserved"

    def _as_known_here(self, peer: str, identity: str) -> Iterator[str]:
        """Yield by what a sender may be known here of which a peer says that it is known there by this."""
        yield identity_at(peer, identity)
        if identity.startswith(PEER):
            yield identity  # of a third broker's session
            yield identity.removeprefix(f"{PEER}{self._own}:")

    def _hear(self, peer: str, letter: LookedLetter, now: Instant) -> None:
        look = self._looks.get(letter.look)
        if look is None:
            self.on_other(peer, letter, now)
        if look is None or peer not in look.peers:
            return
        look.peers.discard(peer)
        if look.letter is not None and self._may_ask(letter.passed_to, look):
            look.peers.add(letter.passed_to)
            look.asked.add(letter.passed_to)
            self._post(letter.passed_to, look.letter)
            return
        look.heard.append(letter)
        if letter.result in ("accepted", "another"):
            self._settle(letter.look, look, now)
        elif self._is_vain(look):
            self._settle_in_turn(letter.look, look, now)

    # --- how the way is ---------------------------------------------------------------------------------

    def cut_off(self, now: Instant) -> None:
        """Let nothing wait for brokers that cannot be reached any more."""
        for name, look in list(self._looks.items()):
            if look.letter is not None and self._is_vain(look) and self._looks.get(name) is look:
                self._settle_in_turn(name, look, now)

    def _is_vain(self, look: _Look) -> bool:
        """Tell whether nobody who was asked can be heard any more."""
        return all(self._abroad.is_cut_off(peer) for peer in look.peers)

    # --- what follows -----------------------------------------------------------------------------------

    def _settle_in_turn(self, name: str, look: _Look, now: Instant) -> None:
        """Go on with a message of which all is heard, but not before an older one of its sender for this address."""
        look.is_ready = True
        mine = [each for each in self._by_sender[look.session.id].values() if each.behind == look.behind]
        older = [each for each in mine[: mine.index(look)] if each.was_sent_over == look.was_sent_over]
        if not look.was_sent_over:
            older += [each for each in mine if each.was_sent_over]
        if look.behind is None or not older:
            self._settle(name, look, now)

    def left(self, address: Address, now: Instant) -> None:
        """Wait no longer for the mail of an address that is at home elsewhere by now."""
        for name, look in list(self._looks.items()):
            if look.behind == (address.group, address.name) and self._looks.get(name) is look:
                self._settle(name, look, now)

    def _settle(self, name: str, look: _Look, now: Instant) -> None:
        self._go_on(name, look, now)
        for younger_name, younger in list(self._by_sender.get(look.session.id, {}).items()):
            if younger.is_ready and self._looks.get(younger_name) is younger:
                self._settle_in_turn(younger_name, younger, now)

    def _may_be_taken(self, look: _Look) -> bool:
        """Tell whether nobody who was asked has shown what a letter brings, or will."""
        assert isinstance(look.connection, RemoteConnection), "it came with a letter"
        known = {*look.asked, look.connection.peer_id, self._own}
        return (
            bool(look.asked)
            and not look.peers
            and all(letter.result != "reserved" or letter.passed_to in known for letter in look.heard)
        )

    def _go_on(self, name: str, look: _Look, now: Instant) -> None:
        self._take(name)
        message = parse_message(look.frame.message)
        assert message is not None, "it was parsed before it was asked for"
        is_from_peer = isinstance(look.connection, RemoteConnection)
        heard = {letter.result: letter for letter in look.heard}
        operation = look.operation
        if operation is not None and not self._operations.is_present(operation):
            operation = None
        if "accepted" in heard and (look.musts is not None or message.expects_reply is not True):
            if operation is not None:
                self._abroad.accepted_elsewhere(operation, now)
            self._deciding.settle(look.connection, Delivered(message.id, look.frame.attempt_id), operation)
        elif look.musts is not None and not self._may_be_taken(look):
            refusal = Refusal("D9", reasons.UNCERTAIN_ELSEWHERE)
            self._deciding.refuse(look.connection, message.id, look.frame.attempt_id, refusal)
        elif "another" in heard and not is_from_peer:
            refusal = Refusal("D13", reasons.conflict(message.id), CONFLICT_CODE)
            self._deciding.refuse(look.connection, message.id, look.frame.attempt_id, refusal)
        elif "queued" in heard and not is_from_peer:
            queued = Queued(message.id, trim(look.frame.to), heard["queued"].position, look.frame.attempt_id)
            self._deciding.settle(look.connection, queued, operation)
        else:
            if operation is None or look.musts is not None:
                pass  # its row stays as it is until it is decided
            elif heard.keys() == {"nothing"} and not look.peers:
                self._abroad.never_arrived(operation, now)
            elif isinstance(look.connection, RemoteConnection):
                peer = look.connection.peer_id
                if any(letter.passed_to == peer for letter in look.heard):
                    self._abroad.was_passed_on(operation, peer)
            self._looked = look.place
            try:
                if isinstance(look.connection, RemoteConnection):
                    self._abroad.decide_again(look.connection.peer_id, message.id, now)
                else:
                    self._deciding.send(look.connection, said_before(look.frame, now.mono - look.began), now)
            finally:
                self._looked = None


def _place_of(connection: Connection, message_id: str) -> tuple[int | str, str]:
    """Return by what the newest attempt of a message is known among all that wait."""
    source = connection.peer_id if isinstance(connection, RemoteConnection) else connection.number
    return source, message_id


def _address_of(address: Address | None, frame: Send, message: Message) -> tuple[str, str] | None:
    """Return group and name of the address at home here whose mail a message may not overtake, if there is one."""
    may_overtake = frame.queue_if_away is not True or message.expects_reply is True or message.reply_to is not UNSET
    if may_overtake or address is None or address.home is not None or address.is_of_broker:
        return None
    return address.group, address.name
