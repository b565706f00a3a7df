"""Test the way through a real NATS server: brokers see each other come and go, and what fails is said and mended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic_ns
from typing import Any

import pytest
from msgspec.structs import replace
from nats.errors import ConnectionClosedError

from intercom.cluster.nats import leftbehind, mesh
from intercom.cluster.nats.access import NotNow
from intercom.cluster.nats.consumer import Consumer
from intercom.cluster.nats.engine import Engine
from intercom.cluster.nats.homekeys import HomeKeys
from intercom.cluster.nats.mesh import Mesh
from intercom.config import ClusterSettings
from intercom.core.records import (
    AddressClaimed,
    AddressHome,
    AddressSeen,
    Announce,
    Arrived,
    ClaimAddress,
    ClusterState,
    DropAddress,
    HoldTargets,
    PeerFact,
    PeerLost,
    PeerSeen,
    Post,
    Posted,
    RemoteName,
    RemoteReservation,
    RemoteRoute,
    Settle,
    StoreIdentity,
    TargetHeld,
)
from intercom.limits import CLUSTER_LEASE_MS, CLUSTER_LETTERS
from tests.support.engines import NatsServer, one_server
from tests.support.hazards import until
from tests.support.raw import PATIENCE_S

KEY = bytes(range(32))
CLOCKS_MS = 20
"""By which the clock of the engine and the monotonic one may part in a test."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    running = one_server(tmp_path_factory.mktemp("nats"))
    yield running
    running.close()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[NatsServer]:
    running = one_server(tmp_path / "nats")
    yield running
    running.close()


