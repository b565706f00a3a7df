"""What a withdrawn question leaves behind, here and for the next broker process."""

from __future__ import annotations

from typing import Any

from intercom.limits import Limits
from tests.core.harness import Client, World


def open_questions(world: World) -> int:
    probe = world.connect()
    [status] = world.send(probe, type="broker_status", requestId="s")
    count: int = status["report"]["broker"]["openQuestions"]
    world.end(probe)
    return count


def asked(world: World, **extra: Any) -> tuple[Client, Client]:
    asker = world.register("asker", returnAddress="a")
    worker = world.register("worker", returnAddress="w", **extra)
    asker.message("worker", "q1", "ok?", expectsReply=True)
    return asker, worker


def test_a_withdrawn_question_stays_withdrawn_after_a_crash() -> None:
    """protocol OP-6, design 5: asks that survive are those somebody still waits for"""
    world = World()
    asker, _ = asked(world)
    asker.write("cancel_ask", messageId="q1")
    assert open_questions(world) == 0
    world.crash()
    assert open_questions(world) == 0


def test_an_open_question_is_open_after_a_crash() -> None:
    """design 5: Asks survive"""
    world = World()
    asked(world)
    world.crash()
    assert open_questions(world) == 1


def test_asking_again_under_the_id_opens_a_withdrawn_question_again() -> None:
    """protocol 6.9.5: a duplicate of an accepted ask that was not answered is recorded"""
    world = World()
    asker, worker = asked(world)
    asker.write("cancel_ask", messageId="q1")
    world.pass_time(1_000)
    asker.message("worker", "q1", "ok?", expectsReply=True)
    assert open_questions(world) == 1
    worker.got()
    reply = worker.message(asker.id, "r1", "yes", replyTo="q1", extra={"requirePendingReply": True})
    assert [frame["type"] for frame in reply] == ["delivered"]
    assert asker.texts() == ["yes"]


def test_an_ask_withdrawn_before_its_receipt_opens_no_question() -> None:
    """protocol OP-6"""
    world = World()
    asker, worker = asked(world, acknowledgesReceipt=True)
    asker.write("cancel_ask", messageId="q1")
    worker.write("received", messageId="q1")
    assert open_questions(world) == 0
    world.crash()
    assert open_questions(world) == 0


def test_somebody_else_withdraws_nothing() -> None:
    """protocol OP-6: that session's open question"""
    world = World()
    _, worker = asked(world)
    worker.write("cancel_ask", messageId="q1")
    assert open_questions(world) == 1
    world.crash()
    assert open_questions(world) == 1


def test_an_answer_passes_a_full_wait_for_receipts() -> None:
    """protocol OP-11: a new send is refused with capacity; design 4: what was asked for was charged before"""
    world = World(limits=Limits(unconfirmed_frames=2))
    asker = world.register("asker", returnAddress="a", acknowledgesReceipt=True)
    worker = world.register("worker", returnAddress="w")
    asker.message("worker", "q1", "ok?", expectsReply=True)
    worker.got()
    for number in range(2):
        worker.message(asker.id, f"m{number}")
    [refused] = worker.message(asker.id, "m3")
    assert refused["reason"].startswith("Capacity reached")
    worker.message(asker.id, "r1", "yes", replyTo="q1", extra={"requirePendingReply": True})
    assert asker.texts() == ["x", "x", "yes"]
    asker.write("received", messageId="r1")
    assert [frame["type"] for frame in worker.got()] == ["delivered"]


def test_the_status_tells_the_last_failure_until_a_commit_succeeds() -> None:
    """F128: no green light during the outage"""
    world = World()
    one, two = world.register("one", returnAddress="1"), world.register("two", returnAddress="2")
    world.auto = False
    one.message("two", "m1")
    world.fail_commit()
    world.auto = True
    probe = world.connect()
    [status] = world.send(probe, type="broker_status", requestId="s")
    assert status["report"]["broker"]["store"]["lastFailure"] == {"reason": "disk full", "at": world.wall}
    one.message("two", "m1")
    assert two.texts() == ["x"]
    [status] = world.send(probe, type="broker_status", requestId="s")
    assert "lastFailure" not in status["report"]["broker"]["store"]
