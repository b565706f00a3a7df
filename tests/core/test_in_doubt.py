"""Test that what may have arrived on another machine is shown nowhere else when its address moves (protocol 6.13)."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from msgspec.json import decode

from intercom.core.letters import OUTCOME, SEND, OutcomeLetter
from intercom.core.looking import LOOK, LOOKED
from intercom.core.records import ClusterState, Elsewhere, Post
from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.cluster import IDS, Cluster, Node
from tests.core.harness import INFO, Client, answers, reason
from tests.core.test_abroad import QUEUE, confirm
from tests.core.test_homes import AWAY, TOKEN, asker, claim, holder, home_of, send

LIMITS = Limits()


class Scene:
    """Hold alice at ``a`` and an address at ``b``; what ``b`` says of messages is under way until it is let through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, names: str = "ab") -> None:
        self.cluster = Cluster(names)
        self.bob = holder(self.cluster, "b")
        self.alice = asker(self.cluster)
        self.slow: set[str] = {OUTCOME, LOOKED}
        """Kinds of letters that take their time from ``b`` to ``a``."""
        self.lost: set[str] = set()
        """Kinds that the engine loses."""
        self.on_their_way: list[tuple[Node, Post]] = []
        self.frames: list[dict[str, Any]] = []
        """What alice was answered at once."""
        self.posted = self.cluster.post
        monkeypatch.setattr(self.cluster, "post", self._post)

    def _post(self, node: Node, post: Post) -> None:
        if post.kind in self.lost:
            return
        if post.kind in self.slow and node.name == "b":
            self.on_their_way.append((node, post))
        else:
            self.posted(node, post)

    def let_through(self) -> None:
        self.slow.clear()
        letters, self.on_their_way = self.on_their_way, []
        for node, post in letters:
            self.posted(node, post)
        self.cluster.run()

    def write(self, message_id: str, **more: Any) -> None:
        self.frames += self.alice.message("bob", message_id, message_id, **more)
        self.cluster.run()

    def moves(self, to: str = "a") -> Client:
        """Let the address come to another broker, whose holder is the newest one."""
        return claim(self.cluster, to)

    def answers(self) -> list[dict[str, Any]]:
        """Return what alice was answered since she was asked last."""
        frames, self.frames = [*self.frames, *self.alice.got()], []
        return answers(frames)

    def told(self) -> list[str]:
        return [frame["type"] for frame in self.answers()]


def shown(who: Client) -> list[str]:
    frames, who.first = [*who.first, *who.got()], []
    return [frame["message"]["id"] for frame in frames if frame["type"] == "message"]


@pytest.mark.parametrize("lost", [set(), {OUTCOME}])
def test_what_its_holder_had_there_is_not_shown_here(monkeypatch: pytest.MonkeyPatch, lost: set[str]) -> None:
    """Protocol 6.13: its outcome is on its way when the address comes, or was lost, and is asked for."""
    scene = Scene(monkeypatch)
    scene.lost = lost
    scene.write("m1", extra=AWAY)
    assert shown(scene.bob) == ["m1"]
    confirm(scene.cluster, scene.bob, "m1")
    bob = scene.moves()
    assert shown(bob) == []
    scene.let_through()
    assert shown(bob) == [] and not scene.cluster["a"].disk.mail
    assert scene.told() == ["queued"]
    assert send(scene.cluster, scene.alice, "m1") == "delivered"


