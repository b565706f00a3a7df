"""Know the addresses: durable names with one mailbox and one holder at a time (design section 7, Addresses).

Rule 1: whoever shows the token is a rightful holder, and the newest one holds. Rule 2: a name, an id or a return
address alone opens nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING

from intercom.core.clock import Instant
from intercom.core.features import Refused
from intercom.core.journal import Journal
from intercom.core.keeping import Keeping
from intercom.core.ledger import Ledger
from intercom.core.records import AddressRecord
from intercom.limits import ADDRESS_LEFT_MS, TOKEN_CHARACTERS
from intercom.wire.frames import trim
from intercom.wire.mail import AddressClaim

if TYPE_CHECKING:
    from intercom.core.sessions import Session

ME = "@me"
"""The broker's own address: the person's, reachable from every group."""
RESERVED_SIGN = "@"
"""Names that begin with it belong to the broker."""
NO_GROUP = ""
"""Home group of the broker's own addresses."""


def digest(token: str) -> str:
    """Return the SHA-256 of a token; tokens themselves are kept nowhere."""
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def proves(token: str | None, token_hash: str | None) -> bool:
    """Tell whether this is the token with this hash, in constant time."""
    return token is not None and token_hash is not None and hmac.compare_digest(digest(token), token_hash)


class Address:
    """Hold one address."""

    __slots__ = (
        "created_at",
        "group",
        "groups",
        "holder",
        "home",
        "is_saved",
        "last_held_at",
        "name",
        "number",
        "takes_work",
        "token_hash",
        "workers",
    )

    def __init__(self, record: AddressRecord) -> None:
        self.number = record.number
        self.name = record.name
        self.group = record.group
        self.token_hash = record.token_hash
        self.groups = record.groups
        self.created_at = record.created_at
        self.last_held_at = record.last_held_at
        self.home = record.home
        """The broker at which its mailbox is; None: here."""
        self.takes_work = record.takes_work
        """Whoever came to take something under it last takes assignments."""
        self.workers: set[str] = set()
        """Ids of the connected sessions that take assignments under it and do not hold it."""
        self.is_saved = True
        """Its row is on disk as it is, or on its way there."""
        self.holder: Session | None = None
        """The connected session that receives its mail."""

    @property
    def is_for_work(self) -> bool:
        """Tell whether what is sent to it while nobody holds it is work: somebody comes for that, not for mail."""
        return not self.is_of_broker and (self.takes_work or bool(self.workers))

    @property
    def key(self) -> str:
        """Return the target identity of whoever holds it, which is the key of its mailbox."""
        return key_of(self.number)

    @property
    def is_of_broker(self) -> bool:
        """Tell whether it is reachable from every group."""
        return self.group == NO_GROUP

    def is_reachable_from(self, groups: Iterable[str]) -> bool:
        """Tell whether somebody in these groups may send to it."""
        return self.is_of_broker or any(group in self.groups for group in groups)

    @property
    def row(self) -> AddressRecord:
        """Return the row as it is stored."""
        return AddressRecord(
            self.number,
            self.name,
            self.group,
            self.token_hash,
            self.groups,
            self.created_at,
            self.last_held_at,
            self.takes_work,
            self.home,
        )


def key_of(number: int) -> str:
    """Return the key of the mailbox of the address with this number."""
    return f"address:{number}"


def token_hash_of(claim: AddressClaim) -> str:
    """Return the digest of the token that an address will have which has none yet; empty: the broker makes one."""
    return "" if (token := _own_token(claim)) is None else digest(token)


def _own_token(claim: AddressClaim) -> str | None:
    return claim.token if isinstance(claim.token, str) and len(claim.token) >= TOKEN_CHARACTERS else None


def _first_token(claim: AddressClaim, new_token: str) -> tuple[str, bool]:
    """Return the token of an address that has none yet, and whether the broker made it."""
    token = _own_token(claim)
    return (new_token, True) if token is None else (token, False)


