"""Stand for sessions that other brokers answer for, so that every rule about sessions holds for them too.

A stand-in is in the table of sessions like any other; what is written to it is brought to its broker.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import DecodeError, ValidationError, convert
from msgspec.json import decode

from intercom.core.connections import Connection
from intercom.core.features import QUEUE
from intercom.core.peer_records import PEER as PEER
from intercom.core.peer_records import RemoteName
from intercom.core.sessions import NODE, Session, legacy_group_of, memberships_of
from intercom.wire.frames import Register, SessionInfo
from intercom.wire.targets import SCHEME

if TYPE_CHECKING:
    from intercom.core.addresses import Address


_NOTHING = {"cwd": "", "model": "", "pid": 0, "startedAt": 0, "lastActivity": 0}
"""What is shown of one of whom nothing is told that can be read."""


class Way(Protocol):
    """Bring frames to where a stand-in's session is."""

    def carry(self, to: RemoteConnection, frame: Any, after: int, token: object | None) -> bool:
        """Take a frame for the session; return whether that was done."""

    def is_cut_off(self, peer: str) -> bool:
        """Tell whether nothing reaches this broker now."""

    def is_closed(self) -> bool:
        """Tell whether nothing leaves this broker now: not even what another one is to find later."""


class RemoteConnection(Connection):
    """Stand for the way to one session elsewhere; never ``open``: no frame is written to it, all are carried."""

    __slots__ = ("peer_id", "way")

    def __init__(self, number: int, peer_id: str, way: Way) -> None:
        super().__init__(number, None)
        self.open = False
        self.peer_id = peer_id
        self.way = way

    def carry(self, frame: Any, after: int, token: object | None) -> bool:
        """Take a frame for the session."""
        return self.way.carry(self, frame, after, token)


class StandIn(Session):
    """Stand for one session elsewhere."""

    __slots__ = (
        "claimed",
        "granted",
        "holds_its_name",
        "incarnation",
        "is_confirmed",
        "runtime_session_id",
        "told",
        "wanted_address",
    )

    is_remote = True

    def __init__(self, connection: RemoteConnection, name: RemoteName, node: str) -> None:
        info = info_of(name, node)
        super().__init__(connection, Register(info, acknowledges_receipt=True), 0)
        self.id = name.target_id
        self.info["id"], self.info[NODE] = self.id, node
        self.home_group = name.home_group or self.home_group
        self.return_hash = name.return_hash
        self.sender_identity = self.party = identity_at(connection.peer_id, name.identity)
        self.target_identity = mark_of(connection.peer_id, name)
        self.features = frozenset({QUEUE})
        self.holds_its_name = name.is_address
        self._identify(name)
        self.wanted_address = name.address
        """Group and name of the address that it holds at its broker."""
        self.claimed = None
        self.told = name
        """As it was described last."""
        self.is_confirmed = False
        """Its broker has said that it is there; else only something that it sent did."""

    @property
    def is_cut_off(self) -> bool:  # type: ignore[override]  # of others it is a constant
        """Tell whether nothing reaches it now."""
        connection = self.connection
        return isinstance(connection, RemoteConnection) and connection.way.is_cut_off(connection.peer_id)

    @property
    def has_no_way(self) -> bool:  # type: ignore[override]  # of others it is a constant
        """Tell whether nothing leaves this broker now."""
        connection = self.connection
        return isinstance(connection, RemoteConnection) and connection.way.is_closed()

    @property
    def at_peer(self) -> str:  # type: ignore[override]  # of others it is a constant
        """Return the broker that answers for it."""
        connection = self.connection
        return connection.peer_id if isinstance(connection, RemoteConnection) else ""

    def is_at(self, peer: str) -> bool:
        """Tell whether this broker answers for it."""
        return self.at_peer == peer

    @property
    def return_mailbox(self) -> str | None:
        """Tell that it is told of its mail where it is."""
        return None

    @property
    def knows_newest_frames(self) -> bool:
        """Tell that its broker knows every frame, and what its session understands."""
        return True

    def holds_name(self, name: str) -> bool:
        """Tell whether it holds an address of this name at its broker."""
        held = self.name or "" if self.wanted_address is None else self.wanted_address[1]
        return self.holds_its_name and held.lower() == name.lower()

    @property
    def held_group(self) -> str:
        """Return the group of the address that it holds at its broker."""
        return self.home_group if self.wanted_address is None else self.wanted_address[0]

    def show(self, name: RemoteName, node: str) -> None:
        """Show it as its broker says that it is now; name and memberships are those of the table."""
        shown = info_of(name, node)
        for member in ("id", "name", "group", "groups"):
            shown.pop(member, None)
            if member in self.info:
                shown[member] = self.info[member]
        self.info.clear()
        self.update(**shown)
        self.holds_its_name = name.is_address
        self.told = name
        self._identify(name)

    def _identify(self, name: RemoteName) -> None:
        self.incarnation, self.runtime_session_id = name.incarnation, name.runtime_session_id
        self.granted = frozenset(name.features)


class RunOwner(StandIn):
    """Stand for whoever owns a workflow run elsewhere: what is for its stages is for it, and keeps its order."""

    __slots__ = ()

    def __init__(self, connection: RemoteConnection, name: RemoteName, node: str, mark: str) -> None:
        super().__init__(connection, name, node)
        self.groups = (self.home_group,)
        self.target_identity = mark


def proxy_of(address: Address, home: str, number: int, way: Way, node: str) -> StandIn:
    """Return what stands for an address whose mailbox is at another broker, whoever holds it: its mail goes there."""
    name = RemoteName("", address.name, address.groups, "away", home, is_address=True, home_group=address.group)
    connection = RemoteConnection(number, home, way)
    proxy = connection.session = StandIn(connection, name, node)
    proxy.target_identity = address.key
    proxy.address = address
    return proxy


def info_of(name: RemoteName, node: str) -> dict[str, Any]:
    """Return the session object of a session elsewhere, with the machine it is on."""
    info: Any = None
    with suppress(DecodeError):
        info = decode(name.session)
    try:
        convert(info, SessionInfo)
    except ValidationError:
        info = _NOTHING
    return {**info, NODE: node}


def groups_of(name: RemoteName) -> tuple[tuple[str, ...], str]:
    """Return the memberships of a session elsewhere, and the one group that older clients are shown."""
    info = info_of(name, "")
    return memberships_of(info), legacy_group_of(info)


def mark_of_run(peer: str, run_id: str) -> str:
    """Return the target identity of whoever owns a run elsewhere, and the key of the mailbox of what waits for it."""
    return f"{PEER}{peer}:{SCHEME}{run_id}"


def mark_of(peer: str, name: RemoteName) -> str:
    """Return the target identity of a session elsewhere: the same while it is the same session."""
    return f"{PEER}{peer}:{name.target_id}"


def identity_at(peer: str, identity: str) -> str:
    """Return the sender identity here of one that has this identity at its broker.

    A return address means the same everywhere; ids of rows are each broker's own.
    """
    return identity if identity.startswith("return:") else f"peer:{peer}:{identity}"