def test_what_cannot_be_read_is_asked_about_a_little_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13: again after ``Limits.look_ms``; until that broker says what became of it nobody is given it."""
    scene = Scene(monkeypatch)
    scene.lost = {OUTCOME}
    scene.write("m1", extra=AWAY)
    assert shown(scene.bob) == ["m1"]
    confirm(scene.cluster, scene.bob, "m1")
    world = scene.cluster["a"]
    with monkeypatch.context() as patch:
        patch.setattr(world, "read", partial(world.read, fails=True))
        bob = scene.moves()
    scene.slow.clear()
    scene.cluster.run(LIMITS.look_ms - 1)
    assert shown(bob) == [] and world.disk.mail
    scene.cluster.run(1)
    assert shown(bob) == [] and not world.disk.mail
    assert scene.told() == ["queued"]
    assert send(scene.cluster, scene.alice, "m1") == "delivered"


def test_what_was_passed_on_from_there_is_asked_for_where_it_went(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13: the address was at home at a third broker meanwhile, and what waited there was read there."""
    scene = Scene(monkeypatch, "abc")
    scene.lost = {OUTCOME}
    scene.write("m1", extra=AWAY)
    assert shown(scene.bob) == ["m1"]
    scene.cluster.cut("a", leases_end=False)
    scene.lost, scene.slow = set(), set()
    there = scene.moves("c")
    assert shown(there) == ["m1"]
    scene.cluster.run(LIMITS.receipt_wait_ms)
    assert not scene.cluster["b"].disk.mail and scene.cluster["c"].disk.mail, "one broker keeps it"
    confirm(scene.cluster, there, "m1")
    bob = scene.moves()
    assert shown(bob) == [] and scene.told() == ["queued"]
    scene.cluster.join("a")
    assert home_of(scene.cluster) == "a" and scene.cluster["a"].disk.mail
    scene.cluster.run(LIMITS.look_ms)
    assert shown(bob) == [] and not scene.cluster["a"].disk.mail
    assert [(post.peer, post.kind) for post in scene.cluster.posts if post.kind == LOOK] == [
        (IDS["b"], LOOK),
        (IDS["c"], LOOK),
    ]
    assert send(scene.cluster, scene.alice, "m1") == "delivered"


def test_what_was_passed_on_all_the_way_round_is_shown_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13: who had it last says that it has sent it over, and has done so before it was asked."""
    scene = Scene(monkeypatch, "abc")
    scene.lost = {OUTCOME}
    scene.write("m1", extra=AWAY)
    scene.cluster.cut("a", leases_end=False)
    scene.lost, scene.slow = set(), {LOOKED}
    scene.moves("c")
    scene.cluster.run(LIMITS.receipt_wait_ms)
    assert scene.cluster["c"].disk.mail
    bob = scene.moves()
    scene.cluster.join("a")
    scene.cluster.run(LIMITS.look_ms)
    assert not scene.cluster["c"].disk.mail and scene.cluster["a"].disk.mail, "it is back"
    assert shown(bob) == []
    scene.let_through()
    scene.cluster.run(LIMITS.peer_absent_ms)
    assert shown(bob) == ["m1"]
    confirm(scene.cluster, bob, "m1")
    assert not any(scene.cluster[name].disk.mail for name in "abc")
    assert scene.told() == ["queued"]
    assert send(scene.cluster, scene.alice, "m1") == "delivered"


def test_what_did_not_arrive_there_is_shown_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13: that broker says that it has it not."""
    scene = Scene(monkeypatch)
    scene.lost = {SEND}
    scene.write("m1", extra=AWAY)
    bob = scene.moves()
    assert shown(scene.bob) == [] and shown(bob) == []
    scene.let_through()
    assert shown(bob) == ["m1"]
    confirm(scene.cluster, bob, "m1")
    assert not scene.cluster["a"].disk.mail


def test_what_its_holder_did_not_confirm_there_comes_with_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13: that broker sends it over; until then nobody here is given it, and then once."""
    scene = Scene(monkeypatch)
    scene.slow = {SEND, OUTCOME, LOOKED}
    scene.write("m1", extra=AWAY)
    assert shown(scene.bob) == ["m1"]
    bob = scene.moves()
    assert shown(bob) == []
    scene.let_through()
    scene.cluster.run(LIMITS.look_ms)
    assert shown(bob) == ["m1"]
    confirm(scene.cluster, bob, "m1")
    scene.cluster.run(LIMITS.peer_outcome_ms)
    assert shown(bob) == [] and not any(scene.cluster[name].disk.mail for name in "ab")


def test_mail_that_was_brought_there_and_read_is_not_shown_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13: it waited for an address that nobody held, and was fetched there before that was heard."""
    scene = Scene(monkeypatch)
    scene.bob.leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    scene.write("m1", extra=AWAY)
    back = scene.moves("b")
    assert shown(back) == ["m1"]
    confirm(scene.cluster, back, "m1")
    bob = scene.moves()
    assert shown(bob) == []
    scene.let_through()
    assert shown(bob) == [] and not scene.cluster["a"].disk.mail


