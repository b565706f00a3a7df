"""Test that mail of one sender keeps its order while its address moves to another machine (protocol 6.13.7)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.letters import OUTCOME, SEND
from intercom.core.looking import LOOK, LOOKED
from intercom.core.records import AddressSeen, TargetHeld
from intercom.limits import Limits
from tests.core.cluster import IDS, Cluster
from tests.core.harness import Client
from tests.core.test_homes import AWAY, TOKEN, asker, claim, holder, send
from tests.core.test_in_doubt import Scene, shown

LIMITS = Limits()


class Late:
    """Hold an address at ``b`` that nobody holds; from ``moves`` on that broker hears late where it is at home."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = Cluster("abc")
        holder(self.cluster, "b").leave()
        self.cluster.run(2 * LIMITS.announce_ms)
        self.unheard: list[AddressSeen] = []
        self.patch = monkeypatch

    def moves(self) -> Client:
        self.patch.setattr(self.cluster, "_tell_all", self._tell_others)
        return claim(self.cluster, "a")

    def _tell_others(self, fact: AddressSeen) -> None:
        self.unheard.append(fact)
        for name in "ac":
            self.cluster[name].peer_told(fact)

    def is_heard(self) -> None:
        for fact in self.unheard:
            self.cluster["b"].peer_told(fact)
        self.cluster.run()


