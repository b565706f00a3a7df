"""Test that who held an address says what it is done with before that goes to its newer holder (protocol 6.13.6)."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.core.letters import OUTCOME
from intercom.core.records import Post
from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.cluster import Cluster, Node
from tests.core.harness import Client, answers
from tests.core.test_abroad import confirm
from tests.core.test_homes import AWAY, asker, claim, home_of
from tests.core.test_in_doubt import shown

LIMITS = Limits()


class Scene:
    """Let an address whose holder at ``b`` was shown two messages be taken at ``a``."""

    def __init__(self, *, may_wait: bool = True) -> None:
        self.cluster = Cluster()
        self.old = claim(self.cluster, "b")
        self.cluster.run(LIMITS.announce_ms)
        self.alice = asker(self.cluster, "b")
        for message_id in ("m1", "m2"):
            self.alice.message("bob", message_id, message_id, extra=AWAY if may_wait else {})
        assert shown(self.old) == ["m1", "m2"]
        self.old.world.stay = {self.old.conn}  # type: ignore[attr-defined]
        self.new = claim(self.cluster, "a")

    def told(self, who: Client) -> list[str]:
        return [frame["type"] for frame in who.got() if frame["type"] in ("replaced", "delivered", "message")]


@pytest.mark.parametrize("may_wait", [False, True])
def test_what_was_done_with_when_the_address_went_counts(*, may_wait: bool) -> None:
    """``shown-once``: the receipt was on its way when its writer was told that it holds the address no more."""
    scene = Scene(may_wait=may_wait)
    assert scene.told(scene.old) == ["replaced"] and shown(scene.new) == []
    confirm(scene.cluster, scene.old, "m1")
    scene.old.leave()
    scene.cluster.run()
    assert home_of(scene.cluster) == "a"
    assert shown(scene.new) == (["m2"] if may_wait else [])
    assert "delivered" in scene.told(scene.alice)


@pytest.mark.parametrize("sender", ["a", "b", "c"])
@pytest.mark.parametrize("is_ask", [False, True])
def test_what_must_not_wait_and_was_not_done_with_reaches_the_newer_holder_once(sender: str, *, is_ask: bool) -> None:
    """``shown-once``: it is sent again, and nothing of it is left where the address was, and is again."""
    cluster = Cluster("abc")
    old = claim(cluster, "b")
    cluster.run(LIMITS.peer_return_ms)
    alice = asker(cluster, sender)

    def write() -> list[str]:
        more = {"expectsReply": True} if is_ask else {}
        frames = alice.message("bob", "m1", "m1", **more)
        cluster.run()
        return [str(frame.get("reason", frame["type"])) for frame in answers([*frames, *alice.got()])]

    assert write() == [] and shown(old) == ["m1"]
    new = claim(cluster, "a")
    cluster.run(LIMITS.announce_ms)
    assert [str(frame.get("reason")) for frame in answers(alice.got())] == [reasons.RECEIPT_MISSING]
    assert write() == [] and shown(new) == ["m1"]
    confirm(cluster, new, "m1")
    assert [frame["type"] for frame in answers(alice.got())] == ["delivered"]
    back = claim(cluster, "b")
    cluster.run(LIMITS.receipt_wait_ms)
    assert shown(back) == []


@pytest.mark.parametrize("is_told_late", [False, True])
def test_a_question_is_answered_by_the_newer_holder(monkeypatch: pytest.MonkeyPatch, *, is_told_late: bool) -> None:
    """6.5, 6.10.5: a third machine hears of that before it hears what became of the question where it was asked."""
    cluster = Cluster("abc")
    old = claim(cluster, "b")
    cluster.run(LIMITS.peer_return_ms)
    alice, posted = asker(cluster, "c"), cluster.post
    alice.ask("bob", "q1", extra={"resolveReplyTarget": True})
    cluster.run()
    told: list[dict[str, Any]] = []
    assert shown(old) == ["q1"]
    if is_told_late:
        lost = ("b", OUTCOME)
        monkeypatch.setattr(
            cluster, "post", lambda node, post: None if (node.name, post.kind) == lost else posted(node, post)
        )
    new = claim(cluster, "a")
    cluster.run(LIMITS.announce_ms)
    if not is_told_late:
        assert [frame["reason"] for frame in answers(alice.got())] == [reasons.RECEIPT_MISSING]
        told = alice.ask("bob", "q1", extra={"resolveReplyTarget": True})
        cluster.run()
    assert shown(new) == ["q1"]
    confirm(cluster, new, "q1")
    told += alice.got()
    assert "peer_disconnected" not in [frame["type"] for frame in told]
    assert [frame["sessionId"] for frame in told if frame["type"] == "question_target"][-1:] == [new.id]
    new.reply(alice.id, "r1", "q1", "because")
    cluster.run()
    assert [frame["message"]["replyTo"] for frame in alice.got() if frame["type"] == "message"] == ["q1"]


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("to", ["a", "c"])
def test_a_question_is_asked_where_its_address_is_when_it_is_sent_again(
    monkeypatch: pytest.MonkeyPatch, to: str, *, is_open: bool
) -> None:
    """D13: the older holder was shown it, and confirmed it, and cannot answer any more."""
    cluster = Cluster("abc")
    old = claim(cluster, "b")
    cluster.run(LIMITS.peer_return_ms)
    alice, late, posted = asker(cluster), [], cluster.post

    def post(node: Node, letter: Post) -> None:
        if (node.name, letter.kind) == ("b", OUTCOME):
            late.append((node, letter))
        else:
            posted(node, letter)

    monkeypatch.setattr(cluster, "post", post)
    alice.ask("bob", "q1")
    cluster.run()
    assert shown(old) == ["q1"]
    confirm(cluster, old, "q1")
    cluster.crash("a", "renewed")
    for node, letter in late:
        posted(node, letter)
    cluster.run()
    if is_open:  # it was, and waits for its sender, who is away
        alice = asker(cluster)
        alice.ask("bob", "q1")
        alice.leave()
    new = claim(cluster, to)
    cluster.run(LIMITS.announce_ms)
    alice = asker(cluster)
    alice.ask("bob", "q1")
    cluster.run()
    assert shown(new) == ["q1"]
    confirm(cluster, new, "q1")
    new.reply(alice.id, "r1", "q1", "because")
    cluster.run()
    assert [frame["message"]["replyTo"] for frame in alice.got() if frame["type"] == "message"] == ["q1"]


def test_what_was_brought_elsewhere_waits_for_its_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """6.13.1: the address has come and gone here since; nobody here has it in hand."""
    cluster = Cluster("abc")
    claim(cluster, "b")
    cluster.run(LIMITS.peer_return_ms)
    alice, posted = asker(cluster), cluster.post
    monkeypatch.setattr(cluster, "post", lambda node, post: None if post.kind == OUTCOME else posted(node, post))
    alice.message("bob", "m1", "m1")
    cluster.run()
    for broker in "ac":
        claim(cluster, broker)
    cluster.run(LIMITS.announce_ms)
    assert answers(alice.got()) == []
    cluster.run(LIMITS.receipt_wait_ms)
    assert [frame["reason"] for frame in answers(alice.got())] == [reasons.RECEIPT_MISSING]


def test_who_does_not_leave_is_thrown_out() -> None:
    """``Limits.part_ms``: it is told once, and what it has not confirmed by then goes to the newer holder."""
    scene = Scene()
    scene.cluster.run(LIMITS.part_ms - 1)
    assert shown(scene.new) == []
    scene.cluster.run(1)
    assert shown(scene.new) == ["m1", "m2"]
    assert scene.told(scene.old) == ["replaced"]
    assert scene.old.conn not in scene.old.world.open


def test_who_has_nothing_in_hand_leaves_at_once() -> None:
    cluster = Cluster()
    old = claim(cluster, "b")
    old.world.stay = {old.conn}  # type: ignore[attr-defined]
    claim(cluster, "a")
    assert [frame["type"] for frame in old.got()][-1:] == ["replaced"]
    assert old.conn not in old.world.open


def test_who_comes_here_meanwhile_is_the_newest_holder() -> None:
    """Rule 1 of addresses: it claims the address, and who took it in between holds it no more."""
    scene = Scene()
    newest = claim(scene.cluster, "b")
    scene.cluster.run()
    assert home_of(scene.cluster) == "b"
    assert scene.told(scene.new) == ["replaced"]
    scene.cluster.run(LIMITS.part_ms)
    assert newest.conn in newest.world.open
    assert shown(newest) == ["m1", "m2"]


def test_the_address_is_not_claimed_for_who_leaves() -> None:
    """Its groups change: it is somebody else's by now all the same."""
    scene = Scene()
    scene.old.write("presence", status="busy")
    scene.old.write("join_group", requestId="j", group="other")
    scene.cluster.run()
    assert home_of(scene.cluster) == "a"
    scene.old.leave()
    scene.cluster.run()
    assert home_of(scene.cluster) == "a" and shown(scene.new) == ["m1", "m2"]


def test_what_the_engine_has_forgotten_is_waited_for_no_more() -> None:
    scene = Scene()
    scene.cluster.cut("b")
    scene.cluster.addresses.clear()
    scene.cluster.join("b")
    scene.cluster.run(LIMITS.part_ms)
    assert home_of(scene.cluster) == "b"