def test_what_was_written_behind_it_waits_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13: that broker is gone; what others write passes, and what its sender writes for two seconds."""
    scene = Scene(monkeypatch)
    carol = asker(scene.cluster, "a", "carol")
    scene.write("m1", extra=AWAY)
    confirm(scene.cluster, scene.bob, "m1")
    scene.cluster.cut("b", leases_end=False)
    scene.cluster.end_leases("b")
    bob = scene.moves()
    assert send(scene.cluster, carol, "c1") == "queued"
    assert shown(bob) == ["c1"]
    scene.write("m2", extra=AWAY)
    assert shown(bob) == []
    scene.cluster.run(LIMITS.look_ms)
    assert shown(bob) == ["m2"]
    confirm(scene.cluster, bob, "c1")
    confirm(scene.cluster, bob, "m2")
    carol.message("bob", "c2", "c2", extra=AWAY)
    scene.cluster.run()
    assert shown(bob) == ["c2"]
    confirm(scene.cluster, bob, "c2")
    assert [answer["type"] for answer in answers(carol.got())] == ["delivered"], "it waits for nothing any more"
    scene.slow.clear()
    scene.cluster.join("b")
    scene.cluster.run(LIMITS.peer_absent_ms)
    assert shown(bob) == [] and not scene.cluster["a"].disk.mail


def test_nobody_waits_for_a_broker_that_was_away_when_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13: it has not got it, and when it is back it refuses what is at home elsewhere."""
    scene = Scene(monkeypatch)
    scene.bob.leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    scene.cluster.cut("b")
    scene.write("m1", extra=AWAY)
    bob = scene.moves()
    assert shown(bob) == ["m1"]
    confirm(scene.cluster, bob, "m1")
    scene.let_through()
    scene.cluster.join("b")
    scene.cluster.run(LIMITS.peer_outcome_ms)
    assert not any(scene.cluster[name].disk.mail for name in "ab")


def test_what_was_written_without_the_engine_does_not_leave_when_its_address_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Protocol 6.13, ``shown-once``: it waits here until the engine is back; the address comes before that."""
    scene = Scene(monkeypatch)
    scene.slow = set()
    scene.cluster.cut("a", leases_end=False)
    for message_id in ("m1", "m2"):
        scene.write(message_id, extra=AWAY)
    assert scene.told() == ["queued", "queued"]
    bob = scene.moves()
    assert shown(bob) == ["m1", "m2"]
    scene.cluster.join("a")
    assert home_of(scene.cluster) == "a" and shown(scene.bob) == []
    assert [post.kind for post in scene.cluster.posts if post.kind == SEND] == []
    for message_id in ("m1", "m2"):
        confirm(scene.cluster, bob, message_id)
    assert not any(scene.cluster[name].disk.mail for name in "ab")


def test_what_was_written_without_the_engine_is_brought_in_order_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Protocol 6.13: at once, and it may have been shown there when the address comes a moment later."""
    scene = Scene(monkeypatch)
    scene.cluster.cut("a", leases_end=False)
    for message_id in ("m1", "m2"):
        scene.write(message_id, extra=AWAY)
    assert shown(scene.bob) == []
    scene.cluster.join("a")
    assert shown(scene.bob) == ["m1", "m2"]
    for message_id in ("m1", "m2"):
        confirm(scene.cluster, scene.bob, message_id)
    bob = scene.moves()
    scene.cluster.run(LIMITS.look_ms)
    assert shown(bob) == []
    scene.let_through()
    assert shown(bob) == [] and not any(scene.cluster[name].disk.mail for name in "ab")


