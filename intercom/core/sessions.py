"""Know who is here: connections, sessions, their identities, and who may take an id again (protocol 6.1)."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw, Struct
from msgspec.json import encode

from intercom.core.addresses import key_of
from intercom.core.clock import Instant
from intercom.core.connections import Connection
from intercom.core.features import NONE
from intercom.core.ledger import Ledger
from intercom.core.records import Change, DropRetiredId, RetiredIdRecord, SaveRetiredId
from intercom.wire.frames import Register, trim

if TYPE_CHECKING:
    from intercom.core.addresses import Address
    from intercom.core.labels import Candidate
    from intercom.core.lifecycle import Known
    from intercom.core.mailboxes import Mailbox
    from intercom.core.policies import Inbound

_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}", re.ASCII)

DEFAULT_GROUP = "default"
ACTS_AS_PERSON = "person"
"""Member of a session info that marks the sessions of ``@me``; the broker alone writes it (protocol 5)."""


NODE = "node"
"""Member of a session info that names the machine of a session elsewhere; only the broker writes it (protocol 6.13)."""


def is_uuid(text: str) -> bool:
    """Tell whether ``text`` has the UUID pattern, any version."""
    return _UUID.fullmatch(text) is not None


def fingerprint(secret: str) -> str:
    """Return the SHA-256 of a return address; the address itself never reaches the disk."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


class SentIds:
    """Remember the newest ids of what a session sent; the oldest goes first."""

    __slots__ = ("_ids", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, message_id: object) -> bool:
        return message_id in self._ids

    def add(self, message_id: str) -> None:
        """Remember an id; a known one keeps its place."""
        self._ids.setdefault(message_id)
        if len(self._ids) > self._limit:
            self._ids.popitem(last=False)


