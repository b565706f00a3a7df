"""Test what becomes of a message that was decided about: forwarding, the kernel's word, answers."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.wire import reasons
from tests.core.cluster import Cluster
from tests.core.harness import Client, World, answers, is_delivered, only, reason
from tests.core.mail import Agent, enter, reattach


def world_of_two(**second: Any) -> tuple[World, Client, Client]:
    world = World()
    return world, world.register("a"), world.register("b", **second)


def test_a_message_is_forwarded_before_it_is_called_delivered() -> None:
    """protocol D17, D18"""
    world, a, b = world_of_two()
    world.auto = False
    assert answers(a.message("b", "m1")) == []
    assert [append.ticket for append in world.appends] == [world.last_ticket]
    world.take()
    assert b.got() == [], "not before the reservation is committed"
    world.commit()
    assert answers(a.got()) == [] and b.texts() == []
    world.take()
    assert b.texts() == ["x"] and answers(a.got()) == []
    world.take()
    assert answers(a.got()) == [], "not before the acceptance is committed"
    world.commit()
    world.take()
    assert only(answers(a.got())) == {"type": "delivered", "messageId": "m1", "attemptId": "1.1"}


def test_a_frame_that_never_left_is_forgotten() -> None:
    """protocol D17, 6.9.2: forget; the retry is delivered (F71)"""
    world, a, b = world_of_two(returnAddress="r")
    world.deaf.add(b.conn)
    assert answers(a.message("b", "m1")) == [] and len(world.disk.operations) == 1
    world.lose(b.conn)
    answer = only(answers(a.got()))
    assert answer == {
        "type": "delivery_failed",
        "messageId": "m1",
        "attemptId": "1.1",
        "reason": "Session not found",
    }
    assert world.disk.operations == {}
    b.leave()
    b = world.register("b", returnAddress="r")
    assert is_delivered(a.message("b", "m1")) and b.texts() == ["x"]


def test_a_pending_reply_that_never_left_says_so_with_a_code() -> None:
    """protocol D17, 6.7"""
    world, a, b = world_of_two()
    b.ask("a", "q1")
    world.deaf.add(b.conn)
    a.reply("b", "r1", "q1")
    b.leave()
    answer = only(answers(a.got()))
    assert (answer["reason"], answer["reasonCode"]) == ("Session not found", "session_not_found")


def test_a_link_that_dies_before_the_commit_costs_nobody_anything() -> None:
    """design 5 "Stop": the same *forget* when a link dies between commit and release"""
    world, a, b = world_of_two(returnAddress="r")
    world.auto = False
    a.message("b", "m1")
    b.leave()
    world.settle()
    assert reason(a.got()) == "Session not found" and world.disk.operations == {}


def test_frames_a_finishing_target_still_takes_are_delivered() -> None:
    """protocol 1.6: what is queued is flushed behind the FIN of the peer"""
    world, a, b = world_of_two()
    world.auto = False
    a.message("b", "m1")
    world.end(b.conn)
    world.settle()
    assert b.texts() == ["x"] and is_delivered(a.got())


# --- what the broker of another machine says (6.13) -----------------------------------------------------

WAITING = {"queueIfAway": True}


def two_machines() -> tuple[Cluster, Agent, Agent]:
    """Return a cluster with one session at each broker, which see each other; both brokers run for a while."""
    cluster = Cluster()
    alice, bob = enter(cluster["a"], "alice"), enter(cluster["b"], "bob")
    cluster.run(cluster["a"].limits.peer_return_ms)
    alice.got(), bob.got()
    return cluster, alice, bob


def test_a_message_that_waits_at_another_broker_is_told_as_queued_with_its_place_there() -> None:
    """protocol 6.13: its recipient left before it came; the retry is brought there again"""
    cluster, alice, bob = two_machines()
    alice.queue("bob", "m1", "later")
    bob.leave()
    cluster.run()
    answer = only(answers(alice.got()))
    assert (answer["type"], answer["messageId"], answer["position"], answer["target"]) == ("queued", "m1", 1, "bob")
    assert cluster["b"].disk.mail and not cluster["a"].disk.mail
    assert alice.world.broker._messages.operations.by_id("m1").under_way is None  # type: ignore[union-attr]
    back = reattach(cluster["b"], bob)
    cluster.run(cluster["a"].limits.announce_ms)
    assert [frame["message"]["id"] for frame in back.first if frame["type"] == "message"] == ["m1"]
    back.confirm("m1")
    alice.queue("bob", "m1", "later")
    cluster.run()
    assert only(answers(alice.got()))["type"] == "delivered"


def test_nobody_is_told_twice_that_a_message_waits_at_another_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """design 4: one final answer; the first one said that the outcome is not known"""
    cluster, alice, bob = two_machines()
    cluster.cut("b", leases_end=False)
    alice.queue("bob", "m1", "later")
    monkeypatch.setattr(cluster["a"].broker._post.boxes, "has_room", lambda box, size: False)
    cluster.run(cluster["a"].limits.receipt_wait_ms)
    assert reason(answers(alice.got())) == reasons.RECEIPT_MISSING
    bob.leave()
    cluster.join("b")
    assert answers(alice.got()) == [] and cluster["b"].disk.mail


@pytest.mark.parametrize("is_answer", [True, False])
def test_an_answer_that_waits_at_another_broker_closes_its_question_here(is_answer: bool) -> None:
    """protocol 6.5: whoever asked has the answer among its mail"""
    cluster, alice, bob = two_machines()
    bob.ask("alice", "q1")
    cluster.run()
    alice.confirm("q1")
    cluster.run()
    bob.got()
    more = {"replyTo": "q1"} if is_answer else {}
    alice.message(bob.id, "r1", "because", extra=WAITING, **more)
    bob.leave()
    cluster.run()
    assert only(answers(alice.got()))["type"] == "queued"
    owed = [ask["messageId"] for ask in only(alice.write("pending", requestId="p"))["asks"]]
    assert owed == ([] if is_answer else ["q1"])


def test_what_another_broker_knows_and_cannot_hand_over_any_more_may_have_arrived() -> None:
    """protocol 6.13: the refusal of a retry says nothing of the first attempt"""
    cluster = Cluster()
    alice = enter(cluster["a"], "alice")
    bob = cluster["b"].register("bob", returnAddress="rb", acknowledgesReceipt=True)
    cluster.run(cluster["a"].limits.peer_return_ms)
    alice.message("bob", "m1")
    cluster.run()
    assert bob.texts() == ["x"]
    alice.message("bob", "m1")
    bob.leave()
    cluster.run()
    assert reason(answers(alice.got())) == reasons.RECEIPT_MISSING
    assert alice.world.broker._messages.operations.by_id("m1") is not None


def test_what_another_broker_does_not_know_is_forgotten_and_may_be_sent_again() -> None:
    """protocol 6.13, 6.9.2: nothing was done with it there"""
    cluster = Cluster()
    alice = enter(cluster["a"], "alice")
    bob = cluster["b"].register("bob", returnAddress="rb", acknowledgesReceipt=True)
    cluster.run(cluster["a"].limits.peer_return_ms)
    alice.message("bob", "m1")
    bob.leave()
    cluster.run()
    assert reason(answers(alice.got())) == reasons.SESSION_NOT_FOUND
    assert alice.world.broker._messages.operations.by_id("m1") is None


# --- written again --------------------------------------------------------------------------------------


def test_who_comes_again_as_an_older_client_is_told_no_validity() -> None:
    """protocol 5.30: no member that it does not know"""
    world = World()
    sender = enter(world, "a")
    kept = {"returnAddress": "rb", "acknowledgesReceipt": True}
    target = world.register("b", features=["queue"], clientProtocolVersion="1.0", kind="custom", **kept)
    sender.message("b", "m1", extra={"validFor": 60_000})
    assert "validUntil" in only(target.got(), "message")
    target.leave()
    older = world.register("b", **kept)
    [frame] = [frame for frame in [*older.first, *older.got()] if frame["type"] == "message"]
    assert frame["message"]["id"] == "m1" and "validUntil" not in frame


def test_a_client_that_confirms_may_say_so_in_both_ways() -> None:
    """protocol 15.4: its receipts are awaited anyhow"""
    _, a, b = world_of_two(acknowledgesReceipt=True)
    assert answers(a.message("b", "m1")) == []
    b.write("message_receipt", messageId="m1")
    assert is_delivered(a.got())