def test_what_the_engine_is_lost_for_while_it_is_read_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13: it was about to be brought there."""
    scene = Scene(monkeypatch)
    scene.slow = set()
    scene.cluster.cut("a", leases_end=False)
    scene.write("m1", extra=AWAY)
    world = scene.cluster["a"]
    world.auto = False
    world.peer_told(ClusterState("on", "", "play", "p"))
    assert world.reads
    scene.cluster.cut("a", leases_end=False)
    world.auto = True
    scene.cluster.run()
    bob = scene.moves()
    assert shown(bob) == ["m1"]
    scene.cluster.join("a")
    assert shown(scene.bob) == []


def _left_for_b(scene: Scene) -> None:
    """Let alice write to the address while its home is away."""
    scene.bob.leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    scene.cluster.cut("b")
    scene.write("m1", extra=AWAY)


def test_what_was_left_for_a_broker_may_be_there_once_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13: it finds it in the engine, before this broker has brought it there again."""
    scene = Scene(monkeypatch)
    _left_for_b(scene)
    back = claim(scene.cluster, "b")
    world = scene.cluster["a"]
    with monkeypatch.context() as patch:
        patch.setattr(world, "read", partial(world.read, fails=True))
        scene.cluster.join("b")
        assert shown(back) == ["m1"]
        confirm(scene.cluster, back, "m1")
        bob = scene.moves()
    scene.cluster.run(LIMITS.look_ms)
    assert shown(bob) == []
    scene.let_through()
    assert shown(bob) == [] and not world.disk.mail


@pytest.mark.parametrize("is_back", [False, True])
def test_what_was_left_for_a_broker_is_kept_until_all_know_where_its_address_is(
    monkeypatch: pytest.MonkeyPatch, is_back: bool
) -> None:
    """Protocol 6.13: the engine cannot be reached when the address comes: it may be read there meanwhile."""
    scene = Scene(monkeypatch)
    _left_for_b(scene)
    scene.cluster.cut("a", leases_end=False)
    bob = scene.moves()
    assert shown(bob) == []
    there = claim(scene.cluster, "b")
    if is_back:
        scene.cluster.join("b")
        assert shown(there) == ["m1"]
        confirm(scene.cluster, there, "m1")
    scene.slow = set()
    scene.cluster.join("a")
    assert shown(bob) == []
    scene.let_through()
    scene.cluster.run(LIMITS.look_ms)
    assert shown(bob) == ([] if is_back else ["m1"])
    if not is_back:
        scene.cluster.join("b")
        assert shown(there) == [] and shown(bob) == []
        confirm(scene.cluster, bob, "m1")
    scene.cluster.run(LIMITS.peer_outcome_ms)
    assert not any(scene.cluster[name].disk.mail for name in "ab")


def test_what_was_brought_there_once_is_not_only_left_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13: it was shown there, and posted again when that broker was away already."""
    scene = Scene(monkeypatch)
    scene.lost = {OUTCOME}
    scene.write("m1", extra=AWAY)
    assert shown(scene.bob) == ["m1"]
    confirm(scene.cluster, scene.bob, "m1")
    scene.bob.leave()
    scene.cluster.run(LIMITS.receipt_wait_ms)
    scene.cluster.cut("b")
    scene.cluster.run(LIMITS.peer_outcome_ms)
    assert [post.kind for post in scene.cluster.posts].count(SEND) > 1
    scene.cluster.cut("a", leases_end=False)
    bob = scene.moves()
    scene.cluster.join("a")
    scene.cluster.run(2 * LIMITS.look_ms)
    assert shown(bob) == []
    scene.lost = set()
    scene.let_through()
    scene.cluster.join("b")
    scene.cluster.run(LIMITS.peer_absent_ms)
    assert shown(bob) == [] and not scene.cluster["a"].disk.mail


def test_what_waits_there_is_looked_for_when_it_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """D13: that broker said that it keeps it; sent again it is no second message, wherever the address goes now."""
    scene = Scene(monkeypatch)
    scene.slow.clear()
    scene.write("m1", extra=AWAY)
    assert shown(scene.bob) == ["m1"]
    scene.bob.leave()
    scene.cluster.run()
    assert scene.told() == ["queued"]
    scene.cluster.run(2 * LIMITS.announce_ms)
    back = scene.moves("b")
    assert shown(back) == ["m1"]
    confirm(scene.cluster, back, "m1")
    back.leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    scene.slow = {OUTCOME, LOOKED}
    scene.write("m1", extra=AWAY)
    bob = scene.moves()
    assert shown(bob) == []
    scene.let_through()
    assert scene.told() == ["delivered"]
    assert shown(bob) == [] and not scene.cluster["a"].disk.mail


def test_what_may_not_wait_is_not_written_to_the_holder_here_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.10: what is sent again at a return goes to where it may be known; D13: and so does a repeat."""
    scene = Scene(monkeypatch)
    scene.write("m1")
    confirm(scene.cluster, scene.bob, "m1")
    bob = scene.moves()
    assert shown(bob) == []
    scene.write("m1")
    assert shown(bob) == []
    scene.let_through()
    assert scene.told() == ["delivered"] and shown(bob) == []
    scene.write("m1")
    assert scene.told() == ["delivered"]


