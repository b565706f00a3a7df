"""Know what sessions let through to them, and what the person lets through (protocol 15.2).

A session sets its own policy; it is part of what peers see of it, and is stored with that. The person sets one for an
address, or for whoever a session is; it outlives sessions and brokers. Where both say something the stricter counts: a
session can shut itself off further, and cannot open what the person has shut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.json import decode, encode

from intercom.core.clock import Instant
from intercom.core.features import POLICY
from intercom.core.journal import Journal
from intercom.core.ledger import Ledger
from intercom.core.records import PolicyRecord
from intercom.wire.attention import Policy, PolicyAction, PolicyRule

if TYPE_CHECKING:
    from intercom.core.sessions import Session

OWN_MEMBER = "inboundPolicy"
"""Member of the session object that holds what the session itself has set."""
PERSON_MEMBER = "personPolicy"
"""Member that says what the person has set for it; nobody else writes it."""
STRICTNESS: dict[PolicyAction, int] = {"accept": 0, "quiet": 1, "hold": 2, "refuse": 3}


class Sender(Struct, frozen=True):
    """Hold what a rule may know of a sender."""

    names: frozenset[str]
    """Its session id, its name and that of its address; names in lower case."""
    groups: tuple[str, ...]


class Inbound:
    """Judge senders by up to two policies."""

    __slots__ = ("own", "person")

    def __init__(self, own: Policy | None, person: Policy | None) -> None:
        self.own = own
        self.person = person

    def action_for(self, sender: Sender) -> PolicyAction:
        """Return what becomes of a message of this sender."""
        found = (_first_match(policy.rules, sender) for policy in (self.own, self.person) if policy is not None)
        return max(found, key=STRICTNESS.__getitem__, default="accept")


def _first_match(rules: Iterable[PolicyRule], sender: Sender) -> PolicyAction:
    for rule in rules:
        if isinstance(rule.sender, str) and not {rule.sender, rule.sender.lower()} & sender.names:
            continue
        if isinstance(rule.group, str) and rule.group not in sender.groups:
            continue
        return rule.action
    return "accept"


def sender_of(session: Session) -> Sender:
    """Return a session that is here as a sender."""
    names = {session.id}
    if session.name is not None:
        names.add(session.name.lower())
    if session.address is not None:
        names.add(session.address.name.lower())
    return Sender(frozenset(names), session.groups)


def sender_in(info: bytes) -> Sender:
    """Return the sender whose session object was kept with its mail."""
    members: dict[str, Any] = decode(info)
    name = members.get("name")
    names = {str(members.get("id", ""))} | ({name.lower()} if isinstance(name, str) else set())
    return Sender(frozenset(names), tuple(members.get("groups", ())))


def own_policy(info: dict[str, Any]) -> Policy | str | None:
    """Return the policy in a session object, None without one, or what is wrong with it."""
    wanted = info.get(OWN_MEMBER)
    if wanted is None:
        return None
    try:
        return convert(wanted, Policy)
    except ValidationError as error:
        return str(error)


class SetByPerson:
    """Hold one policy of the person; ``key`` is the party it is for."""

    __slots__ = ("policy", "record", "ticket")

    def __init__(self, record: PolicyRecord, policy: Policy, ticket: int = 0) -> None:
        self.record = record
        self.policy = policy
        self.ticket = ticket
        """Of the append that recorded it, in this process."""


class Policies:
    """Keep what the person has set, and tell of a session what it lets through."""

    def __init__(self, ledger: Ledger, journal: Journal, records: Iterable[PolicyRecord], limit: int) -> None:
        self._ledger = ledger
        self._journal = journal
        self._limit = limit
        self._set: dict[str, SetByPerson] = {}
        self._last_number = 0
        self.on_undone: Callable[[str], None] = lambda party: None
        """Is told of a party for which what was set could not be recorded."""
        for record in records:
            self._last_number = max(self._last_number, record.number)
            try:
                self._set[record.party] = SetByPerson(record, decode(record.policy, type=Policy))
            except ValidationError:  # written by a later version: shut is safer than open
                self._set[record.party] = SetByPerson(record, Policy([PolicyRule("hold")]))

    def __iter__(self) -> Iterator[SetByPerson]:
        return iter(list(self._set.values()))

    @property
    def is_full(self) -> bool:
        """Tell whether no further party may get a policy."""
        return len(self._set) >= self._limit

    def of_person(self, party: str) -> Policy | None:
        """Return what the person has set for a party."""
        found = self._set.get(party)
        return None if found is None else found.policy

    def attach(self, session: Session) -> None:
        """Let a session have the policies that are in force for it, and peers see them."""
        own = own_policy(session.info) if POLICY in session.features else None
        person = self.of_person(session.party)
        if person is not None:
            session.update(**{PERSON_MEMBER: to_builtins(person)})
        elif PERSON_MEMBER in session.info:
            session.drop(PERSON_MEMBER)
        session.inbound = None
        if isinstance(own, Policy) or person is not None:
            session.inbound = Inbound(own if isinstance(own, Policy) else None, person)

    def of_party(self, party: str, info: dict[str, Any] | None) -> Inbound | None:
        """Return what holds for a party that is away; ``info`` is how it was seen last."""
        own = None if info is None else own_policy(info)
        person = self.of_person(party)
        if person is None and not isinstance(own, Policy):
            return None
        return Inbound(own if isinstance(own, Policy) else None, person)

    def ticket_of(self, party: str, policy: Policy) -> int | None:
        """Return behind which append just this is set for a party; None: something else is, or nothing."""
        found = self._set.get(party)
        return None if found is None or found.policy != policy else found.ticket

    def set(self, party: str, policy: Policy | None, now: Instant) -> None:
        """Record what the person sets for a party; None takes it back."""
        before = self._set.get(party)
        if policy is None:
            if before is not None:
                del self._set[party]
                event = self._journal.event("policy.removed", before.record, now, is_gone=True)
                self._ledger.append((event,), self._undo, (party, before))
            return
        number = before.record.number if before is not None else self._last_number + 1
        self._last_number = max(self._last_number, number)
        record = PolicyRecord(number, party, encode(policy), now.wall)
        event = self._journal.event("policy.set", record, now)
        ticket = self._ledger.append((event,), self._undo, (party, before))
        self._set[party] = SetByPerson(record, policy, ticket)

    def _undo(self, subject: Any, now: Instant) -> None:
        party, before = subject
        if before is None:
            self._set.pop(party, None)
        else:
            self._set[party] = before
        self.on_undone(party)
