"""Test what becomes of a message that was decided about: forwarding, the kernel's word, answers."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from intercom.core.attempts import Attempt
from intercom.core.operation import Operation
from intercom.core.receipts import Unconfirmed
from intercom.limits import Limits
from intercom.wire import reasons
from intercom.wire.frames import Received
from tests.core.cluster import Cluster
from tests.core.harness import Client, World, answers, is_delivered, only, reason
from tests.core.mail import Agent, enter, holder, reattach
from tests.core.test_supervision import family, up


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


@pytest.mark.parametrize("end", ["the link ends", "the link ends after the row", "the commit fails"])
@pytest.mark.parametrize("confirms", [False, True])
def test_an_attempt_that_came_to_nothing_leaves_no_cycle(end: str, confirms: bool) -> None:
    """Old objects are not collected: whatever only refers to itself stays as long as the broker"""
    world, a, b = world_of_two(returnAddress="r", **({"acknowledgesReceipt": True} if confirms else {}))
    world.deaf.add(b.conn)
    world.auto = end != "the commit fails"
    gc.disable()
    gc.freeze()
    try:
        a.message("b", "m1")
        if end == "the commit fails":
            world.fail_commit()
            world.auto = True
        elif end == "the link ends after the row":
            world.pass_time(725_000)
        world.lose(b.conn)
        b.leave()
        a.got()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = [each for each in gc.garbage if isinstance(each, Operation | Attempt | Unconfirmed)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.unfreeze()
        gc.enable()
    assert left == []


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
    assert answer == {
        "type": "queued",
        "messageId": "m1",
        "target": "bob",
        "position": 1,
        "attemptId": f"{alice.conn}.1",
    }
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


@pytest.mark.parametrize("reply_to", ["q1", "q2", None])
def test_an_answer_that_waits_at_another_broker_closes_its_question_here(reply_to: str | None) -> None:
    """protocol 6.5: whoever asked has the answer among its mail"""
    cluster, alice, bob = two_machines()
    bob.ask("alice", "q1")
    cluster.run()
    alice.confirm("q1")
    cluster.run()
    bob.got()
    more = {} if reply_to is None else {"replyTo": reply_to}
    alice.message(bob.id, "r1", "because", extra=WAITING, **more)
    bob.leave()
    cluster.run()
    assert only(answers(alice.got()))["type"] == "queued"
    owed = [ask["messageId"] for ask in only(alice.write("pending", requestId="p"))["asks"]]
    assert owed == ([] if reply_to == "q1" else ["q1"])


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


# --- receipts and their time (6.10) ---------------------------------------------------------------------


@pytest.mark.parametrize("may_queue", [False, True])
def test_who_confirms_late_has_the_whole_time_unless_the_message_may_wait_as_mail(may_queue: bool) -> None:
    """protocol 6.10.4: 8 s; design section 7, Queueing: as mail it waits when its recipient is busy"""
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    sender.message("b", "m1", extra=WAITING if may_queue else None)
    world.pass_time(world.limits.busy_ms)
    assert [answer["type"] for answer in answers(sender.got())] == (["queued"] if may_queue else [])
    world.pass_time(world.limits.receipt_wait_ms - world.limits.busy_ms)
    assert [answer["type"] for answer in answers(sender.got())] == ([] if may_queue else ["delivery_failed"])
    assert target.texts() == ["x"]


def test_the_wait_of_an_earlier_attempt_is_over_with_it() -> None:
    """protocol 6.10.4: what may not wait as mail any more has the whole time from when it is sent again."""
    world = World()
    sender = enter(world, "a")
    enter(world, "b")
    sender.message("b", "m1", extra=WAITING)
    world.pass_time(world.limits.busy_ms - 1)
    sender.message("b", "m1")
    sender.got()
    world.pass_time(world.limits.receipt_wait_ms - 1)
    assert answers(sender.got()) == []
    world.pass_time(1)
    assert reason(sender.got()) == reasons.RECEIPT_MISSING


def test_what_may_wait_for_somebody_without_a_mailbox_is_waited_for_as_long_as_anything_else() -> None:
    """protocol 6.10.4: it cannot wait as mail"""
    world = World()
    sender = enter(world, "a")
    world.register("b", acknowledgesReceipt=True)
    sender.queue("b", "m1")
    world.pass_time(world.limits.receipt_wait_ms - 1)
    assert answers(sender.got()) == []
    world.pass_time(1)
    assert reason(sender.got()) == reasons.RECEIPT_MISSING


@pytest.mark.parametrize(
    ("mono", "wall", "is_late"),
    [(999, 999, False), (1_000, 999, True), (999, 1_000, True), (1_000, 0, True), (0, 1_000, True)],
)
def test_a_message_is_out_of_date_when_either_clock_says_so(mono: int, wall: int, is_late: bool) -> None:
    """protocol 9.5.5: the machine may have slept, or the clock been set"""
    world = World()
    sender, target = enter(world, "a"), enter(world, "b")
    sender.message("b", "m1", extra={"validFor": 1_000})
    world.mono += mono
    world.wall += wall
    target.write("received", messageId="m1", outOfDate=True)
    answer = only(answers(sender.got()))
    assert answer["type"] == ("delivery_failed" if is_late else "delivered")


def test_only_a_receipt_for_a_delivery_is_one() -> None:
    """protocol 6.10.5: whoever else waits for a receipt is asked next"""
    world, a, b = world_of_two(acknowledgesReceipt=True)
    delivery, sessions = world.broker._sending.delivery, world.broker._registry.sessions
    a.message("b", "m1")
    first, second = sessions.get(a.id), sessions.get(b.id)
    assert first is not None and second is not None
    assert delivery.received(first, Received("m1"), world.now) is False, "it confirms nothing"
    assert delivery.received(second, Received("m2"), world.now) is False
    assert delivery.received(second, Received("m1"), world.now) is True


@pytest.mark.parametrize(
    ("asker", "is_told"), [("here", False), ("away", False), ("closed", True), ("left", True), ("older, here", False)]
)
def test_a_question_that_is_written_again_says_whether_anybody_waits_for_its_answer(asker: str, is_told: bool) -> None:
    """protocol 4.1 effect 8, 5.42: the asker is here, or may come back"""
    world = World()
    if asker in ("left", "older, here"):
        who: Client = world.register("a", returnAddress="ra")
    else:
        who = enter(world, "a")
    target = enter(world, "b")
    who.ask("b", "q1")
    if asker in ("away", "closed", "left"):
        who.leave()
    if asker == "closed":
        world.judge(who.id, is_alive=False)
    world.lose(target.conn)
    again = reattach(world, target)
    came = [frame["type"] for frame in [*again.first, *again.got()]]
    assert "message" in came and ("question_withdrawn" in came) is is_told


# --- what rests on the commit ---------------------------------------------------------------------------


def test_an_asker_learns_who_answers_behind_the_commit_of_the_answer() -> None:
    """protocol 5.15, FE 5.1: nothing is told of what may not be recorded"""
    world = World()
    asker, reader = enter(world, "a"), holder(world, "desk")
    asker.ask("desk", "q1")
    reader.confirm("q1")
    reader.write("unregister", keepsQuestions=True)
    helper = holder(world, "desk", reader.registered["addressToken"], hold="none")
    asker.got()
    world.auto = False
    helper.reply(asker.id, "r1", "q1")
    world.take()
    assert asker.got() == []
    world.settle()
    assert [frame["type"] for frame in asker.got()] == ["question_target", "message"]


def test_a_failed_acceptance_names_its_message_and_attempt() -> None:
    """protocol 5.13: the sender has several under way"""
    world, a, _ = world_of_two()
    world.auto = False
    a.message("b", "m1")
    world.commit()
    world.take()
    world.fail_commit()
    world.settle()
    answer = only(answers(a.got()))
    assert (answer["messageId"], answer["attemptId"]) == ("m1", f"{a.conn}.1")
    assert answer["reason"] == reasons.NOT_CONFIRMED_DURABLY


def test_a_crossing_that_was_there_stays_when_a_later_one_could_not_be_recorded() -> None:
    """protocol 6.6: the first message did go up the line, and may be answered"""
    world, parent, child = family(World(limits=Limits(operation_ttl_ms=60_000)))
    assert is_delivered(up(child, parent.id, "k1"))
    world.pass_time(130_000)
    world.auto = False
    up(child, parent.id, "k1")
    world.commit()
    world.take()
    world.fail_commit()
    world.auto = True
    world.settle()
    assert reason(child.got()) == reasons.NOT_CONFIRMED_DURABLY
    assert is_delivered(parent.reply(child.id, "a1", "k1", pending=False))


def test_what_another_broker_refuses_for_good_says_why_with_its_code() -> None:
    """protocol 5.13: the code of a pending reply comes along"""
    cluster, alice, bob = two_machines()
    bob.ask("alice", "q1")
    cluster.run()
    alice.confirm("q1")
    cluster.run()
    alice.reply(bob.id, "r1", "q1")
    bob.write("unregister")
    cluster.run()
    answer = only(answers(alice.got()))
    assert (answer["reason"], answer.get("reasonCode")) == (reasons.SESSION_NOT_FOUND, "session_not_found")
