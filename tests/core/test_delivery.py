"""Test what becomes of a message that was decided about: forwarding, the kernel's word, answers."""

from __future__ import annotations

from typing import Any

from tests.core.harness import Client, World, answers, is_delivered, only, reason


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