class Session:
    """Hold one registered session; what is immutable is set once here."""

    is_remote = False
    """It stands for one that another broker answers for."""
    at_peer = ""
    """The broker that answers for it, if another one does."""
    is_cut_off = False
    """Nothing can be brought to where it is now."""
    has_no_way = False
    """Nothing can even be left for it where its broker fetches what is for it."""
    claimed: Address | None = None
    """Of one elsewhere: the address that it holds, as its broker says; mail for the one is for the other."""

    __slots__ = (
        "_encoded",
        "_group_identity",
        "_written",
        "address",
        "asks_under_way",
        "candidate",
        "cannot_be_told",
        "confirms_receipts",
        "connection",
        "features",
        "groups",
        "home_group",
        "id",
        "inbound",
        "info",
        "is_agent",
        "is_headless",
        "is_terminal",
        "keeps_questions",
        "known",
        "mailbox",
        "number",
        "owner_token",
        "party",
        "receipts_by_habit",
        "registration_name",
        "return_address",
        "return_hash",
        "sender_identity",
        "sent_ids",
        "supervisor_id",
        "target_identity",
        "was_at",
        "work_mode",
    )

    def __init__(self, connection: Connection, frame: Register, number: int) -> None:
        info = dict(frame.session)
        self.connection = connection
        self.number = number
        self.info: dict[str, Any] = info
        self.id = ""
        self.target_identity = ""
        self.was_at: tuple[str, ...] | None = ()
        """The other brokers that lately held the identity of this target; None: that is to be heard in a moment."""
        self.sender_identity = ""
        self.party = ""
        """Who waits when it waits: whoever it is as a sender; the person does several things at once."""
        self.groups = memberships_of(info)
        legacy_group = legacy_group_of(info)
        self.home_group = home_group_of(frame)
        self.registration_name = trim(info.get("name", "")) or None
        self.return_address = None if frame.return_address is UNSET else frame.return_address
        self.return_hash = None if frame.return_address is UNSET else fingerprint(frame.return_address)
        self.supervisor_id: str | None = None
        self.owner_token = None if frame.supervisor_owner_token is UNSET else frame.supervisor_owner_token
        self.confirms_receipts = frame.acknowledges_receipt is True
        self.is_agent = info.get("recipientPurpose") != "control"
        self.asks_under_way = 0
        self.features: frozenset[str] = NONE
        self.receipts_by_habit = False
        """It confirms messages without having said that it does, and perhaps not each of them."""
        self.keeps_questions = False
        """It leaves what it was asked to the address it holds."""
        self.address: Address | None = None
        """Under which it acts."""
        self.known: Known | None = None
        """What outlives its connection."""
        self.mailbox: Mailbox | None = None
        """What it receives the mail of."""
        self.inbound: Inbound | None = None
        """What it lets through; None: everything."""
        self.work_mode: str | None = None
        """How it takes assignments; ``None``: it takes none."""
        self.is_headless = False
        """Nobody sits in front of it."""
        self.sent_ids: SentIds | None = None
        """Of one that takes assignments, what it sent: an answer to that goes on with a conversation."""
        self._encoded: Raw | None = None
        self._written = b""
        self.candidate: Candidate | None = None
        """As whom it can be invoked, made once per change of the session info."""
        self.is_terminal = False
        """Its execution has ended, and it will not answer (protocol 6.4)."""
        self.cannot_be_told = False
        """What hosts it says that it has no way to show it a message (protocol 6.4)."""
        self._changed()
        self._group_identity: str | None = None
        info["group"] = legacy_group
        info["groups"] = list(self.groups)
        if connection.peer is not None:
            info["peer"] = {"pid": connection.peer.pid, "uid": connection.peer.uid}
        else:
            info.pop("peer", None)
        info.pop(ACTS_AS_PERSON, None)
        info.pop(NODE, None)

    @property
    def name(self) -> str | None:
        """Return the present name, as it came."""
        return self.info.get("name")

    @property
    def holds_address(self) -> bool:
        """Tell whether it receives the mail of the address under which it acts."""
        return self.address is not None and self.address.holder is self

    def holds_name(self, name: str) -> bool:
        """Tell whether it holds an address of this name: it has more of it than others who call themselves so."""
        return self.address is not None and self.holds_address and self.address.name.lower() == name.lower()

    @property
    def held_group(self) -> str:
        """Return the group of the address that it holds."""
        return self.home_group if self.address is None else self.address.group

    @property
    def return_mailbox(self) -> str | None:
        """Return the key of the mailbox in which it is told of its mail when it is away."""
        if self.address is not None:
            return self.address.key
        return None if self.known is None else self.target_identity

    @property
    def knows_newest_frames(self) -> bool:
        """Tell whether frames older clients drop the connection on may be written (protocol 5.30)."""
        return self.return_hash is not None

    @property
    def group_identity(self) -> str:
        """Return the sender group identity: home group and sorted memberships (protocol 6.9.1)."""
        if self._group_identity is None:
            self._group_identity = encode([self.home_group, sorted(self.groups)]).decode()
        return self._group_identity

    def encoded(self) -> Raw:
        """Return the session info as peers see it, encoded once per change."""
        if self._encoded is None:
            self._written = encode(self.info)
            self._encoded = Raw(self._written)
        return self._encoded

    def written(self) -> bytes:
        """Return the same for those who keep it: all of them have one copy."""
        if self._encoded is None:
            self.encoded()
        return self._written

    def update(self, **members: Any) -> None:
        """Change members of the session info."""
        self.info.update(members)
        self._changed()

    def drop(self, member: str) -> None:
        """Take a member of the session info out."""
        self.info.pop(member, None)
        self._changed()

    def _changed(self) -> None:
        self._encoded = self.candidate = None
        self.is_terminal = self.info.get("replyCapability") == "terminal"
        self.cannot_be_told = self.info.get("push") == "none"

    def set_groups(self, groups: tuple[str, ...], legacy_group: str) -> None:
        """Change the memberships and the group older clients see."""
        self.groups = groups
        self._group_identity = None
        self.update(group=legacy_group, groups=list(groups))

    def shares_group_with(self, other: Session) -> bool:
        """Tell whether both are in one group at least."""
        mine, theirs = self.groups, other.groups
        if len(mine) == 1:
            return mine[0] in theirs
        return not set(mine).isdisjoint(theirs)