def test_a_repeat_of_what_may_not_wait_is_uncertain_while_nobody_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """D9: it may have arrived where its target was."""
    scene = Scene(monkeypatch)
    scene.write("m1")
    confirm(scene.cluster, scene.bob, "m1")
    bob = scene.moves()
    scene.cluster.cut("b")
    scene.cluster.run(LIMITS.receipt_wait_ms)
    assert reason(scene.answers()) == reasons.RECEIPT_MISSING
    scene.write("m1", extra=AWAY)
    assert reason(scene.answers()) == reasons.UNCERTAIN_ELSEWHERE
    bob.leave()
    scene.write("m1", extra=AWAY)
    assert reason(scene.answers()) == reasons.UNCERTAIN_ELSEWHERE
    assert shown(bob) == []


@pytest.mark.parametrize("can_be_asked", [False, True])
def test_what_an_earlier_process_posted_is_in_doubt_too(monkeypatch: pytest.MonkeyPatch, can_be_asked: bool) -> None:
    """D13: the broker of its sender was killed; its client repeats what was not answered, and the address comes."""
    scene = Scene(monkeypatch)
    scene.write("m1")
    confirm(scene.cluster, scene.bob, "m1")
    if not can_be_asked:
        scene.cluster.cut("b", leases_end=False)
    scene.cluster.crash("a")
    scene.alice = asker(scene.cluster)
    bob = scene.moves()
    scene.write("m1", extra=AWAY)
    assert shown(bob) == []
    scene.let_through()
    if can_be_asked:
        assert scene.told() == ["delivered"]
    else:
        assert reason(scene.answers()) == reasons.UNCERTAIN_ELSEWHERE
    assert shown(bob) == []


def test_what_follows_a_session_to_an_address_here_is_in_doubt_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13: it was read there; its reader then took the address, which has not been heard of here."""
    scene = Scene(monkeypatch)
    cluster = scene.cluster
    bob = scene.moves()
    cluster.run(2 * LIMITS.announce_ms)
    members = {"acknowledgesReceipt": True, "returnAddress": "return-walter", **QUEUE}
    walter = cluster["b"].register("walter", **{**members, "features": ["queue", "push.receipts"]})
    cluster.run(LIMITS.announce_ms)
    scene.lost = {OUTCOME}
    scene.frames += scene.alice.message(walter.id, "m1", "m1", extra=AWAY)
    cluster.run()
    assert shown(walter) == ["m1"]
    confirm(cluster, walter, "m1")
    cluster.run(LIMITS.receipt_wait_ms)
    assert scene.told() == ["queued"]
    walter.leave()
    cluster.run(2 * LIMITS.announce_ms)
    monkeypatch.setattr(cluster, "_tell_all", cluster["b"].peer_told)
    conn, info = cluster["b"].connect(), {**INFO, "name": "bob"}
    members |= {"features": ["queue", "push.receipts", "address"], "address": {"name": "bob", "token": TOKEN}}
    cluster["b"].send(conn, type="register", session=info, preferredSessionId=walter.id, **members)
    cluster.run(2 * LIMITS.announce_ms)
    assert cluster["b"].got(conn)[0]["sessionId"] == walter.id and home_of(cluster) == "b"
    assert [mail.mailbox.endswith(walter.id) for mail in cluster["a"].disk.mail.values()] == [True]
    cluster["b"].end(conn)
    cluster.run(2 * LIMITS.announce_ms)
    assert [mail.mailbox.startswith("address:") for mail in cluster["a"].disk.mail.values()] == [True]
    assert shown(bob) == []
    scene.let_through()
    assert shown(bob) == [] and not cluster["a"].disk.mail
    assert send(cluster, scene.alice, "m1", walter.id) == "delivered"


def test_what_was_left_for_who_stays_away_is_shown_also_if_the_engine_is_lost_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Protocol 6.13: ``Limits.look_ms`` after the cluster knows of its home, and this broker of the cluster."""
    scene = Scene(monkeypatch)
    _left_for_b(scene)
    scene.cluster.cut("a", leases_end=False)
    bob = scene.moves()
    scene.cluster.join("a")
    assert home_of(scene.cluster) == "a"
    scene.cluster.cut("a", leases_end=False)
    scene.cluster.run(2 * LIMITS.look_ms)
    assert shown(bob) == []
    scene.cluster.join("a")
    scene.cluster.run(LIMITS.look_ms)
    assert shown(bob) == ["m1"]


