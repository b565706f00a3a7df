"""Define what is stored of other brokers, and what passes between them and the core.

What the core wants of another machine is *work for a peer*, what it hears of one a *fact*: both are data, and whatever
carries them (``cluster``) knows no rule. All of it may come late, twice or not at all: the core tells by the ids.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from intercom.wire.stage_frames import ParentRun, PossibleStage, StageAnnouncement

Shelf: TypeAlias = Literal["restoring", "routes"]
"""Where brokers keep what they tell each other beside who is here."""
PEER = "peer:"
"""With this and the id of its broker begins every identity here of somebody who is elsewhere."""


class PeerRecord(Struct, frozen=True):
    """Describe another broker that was seen."""

    number: int
    broker_id: str
    name: str
    """What its machine is called in labels."""
    journal_id: str | None
    first_seen_at: int
    """Epoch ms."""


class DeliveryRecord(Struct, frozen=True, omit_defaults=True):
    """Describe what has to reach another broker; the text is stored with its invocation."""

    number: int
    delivery_id: str
    """Made of requester, invocation and peer: the same every time, so that the peer tells a copy."""
    invocation_id: str
    requester: str
    requester_session: str
    target: str
    peer: str
    """The broker that is the authority for the target."""
    status: str
    first_queued_at: int
    """The retry window counts from here, epoch ms."""
    attempts: int = 0
    next_attempt_at: int | None = None
    lease_epoch: int | None = None
    """The process that forwards it; the lease of an older one is void."""
    lease_until: int | None = None
    failure: str | None = None
    """Why it failed, or why the last attempt did."""
    detail: str | None = None
    acked_at: int | None = None
    peer_run: str | None = None
    """Id of the run at the peer."""
    mirrored: int = 0
    """Number of the newest report of that run that was taken."""


class OutboxRecord(Struct, frozen=True, omit_defaults=True):
    """Describe a message on its way to another broker; the letter that brings it is stored beside it."""

    number: int
    """Key of the row and of the letter."""
    delivery_id: str
    """Made of sender, message and peer: the same in every attempt, so that the peer tells a copy."""
    message_id: str
    peer: str
    mark: str
    """The identity by which its target is known here."""
    target: str
    """What the sender called it."""
    sender_session: str
    sender_mailbox: str | None
    """Where its sender is told if nothing is heard of it."""
    size: int
    """Bytes of the letter."""
    queued_at: int
    """Epoch ms."""
    valid_until: int | None = None
    is_ask: bool = False


class RemoteName(Struct, frozen=True):
    """Describe a session or an address that a peer answers for."""

    target_id: str
    name: str
    groups: tuple[str, ...]
    state: Literal["active", "reconnecting", "away", "closed"]
    home: str
    """The broker at which it lives."""
    is_address: bool = False
    workspace: str | None = None
    branch: str | None = None
    profile: str | None = None
    harness: str | None = None
    model: str | None = None
    session: bytes = b""
    """The session object as those in its groups see it, JSON; empty: it is not connected."""
    identity: str = ""
    """By which it is known as a sender at its broker, also when it comes back and proves who it is."""
    home_group: str = ""
    return_hash: str | None = None
    """SHA-256 (hex) of its return address."""
    features: tuple[str, ...] = ()
    address: tuple[str, str] | None = None
    """Group and name of the address whose mail it receives."""
    acts_for: tuple[str, str] | None = None
    """Those of the address under which it acts, whoever receives for that, if its home is there."""
    incarnation: str = ""
    """Of the session, if it can be told from its next start."""
    runtime_session_id: str | None = None


class RemoteReservation(Struct, frozen=True, omit_defaults=True):
    """Describe somebody whom a supervisor at a peer brings back, until it is heard what became of that."""

    key: str
    """Digest of the capability, which stays at its broker."""
    home: str
    owner_id: str
    child_name: str
    group: str
    aliases: tuple[str, ...] = ()
    is_dormant: bool = False
    gone: str | None = None
    """What everybody is told who still writes to it."""
    has_ended: bool = False
    refusal: str | None = None
    """Of one that has ended: what those who waited are told; None: they are decided about anew."""
    returned_as: str | None = None
    """Of one that has ended: the session id under which it came back."""


class RemoteRoute(Struct, frozen=True, omit_defaults=True):
    """Describe the owner of a workflow run at a peer, and what the run has announced."""

    run_id: str
    home: str
    group: str
    stages: tuple[StageAnnouncement, ...] | None = None
    """None: it has announced none, or more than is told."""
    possible: tuple[PossibleStage, ...] | None = None
    parent: ParentRun | None = None
    live: dict[str, str] = {}
    """Session ids by the targets of the stages that are live."""


class AddressHome(Struct, frozen=True):
    """Say at which broker the mailbox of an address is; all brokers of a cluster know the same."""

    key: str
    name: str
    group: str
    groups: tuple[str, ...]
    """In which it is reachable."""
    token_hash: str
    """SHA-256 (hex) of its token; empty while its first holder registers whose broker makes it."""
    home: str
    revision: int = 0
    """Of what the engine holds; who changes it names the one that it knew."""
    after: int = 0
    """The revision of what this took the place of; 0: of nothing, or it is not said."""


class RemoteTask(Struct, frozen=True):
    """Hold an invocation as a peer is sent it."""

    invocation_id: str
    target_id: str
    asked: str
    action: str
    ensure_awake: bool
    requester: str
    requester_info: bytes
    """The session object of whoever asked, JSON."""
    message: bytes
    """With its context and metadata."""
    created_at: int
    take_until: int | None
    wishes: bytes | None = None
    """What is said of it beside, JSON."""


class RemoteRun(Struct, frozen=True):
    """Hold how far a run at a peer is."""

    run_id: str
    state: Literal["queued", "waking", "running", "waiting", "completed", "failed", "cancelled"]
    summary: str | None = None
    output: str | None = None
    error: str | None = None
    reconciled: bool = False
    """The peer had to assume that it failed; what its target reports after all still counts."""
    is_let_go: bool = False
    """Nobody has it there: its address is at home elsewhere by now, where it is to go."""
    turn: int = 0
    """How often the task had gone on to another machine when the peer was given it."""


# --- work for a peer ------------------------------------------------------------------------------------


class Forward(Struct, frozen=True):
    """Send a task to a peer, and tell with ``Forwarded`` under the same attempt what it said, or that it did not."""

    peer: str
    delivery_id: str
    attempt: int
    task: RemoteTask
    after: int = 0
    """The append on which it rests."""


class Follow(Struct, frozen=True):
    """Tell with ``Mirrored`` every report of the run at the peer behind ``after``, until it has ended.

    Asked again, it begins anew from there.
    """

    peer: str
    delivery_id: str
    invocation_id: str
    after: int


class Recall(Struct, frozen=True):
    """Tell the peer that its run is not wanted any more."""

    peer: str
    delivery_id: str
    invocation_id: str
    reason: str


class Announce(Struct, frozen=True):
    """Tell all peers for whom this broker answers: what has changed; None: it is gone."""

    names: dict[str, RemoteName | None]
    """By id."""
    shared: dict[tuple[Shelf, str], RemoteReservation | RemoteRoute | None] = {}
    """Who is expected back here, and which runs have owners here, by key."""


class Post(Struct, frozen=True):
    """Bring something to a peer, once the append with ticket ``after`` is committed; tell with ``Posted``."""

    number: int
    peer: str
    kind: str
    delivery_id: str
    """The same in every attempt, so that the peer tells a copy."""
    attempt: str
    """Tells one attempt from the next."""
    body: bytes
    """JSON."""
    after: int = 0
    settles: int = 0
    """What arrived and is done with once this was brought away; 0: nothing."""
    valid_until: int | None = None
    """Monotonic ms, by the clock of this broker; None: it is of use for any time."""


class Settle(Struct, frozen=True):
    """Say that what arrived under this number needs no answer any more."""

    arrival: int


class ClaimAddress(Struct, frozen=True):
    """Let an address have this home, if the engine holds what ``address.revision`` names; tell with ``AddressClaimed``.

    Revision 0: if it holds nothing.
    """

    number: int
    address: AddressHome


class DropAddress(Struct, frozen=True):
    """Let the engine forget an address whose home this broker is."""

    address: AddressHome


class HoldTargets(Struct, frozen=True):
    """Let the engine know that this broker holds, or just held, targets with these keys; tell with ``TargetHeld``."""

    keys: tuple[str, ...]


PeerWork: TypeAlias = Forward | Follow | Recall | Announce | Post | Settle | ClaimAddress | DropAddress | HoldTargets


# --- facts ----------------------------------------------------------------------------------------------


class PeerSeen(Struct, frozen=True):
    """Say that a peer is there, and for whom it answers now; ``names`` replaces what was told before."""

    broker_id: str
    name: str
    journal_id: str | None
    names: tuple[RemoteName, ...]
    """The one of which was told last comes last."""
    epoch: int = 0
    """Of its process."""
    shared: tuple[RemoteReservation | RemoteRoute, ...] = ()
    """Who is expected back there, and which runs have owners there; replaces what was told before, too."""

    @property
    def present(self) -> dict[str, RemoteName]:
        """Return for whom it answers, by their ids: an address has one holder there, the one of whom was told last.

        That an earlier one has left is told a moment later.
        """
        own = [name for name in self.names if name.home == self.broker_id]
        holders = {name.address: name.target_id for name in own if name.address is not None}
        return {name.target_id: name for name in own if name.address is None or holders[name.address] == name.target_id}


class PeerLost(Struct, frozen=True):
    """Say that a peer is not there any more."""

    broker_id: str
    said_goodbye: bool = False
    """It went in order, and may be back in a moment; else nothing was heard of it for long."""


class Forwarded(Struct, frozen=True):
    """Say what became of one attempt.

    ``duplicate``: the peer had it already; ``refused``: it will never take it; ``unreachable``: it is not known
    whether it has it, or it provably has not.
    """

    delivery_id: str
    attempt: int
    verdict: Literal["accepted", "duplicate", "refused", "unreachable"]
    run: RemoteRun | None = None
    """Of what it has."""
    reason: str = ""
    peer: str | None = None
    """Who said so; None: whoever it was sent to."""
    turn: int = 0
    """How often the task had gone on to another machine when this was asked."""
    is_elsewhere: bool = False
    """It was refused because the address that it is for is not at home there."""


class Mirrored(Struct, frozen=True):
    """Hold a report of a run at a peer; ``after`` is the number of the report before it, the peer counts."""

    delivery_id: str
    after: int
    seq: int
    run: RemoteRun
    peer: str | None = None
    """Who said so; None: whoever has it."""


class Posted(Struct, frozen=True):
    """Say that something was brought away: it will reach the peer, or have had its time."""

    number: int


class Arrived(Struct, frozen=True):
    """Hold what a peer brought; it comes again unless it is settled."""

    arrival: int
    peer: str
    kind: str
    delivery_id: str
    body: bytes
    valid_until: int | None = None
    """Monotonic ms, by the clock of this broker and not too late; None: it is not limited, or that cannot be told."""


class AddressSeen(Struct, frozen=True):
    """Say where the home of an address is now; ``address`` None: nobody is home to it any more."""

    key: str
    address: AddressHome | None


class AddressesKnown(Struct, frozen=True):
    """Say that the homes of all addresses were told that the engine holds; these are the keys."""

    keys: frozenset[str]


class AddressClaimed(Struct, frozen=True):
    """Say what became of a claim; ``found`` is what the engine holds now, as far as that is known."""

    number: int
    is_won: bool
    found: AddressHome | None


class TargetHeld(Struct, frozen=True):
    """Say which brokers held a target last, the newest first."""

    key: str
    brokers: tuple[str, ...]


class ClusterState(Struct, frozen=True):
    """Say how the way to other brokers is."""

    status: Literal["off", "starting", "on", "unavailable"]
    reason: str = ""
    """Why it is off or unavailable."""
    adapter: str = ""
    prefix: str = ""
    """Of what the brokers keep in the engine."""
    foreign: int = 0
    """What came that was made under another key, or by something else."""


PeerFact: TypeAlias = (
    PeerSeen
    | PeerLost
    | Forwarded
    | Mirrored
    | Posted
    | Arrived
    | AddressSeen
    | AddressesKnown
    | AddressClaimed
    | TargetHeld
    | ClusterState
)
