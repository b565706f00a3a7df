"""Keep mail from its holder here that may have arrived where its address was before (protocol 6.13).

    posted to its home --the address comes here--> in doubt --arrived there--> delivered
                                                      ^  |
                                                      |  +-- that broker has it not, or sends it over: offered here
                                                      +-- not heard, or it has it still: asked again

Rule 1: nothing is shown here that may be shown there too; while that broker cannot be asked it waits, and when its time
is over its sender is told that it is not known. Rule 2: what the same sender wrote after it waits behind it, no longer
than ``Limits.look_ms``. Rule 3: who was away when it was posted, and stays so until the cluster knows that the address
is here, will not show it: it hears of that before it finds its mail. Rule 4: what was never posted waits, as long, for
the older mail where the address was at home.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct

from intercom.core.clock import Instant
from intercom.core.homes import key_of
from intercom.core.looking import LOOK, LookedLetter, LookLetter
from intercom.core.records import ReadBodies

if TYPE_CHECKING:
    from intercom.core.abroad import Abroad
    from intercom.core.addresses import Address, Addresses
    from intercom.core.deadlines import Deadline
    from intercom.core.ground import Ground
    from intercom.core.mailboxes import Mail, Mailbox, Mailboxes
    from intercom.core.mailing import Mailing


class AskingAfter(Struct, frozen=True):
    """Remember about which mail a broker is asked while its text is read."""

    mail: Any
    peer: str
    box: Any = None
    """The mailbox that waits for older mail of that broker, if that is why it is asked."""


class InDoubt:
    """Ask what became of mail that was posted to another machine, once its address is at home here."""

    def __init__(
        self,
        ground: Ground,
        addresses: Addresses,
        boxes: Mailboxes,
        mailing: Mailing,
        abroad: Abroad,
        homes_before: Callable[[str], tuple[str, ...]],
    ) -> None:
        self._own = ground.identity.broker_id
        self._outbox = ground.outbox
        self._ledger = ground.ledger
        self._deadlines = ground.deadlines
        self._limits = ground.limits
        self._addresses = addresses
        self._boxes = boxes
        self._mailing = mailing
        self._abroad = abroad
        self._homes_before = homes_before
        self._numbers = count(1)
        self._asked: dict[str, AskingAfter] = {}
        """What others are asked, by the names of the questions."""
        self._names: dict[int, dict[str, str]] = {}
        """The newest question to each broker about each mail, by its number."""
        self._timers: dict[int, Deadline] = {}
        """When each mail is asked about again, by its number."""

    def came(self, address: Address, now: Instant) -> None:
        """Ask about all mail of an address whose home is here from now on."""
        box = self._boxes.get(address.key)
        if box is None:
            return
        for mail in box.in_order():
            self._begin(mail, now)
        peers = [
            peer
            for peer in self._homes_before(key_of(address.group, address.name))
            if not self._abroad.is_cut_off(peer)
        ]
        first = next((mail for mail in box.in_order() if mail.waits), None)
        if first is not None and peers:
            box.awaits = set(peers)
            self._deadlines.add(now.mono + self._limits.look_ms, self._await_no_longer, (box, box.awaits))
            for peer in peers:
                self._outbox.add(ReadBodies(AskingAfter(first, peer, box), (first.record.body_number,)))

    def recover(self, now: Instant) -> None:
        """Go on with what an earlier process posted and heard no outcome of."""
        for box in self._boxes.all():
            is_here = self._is_here(box.key)
            for mail in box.in_order():
                elsewhere = mail.record.elsewhere
                if elsewhere is not None:
                    mail.posted_to.update(elsewhere.posted_to)
                    mail.left_for.update(elsewhere.left_for)
                    mail.left_before = True
                    if is_here:
                        self._begin(mail, now)

    def _begin(self, mail: Mail, now: Instant) -> None:
        """Ask about mail whose address is here."""
        mail.left_for -= mail.posted_to  # it was there once
        mail.posted_to |= {peer for peer in mail.left_for if mail.left_before or not self._stays_away(peer)}
        self.look(mail, now)

    def _stays_away(self, peer: str) -> bool:
        """Tell whether a broker that was away is so still, as far as can be known."""
        return self._abroad.is_cut_off(peer) and not self._abroad.is_closed()

    def peer_seen(self, peer: str) -> None:
        """Take note that a broker is back, and finds what was left for it."""
        for box in self._boxes.all():
            for mail in box.in_order():
                if peer in mail.left_for:
                    mail.left_for.discard(peer)
                    if not self._is_here(box.key):  # else it has heard of that before
                        mail.posted_to.add(peer)

    def is_known(self, group: str, name: str, now: Instant) -> None:
        """Look in a moment at what waits for brokers that were away: the cluster knows that an address is here."""
        address = self._addresses.at(group, name)
        box = None if address is None else self._boxes.get(address.key)
        if box is not None:
            self._deadlines.add(now.mono + self._limits.look_ms, self._let_go_of, box)

    def _let_go_of(self, box: Mailbox, now: Instant) -> None:
        """Wait no longer for who stayed away until the address was here: it hears that before it finds its mail."""
        for mail in box.in_order() if self._is_here(box.key) else ():
            for peer in [each for each in mail.left_for & mail.posted_to if self._stays_away(each)]:
                self._mailing.is_not_at(mail, peer, now)

    def _is_here(self, mark: str) -> bool:
        address = self._addresses.of_key(mark)
        return address is not None and address.home is None

    def _await_no_longer(self, subject: tuple[Mailbox, set[str]], now: Instant) -> None:
        box, awaited = subject
        self._asked = {name: token for name, token in self._asked.items() if token.box is not box}
        if awaited and box.awaits is awaited:
            box.awaits = set()
            self._mailing.offer(box, now)

    def look(self, mail: Mail, now: Instant) -> None:
        """Ask about mail if it is in doubt."""
        if self._is_in_doubt(mail):
            self._ask_all(mail)
            self._arm(mail, self._limits.look_ms, now)

    def _is_in_doubt(self, mail: Mail) -> bool:
        box = self._boxes.get(mail.record.mailbox)
        is_there = box is not None and box.entries.get(mail.number) is mail
        return is_there and bool(mail.posted_to) and self._is_here(mail.record.mailbox)

    def _is_due(self, mail: Mail, now: Instant) -> None:
        self._timers.pop(mail.number, None)
        if not self._is_in_doubt(mail):
            self._forget(mail)
            return
        box = self._boxes.open(mail.record.mailbox)
        box.overdue.add(mail.number)
        self._mailing.offer(box, now)  # what waited behind it
        self._ask_all(mail)
        self._arm(mail, self._limits.peer_absent_ms, now)

    def _arm(self, mail: Mail, pause_ms: int, now: Instant) -> None:
        self._deadlines.cancel(self._timers.get(mail.number))
        self._timers[mail.number] = self._deadlines.add(now.mono + pause_ms, self._is_due, mail)

    def _ask_all(self, mail: Mail) -> None:
        for peer in sorted(mail.posted_to):
            self._ask(mail, peer)

    def _ask(self, mail: Mail, peer: str) -> None:
        if not self._abroad.is_cut_off(peer):
            self._outbox.add(ReadBodies(AskingAfter(mail, peer), (mail.record.body_number,)))

    def read(self, token: AskingAfter, numbers: tuple[int, ...], bodies: dict[int, bytes] | None, now: Instant) -> None:
        """Ask about mail whose text was read."""
        mail: Mail = token.mail
        body = None if bodies is None else bodies.get(mail.record.body_number)
        address = self._addresses.of_key(mail.record.mailbox)
        if body is None or address is None or not (self._is_in_doubt(mail) if token.box is None else token.box.awaits):
            return
        name = f"{self._abroad.process}.doubt.{next(self._numbers)}"
        if token.box is None:
            names = self._names.setdefault(mail.number, {})
            self._asked.pop(names.get(token.peer, ""), None)
            names[token.peer] = name
        self._asked[name] = token
        record, operation = mail.record, mail.operation
        identity = f"session:{record.sender_session}" if operation is None else operation.sender
        behind = address.group, address.name
        letter = LookLetter(name, record.message_id, identity, record.target, Raw(body), behind)
        # Behind what was posted, which may wait for its commit.
        self._abroad.post(token.peer, LOOK, f"{LOOK} {record.message_id}", letter, self._ledger.last_ticket)

    def _forget(self, mail: Mail) -> None:
        for name in self._names.pop(mail.number, {}).values():
            self._asked.pop(name, None)

    def heard(self, peer: str, letter: LookedLetter, now: Instant) -> None:
        """Take what a broker says of mail."""
        token = self._asked.get(letter.look)
        if token is None or token.peer != peer:
            return
        mail: Mail = token.mail
        if token.box is not None:
            del self._asked[letter.look]
            token.box.awaits.discard(peer)
            self._mailing.offer(token.box, now)
            return
        if not self._is_in_doubt(mail):
            self._forget(mail)
            return
        del self._asked[letter.look]
        if letter.result == "accepted":
            self._forget(mail)
            box = self._boxes.open(mail.record.mailbox)
            self._mailing.confirmed_elsewhere(mail, mail.record.mailbox, now)
            self._mailing.offer(box, now)
        elif letter.result in ("nothing", "another"):
            self._mailing.is_not_at(mail, peer, now)
        elif letter.passed_to == self._own:
            self._mailing.is_not_at(mail, peer, now)  # it was passed on all the way round, and is what waits here
        elif letter.passed_to:
            self._mailing.was_passed_on(mail, peer, letter.passed_to, now)
            self._ask(mail, letter.passed_to)