# --- the broker of the sender is killed meanwhile ---------------------------------------------------------


def _brought_to_b(scene: Scene) -> Client:
    """Let alice write mail to the address, which is posted to its home, and return who fetches it there."""
    scene.bob.leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    scene.write("m1", extra=AWAY)
    return scene.moves("b")


def _crashes(scene: Scene, **more: Any) -> None:
    """Kill the broker of the sender, who is back at once; what was on its way to it is there still."""
    scene.cluster.crash("a", "renewed", **more)
    scene.alice = asker(scene.cluster)


def _is_over(scene: Scene, bob: Client) -> bool:
    """Let all be heard, and tell whether nothing was shown here, and it is known that it was there."""
    scene.let_through()
    scene.cluster.run(LIMITS.look_ms)
    is_quiet = shown(bob) == [] and not scene.cluster["a"].disk.mail
    return is_quiet and send(scene.cluster, scene.alice, "m1") == "delivered" and shown(bob) == []


@pytest.mark.parametrize("lost", [set(), {OUTCOME}])
def test_what_an_earlier_process_posted_is_not_shown_here(monkeypatch: pytest.MonkeyPatch, lost: set[str]) -> None:
    """Protocol 6.13, ``shown-once``: its address comes before the new process has posted it again."""
    scene = Scene(monkeypatch)
    scene.lost = lost
    there = _brought_to_b(scene)
    assert shown(there) == ["m1"]
    confirm(scene.cluster, there, "m1")
    _crashes(scene, is_starting=True)
    bob = scene.moves()
    scene.cluster.join("a")
    scene.cluster.run(LIMITS.look_ms)
    assert home_of(scene.cluster) == "a" and shown(bob) == []
    assert _is_over(scene, bob)


def test_what_an_earlier_process_posted_and_did_not_arrive_is_shown_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13, ``queued-arrives``: the other broker says that it has it not."""
    scene = Scene(monkeypatch)
    scene.lost = {SEND}
    assert shown(_brought_to_b(scene)) == []
    _crashes(scene, is_starting=True)
    bob = scene.moves()
    scene.cluster.join("a")
    assert shown(bob) == []
    scene.let_through()
    assert shown(bob) == ["m1"]
    confirm(scene.cluster, bob, "m1")
    assert not scene.cluster["a"].disk.mail


@pytest.mark.parametrize("was_heard", [False, True])
def test_what_was_in_doubt_is_so_in_the_next_process(monkeypatch: pytest.MonkeyPatch, was_heard: bool) -> None:
    """Protocol 6.13: it is killed when its claim of the address has won, whether it has heard that or not."""
    scene = Scene(monkeypatch)
    cluster = scene.cluster
    scene.lost = {OUTCOME}
    there = _brought_to_b(scene)
    assert shown(there) == ["m1"]
    confirm(cluster, there, "m1")
    if was_heard:
        assert shown(scene.moves()) == []
    else:
        cluster.held_claims = []
        scene.moves()
        [(node, claimed)] = cluster.held_claims
        cluster.held_claims = None
        with monkeypatch.context() as patch:
            patch.setattr(node.world, "peer_told", lambda fact: None)
            cluster.decide(node, claimed)
    assert home_of(cluster) == "a"
    _crashes(scene)
    bob = scene.moves()
    assert shown(bob) == []
    assert _is_over(scene, bob)


def test_what_is_known_where_its_address_was_is_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """D13: the old home knows it, and says that the address is away; the process after the next one asks there, too."""
    scene = Scene(monkeypatch)
    scene.lost, scene.slow = {OUTCOME}, set()
    scene.write("m1", extra=AWAY)
    assert shown(scene.bob) == ["m1"]
    _crashes(scene)
    scene.cluster.crash("b", is_starting=True)
    scene.moves()
    scene.lost = set()
    scene.cluster.join("b")
    scene.cluster.run(LIMITS.look_ms)
    told = [decode(post.body, type=OutcomeLetter) for post in scene.cluster.posts if post.kind == OUTCOME][-1]
    assert (home_of(scene.cluster), told.code, told.is_known) == ("a", "away", True)
    _crashes(scene)
    bob = scene.moves()
    scene.write("m1", extra=AWAY)
    assert scene.told() == ["delivery_failed"] and shown(bob) == []


def test_what_was_accepted_where_its_address_was_is_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13.11: the old home says so to whoever brings it again; the next process knows it then."""
    scene = Scene(monkeypatch)
    scene.lost, scene.slow = {OUTCOME}, set()
    scene.write("m1", extra=AWAY)
    confirm(scene.cluster, scene.bob, "m1")
    _crashes(scene)
    scene.cluster.crash("b", is_starting=True)
    bob = scene.moves()
    scene.lost = set()
    scene.cluster.join("b")
    told = [decode(post.body, type=OutcomeLetter) for post in scene.cluster.posts if post.kind == OUTCOME][-1]
    assert told.result == "delivered"
    scene.cluster.cut("b")
    scene.write("m1", extra=AWAY)
    assert scene.told() == ["delivered"] and shown(bob) == []