class Side:
    """Be the broker around a mesh: hear its facts."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, directory: Path, server: NatsServer, broker_id: str, **more: Any
    ) -> None:
        self.loop = loop
        self.facts: list[PeerFact] = []
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self.heard = asyncio.Event()
        key = directory / f"{broker_id}.key"
        key.write_bytes(more.pop("key", KEY))
        key.chmod(0o600)
        settings = ClusterSettings(
            **{
                "url": (server.url,),
                "key_file": str(key),
                "node": broker_id,
                "name": more.pop("prefix"),
                **more,
            }
        )
        self.mesh = Mesh(
            settings,
            StoreIdentity(broker_id, f"journal-{broker_id}", 1),
            "1.0",
            0,
            loop=loop,
            notify=self._notified,
            log=lambda event, **fields: self.lines.append((event, fields)),
        )

    def _notified(self) -> None:
        self.facts += self.mesh.done()
        self.heard.set()

    def until(self, is_there: Callable[[PeerFact], bool]) -> PeerFact:
        """Run the loop until there is such a fact, and take it."""

        async def wait() -> PeerFact:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    for place, fact in enumerate(self.facts):
                        if is_there(fact):
                            del self.facts[place]
                            return fact
                    self.heard.clear()
                    await self.heard.wait()

        return self.loop.run_until_complete(wait())

    def is_on(self) -> None:
        self.until(lambda fact: isinstance(fact, ClusterState) and fact.status == "on")

    def unavailable(self) -> str:
        fact = self.until(lambda fact: isinstance(fact, ClusterState) and fact.status == "unavailable")
        assert isinstance(fact, ClusterState)
        return fact.reason


@pytest.fixture
def side(tmp_path: Path) -> Iterator[Callable[..., Side]]:
    """Make sides on one loop, and end them all."""
    loop = asyncio.new_event_loop()
    made: list[Side] = []

    def make(*arguments: Any, **more: Any) -> Side:
        made.append(Side(loop, tmp_path, *arguments, **more))
        return made[-1]

    yield make
    for each in made:
        each.mesh.close(PATIENCE_S)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def _now() -> int:
    return monotonic_ns() // 1_000_000


def name(of: str, by: str) -> RemoteName:
    return RemoteName(of, of, ("default",), "active", by)


def sees(broker_id: str, *names: str) -> Callable[[PeerFact], bool]:
    return lambda fact: (
        isinstance(fact, PeerSeen)
        and fact.broker_id == broker_id
        and {each.target_id for each in fact.names} == set(names)
    )


def test_brokers_see_each_other_and_each_others_sessions_and_letters_pass(
    side: Callable[..., Side], server: NatsServer
) -> None:
    """Leases and sessions are mirrored; what is posted arrives in order; a lease that is given back ends."""
    a = side(server, "a", prefix="one")
    a.mesh.submit(Announce({"s": name("s", "a")}))
    b = side(server, "b", prefix="one")
    a.until(sees("b"))
    seen = b.until(sees("a", "s"))
    assert isinstance(seen, PeerSeen) and (seen.name, seen.journal_id) == ("a", "journal-a")
    a.mesh.submit(Announce({"t": name("t", "a"), "s": None}))
    b.until(sees("a", "t"))
    a.is_on()
    for number in range(1, 6):
        a.mesh.submit(Post(number, "b", "send", f"d{number}", "1", b'{"n":%d}' % number))
    arrived = []
    for _ in range(5):
        fact = b.until(lambda fact: isinstance(fact, Arrived))
        assert isinstance(fact, Arrived) and (fact.peer, fact.kind) == ("a", "send")
        arrived.append(fact.body)
        b.mesh.submit(Settle(fact.arrival))
    assert arrived == [b'{"n":%d}' % number for number in range(1, 6)]
    a.until(lambda fact: isinstance(fact, Posted) and fact.number == 5)
    a.mesh.close(PATIENCE_S)
    b.until(lambda fact: fact == PeerLost("a", said_goodbye=True))


def test_what_was_sent_to_a_broker_that_is_away_reaches_its_next_process_once(
    side: Callable[..., Side], server: NatsServer
) -> None:
    """The engine tells copies by their id, and keeps what is not settled for the next connection."""
    b = side(server, "b", prefix="two")
    b.is_on()
    b.mesh.close(PATIENCE_S)
    a = side(server, "a", prefix="two")
    a.mesh.submit(Post(1, "b", "send", "d", "1", b"1"))
    a.until(lambda fact: fact == Posted(1))
    a.mesh.submit(Post(2, "b", "send", "d", "1", b"1"))
    a.until(lambda fact: fact == Posted(2))
    a.mesh.submit(Post(3, "b", "send", "e", "1", b"2"))
    a.until(lambda fact: isinstance(fact, Posted) and fact.number == 3)
    b = side(server, "b", prefix="two")
    bodies = []
    for _ in range(2):
        fact = b.until(lambda fact: isinstance(fact, Arrived))
        assert isinstance(fact, Arrived)
        bodies.append(fact.body)
    assert bodies == [b"1", b"2"]


def test_where_addresses_are_is_known_before_what_was_left_is_fetched(
    side: Callable[..., Side], own_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P 6.13: what was left for an address that has moved finds a broker that knows that, on each connection."""
    monkeypatch.setattr("intercom.cluster.nats.mesh.CLUSTER_PAUSE_MS", 20)
    monkeypatch.setattr("intercom.cluster.nats.mesh.CLUSTER_PAUSE_MOST_MS", 100)
    happened: list[str] = []
    known, fetch = HomeKeys.is_whole, Consumer.run

    def noted_known(self: HomeKeys) -> None:
        happened.append("known")
        known(self)

    async def noted_fetch(self: Consumer, engine: Engine) -> None:
        happened.append("fetched")
        await fetch(self, engine)

    monkeypatch.setattr(HomeKeys, "is_whole", noted_known)
    monkeypatch.setattr(Consumer, "run", noted_fetch)
    a = side(own_server, "a", prefix="one")
    a.is_on()
    a.mesh.submit(ClaimAddress(1, AddressHome("k", "bob", "default", ("default",), "digest", "a")))
    a.until(claimed(1))
    a.mesh.submit(Post(1, "a", "send", "d", "1", b"1"))
    a.until(lambda fact: isinstance(fact, Arrived))
    own_server.kill()
    a.unavailable()
    own_server.start()
    a.is_on()
    a.mesh.submit(Post(2, "a", "send", "e", "1", b"1"))
    a.until(lambda fact: isinstance(fact, Arrived))
    assert happened == ["known", "fetched"] * 2


