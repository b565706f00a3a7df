"""Let every address have one home in the whole cluster, and one holder: at its home (protocol 6.13).

    new --claimed--> here --claimed by another broker, whose holder showed the token--> elsewhere: its mail is sent over
                      ^                                                                    |
                      +------------------ claimed, by a holder that showed the token ------+

Rule 1: the engine decides between two claims; whoever lost hears who won, and decides again. Rule 2: nobody waits for
the engine longer than ``Limits.claim_ms``, and nothing on this machine ends because it cannot be reached: what was
begun without it is claimed later. Rule 3: of two brokers that began an address under different tokens the one that the
engine heard first has it: the holder at the other is replaced, and its mail follows the address. Rule 4: until a
process has heard where all addresses are its rows may be old: a registration waits for that, as long as it may come in
time, and whoever goes on without it is the newest holder. A session that only comes back is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import sha256
from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct
from msgspec.json import encode
from msgspec.structs import replace

from intercom.core import features
from intercom.core.addresses import Address, proves, token_hash_of
from intercom.core.claims import Claims
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.invocation_targets import is_address_id, key_of_address
from intercom.core.parting import Parting
from intercom.core.peer_records import (
    AddressClaimed,
    AddressesKnown,
    AddressHome,
    AddressSeen,
    ClaimAddress,
    DropAddress,
)
from intercom.core.records import SessionState
from intercom.core.sessions import home_group_of, memberships_of
from intercom.wire.frames import Register, trim
from intercom.wire.mail import AddressClaim

if TYPE_CHECKING:
    from intercom.core.ground import Ground
    from intercom.core.registry import Registry

_KEYS = 4_096
"""So many keys of addresses are kept that were worked out."""


@lru_cache(maxsize=_KEYS)
def key_of(group: str, name: str) -> str:
    """Return the key of an address in the engine; it tells nothing of the name."""
    return sha256(encode([group, name.lower()])).hexdigest()[:40]


class _Held(Struct, eq=False):
    """Hold a registration that waits for its claim."""

    connection: Any
    frame: Any
    claim: AddressClaim
    key: str
    number: int
    deadline: Any = None


class Homes:
    """Know the homes of all addresses, and claim them.

    Args:
        is_on: tells whether the engine can be reached.
        is_near: tells whether it can, or the first contact with it may still come in time.
        resume: goes on with a registration, which was held.
        left: is told of each address whose home was here and is not any more.
        came: is told of each address whose home is here from now on.
        aimed: is told of each address whose home is elsewhere, when that is new or has changed.
        moved: is told of each address that is at home at another broker than this one by now.
    """

    def __init__(
        self,
        ground: Ground,
        registry: Registry,
        claims: Claims,
        parting: Parting,
        is_on: Callable[[], bool],
        is_near: Callable[[], bool],
        resume: Callable[[Connection, Register, Instant], None],
        left: Callable[[Address, Instant], None],
        came: Callable[[Address, Instant], None],
        aimed: Callable[[Address, Instant], None],
        noted: Callable[[AddressHome, str, Instant], None],
    ) -> None:
        self._own = ground.identity.broker_id
        self._outbox = ground.outbox
        self._deadlines = ground.deadlines
        self._limits = ground.limits
        self._connections = ground.connections
        self._addresses = registry.addresses
        self._lifecycle = registry.lifecycle
        self._known_claims = claims
        self._parting = parting
        self._is_on = is_on
        self._is_near = is_near
        self._resume = resume
        self._left = left
        self._came = came
        self._aimed = aimed
        self._noted = noted
        self._numbers = count(1)
        self._seen: dict[str, AddressHome] = {}
        self._by_name: dict[str, dict[str, AddressHome]] = {}
        self._is_known = False
        self._was_known = False
        """This process has heard once where all addresses are."""
        self._held: dict[int, _Held] = {}
        """By the number of the connection."""
        self._going_on: Connection | None = None
        """Whose registration waits no more."""
        self._claims: dict[int, _Held | Address] = {}
        """What was claimed, and is not decided."""
        self._publishing: dict[str, int] = {}
        """Keys that are being published, by the numbers of the claims."""
        self._ahead: set[str] = set()
        """Keys of the addresses whose newest holder came here while the engine could not say so to the others."""

    # --- what the cluster knows -------------------------------------------------------------------------

    def named(self, name: str, now: Instant) -> None:
        """Enter the addresses of this name that are at home elsewhere and not known here."""
        for seen in list(self._by_name.get(trim(name).lower(), {}).values()):
            if seen.home != self._own and seen.token_hash and self._addresses.at(seen.group, seen.name) is None:
                self._enter(seen, now)

    def all_named(self, name: str) -> list[Address]:
        """Return the addresses of this name that were used here, wherever they are at home."""
        return [address for address in self._addresses.named(name) if not address.is_of_broker]

    def elsewhere(self, groups: Iterable[str] | None) -> list[AddressHome]:
        """Return the addresses at home at other brokers that are reachable from one of these groups; None: all."""
        within = None if groups is None else frozenset(groups)
        recorded = [
            AddressHome("", address.name, address.group, address.groups, address.token_hash or "", home)
            for address in self._addresses
            if (home := address.home) is not None and key_of(address.group, address.name) not in self._seen
        ]  # nothing was heard of them since this broker began
        return [
            each
            for each in (*self._seen.values(), *recorded)
            if each.home != self._own and each.token_hash and (within is None or not within.isdisjoint(each.groups))
        ]

    def at(self, group: str, name: str, home: str, groups: tuple[str, ...], now: Instant) -> Address | None:
        """Return the address that a session at ``home`` holds; None: as far as is known here it is at home here."""
        address = self._addresses.at(group, name)
        if address is None:
            seen = self._seen.get(key_of(group, name))
            found = AddressHome("", name, group, groups, "", home) if seen is None else seen
            address = self._enter(found, now) if found.home != self._own else None
        return None if address is None or address.home is None else address

    def home_of(self, target: str) -> str | None:
        """Return the broker at which the address is at home that every broker knows by this id; None: nobody knows."""
        seen = self._seen.get(key_of_address(target)) if is_address_id(target) else None
        if seen is None:
            return None
        address = self._addresses.at(seen.group, seen.name)
        if address is None:
            return None if seen.home == self._own else seen.home  # there nobody came
        return address.home or self._own

    def known_as(self, group: str, name: str) -> Address | None:
        """Return the address with this name, wherever it is at home."""
        return self._addresses.at(group, name)

    def _enter(self, seen: AddressHome, now: Instant) -> Address:
        token_hash = seen.token_hash or None
        address = self._addresses.elsewhere(seen.group, seen.name, token_hash, seen.groups, seen.home, now)
        self._aimed(address, now)
        return address

    def seen(self, fact: AddressSeen, now: Instant) -> None:
        """Take note of where an address is at home now."""
        known = self._seen.pop(fact.key, None)
        if known is not None:
            self._by_name.get(known.name.lower(), {}).pop(fact.key, None)
        found = fact.address
        if found is not None:
            if known is not None and known.revision > found.revision:
                found = known  # what was won is known before it is told
            self._note(found, known, now)
            self._compare(found, now)
            return
        self._known_claims.forgotten(fact.key)
        if known is not None and known.home == self._own:
            address = self._addresses.at(known.group, known.name)
            if address is not None and address.home is None:
                self._publish(address, now)

    def _note(self, seen: AddressHome, before: AddressHome | None, now: Instant) -> None:
        home_before = "" if before is None else before.home
        self._known_claims.noted(seen, home_before)
        self._noted(seen, home_before, now)
        self._seen[seen.key] = seen
        self._by_name.setdefault(seen.name.lower(), {})[seen.key] = seen

    def _compare(self, seen: AddressHome, now: Instant) -> None:
        """Let an address here be as the cluster says."""
        address = self._addresses.at(seen.group, seen.name)
        if address is None:
            return
        if address.home is None:
            if seen.home == self._own:
                self._ahead.discard(seen.key)
                self._publish(address, now)  # what it was claimed with may say less than is known by now
            elif seen.key not in self._publishing and seen.key not in self._ahead:
                self._lost(address, seen, now)
        elif seen.home == self._own:
            if not any(isinstance(claim, _Held) and claim.key == seen.key for claim in self._claims.values()):
                self._home_is_here(address, now)  # an earlier process claimed it, and did not hear that it won
        elif (address.home, address.token_hash, address.groups) != (seen.home, seen.token_hash or None, seen.groups):
            is_moved = address.home != seen.home
            address.home, address.token_hash, address.groups = seen.home, seen.token_hash or None, seen.groups
            self._addresses.change(address, "address.rehomed", now)
            if is_moved:
                self._aimed(address, now)

    def _lost(self, address: Address, seen: AddressHome, now: Instant) -> None:
        """Let the mailbox go where the rightful holder is now, and let its token be the one that opens the address."""
        if not seen.token_hash:
            return  # whose it is will be told
        if self._parting.holds_up(address, now):
            return  # it is as if this was heard a moment later
        if address.token_hash != seen.token_hash:
            self._outbox.note("address_lost", address=address.name, group=address.group, home=seen.home)
            address.token_hash = seen.token_hash
        self._ahead.discard(seen.key)
        address.home, address.groups = seen.home, seen.groups
        self._addresses.change(address, "address.rehomed", now)
        self._left(address, now)
        self._aimed(address, now)

    def look_again(self, address: Address, now: Instant) -> None:
        """Let an address be as the cluster says whose holder was waited for."""
        seen = self._seen.get(key_of(address.group, address.name))
        if seen is not None:
            self._compare(seen, now)
        else:
            self._parting.forget(address)
            self._publish(address, now)

    def _home_is_here(self, address: Address, now: Instant) -> None:
        address.home = None
        self._came(address, now)
        self._addresses.change(address, "address.rehomed", now)

    # --- what is at home here ---------------------------------------------------------------------------

    def known(self, fact: AddressesKnown, now: Instant) -> None:
        """Forget the homes that the engine does not hold any more."""
        self._is_known = self._was_known = True
        for key in self._seen.keys() - fact.keys:
            self.seen(AddressSeen(key, None), now)
        self._publishing.clear()
        self.publish(now)

    def publish(self, now: Instant) -> None:
        """Publish what the cluster does not know, or knows otherwise, of the addresses that are at home here."""
        if not self._may_claim:
            return
        for address in self._addresses.here:
            self._publish(address, now)
        for seen in list(self._seen.values()):
            if seen.home == self._own and self._addresses.at(seen.group, seen.name) is None:
                self._outbox.add(DropAddress(seen))
        self.wait_no_longer(now)

    def changed(self, address: Address, now: Instant) -> None:
        """Publish an address that has changed."""
        self._publish(address, now)

    def forgotten(self, address: Address) -> None:
        """Let the cluster forget an address that has given way."""
        seen = self._seen.get(key_of(address.group, address.name))
        if seen is not None and seen.home == self._own and self._is_on():
            self._outbox.add(DropAddress(seen))

    def _publish(self, address: Address, now: Instant) -> None:
        key = key_of(address.group, address.name)
        if not self._may_claim or address.is_of_broker or address.token_hash is None or key in self._publishing:
            return
        if self._parting.waits_for(address):
            return
        seen = self._seen.get(key)
        if seen is not None and seen.home != self._own and seen.token_hash != address.token_hash:
            self._lost(address, seen, now)
            return
        wanted = AddressHome(key, address.name, address.group, address.groups, address.token_hash, self._own)
        if seen is not None and replace(seen, revision=0, after=0) == wanted:
            return
        if seen is not None and seen.home != self._own and address.holder is None:
            self._lost(address, seen, now)
            return
        number = self._publishing[key] = next(self._numbers)
        self._claims[number] = address
        self._outbox.add(ClaimAddress(number, replace(wanted, revision=0 if seen is None else seen.revision)))

    @property
    def _may_claim(self) -> bool:
        return self._is_known and self._is_on()

    def cut_off(self, now: Instant) -> None:
        """Let nobody wait for what the engine would have said."""
        self._is_known = False
        self._publishing.clear()
        claims, self._claims = self._claims, {}
        for claim in claims.values():
            if isinstance(claim, _Held):
                self._go_on_without(claim, now)

    # --- registrations ----------------------------------------------------------------------------------

    def hold(self, connection: Connection, frame: Register, now: Instant) -> bool:
        """Hold a registration whose address has to be claimed first; tell whether it is held."""
        if connection.number in self._held:
            return True  # once more, while the first one is decided
        claim = _claim_of(frame)
        if claim is None or connection is self._going_on:
            return False
        held = _Held(connection, frame, claim, key_of(home_group_of(frame), trim(claim.name)), next(self._numbers))
        must_wait = not self._may_claim and self._is_near() and not self._is_back(held)
        if not must_wait and not self._begin(held, now):
            return False
        held.deadline = self._deadlines.add(now.mono + self._limits.claim_ms, self._is_late, held)
        self._held[connection.number] = held
        return True

    def wait_no_longer(self, now: Instant) -> None:
        """Go on with the registrations that waited to hear where all addresses are: it is known, or comes too late."""
        for held in [each for each in self._held.values() if each.number not in self._claims]:
            if held.connection.number not in self._connections or not self._begin(held, now):
                self._go_on(held, now)

    def _begin(self, held: _Held, now: Instant) -> bool:
        """Claim the address of a registration, if that has to be decided elsewhere; tell whether it does."""
        if not self._may_claim:
            self._be_ahead(held, now)
            return False
        claim, frame = held.claim, held.frame
        group, name = home_group_of(frame), trim(claim.name)
        seen, address = self._seen.get(held.key), self._addresses.at(group, name)
        groups = memberships_of(frame.session)
        is_here = address is not None and address.home is None and not self._parting.waits_for(address)
        if (seen is not None and seen.home == self._own) or is_here:
            return False
        if seen is None:
            # With the digest at once: its holder may be at another machine before the next word of it is heard there.
            wanted = AddressHome(held.key, name, group, groups, token_hash_of(claim), self._own)
        else:
            if address is None:
                address = self._enter(seen, now)
            if not proves(_token_of(claim), seen.token_hash) or not _would_hold(claim, address):
                return False  # it is refused, or acts under the address, as everywhere
            wanted = replace(seen, home=self._own, groups=groups)
        self._claims[held.number] = held
        self._outbox.add(ClaimAddress(held.number, wanted))
        return True

    def _be_ahead(self, held: _Held, now: Instant) -> None:
        """Let a registration that goes on here be that of the newest holder, if it may hold its address at all."""
        claim = held.claim
        seen = self._seen.get(held.key)
        address = self._addresses.at(home_group_of(held.frame), trim(claim.name))
        if address is None and seen is not None and seen.home != self._own:
            address = self._enter(seen, now)
        if not _would_hold(claim, address) or self._is_back(held):
            return
        if address is not None and address.token_hash and not proves(_token_of(claim), address.token_hash):
            return
        if address is not None and address.home is not None:
            self._ahead.add(held.key)
            self._home_is_here(address, now)
        elif not self._was_known:
            self._ahead.add(held.key)  # whoever holds it elsewhere, which is not heard of yet, came before

    def _is_back(self, held: _Held) -> bool:
        """Tell whether a session comes back to its address, as far as is known here, which an earlier process knew."""
        frame, address = held.frame, self._addresses.at(home_group_of(held.frame), trim(held.claim.name))
        known = self._lifecycle.get(frame.preferred_session_id) if frame.preferred_session_id is not UNSET else None
        return (
            address is not None
            and address.home is None
            and known is not None
            and known.state is not SessionState.CLOSED
            and known.mailbox_key == address.key
            and known.is_owned_by(frame.owner_token if isinstance(frame.owner_token, str) else None)
        )

    def claimed(self, fact: AddressClaimed, now: Instant) -> None:
        """Go on once it is known what became of a claim."""
        claim = self._claims.pop(fact.number, None)
        if isinstance(claim, _Held) and fact.found is None:
            self._go_on_without(claim, now)  # asked again, the engine would only say the same
        elif isinstance(claim, _Held):
            self._note_found(fact, now)
            self._decided(claim, fact, now)
        elif claim is None:
            self._note_found(fact, now)  # nobody waits for it any more
        else:
            key = key_of(claim.group, claim.name)
            if self._publishing.get(key) == fact.number:
                del self._publishing[key]
            if fact.found is not None:
                self._ahead.discard(key)
            self._note_found(fact, now)
            if fact.found is not None:
                self._compare(fact.found, now)
            if fact.is_won:
                self._publish(claim, now)  # it may have changed meanwhile

    def _note_found(self, fact: AddressClaimed, now: Instant) -> None:
        known = None if fact.found is None else self._seen.get(fact.found.key)
        if fact.found is not None and (known is None or known.revision <= fact.found.revision):
            self._note(fact.found, known, now)

    def _decided(self, held: _Held, fact: AddressClaimed, now: Instant) -> None:
        self._deadlines.cancel(held.deadline)
        del self._held[held.connection.number]
        found = fact.found
        if fact.is_won and found is not None:
            address = self._addresses.at(found.group, found.name)
            if address is not None and address.home is not None:
                self._home_is_here(address, now)
        if held.connection.number in self._connections:
            self._resume(held.connection, held.frame, now)
        if fact.is_won and found is not None and self._addresses.at(found.group, found.name) is None:
            self._outbox.add(DropAddress(found))  # nobody came

    def _is_late(self, held: _Held, now: Instant) -> None:
        """Go on here: what the engine has not said by now is claimed once more, by the address itself."""
        self._go_on_without(held, now)
        address = self._addresses.at(home_group_of(held.frame), trim(held.claim.name))
        if address is not None and address.home is None:
            self._publish(address, now)

    def _go_on_without(self, held: _Held, now: Instant) -> None:
        """Go on here without what the engine would have said."""
        self._claims.pop(held.number, None)
        was_known, self._is_known = self._is_known, False
        if held.connection.number in self._connections:
            self._be_ahead(held, now)
        self._go_on(held, now)
        self._is_known = was_known

    def _go_on(self, held: _Held, now: Instant) -> None:
        self._deadlines.cancel(held.deadline)
        del self._held[held.connection.number]
        if held.connection.number in self._connections:
            self._going_on = held.connection
            self._resume(held.connection, held.frame, now)
            self._going_on = None


def _claim_of(frame: Register) -> AddressClaim | None:
    """Return the claim of a registration, as far as it has one that may be granted, of an address of its own."""
    granted = features.grant(frame, is_durable=True)
    if isinstance(granted, features.Refused) or features.ADDRESS not in granted:
        return None
    claim = features.address_claim(frame)
    if not isinstance(claim, AddressClaim) or trim(claim.name)[:1] in ("", "@"):
        return None
    return claim


def _token_of(claim: AddressClaim) -> str | None:
    return claim.token if isinstance(claim.token, str) else None


def _would_hold(claim: AddressClaim, address: Address | None) -> bool:
    is_free = address is None or address.holder is None
    return claim.hold != "none" and (claim.hold != "free" or is_free)