def test_what_was_left_for_a_broker_by_an_earlier_process_may_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13: that broker was back while this one was not there."""
    scene = Scene(monkeypatch)
    _left_for_b(scene)
    there = scene.moves("b")
    _crashes(scene, is_starting=True)
    scene.cluster.join("b")
    assert shown(there) == ["m1"]
    confirm(scene.cluster, there, "m1")
    bob = scene.moves()
    scene.cluster.join("a")
    assert home_of(scene.cluster) == "a" and shown(bob) == []
    assert _is_over(scene, bob)


def test_what_a_broker_said_while_this_one_was_not_there_is_heard_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13: that broker was back, and is away again when the address comes."""
    scene = Scene(monkeypatch)
    _left_for_b(scene)
    there = scene.moves("b")
    scene.cluster.cut("a")
    scene.cluster.join("b")
    assert shown(there) == ["m1"]
    confirm(scene.cluster, there, "m1")
    there.leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    scene.cluster.cut("b")
    _crashes(scene)
    bob = scene.moves()
    assert home_of(scene.cluster) == "a" and shown(bob) == []
    assert _is_over(scene, bob)


@pytest.mark.parametrize("is_here_before", [False, True])
def test_what_an_earlier_process_left_for_who_stays_away_is_shown_here_soon(
    monkeypatch: pytest.MonkeyPatch, is_here_before: bool
) -> None:
    """Protocol 6.13: ``Limits.look_ms`` after the cluster knows of its home, also if that was before the crash."""
    scene = Scene(monkeypatch)
    world = scene.cluster["a"]
    _left_for_b(scene)
    if is_here_before:
        with monkeypatch.context() as patch:
            patch.setattr(world, "read", partial(world.read, fails=True))
            assert shown(scene.moves()) == []
    scene.cluster.crash("a", "renewed")
    if not is_here_before:
        scene.cluster.run(LIMITS.look_ms - 1)  # that does not count: it is not here yet
    bob = scene.moves()
    scene.cluster.run(LIMITS.look_ms - 1)
    assert home_of(scene.cluster) == "a" and shown(bob) == [] and world.disk.mail
    scene.cluster.run(1)
    assert shown(bob) == ["m1"]
    scene.slow.clear()
    scene.cluster.join("b")
    confirm(scene.cluster, bob, "m1")
    scene.cluster.run(LIMITS.peer_outcome_ms)
    assert not any(scene.cluster[name].disk.mail for name in "ab")


