"""Test that nobody ends up waiting for itself (F64, protocol 15.1)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intercom.core.waits import Waits
from intercom.wire import reasons
from tests.core.harness import Client, World
from tests.core.mail import enter, holder, reattach
from tests.core.waiting import assert_no_circle, open_edges


class Edge:
    """Be a wait with nothing but its two sides."""

    def __init__(self, asker: str, target: str) -> None:
        self.asker_party, self.target_party, self.message_id = asker, target, f"{asker}{target}"
        self.asker_id, self.target_id, self.dormant = asker, target, False


def outcome(frames: list[dict[str, Any]]) -> str:
    [answer] = [frame for frame in frames if frame["type"] in ("delivered", "delivery_failed", "queued")]
    return answer["type"] if "reason" not in answer else reasons.code_of(answer["reason"])


def reason(frames: list[dict[str, Any]]) -> str:
    [answer] = [frame for frame in frames if frame["type"] == "delivery_failed"]
    return str(answer["reason"])


def ring(count: int, **members: Any) -> tuple[World, list[Client]]:
    world = World()
    return world, [world.register(name, **members) for name in "abcdefghij"[:count]]


@pytest.mark.parametrize("count", [2, 3, 4, 10])
def test_the_ask_that_closes_a_circle_is_refused_and_names_it(count: int) -> None:
    """F64: a circle of any length"""
    _, clients = ring(count)
    names = "abcdefghij"[:count]
    for number in range(count - 1):
        assert outcome(clients[number].ask(names[number + 1], f"q{number}")) == "delivered"
    refusal = reason(clients[-1].ask("a", "last"))
    assert reasons.code_of(refusal) == "would_deadlock"
    for name in names[:6]:
        if name != names[-1]:
            assert f"wait for {name}," in refusal or f"waits for {name}," in refusal
    assert "which waits for you;" in refusal
    assert "answer first" in refusal, "safe to follow"
    assert len(refusal) < 400


def test_plain_messages_pass_in_a_circle() -> None:
    """F64: plain sends pass"""
    _, (a, b) = ring(2)
    a.ask("b", "q1")
    assert outcome(b.message("a", "m1")) == "delivered"


def test_a_reply_opens_the_way() -> None:
    """F64: the edge clears on reply"""
    _, (a, b) = ring(2)
    a.ask("b", "q1")
    assert outcome(b.ask("a", "q2")) == "would_deadlock"
    b.reply("a", "r1", "q1")
    assert outcome(b.ask("a", "q2")) == "delivered", "a refused ask was not recorded, so its id is free"


def test_a_withdrawal_opens_the_way() -> None:
    """F64: the edge clears on cancel"""
    _, (a, b) = ring(2)
    a.ask("b", "q1")
    a.write("cancel_ask", messageId="q1")
    assert outcome(b.ask("a", "q2")) == "delivered"


def test_the_time_limit_opens_the_way() -> None:
    """F64: the edge clears on time-out"""
    world, (a, b) = ring(2)
    a.ask("b", "q1")
    world.pass_time(world.limits.ask_ms)
    assert outcome(b.ask("a", "q2")) == "delivered"


def test_a_crashed_asker_is_in_nobodys_way() -> None:
    """F64: edges left by a crashed asker must not refuse later asks"""
    world, (a, b) = ring(2)
    a.ask("b", "q1")
    a.leave()
    again = world.register("a")
    assert outcome(b.ask("a", "q2")) == "delivered"
    assert outcome(again.ask("b", "q3")) == "would_deadlock"


def test_a_question_whose_asker_is_away_is_in_nobodys_way_and_does_not_close_a_circle_later() -> None:
    """F64, protocol 15.1: a question that sleeps is looked at again before it wakes"""
    world = World()
    held = holder(world, "a")
    token = held.registered["addressToken"]
    a = holder(world, "a", token, "none")
    b = enter(world, "b")
    a.ask("b", "q1")
    b.confirm("q1")
    a.leave()
    b.ask("a", "q2")
    held.confirm("q2")
    assert len(open_edges(world)) == 1
    back = reattach(world, a)
    assert_no_circle(world)
    assert len(open_edges(world)) == 1
    assert outcome(back.ask("b", "q1")) == "would_deadlock"
    held.reply("b", "r2", "q2")
    b.confirm("r2")
    assert outcome(back.ask("b", "q1")) == "delivered"


def test_an_ask_that_is_under_way_counts() -> None:
    """F64: A asks B, which has not confirmed it yet, and is asked by B"""
    world = World()
    a, b = world.register("a"), world.register("b", acknowledgesReceipt=True)
    a.ask("b", "q1")
    assert outcome(b.ask("a", "q2")) == "would_deadlock"
    world.pass_time(world.limits.receipt_wait_ms)
    assert outcome(b.ask("a", "q2")) == "delivered", "nobody waits any more: the outcome was uncertain"


def test_all_who_act_under_an_address_are_one() -> None:
    """Protocol 15.1: what a command of an agent waits for keeps the agent from answering"""
    world = World()
    planner = holder(world, "planner")
    command = holder(world, "planner", planner.registered["addressToken"], "none")
    worker = enter(world, "worker")
    command.ask("worker", "q1")
    worker.confirm("q1")
    assert outcome(worker.ask("planner", "q2")) == "would_deadlock"


def test_nobody_is_named_who_may_not_be_seen() -> None:
    """Protocol 15.1: the parties in between may be in other groups"""
    world = World()
    a = world.register("a", info={"groups": ["one"]})
    b = world.register("b", info={"groups": ["one", "two"]})
    c = world.register("c", info={"groups": ["two", "three"]})
    d = world.register("d", info={"groups": ["three", "one"]})
    b.ask("c", "q1")
    c.ask("d", "q2")
    d.ask("a", "q3")
    refusal = reason(a.ask("b", "q4"))
    assert (
        "you would wait for b, which waits for somebody out of your reach, which waits for d, which waits for you"
        in (refusal)
    )


def test_the_person_may_always_be_asked() -> None:
    """Protocol 15.1: a person does several things at once"""
    world = World()
    me = enter(world, None, address={"name": "@me"})
    a = enter(world, "a")
    me.ask("a", "q1")
    a.confirm("q1")
    a.ask("@me", "q2")
    me.confirm("q2")
    assert [frame["messageId"] for frame in a.got() if frame["type"] == "delivered"] == ["q2"]


def test_an_older_client_is_refused_in_words_it_can_show() -> None:
    """Protocol 5.12: no code but the two every client knows"""
    world = World()
    a, b = world.register("a"), world.register("b")
    a.ask("b", "q1")
    [answer] = [frame for frame in b.ask("a", "q2") if frame["type"] == "delivery_failed"]
    assert set(answer) == {"type", "messageId", "reason", "attemptId"}


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=40), st.integers(0, 6), st.integers(0, 6))
@settings(max_examples=200, deadline=None)
def test_a_chain_is_found_when_there_is_one_and_is_the_shortest(
    pairs: list[tuple[int, int]], first: int, last: int
) -> None:
    waits = Waits()
    for asker, target in pairs:
        waits.begin(Edge(str(asker), str(target)))
    reached, distance, steps = {first}, 0 if first == last else None, 0
    while distance is None and steps < 8:
        steps += 1
        reached |= {target for asker, target in pairs if asker in reached}
        if last in reached:
            distance = steps
    chain = waits.chain(str(first), str(last))
    assert (None if chain is None else len(chain)) == distance
    if chain:
        assert chain[0].asker_party == str(first) and chain[-1].target_party == str(last)
        assert all(a.target_party == b.asker_party for a, b in pairwise(chain))


def test_what_ended_is_not_remembered() -> None:
    waits, edge = Waits(), Edge("a", "b")
    waits.begin(edge)
    waits.begin(edge)
    assert len(waits) == 1 and list(waits) == [edge]
    waits.end(edge)
    waits.end(edge)
    assert len(waits) == 0 and waits.chain("a", "b") is None


def test_nobody_stands_between_somebody_and_itself() -> None:
    """Protocol 15.1"""
    waits = Waits()
    assert waits.chain("a", "a") == []
    assert waits.chain("a", "b") is None
