"""Test that messages which cause each other end, and that conversations do not (F113, protocol 15.3)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intercom.core.clock import Instant
from intercom.core.guard import LoopGuard
from intercom.limits import Limits
from intercom.wire import reasons
from tests.core.harness import Client, World

MINUTE = 60_000


def outcome(frames: list[dict[str, Any]]) -> str:
    [answer] = [frame for frame in frames if frame["type"] in ("delivered", "delivery_failed")]
    return answer["type"] if "reason" not in answer else reasons.code_of(answer["reason"])


def talk(
    clients: list[Client], count: int, *, text: str = "thanks", pause: int = 0, cause: str = "replyTo"
) -> list[str]:
    """Let a message go round ``count`` times, each caused by the one before; return what became of each."""
    names = "abc"
    world = clients[0].world
    outcomes = []
    before = None
    for number in range(count):
        sender = clients[number % len(clients)]
        target = names[(number + 1) % len(clients)]
        more = {} if before is None else {cause: before}
        said = f"{text} {number}" if text == "news" else text
        outcomes.append(outcome(sender.message(target, f"m{number}", said, **more)))
        if outcomes[-1] != "delivered":
            break
        before = f"m{number}"
        world.pass_time(pause)
    return outcomes


def clients(count: int, limits: Limits | None = None) -> list[Client]:
    world = World(limits=limits)
    return [world.register(name) for name in "abc"[:count]]


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("cause", ["replyTo", "causedBy"])
def test_echoes_end_within_the_longest_chain(count: int, cause: str) -> None:
    """F113: echo bots x2 and x3 (a ring), started by one message"""
    found = talk(clients(count), 200, cause=cause)
    assert len(found) <= Limits().loop_hops + 2, "the first, its hops, and the one that was refused"
    assert found[-1] in ("loop", "rate") and set(found[:-1]) == {"delivered"}


def test_an_echo_of_two_is_ended_when_the_free_messages_are_used_up() -> None:
    """Protocol 15.3.1: it says the same as the message before the one that caused it"""
    found = talk(clients(2), 200)
    assert len(found) == Limits().loop_free_hops + 2 and found[-1] == "loop"


@pytest.mark.parametrize("text", ["thanks", "news"])
def test_a_conversation_of_nine_messages_passes(text: str) -> None:
    """F113: a legitimate 9-message exchange passes, at any speed"""
    assert talk(clients(2), 9, text=text) == ["delivered"] * 9


def test_a_long_conversation_passes_that_has_something_to_say() -> None:
    """Protocol 15.3: one message every four seconds, as agents write at best"""
    found = talk(clients(2), Limits().loop_hops + 1, text="news", pause=4_000)
    assert set(found) == {"delivered"}


def test_a_long_conversation_that_is_too_fast_is_slowed_down_and_goes_on() -> None:
    """F113: the refusal says when to retry, and the refused message is not lost if it is sent later"""
    a, b = clients(2)
    found = talk([a, b], 200, text="news")
    assert found[-1] == "rate"
    number = len(found) - 1
    sender, target = ((a, "b"), (b, "a"))[number % 2]
    [answer] = [
        frame
        for frame in sender.message(target, f"m{number}", f"news {number}", replyTo=f"m{number - 1}")
        if frame["type"] == "delivery_failed"
    ]
    assert answer["reason"].endswith("after 60 s")
    a.world.pass_time(MINUTE)
    assert outcome(sender.message(target, f"m{number}", f"news {number}", replyTo=f"m{number - 1}")) == "delivered"


def test_the_longest_chain_ends_and_a_new_one_may_begin() -> None:
    """Protocol 15.3.2"""
    a, b = clients(2, Limits(loop_hops=20))
    found = talk([a, b], 200, text="news", pause=10_000)
    assert len(found) == 22 and found[-1] == "loop"
    assert outcome(b.message("a", "new", "really new")) == "delivered"
    assert outcome(b.message("a", "m21", "news 21")) == "delivered", "what was refused was not recorded"


def test_messages_without_a_cause_are_not_looked_at() -> None:
    """Protocol 15.3: whoever streams is not stopped, and nothing is remembered of it"""
    a, b = clients(2)
    for number in range(300):
        assert outcome(a.message("b", f"a{number}", "same")) == "delivered"
        assert outcome(b.message("a", f"b{number}", "same")) == "delivered"
    assert len(a.world.broker._messages.guard) == 0


def test_questions_and_answers_may_go_on_for_ever() -> None:
    """Protocol 15.3: the answer to an open question is never refused, and each ask begins anew"""
    a, b = clients(2)
    for number in range(200):
        assert outcome(a.ask("b", f"q{number}")) == "delivered"
        assert outcome(b.reply("a", f"r{number}", f"q{number}")) == "delivered"
    assert len(a.world.broker._messages.guard) == 0


def test_an_answer_passes_in_a_chain_that_is_over() -> None:
    """Protocol 15.3: its asker waits for it"""
    a, b = clients(2, Limits(loop_hops=18))
    assert talk([a, b], 19, text="news", pause=10_000)[-1] == "delivered"
    assert outcome(b.ask("a", "q", replyTo="m10", text="?")) == "delivered"
    assert outcome(a.reply("b", "r", "q")) == "delivered"
    assert outcome(a.reply("b", "r2", "m18", pending=False)) == "loop"


def test_a_retry_is_not_counted() -> None:
    """Protocol 6.9: the same message again is answered as before"""
    a, b = clients(2)
    talk([a, b], 17, text="news", pause=10_000)
    for _ in range(50):
        assert outcome(a.message("b", "m16", "news 16", replyTo="m15")) == "delivered"


def test_what_is_refused_is_counted_in_the_status() -> None:
    """F113: in the sender's result and in `status`"""
    a, b = clients(2)
    talk([a, b], 200)
    [status] = [frame for frame in a.write("broker_status", requestId="s") if frame["type"] == "broker_status"]
    assert status["report"]["broker"]["loopsRefused"] == 1