class Addresses:
    """Find addresses by name and number, and give them to whoever may hold them."""

    def __init__(
        self,
        ledger: Ledger,
        journal: Journal,
        keeping: Keeping,
        records: Iterable[AddressRecord],
        limit: int,
        idle_ms: int,
    ) -> None:
        self._ledger = ledger
        self._journal = journal
        self._keeping = keeping
        self._limit = limit
        self._idle_ms = idle_ms
        self.used: Callable[[Instant], set[str]] = lambda now: set()
        """Returns the keys of the addresses on which something depends."""
        self.on_change: Callable[[Address, Instant], None] | None = None
        """Is told of each address whose mailbox is here, when it has changed or is new."""
        self.on_forgotten: Callable[[Address], None] | None = None
        """Is told of each address that has given way."""
        self.machine_of: Callable[[str], str] = lambda broker_id: broker_id
        """Returns what the machine of another broker is called."""
        self._by_number: dict[int, Address] = {}
        self._by_name: dict[str, dict[str, Address]] = {}
        self._last_number = 0
        for record in records:
            self._enter(Address(record))

    def __iter__(self) -> Iterator[Address]:
        return iter(list(self._by_number.values()))

    def get(self, number: int | None) -> Address | None:
        """Return the address with this number."""
        return None if number is None else self._by_number.get(number)

    def of_key(self, key: str) -> Address | None:
        """Return the address with this mailbox."""
        number = key.removeprefix("address:")
        return self._by_number.get(int(number)) if number != key and number.isdigit() else None

    @property
    def here(self) -> Iterator[Address]:
        """Return the addresses whose mailbox is here."""
        return (address for address in list(self._by_number.values()) if address.home is None)

    def at(self, group: str, name: str) -> Address | None:
        """Return the address with this home group and name."""
        return self._by_name.get(trim(name).lower(), {}).get(group)

    def elsewhere(
        self, group: str, name: str, token_hash: str | None, groups: tuple[str, ...], home: str, now: Instant
    ) -> Address:
        """Enter an address whose mailbox is at another broker: mail for it that waits here has a place of its own."""
        record = AddressRecord(self._last_number + 1, name, group, token_hash, groups, now.wall, now.wall, home=home)
        return self._begin(record, now)

    def change(self, address: Address, kind: str, now: Instant) -> None:
        """Record an address as it is now."""
        self._save(kind, address, now)

    def named(self, name: str) -> Iterable[Address]:
        """Return the addresses with this name, compared case-insensitively."""
        return self._by_name.get(trim(name).lower(), {}).values()

    def me(self, now: Instant) -> Address:
        """Return the broker's own address; it is there from its first use."""
        known = self._by_name.get(ME, {}).get(NO_GROUP)
        return known or self._create(ME, NO_GROUP, None, (), now)

    def claim(
        self, claim: AddressClaim, home_group: str, groups: tuple[str, ...], new_token: str, now: Instant
    ) -> tuple[Address, bool] | Refused:
        """Return the address a registration may act under, and whether ``new_token`` became its token just now.

        A token the client made itself is adopted, so that a broker that dies before its answer locks nobody out.

        Errors: ``bad_request`` a name nobody may have, ``address_taken`` another token, ``address_held`` somebody
        connected holds it and ``hold`` is ``free``, ``address_limit``: there is no room, and none that may give way.
        """
        name = trim(claim.name)
        if not name:
            return Refused("bad_request", "An address needs a name")
        is_me = name.lower() == ME
        if name.startswith(RESERVED_SIGN) and not is_me:
            return Refused("bad_request", f"Names that begin with {RESERVED_SIGN} belong to the broker")
        group = NO_GROUP if is_me else home_group
        address = self._by_name.get(name.lower(), {}).get(group)
        if address is None:
            if self._is_full() and not self._make_room(now):
                return Refused("address_limit", f"This broker keeps at most {self._limit} addresses")
            token, is_new = _first_token(claim, new_token)
            return self._create(ME if is_me else name, group, digest(token), () if is_me else groups, now), is_new
        if claim.hold == "free" and address.holder is not None:
            return Refused("address_held", f"Session {address.holder.id} receives the mail of {address.name}")
        if address.token_hash is None and address.home is None:
            token, is_new = _first_token(claim, new_token)
            address.token_hash = digest(token)
            event = self._journal.event("address.taken", address.row, now)
            self._ledger.append((event,), self._undo_taken, address)
            self._tell(address, now)
            return address, is_new
        if not proves(None if not isinstance(claim.token, str) else claim.token, address.token_hash):
            whose = "somebody else" if address.home is None else f"somebody on machine {self.machine_of(address.home)}"
            return Refused("address_taken", f"The address {address.name} in group {group!r} belongs to {whose}")
        return address, False

    def held(self, address: Address, session: Session, now: Instant) -> None:
        """Note that this session holds the address from now on, in its present groups."""
        address.holder = session
        address.last_held_at = now.wall
        address.takes_work = session.work_mode is not None
        if not address.is_of_broker:
            address.groups = session.groups
        self._save("address.held", address, now)

    def worked(self, address: Address, session: Session, now: Instant) -> None:
        """Note that this session takes assignments under the address from now on, and not its mail."""
        address.workers.add(session.id)
        if not address.takes_work or now.wall - address.last_held_at >= ADDRESS_LEFT_MS:
            address.takes_work, address.last_held_at = True, now.wall
            self._save("address.worked", address, now)

    def left(self, address: Address, session: Session, now: Instant) -> None:
        """Note that this session, which acted under the address, is gone.

        How long it was held is worth a row only where it says much about how long nobody did.
        """
        address.workers.discard(session.id)
        if address.holder is not session:
            return
        address.holder = None
        if now.wall - address.last_held_at >= ADDRESS_LEFT_MS:
            address.last_held_at = now.wall
            self._save("address.left", address, now)

    def moved(self, address: Address, session: Session, now: Instant) -> None:
        """Note the groups of the holder, if they have changed."""
        if not address.is_of_broker and address.groups != session.groups:
            address.groups = session.groups
            self._save("address.moved", address, now)

    def _is_full(self) -> bool:
        return len(self._by_number) >= self._limit and sum(1 for _ in self.here) >= self._limit

    def _tell(self, address: Address, now: Instant) -> None:
        if self.on_change is not None and address.home is None and not address.is_of_broker:
            self.on_change(address, now)

    def _make_room(self, now: Instant) -> bool:
        """Give up the address that nobody has held for longest, if it may give way; tell whether there is room now.

        The newest one stays: its number must not be given again.
        """
        idle = [
            address
            for address in self.here
            if address.holder is None
            and not address.is_of_broker
            and address.number != self._last_number
            and now.wall - address.last_held_at >= self._idle_ms
        ]
        if not idle:
            return False
        used = self.used(now)
        unused = [address for address in idle if address.key not in used]
        if not unused:
            return False
        oldest = min(unused, key=lambda address: (address.last_held_at, address.number))
        self._remove(oldest)
        event = self._journal.event(
            "address.forgotten", oldest.row, now, event_id=f"address:{oldest.number}:forgotten", is_gone=True
        )
        self._ledger.append((event,), self._undo_forget, oldest)
        if self.on_forgotten is not None:
            self.on_forgotten(oldest)
        return True

    def _undo_forget(self, address: Address, now: Instant) -> None:
        """Keep it: it is still on disk. Where its name was taken meanwhile, that was not recorded either."""
        self._enter(address)

    def _create(self, name: str, group: str, token_hash: str | None, groups: tuple[str, ...], now: Instant) -> Address:
        record = AddressRecord(self._last_number + 1, name, group, token_hash, groups, now.wall, now.wall)
        address = self._begin(record, now)
        self._tell(address, now)
        return address

    def _begin(self, record: AddressRecord, now: Instant) -> Address:
        address = Address(record)
        self._enter(address)
        event = self._journal.event("address.created", record, now, event_id=f"address:{record.number}:created")
        self._ledger.append((event,), self._undo_create, address)
        return address

    def _undo_create(self, address: Address, now: Instant) -> None:
        self._remove(address)

    def _remove(self, address: Address) -> None:
        self._by_number.pop(address.number, None)
        named = self._by_name.get(address.name.lower(), {})
        named.pop(address.group, None)
        if not named:
            self._by_name.pop(address.name.lower(), None)

    def _undo_taken(self, address: Address, now: Instant) -> None:
        """Let somebody else take it: nobody was told that it is taken."""
        address.token_hash = None

    def _save(self, kind: str, address: Address, now: Instant) -> None:
        if self._is_there(address):  # else it was not recorded, and whoever came for it is leaving
            self._keeping.save(kind, address, self._is_there, now)
            self._tell(address, now)

    def _is_there(self, address: Address) -> bool:
        return self._by_number.get(address.number) is address

    def _enter(self, address: Address) -> None:
        self._by_number[address.number] = address
        self._by_name.setdefault(address.name.lower(), {})[address.group] = address
        self._last_number = max(self._last_number, address.number)
