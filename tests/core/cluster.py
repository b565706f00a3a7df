"""Play several brokers and the engine between them: at least once, in order for each sender, whatever ends meanwhile.

The engine keeps what is posted until it is settled, tells copies by their id, and hands out again what a broker that
ended had not settled. ``cut`` takes a broker off it.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Literal

from msgspec import Struct, structs

from intercom.core.records import (
    AddressClaimed,
    AddressesKnown,
    AddressHome,
    AddressSeen,
    Announce,
    Arrived,
    ClaimAddress,
    ClusterState,
    DropAddress,
    HoldTargets,
    PeerLost,
    PeerSeen,
    PeerWork,
    Post,
    Posted,
    RemoteName,
    RemoteReservation,
    RemoteRoute,
    Settle,
    StoreIdentity,
    TargetHeld,
)
from tests.core.harness import World

REDELIVERY_MS = 30_000
"""After which the engine hands out again what was not settled (cluster 2)."""
IDS = {name: f"{name * 8}-0000-4000-8000-{name * 12}" for name in "abc"}


class Kept(Struct):
    """Hold what the engine keeps for one broker."""

    by: str
    kind: str
    delivery_id: str
    body: bytes
    until: int | None = None
    """By the clock of the engine."""


class NodeWorld(World):
    """Be a world whose ids no other has, and whose clients leave when they hold their address no more."""

    def __init__(self, name: str, **more: Any) -> None:
        self.first = name
        self.stay: set[int] = set()
        """Connections of clients that stay until they are thrown out."""
        super().__init__(**more)

    def leave_if_replaced(self) -> None:
        for conn, frames in list(self.received.items()):
            is_replaced = any(frame["type"] == "replaced" and frame["by"] == "address" for frame in frames)
            if is_replaced and conn in self.open and conn not in self.stay:
                self.end(conn)

    @property
    def ids(self) -> Any:
        """Give ids that begin with the name of the node."""
        return lambda: self.first + self.counted()[1:]

    @ids.setter
    def ids(self, counted: Any) -> None:
        self.counted = counted


class Node:
    """Hold one broker and what it says of itself."""

    def __init__(self, name: str, **more: Any) -> None:
        self.name = name
        self.broker_id = IDS[name]
        self.names: dict[str, RemoteName] = {}
        self.shared: dict[Any, RemoteReservation | RemoteRoute] = {}
        self.queue: deque[Kept] = deque()
        """What waits for it in the engine."""
        self.handed_out: dict[int, Kept] = {}
        self.arrivals = 0
        self.is_cut = False
        self.is_up = True
        self.news: deque[AddressSeen | AddressClaimed] = deque()
        """What it will be told of addresses, in that order."""
        self.world = NodeWorld(name, identity=self.identity(1), cluster=ClusterState("starting"), node=name, **more)

    @property
    def held(self) -> list[Post]:
        """Return what it cannot bring away yet."""
        return [work for work in self.world.peer_work if isinstance(work, Post)]

    def identity(self, epoch: int) -> StoreIdentity:
        """Return what tells its process from others."""
        return StoreIdentity(self.broker_id, f"journal-{self.name}", epoch)


class Cluster:
    """Join brokers by an engine; ``run`` moves everything until nothing moves any more."""

    def __init__(self, names: str = "ab", *, is_slow: bool = False, **more: Any) -> None:
        self.is_slow = is_slow
        """What becomes of addresses is heard a while after the engine has decided, and by each broker at its time."""
        self.nodes = {name: Node(name, **more) for name in names}
        self.seen_ids: set[str] = set()
        self.posts: list[Post] = []
        self.kept: list[tuple[Node, Kept]] = []
        """What it kept, and for whom."""
        self.addresses: dict[str, AddressHome] = {}
        """Where they are at home, as the engine holds it."""
        self.targets: dict[str, tuple[str, ...]] = {}
        """Which brokers held each target last, as the engine holds it."""
        self.revision = 0
        self.clock = 7_000_000
        """Milliseconds; like no clock of a broker."""
        self.late: list[tuple[int, Node, Kept]] = []
        """What is handed out again later, and when by ``clock``: nobody has settled what was handed out first."""
        self.held_claims: list[tuple[Node, ClaimAddress]] | None = None
        """Claims that the engine has not decided about, while it is a list."""
        for node in self.nodes.values():
            self._connect(node)
        self.run()

    def __getitem__(self, name: str) -> World:
        return self.nodes[name].world

    # --- life

    def _connect(self, node: Node) -> None:
        node.is_cut = False
        node.news.clear()
        node.world.peer_told(ClusterState("on", "", "play", "p"))
        for other in self.nodes.values():
            if other is not node and other.is_up and not other.is_cut:
                self._tell(node, other)
                self._tell(other, node)
        for address in self.addresses.values():
            node.world.peer_told(AddressSeen(address.key, address))
        node.world.peer_told(AddressesKnown(frozenset(self.addresses)))

    def _tell(self, node: Node, other: Node) -> None:
        node.world.peer_told(
            PeerSeen(
                other.broker_id,
                other.name,
                None,
                tuple(other.names.values()),
                other.world.epoch,
                tuple(other.shared.values()),
            )
        )

    def cut(self, name: str, *, leases_end: bool = True) -> None:
        """Take a broker off the engine; with its leases the others see it leave, and it them."""
        node = self.nodes[name]
        node.is_cut = True
        node.world.peer_told(ClusterState("unavailable", "cut", "play", "p"))
        if leases_end:
            self.end_leases(name)

    def end_leases(self, name: str, *, said_goodbye: bool = False) -> None:
        node = self.nodes[name]
        for other in self.nodes.values():
            if other is not node:
                if other.is_up and not other.is_cut:
                    other.world.peer_told(PeerLost(node.broker_id, said_goodbye))
                if node.is_up:
                    node.world.peer_told(PeerLost(other.broker_id))

    def join(self, name: str) -> None:
        """Let a broker that was cut off be there again."""
        self._connect(self.nodes[name])
        self.run()

    def crash(
        self,
        name: str,
        lease: Literal["expired", "renewed", "given back"] = "expired",
        *,
        is_cut: bool = False,
        is_starting: bool = False,
    ) -> None:
        """Kill a broker and start it again; what it had not settled is handed out again.

        Its lease has expired by then, or is that of its successor from one moment to the next; or it was given back.
        Where it ``is_cut`` its successor does not reach the engine, and has heard of nothing; where it ``is_starting``
        neither, and that may still change at any moment.
        """
        node = self.nodes[name]
        node.world.kwargs["identity"] = node.identity(node.world.epoch + 1)
        node.world.crash()
        node.names, node.shared = {}, {}
        node.queue.extendleft(reversed(node.handed_out.values()))
        node.handed_out = {}
        if lease != "renewed":
            self.end_leases(name, said_goodbye=lease == "given back")
        if is_cut:
            self.cut(name)
        elif is_starting:
            node.is_cut = True
        else:
            self._connect(node)
        self.run()

    # --- the engine

    def delay(self, name: str, count: int = 1) -> None:
        """Let the next letters for a broker get lost on their way to it, so that they are handed out again later."""
        node = self.nodes[name]
        for _ in range(min(count, len(node.queue))):
            self.late.append((self.clock + REDELIVERY_MS, node, node.queue.popleft()))

    def give_again(self, name: str, age: int) -> None:
        """Hand out a letter again that a broker was sent, ``age`` letters ago, whether or not it has settled it."""
        node = self.nodes[name]
        letters = [kept for target, kept in self.kept if target is node]
        if letters:
            node.queue.append(letters[-1 - age % len(letters)])

    def run(self, ms: int = 0) -> None:
        """Bring everything where it is to go; time passes for all."""
        self.clock += ms
        for _, node, kept in [each for each in self.late if each[0] <= self.clock]:
            node.queue.append(kept)
        self.late = [each for each in self.late if each[0] > self.clock]
        for node in self.nodes.values():
            node.world.pass_time(ms)
        moved = True
        while moved:
            moved = False
            for node in self.nodes.values():
                node.world.leave_if_replaced()
                node.world.pass_time(0)
                while node.world.reads:
                    node.world.read()
                moved |= self._take_work(node)
                moved |= self._hand_out(node)
                moved |= self.hear(node)

    def _take_work(self, node: Node) -> bool:
        world = node.world
        work, world.peer_work = world.peer_work, []
        held: list[PeerWork] = []
        moved = False
        for each in work:
            if isinstance(each, Post) and (node.is_cut or each.after > world.committed or held):
                held.append(each)
                continue
            moved = True
            if isinstance(each, ClaimAddress | DropAddress | HoldTargets) and node.is_cut:
                continue  # it has no connection, and begins anew with the next one
            if isinstance(each, ClaimAddress):
                if self.held_claims is None:
                    self.decide(node, each)
                else:
                    self.held_claims.append((node, each))
            elif isinstance(each, DropAddress):
                if self.addresses.get(each.address.key) == each.address:
                    del self.addresses[each.address.key]
                    self._tell_all(AddressSeen(each.address.key, None))
            elif isinstance(each, Post):
                self.post(node, each)
                world.peer_told(Posted(each.number))
            elif isinstance(each, Settle):
                self._settle(node, each.arrival)
            elif isinstance(each, HoldTargets):
                for key in each.keys:
                    others = [broker for broker in self.targets.get(key, ()) if broker != node.broker_id]
                    self.targets[key] = (node.broker_id, *others)[:3]
                    world.peer_told(TargetHeld(key, self.targets[key]))
            elif isinstance(each, Announce):
                for name_id, name in each.names.items():
                    node.names.pop(name_id, None)
                    if name is not None:
                        node.names[name_id] = name
                for place, shared in each.shared.items():
                    node.shared.pop(place, None)
                    if shared is not None:
                        node.shared[place] = shared
                for other in self.nodes.values():
                    if other is not node and not other.is_cut and not node.is_cut:
                        self._tell(other, node)
        world.peer_work = [*held, *world.peer_work]
        return moved

    def decide(self, node: Node, claim: ClaimAddress) -> None:
        """Let a claim win if it names what the engine holds."""
        wanted = claim.address
        found = self.addresses.get(wanted.key)
        if (0 if found is None else found.revision) != wanted.revision:
            self._tell_news(node, AddressClaimed(claim.number, False, found))
            return
        self.revision += 1
        self.addresses[wanted.key] = won = structs.replace(wanted, revision=self.revision, after=wanted.revision)
        self._tell_news(node, AddressClaimed(claim.number, True, won))
        self._tell_all(AddressSeen(wanted.key, won))

    def _tell_all(self, fact: AddressSeen) -> None:
        for node in self.nodes.values():
            if node.is_up and not node.is_cut:
                self._tell_news(node, fact)

    def _tell_news(self, node: Node, fact: AddressSeen | AddressClaimed) -> None:
        if self.is_slow:
            node.news.append(fact)
        else:
            node.world.peer_told(fact)

    def hear(self, node: Node) -> bool:
        """Let a broker hear the next thing that has become of an address; tell whether there was one."""
        if not node.news or node.is_cut:
            return False
        node.world.peer_told(node.news.popleft())
        return True

    def post(self, node: Node, post: Post) -> None:
        """Keep what a broker posted, unless it is a copy."""
        self.posts.append(post)
        message_id = f"{node.name}.{post.delivery_id}.{post.kind}.{post.attempt}"
        if message_id not in self.seen_ids:
            self.seen_ids.add(message_id)
            [target] = [each for each in self.nodes.values() if each.broker_id == post.peer]
            until = None if post.valid_until is None else self.clock + post.valid_until - node.world.now.mono
            kept = Kept(node.broker_id, post.kind, post.delivery_id, post.body, until)
            self.kept.append((target, kept))
            target.queue.append(kept)
        if post.settles:
            self._settle(node, post.settles)

    def _settle(self, node: Node, arrival: int) -> None:
        """Forget what a broker is done with, however often it was handed out."""
        kept = node.handed_out.pop(arrival, None)
        node.handed_out = {number: each for number, each in node.handed_out.items() if each is not kept}

    def _hand_out(self, node: Node) -> bool:
        if not node.queue or node.is_cut or not node.is_up:
            return False
        kept = node.queue.popleft()
        node.arrivals += 1
        node.handed_out[node.arrivals] = kept
        until = None if kept.until is None else node.world.now.mono + kept.until - self.clock
        node.world.peer_told(Arrived(node.arrivals, kept.by, kept.kind, kept.delivery_id, kept.body, until))
        return True