def normalise_group(group: Any) -> str:
    """Return the trimmed name, or ``default`` for anything blank or not a string."""
    return trim(group) or DEFAULT_GROUP if isinstance(group, str) else DEFAULT_GROUP


def memberships_of(info: dict[str, Any]) -> tuple[str, ...]:
    """Return the distinct memberships a session object asks for (protocol 4.1, effect 2)."""
    wished = list(info.get("groups", ()))
    if "group" in info:
        wished.append(info["group"])
    return tuple(dict.fromkeys(normalise_group(group) for group in wished)) or (DEFAULT_GROUP,)


def legacy_group_of(info: dict[str, Any]) -> str:
    """Return the one group that older clients are shown."""
    group = info.get("group")
    return memberships_of(info)[0] if group is None else normalise_group(group)


def home_group_of(frame: Register) -> str:
    """Return the home group a registration asks for."""
    if frame.registration_group is UNSET:
        return legacy_group_of(frame.session)
    return trim(frame.registration_group)


class Entry(Struct, frozen=True):
    """Hold what features bring into a registration."""

    features: frozenset[str]
    has_lifecycle: bool = False
    address: Any = None
    """The ``Address`` under which the session acts."""
    holds: bool = False
    """It receives the mail of that address; otherwise it is not found by its name."""
    session_id: str | None = None
    """It is this known session again, which was proven."""
    return_hash: str | None = None
    """Of that session."""