@pytest.mark.parametrize("where", ["a", "c"])
def test_what_waits_at_the_old_home_goes_ahead(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Protocol 6.13.7: its sender is at the new home, or at a third broker."""
    late = Late(monkeypatch)
    alice = asker(late.cluster, where)
    assert send(late.cluster, alice, "m1") == "queued"
    bob = late.moves()
    alice.message("bob", "m2", "m2", extra=AWAY)
    alice.message("bob", "m3", "m3", extra=AWAY)
    late.cluster.run()
    assert shown(bob) == []
    late.is_heard()
    assert shown(bob) == ["m1", "m2", "m3"]


def test_what_may_overtake_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 9.5.3: what must not wait does not queue behind mail."""
    late = Late(monkeypatch)
    alice = asker(late.cluster)
    assert send(late.cluster, alice, "m1") == "queued"
    bob = late.moves()
    alice.message("bob", "m2", "m2")
    late.cluster.run()
    assert shown(bob) == ["m2"]


def test_nobody_waits_for_an_old_home_longer_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13.7: ``Limits.look_ms``; what it sends over later is shown all the same."""
    late = Late(monkeypatch)
    alice = asker(late.cluster)
    assert send(late.cluster, alice, "m1") == "queued"
    bob = late.moves()
    alice.message("bob", "m2", "m2", extra=AWAY)
    late.cluster.run(LIMITS.look_ms - 1)
    assert shown(bob) == []
    late.cluster.run(1)
    assert shown(bob) == ["m2"]
    late.is_heard()
    assert shown(bob) == ["m1"]


def test_nobody_waits_where_the_address_moves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13.7: what waited here goes to the next home, behind what the first one sends there."""
    late = Late(monkeypatch)
    alice = asker(late.cluster)
    assert send(late.cluster, alice, "m1") == "queued"
    late.moves()
    alice.message("bob", "m2", "m2", extra=AWAY)
    late.cluster.run()
    bob = claim(late.cluster, "c")
    assert shown(bob) == []
    late.is_heard()
    assert shown(bob) == ["m1", "m2"]


def _burst(scene: Scene) -> Client:
    """Let so much of others be on its way to ``b`` that what alice writes then waits at ``a``; return the holder."""
    scene.slow = set()
    scene.bob.leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    carol = asker(scene.cluster, "a", "carol")
    scene.write("m1", extra=AWAY)
    scene.slow = {OUTCOME, LOOKED, SEND}
    for number in range(LIMITS.mail_offers):
        carol.message("bob", f"c{number}", "c", extra=AWAY)
    scene.write("m2", extra=AWAY)
    return scene.moves()


def test_what_was_never_sent_there_waits_for_what_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13.7: it waited here when the address came."""
    scene = Scene(monkeypatch)
    bob = _burst(scene)
    assert shown(bob) == []
    scene.let_through()
    of_alice: list[str] = []
    for _ in range(3):
        messages = shown(bob)
        of_alice += [each for each in messages if each[0] == "m"]
        for each in messages:
            bob.first += bob.write("received", messageId=each)
        scene.cluster.run()
    assert of_alice == ["m1", "m2"]


def test_what_was_never_sent_there_waits_no_longer_than_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13.7: nothing is heard of the old home."""
    scene = Scene(monkeypatch)
    bob = _burst(scene)
    scene.cluster.run(LIMITS.look_ms)
    assert [each for each in shown(bob) if each[0] == "m"] == ["m2"]


def test_after_a_while_an_old_home_is_not_asked_any_more() -> None:
    """Protocol 6.13.11: ``Limits.operation_ttl_ms`` after the last move."""
    cluster = Cluster("ab")
    alice = asker(cluster)
    for broker in "baba":
        bob = holder(cluster, broker)
    cluster.run(LIMITS.operation_ttl_ms)
    cluster.targets.clear()
    asked = [post for post in cluster.posts if post.kind == LOOK]
    bob.leave()
    bob = holder(cluster, "a")
    alice.message("bob", "m2", "m2", extra=AWAY)
    cluster.run()
    assert shown(bob) == ["m2"]
    assert [post for post in cluster.posts if post.kind == LOOK] == asked


def test_an_old_home_is_asked_though_the_engine_does_not_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13.11: who held the address is forgotten there, or not told in time; where it was at home is known."""
    late = Late(monkeypatch)
    alice = asker(late.cluster)
    assert send(late.cluster, alice, "m1") == "queued"
    late.cluster.targets.clear()
    bob = late.moves()
    alice.message("bob", "m2", "m2", extra=AWAY)
    late.cluster.run()
    assert shown(bob) == []
    late.is_heard()
    assert shown(bob) == ["m1", "m2"]


def test_an_old_home_is_asked_though_the_engine_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13.11: nothing is heard of the engine in ``Limits.look_ms``."""
    late = Late(monkeypatch)
    alice = asker(late.cluster)
    assert send(late.cluster, alice, "m1") == "queued"
    world = late.cluster["a"]
    told = world.peer_told
    monkeypatch.setattr(world, "peer_told", lambda fact: None if isinstance(fact, TargetHeld) else told(fact))
    bob = late.moves()
    late.cluster.run(LIMITS.look_ms)
    alice.message("bob", "m2", "m2", extra=AWAY)
    late.cluster.run()
    assert shown(bob) == []
    late.is_heard()
    assert shown(bob) == ["m1", "m2"]


def test_that_it_arrived_counts_from_whoever_it_was_sent_to_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13.1: its holder had it, and moved before that was heard; the message was on its way there, too."""
    scene = Scene(monkeypatch, "abc")
    scene.slow = {OUTCOME, LOOKED}
    scene.write("m1", extra=AWAY)
    assert shown(scene.bob) == ["m1"]
    scene.bob.write("received", messageId="m1")
    scene.moves("c")
    scene.cluster.run(LIMITS.announce_ms)
    assert [mail.message_id for mail in scene.cluster["a"].disk.mail.values()] == ["m1"]
    for node, post in scene.on_their_way:
        if post.kind == OUTCOME:
            scene.posted(node, post)
    scene.cluster.run()
    assert not scene.cluster["a"].disk.mail


def test_an_address_is_claimed_with_the_digest_of_its_token() -> None:
    """Protocol 6.13.6: whoever shows the token on another machine is its holder, however early that is."""
    cluster = Cluster("ab")
    cluster.held_claims = []
    claim(cluster, "b")
    [(node, first)] = cluster.held_claims
    cluster.decide(node, first)
    elsewhere: dict[str, Any] = {"token": TOKEN}
    bob = claim(cluster, "a", **elsewhere)  # what else ``b`` says of the address is not heard yet
    held, cluster.held_claims = cluster.held_claims[1:], None
    for node, each in held:
        cluster.decide(node, each)
    cluster.run()
    frames = [*bob.first, *cluster["a"].got(bob.conn)]
    assert [frame["type"] for frame in frames if frame["type"].startswith("regist")] == ["registered"]
    [address] = cluster.addresses.values()
    assert address.home == IDS["a"]
