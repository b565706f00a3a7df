"""Answer behind the mail that is to be sent over to where its address is at home now (protocol 6.13.7).

    asked by the new home about a message --nothing waits here to be sent over--> answered at once
                                         +-- all of it was posted, or ``Limits.look_ms`` is over --> answered behind it

Rule: what is posted to one broker arrives in its order, so that whoever waits for this answer has decided about the
older mail by then. Who asks is the home, or will be when that is heard here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from intercom.core.clock import Instant

if TYPE_CHECKING:
    from intercom.core.addresses import Address, Addresses
    from intercom.core.deadlines import Deadline
    from intercom.core.ground import Ground
    from intercom.core.mailboxes import Mailboxes


class Question(Struct, eq=False):
    """Hold what is answered later; ``answer`` does that."""

    peer: str
    address: str
    """Key of its mailbox."""
    answer: Callable[[Instant], None]
    deadline: Deadline | None = None


class SendingOver:
    """Hold the questions of other brokers that are answered behind mail."""

    def __init__(self, ground: Ground, addresses: Addresses, boxes: Mailboxes) -> None:
        self._deadlines = ground.deadlines
        self._limits = ground.limits
        self._addresses = addresses
        self._boxes = boxes
        self._questions: dict[str, list[Question]] = {}
        """In their order, by the keys of the mailboxes."""
        self._count = 0
        self._checks: set[str] = set()
        """Keys of the mailboxes that are looked at in a moment."""

    def waits(self, peer: str, group: str, name: str, answer: Callable[[Instant], None], now: Instant) -> bool:
        """Tell whether mail for this address is to be sent over to a broker first: then it is answered later."""
        address = self._addresses.at(group, name)
        if address is None or self._count >= self._limits.looks or self._is_sent(address, peer):
            return False
        question = Question(peer, address.key, answer)
        question.deadline = self._deadlines.add(now.mono + self._limits.look_ms, self._answer, question)
        self._questions.setdefault(address.key, []).append(question)
        self._count += 1
        return True

    def changed(self, address: Address, now: Instant) -> None:
        """Look again in a moment: mail was posted, with what else goes now, or the address has another home."""
        if address.key in self._questions and address.key not in self._checks:
            self._checks.add(address.key)
            self._deadlines.add(now.mono, self._check, address)

    def _check(self, address: Address, now: Instant) -> None:
        self._checks.discard(address.key)
        for question in list(self._questions.get(address.key, ())):
            if self._is_sent(address, question.peer):
                self._answer(question, now)

    def _is_sent(self, address: Address, peer: str) -> bool:
        """Tell whether nothing waits here that this broker is to be sent first."""
        if address.home is None:
            return False  # it will be heard in a moment that it is at home there
        box = self._boxes.get(address.key)
        waiting = [mail for mail in ([] if box is None else box.in_order()) if mail.confirmed_by is None]
        if address.home != peer:
            return not any(mail.is_offered or mail.waits for mail in waiting)
        return not any(mail.waits or (box is not None and mail.number in box.put_off) for mail in waiting)

    def _answer(self, question: Question, now: Instant) -> None:
        self._deadlines.cancel(question.deadline)
        questions = self._questions[question.address]
        questions.remove(question)
        if not questions:
            del self._questions[question.address]
        self._count -= 1
        question.answer(now)