class SessionTable:
    """Find sessions by id, name, id prefix, group and target identity without ever scanning all of them."""

    def __init__(
        self, ids: Callable[[], str], ledger: Ledger, remembered: Iterable[RetiredIdRecord], retired_limit: int
    ) -> None:
        self._ids = ids
        self._ledger = ledger
        self._retired_limit = retired_limit
        self._by_id: dict[str, Session] = {}
        self.get: Callable[[str], Session | None] = self._by_id.get
        """Returns the session with exactly this id."""
        self._by_name: dict[str, dict[str, Session]] = {}
        self._by_prefix: dict[str, dict[str, Session]] = {}
        self._by_group: dict[str, dict[str, Session]] = {}
        self._by_target_identity: dict[str, Session] = {}
        self._retired: OrderedDict[str, str | None] = OrderedDict()
        self._retired_addresses: dict[str, int] = {}
        self._reserved: set[str] = set()
        self._registrations = 0
        self._remembered = 0
        self._unsaved: dict[str, RetiredIdRecord] = {}
        for record in remembered:
            key = record.session_id.lower()
            self._retired[key] = record.return_hash
            if record.address is not None:
                self._retired_addresses[key] = record.address
            self._remembered = max(self._remembered, record.number)
        self._durable = True
        self.remote = 0
        """How many of them stand for sessions elsewhere."""
        self.on_change: list[Callable[[], None]] = []
        """Are told whenever somebody came, left, or changed name or groups."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._by_id.values())

    def stop_recording(self) -> None:
        """Append nothing from now on: the store cannot be used."""
        self._durable = False

    def address_of_retired(self, session_id: str) -> int | None:
        """Return the number of the address under which a session with this id acted that is gone."""
        return self._retired_addresses.get(session_id.lower())

    def party_of(self, identity: str) -> str:
        """Return who a session id, of one that is here or gone, or the key of a mailbox stands for."""
        session = self._by_id.get(identity)
        if session is not None:
            return session.party
        number = self._retired_addresses.get(identity.lower())
        if number is not None:
            return key_of(number)
        return_hash = self._retired.get(identity.lower())
        if return_hash is not None:
            return f"return:{return_hash}"
        return identity if identity.startswith("address:") else f"session:{identity}"

    def of_party(self, party: str) -> list[Session]:
        """Return the sessions that are one party."""
        return [session for session in self._by_id.values() if session.party == party]

    def reserve_id(self, session_id: str) -> None:
        """Grant this id to nobody who does not prove to be the known session that has it."""
        self._reserved.add(session_id.lower())

    def release_id(self, session_id: str) -> None:
        """Grant this id by the ordinary rules again."""
        self._reserved.discard(session_id.lower())

    def named(self, name: str) -> Iterable[Session]:
        """Return the sessions with this name, compared case-insensitively."""
        return self._by_name.get(name.lower(), {}).values()

    def with_prefix(self, prefix: str) -> Iterable[Session]:
        """Return the sessions whose UUID begins with these eight hexadecimal digits."""
        return self._by_prefix.get(prefix.lower(), {}).values()

    def members(self, group: str) -> Iterable[Session]:
        """Return the members of a group in the order in which they joined it."""
        return self._by_group.get(group, {}).values()

    def groups(self) -> Iterable[str]:
        """Return every group that has a member."""
        return self._by_group.keys()

    def in_reach_of(self, groups: Iterable[str]) -> list[Session]:
        """Return every session in at least one of the groups, once, in registration order."""
        found: dict[str, Session] = {}
        for group in groups:
            found.update(self._by_group.get(group, {}))
        return sorted(found.values(), key=lambda session: session.number)

    def enter(self, connection: Connection, frame: Register, entry: Entry | None = None) -> Session:
        """Grant an id, fix the identities and put the session into the table (protocol 4.1, effects 1 to 4).

        ``entry`` holds what features bring along.
        """
        self._registrations += 1
        session = Session(connection, frame, self._registrations)
        is_found_by_name = True
        if entry is None:
            session.id = self._wished_id(frame, session.return_hash)
            self._set_identities(session)
        else:
            is_found_by_name = self._apply(entry, session, frame)
        session.info["id"] = session.id
        elsewhere = self._by_id.get(session.id)
        if elsewhere is not None:
            self.leave(elsewhere)  # it has moved here
        self._put(session, is_found_by_name=is_found_by_name)
        return session

    def enter_remote(self, session: Session) -> None:
        """Put a session into the table that stands for one elsewhere and has its id and identities."""
        self._registrations += 1
        session.number = self._registrations
        self.remote += 1
        self._put(session, is_found_by_name=True)

    def _put(self, session: Session, *, is_found_by_name: bool) -> None:
        session.connection.session = session
        self._by_id[session.id] = session
        self._by_target_identity[session.target_identity] = session
        self._by_prefix.setdefault(session.id[:8].lower(), {})[session.id] = session
        if is_found_by_name:
            self._index_name(session)
        for group in session.groups:
            self._by_group.setdefault(group, {})[session.id] = session
        if not session.is_remote:
            self._remember(session)
        for tell in self.on_change:
            tell()

    def _wished_id(self, frame: Register, return_hash: str | None) -> str:
        wish = None if frame.preferred_session_id is UNSET else frame.preferred_session_id
        return self._grant(wish, return_hash)

    def _set_identities(self, session: Session) -> None:
        session.sender_identity = session.target_identity = f"session:{session.id}"
        if session.return_hash is not None:
            session.sender_identity = f"return:{session.return_hash}"
            identity = f"return:{session.return_hash}:{session.home_group}"
            if identity not in self._by_target_identity:
                session.target_identity = identity
        session.party = session.sender_identity

    def _apply(self, entry: Entry, session: Session, frame: Register) -> bool:
        """Set what features bring along; return whether the session is found by its name."""
        if entry.session_id is not None:
            session.return_hash = entry.return_hash
        session.features = entry.features
        session.address = entry.address
        session.id = entry.session_id or self._wished_id(frame, session.return_hash)
        self._set_identities(session)
        if entry.has_lifecycle:
            session.target_identity = f"session:{session.id}"
        if entry.address is None:
            return True
        session.sender_identity = session.party = entry.address.key
        if entry.address.is_of_broker:
            session.update(**{ACTS_AS_PERSON: True})
            session.party = f"session:{session.id}"
        session.target_identity = entry.address.key if entry.holds else f"session:{session.id}"
        return entry.holds

    def leave(self, session: Session) -> None:
        """Take the session out of the table; its id stays remembered with its return address (protocol 6.1)."""
        for tell in self.on_change:
            tell()
        session.connection.session = None
        self.remote -= session.is_remote
        del self._by_id[session.id]
        del self._by_target_identity[session.target_identity]
        _discard(self._by_prefix, session.id[:8].lower(), session)
        self._unindex_name(session)
        for group in session.groups:
            _discard(self._by_group, group, session)
        key = session.id.lower()
        if session.is_remote:
            return
        if key in self._retired and key not in self._unsaved:
            self._retired.move_to_end(key)
        else:
            self._remember(session)  # dropped because so many registered since then, or never recorded

    def rename(self, session: Session, name: str) -> None:
        """Change the name peers see and resolve."""
        for tell in self.on_change:
            tell()
        is_found_by_name = session.name is None or self._unindex_name(session)
        if session.address is not None and session.target_identity != session.address.key:
            is_found_by_name = False
        session.update(name=name)
        if is_found_by_name:
            self._index_name(session)

    def regroup(self, session: Session, groups: tuple[str, ...], legacy_group: str) -> None:
        """Change the memberships."""
        for tell in self.on_change:
            tell()
        for group in session.groups:
            if group not in groups:
                _discard(self._by_group, group, session)
        for group in groups:
            self._by_group.setdefault(group, {})[session.id] = session
        session.set_groups(groups, legacy_group)

    def _grant(self, wish: str | None, return_hash: str | None) -> str:
        if wish is None or not is_uuid(wish):
            return self._ids()
        key = wish.lower()
        alike = self.with_prefix(key[:8])
        if key in self._reserved or any(each.id.lower() == key and not each.is_remote for each in alike):
            return self._ids()
        if key in self._retired and (return_hash is None or self._retired[key] != return_hash):
            return self._ids()
        return wish

    def _remember(self, session: Session) -> None:
        if not session.is_agent and session.return_hash is None and session.owner_token is None:
            return  # nobody who takes its id gains anything
        key = session.id.lower()
        self._retired[key] = session.return_hash
        self._retired.move_to_end(key)
        address = None if session.address is None else session.address.number
        self._retired_addresses.pop(key, None)
        if address is not None:
            self._retired_addresses[key] = address
        dropped: list[str] = []
        while len(self._retired) > self._retired_limit:
            dropped.append(self._retired.popitem(last=False)[0])
            self._unsaved.pop(dropped[-1], None)
            self._retired_addresses.pop(dropped[-1], None)
        if self._durable:
            self._remembered += 1
            self._unsaved.pop(key, None)
            records = (*self._unsaved.values(), RetiredIdRecord(key, session.return_hash, self._remembered, address))
            self._unsaved.clear()
            changes: tuple[Change, ...] = (*map(SaveRetiredId, records), *map(DropRetiredId, dropped))
            self._ledger.append(changes, self._keep_unsaved, records)

    def _keep_unsaved(self, records: tuple[RetiredIdRecord, ...], now: Instant) -> None:
        """Record with a later registration what could not be recorded: a restart must open no door."""
        for record in records:
            if record.session_id in self._retired:
                self._unsaved.setdefault(record.session_id, record)  # the newest failed first

    def _index_name(self, session: Session) -> None:
        if session.name is not None:
            self._by_name.setdefault(session.name.lower(), {})[session.id] = session

    def _unindex_name(self, session: Session) -> bool:
        """Take the session out of the index of names; return whether it was in it."""
        if session.name is None or session.id not in self._by_name.get(session.name.lower(), ()):
            return False
        _discard(self._by_name, session.name.lower(), session)
        return True


def _discard(index: dict[str, dict[str, Session]], key: str, session: Session) -> None:
    entries = index[key]
    del entries[session.id]
    if not entries:
        del index[key]