def test_who_stood_still_for_longer_than_its_lease_begins_anew_before_it_takes_anything(
    side: Callable[..., Side], server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P 6.13, ``shown-once``: what an address that was taken elsewhere meanwhile was sent comes behind that word."""
    monkeypatch.setattr("intercom.cluster.nats.mesh.CLUSTER_PAUSE_MS", 20)
    monkeypatch.setattr("intercom.cluster.nats.consumer.CLUSTER_REDELIVERY_MS", 1_000)
    a, b = side(server, "a", prefix="still"), side(server, "b", prefix="still")
    a.is_on(), b.is_on()
    passed, slept = mesh._passed_ms, [0]
    monkeypatch.setattr("intercom.cluster.nats.mesh._passed_ms", lambda: passed() + slept[0])
    a.mesh.submit(ClaimAddress(1, AddressHome("k", "bob", "default", ("default",), "digest", "a")))
    a.until(claimed(1))
    slept[0] = CLUSTER_LEASE_MS
    a.mesh.submit(Post(1, "b", "send", "d", "1", b"1"))
    assert "stood still" in b.unavailable()
    assert not any(isinstance(fact, Arrived) for fact in b.facts)
    b.facts.clear()
    b.is_on()
    b.until(lambda fact: isinstance(fact, AddressSeen) and fact.key == "k")
    fact = b.until(lambda fact: isinstance(fact, Arrived))
    assert isinstance(fact, Arrived) and fact.body == b"1"


def test_a_lease_that_has_ended_is_not_renewed_on_the_same_connection(
    side: Callable[..., Side], server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P 6.13: nothing came meanwhile, and what comes next may be old all the same."""
    monkeypatch.setattr("intercom.cluster.nats.mesh.CLUSTER_PAUSE_MS", 20)
    monkeypatch.setattr("intercom.cluster.nats.mesh.CLUSTER_RENEW_MS", 50)
    a = side(server, "a", prefix="asleep")
    a.is_on()
    passed, slept = mesh._passed_ms, [CLUSTER_LEASE_MS]
    monkeypatch.setattr("intercom.cluster.nats.mesh._passed_ms", lambda: passed() + slept[0])
    assert "stood still" in a.unavailable()
    a.is_on()


def test_the_time_that_a_letter_lay_in_the_engine_counts(side: Callable[..., Side], server: NatsServer) -> None:
    """protocol 9.5.5: of what lay there while its broker was away, and of what is over when it is fetched."""
    b = side(server, "b", prefix="six")
    b.is_on()
    b.mesh.close(PATIENCE_S)
    a = side(server, "a", prefix="six")
    posted_ms = _now()
    limits = {1: posted_ms + 60_000, 2: posted_ms - 1_000, 3: None}
    for number, limit in limits.items():
        a.mesh.submit(Post(number, "b", "send", f"d{number}", "1", b"1", valid_until=limit))
    for _ in limits:
        a.until(lambda fact: isinstance(fact, Posted))
    b = side(server, "b", prefix="six")
    found = [b.until(lambda fact: isinstance(fact, Arrived)) for _ in limits]
    told = {fact.delivery_id: fact.valid_until for fact in found if isinstance(fact, Arrived)}
    looks_ms = _now() - posted_ms
    assert told["d1"] is not None and -looks_ms - CLOCKS_MS <= told["d1"] - (posted_ms + 60_000) <= CLOCKS_MS
    assert told["d2"] is not None and told["d2"] - (posted_ms - 1_000) <= CLOCKS_MS and told["d3"] is None


def test_letters_that_wait_go_together_in_order_for_each_broker(side: Callable[..., Side], server: NatsServer) -> None:
    """Order is kept for each target broker, and every letter is one to those it is for."""
    both = [side(server, each, prefix="five") for each in "bc"]
    for each in both:
        each.is_on()
    a = side(server, "a", prefix="five")
    numbers = range(1, 2 * CLUSTER_LETTERS + 9)
    for number in numbers:
        a.mesh.submit(Post(number, "bc"[number % 2], "send", f"d{number}", "1", b"%d" % number))
    for rest, each in enumerate(both):
        arrived = [each.until(lambda fact: isinstance(fact, Arrived)) for _ in range(len(numbers) // 2)]
        found = [(fact.delivery_id, fact.body) for fact in arrived if isinstance(fact, Arrived)]
        assert found == [(f"d{number}", b"%d" % number) for number in numbers if number % 2 == rest]
    posted = [a.until(lambda fact: isinstance(fact, Posted)) for _ in numbers]
    assert {fact.number for fact in posted if isinstance(fact, Posted)} == set(numbers)


def test_whoever_has_another_key_is_not_heard_and_that_is_told(side: Callable[..., Side], server: NatsServer) -> None:
    """Two clusters with the same prefix and another key: each drops what the other writes, and says so."""
    a = side(server, "a", prefix="three")
    a.is_on()
    b = side(server, "b", prefix="three", key=bytes(32))
    b.is_on()
    b.mesh.submit(Post(1, "a", "send", "d", "1", b"1"))
    a.until(lambda fact: isinstance(fact, ClusterState) and fact.foreign >= 2)
    assert not [fact for fact in a.facts if isinstance(fact, PeerSeen | Arrived)]
    assert ("cluster_foreign", {"level": "warning", "reason": "it was made under another key"}) in a.lines


def test_who_is_expected_back_is_known_before_a_broker_says_that_it_is_on(
    side: Callable[..., Side], own_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P 6.13: every reservation in force is mirrored before the status becomes on, also on the next connection."""
    monkeypatch.setattr("intercom.cluster.nats.mesh.CLUSTER_PAUSE_MS", 20)
    monkeypatch.setattr("intercom.cluster.nats.mesh.CLUSTER_PAUSE_MOST_MS", 100)
    server = own_server
    a, b = side(server, "a", prefix="eight"), side(server, "b", prefix="eight")
    b.is_on()
    a.mesh.submit(Announce({}, {("restoring", key): expected(key) for key in "kl"}))
    a.is_on()
    seen = b.until(sees_expected("a", "k", "l"))
    assert isinstance(seen, PeerSeen) and seen.shared == (expected("k"), expected("l"))
    route = RemoteRoute("run", "a", "workflow:run", (), live={"workflow:run/x": "s"})
    a.mesh.submit(Announce({}, {("routes", "root.run"): route}))
    b.until(lambda fact: isinstance(fact, PeerSeen) and route in fact.shared)
    server.kill()
    a.unavailable(), b.unavailable()
    a.mesh.submit(Announce({}, {("restoring", "k"): None, ("restoring", "m"): expected("m")}))
    server.start()
    a.is_on()

    async def keys() -> list[str]:
        import nats

        async with await nats.connect(server.url) as client:
            bucket = await client.jetstream().key_value("eight_restoring")
            return sorted(await bucket.keys())

    assert a.loop.run_until_complete(keys()) == ["l", "m"]
    b.is_on()
    b.until(sees_expected("a", "l", "m"))
    a.mesh.close(PATIENCE_S)
    b.until(lambda fact: isinstance(fact, PeerLost))
    again = side(server, "a", prefix="eight")
    again.is_on()
    b.until(sees_expected("a"))


def expected(key: str, **more: Any) -> RemoteReservation:
    return RemoteReservation(key, "a", "owner", f"child-{key}", "team", **more)


def sees_expected(broker_id: str, *keys: str) -> Callable[[PeerFact], bool]:
    return lambda fact: (
        isinstance(fact, PeerSeen)
        and fact.broker_id == broker_id
        and {each.key for each in fact.shared if isinstance(each, RemoteReservation)} == set(keys)
    )


def test_of_two_claims_the_one_that_names_what_the_engine_holds_wins(
    side: Callable[..., Side], server: NatsServer
) -> None:
    """cluster.md 2, addresses: compare-and-set; whoever lost is told what is held."""
    sides = {name: side(server, name, prefix="nine") for name in "ab"}
    for each in sides.values():
        each.is_on()

    def claims(name: str, number: int, revision: int) -> AddressClaimed:
        home = AddressHome("k", "bob", "default", ("default",), f"digest-{name}", name, revision)
        sides[name].mesh.submit(ClaimAddress(number, home))
        fact = sides[name].until(claimed(number))
        assert isinstance(fact, AddressClaimed)
        return fact

    for name, each in sides.items():
        each.mesh.submit(ClaimAddress(1, AddressHome("both", "eve", "default", (), "d", name)))
    both = {name: each.until(claimed(1)) for name, each in sides.items()}
    won = [fact.found for fact in both.values() if isinstance(fact, AddressClaimed) and fact.is_won]
    lost = [fact.found for fact in both.values() if isinstance(fact, AddressClaimed) and not fact.is_won]
    assert len(won) == 1 and lost == won, "one wins, and the other hears who"

    first = claims("a", 2, 0)
    assert first.is_won and first.found is not None
    refused = claims("b", 2, 0)
    assert (refused.is_won, refused.found) == (False, first.found)
    moved = claims("b", 3, first.found.revision)
    assert moved.is_won and moved.found is not None and moved.found.revision > first.found.revision
    stale = claims("a", 3, first.found.revision)
    assert (stale.is_won, stale.found) == (False, moved.found)
    sides["a"].mesh.submit(DropAddress(first.found))
    again = claims("a", 4, 0)
    assert (again.is_won, again.found) == (False, moved.found), "who was the home before drops nothing"
    sides["b"].mesh.submit(DropAddress(moved.found))
    sides["a"].until(lambda fact: fact == AddressSeen("k", None))
    assert claims("a", 5, 0).is_won, "what was dropped is nobody's"


def test_the_engine_knows_which_brokers_held_a_target_last(side: Callable[..., Side], server: NatsServer) -> None:
    """cluster.md 2, targets: the last three, the newest first, whoever writes; what another key wrote says nothing."""
    sides = {name: side(server, name, prefix="seven") for name in "abcd"}
    for each in sides.values():
        each.is_on()
    told = []
    for name in ("a", "b", "b", "c", "d", "a"):
        sides[name].mesh.submit(HoldTargets(("k", f"own-{name}")))
        told.append(sides[name].until(lambda fact: isinstance(fact, TargetHeld) and fact.key == "k"))
        own = sides[name].until(lambda fact: isinstance(fact, TargetHeld))
        assert own == TargetHeld(f"own-{name}", (name,))
    assert [fact.brokers for fact in told if isinstance(fact, TargetHeld)] == [
        ("a",),
        ("b", "a"),
        ("b", "a"),
        ("c", "b", "a"),
        ("d", "c", "b"),
        ("a", "d", "c"),
    ]
    strange = side(server, "e", prefix="seven", key=bytes(32))
    strange.is_on()
    strange.mesh.submit(HoldTargets(("k",)))
    assert strange.until(lambda fact: isinstance(fact, TargetHeld)) == TargetHeld("k", ("e",))


def test_what_a_broker_left_that_is_away_for_long_is_taken_out_and_nobody_who_is_back_loses_anything(
    side: Callable[..., Side], server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cluster.md 2: of one away for a day, by anybody; a key that goes while its broker is there is written again."""
    monkeypatch.setattr(leftbehind, "CLUSTER_GONE_MS", 0)
    monkeypatch.setattr(mesh, "CLUSTER_GONE_LOOK_MS", 10)
    a, b = (side(server, broker_id, prefix="eight") for broker_id in "ab")
    shared = {("routes", "r"): RemoteRoute("r", "b", "workflow:r")}
    for each in (a, b):
        each.is_on()
    b.mesh.submit(Announce({"x": name("x", "b"), "y": name("y", "b")}, shared))  # type: ignore[arg-type]  # a literal
    a.until(lambda fact: sees("b", "x", "y")(fact) and getattr(fact, "shared", ()) != ())
    engine = a.mesh._engine
    assert engine is not None

    async def held(*keys: str) -> bool:
        """Tell whether the engine holds all of these."""
        return all([(await engine.get(*key.split()))[1] is not None for key in keys])

    everything = ("sessions b.x", "sessions b.y", "routes r")
    run = a.loop.run_until_complete
    run(engine.sessions.delete("b.x"))
    run(engine.shelves["routes"].delete("r"))
    until(lambda: run(held(*everything)), bool)
    b.mesh._task.cancel()
    run(asyncio.wait({b.mesh._task}))
    assert run(held(*everything)), "it has a lease, and may be back"
    run(engine.leases.delete("b"))
    until(lambda: any(run(held(key)) for key in everything), lambda is_any: not is_any)
    a.facts.clear()
    again = side(server, "b", prefix="eight")
    again.is_on()
    again.mesh.submit(Announce({"x": name("x", "b")}))
    a.until(sees("b", "x"))
    until(lambda: run(held("sessions b.x")), bool)


def claimed(number: int) -> Callable[[PeerFact], bool]:
    return lambda fact: isinstance(fact, AddressClaimed) and fact.number == number


def foreign(count: int) -> Callable[[PeerFact], bool]:
    return lambda fact: isinstance(fact, ClusterState) and fact.status == "on" and fact.foreign == count


def test_what_a_mended_machine_left_under_another_key_gives_way_and_is_told_of_no_more(
    side: Callable[..., Side], server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine had a wrong key and got the right one: its address can be claimed, and nobody complains for ever.

    While it is there with the other key the address is its own: the claim is refused, and asked once.
    """
    monkeypatch.setattr("intercom.cluster.nats.mesh.CLUSTER_LOOK_MS", 20)
    monkeypatch.setattr("intercom.cluster.nats.mesh.CLUSTER_LEASE_MS", 2 * PATIENCE_S * 1000)
    home = AddressHome("k", "carl", "default", ("default",), "digest", "b")
    a, b = side(server, "a", prefix="six"), side(server, "b", prefix="six", key=bytes(32))
    a.is_on()
    b.is_on()
    b.mesh.submit(ClaimAddress(1, home))
    won = b.until(claimed(1))
    assert isinstance(won, AddressClaimed) and won.is_won
    a.until(lambda fact: isinstance(fact, ClusterState) and fact.foreign >= 2)
    a.mesh.submit(ClaimAddress(1, replace(home, home="a")))
    assert a.until(claimed(1)) == AddressClaimed(1, False, None)
    b.mesh.close(PATIENCE_S)
    b = side(server, "b", prefix="six")
    a.until(sees("b"))
    monkeypatch.setattr("intercom.cluster.nats.mesh.CLUSTER_LEASE_MS", 1)
    a.until(foreign(0))
    lines = len(a.lines)
    a.mesh.submit(ClaimAddress(2, replace(home, home="a")))
    taken = a.until(claimed(2))
    assert isinstance(taken, AddressClaimed) and taken.is_won and len(a.lines) == lines
    seen = b.until(lambda fact: isinstance(fact, AddressSeen))
    assert isinstance(seen, AddressSeen) and seen.address == taken.found


def test_what_is_wrong_is_said_and_once_it_is_mended_all_goes_on(
    own_server: NatsServer, side: Callable[..., Side], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that cannot be used, a server that is not there, one that is killed: unavailable with the reason."""
    monkeypatch.setattr("intercom.cluster.nats.mesh.CLUSTER_PAUSE_MS", 20)
    monkeypatch.setattr("intercom.cluster.nats.mesh.CLUSTER_PAUSE_MOST_MS", 100)
    server = own_server
    a = side(server, "a", prefix="four", token_file=str(tmp_path / "token"))
    assert a.unavailable() == f"token_file {tmp_path}/token cannot be read: No such file or directory"
    a.mesh.submit(Post(1, "b", "send", "d", "1", b"1"))
    (tmp_path / "token").write_text("any")
    (tmp_path / "token").chmod(0o600)
    a.is_on()
    a.until(lambda fact: fact == Posted(1))
    server.kill()
    assert a.unavailable().startswith("the connection to the engine was lost")
    assert a.unavailable().startswith(f"no server of {server.url} can be used")
    a.mesh.submit(Post(2, "b", "send", "e", "1", b"1"))
    server.start()
    a.is_on()
    a.until(lambda fact: fact == Posted(2))


# --- while the engine has nobody to decide ---------------------------------------------------------------


class Leaderless:
    """Let those that lead in the engine be lost for brokers with these ids, until ``elects``."""

    def __init__(self, patch: pytest.MonkeyPatch, *broker_ids: str) -> None:
        self._patch = patch
        self.lost = set(broker_ids)
        prepare = Engine.prepare

        async def prepared(engine: Engine) -> None:
            if engine.client.options["name"] in {f"intercom {each}" for each in self.lost}:
                raise NotNow("nobody leads")
            await prepare(engine)

        patch.setattr("intercom.cluster.nats.mesh.CLUSTER_PAUSE_MS", 20)
        patch.setattr("intercom.cluster.nats.mesh.CLUSTER_LOOK_MS", 20)
        patch.setattr("intercom.cluster.nats.mesh.CLUSTER_STAND_IN_MS", 20)
        patch.setattr(Engine, "prepare", prepared)

    def begin(self, *sides: Side) -> None:
        """Let the connections of these end, as when a server is killed, and wait until they stand in for the engine."""
        for each in sides:
            assert each.mesh._engine is not None
            each.mesh._is_refused = True  # as where the engine said that nobody stores it
            each.mesh._engine.lost.set()
        for each in sides:
            each.until(lambda fact: isinstance(fact, ClusterState) and fact.status == "on" and bool(fact.reason))

    def elects(self) -> None:
        self.lost.clear()


def crosses(near: Side, far: Side, number: int) -> None:
    """Let a letter cross, and be settled; what came before may come again."""
    near.mesh.submit(Post(number, far.mesh._own, "send", f"d{number}", "1", b"%d" % number))
    last = 0
    while last < number:
        fact = far.until(lambda fact: isinstance(fact, Arrived))
        assert isinstance(fact, Arrived)
        last = int(fact.body)
        far.mesh.submit(Settle(fact.arrival))
    assert last == number
    near.until(lambda fact: fact == Posted(number))


@pytest.mark.parametrize("both", [False, True])
def test_letters_go_on_while_the_engine_has_nobody_to_decide(
    side: Callable[..., Side], server: NatsServer, monkeypatch: pytest.MonkeyPatch, both: bool
) -> None:
    """Section 5, a server killed: sends go on; behind the election all is as before, and nobody was taken for away."""
    a, b = side(server, "a", prefix=f"led{both}"), side(server, "b", prefix=f"led{both}")
    a.is_on(), b.is_on()
    a.until(sees("b")), b.until(sees("a"))
    crosses(a, b, 1)
    leaderless = Leaderless(monkeypatch, *("ab" if both else "a"))
    leaderless.begin(*((a, b) if both else (a,)))
    crosses(a, b, 2)
    crosses(b, a, 3)
    assert "directly" in a.mesh._state.reason  # status goes on to say so
    leaderless.elects()
    for each in (a, b) if both else (a,):
        each.until(lambda fact: fact == ClusterState("on", "", "nats", f"led{both}", 0))
    crosses(a, b, 4)
    crosses(b, a, 5)
    assert not any(isinstance(fact, PeerLost) for fact in [*a.facts, *b.facts])


def test_who_is_handed_out_nothing_is_given_directly_what_the_engine_stored(
    side: Callable[..., Side], server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 5: who stores may be there while who hands out is lost; it comes before the election, in order."""
    a, b = side(server, "a", prefix="called"), side(server, "b", prefix="called")
    a.is_on(), b.is_on()
    leaderless = Leaderless(monkeypatch, "b")
    assert b.mesh._engine is not None
    monkeypatch.setattr(Consumer, "run", lambda self, engine: asyncio.Event().wait())
    b.mesh._engine.lost.set()
    for number in (1, 2):
        a.mesh.submit(Post(number, "b", "send", f"d{number}", "1", b'{"n":%d}' % number))
    a.until(lambda fact: fact == Posted(2))
    for number in (1, 2):
        fact = b.until(lambda fact: isinstance(fact, Arrived))
        assert isinstance(fact, Arrived) and fact.body == b'{"n":%d}' % number
    assert leaderless.lost


def test_a_connection_that_ends_while_it_stands_in_is_no_fault_of_ours(
    side: Callable[..., Side], server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Section 5, another server killed: the next connection stands in; what could not be given goes on that one."""
    a, b = side(server, "a", prefix="ends"), side(server, "b", prefix="ends")
    a.is_on(), b.is_on()
    leaderless = Leaderless(monkeypatch, "a", "b")
    leaderless.begin(a, b)
    assert a.mesh._engine is not None

    async def closed(*arguments: Any, **more: Any) -> None:
        raise ConnectionClosedError

    monkeypatch.setattr(a.mesh._engine.client, "publish", closed)
    a.mesh.submit(Post(1, "b", "send", "d", "1", b"1"))
    a.facts.clear()
    a.unavailable()
    b.until(lambda fact: isinstance(fact, Arrived))
    assert not [line for line in a.lines if line[0] == "cluster_error"]


def test_nobody_stands_in_for_longer_than_its_lease_holds(
    side: Callable[..., Side], server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P 6.13: others may take it for away then, and its addresses to other machines; it renews its lease if it can."""
    a, b = side(server, "a", prefix="lapses"), side(server, "b", prefix="lapses")
    a.is_on(), b.is_on()
    Leaderless(monkeypatch, "b").begin(b)
    renewed = asyncio.Event()
    write = Mesh._write_lease

    async def noted(self: Mesh, engine: Engine) -> None:
        await write(self, engine)
        renewed.set()

    monkeypatch.setattr(Mesh, "_write_lease", noted)
    b.loop.run_until_complete(asyncio.wait_for(renewed.wait(), PATIENCE_S))
    b.facts.clear()
    passed = mesh._passed_ms
    monkeypatch.setattr(Mesh, "_write_lease", refused_lease)
    monkeypatch.setattr("intercom.cluster.nats.mesh._passed_ms", lambda: passed() + CLUSTER_LEASE_MS)
    assert "nobody leads" in b.unavailable()
    a.mesh.submit(Post(1, "b", "send", "d", "1", b"1"))
    a.until(lambda fact: fact == Posted(1))
    assert not any(isinstance(fact, Arrived) for fact in b.facts)


async def refused_lease(self: Mesh, engine: Engine) -> None:
    raise NotNow("nobody leads")