def test_a_message_that_names_itself_begins_a_chain() -> None:
    a, _ = clients(2)
    assert outcome(a.message("b", "m", causedBy="m")) == "delivered"


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3), st.integers(0, 3), st.booleans()), max_size=200))
@settings(max_examples=100, deadline=None)
def test_nothing_grows_without_bound_and_no_chain_is_longer_than_allowed(
    steps: list[tuple[int, int, int, bool]],
) -> None:
    """Protocol 15.3, whatever names whatever as its cause"""
    limits = Limits(loop_entries=8, loop_free_hops=2, loop_hops=5, loop_pair_messages=3, loop_root_messages=4)
    guard = LoopGuard(limits)
    hops: dict[str, int] = {}
    for number, (cause, sender, target, is_answer) in enumerate(steps):
        message_id, now = f"m{number}", Instant(number * 100, 0)
        refused = guard.judge(message_id, f"m{cause}", str(sender), str(target), "x", now, is_answer=is_answer)
        if refused is None:
            hops[message_id] = guard._links[message_id].hops if message_id in guard._links else 0
            assert hops[message_id] <= limits.loop_hops or is_answer
        assert max(len(guard._links), len(guard._pairs), len(guard._firsts)) <= limits.loop_entries


def test_a_retry_is_judged_once() -> None:
    """Protocol 15.3: it is the same message, however often it comes."""
    guard = LoopGuard(Limits(loop_hops=2, loop_free_hops=0))
    now = Instant(0, 0)
    guard.judge("m0", "", "a", "b", "x", now, is_answer=False)
    assert [guard.judge("m1", "m0", "b", "a", "y", now, is_answer=False) for _ in range(3)] == [None] * 3
    assert guard.judge("m2", "m1", "a", "b", "z", now, is_answer=False) == reasons.loop_too_long(2)


def test_what_is_remembered_of_messages_is_bounded() -> None:
    """Protocol 15.3: the oldest are forgotten, and what they caused begins a chain of its own."""
    guard = LoopGuard(Limits(loop_entries=2, loop_free_hops=0))
    now = Instant(0, 0)
    for number in range(9):
        for sender in "abc":
            guard.judge(f"{sender}{number}", f"{sender}{number - 1}", sender, "d", f"{number}", now, is_answer=False)
    assert len(guard) == 2
    assert len(guard._pairs) <= 2 and len(guard._firsts) <= 2


def test_the_windows_of_pairs_are_bounded() -> None:
    """Protocol 15.3"""
    guard = LoopGuard(Limits(loop_entries=2, loop_free_hops=0))
    now = Instant(0, 0)
    for number in range(4):
        guard.judge(f"first{number}", f"cause{number}", "a", "b", f"{number}", now, is_answer=False)
        guard.judge(f"next{number}", f"first{number}", f"s{number}", "b", f"+{number}", now, is_answer=False)
    assert len(guard._pairs) == len(guard._firsts) == 2
