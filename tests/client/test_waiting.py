"""Finding operations, and the one that is due next."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from intercom.client.asking import AskOperation
from intercom.client.operations import Opening, Operation
from intercom.client.sending import SendOperation
from intercom.client.waiting import TIMER_SLACK, Waiting


def sending(message_id: str, deadline: int) -> SendOperation[Any]:
    return SendOperation(message_id, "worker", Raw(b"{}"), deadline=deadline)


def test_sends_and_asks_are_found_by_message_id() -> None:
    waiting = Waiting()
    sent, asked = sending("m1", 10), AskOperation("q1", "worker", Raw(b"{}"), deadline=10)
    waiting.add(sent)
    waiting.add(asked)
    assert waiting.send("m1") is sent
    assert waiting.send("q1") is asked
    assert waiting.ask("q1") is None, "nobody can answer what was never written"
    asked.attempt("a1", 0)
    assert waiting.ask("q1") is asked
    assert waiting.ask("m1") is None
    assert waiting.ask(None) is None
    assert list(waiting) == [sent, asked]
    asked.withdraw()
    waiting.remove(asked)
    assert waiting.send("q1") is None
    assert len(waiting) == 1


def test_timers_follow_what_is_due() -> None:
    waiting, operation = Waiting(), sending("m1", 50_000)
    waiting.add(operation)
    assert waiting.next_due() == 50_000
    operation.attempt("a1", 0)
    waiting.schedule(operation)
    assert waiting.next_due() == 10_000
    operation.lost()
    assert waiting.next_due() == 50_000, "the timer of the attempt is gone, the one of the deadline is back"


def test_nothing_is_taken_before_its_time() -> None:
    waiting, operation = Waiting(), Opening(100)
    waiting.add(operation)
    assert waiting.take_due(99) is None
    assert waiting.take_due(100) is operation
    assert waiting.take_due(100) is None


def test_settled_operations_do_not_pile_up() -> None:
    waiting = Waiting()
    for number in range(10 * TIMER_SLACK):
        operation = sending(f"m{number}", 10_000 + number)
        waiting.add(operation)
        operation.withdraw()
        waiting.remove(operation)
    assert len(waiting._timers) <= TIMER_SLACK + 1


@given(st.lists(st.tuples(st.integers(0, 100), st.booleans()), max_size=40))
def test_operations_come_due_in_order(plan: list[tuple[int, bool]]) -> None:
    waiting = Waiting()
    kept: list[Operation[Any]] = []
    for due, settled in plan:
        operation = Opening(due)
        waiting.add(operation)
        if settled:
            operation.succeed(None)
            waiting.remove(operation)
        else:
            kept.append(operation)
    came = []
    while (due_now := waiting.next_due()) is not None:
        operation_due = waiting.take_due(due_now)
        assert operation_due is not None
        came.append(operation_due)
        operation_due.tick(due_now, None)
        waiting.remove(operation_due)
    assert sorted(map(id, came)) == sorted(map(id, kept))
    assert [operation.deadline for operation in came] == sorted(due for due, settled in plan if not settled)