def test_what_is_not_in_doubt_any_more_is_not_so_in_the_next_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13: that broker said that it has it not, and is gone; its holder here did not confirm it."""
    scene = Scene(monkeypatch)
    scene.lost, scene.slow = {SEND}, set()
    _brought_to_b(scene)
    assert shown(scene.moves()) == ["m1"]
    scene.cluster.cut("b")
    _crashes(scene)
    again = scene.moves()
    assert shown(again) == ["m1"]
    confirm(scene.cluster, again, "m1")
    assert not scene.cluster["a"].disk.mail


def test_an_offer_that_failed_is_recorded_with_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 1 of the ledger: nothing was posted, and the disk does not know of it; then it is posted, and it does."""
    scene = Scene(monkeypatch)
    world = scene.cluster["a"]
    scene.bob.leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    world.auto = False
    scene.write("m1", extra=AWAY)
    world.commit()
    scene.cluster.run()
    world.fail_commit()
    scene.cluster.run()
    assert [mail.elsewhere for mail in world.disk.mail.values()] == [None]
    world.auto = True
    scene.cluster.run(LIMITS.mail_retry_ms)
    assert [mail.elsewhere for mail in world.disk.mail.values()] == [Elsewhere((IDS["b"],))]
    assert [post.kind for post in scene.cluster.posts].count(SEND) == 1


def test_what_goes_with_another_one_does_not_leave_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 15.3.2: of two that say the same one is posted; the other one is in doubt nowhere."""
    scene = Scene(monkeypatch)
    scene.bob.leave()
    scene.cluster.run(2 * LIMITS.announce_ms)
    scene.cluster.cut("a", leases_end=False)
    for message_id in ("m1", "m2"):
        scene.alice.message("bob", message_id, "the same", extra=AWAY)
    scene.cluster.join("a")
    assert [post.kind for post in scene.cluster.posts].count(SEND) == 1
    kept = scene.cluster["a"].disk.mail.values()
    assert [mail.elsewhere for mail in kept] == [Elsewhere((IDS["b"],)), Elsewhere()]


def test_what_became_mail_without_a_receipt_is_in_doubt_in_the_next_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.10, 6.13: it was posted to a session there, whose receipt did not come, and waits here now."""
    scene = Scene(monkeypatch)
    scene.write("m1", extra=AWAY)
    assert shown(scene.bob) == ["m1"]
    confirm(scene.cluster, scene.bob, "m1")
    world = scene.cluster["a"]
    with monkeypatch.context() as patch:
        patch.setattr(world, "read", partial(world.read, fails=True))  # it is not posted once more
        scene.cluster.run(LIMITS.receipt_wait_ms)
        assert [(mail.offers, mail.elsewhere) for mail in world.disk.mail.values()] == [(1, Elsewhere((IDS["b"],)))]
        _crashes(scene, is_starting=True)
    bob = scene.moves()
    scene.cluster.join("a")
    assert shown(bob) == []
    assert _is_over(scene, bob)


def test_where_it_was_passed_on_is_known_to_the_next_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13: who passed it on has forgotten that, and who has it cannot be asked now."""
    scene = Scene(monkeypatch, "abc")
    scene.lost = {OUTCOME}
    scene.write("m1", extra=AWAY)
    scene.cluster.cut("a", leases_end=False)
    scene.lost, scene.slow = set(), set()
    there = scene.moves("c")
    scene.cluster.run(LIMITS.receipt_wait_ms)
    assert shown(there) == ["m1"]
    confirm(scene.cluster, there, "m1")
    bob = scene.moves()
    scene.cluster.cut("c")
    scene.cluster.join("a")
    scene.cluster.run(LIMITS.look_ms)
    assert [mail.elsewhere for mail in scene.cluster["a"].disk.mail.values()] == [Elsewhere((IDS["c"],))]
    scene.cluster["b"].disk.operations.clear()
    scene.cluster.crash("b", "renewed")
    _crashes(scene)
    bob = scene.moves()
    scene.cluster.run(LIMITS.peer_absent_ms)
    assert shown(bob) == []
    scene.cluster.join("c")
    scene.cluster.run(LIMITS.peer_absent_ms)
    assert _is_over(scene, bob)


def test_in_no_cluster_nothing_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Protocol 6.13: nobody can be asked any more."""
    scene = Scene(monkeypatch)
    _brought_to_b(scene)
    world = scene.cluster["a"]
    world.kwargs["cluster"] = ClusterState("off", "because")
    world.crash()
    bob = scene.moves()
    assert shown(bob) == ["m1"]
